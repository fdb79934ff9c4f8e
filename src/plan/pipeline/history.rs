//! The versions of a Target: when there is a new one, what it is called, how it differs, and which are kept.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;
use serde_json::Value;

use crate::api::pipeline::{HydratedRelease, HydratedTargetSpec, HydratedTargetStatus};

use super::chart::readable;
use super::content_hash::content_hash;
use super::object::{ObjectKey, ObjectMap, PipelineObject, within};

/// Versions that are kept besides the newest where a Target does not say.
const DEFAULT_LIMIT: i32 = 10;
/// Largest version in bytes, as JSON.
pub const MAX_VERSION_BYTES: usize = 256 * 1024;
/// Longest name of a version's Target in its own name.
const READABLE_MAX: usize = 200;
/// Longest description of a change.
const CHANGES_MAX: usize = 1024;

/// A version as watched.
pub type StoredVersion = PipelineObject<HydratedTargetSpec, HydratedTargetStatus>;

/// The versions of a Target by their number; those of another Target of the name do not count.
#[must_use]
pub fn versions<'o>(
    objects: &'o ObjectMap<HydratedTargetSpec, HydratedTargetStatus>,
    target: &'o ObjectKey,
    uid: &str,
) -> BTreeMap<i64, (&'o ObjectKey, &'o StoredVersion)> {
    let all = within(objects, &target.namespace);
    let own = all.filter_map(|(key, object)| {
        let spec = object.spec.as_ref()?;
        (spec.target_name == target.name && spec.target_uid == uid && !object.deleting)
            .then_some((spec.version, (key, object)))
    });
    own.collect()
}

/// The number of the next version: that of the Target's creation in seconds, so that a Target that is made again never goes
/// back, and then one more each time.
#[must_use]
pub fn next_version(newest: Option<i64>, recorded: Option<i64>, created: Timestamp) -> i64 {
    let known = newest.max(recorded);
    known.map_or(created.as_second().max(1), |known| known + 1)
}

/// The name of a version.
#[must_use]
pub fn version_name(target: &str, version: i64) -> String {
    format!("{}-v{version}", readable("", target, READABLE_MAX))
}

/// Whether two versions have the same content: what a chart is made of, and where it goes.
#[must_use]
pub fn is_same_content(a: &HydratedTargetSpec, b: &HydratedTargetSpec) -> bool {
    content(a) == content(b)
}

fn content(spec: &HydratedTargetSpec) -> String {
    let release = |(name, release): (&String, &HydratedRelease)| {
        let chart = (
            &release.repository,
            &release.version,
            release.insecure,
            &release.pull_secret_name,
        );
        (name.clone(), content_hash(&chart))
    };
    let releases: BTreeMap<String, String> = spec.releases.iter().map(release).collect();
    content_hash(&(
        &spec.registry,
        releases,
        spec.userdata.as_ref().unwrap_or(&Value::Null),
    ))
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

/// Whether the chart of a version was pushed.
#[must_use]
pub fn is_pushed(version: &StoredVersion) -> bool {
    version.status.pushed_at.is_some()
}
