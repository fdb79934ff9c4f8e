//! A Target that is pinned to one of its versions.

use super::draft::{Draft, listed_as_before};
use super::releases::BundledReleases;
use crate::api::conditions::{ConditionType, Reason};
use crate::api::pipeline::{HydratedProfile, HydratedRelease, HydratedTargetSpec, ReleaseSourceKind};
use crate::plan::pipeline::conditions::{Verdict, listed};
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::history::chart_of;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::resolve::may_use_version;
use crate::plan::pipeline::source::may_reach;

impl Draft<'_> {
    /// The content of the version that the Target is pinned to; `None` where it cannot have it.
    pub(super) fn pinned(
        &mut self,
        to: i64,
        destination: &RenderDestination,
    ) -> (Option<BundledReleases>, Verdict) {
        self.keep_needed();
        self.note_left_out();
        let found = self.versions.get(&to);
        let Some(version) = found.and_then(|(_, version)| version.spec.as_ref()) else {
            let message =
                format!("version {to}, which rollbackTo names, does not exist; the Target stays as it is");
            return self.not_pinned(Verdict::bad(Reason::VersionNotFound, message));
        };
        if let Some(verdict) = self.not_granted(version) {
            return self.not_pinned(verdict);
        }
        self.condition(
            ConditionType::ReleasesResolved,
            Verdict::good(Reason::Resolved, "the Releases are those of an earlier version"),
        );
        self.out.status.leaving.clear();
        let pinned = version.releases.iter();
        let pinned = pinned.map(|(name, last)| listed_as_before(name, last, &last.source, last.priority));
        self.out.status.releases = pinned.collect();
        let (releases, rendered) = self.charts_again(version, destination);
        self.condition(ConditionType::ReleasesRendered, rendered.clone());
        let bundled = rendered.holds.then(|| BundledReleases {
            releases,
            profiles: version.profiles.clone(),
            userdata: version.userdata.clone(),
        });
        (bundled, rendered)
    }

    /// Whether the Target is pinned to another content than that of its newest version.
    pub(super) fn is_going_back_from(&self, newest: &HydratedTargetSpec) -> bool {
        let pin = self.spec.rollback_to;
        pin.is_some() && pin != Some(newest.version) && pin != newest.rollback_to
    }

    /// The newest version is not pushed while the Target waits to go back to another: its cluster would take it up in between.
    pub(super) fn held_back_by_pin(&mut self, number: i64) -> Verdict {
        // No task of it is wanted.
        self.bootstrap_task = Some(String::new());
        let message = format!("version {number} is not pushed, because the Target goes back to another one");
        Verdict::bad(Reason::Pending, message)
    }

    fn not_pinned(&mut self, verdict: Verdict) -> (Option<BundledReleases>, Verdict) {
        self.condition(ConditionType::ReleasesResolved, verdict.clone());
        (None, verdict)
    }

    /// What of the version may not reach the Target any more. What the Target has already stays, as everywhere.
    fn not_granted(&self, version: &HydratedTargetSpec) -> Option<Verdict> {
        let has = self.newest().and_then(|(_, newest)| newest.spec.as_ref());
        let is_new = |name: &str, release: &HydratedRelease| {
            has.and_then(|has| has.releases.get(name))
                .is_none_or(|known| chart_of(known) != chart_of(release))
        };
        let releases = version.releases.iter();
        let releases = releases
            .filter(|(name, release)| is_new(name, release) && !self.may_have(release))
            .map(|(_, release)| format!("Release {}/{}", release.namespace, release.name));
        let is_new = |profile: &HydratedProfile| {
            has.is_none_or(|has| has.userdata != version.userdata && !has.profiles.contains(profile))
        };
        let profiles = version.profiles.iter();
        let profiles = profiles
            .filter(|profile| {
                is_new(profile)
                    && !self.may_get(ReleaseSourceKind::Profile, &profile.namespace, &profile.name)
            })
            .map(|profile| format!("the data of Profile {}/{}", profile.namespace, profile.name));
        let refused: Vec<String> = releases
            .chain(profiles)
            .map(|what| {
                format!("{what} of the version that rollbackTo names may not reach this Target any more")
            })
            .collect();
        (!refused.is_empty()).then(|| {
            let message = format!(
                "{}; grant it again, or name another version",
                listed(refused.iter().cloned())
            );
            Verdict::bad(Reason::NotGranted, message)
        })
    }

    fn may_have(&self, release: &HydratedRelease) -> bool {
        let (source, named) = (&release.source, &release.component_version_ref);
        let key = ObjectKey::new(&release.namespace, &release.name);
        let version = ObjectKey::new(&named.namespace, &named.name);
        self.may_get(source.kind, &source.namespace, &source.name)
            && may_use_version(&key, &version, self.input.objects, self.input.rules)
    }

    /// Whether a source may reach the Target.
    fn may_get(&self, kind: ReleaseSourceKind, namespace: &str, name: &str) -> bool {
        let (source, input) = (ObjectKey::new(namespace, name), self.input);
        may_reach(kind, &source, input.target.key, input.objects, input.rules)
    }
}
