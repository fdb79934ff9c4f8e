//! What is asked, and with what.

use crate::api::names::{TaskKind, TaskUid};
use crate::api::oci::OciReference;
use crate::api::pipeline::PruneFailure;
use crate::api::{RegistryReference, RegistrySpec, ReleaseConfig, RendererConfig};
use crate::plan::pipeline::chart::{is_made_of, path_of};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::NamedKind;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::prune::{PruneAccess, registry_access};
use crate::plan::pipeline::task_state::PipelineTaskState;
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::model::TaskId;

/// Most tasks that are read for the content of one chart: one is enough, and others of a tenant's may name the same place.
pub const MAX_SOURCES: usize = 8;

/// Whether a registry has the chart of a Release that an earlier version names. Targets of a namespace that ask the same as the same
/// account share the answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ChartQuestion {
    /// Namespace of the Targets.
    pub namespace: String,
    /// The Release.
    pub release: ObjectKey,
    /// The registry as the Targets' tasks name it.
    pub registry: RegistryReference,
    /// `ServiceAccount` as which a tenant's Registry is read.
    pub account: Option<String>,
    /// Repository of the chart, with its host.
    pub repository: String,
    /// Version of the chart.
    pub version: String,
    /// The digest that was recorded last.
    pub digest: Option<String>,
}

/// Why it is not known whether a registry has a chart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LookupFailure {
    /// The registry gave no clear answer, or was not asked.
    Registry(PruneFailure),
    /// A call to the hub's own API server failed.
    Call,
    /// What charts are made of that are rendered again is too much to be held at once.
    Full,
}

impl LookupFailure {
    /// The same for people.
    #[must_use]
    pub const fn explained(self) -> &'static str {
        match self {
            Self::Registry(PruneFailure::NotGranted) => {
                "the registry does not exist, has another host now, or tenants may not name its host"
            }
            Self::Registry(PruneFailure::NoCredential) => {
                "the registry's Secret or certificates cannot be used, or may not be read as the Target's ServiceAccount"
            }
            Self::Registry(PruneFailure::Refused) => {
                "the registry does not let the credential read the chart"
            }
            Self::Registry(PruneFailure::Unreachable) => {
                "the registry did not answer in time, or said that it cannot answer now"
            }
            Self::Registry(PruneFailure::BadAnswer) => {
                "the registry answered with something else than registries do"
            }
            Self::Registry(PruneFailure::Failed) => {
                "it did not work; of a registry that a tenant named and that asked for no credential the hub says no more"
            }
            Self::Call => "a call to the hub's own API server failed",
            Self::Full => {
                "the hub has more charts rendered again at the moment than it can hold the content of"
            }
        }
    }
}

/// What a registry is asked.
#[derive(Clone, Debug)]
pub struct LookupRequest {
    /// Where the chart is.
    pub reference: OciReference,
    /// How the registry is reached.
    pub access: PruneAccess,
}

/// The request of a question.
///
/// # Errors
/// Why the registry cannot be asked.
pub fn lookup_request(
    question: &ChartQuestion,
    catalog: &Catalog,
    tenancy: &TenancyPolicy,
) -> Result<LookupRequest, LookupFailure> {
    let reference = format!("{}:{}", question.repository, question.version);
    let reference = reference.parse();
    let reference = reference.map_err(|_| LookupFailure::Registry(PruneFailure::NotGranted))?;
    let (namespace, account) = (&question.namespace, question.account.as_deref());
    let access = registry_access(namespace, account, &question.registry, catalog, tenancy);
    Ok(LookupRequest {
        reference,
        access: access.map_err(LookupFailure::Registry)?,
    })
}

/// Whether a tenant's Registry, as its tenant may read it now, lets the chart be looked for: it has its host, which tenants may name.
#[must_use]
pub fn is_allowed(reference: &OciReference, registry: &RegistrySpec, tenancy: &TenancyPolicy) -> bool {
    registry.hostname.eq_ignore_ascii_case(reference.host.as_str()) && tenancy.admits(registry)
}

/// The tasks that push to the place of a chart.
#[derive(Clone, Debug, Default)]
pub struct ChartSources {
    /// Those that may be read for its content.
    pub tasks: Vec<TaskId>,
    /// Names of those that have pushed it already: what they pushed is what is looked for.
    pub pushed: Vec<String>,
}

/// The tasks that push to the place of a chart. They may be of a tenant's own making, so of their content only that is used which the
/// version of the chart holds the hash of.
#[must_use]
pub fn sources(objects: &PipelineObjects, question: &ChartQuestion) -> ChartSources {
    let mut found = ChartSources::default();
    let tasks = objects
        .tasks
        .naming_from(&question.namespace, NamedKind::Release, &question.release);
    let path = path_of(&question.repository);
    for (key, task) in
        tasks.filter(|(_, task)| task.chart.repository == path && task.chart.tag == question.version)
    {
        if matches!(task.state, PipelineTaskState::Succeeded { .. }) {
            found.pushed.push(key.name.clone());
        }
        if found.tasks.len() < MAX_SOURCES {
            found.tasks.push(TaskId {
                kind: TaskKind::RenderTask,
                namespace: key.namespace.clone(),
                name: key.name.clone(),
                uid: TaskUid::new(&task.uid),
            });
        }
    }
    found
}

/// What a chart of this version is made of, where that is the configuration of a task.
#[must_use]
pub fn made_of(version: &str, config: &str) -> Option<ReleaseConfig> {
    let config: RendererConfig = serde_json::from_str(config).ok()?;
    config.release.filter(|release| is_made_of(version, release))
}
