//! The charts of a Target, and the tasks that render them.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::pipeline::{ComponentResource, HydratedRelease, HydratedTargetSpec, TargetSpec};
use crate::api::{
    BootstrapConfig, BootstrapInput, ChartMetadata, ComponentName, ReleaseConfig, ReleaseInput,
    RenderTaskSpec, RendererConfig, ResourceSpec, TaskOwner,
};

use super::content_hash::content_hash;
use super::destination::RenderDestination;
use super::object::ObjectKey;
use super::readable_name::{READABLE_MAX, readable, short};
use super::resolution::AcceptedRelease;

/// Salts of the hash in a release chart's version: the first is none, and each other follows on a tag that holds other bytes.
pub const SALTS: u32 = 4;
/// What the tags of all charts begin with; a number follows.
const TAG_PREFIX: &str = "v0.0.";

/// A chart that should be in the registry, and the task that renders it.
#[derive(Clone, Debug)]
pub struct PlannedChart {
    /// Name of the first task for it.
    pub task_name: String,
    /// The task.
    pub task: Arc<RenderTaskSpec>,
    /// SHA-256 of the task's spec.
    pub spec_hash: String,
    /// Repository of the chart, with its host.
    pub repository: String,
    /// Version of the chart.
    pub version: String,
}

impl PlannedChart {
    /// `name_of` names the first task by the hash of its spec.
    fn new(
        destination: &RenderDestination,
        task: RenderTaskSpec,
        name_of: impl FnOnce(&RenderTaskSpec, &str) -> String,
    ) -> Self {
        let spec_hash = content_hash(&task);
        Self {
            task_name: name_of(&task, &spec_hash),
            spec_hash,
            repository: format!("{}/{}", destination.hostname, task.repository),
            version: task.tag.clone(),
            task: Arc::new(task),
        }
    }
}

/// The chart of a Release. Targets of a namespace for which it would be the same share its task; the name of the task holds
/// everything that it depends on, so that no Target borrows another's identity. Another `salt` is another tag for the same
/// content: a renderer of another release may give other bytes for it.
#[must_use]
pub fn release_chart(
    release: &AcceptedRelease<'_>,
    target: &ObjectKey,
    spec: &TargetSpec,
    destination: &RenderDestination,
    salt: u32,
) -> PlannedChart {
    let config = release_config(release, &release_name(release.release));
    let version = release_version(&config, release.object.generation, salt);
    let repository = repository(target, destination, &below_namespace(release.release));
    let chart = VersionedRelease {
        release: release.release,
        repository,
        version,
        failed_job_ttl: release.spec.failed_job_ttl,
    };
    chart.planned(config, spec, destination)
}

/// The chart of a Release that a version of a Target names, to be rendered once more. It is rendered as the Target says now, so that no
/// Target borrows the identity that it had then. `failed_job_ttl` is the Release's.
#[must_use]
pub fn chart_again(
    made_of: &ReleaseConfig,
    named: &HydratedRelease,
    failed_job_ttl: Option<i32>,
    spec: &TargetSpec,
    destination: &RenderDestination,
) -> PlannedChart {
    let chart = VersionedRelease {
        release: &ObjectKey::new(&named.namespace, &named.name),
        repository: path_of(&named.repository).to_owned(),
        version: named.version.clone(),
        failed_job_ttl,
    };
    chart.planned(without_version(made_of), spec, destination)
}

/// Whether a chart of this version is made of that, with whichever salt: the version holds the hash of its content.
#[must_use]
pub fn is_made_of(version: &str, made_of: &ReleaseConfig) -> bool {
    let generation = version
        .strip_prefix(TAG_PREFIX)
        .and_then(|rest| rest.split_once("-h"));
    let Some(generation) = generation.and_then(|(number, _)| number.parse().ok()) else {
        return false;
    };
    let config = without_version(made_of);
    (0..SALTS).any(|salt| release_version(&config, generation, salt) == version)
}

/// The path of a repository that is written with its host.
#[must_use]
pub fn path_of(repository: &str) -> &str {
    repository.split_once('/').map_or(repository, |(_, path)| path)
}

fn without_version(config: &ReleaseConfig) -> ReleaseConfig {
    let mut config = config.clone();
    config.chart.version.clear();
    config.chart.app_version = None;
    config
}

