//! What a spec must satisfy before anything else is asked: an ordered chain, the first rule that refuses wins.

use crate::api::conditions::Reason;
use crate::api::oci::{Repository, Tag};
use crate::api::{ChartMetadata, RegistryKind, RegistryReference, RenderTaskSpec};

use super::finalizer_summary::MAX_FINALIZERS;
use crate::plan::task::model::Task;
use crate::plan::task::refusal::Refusal;

/// Most bytes of `config.json`: with the destination beside it, what a Secret can hold (1 MiB).
pub const MAX_CONFIG_BYTES: usize = 1_048_576 - 4_096;

/// Most values in a spec or a status: each key, element and text counts. Decoded, a value of a few bytes takes up to 632, so
/// bytes alone do not bound memory; these take 6 MiB at the most.
pub const MAX_VALUES: usize = 10_000;

/// The message to a task in the hub's own rendering namespace: a tenant there could read every push credential.
pub(super) fn in_rendering_namespace() -> Refusal {
    Refusal::new(
        Reason::InvalidSpec,
        "no task starts in this namespace, where the hub's Jobs run and the push credentials are; delete it, and make it in a \
         tenant's namespace",
    )
}

/// One rule: why it refuses, if it does.
type ValidationRule = fn(&Task, &RenderTaskSpec) -> Option<Refusal>;

const RULES: &[ValidationRule] = &[clusters, sources, types, chart_name, config_size];

/// The spec, if it can be served.
///
/// # Errors
/// The first rule that refuses; the tenant corrects it in a new task.
pub fn validate(task: &Task) -> Result<&RenderTaskSpec, Refusal> {
    if task.generation != 1 {
        let message = "the spec was changed after the task was made; nothing runs for it; make a new task";
        return Err(Refusal::new(Reason::SpecMutated, message));
    }
    if task.decoded.is_oversized {
        let message = format!(
            "the spec has more than {MAX_VALUES} values, keys and list entries counted; make a new task with fewer, such as one string \
             instead of a long list"
        );
        return Err(Refusal::new(Reason::ConfigTooLarge, message));
    }
    let Some(spec) = &task.decoded.spec else {
        let message = "this version of the hub cannot read the spec: a field is missing, or has a value of another type; make a new task";
        return Err(Refusal::new(Reason::InvalidSpec, message));
    };
    RULES
        .iter()
        .find_map(|rule| rule(task, spec))
        .map_or(Ok(spec), Err)
}

/// The schema says the same; where it was not in force, a task has one place all the same.
fn clusters(_: &Task, spec: &RenderTaskSpec) -> Option<Refusal> {
    let message = match (&spec.cluster_name, &spec.kube_config) {
        (Some(_), Some(_)) => {
            "clusterName and kubeConfig exclude each other; make a new task with one of them"
        }
        (_, None) if spec.deployment_namespace.is_some() => {
            "deploymentNamespace is only for tasks with kubeConfig; make a new task without it"
        }
        _ => return None,
    };
    Some(Refusal::new(Reason::InvalidSpec, message))
}

/// The schema says the same; where it was not in force, nothing is silently ignored either.
fn sources(_: &Task, spec: &RenderTaskSpec) -> Option<Refusal> {
    let of_platform = |r: &RegistryReference| r.kind == RegistryKind::ClusterRegistry;
    let message = match (&spec.registry_ref, &spec.base_url) {
        (None, None) => "registryRef is missing; make a new task that names a registry",
        (Some(_), Some(_)) => "registryRef and baseURL exclude each other; make a new task with one of them",
        (Some(_), None) if spec.push_secret_ref.is_some() || spec.plain_http.is_some() => {
            "pushSecretRef and plainHTTP are only for tasks with baseURL; make a new task without them"
        }
        (Some(named), None) if of_platform(named) && named.namespace.is_some() => {
            "registryRef.namespace is only for kind Registry; make a new task without it"
        }
        _ => return None,
    };
    Some(Refusal::new(Reason::InvalidSpec, message))
}

fn types(_: &Task, spec: &RenderTaskSpec) -> Option<Refusal> {
    let message = match spec.config.type_.as_str() {
        "release" if spec.config.release.is_none() => "config.release is missing; make a new task",
        "bootstrap" if spec.config.bootstrap.is_none() => "config.bootstrap is missing; make a new task",
        _ => return None,
    };
    Some(Refusal::new(Reason::InvalidSpec, message))
}

/// Helm pulls a chart only by its own name and version, so a mismatch is refused before a pod runs for it.
fn chart_name(_: &Task, spec: &RenderTaskSpec) -> Option<Refusal> {
    let chart = chart(spec)?;
    let repository: Option<Repository> = spec.repository.parse().ok();
    let tag: Option<Tag> = spec.tag.parse().ok();
    let message = if repository.is_none_or(|r| r.last_segment() != chart.name) {
        "the last segment of repository must equal the chart's name; make a new task"
    } else if tag.is_none_or(|t| !t.matches_version(&chart.version)) {
        "tag must equal the chart's version; make a new task"
    } else {
        return None;
    };
    Some(Refusal::new(Reason::InvalidSpec, message))
}

/// Metadata of the chart, where the type is one whose chart the hub knows.
fn chart(spec: &RenderTaskSpec) -> Option<&ChartMetadata> {
    match spec.config.type_.as_str() {
        "release" => spec.config.release.as_ref().map(|r| &r.chart),
        "bootstrap" => spec.config.bootstrap.as_ref().map(|b| &b.chart),
        _ => None,
    }
}

/// Whether a task has so many finalizers of others that it is not started. One that runs is not ended for it.
#[must_use]
pub fn crowded(task: &Task) -> Option<Refusal> {
    (task.finalizers.of_others() > MAX_FINALIZERS).then(|| {
        let message = format!(
            "the task has more than {MAX_FINALIZERS} finalizers of others than the hub; remove some: it then starts by itself; or make a new task"
        );
        Refusal::new(Reason::InvalidSpec, message)
    })
}

/// Whether the config Secret of a task can hold its configuration with so many bytes of credentials and certificates.
///
/// # Errors
/// It cannot.
pub(in crate::plan) fn check_size(task: &Task, copied: usize) -> Result<(), Refusal> {
    if task.decoded.config.len() + copied <= MAX_CONFIG_BYTES {
        return Ok(());
    }
    let message = "the configuration, with the credential and the certificates that are copied beside it, is larger than 1020 KiB; \
                   make a new task with less";
    Err(Refusal::new(Reason::ConfigTooLarge, message))
}

fn config_size(task: &Task, _: &RenderTaskSpec) -> Option<Refusal> {
    let message = "the configuration is larger than 1020 KiB as JSON; make a new task with less";
    (task.decoded.config.len() > MAX_CONFIG_BYTES).then(|| Refusal::new(Reason::ConfigTooLarge, message))
}
