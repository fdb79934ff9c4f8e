//! The Releases of a Target: which of them it gets, and whether their charts are pushed.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use super::decision::TargetInput;
use super::draft::{ChartState, Draft, listed_as_before};
use super::staging::{WaitingRelease, verdict_on};
use crate::api::conditions::{ConditionType, Reason};
use crate::api::pipeline::{
    HydratedProfile, HydratedRelease, HydratedTargetSpec, LeavingRelease, NamespacedName, TargetRelease,
};
use crate::api::time::whole_seconds;
use crate::plan::pipeline::conditions::{Verdict, dependencies, listed, resolved};
use crate::plan::pipeline::destination::RenderDestination;
use crate::plan::pipeline::kept::{LEAVES_AFTER, profile_data, profile_of};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::NamedKind;
use crate::plan::pipeline::resolution::{AcceptedRelease, BINDINGS_OF_TARGET, KeptReason, Resolution};
use crate::plan::pipeline::resolve::resolve;
use crate::plan::pipeline::task::base_name;
use crate::plan::pipeline::userdata::{DataConflicts, merged};

/// What a chart of a Target bundles.
pub(super) struct BundledReleases {
    pub releases: BTreeMap<String, Arc<HydratedRelease>>,
    pub profiles: Vec<HydratedProfile>,
    pub userdata: Option<Value>,
}

/// Releases whose charts are not pushed.
#[derive(Default)]
pub(super) struct Unrendered {
    pub pending: Vec<(ObjectKey, Option<Reason>)>,
    pub failed: Vec<(ObjectKey, Reason, bool)>,
}

impl<'o> Draft<'o> {
    /// The content that the Releases of the Target make; `None` while not all of them are rendered.
    pub(super) fn resolved(&mut self, destination: &RenderDestination) -> (Option<BundledReleases>, Verdict) {
        let input = self.input;
        let last = self.newest().and_then(|(_, version)| version.spec.as_ref());
        let resolution = resolve(input.target, last, input.objects, input.rules, input.now);
        if let Some(bindings) = resolution.too_many {
            return self.too_many(bindings);
        }
        self.out.left_out.clone_from(&resolution.left_out);
        let verdict = resolved(&resolution);
        let may_be_empty = self.spec.allow_empty == Some(true) && resolution.unresolved.is_empty();
        self.condition(ConditionType::ReleasesResolved, verdict.clone());
        if !verdict.holds && !may_be_empty {
            self.keep_needed();
            self.condition(ConditionType::ReleasesRendered, verdict.clone());
            return (None, verdict);
        }
        let mut releases = self.kept(&resolution);
        let waiting = self.waiting(&resolution, last, destination);
        self.hold_back(&waiting, &mut releases);
        let rendered = self.rendered(&resolution, &waiting, destination, &mut releases);
        let profiles = self.profiles(last, &resolution, &waiting);
        self.keep_due(last, &resolution, &profiles);
        let (userdata, conflicts) = merged(&profiles, self.spec.userdata.as_ref());
        let missing = dependencies(&resolution)
            .or_else(|| conflict(&conflicts))
            .or_else(|| verdict_on(&waiting));
        let content = rendered.holds.then_some(BundledReleases {
            releases,
            profiles,
            userdata,
        });
        let verdict = if rendered.holds {
            missing.unwrap_or(rendered)
        } else {
            rendered
        };
        self.condition(ConditionType::ReleasesRendered, verdict.clone());
        (content, verdict)
    }

    /// Nothing is resolved: the Target stays as it is.
    fn too_many(&mut self, bindings: usize) -> (Option<BundledReleases>, Verdict) {
        let message = format!(
            "{bindings} ReleaseBindings, RegistryBindings and Profiles are for this Target, of {BINDINGS_OF_TARGET} at most; the Target stays \
             as it is: delete some, or let fewer Profiles match it"
        );
        let verdict = Verdict::bad(Reason::TooManyBindings, message);
        self.keep_needed();
        self.out.is_left_out_unknown = true;
        self.out.status.leaving.clear();
        for type_ in [ConditionType::ReleasesResolved, ConditionType::ReleasesRendered] {
            self.condition(type_, verdict.clone());
        }
        (None, verdict)
    }