/// The version of a chart that is made of this.
fn release_version(config: &ReleaseConfig, generation: i64, salt: u32) -> String {
    let hash = if salt == 0 {
        content_hash(config)
    } else {
        content_hash(&(salt, config))
    };
    release_version_prefix(generation) + short(&hash)
}

/// What all versions of the chart of a generation begin with; the hash of its content follows.
#[must_use]
pub fn release_version_prefix(generation: i64) -> String {
    format!("{TAG_PREFIX}{generation}-h")
}

/// Where the chart of a Release is, and under which version.
struct VersionedRelease<'r> {
    release: &'r ObjectKey,
    repository: String,
    version: String,
    failed_job_ttl: Option<i32>,
}

impl VersionedRelease<'_> {
    /// The chart with its task.
    fn planned(
        self,
        mut config: ReleaseConfig,
        spec: &TargetSpec,
        destination: &RenderDestination,
    ) -> PlannedChart {
        let version = self.version;
        config.chart.version.clone_from(&version);
        config.chart.app_version = Some(version.clone());
        let config = RendererConfig {
            type_: "release".to_owned(),
            release: Some(config),
            bootstrap: None,
        };
        let mut task = task(config, self.repository, version, spec, destination);
        task.failed_job_ttl = self.failed_job_ttl;
        task.owner = Some(owner("Release", self.release));
        PlannedChart::new(destination, task, |task, _| {
            let hash = content_hash(&(&self.release.namespace, task));
            let name = readable("", &release_name(self.release), READABLE_MAX);
            format!("{name}-{}", short(&hash))
        })
    }
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
    let name = bootstrap_name(target);
    let tag = bootstrap_tag(version.version);
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
    let prefix = bootstrap_task_prefix(&target.name, version.version);
    PlannedChart::new(destination, task, |_, hash| {
        format!("{prefix}{}", &short(hash)[..8])
    })
}

/// What the names of the tasks for a version of a Target start with.
#[must_use]
pub fn bootstrap_task_prefix(target: &str, version: i64) -> String {
    format!("{}-v{version}-", readable("bootstrap-", target, READABLE_MAX))
}

/// A release as a bootstrap chart refers to it.
fn bundled((name, release): (&String, &Arc<HydratedRelease>)) -> (String, ResourceSpec) {
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
    repository(target, destination, &bootstrap_name(target))
}

/// The tag of a Target's bootstrap chart.
#[must_use]
pub fn bootstrap_tag(version: i64) -> String {
    format!("{TAG_PREFIX}{version}")
}

/// The version with this tag.
#[must_use]
pub fn bootstrap_number(tag: &str) -> Option<i64> {
    tag.strip_prefix(TAG_PREFIX)?.parse().ok()
}

/// Whether a repository is one of a Target's bootstrap chart, beneath whatever prefix.
#[must_use]
pub fn is_of_target(repository: &str, target: &ObjectKey) -> bool {
    ends_in(repository, &target.namespace, &bootstrap_name(target))
}

/// Whether a repository is one of a Release's chart for Targets of a namespace, beneath whatever prefix.
#[must_use]
pub fn is_of_release(repository: &str, namespace: &str, release: &ObjectKey) -> bool {
    ends_in(repository, namespace, &below_namespace(release))
}

/// Whether a repository is what [`repository`] makes of this, whatever the prefix.
fn ends_in(repository: &str, namespace: &str, below: &str) -> bool {
    let above = repository
        .strip_suffix(below)
        .and_then(|above| above.strip_suffix('/'))
        .and_then(|above| above.strip_suffix(namespace));
    above.is_some_and(|above| above.is_empty() || above.ends_with('/'))
}

/// The name of a Target's bootstrap chart, with which the names of its tasks begin.
#[must_use]
pub fn bootstrap_name(target: &ObjectKey) -> String {
    readable("bootstrap-", &target.name, READABLE_MAX)
}

/// The name of a Release's chart, with which the names of its tasks begin.
#[must_use]
pub fn release_name(release: &ObjectKey) -> String {
    readable("release-", &release.name, READABLE_MAX)
}

/// Where the chart of a Release is beneath the Target's namespace.
fn below_namespace(release: &ObjectKey) -> String {
    format!("{}/{}", release.namespace, release_name(release))
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
