//! Charts of Releases that were planned before: a fleet is decided about often, and its Releases change seldom.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::api::pipeline::TargetSpec;

use super::chart::{PlannedChart, SALTS, release_chart, release_version_prefix};
use super::destination::RenderDestination;
use super::object::ObjectKey;
use super::resolution::AcceptedRelease;

/// Most charts that are remembered; with one more, all are forgotten.
pub(super) const REMEMBERED: usize = 4096;

/// Everything that the chart of a Release depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ChartKey {
    /// UID and generation of the Release and of its version.
    release: (String, i64),
    version: (String, i64),
    pull_secrets: BTreeMap<String, String>,
    namespace: String,
    destination: RenderDestination,
    account: Option<String>,
    class: Option<String>,
    cluster: Option<String>,
    salt: u32,
}

/// Charts that were planned before.
#[derive(Debug, Default)]
pub struct ChartCache(RefCell<HashMap<ChartKey, Arc<PlannedChart>>>);

impl ChartCache {
    /// The chart of a Release.
    pub fn release_chart(
        &self,
        release: &AcceptedRelease<'_>,
        target: &ObjectKey,
        spec: &TargetSpec,
        destination: &RenderDestination,
        salt: u32,
    ) -> Arc<PlannedChart> {
        let key = ChartKey {
            release: (release.object.uid.clone(), release.object.generation),
            version: (release.version_revision.0.to_owned(), release.version_revision.1),
            pull_secrets: release.pull_secrets.clone(),
            namespace: target.namespace.clone(),
            destination: destination.clone(),
            account: spec.service_account_name.clone(),
            class: spec.renderer_class_name.clone(),
            cluster: spec.render_cluster_name.clone(),
            salt,
        };
        let mut known = self.0.borrow_mut();
        if let Some(chart) = known.get(&key) {
            return Arc::clone(chart);
        }
        if known.len() >= REMEMBERED {
            known.clear();
        }
        let chart = Arc::new(release_chart(release, target, spec, destination, salt));
        known.insert(key, Arc::clone(&chart));
        chart
    }

    /// The chart of a Release under a version that it may have, with whichever salt; `None` where the version is of another content.
    pub fn named(
        &self,
        release: &AcceptedRelease<'_>,
        target: &ObjectKey,
        spec: &TargetSpec,
        destination: &RenderDestination,
        version: &str,
    ) -> Option<Arc<PlannedChart>> {
        if !version.starts_with(&release_version_prefix(release.object.generation)) {
            return None;
        }
        (0..SALTS)
            .map(|salt| self.release_chart(release, target, spec, destination, salt))
            .find(|chart| chart.version == version)
    }

    /// How many charts are remembered.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}
