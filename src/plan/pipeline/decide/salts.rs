//! Under which tag the chart of a Release is, and how far it is.
//!
//! A chart that a version of the Target names was pushed, and is not rendered again. A renderer of another release may give other
//! bytes for a content that was rendered before: then its tag is taken, and the chart gets another one.

use std::sync::Arc;

use super::decision::TargetInput;
use super::draft::{ChartState, Draft};
use crate::api::conditions::Reason;
use crate::api::pipeline::HydratedRelease;
use crate::plan::pipeline::chart::SALTS;
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::remembered_chart::RememberedChart;
use crate::plan::pipeline::resolution::AcceptedRelease;

impl<'o> Draft<'o> {
    /// The chart of a Release, and how far it is. Its task is needed, and so is each whose tag was taken.
    pub(super) fn release_chart(
        &mut self,
        release: &AcceptedRelease<'_>,
        destination: &RenderDestination,
    ) -> (Arc<RememberedChart>, ChartState<'o>) {
        if let Some(known) = self.known_chart(release, destination) {
            return known;
        }
        let mut salt = 0;
        loop {
            let chart = self.planned(release, destination, salt);
            self.keep([chart.task_name.clone()]);
            let state = self.progress_of(&chart, false);
            salt += 1;
            let is_taken = matches!(state, ChartState::Failed(Reason::TagConflict, _));
            if !is_taken || salt == SALTS {
                return (chart, state);
            }
        }
    }

    fn planned(
        &self,
        release: &AcceptedRelease<'_>,
        destination: &RenderDestination,
        salt: u32,
    ) -> Arc<RememberedChart> {
        let key = self.input.target.key;
        self.input
            .charts
            .release_chart(release, key, self.spec, destination, salt)
    }

    /// The chart as a version of the Target names it, with whichever salt.
    fn known_chart(
        &mut self,
        release: &AcceptedRelease<'_>,
        destination: &RenderDestination,
    ) -> Option<(Arc<RememberedChart>, ChartState<'o>)> {
        let versions = self.versions.values().rev();
        let specs = versions.filter_map(|(_, version)| Some((version.created, version.spec.as_ref()?)));
        let mut entries = specs.filter_map(|(at, spec)| Some((at, spec.releases.get(release.unique_name)?)));
        let TargetInput { target, charts, .. } = self.input;
        let (at, entry, chart) = entries.find_map(|(at, entry): (_, &'o Arc<HydratedRelease>)| {
            let chart = charts.named(release, target.key, self.spec, destination, &entry.version)?;
            (chart.repository == entry.repository).then_some((at, entry, chart))
        })?;
        self.keep([chart.task_name.clone()]);
        let digest = entry.digest.as_deref();
        Some((chart, ChartState::Pushed { digest, at }))
    }
}
