//! The platform's objects that a task's namespace may use, listed for a task that named another.
//!
//! The message is the same where the named object does not exist and where it is for others, so that no tenant learns which of
//! the two it is; it lists nothing that the namespace may not use.

use std::fmt::Write as _;

use crate::api::conditions::Reason;
use crate::api::names::TaskKind;
use crate::api::oci::{RegistryHost, RepositoryPrefix};
use crate::api::{ClusterRegistrySpec, RenderTaskSpec};

use super::resolve::{Catalog, granted};
use crate::plan::task::model::{Task, TaskId};
use crate::plan::task::refusal::Refusal;

/// Entries of a list in a message, at most.
const LISTED: usize = 10;
/// Bytes of a list in a message, without the separators, so that the note of an event holds all of it.
const LISTED_BYTES: usize = 512;

impl Catalog {
    /// The message to a task that names a registry of the platform that it may not use.
    pub(super) fn no_registry(&self, task: &Task) -> Refusal {
        let usable = self
            .registries
            .iter()
            .filter(|(_, found)| self.admits(&found.spec.allowed_namespaces, &found.recorded, &task.id));
        let entries = usable.filter_map(|(name, found)| entry(name, &found.spec, &task.id));
        let message = missing("ClusterRegistry", "registryRef", false, &task.id, entries);
        let reason = match task.id.kind {
            TaskKind::RenderTask => Reason::RegistryNotAllowed,
            // No list binds the platform's own tasks, so to them it can only be missing.
            TaskKind::ClusterRenderTask => Reason::RegistryNotFound,
        };
        Refusal::new(reason, message)
    }

    /// The message to a task whose renderer class it may not use, or that names none where the default one is not for it.
    pub(super) fn no_class(&self, task: &Task, spec: &RenderTaskSpec) -> Refusal {
        let usable = self.classes.iter();
        let usable = usable.filter(|(_, class)| self.serves(class, task));
        let entries = usable.map(|(name, _)| name.clone());
        let message = if spec.renderer_class_name.is_none() {
            let offer = offer(entries, None);
            format!(
                "the default RendererClass does not allow this namespace; the task starts by itself once it does; {offer}"
            )
        } else {
            let is_optional = self.usual(task).is_some();
            missing(
                "RendererClass",
                "rendererClassName",
                is_optional,
                &task.id,
                entries,
            )
        };
        Refusal::new(Reason::RendererClassNotFound, message)
    }

    /// The message to a task that names a cluster of the platform that it may not use.
    pub(in crate::plan) fn no_cluster(&self, task: &Task) -> Refusal {
        let usable = self.clusters.iter();
        let usable = usable.filter(|(name, _)| self.cluster(name, task).is_some());
        let entries = usable.map(|(name, _)| name.clone());
        let message = missing("RenderCluster", "clusterName", true, &task.id, entries);
        Refusal::new(Reason::ClusterNotFound, message)
    }
}

/// The message to a task that names, in a field, an object of a kind that its namespace may not use; some fields may be left out.
fn missing(
    kind: &str,
    field: &str,
    is_optional: bool,
    task: &TaskId,
    entries: impl Iterator<Item = String>,
) -> String {
    if task.kind == TaskKind::ClusterRenderTask {
        return format!(
            "the {kind} that {field} names does not exist; the task starts by itself once it does"
        );
    }
    format!(
        "the {kind} that {field} names does not exist, or does not allow this namespace; the task starts by itself once it \
         does; {}",
        offer(entries, is_optional.then_some(field))
    )
}

/// What the tenant can do instead; `optional` is a field that a task may leave out.
fn offer(entries: impl Iterator<Item = String>, optional: Option<&str>) -> String {
    let list = list(entries);
    match (list.is_empty(), optional) {
        (false, None) => format!("or make a new task with one that this namespace may use: {list}"),
        (false, Some(field)) => {
            format!("or make a new task without {field}, or with one that this namespace may use: {list}")
        }
        (true, None) => "this namespace may use none; ask the platform operator".to_owned(),
        (true, Some(field)) => {
            format!(
                "this namespace may use none; make a new task without {field}, or ask the platform operator"
            )
        }
    }
}

/// The entries for a sentence, or how many more there are.
fn list(entries: impl Iterator<Item = String>) -> String {
    let (mut list, mut shown, mut left, mut bytes) = (String::new(), 0, 0, 0);
    for entry in entries {
        bytes += entry.len();
        if shown == LISTED || bytes > LISTED_BYTES {
            left += 1;
            continue;
        }
        let comma = if shown == 0 { "" } else { ", " };
        _ = write!(list, "{comma}{entry}");
        shown += 1;
    }
    if left > 0 {
        _ = write!(list, " and {left} more");
    }
    list
}

/// A registry as the tenant needs to know it, and by its name alone where that is too long; nothing where it cannot be used as it is.
fn entry(name: &str, spec: &ClusterRegistrySpec, task: &TaskId) -> Option<String> {
    let host: RegistryHost = spec.hostname.parse().ok()?;
    let prefix = granted(&spec.repository_prefix, task);
    prefix.parse::<RepositoryPrefix>().ok()?;
    let entry = if prefix.is_empty() {
        format!("{name} (host {})", host.as_str())
    } else {
        format!("{name} (host {}, repository below {prefix})", host.as_str())
    };
    Some(if entry.len() <= LISTED_BYTES {
        entry
    } else {
        name.to_owned()
    })
}
