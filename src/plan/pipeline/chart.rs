//! The charts of a Target, and the tasks that render them.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use crate::api::names::hex;
use crate::api::pipeline::{ComponentResource, HydratedRelease, HydratedTargetSpec, TargetSpec};
use crate::api::{
    BootstrapConfig, BootstrapInput, ChartMetadata, ComponentName, ReleaseConfig, ReleaseInput,
    RenderTaskSpec, RendererConfig, ResourceSpec, TaskOwner,
};

use super::content_hash::content_hash;
use super::destination::RenderDestination;
use super::object::ObjectKey;
use super::resolve::AcceptedRelease;

/// Longest readable part of a name; with a hash it is a DNS label.
const READABLE_MAX: usize = 46;
/// Hex digits of a hash in a name or a version.
const HASH_DIGITS: usize = 16;

/// A chart that should be in the registry, and the task that renders it.
#[derive(Clone, Debug)]
pub struct PlannedChart {
    /// Name of the first task for it.
    pub task_name: String,
    /// The task.
    pub task: RenderTaskSpec,
    /// SHA-256 of the task's spec.
    pub spec_hash: String,
    /// Repository of the chart, with its host.
    pub repository: String,
    /// Version of the chart.
    pub version: String,
}

impl PlannedChart {
    fn new(task_name: String, destination: &RenderDestination, task: RenderTaskSpec) -> Self {
        Self {
            task_name,
            spec_hash: content_hash(&task),
            repository: format!("{}/{}", destination.hostname, task.repository),
            version: task.tag.clone(),
            task,
        }
    }
}

/// The chart of a Release. Targets of a namespace for which it would be the same share its task; the name of the task holds
/// everything that it depends on, so that no Target borrows another's identity.
#[must_use]
pub fn release_chart(
    release: &AcceptedRelease<'_>,
    target: &ObjectKey,
    spec: &TargetSpec,
    destination: &RenderDestination,
) -> PlannedChart {
    let name = readable("release-", &release.release.name, READABLE_MAX);
    let mut config = release_config(release, &name);
    let content = short(&content_hash(&config)).to_owned();
    let version = format!("v0.0.{}-h{content}", release.object.generation);
    config.chart.version.clone_from(&version);
    config.chart.app_version = Some(version.clone());
    let below = format!("{}/{name}", release.release.namespace);
    let config = RendererConfig {
        type_: "release".to_owned(),
        release: Some(config),
        bootstrap: None,
    };
    let repository = repository(target, destination, &below);
    let mut task = task(config, repository, version, spec, destination);
    task.failed_job_ttl = release.spec.failed_job_ttl;
    task.owner = Some(owner("Release", &release.release));
    let key = short(&content_hash(&(&release.release.namespace, &task))).to_owned();
    let task_name = format!("{}-{key}", readable("", &name, READABLE_MAX));
    PlannedChart::new(task_name, destination, task)
}

/// What a Release's chart is made of, without its version.
fn release_config(release: &AcceptedRelease<'_>, name: &str) -> ReleaseConfig {
    let version = &release.spec.component_version_ref.name;
    ReleaseConfig {
        chart: ChartMetadata {
            name: name.to_owned(),
            description: Some(format!("Release of {version}")),
            version: String::new(),
            app_version: None,
        },
        input: ReleaseInput {
            component: ComponentName {
                name: release.version.component_ref.name.clone(),
            },
            resources: resources(release),
            entrypoint: release.version.entrypoint.clone(),
        },
        target_namespace: release.spec.target_namespace.clone(),
        values: release.spec.values.clone(),
    }
}

fn resources(release: &AcceptedRelease<'_>) -> BTreeMap<String, ResourceSpec> {
    let resource = |(name, resource): (&String, &ComponentResource)| {
        let spec = ResourceSpec {
            repository: resource.repository.clone(),
            insecure: resource.insecure,
            tag: resource.tag.clone(),
            helm: resource.helm.clone(),
            pull_secret_name: release.pull_secrets.get(name).cloned(),
        };
        (name.clone(), spec)
    };
    release.version.resources.iter().map(resource).collect()
}

