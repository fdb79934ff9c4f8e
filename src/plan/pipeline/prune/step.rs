//! The next thing to do about a version whose charts are to be deleted.

use k8s_openapi::jiff::Timestamp;

use super::charts::{PrunableChart, PruneScope, prunable};
use super::record::{GivenUp, RECORDS, ends, is_over};
use crate::api::oci::{OciReference, RepositoryPrefix};
use crate::api::pipeline::{HydratedRegistry, PruneFailure, PruneProgress, RenderRegistryReference};
use crate::api::{RegistryKind, RegistryReference};
use crate::plan::pipeline::destination::{RenderDestination, named};
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::object_map::NamesOthers;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::version_bytes::VERSIONS_OF_NAMESPACE;
use crate::plan::platform::catalog::{Catalog, CatalogRegistry, CopyRequest, CredentialState};
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::tenant::{NamedDestination, TenantReference, identity_in};

/// Everything that the next step rests on.
#[derive(Clone, Copy, Debug)]
pub struct PruneInput<'o> {
    /// The version.
    pub key: &'o ObjectKey,
    /// The object.
    pub version: &'o StoredVersion,
    /// All objects of the pipeline.
    pub objects: &'o PipelineObjects,
    /// What governs references.
    pub rules: &'o ReferenceRules,
    /// What the platform offers.
    pub catalog: &'o Catalog,
    /// What the platform lets tenants name.
    pub tenancy: &'o TenancyPolicy,
    /// The time.
    pub now: Timestamp,
}

/// The next thing to do about a version.
#[derive(Clone, Debug)]
pub enum PruneStep {
    /// Nothing of it is to be deleted from a registry, so the object goes.
    Delete,
    /// The object goes, and an event tells a person of its charts.
    GiveUp(GivenUp),
    /// Nothing before then, unless something changes.
    Wait(Timestamp),
    /// An attempt failed before any registry was asked.
    Fail(PruneFailure),
    /// A registry is asked.
    Ask(Box<PruneRequest>),
}

/// What a registry is asked for.
#[derive(Clone, Debug)]
pub struct PruneRequest {
    /// Namespace of the version.
    pub namespace: String,
    /// The charts.
    pub charts: Vec<PrunableChart>,
    /// How the registry is reached.
    pub access: PruneAccess,
}

/// How a registry is reached.
#[derive(Clone, Debug)]
pub enum PruneAccess {
    /// As the platform says.
    Platform(PlatformRegistry),
    /// As its tenant says, which is read as the tenant.
    Tenant(TenantReference),
}

/// A registry of the platform's.
#[derive(Clone, Debug)]
pub struct PlatformRegistry {
    /// Whether it is reached over plain HTTP.
    pub plain_http: bool,
    /// A token service elsewhere.
    pub token_realm: Option<String>,
    /// Its credential and certificates.
    pub means: CopyRequest,
}

/// A version that waits for the deletion of its charts.
#[derive(Clone, Copy, Debug)]
pub struct PruneRecord<'o> {
    /// The version.
    pub key: &'o ObjectKey,
    /// How far that is.
    pub progress: &'o PruneProgress,
}

/// How far the deletion of a version's charts is, where it waits for that.
fn progress(version: &StoredVersion) -> Option<&PruneProgress> {
    version.status.prune.as_ref().filter(|_| !version.deleting)
}

/// The versions of a namespace that wait for the deletion of their charts, the oldest first, and how many of them are too many.
#[must_use]
pub fn records<'o>(namespace: &'o str, objects: &'o PipelineObjects) -> (Vec<PruneRecord<'o>>, usize) {
    let waiting = within(&objects.hydrated_targets, namespace);
    let mut waiting: Vec<PruneRecord<'_>> = waiting
        .filter_map(|(key, version)| progress(version).map(|progress| PruneRecord { key, progress }))
        .collect();
    waiting.sort_by_key(|record| (record.progress.since.0, record.key));
    let surplus = waiting.len() - fitting(namespace, &waiting, objects);
    (waiting, surplus)
}

