//! Which Releases a Target gets.
//!
//! Of the Releases that are bound to it, in the order of priority, each is accepted unless one that was accepted before has its
//! unique name or excludes it. So a Release that lost can be taken away without any effect. What a Target has and what cannot be
//! resolved any more takes part with the priority it had: it leaves only on purpose.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

use crate::api::pipeline::{ComponentVersionSpec, HydratedRelease, HydratedTargetSpec, ReleaseSpec};

use super::choose::{Contender, choose};
use super::kept::kept;
use super::object::ObjectKey;
use super::objects::{ComponentVersionObject, PipelineObjects};
use super::pull_secrets::{PullSecretError, PullSecrets};
use super::references::ReferenceRules;
use super::resolution::{AcceptedRelease, BINDINGS_OF_TARGET, Resolution, ResolveFailure, UnresolvedRelease};
use super::selector::is_valid;
use super::source::{BoundRelease, TargetView, bound};

/// The Releases that a Target gets; `last` is its newest version.
#[must_use]
pub fn resolve<'o>(
    target: TargetView<'o>,
    last: Option<&'o HydratedTargetSpec>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
    now: Timestamp,
) -> Resolution<'o> {
    let bound = bound(target, objects, rules);
    let secrets = PullSecrets::of(target, last, objects, rules);
    let sources: usize = bound.iter().map(|bound| 1 + bound.further.len()).sum();
    let bindings = sources + secrets.bindings();
    if bindings > BINDINGS_OF_TARGET {
        return Resolution {
            too_many: Some(bindings),
            ..Resolution::default()
        };
    }
    let (mut accepted_releases, mut unresolved) = (Vec::new(), Vec::new());
    for one in &bound {
        match accepted(one, objects, rules, &secrets) {
            Ok(release) => accepted_releases.push(release),
            Err(why) => unresolved.push(UnresolvedRelease {
                source: one.source.named(),
                release: one.release.clone(),
                why,
            }),
        }
    }
    let resolved: BTreeSet<(&str, &str)> = accepted_releases.iter().map(name_of).collect();
    let others = last.into_iter().flat_map(|last| &last.releases);
    let others = others.filter(|(_, last)| !resolved.contains(&(&last.namespace, &last.name)));
    let kept = others.filter_map(|(unique_name, last)| {
        kept(target, (unique_name, last), &unresolved, objects, rules, now)
    });
    let kept: Vec<_> = kept.map(Contender::Kept).collect();
    let contenders = accepted_releases.into_iter().map(Contender::Accepted);
    let contenders = contenders.chain(kept).collect();
    let has =
        |release: &ObjectKey| last.is_some_and(|last| last.releases.values().any(|r| is_same(release, r)));
    let mut resolution = choose(contenders, has);
    let is_kept = |release: &ObjectKey| resolution.kept.iter().any(|kept| is_same(release, kept.last));
    unresolved.retain(|release| !is_kept(&release.release));
    resolution.unresolved.extend(unresolved);
    resolution.bound = bound;
    resolution
}

fn name_of<'r>(release: &'r AcceptedRelease<'_>) -> (&'r str, &'r str) {
    (&release.release.namespace, &release.release.name)
}

fn is_same(release: &ObjectKey, last: &HydratedRelease) -> bool {
    release.namespace == last.namespace && release.name == last.name
}

/// A bound Release with everything that its chart is made of.
pub(super) fn accepted<'o>(
    bound: &BoundRelease<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
    secrets: &PullSecrets<'_>,
) -> Result<AcceptedRelease<'o>, ResolveFailure> {
    let found = objects.releases.get_key_value(&bound.release);
    let (release, object) = found.ok_or(ResolveFailure::ReleaseNotFound)?;
    let spec = object.spec.as_ref().ok_or(ResolveFailure::ReleaseNotFound)?;
    if spec
        .anti_affinity
        .as_ref()
        .is_some_and(|labels| !is_valid(labels))
    {
        return Err(ResolveFailure::InvalidAntiAffinity);
    }
    let (version_key, version_object, version) = version(release, spec, objects, rules)?;
    let (mut pull_secrets, mut registry_bindings) = (BTreeMap::new(), BTreeSet::new());
    for (name, resource) in &version.resources {
        let found = secrets
            .of_repository(&resource.repository)
            .map_err(pull_failure)?;
        if let Some((secret, bindings)) = found {
            registry_bindings.extend(bindings.iter().map(|binding| (*binding).clone()));
            if !secret.is_empty() {
                pull_secrets.insert(name.clone(), secret.to_owned());
            }
        }
    }
    Ok(AcceptedRelease {
        unique_name: unique_name(spec, version),
        release,
        object,
        spec,
        version,
        version_key,
        version_revision: (&version_object.uid, version_object.generation),
        source: bound.source,
        priority: spec.priority.unwrap_or_default(),
        pull_secrets,
        registry_bindings,
    })
}

/// The name of which a Target has one Release.
#[must_use]
pub fn unique_name<'o>(spec: &'o ReleaseSpec, version: &'o ComponentVersionSpec) -> &'o str {
    spec.unique_name.as_deref().unwrap_or(&version.component_ref.name)
}

/// The key of the version that a Release names.
fn version_key(release: &ObjectKey, spec: &ReleaseSpec) -> ObjectKey {
    let named = &spec.component_version_ref;
    release.referred(named.namespace.as_ref(), &named.name)
}

/// Whether a Release may use a version of a component.
#[must_use]
pub fn may_use_version(
    release: &ObjectKey,
    version: &ObjectKey,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> bool {
    let from = ("Release", release.namespace.as_str());
    rules.allow(&objects.grants, from, "ComponentVersion", version)
}

/// A version of a component, with its key and its spec.
pub type FoundVersion<'o> = (
    &'o ObjectKey,
    &'o ComponentVersionObject,
    &'o ComponentVersionSpec,
);

/// The version that a Release names.
///
/// # Errors
/// It does not exist, or may not be used.
pub fn version<'o>(
    release: &ObjectKey,
    spec: &ReleaseSpec,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Result<FoundVersion<'o>, ResolveFailure> {
    let key = version_key(release, spec);
    let is_home = key.namespace == release.namespace;
    let found = objects.component_versions.get_key_value(&key);
    let found = found.filter(|_| may_use_version(release, &key, objects, rules));
    let found = found.and_then(|(key, found)| Some((key, found, found.spec.as_ref()?)));
    found.ok_or(if is_home {
        ResolveFailure::VersionNotFound(key)
    } else {
        ResolveFailure::VersionNotGranted(key)
    })
}

fn pull_failure(error: PullSecretError) -> ResolveFailure {
    match error {
        PullSecretError::Missing(host) => ResolveFailure::MissingRegistryBinding(host),
        PullSecretError::Conflict(host) => ResolveFailure::RegistryBindingConflict(host),
        PullSecretError::Unresolved(binding) => ResolveFailure::RegistryBindingUnresolved(binding),
    }
}
