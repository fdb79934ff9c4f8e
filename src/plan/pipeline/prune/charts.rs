//! The charts of a version that may be deleted: those in repositories that the pipeline itself gives to its Target and Releases, within
//! what the registry grants, which no version that is kept names.

use crate::api::RegistrySpec;
use crate::api::oci::{Digest, OciReference, RegistryHost, RepositoryPrefix};
use crate::api::pipeline::{HydratedRelease, HydratedTargetSpec, PruneFailure};
use crate::plan::pipeline::chart::{bootstrap_tag, is_of_release, is_of_target};
use crate::plan::pipeline::history::{StoredVersion, is_kept};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::platform::tenancy::TenancyPolicy;

/// A chart that may be deleted, if its tag still has the digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrunableChart {
    /// Where it is.
    pub reference: OciReference,
    /// The digest that was recorded when it was pushed.
    pub digest: Digest,
}

/// What a registry lets be deleted.
pub(super) struct PruneScope {
    host: RegistryHost,
    prefix: RepositoryPrefix,
}

impl PruneScope {
    /// That of a host and a prefix; `None` where either is not legal.
    pub(super) fn of(hostname: &str, prefix: &str) -> Option<Self> {
        Some(Self {
            host: hostname.parse().ok()?,
            prefix: prefix.parse().ok()?,
        })
    }

    fn covers(&self, reference: &OciReference) -> bool {
        reference.host == self.host && reference.repository.is_within(&self.prefix)
    }
}

/// The charts of a version that its registry lets be deleted and that nothing else names.
pub(super) fn prunable(
    key: &ObjectKey,
    version: &StoredVersion,
    scope: &PruneScope,
    objects: &PipelineObjects,
) -> Vec<PrunableChart> {
    let Some(spec) = &version.spec else {
        return Vec::new();
    };
    let own = bootstrap(key, spec, version.status.digest.as_deref());
    let releases = spec.releases.values();
    let releases = releases.filter_map(|release| of_release(&key.namespace, release));
    let mut charts: Vec<PrunableChart> = own.into_iter().chain(releases).collect();
    charts.retain(|chart| scope.covers(&chart.reference));
    if !charts.is_empty() {
        drop_named(&mut charts, key, objects);
    }
    charts
}

/// The bootstrap chart of a version, where its repository is one of the Target's.
fn bootstrap(key: &ObjectKey, spec: &HydratedTargetSpec, digest: Option<&str>) -> Option<PrunableChart> {
    let registry = &spec.registry;
    let target = ObjectKey::new(&key.namespace, &spec.target_name);
    let tag = bootstrap_tag(spec.version);
    let reference = format!("{}/{}:{tag}", registry.hostname, registry.repository);
    let chart = chart(&reference, digest)?;
    is_of_target(&registry.repository, &target).then_some(chart)
}

/// The chart of a Release, where its repository is one of the Release's for Targets of the namespace.
fn of_release(namespace: &str, release: &HydratedRelease) -> Option<PrunableChart> {
    let reference = format!("{}:{}", release.repository, release.version);
    let chart = chart(&reference, release.digest.as_deref())?;
    let named = ObjectKey::new(&release.namespace, &release.name);
    is_of_release(chart.reference.repository.as_str(), namespace, &named).then_some(chart)
}

fn chart(reference: &str, digest: Option<&str>) -> Option<PrunableChart> {
    Some(PrunableChart {
        reference: reference.parse().ok()?,
        digest: digest?.parse().ok()?,
    })
}

/// Leaves out what a version that is kept names by its tag, or by its digest in the same repository: a registry deletes a manifest
/// with all of its tags.
fn drop_named(charts: &mut Vec<PrunableChart>, key: &ObjectKey, objects: &PipelineObjects) {
    for (other, version) in objects.hydrated_targets.iter() {
        if other == key || !is_kept(version) {
            continue;
        }
        match &version.spec {
            Some(spec) => charts.retain(|chart| !names(spec, version.status.digest.as_deref(), chart)),
            // What it names is not known.
            None if other.namespace == key.namespace => charts.clear(),
            None => {}
        }
        if charts.is_empty() {
            return;
        }
    }
}

fn names(spec: &HydratedTargetSpec, digest: Option<&str>, chart: &PrunableChart) -> bool {
    let OciReference {
        host,
        repository,
        tag,
    } = &chart.reference;
    let is_same = |digest: Option<&str>| digest == Some(chart.digest.as_str());
    let is_host = |text: &str| text.eq_ignore_ascii_case(host.as_str());
    let is_place = |text: &str| {
        let split = text.split_once('/');
        split.is_some_and(|(text, path)| path == repository.as_str() && is_host(text))
    };
    let registry = &spec.registry;
    let is_bootstrap = registry.repository == repository.as_str()
        && is_host(&registry.hostname)
        && (is_same(digest) || tag.matches_version(&bootstrap_tag(spec.version)));
    let mut releases = spec.releases.values();
    is_bootstrap
        || releases.any(|release| {
            (tag.matches_version(&release.version) || is_same(release.digest.as_deref()))
                && is_place(&release.repository)
        })
}

/// Which of the charts a tenant's Registry, as its tenant may read it now, lets be deleted.
///
/// # Errors
/// [`PruneFailure::NotGranted`] where the platform does not let tenants name its host.
pub fn still_allowed(
    charts: &[PrunableChart],
    registry: &RegistrySpec,
    namespace: &str,
    tenancy: &TenancyPolicy,
) -> Result<Vec<PrunableChart>, PruneFailure> {
    if registry.prune != Some(true) {
        return Ok(Vec::new());
    }
    if !tenancy.admits(registry) {
        return Err(PruneFailure::NotGranted);
    }
    let prefix = registry.repository_prefix.as_deref().unwrap_or_default();
    let scope = PruneScope::of(&registry.hostname, &prefix.replace("{namespace}", namespace));
    let scope = scope.ok_or(PruneFailure::NotGranted)?;
    let allowed = charts.iter().filter(|chart| scope.covers(&chart.reference));
    Ok(allowed.cloned().collect())
}
