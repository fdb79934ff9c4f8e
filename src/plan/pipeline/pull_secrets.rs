//! With which Secret images and charts are pulled on a Target's cluster.

use std::collections::{BTreeMap, BTreeSet};

use crate::api::pipeline::{HydratedTargetSpec, PipelineStatus, RegistryBindingSpec};

use super::object::{ObjectKey, PipelineObject};
use super::object_map::NamedKind;
use super::objects::PipelineObjects;
use super::references::ReferenceRules;
use super::source::{TargetView, is_target};

/// Why it is not known with which Secret a host is pulled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullSecretError {
    /// No binding names the host, and this hub requires one.
    Missing(String),
    /// Bindings name different Secrets for it.
    Conflict(String),
    /// This binding may be for the host, and cannot be resolved.
    Unresolved(ObjectKey),
}

/// What bindings say of a host.
#[derive(Debug)]
struct HostSecret<'o> {
    /// The Secret, empty for none; `None` where bindings disagree.
    secret: Option<&'o str>,
    bindings: Vec<&'o ObjectKey>,
}

/// With which Secret each host is pulled from on a Target.
#[derive(Debug, Default)]
pub(super) struct PullSecrets<'o> {
    hosts: BTreeMap<String, HostSecret<'o>>,
    /// A binding whose host is not known.
    unresolved: Option<ObjectKey>,
    is_strict: bool,
    /// How many bindings there are.
    taken: usize,
}

/// A Secret, and the bindings that name it.
pub(super) type NamedSecret<'s, 'o> = (&'o str, &'s [&'o ObjectKey]);

impl<'o> PullSecrets<'o> {
    /// What the bindings of a Target say. One of another namespace that may not reach it counts only where the last version rests
    /// on it: otherwise a tenant could hold another tenant's Target back.
    pub fn of(
        target: TargetView<'_>,
        last: Option<&HydratedTargetSpec>,
        objects: &'o PipelineObjects,
        rules: &ReferenceRules,
    ) -> Self {
        let mut found = Self {
            is_strict: rules.is_registry_binding_strict,
            ..Self::default()
        };
        let bindings = &objects.registry_bindings;
        let mut taken = BTreeSet::new();
        for namespace in rules.reaching(&objects.grants, "RegistryBinding", "Target", target.key) {
            for (key, binding) in bindings.naming_from(namespace, NamedKind::Target, target.key) {
                taken.insert(key);
                found.taken += 1;
                found.take(key, binding, objects);
            }
        }
        for key in relied_on(last) {
            // What cannot be decoded, seen or reached any more is as it was: it is not known what it says.
            let is_there = !rules.serves(&key.namespace)
                || bindings.get(&key).is_some_and(|binding| {
                    let spec = binding.spec.as_ref();
                    spec.is_none_or(|spec| is_target(&spec.target_ref, &key, target.key))
                });
            if is_there && !taken.contains(&key) {
                found.unresolved = Some(key);
            }
        }
        found
    }

    /// How many bindings were looked at.
    pub fn bindings(&self) -> usize {
        self.taken
    }

    fn take(
        &mut self,
        key: &'o ObjectKey,
        binding: &'o PipelineObject<RegistryBindingSpec, PipelineStatus>,
        objects: &'o PipelineObjects,
    ) {
        let Some(spec) = &binding.spec else { return };
        let registry = ObjectKey::new(&key.namespace, &spec.registry_ref.name);
        let registry = objects.registries.get(&registry);
        let Some(registry) = registry.and_then(|registry| registry.spec.as_ref()) else {
            self.unresolved = Some(key.clone());
            return;
        };
        let secret = registry.target_pull_secret_name.as_deref().unwrap_or_default();
        let host = registry.hostname.to_ascii_lowercase();
        let known = self.hosts.entry(host).or_insert(HostSecret {
            secret: Some(secret),
            bindings: Vec::new(),
        });
        known.bindings.push(key);
        if known.secret != Some(secret) {
            known.secret = None;
        }
    }

    /// The Secret for a repository, empty for none, and what names it; `None` where no binding speaks of the host.
    pub fn of_repository(&self, repository: &str) -> Result<Option<NamedSecret<'_, 'o>>, PullSecretError> {
        let host = host(repository);
        match self.hosts.get(&host) {
            Some(HostSecret { secret: None, .. }) => Err(PullSecretError::Conflict(host)),
            Some(HostSecret {
                secret: Some(secret),
                bindings,
            }) => Ok(Some((secret, bindings))),
            None => match &self.unresolved {
                Some(binding) => Err(PullSecretError::Unresolved(binding.clone())),
                None if self.is_strict => Err(PullSecretError::Missing(host)),
                None => Ok(None),
            },
        }
    }
}

/// The bindings that the last version rests on.
fn relied_on(last: Option<&HydratedTargetSpec>) -> BTreeSet<ObjectKey> {
    let releases = last.into_iter().flat_map(|last| last.releases.values());
    let bindings = releases.flat_map(|release| &release.registry_bindings);
    bindings
        .map(|name| ObjectKey::new(&name.namespace, &name.name))
        .collect()
}

/// The host of a repository: in lower case, without a scheme, with its port.
fn host(repository: &str) -> String {
    let bare = repository.split_once("://").map_or(repository, |(_, rest)| rest);
    bare.split('/').next().unwrap_or_default().to_ascii_lowercase()
}
