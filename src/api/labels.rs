//! Labels, annotations, finalizer and field managers: the marks renderhub leaves and looks for.

use std::collections::BTreeMap;

use crate::api::names::{HubId, TaskUid};

/// API group of every renderhub kind.
pub const GROUP: &str = "renderhub.dev";
/// Served version of every renderhub kind.
pub const VERSION: &str = "v1alpha1";

/// On every task from its creation or start until its deletion, so that nothing it started outlives it.
pub const FINALIZER: &str = "renderhub.dev/cleanup";
/// On a Target from before its first task or version is made until its deletion, so that nothing that was made for it alone outlives it.
pub const TARGET_FINALIZER: &str = "renderhub.dev/target-cleanup";

/// Standard label that names the program that made an object.
pub const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
/// Value of [`MANAGED_BY`] on everything renderhub makes.
pub const MANAGED_BY_VALUE: &str = "renderhub";
/// Label: which hub made the object; watches and sweeps select on it.
pub const HUB_ID: &str = "renderhub.dev/hub-id";
/// Label: UID of the task an object serves; the only key that is trusted.
pub const TASK_UID: &str = "renderhub.dev/task-uid";

/// Label on a task that the hub made for a Target, alone or for several: what its chart is of, [`PIPELINE_RELEASE`] or
/// [`PIPELINE_BOOTSTRAP`].
pub const PIPELINE: &str = "renderhub.dev/pipeline";
/// Value of [`PIPELINE`]: the chart of a Release.
pub const PIPELINE_RELEASE: &str = "release";
/// Value of [`PIPELINE`]: the chart of a version of a Target.
pub const PIPELINE_BOOTSTRAP: &str = "bootstrap";

/// The labels of a task or version that the hub makes for Targets, with this value of [`PIPELINE`].
#[must_use]
pub fn pipeline_labels(value: &str) -> BTreeMap<String, String> {
    let labels = [(MANAGED_BY, MANAGED_BY_VALUE), (PIPELINE, value)];
    labels
        .map(|(key, value)| (key.to_owned(), value.to_owned()))
        .into()
}

/// Annotation on a task that the hub made for Targets: 64 hex digits that show that the hub planned it, so that a grant to Targets
/// counts for it, and so that it is not removed as a finished task of a tenant's.
pub const TARGET_SEAL: &str = "renderhub.dev/target-seal";

/// Annotation: kind of the task an object serves, for people and for the way back from a Job to its task.
pub const TASK_KIND: &str = "renderhub.dev/task-kind";
/// Annotation: namespace of the task an object serves; empty for a `ClusterRenderTask`.
pub const TASK_NAMESPACE: &str = "renderhub.dev/task-namespace";
/// Annotation: name of the task an object serves.
pub const TASK_NAME: &str = "renderhub.dev/task-name";
/// Annotation: SHA-256 of the spec as first accepted; a Job with another hash is never adopted.
pub const SPEC_HASH: &str = "renderhub.dev/spec-hash";

/// Annotation: SHA-256 of where a task's chart goes and what it is pushed with, so that a credential never meets another
/// destination.
pub const DESTINATION: &str = "renderhub.dev/destination";
/// Annotation: where the chart of a Job goes.
pub const CHART_URL: &str = "renderhub.dev/chart-url";

/// Standard label that names the application of an object; hubs find each other's Leases by it.
pub const PART_OF: &str = "app.kubernetes.io/part-of";
/// Value of [`PART_OF`].
pub const PART_OF_VALUE: &str = "renderhub";
/// Annotation on a hub's Lease: which process wrote it, so that it knows its own record from one of its successor.
pub const LEASE_CLAIM: &str = "renderhub.dev/process";
/// Annotation on a hub's Lease: where its Jobs run.
pub const RENDERING_NAMESPACE: &str = "renderhub.dev/rendering-namespace";
/// Annotation on a hub's Lease: the namespaces it serves, separated by commas; empty for all, the first of a long list.
pub const WATCH_NAMESPACES: &str = "renderhub.dev/watch-namespaces";
/// Annotation on a hub's Lease: SHA-256 of the whole list.
pub const WATCH_NAMESPACES_SHA256: &str = "renderhub.dev/watch-namespaces-sha256";

/// Annotation on a hub's Lease: what its holder does, `starting`, `active` or `standby`.
pub const LEASE_STATE: &str = "renderhub.dev/state";
/// Annotation on a hub's Lease: namespaces that it served before and does not any more, separated by commas.
pub const FORMER_NAMESPACES: &str = "renderhub.dev/former-namespaces";

/// Annotation on a `RoleBinding` in the rendering namespace: an administrator says that its subjects are the platform's.
pub const PLATFORM_ACCESS: &str = "renderhub.dev/platform-access";

/// Label on a copy of a pull Secret: 32 hex digits, a hash of its content and of the hub, which are in its name too.
pub const PULL_COPY: &str = "renderhub.dev/pull-copy";
/// Annotation on a copy of a pull Secret: the Secret in the hub's release namespace that it is of, for people.
pub const PULL_SECRET: &str = "renderhub.dev/pull-secret";

/// Annotation on a `RendererClass`: used by tasks that name no class.
pub const DEFAULT_CLASS: &str = "renderhub.dev/is-default-class";

/// Annotation on a `kubernetes.io/basic-auth` Secret: the registry's `host` or `host:port` that the credential is for.
pub const REGISTRY_HOST: &str = "renderhub.dev/registry-host";

/// Label on the copy of a pull Secret of a `CatalogSource`: for whom it was made, [`COPIED_FOR_OLM`].
pub const COPIED_FOR: &str = "renderhub.dev/copied-for";
/// Value of [`COPIED_FOR`]: for operators that OLM installed.
pub const COPIED_FOR_OLM: &str = "olm";
/// Annotation on such a copy: namespace and name of its source, with a slash between them.
pub const COPY_SOURCE: &str = "renderhub.dev/source";
/// Annotation on such a copy: UID of its source.
pub const COPY_SOURCE_UID: &str = "renderhub.dev/source-uid";
/// Annotation on such a copy: the operators that it was made for, each as the name of the `CatalogSource` and the UID of
/// the `ClusterServiceVersion` with an equals sign between them, separated by commas.
pub const COPY_OPERATORS: &str = "renderhub.dev/operators";

/// Field manager of the hub's writes.
pub const FIELD_MANAGER: &str = "renderhub";

/// Label on the Jobs that name the copy of a pull Secret with this hash, by which the hub sees whether any does.
#[must_use]
pub fn pull_copy(hash: &str) -> String {
    format!("{PULL_COPY}-{hash}")
}

/// Selects the copies of pull Secrets that a hub made.
#[must_use]
pub fn own_pull_copies(hub_id: &HubId) -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE},{HUB_ID}={hub_id},{PULL_COPY}")
}

/// Selects what any hub made for the task.
#[must_use]
pub fn objects_of(task: &TaskUid) -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE},{HUB_ID},{TASK_UID}={task}")
}

/// Selects what hubs made for tasks, whichever.
#[must_use]
pub fn all_objects() -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE},{HUB_ID},{TASK_UID}")
}

/// Selects what other hubs than this one made for tasks.
#[must_use]
pub fn others_objects(hub_id: &HubId) -> String {
    format!("{},{HUB_ID}!={hub_id}", all_objects())
}

/// Selects what a hub made for tasks.
#[must_use]
pub fn own_objects(hub_id: &HubId) -> String {
    format!("{MANAGED_BY}={MANAGED_BY_VALUE},{HUB_ID}={hub_id},{TASK_UID}")
}