    /// Notes which Releases lose to others, where nothing else is decided about them.
    pub(super) fn note_left_out(&mut self) {
        let input = self.input;
        let last = self.newest().and_then(|(_, version)| version.spec.as_ref());
        self.out.left_out = resolve(input.target, last, input.objects, input.rules, input.now).left_out;
    }

    /// The Releases that stay as they are, and the times of those that leave.
    fn kept(&mut self, resolution: &Resolution<'_>) -> BTreeMap<String, Arc<HydratedRelease>> {
        self.out.status.leaving.clear();
        self.out.status.releases.clear();
        let mut releases = BTreeMap::new();
        for kept in &resolution.kept {
            if let KeptReason::Unmatched(since) = kept.why {
                self.leaving(&kept.unique_name, None, since);
            }
            let listed = listed_as_before(&kept.unique_name, kept.last, &kept.source, kept.priority);
            self.keep_as_before(listed, kept.last, &mut releases);
        }
        releases
    }

    /// Keeps a Release as the last version has it.
    pub(super) fn keep_as_before(
        &mut self,
        listed: Arc<TargetRelease>,
        last: &Arc<HydratedRelease>,
        releases: &mut BTreeMap<String, Arc<HydratedRelease>>,
    ) {
        releases.insert(listed.unique_name.clone(), Arc::clone(last));
        self.out.status.releases.push(listed);
        self.keep_tasks_of(last);
    }

    /// Says that what has the unique name, or the data of a Profile for it, leaves once it has not matched for long enough.
    fn leaving(&mut self, unique_name: &str, profile: Option<NamespacedName>, since: Timestamp) {
        let due = since.saturating_add(LEAVES_AFTER).unwrap_or(since);
        if due > self.input.now {
            self.look_again(due);
        }
        self.out.status.leaving.push(LeavingRelease {
            unique_name: unique_name.to_owned(),
            profile,
            since: whole_seconds(since),
        });
    }

    /// Keeps since when what has to leave has not matched, until a version is without it: the time would begin anew where another
    /// chart holds that version back.
    fn keep_due(
        &mut self,
        last: Option<&HydratedTargetSpec>,
        resolution: &Resolution<'_>,
        profiles: &[HydratedProfile],
    ) {
        let (Some(last), now) = (last, self.input.now) else {
            return;
        };
        let stays = |name: &str| {
            let mut accepted = resolution.accepted.iter();
            accepted.any(|one| one.unique_name == name)
                || resolution.kept.iter().any(|one| one.unique_name == name)
        };
        let has_data = |all: &[HydratedProfile], name: &str, profile: &NamespacedName| {
            let mut all = all.iter();
            all.any(|one| one.unique_name == name && profile_of(one) == *profile)
        };
        for known in &self.input.target.object.status.leaving {
            let name = known.unique_name.as_str();
            let is_due = now.duration_since(known.since.0) >= LEAVES_AFTER;
            let has_left = match &known.profile {
                Some(profile) => {
                    has_data(&last.profiles, name, profile) && !has_data(profiles, name, profile)
                }
                None => last.releases.contains_key(name) && !stays(name),
            };
            if is_due && has_left {
                self.leaving(name, known.profile.clone(), known.since.0);
            }
        }
    }