/// The chart of a version of a Target.
#[must_use]
pub fn bootstrap_chart(
    version: &HydratedTargetSpec,
    target: &ObjectKey,
    spec: &TargetSpec,
    destination: &RenderDestination,
) -> PlannedChart {
    let name = readable("bootstrap-", &target.name, READABLE_MAX);
    let tag = format!("v0.0.{}", version.version);
    let config = RendererConfig {
        type_: "bootstrap".to_owned(),
        release: None,
        bootstrap: Some(BootstrapConfig {
            chart: ChartMetadata {
                name: name.clone(),
                description: Some(format!("Bootstrap of {}", target.name)),
                version: tag.clone(),
                app_version: Some(tag.clone()),
            },
            input: BootstrapInput {
                releases: version.releases.iter().map(bundled).collect(),
                userdata: version.userdata.clone(),
            },
        }),
    };
    let mut task = task(
        config,
        version.registry.repository.clone(),
        tag,
        spec,
        destination,
    );
    task.owner = Some(owner("Target", target));
    // A version that is not pushed yet may get another renderer, and so another task.
    let task_name = format!(
        "{name}-v{}-{}",
        version.version,
        &short(&content_hash(&task))[..8]
    );
    PlannedChart::new(task_name, destination, task)
}

/// A release as a bootstrap chart refers to it.
fn bundled((name, release): (&String, &HydratedRelease)) -> (String, ResourceSpec) {
    let spec = ResourceSpec {
        repository: release.repository.clone(),
        insecure: release.insecure,
        tag: release.version.clone(),
        helm: None,
        pull_secret_name: release.pull_secret_name.clone(),
    };
    (name.clone(), spec)
}

/// Repository of a Target's bootstrap chart.
#[must_use]
pub fn bootstrap_repository(target: &ObjectKey, destination: &RenderDestination) -> String {
    let name = readable("bootstrap-", &target.name, READABLE_MAX);
    repository(target, destination, &name)
}

/// A repository of the Target's namespace, beneath what the registry grants to it: a prefix that ends with the namespace is
/// not followed by it again.
fn repository(target: &ObjectKey, destination: &RenderDestination, below: &str) -> String {
    let (prefix, namespace) = (&destination.prefix, &target.namespace);
    let ends = prefix
        .trim_end_matches('/')
        .rsplit('/')
        .next()
        .unwrap_or_default();
    let slash = if prefix.is_empty() || prefix.ends_with('/') {
        ""
    } else {
        "/"
    };
    if ends == namespace {
        format!("{prefix}{slash}{below}")
    } else {
        format!("{prefix}{slash}{namespace}/{below}")
    }
}

fn task(
    config: RendererConfig,
    repository: String,
    tag: String,
    spec: &TargetSpec,
    destination: &RenderDestination,
) -> RenderTaskSpec {
    RenderTaskSpec {
        config,
        repository,
        tag,
        registry_ref: Some(destination.registry.clone()),
        base_url: None,
        push_secret_ref: None,
        plain_http: None,
        renderer_class_name: spec.renderer_class_name.clone(),
        service_account_name: spec.service_account_name.clone(),
        cluster_name: spec.render_cluster_name.clone(),
        kube_config: None,
        deployment_namespace: None,
        failed_job_ttl: None,
        ttl_seconds_after_finished: None,
        owner: None,
    }
}

fn owner(kind: &str, key: &ObjectKey) -> TaskOwner {
    TaskOwner {
        kind: kind.to_owned(),
        namespace: Some(key.namespace.clone()),
        name: key.name.clone(),
    }
}

/// A name with its prefix, cut to the length with a hash of the whole.
#[must_use]
pub fn readable(prefix: &str, name: &str, longest: usize) -> String {
    let whole = format!("{prefix}{name}");
    if whole.len() <= longest {
        return whole;
    }
    let digest = hex(&Sha256::digest(whole.as_bytes()));
    let room = longest - 1 - HASH_DIGITS;
    let cut = whole.get(..room).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{cut}-{}", short(&digest))
}

fn short(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}