/// How many of the newest may go on waiting.
fn fitting(namespace: &str, waiting: &[PruneRecord<'_>], objects: &PipelineObjects) -> usize {
    let versions = &objects.hydrated_targets;
    if versions.bytes_within(namespace) <= VERSIONS_OF_NAMESPACE {
        return waiting.len().min(RECORDS);
    }
    let mut bytes = 0;
    let newest = waiting.iter().rev().take(RECORDS);
    let fitting = newest.take_while(|record| {
        bytes += versions.get(record.key).map_or(0, NamesOthers::kept_bytes);
        bytes <= VERSIONS_OF_NAMESPACE
    });
    fitting.count()
}

/// The next thing to do about a version; `None` for one that does not wait for the deletion of its charts.
#[must_use]
pub fn next_step(input: PruneInput<'_>) -> Option<PruneStep> {
    let PruneInput {
        key,
        version,
        objects,
        now,
        ..
    } = input;
    let progress = progress(version)?;
    let (oldest, surplus) = records(&key.namespace, objects);
    if oldest.iter().take(surplus).any(|other| other.key == key) {
        return Some(PruneStep::GiveUp(GivenUp::TooMany));
    }
    let next = progress.next_attempt.as_ref().map(|at| at.0);
    if let Some(at) = next.filter(|at| *at > now) {
        return Some(PruneStep::Wait(at));
    }
    Some(attempt(input, progress))
}

/// What an attempt at the charts of a version is.
fn attempt(input: PruneInput<'_>, progress: &PruneProgress) -> PruneStep {
    let (key, version, objects) = (input.key, input.version, input.objects);
    let Some(spec) = &version.spec else {
        return PruneStep::GiveUp(GivenUp::Undecodable);
    };
    let registry = registry_of(key, &spec.registry, objects, input.rules, input.catalog);
    let scope = registry
        .as_ref()
        .and_then(|registry| PruneScope::of(&registry.hostname, &registry.prefix));
    let Some((registry, scope)) = registry.zip(scope) else {
        return PruneStep::Fail(PruneFailure::NotGranted);
    };
    let charts = prunable(key, version, &scope, objects);
    if !registry.is_pruned || charts.is_empty() {
        return PruneStep::Delete;
    }
    if is_rendered(&charts, input) {
        return if is_over(progress, input.now) {
            PruneStep::GiveUp(GivenUp::TaskExists)
        } else {
            PruneStep::Wait(ends(progress))
        };
    }
    let account = progress.service_account_name.as_deref();
    match registry_access(
        &key.namespace,
        account,
        &registry.registry,
        input.catalog,
        input.tenancy,
    ) {
        Ok(access) => PruneStep::Ask(Box::new(PruneRequest {
            namespace: key.namespace.clone(),
            charts,
            access,
        })),
        Err(failure) => PruneStep::Fail(failure),
    }
}

/// The registry of a version as it is now, if the version's namespace may still use it.
#[must_use]
pub fn registry_of(
    key: &ObjectKey,
    registry: &HydratedRegistry,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    catalog: &Catalog,
) -> Option<RenderDestination> {
    let reference = RenderRegistryReference {
        kind: registry.kind,
        name: registry.name.clone(),
        namespace: registry.namespace.clone(),
    };
    named(key, &reference, objects, rules, catalog).ok()
}

/// Whether the charts of a version are to be deleted from its registry once it is not kept any more.
#[must_use]
pub fn is_pruned(
    key: &ObjectKey,
    version: &StoredVersion,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    catalog: &Catalog,
) -> bool {
    let registry = version.spec.as_ref().map(|spec| &spec.registry);
    let found = registry.and_then(|registry| registry_of(key, registry, objects, rules, catalog));
    found.is_some_and(|found| found.is_pruned)
}

/// Whether a task for one of the charts is there: it runs, or a Target may want what it pushed. One of another namespace counts only
/// where it may push there, or any tenant could keep the charts of others.
fn is_rendered(charts: &[PrunableChart], input: PruneInput<'_>) -> bool {
    let namespace = &input.key.namespace;
    input.objects.tasks.iter().any(|(key, task)| {
        let mut same = charts.iter().filter(|chart| {
            let reference = &chart.reference;
            reference.repository.as_str() == task.chart.repository
                && reference.tag.matches_version(&task.chart.tag)
        });
        same.any(|chart| {
            let is_own = key.namespace == *namespace;
            let registry = task.chart.registry.as_ref();
            let registry = registry.and_then(|registry| registry_of_task(key, registry, input));
            registry.map_or(is_own, |(host, prefix)| {
                let OciReference { repository, .. } = &chart.reference;
                host.eq_ignore_ascii_case(chart.reference.host.as_str())
                    && (is_own || prefix.is_some_and(|prefix| repository.is_within(&prefix)))
            })
        })
    })
}

/// The registry that a task pushes to, where it is known: its host, and where a task of this namespace may push there, as far as the
/// platform says.
fn registry_of_task<'o>(
    task: &ObjectKey,
    registry: &RegistryReference,
    input: PruneInput<'o>,
) -> Option<(&'o str, Option<RepositoryPrefix>)> {
    let (host, prefix) = if registry.kind == RegistryKind::ClusterRegistry {
        let spec = &input.catalog.registries.get(&registry.name)?.spec;
        (&spec.hostname, Some(spec.repository_prefix.as_str()))
    } else {
        let key = task.referred(registry.namespace.as_ref(), &registry.name);
        let spec = input.objects.registries.get(&key)?.spec.as_ref()?;
        let prefix = spec.repository_prefix.as_deref().unwrap_or_default();
        (&spec.hostname, input.tenancy.admits(spec).then_some(prefix))
    };
    let prefix = prefix.map(|prefix| prefix.replace("{namespace}", &task.namespace));
    Some((host, prefix.and_then(|prefix| prefix.parse().ok())))
}

