//! What rests on a namespace of which the hub does not know all: it may not read it at the moment, or does not hold all of its objects.
//!
//! What is not seen in such a namespace is neither missing nor gone, and a reference into it is neither granted nor denied. So nothing is
//! decided about what may rest on it, and all of it stays as it was.

use std::collections::BTreeSet;

use crate::api::pipeline::{ReleaseSpec, TargetReference, TargetSpec};

use super::object::ObjectKey;
use super::objects::PipelineObjects;
use super::references::ReferenceRules;
use super::source::{TargetView, bound};

/// Kinds that put something on a Target, or say how it pulls.
const REACHING: [&str; 3] = ["Profile", "RegistryBinding", "ReleaseBinding"];

/// Whether what a Target gets may rest on a namespace that the hub may not read.
#[must_use]
pub fn target(
    target: TargetView<'_>,
    spec: &TargetSpec,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> bool {
    rests_on(target, spec, objects, rules, &rules.unread).is_some()
}

/// The first namespace that a Target may rest on and of which the hub does not hold every object.
#[must_use]
pub fn overfull<'r>(
    target: TargetView<'_>,
    spec: &TargetSpec,
    objects: &PipelineObjects,
    rules: &'r ReferenceRules,
) -> Option<&'r String> {
    rests_on(target, spec, objects, rules, &rules.overfull)
}

/// Whether what a Target gets may rest on a namespace of which the hub does not know all.
#[must_use]
pub fn is_unknown(
    view: TargetView<'_>,
    spec: &TargetSpec,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> bool {
    target(view, spec, objects, rules) || overfull(view, spec, objects, rules).is_some()
}

/// The first of these namespaces that a Target may rest on.
fn rests_on<'n>(
    target: TargetView<'_>,
    spec: &TargetSpec,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
    namespaces: &'n BTreeSet<String>,
) -> Option<&'n String> {
    if namespaces.is_empty() {
        return None;
    }
    let may_reach = |namespace: &&String| {
        let mut kinds = REACHING.into_iter();
        kinds.any(|kind| rules.allow(&objects.grants, (kind, namespace), "Target", target.key))
    };
    let registry = spec.render_registry_ref.namespace.as_ref();
    let named = registry.and_then(|registry| namespaces.get(registry));
    named.or_else(|| namespaces.iter().find(may_reach)).or_else(|| {
        let all = bound(target, objects, rules);
        let mut releases = all.iter().filter_map(|bound| {
            let named = objects.releases.get(&bound.release)?;
            Some((&bound.release, named.spec.as_ref()?))
        });
        releases.find_map(|(key, spec)| namespaces.get(version_namespace(key, spec)))
    })
}

/// The namespace of the version that a Release names.
fn version_namespace<'o>(key: &'o ObjectKey, spec: &'o ReleaseSpec) -> &'o String {
    let version = spec.component_version_ref.namespace.as_ref();
    version.unwrap_or(&key.namespace)
}

/// Whether the version of a Release is in a namespace of which the hub does not know all.
#[must_use]
pub fn release(key: &ObjectKey, spec: &ReleaseSpec, rules: &ReferenceRules) -> bool {
    !rules.reads(version_namespace(key, spec))
}

/// Whether the Target of a binding is in such a namespace.
#[must_use]
pub fn binding(key: &ObjectKey, named: &TargetReference, rules: &ReferenceRules) -> bool {
    !rules.reads(named.namespace.as_ref().unwrap_or(&key.namespace))
}
