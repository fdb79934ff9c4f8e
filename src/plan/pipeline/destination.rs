//! Where the charts of a Target are pushed to.

use crate::api::conditions::Reason;
use crate::api::names::{TaskKind, TaskUid};
use crate::api::pipeline::{RenderRegistryKind, RenderRegistryReference, TargetSpec};
use crate::api::{RegistryKind, RegistryReference};
use crate::plan::platform::catalog::Catalog;
use crate::plan::task::model::TaskId;
use crate::plan::task::refusal::Refusal;

use super::object::ObjectKey;
use super::objects::PipelineObjects;
use super::readable_name::READABLE_MAX;
use super::references::ReferenceRules;

/// Longest repository; the schema of a task has the same bound.
const REPOSITORY_MAX: usize = 255;
/// Longest part of a repository behind the Target's namespace: a Release's namespace, the name of a chart, and slashes.
const BELOW_NAMESPACE_MAX: usize = 63 + READABLE_MAX + 3;

/// Where the charts of a Target are pushed to, and how its cluster pulls them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RenderDestination {
    /// The registry as its tasks name it.
    pub registry: RegistryReference,
    /// Host of the registry.
    pub hostname: String,
    /// Whether it is reached over plain HTTP.
    pub plain_http: bool,
    /// What repositories of the Target's namespace start with.
    pub prefix: String,
    /// Secret on the target cluster that charts are pulled with.
    pub pull_secret: Option<String>,
    /// Whether charts that no version names any more are deleted there.
    pub is_pruned: bool,
}

/// The destination of a Target.
///
/// # Errors
/// Why it has none: `NotFound` at home, `NotGranted` where the registry is in another namespace or is not for this one,
/// `MissingPushSecretRef` where it names no Secret.
pub fn destination(
    key: &ObjectKey,
    spec: &TargetSpec,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    catalog: &Catalog,
) -> Result<RenderDestination, Refusal> {
    let found = named(key, &spec.render_registry_ref, objects, rules, catalog)?;
    let longest = found.prefix.len() + key.namespace.len() + BELOW_NAMESPACE_MAX;
    if longest > REPOSITORY_MAX {
        let message = format!(
            "the repositoryPrefix of the registry has {} characters, and the names of charts below it do not fit into {REPOSITORY_MAX}; \
             shorten the prefix, or name another registry",
            found.prefix.len()
        );
        return Err(Refusal::new(Reason::RepositoryNotAllowed, message));
    }
    Ok(found)
}

/// The destination that a reference of a Target names.
///
/// # Errors
/// As [`destination`].
pub(super) fn named(
    key: &ObjectKey,
    registry: &RenderRegistryReference,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    catalog: &Catalog,
) -> Result<RenderDestination, Refusal> {
    match registry.kind {
        RenderRegistryKind::ClusterRegistry => platforms(key, registry, catalog),
        RenderRegistryKind::Registry => tenants(key, registry, objects, rules),
    }
}

fn platforms(
    key: &ObjectKey,
    named: &RenderRegistryReference,
    catalog: &Catalog,
) -> Result<RenderDestination, Refusal> {
    let asking = TaskId {
        kind: TaskKind::RenderTask,
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        uid: TaskUid::new(""),
    };
    let found = catalog.registries.get(&named.name);
    let serving =
        found.filter(|found| catalog.admits(&found.spec.allowed_namespaces, &found.recorded, &asking));
    let Some(found) = serving else {
        let message = format!(
            "the ClusterRegistry \"{}\" does not exist or does not allow this namespace; name another in renderRegistryRef, or ask the \
             platform operator to allow the namespace",
            named.name
        );
        return Err(Refusal::new(Reason::NotGranted, message));
    };
    Ok(RenderDestination {
        registry: RegistryReference {
            kind: RegistryKind::ClusterRegistry,
            name: named.name.clone(),
            namespace: None,
        },
        hostname: found.spec.hostname.clone(),
        plain_http: found.spec.plain_http,
        prefix: found
            .spec
            .repository_prefix
            .replace("{namespace}", &key.namespace),
        pull_secret: found.spec.target_pull_secret_name.clone(),
        is_pruned: found.spec.prune.unwrap_or_default(),
    })
}

fn tenants(
    key: &ObjectKey,
    named: &RenderRegistryReference,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> Result<RenderDestination, Refusal> {
    let registry = key.referred(named.namespace.as_ref(), &named.name);
    let is_home = registry.namespace == key.namespace;
    let from = ("Target", key.namespace.as_str());
    let found = objects.registries.get(&registry);
    let spec = found
        .filter(|_| rules.allow(&objects.grants, from, "Registry", &registry))
        .and_then(|found| found.spec.as_ref());
    let Some(spec) = spec else {
        return Err(missing(named, is_home));
    };
    if spec.push_secret_ref.is_none() && spec.solar_secret_ref.is_none() {
        return Err(without_secret(&named.name));
    }
    Ok(RenderDestination {
        registry: RegistryReference {
            kind: RegistryKind::Registry,
            name: named.name.clone(),
            namespace: (!is_home).then_some(registry.namespace),
        },
        hostname: spec.hostname.clone(),
        plain_http: spec.plain_http.unwrap_or_default(),
        prefix: spec
            .repository_prefix
            .as_deref()
            .unwrap_or_default()
            .replace("{namespace}", &key.namespace),
        pull_secret: spec.target_pull_secret_name.clone(),
        is_pruned: spec.prune.unwrap_or_default(),
    })
}

/// One answer for every Registry of another namespace, so that no tenant learns what is there.
fn missing(named: &RenderRegistryReference, is_home: bool) -> Refusal {
    if is_home {
        let message = format!(
            "the Registry \"{}\" does not exist in the Target's namespace; the Target goes on by itself once it does",
            named.name
        );
        return Refusal::new(Reason::NotFound, message);
    }
    Refusal::new(
        Reason::NotGranted,
        "the Registry in another namespace does not exist, or no ReferenceGrant there lets this Target refer to it, or this hub lets no \
         reference leave its namespace",
    )
}

/// A ClusterRegistry may be pushed to without a credential, as its platform operator says; of a tenant's Registry it is a mistake.
fn without_secret(registry: &str) -> Refusal {
    let message = format!(
        "the Registry \"{registry}\" names no Secret to push with; set its pushSecretRef to a Secret beside it, and the Target goes on by itself"
    );
    Refusal::new(Reason::MissingPushSecretRef, message)
}
