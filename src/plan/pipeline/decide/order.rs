//! The order of a decision.

use super::decision::{TargetDecision, TargetInput};
use super::draft::Draft;
use super::releases::BundledReleases;
use crate::api::conditions::{ConditionType, Reason};
use crate::api::pipeline::{HydratedRelease, TargetRelease};
use crate::plan::pipeline::conditions::Verdict;
use crate::plan::pipeline::destination::destination;

/// What is to be done for a Target; `None` where this version of the hub cannot decode it, or it is being deleted.
#[must_use]
pub fn decide(input: TargetInput<'_>) -> Option<TargetDecision> {
    let mut draft = Draft::of(input)?;
    let ready = draft.run();
    Some(draft.finished(ready))
}

impl Draft<'_> {
    /// Fills the decision; returns the verdict on `Ready`.
    fn run(&mut self) -> Verdict {
        let TargetInput {
            target,
            objects,
            rules,
            catalog,
            ..
        } = self.input;
        if self.spec.suspend == Some(true) {
            self.keep_needed();
            return Verdict::bad(
                Reason::Suspended,
                "the Target is suspended; remove suspend and it goes on",
            );
        }
        let destination = match destination(target.key, self.spec, objects, rules, catalog) {
            Ok(destination) => destination,
            Err(refusal) => {
                self.keep_needed();
                let verdict = Verdict::bad(refusal.reason, refusal.message);
                self.condition(ConditionType::RegistryResolved, verdict.clone());
                return verdict;
            }
        };
        let usable = Verdict::good(Reason::Resolved, "the registry is there and may be used");
        self.condition(ConditionType::RegistryResolved, usable);
        let (content, verdict) = match self.spec.rollback_to {
            Some(version) => self.pinned(version),
            None => self.resolved(&destination),
        };
        let pushed = self.bootstrap(content, &destination);
        self.condition(ConditionType::BootstrapReady, pushed.clone());
        self.clean_up();
        if verdict.holds { pushed } else { verdict }
    }

    /// The content of the version that the Target is pinned to; `None` where there is none.
    fn pinned(&mut self, to: i64) -> (Option<BundledReleases>, Verdict) {
        self.keep_needed();
        let found = self.versions.get(&to);
        let Some(version) = found.and_then(|(_, version)| version.spec.as_ref()) else {
            let message =
                format!("version {to}, which rollbackTo names, does not exist; the Target stays as it is");
            let verdict = Verdict::bad(Reason::VersionNotFound, message);
            self.condition(ConditionType::ReleasesResolved, verdict.clone());
            return (None, verdict);
        };
        let pinned = |reason| {
            Verdict::good(
                reason,
                format!("pinned to version {to} until rollbackTo is removed"),
            )
        };
        self.condition(ConditionType::ReleasesResolved, pinned(Reason::Resolved));
        self.condition(ConditionType::ReleasesRendered, pinned(Reason::AllRendered));
        self.out.status.leaving.clear();
        self.out.status.releases = version.releases.iter().map(pinned_release).collect();
        let bundled = BundledReleases {
            releases: version.releases.clone(),
            userdata: version.userdata.clone(),
        };
        (Some(bundled), pinned(Reason::Ready))
    }
}

fn pinned_release((unique_name, release): (&String, &HydratedRelease)) -> TargetRelease {
    TargetRelease {
        unique_name: unique_name.clone(),
        namespace: release.namespace.clone(),
        name: release.name.clone(),
        source: release.source.clone(),
        priority: 0,
        version: release.version.clone(),
    }
}