    /// The data of Profiles that the Target gets.
    fn profiles(
        &mut self,
        last: Option<&HydratedTargetSpec>,
        resolution: &Resolution<'_>,
        waiting: &[WaitingRelease<'_>],
    ) -> Vec<HydratedProfile> {
        let TargetInput {
            target,
            objects,
            rules,
            now,
            ..
        } = self.input;
        let is_waiting = |name: &str| waiting.iter().any(|waiting| waiting.unique_name == name);
        let data = profile_data(target, last, resolution, &is_waiting, objects, rules, now);
        for one in &data {
            if let Some(since) = one.unmatched_since {
                self.leaving(&one.profile.unique_name, Some(profile_of(&one.profile)), since);
            }
        }
        data.into_iter().map(|one| one.profile).collect()
    }

    /// Keeps the tasks of a Release that stays as it is: once it can be resolved again, its chart needs not be rendered again.
    fn keep_tasks_of(&mut self, release: &HydratedRelease) {
        let TargetInput { target, objects, .. } = self.input;
        let release = ObjectKey::new(&release.namespace, &release.name);
        let namespace = &target.key.namespace;
        let tasks = objects.tasks.naming_from(namespace, NamedKind::Release, &release);
        self.keep(tasks.map(|(key, _)| base_name(&key.name).to_owned()));
    }

    /// Whether the charts of all accepted Releases but those that wait are pushed; those that are join `releases`.
    fn rendered(
        &mut self,
        resolution: &Resolution<'o>,
        waiting: &[WaitingRelease<'_>],
        destination: &RenderDestination,
        releases: &mut BTreeMap<String, Arc<HydratedRelease>>,
    ) -> Verdict {
        let mut unrendered = Unrendered::default();
        let is_waiting = |release: &&AcceptedRelease<'_>| {
            let mut waiting = waiting.iter();
            waiting.any(|waiting| waiting.release == *release.release)
        };
        for release in resolution.accepted.iter().filter(|release| !is_waiting(release)) {
            let (chart, state) = self.release_chart(release, destination);
            self.out.status.releases.push(chart.listed(release));
            let key = || release.release.clone();
            match state {
                ChartState::Pushed { digest, .. } => {
                    let entry = chart.hydrated(release, destination, digest);
                    releases.insert(release.unique_name.to_owned(), entry);
                }
                ChartState::Pending(why) => unrendered.pending.push((key(), why)),
                ChartState::Failed(reason, is_final) => unrendered.failed.push((key(), reason, is_final)),
            }
        }
        let listed = &mut self.out.status.releases;
        listed.sort_by(|a, b| a.unique_name.cmp(&b.unique_name));
        // A version may hold charts whose tasks are of no account.
        self.out.awaits_tasks = self.versions.is_empty() && unrendered.are_all_on_their_way();
        unrendered.verdict()
    }
}

impl Unrendered {
    /// Whether each runs or is about to, and none waits for what a person may have to mend.
    fn are_all_on_their_way(&self) -> bool {
        let mut pending = self.pending.iter();
        self.failed.is_empty() && !self.pending.is_empty() && pending.all(|(_, why)| why.is_none())
    }

    pub fn verdict(&self) -> Verdict {
        if !self.failed.is_empty() {
            let texts = self.failed.iter().map(|(release, reason, _)| {
                format!(
                    "the chart of Release {release} failed with {reason}; its RenderTask says why. What is on the cluster stays"
                )
            });
            let is_stalled = self.failed.iter().any(|(_, _, is_final)| *is_final);
            return Verdict::bad(Reason::ReleaseFailed, listed(texts)).stalled_if(is_stalled);
        }
        if self.pending.is_empty() {
            return Verdict::good(Reason::AllRendered, "the charts of all Releases are pushed");
        }
        // Not which of them run: a fleet would write its statuses anew for each chart.
        let first = "charts of Releases are not pushed yet; their RenderTasks say how far they are";
        let waiting = self.pending.iter();
        let waiting = waiting.filter_map(|(release, why)| why.map(|why| (release, why)));
        let texts = waiting.map(|(release, why)| format!("the chart of Release {release} waits: {why}"));
        Verdict::bad(
            Reason::Pending,
            listed(std::iter::once(first.to_owned()).chain(texts)),
        )
    }
}

fn conflict(conflicts: &DataConflicts) -> Option<Verdict> {
    if conflicts.count == 0 {
        return None;
    }
    let texts = conflicts.named.iter().map(|conflict| {
        let mut profiles: Vec<String> = conflict.profiles.iter().map(ObjectKey::to_string).collect();
        if conflict.more > 0 {
            profiles.push(format!("{} more", conflict.more));
        }
        let key = conflict
            .path
            .as_ref()
            .map_or_else(|| "a key".to_owned(), |path| format!("the key {path}"));
        format!(
            "Profiles {} set {key} of its data differently",
            profiles.join(" and ")
        )
    });
    let mut texts = texts.collect::<Vec<_>>().join("; ");
    let more = conflicts.count - conflicts.named.len();
    if more > 0 {
        texts = format!("{texts}; and {more} more");
    }
    let message =
        format!("{texts}; none of them is used: let one Profile set each key, or set it in the Target");
    Some(Verdict::bad(Reason::UserdataConflict, message))
}
