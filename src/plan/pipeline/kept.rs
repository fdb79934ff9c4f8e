//! What a Target keeps as it was in its last version, because it leaves only on purpose.

use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::pipeline::{
    HydratedProfile, HydratedRelease, HydratedTargetSpec, LeavingRelease, NamespacedName, ReleaseSourceKind,
};
use crate::api::time::next_whole_second;

use super::object::ObjectKey;
use super::objects::PipelineObjects;
use super::references::ReferenceRules;
use super::resolution::{KeptReason, KeptRelease, Resolution, UnresolvedRelease};
use super::source::{SourceKey, SourceState, TargetView, source, state};

/// How long a selector must not match before its Release leaves, so that a label that flaps removes nothing.
pub const LEAVES_AFTER: SignedDuration = SignedDuration::from_secs(60);

/// A Release of the last version that is not resolved now; `None` where it left on purpose.
pub(super) fn kept<'o>(
    target: TargetView<'o>,
    (unique_name, last): (&str, &'o Arc<HydratedRelease>),
    unresolved: &[UnresolvedRelease],
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<KeptRelease<'o>> {
    let status = &target.object.status;
    let release = ObjectKey::new(&last.namespace, &last.name);
    let recorded = status
        .releases
        .iter()
        .find(|known| known.namespace == last.namespace && known.name == last.name);
    let source = recorded.map_or(&last.source, |known| &known.source);
    let is_replaced = || unresolved.iter().any(|failed| failed.source == *source);
    let (source, why) = match unresolved.iter().find(|failed| failed.release == release) {
        Some(failed) => (&failed.source, KeptReason::Unresolved(failed.why.clone())),
        None => match state(source, &release, target, objects, rules) {
            SourceState::Binds => (source, KeptReason::NotGranted),
            SourceState::Unmatched => {
                let since = unmatched_since(&status.leaving, unique_name, None, now)?;
                (source, KeptReason::Unmatched(since))
            }
            SourceState::Gone if is_replaced() => (source, KeptReason::Replaced),
            SourceState::Gone => return None,
        },
    };
    // What may not reach the Target any more has a say in nothing there.
    let object = objects.releases.get(&release);
    let object = object.filter(|_| why != KeptReason::NotGranted);
    Some(KeptRelease {
        unique_name: unique_name.to_owned(),
        last,
        object,
        source: source.clone(),
        priority: recorded.map_or(last.priority, |known| known.priority),
        why,
    })
}

/// Since when the selector of a Release, or of a Profile with data, does not match; `None` once that is long enough.
fn unmatched_since(
    leaving: &[LeavingRelease],
    unique_name: &str,
    profile: Option<&NamespacedName>,
    now: Timestamp,
) -> Option<Timestamp> {
    let is_it =
        |known: &&LeavingRelease| known.unique_name == unique_name && known.profile.as_ref() == profile;
    let known = leaving.iter().find(is_it);
    let since = known.map_or_else(|| next_whole_second(now), |known| known.since.0);
    (now.duration_since(since) < LEAVES_AFTER).then_some(since)
}

/// Data of a Profile in the next version.
#[derive(Clone, Debug, PartialEq)]
pub struct ProfileData {
    /// What the version records.
    pub profile: HydratedProfile,
    /// Since when the Profile's selector does not match, where its data is about to leave and the Release is not.
    pub unmatched_since: Option<Timestamp>,
}

/// The data of Profiles that a Target gets: of those whose Release it gets as it is now, and of all others as it was in the
/// last version, until they leave on purpose.
#[must_use]
pub fn profile_data(
    target: TargetView<'_>,
    last: Option<&HydratedTargetSpec>,
    resolution: &Resolution<'_>,
    is_waiting: &dyn Fn(&str) -> bool,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Vec<ProfileData> {
    let mut data: Vec<ProfileData> = Vec::new();
    let accepted = resolution.accepted.iter();
    for accepted in accepted.filter(|release| !is_waiting(release.unique_name)) {
        let bound = resolution
            .bound
            .iter()
            .find(|bound| bound.release == *accepted.release);
        for (profile, userdata) in bound.into_iter().flat_map(|bound| &bound.userdata) {
            data.push(ProfileData {
                profile: HydratedProfile {
                    namespace: profile.namespace.clone(),
                    name: profile.name.clone(),
                    unique_name: accepted.unique_name.to_owned(),
                    userdata: (*userdata).clone(),
                },
                unmatched_since: None,
            });
        }
    }
    for known in last.into_iter().flat_map(|last| &last.profiles) {
        let is_current = data
            .iter()
            .any(|current| is_same_profile(&current.profile, known));
        if !is_current && is_waiting(&known.unique_name) {
            data.push(ProfileData {
                profile: known.clone(),
                unmatched_since: None,
            });
        } else if !is_current {
            data.extend(kept_data(target, known, resolution, objects, rules, now));
        }
    }
    data.sort_by(|a, b| key(&a.profile).cmp(&key(&b.profile)));
    data
}

/// Data of the last version; `None` where it left on purpose.
fn kept_data(
    target: TargetView<'_>,
    known: &HydratedProfile,
    resolution: &Resolution<'_>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Option<ProfileData> {
    let name = &known.unique_name;
    let stays = |unmatched_since| ProfileData {
        profile: known.clone(),
        unmatched_since,
    };
    // Data leaves with its Release.
    if resolution.kept.iter().any(|kept| kept.unique_name == *name) {
        return Some(stays(None));
    }
    let accepted = resolution
        .accepted
        .iter()
        .find(|release| release.unique_name == name)?;
    let profile = ObjectKey::new(&known.namespace, &known.name);
    let source = source(ReleaseSourceKind::Profile, &profile);
    match state(&source, accepted.release, target, objects, rules) {
        // It binds and is not among what is bound: it has no data any more, or may not reach the Target any more.
        SourceState::Binds => {
            let is_bound = |bound: &SourceKey<'_>| bound.is(&source);
            let bound = resolution
                .bound
                .iter()
                .any(|bound| is_bound(&bound.source) || bound.further.iter().any(is_bound));
            (!bound).then(|| stays(None))
        }
        SourceState::Unmatched => {
            let leaving = &target.object.status.leaving;
            unmatched_since(leaving, name, Some(&profile_of(known)), now).map(|since| stays(Some(since)))
        }
        SourceState::Gone => None,
    }
}

/// The Profile that data is of.
#[must_use]
pub fn profile_of(data: &HydratedProfile) -> NamespacedName {
    NamespacedName {
        namespace: data.namespace.clone(),
        name: data.name.clone(),
    }
}

/// Whether both are of one Profile.
fn is_same_profile(a: &HydratedProfile, b: &HydratedProfile) -> bool {
    (&a.namespace, &a.name) == (&b.namespace, &b.name)
}

fn key(profile: &HydratedProfile) -> (&str, &str) {
    (&profile.namespace, &profile.name)
}
