//! With which Secret images and charts are pulled on a Target's cluster.

use std::collections::BTreeMap;

use super::object::ObjectKey;
use super::objects::PipelineObjects;
use super::references::{Reference, ReferenceRules};
use super::source::{TargetView, is_target};

/// Why it is not known with which Secret a host is pulled from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PullSecretError {
    /// No binding names the host, and this hub requires one.
    Missing(String),
    /// Bindings name different Secrets for it.
    Conflict(String),
}

/// With which Secret each host is pulled from on a Target.
#[derive(Debug, Default)]
pub(super) struct PullSecrets<'o> {
    /// The Secret of a host; `None` where bindings disagree.
    hosts: BTreeMap<String, Option<&'o str>>,
    is_strict: bool,
}

impl<'o> PullSecrets<'o> {
    pub fn of(target: TargetView<'_>, objects: &'o PipelineObjects, rules: &ReferenceRules) -> Self {
        let mut hosts: BTreeMap<String, Option<&'o str>> = BTreeMap::new();
        let crosses = rules.crosses_namespaces;
        let bindings = objects.registry_bindings.iter();
        let own = &target.key.namespace;
        for (key, binding) in bindings.filter(|(key, _)| crosses || key.namespace == *own) {
            let Some(spec) = &binding.spec else { continue };
            let reference = Reference {
                from_kind: "RegistryBinding",
                from: &key.namespace,
                to_kind: "Target",
                to: &target.key.namespace,
                name: &target.key.name,
            };
            if !is_target(&spec.target_ref, key, target.key) || !rules.allow(&objects.grants, reference) {
                continue;
            }
            let registry = objects
                .registries
                .get(&ObjectKey::new(&key.namespace, &spec.registry_ref.name));
            let Some(registry) = registry.and_then(|registry| registry.spec.as_ref()) else {
                continue;
            };
            let secret = registry.target_pull_secret_name.as_deref().unwrap_or_default();
            let known = hosts
                .entry(registry.hostname.to_ascii_lowercase())
                .or_insert(Some(secret));
            if *known != Some(secret) {
                *known = None;
            }
        }
        Self {
            hosts,
            is_strict: rules.is_registry_binding_strict,
        }
    }

    /// The Secret for a repository; `None` where it is pulled without one.
    pub fn of_repository(&self, repository: &str) -> Result<Option<&'o str>, PullSecretError> {
        let host = host(repository);
        match self.hosts.get(&host) {
            Some(Some(secret)) => Ok(Some(*secret).filter(|secret| !secret.is_empty())),
            Some(None) => Err(PullSecretError::Conflict(host)),
            None if self.is_strict => Err(PullSecretError::Missing(host)),
            None => Ok(None),
        }
    }
}

/// The host of a repository: in lower case, without a scheme, with its port.
fn host(repository: &str) -> String {
    let bare = repository.split_once("://").map_or(repository, |(_, rest)| rest);
    bare.split('/').next().unwrap_or_default().to_ascii_lowercase()
}
