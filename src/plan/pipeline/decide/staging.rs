//! Holds back changes of Releases whose turn it is not.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::draft::{Draft, listed_as_before};
use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedRelease, HydratedTargetSpec, ReleaseSourceKind};
use crate::plan::pipeline::conditions::{Verdict, listed};
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::resolution::{AcceptedRelease, Resolution};
use crate::plan::pipeline::rollout::{RolloutTurn, held};
use crate::plan::pipeline::source::SourceKey;

/// A Release that changed, and stays as it was in the last version of a Target until it is the Target's turn.
pub(super) struct WaitingRelease<'o> {
    /// The Release.
    pub release: ObjectKey,
    /// The name under which the last version has it.
    pub unique_name: String,
    last: &'o Arc<HydratedRelease>,
    source: SourceKey<'o>,
    priority: i32,
    is_halted: bool,
}

impl<'o> Draft<'o> {
    /// What a rollout has not brought to this Target.
    pub(super) fn waiting(
        &mut self,
        resolution: &Resolution<'o>,
        last: Option<&'o HydratedTargetSpec>,
        destination: &RenderDestination,
    ) -> Vec<WaitingRelease<'o>> {
        let Some(last) = last else { return Vec::new() };
        let mut waiting = Vec::new();
        for release in &resolution.accepted {
            let held_back = self.held_back(release, &last.releases, destination);
            waiting.extend(held_back.filter(|held| !is_taken(held, resolution)));
        }
        waiting
    }

    /// What stays in place of an accepted Release; `None` where it is as in the last version, or may be another.
    fn held_back(
        &mut self,
        release: &AcceptedRelease<'o>,
        last: &'o BTreeMap<String, Arc<HydratedRelease>>,
        destination: &RenderDestination,
    ) -> Option<WaitingRelease<'o>> {
        let source = release.source;
        if source.kind != ReleaseSourceKind::Profile {
            return None;
        }
        let input = self.input;
        let profile = source.key;
        let spec = input.objects.profiles.get(profile)?.spec.as_ref()?;
        spec.max_unavailable.as_ref()?;
        let (status, target) = (&input.target.object.status, input.target.key);
        let (unique_name, entry) = held(last, status, release.release, release.unique_name, source)?;
        let charts = input.charts;
        // Of the same version in another repository: the Target has another registry, and nothing of the Release changed.
        if charts
            .named(release, target, self.spec, destination, &entry.version)
            .is_some()
        {
            return None;
        }
        let chart = charts.release_chart(release, target, self.spec, destination, 0);
        let turn = input.rollouts.turn(profile, target, &chart.version);
        self.out.awaits_rollout |= turn == RolloutTurn::Unknown;
        (turn != RolloutTurn::Now).then(|| WaitingRelease {
            release: release.release.clone(),
            unique_name: unique_name.clone(),
            last: entry,
            source,
            priority: release.priority,
            is_halted: turn == RolloutTurn::Halted,
        })
    }

    /// Keeps what waits as it was in the last version.
    pub(super) fn hold_back(
        &mut self,
        waiting: &[WaitingRelease<'_>],
        releases: &mut BTreeMap<String, Arc<HydratedRelease>>,
    ) {
        for held in waiting {
            let listed = listed_as_before(&held.unique_name, held.last, &held.source.named(), held.priority);
            self.keep_as_before(listed, held.last, releases);
        }
    }
}

/// Whether another Release has the unique name by now under which one would stay.
fn is_taken(held: &WaitingRelease<'_>, resolution: &Resolution<'_>) -> bool {
    let name = &held.unique_name;
    let mut accepted = resolution.accepted.iter();
    accepted.any(|other| other.unique_name == *name && *other.release != held.release)
        || resolution.kept.iter().any(|kept| kept.unique_name == *name)
}

/// What a Target says while a change of one of its Releases has not reached it; `None` where none waits. It says nothing of how
/// far others are: a fleet would write its statuses anew for each of them.
pub(super) fn verdict_on(waiting: &[WaitingRelease<'_>]) -> Option<Verdict> {
    if waiting.is_empty() {
        return None;
    }
    let texts = waiting.iter().map(|held| {
        let (name, profile) = (&held.unique_name, held.source.key);
        if held.is_halted {
            format!(
                "{name} stays as it is: Profile {profile} halted its rollout, because it failed on too many Targets; mend those, or \
                 change the Release"
            )
        } else {
            format!("{name} stays as it is until it is this Target's turn in the rollout of Profile {profile}")
        }
    });
    let reason = if waiting.iter().any(|held| held.is_halted) {
        Reason::RolloutHalted
    } else {
        Reason::RolloutWaiting
    };
    Some(Verdict::bad(reason, listed(texts)))
}
