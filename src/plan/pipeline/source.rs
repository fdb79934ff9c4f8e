//! What puts a Release on a Target: a `ReleaseBinding`, or a `Profile` whose selector matches.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::{Selector, SelectorExt as _};
use serde_json::Value;

use std::collections::BTreeMap;

use crate::api::pipeline::{
    ProfileSpec, ReleaseBindingSpec, ReleaseSource, ReleaseSourceKind, TargetReference, TargetSpec,
    TargetStatus,
};

use super::object::{ObjectKey, PipelineObject, within};
use super::objects::PipelineObjects;
use super::references::{Reference, ReferenceRules};

/// A Release that is bound to a Target, whether it exists or not.
#[derive(Clone, Debug)]
pub struct BoundRelease<'o> {
    /// What binds it.
    pub source: ReleaseSource,
    /// The Release.
    pub release: ObjectKey,
    /// Data of the Profile for the Target.
    pub userdata: Option<&'o Value>,
}

/// What became of the source of a Release that a Target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It still binds the Release to the Target, or cannot be read.
    Binds,
    /// It is a Profile, and its selector does not match the Target any more.
    Unmatched,
    /// It is gone, or binds something else: the Release leaves on purpose.
    Gone,
}

/// A Target that is asked about.
#[derive(Clone, Copy, Debug)]
pub struct TargetView<'o> {
    /// Its key.
    pub key: &'o ObjectKey,
    /// The object.
    pub object: &'o PipelineObject<TargetSpec, TargetStatus>,
}

/// The Releases that are bound to a Target, each by the first of its sources, in the order of the sources.
#[must_use]
pub fn bound<'o>(
    target: TargetView<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Vec<BoundRelease<'o>> {
    let mut found: Vec<BoundRelease<'o>> = if rules.crosses_namespaces {
        let bindings = objects.release_bindings.iter();
        let profiles = objects.profiles.iter();
        of_bindings(target, bindings, objects, rules)
            .chain(of_profiles(target, profiles, objects, rules))
            .collect()
    } else {
        let namespace = &target.key.namespace;
        let bindings = within(&objects.release_bindings, namespace);
        let profiles = within(&objects.profiles, namespace);
        of_bindings(target, bindings, objects, rules)
            .chain(of_profiles(target, profiles, objects, rules))
            .collect()
    };
    found.sort_by(|a, b| (&a.release, &a.source).cmp(&(&b.release, &b.source)));
    found.dedup_by(|later, first| later.release == first.release);
    found.sort_by(|a, b| a.source.cmp(&b.source));
    found
}

fn of_bindings<'o, S: 'o>(
    target: TargetView<'o>,
    bindings: impl Iterator<Item = (&'o ObjectKey, &'o PipelineObject<ReleaseBindingSpec, S>)>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> impl Iterator<Item = BoundRelease<'o>> {
    bindings.filter_map(move |(key, binding)| {
        let spec = binding.spec.as_ref()?;
        let is_meant = is_target(&spec.target_ref, key, target.key);
        (is_meant && may_reach(ReleaseSourceKind::ReleaseBinding, key, target.key, objects, rules)).then(
            || BoundRelease {
                source: source(ReleaseSourceKind::ReleaseBinding, key),
                release: ObjectKey::new(&key.namespace, &spec.release_ref.name),
                userdata: None,
            },
        )
    })
}

fn of_profiles<'o, S: 'o>(
    target: TargetView<'o>,
    profiles: impl Iterator<Item = (&'o ObjectKey, &'o PipelineObject<ProfileSpec, S>)>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> impl Iterator<Item = BoundRelease<'o>> {
    profiles.filter_map(move |(key, profile)| {
        let spec = profile.spec.as_ref()?;
        let is_meant = matches(&spec.target_selector, &target.object.labels);
        (is_meant && may_reach(ReleaseSourceKind::Profile, key, target.key, objects, rules)).then(|| {
            BoundRelease {
                source: source(ReleaseSourceKind::Profile, key),
                release: ObjectKey::new(&key.namespace, &spec.release_ref.name),
                userdata: spec.userdata.as_ref(),
            }
        })
    })
}

/// Whether a selector matches labels; one that Kubernetes would refuse matches nothing.
#[must_use]
pub fn matches(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    Selector::try_from(selector.clone()).is_ok_and(|selector| selector.matches(labels))
}

/// Whether a binding in `key` names this Target.
#[must_use]
pub fn is_target(named: &TargetReference, key: &ObjectKey, target: &ObjectKey) -> bool {
    named.name == target.name && named.namespace.as_ref().unwrap_or(&key.namespace) == &target.namespace
}

/// Whether a source may reach a Target: at home, or with a grant.
#[must_use]
pub fn may_reach(
    kind: ReleaseSourceKind,
    key: &ObjectKey,
    target: &ObjectKey,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> bool {
    let from_kind = match kind {
        ReleaseSourceKind::ReleaseBinding => "ReleaseBinding",
        ReleaseSourceKind::Profile => "Profile",
    };
    let reference = Reference {
        from_kind,
        from: &key.namespace,
        to_kind: "Target",
        to: &target.namespace,
        name: &target.name,
    };
    rules.allow(&objects.grants, reference)
}

fn source(kind: ReleaseSourceKind, key: &ObjectKey) -> ReleaseSource {
    ReleaseSource {
        namespace: key.namespace.clone(),
        name: key.name.clone(),
        kind,
    }
}

/// What became of the source of a Release that a Target has.
#[must_use]
pub fn state(
    source: &ReleaseSource,
    release: &ObjectKey,
    target: TargetView<'_>,
    objects: &PipelineObjects,
    rules: &ReferenceRules,
) -> SourceState {
    if !rules.serves(&source.namespace) {
        return SourceState::Binds;
    }
    let key = ObjectKey::new(&source.namespace, &source.name);
    let is_release = |name: &str| key.namespace == release.namespace && name == release.name;
    match source.kind {
        ReleaseSourceKind::ReleaseBinding => match objects.release_bindings.get(&key) {
            None => SourceState::Gone,
            Some(binding) => binding.spec.as_ref().map_or(SourceState::Binds, |spec| {
                let binds =
                    is_target(&spec.target_ref, &key, target.key) && is_release(&spec.release_ref.name);
                if binds {
                    SourceState::Binds
                } else {
                    SourceState::Gone
                }
            }),
        },
        ReleaseSourceKind::Profile => match objects.profiles.get(&key) {
            None => SourceState::Gone,
            Some(profile) => profile.spec.as_ref().map_or(SourceState::Binds, |spec| {
                if !is_release(&spec.release_ref.name) {
                    SourceState::Gone
                } else if matches(&spec.target_selector, &target.object.labels) {
                    SourceState::Binds
                } else {
                    SourceState::Unmatched
                }
            }),
        },
    }
}
