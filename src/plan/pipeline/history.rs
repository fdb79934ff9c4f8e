//! The versions of a Target: when there is a new one, what it is called, how it differs, and which are kept.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::api::pipeline::{HydratedRelease, HydratedTargetSpec, HydratedTargetStatus};

use super::object::{ObjectKey, PipelineObject};
use super::object_map::{NamedKind, ObjectMap};
use super::readable_name::readable;

/// Versions that are kept besides the newest where a Target does not say.
const DEFAULT_LIMIT: i32 = 10;
/// Largest version in bytes, as JSON.
pub const MAX_VERSION_BYTES: usize = 256 * 1024;
/// Most Profiles whose data a version records; its schema has the same bound.
pub const MAX_PROFILES: usize = 256;
/// Longest name of a version's Target in its own name.
const READABLE_MAX: usize = 200;
/// Longest description of a change.
const CHANGES_MAX: usize = 1024;

/// A version as watched.
pub type StoredVersion = PipelineObject<HydratedTargetSpec, HydratedTargetStatus>;

/// The versions of a Target that are kept, by their number; those of another Target of the name do not count.
#[must_use]
pub fn versions<'o>(
    objects: &'o ObjectMap<HydratedTargetSpec, HydratedTargetStatus>,
    target: &ObjectKey,
    uid: &str,
) -> BTreeMap<i64, (&'o ObjectKey, &'o StoredVersion)> {
    let all = objects.naming(NamedKind::Target, target);
    let own = all.filter_map(|(key, object)| {
        let spec = object.spec.as_ref()?;
        (spec.target_name == target.name && spec.target_uid == uid && is_kept(object))
            .then_some((spec.version, (key, object)))
    });
    own.collect()
}

/// The number of the next version: that of the Target's creation in seconds, so that a Target that is made again never goes
/// back, and then one more each time. `others` is the newest number of an earlier Target of the name that is still there.
#[must_use]
pub fn next_version(
    newest: Option<i64>,
    recorded: Option<i64>,
    others: Option<i64>,
    created: Timestamp,
) -> i64 {
    let first = created.as_second().max(others.unwrap_or_default() + 1);
    newest.max(recorded).map_or(first, |known| known + 1)
}

/// The newest number of a version of any Target of this name, kept or not.
#[must_use]
pub fn newest_of_name(
    objects: &ObjectMap<HydratedTargetSpec, HydratedTargetStatus>,
    target: &ObjectKey,
) -> Option<i64> {
    let namespace = &target.namespace;
    let all = objects
        .naming_from(namespace, NamedKind::Target, target)
        .filter_map(|(_, version)| version.spec.as_ref());
    all.filter(|spec| spec.target_name == target.name)
        .map(|spec| spec.version)
        .max()
}

/// The name of a version.
#[must_use]
pub fn version_name(target: &str, version: i64) -> String {
    format!("{}-v{version}", readable("", target, READABLE_MAX))
}

/// Whether two versions have the same content: what a chart is made of, and where it goes.
#[must_use]
pub fn is_same_content(a: &HydratedTargetSpec, b: &HydratedTargetSpec) -> bool {
    fn data(spec: &HydratedTargetSpec) -> Option<&Value> {
        spec.userdata.as_ref().filter(|data| !data.is_null())
    }
    let mut charts = a.releases.values().zip(b.releases.values());
    a.registry == b.registry
        && a.releases.keys().eq(b.releases.keys())
        && charts.all(|(one, other)| chart_of(one) == chart_of(other))
        && data(a) == data(b)
}

/// What a bootstrap chart says of a release.
#[must_use]
pub fn chart_of(release: &HydratedRelease) -> (&str, &str, bool, Option<&str>) {
    let secret = release.pull_secret_name.as_deref();
    (&release.repository, &release.version, release.insecure, secret)
}

/// How a version differs from the one before, in words.
#[must_use]
pub fn changes(before: Option<&HydratedTargetSpec>, after: &HydratedTargetSpec) -> String {
    let Some(before) = before else {
        return shortened(
            "first version",
            &mut after.releases.iter().map(|(name, r)| shown(name, r)),
        );
    };
    let mut parts = Vec::new();
    for (name, release) in &after.releases {
        match before.releases.get(name) {
            None => parts.push(format!("added {}", shown(name, release))),
            Some(known) if known.component_version != release.component_version => parts.push(format!(
                "{name} {} → {}",
                known.component_version, release.component_version
            )),
            Some(known) if known.version != release.version => parts.push(format!("{name} changed")),
            Some(known) if known.pull_secret_name != release.pull_secret_name => {
                parts.push(format!("{name} has another pull Secret"));
            }
            Some(_) => {}
        }
    }
    let gone = before
        .releases
        .iter()
        .filter(|(name, _)| !after.releases.contains_key(*name));
    parts.extend(gone.map(|(name, release)| format!("removed {}", shown(name, release))));
    if before.userdata != after.userdata {
        parts.push("userdata changed".to_owned());
    }
    if before.registry != after.registry {
        parts.push("another registry".to_owned());
    }
    let first = after
        .rollback_to
        .map_or_else(String::new, |to| format!("rollback to {to}"));
    shortened(&first, &mut parts.into_iter())
}

fn shown(name: &str, release: &HydratedRelease) -> String {
    format!("{name} {}", release.component_version)
}

/// The parts after the first, as many as fit.
fn shortened(first: &str, parts: &mut dyn Iterator<Item = String>) -> String {
    let mut text = first.to_owned();
    for part in parts {
        if text.len() + part.len() + 8 > CHANGES_MAX {
            text.push_str("; …");
            break;
        }
        if !text.is_empty() {
            text.push_str(if text == "first version" { ": " } else { "; " });
        }
        text.push_str(&part);
    }
    text
}

/// The versions that are not kept any more: the oldest beyond the limit, never the newest, the newest that was pushed, or the
/// one that the Target is pinned to.
#[must_use]
pub fn superfluous(
    versions: &BTreeMap<i64, (&ObjectKey, &StoredVersion)>,
    limit: Option<i32>,
    pinned: Option<i64>,
) -> Vec<i64> {
    let pushed = versions.iter().rev().find(|(_, (_, version))| is_pushed(version));
    let pushed = pushed.map(|(number, _)| *number);
    let older = versions.keys().rev().skip(1);
    let beyond = older.skip(usize::try_from(limit.unwrap_or(DEFAULT_LIMIT)).unwrap_or_default());
    beyond
        .copied()
        .filter(|number| Some(*number) != pushed && Some(*number) != pinned)
        .collect()
}

/// Whether a version is kept: it is not being deleted, and its charts are not either.
#[must_use]
pub fn is_kept(version: &StoredVersion) -> bool {
    !version.deleting && version.status.prune.is_none()
}

/// Whether the chart of a version was pushed.
#[must_use]
pub fn is_pushed(version: &StoredVersion) -> bool {
    version.status.pushed_at.is_some()
}
