//! How many bytes the versions of a namespace may take, and what gives way where they would take more: first history, and then new
//! versions.

use std::collections::{BTreeMap, VecDeque};

use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedTargetSpec, TargetSpec};

use super::history::{StoredVersion, is_kept, is_pushed};
use super::object::{ObjectKey, PipelineObject, within};
use super::object_map::NamesOthers;
use super::objects::PipelineObjects;

/// Most bytes of the versions of one namespace, those apart whose charts are being deleted, which may take as many.
pub const VERSIONS_OF_NAMESPACE: usize = 16 << 20;

/// The versions of one Target.
#[derive(Default)]
struct TargetVersions<'o> {
    bytes: usize,
    /// Those that can go, the oldest first, each with its bytes.
    history: VecDeque<(usize, &'o ObjectKey, &'o StoredVersion)>,
}

/// Versions that go although `historyLimit` would keep them, because those of their namespace take too many bytes: of the Target with
/// most bytes the oldest, until the others fit. The newest stays, and so do the newest that was pushed, the one that the Target is
/// pinned to, and each that is not pushed.
#[must_use]
pub fn early<'o>(
    namespace: &'o str,
    objects: &'o PipelineObjects,
) -> Vec<(&'o ObjectKey, &'o StoredVersion)> {
    if objects.hydrated_targets.bytes_within(namespace) <= VERSIONS_OF_NAMESPACE {
        return Vec::new();
    }
    let mut all = by_target(namespace, objects);
    let mut bytes: usize = all.values().map(|versions| versions.bytes).sum();
    let mut gone = Vec::new();
    while bytes > VERSIONS_OF_NAMESPACE {
        let with_history = all.values_mut().filter(|versions| !versions.history.is_empty());
        let Some(largest) = with_history.max_by_key(|versions| versions.bytes) else {
            break;
        };
        if let Some((freed, key, version)) = largest.history.pop_front() {
            largest.bytes -= freed;
            bytes -= freed;
            gone.push((key, version));
        }
    }
    gone
}

/// Whether a version fits into a namespace, once all history that can go is gone.
#[must_use]
pub fn fits(namespace: &str, objects: &PipelineObjects, version: &HydratedTargetSpec) -> bool {
    let version = PipelineObject::made(String::new(), version.clone()).kept_bytes();
    let known = objects.hydrated_targets.bytes_within(namespace);
    if known + version <= VERSIONS_OF_NAMESPACE {
        return true;
    }
    let all = by_target(namespace, objects);
    let needed = all.values().map(|versions| {
        let history = versions.history.iter().map(|(bytes, ..)| *bytes);
        versions.bytes - history.sum::<usize>()
    });
    needed.sum::<usize>() + version <= VERSIONS_OF_NAMESPACE
}

/// The Targets of a namespace that had no room for a new version.
pub fn waiting_for_room<'o>(
    namespace: &'o str,
    objects: &'o PipelineObjects,
) -> impl Iterator<Item = &'o ObjectKey> {
    let targets = within(&objects.targets, namespace);
    let waiting = targets.filter(|(_, target)| {
        let mut conditions = target.status.conditions.iter();
        conditions.any(|condition| condition.reason == Reason::TooManyVersions.as_str())
    });
    waiting.map(|(key, _)| key)
}

/// The versions of a namespace that are kept, by the name and the UID of their Target.
fn by_target<'o>(
    namespace: &'o str,
    objects: &'o PipelineObjects,
) -> BTreeMap<(&'o str, &'o str), TargetVersions<'o>> {
    let mut numbered: BTreeMap<_, BTreeMap<i64, (&ObjectKey, &StoredVersion)>> = BTreeMap::new();
    let kept = within(&objects.hydrated_targets, namespace).filter(|(_, version)| is_kept(version));
    for (key, version) in kept {
        if let Some(spec) = &version.spec {
            let of_target = (spec.target_name.as_str(), spec.target_uid.as_str());
            let versions = numbered.entry(of_target).or_default();
            versions.insert(spec.version, (key, version));
        }
    }
    let all = numbered.into_iter();
    all.map(|(target, versions)| (target, of_target(namespace, target, &versions, objects)))
        .collect()
}

fn of_target<'o>(
    namespace: &str,
    (name, uid): (&str, &str),
    versions: &BTreeMap<i64, (&'o ObjectKey, &'o StoredVersion)>,
    objects: &PipelineObjects,
) -> TargetVersions<'o> {
    let target = objects.targets.get(&ObjectKey::new(namespace, name));
    // Of a Target that is gone, or that cannot be decoded, it is not known what it needs.
    let spec = target
        .filter(|target| target.uid == uid && !target.deleting)
        .and_then(|target| target.spec.as_ref());
    let mut pushed = versions
        .iter()
        .rev()
        .filter(|(_, (_, version))| is_pushed(version));
    let last_pushed = pushed.next().map(|(number, _)| *number);
    let newest = versions.keys().next_back().copied();
    let mut found = TargetVersions::default();
    for (number, (key, version)) in versions {
        let bytes = version.kept_bytes();
        found.bytes += bytes;
        let is_needed = |spec: &TargetSpec| {
            let number = Some(*number);
            number == newest || number == last_pushed || number == spec.rollback_to || !is_pushed(version)
        };
        if spec.is_some_and(|spec| !is_needed(spec)) {
            found.history.push_back((bytes, *key, *version));
        }
    }
    found
}