/// How a registry is reached for a Target with this ServiceAccount.
///
/// # Errors
/// Why it is not.
pub fn registry_access(
    target_namespace: &str,
    account: Option<&str>,
    registry: &RegistryReference,
    catalog: &Catalog,
    tenancy: &TenancyPolicy,
) -> Result<PruneAccess, PruneFailure> {
    if registry.kind == RegistryKind::ClusterRegistry {
        let found = catalog.registries.get(&registry.name);
        return found.map_or(Err(PruneFailure::NotGranted), platform);
    }
    let namespace = registry.namespace.as_deref().unwrap_or(target_namespace);
    let identity = identity_in(target_namespace, account, tenancy);
    Ok(PruneAccess::Tenant(TenantReference {
        identity: identity.map_err(|_| PruneFailure::NoCredential)?,
        namespace: namespace.to_owned(),
        crosses: namespace != target_namespace,
        named: NamedDestination::Registry(registry.name.clone()),
    }))
}

fn platform(found: &CatalogRegistry) -> Result<PruneAccess, PruneFailure> {
    let spec = &found.spec;
    let secret = match &found.credential {
        CredentialState::Anonymous => None,
        CredentialState::BasicAuth(name) | CredentialState::DockerConfig(name) => {
            Some((name.clone(), spec.hostname.clone()))
        }
        CredentialState::Missing | CredentialState::Invalid => return Err(PruneFailure::NoCredential),
    };
    let certificates = spec.ca_config_map_ref.as_ref();
    Ok(PruneAccess::Platform(PlatformRegistry {
        plain_http: spec.plain_http,
        token_realm: spec.token_realm.clone(),
        means: CopyRequest {
            secret,
            certificates: certificates.map(|named| (named.name.clone(), named.key.clone())),
        },
    }))
}
