//! What puts a Release on a Target: a `ReleaseBinding`, or a `Profile` whose selector matches.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::api::pipeline::{
    ProfileSpec, ProfileStatus, ReleaseSource, ReleaseSourceKind, TargetReference, TargetSpec, TargetStatus,
};

use super::object::{ObjectKey, PipelineObject, within};
use super::object_map::NamedKind;
use super::objects::PipelineObjects;
use super::references::ReferenceRules;
use super::selector::{is_valid, label, matches};

/// What puts a Release on a Target, by the key of the object: nothing is copied. In the order of [`ReleaseSource`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SourceKey<'o> {
    /// Its key.
    pub key: &'o ObjectKey,
    /// Its kind.
    pub kind: ReleaseSourceKind,
}

impl SourceKey<'_> {
    /// It as a status names it.
    #[must_use]
    pub fn named(self) -> ReleaseSource {
        source(self.kind, self.key)
    }

    /// Whether a status names it so.
    #[must_use]
    pub fn is(self, named: &ReleaseSource) -> bool {
        let ReleaseSource {
            namespace,
            name,
            kind,
        } = named;
        (&self.key.namespace, &self.key.name, self.kind) == (namespace, name, *kind)
    }
}

/// A Release that is bound to a Target, whether it exists or not.
#[derive(Clone, Debug)]
pub struct BoundRelease<'o> {
    /// What binds it: the first of everything that does.
    pub source: SourceKey<'o>,
    /// The Release.
    pub release: ObjectKey,
    /// Everything else that binds it, in order.
    pub further: Vec<SourceKey<'o>>,
    /// Data of Profiles that bind it, each with its Profile.
    pub userdata: Vec<(&'o ObjectKey, &'o Value)>,
}

/// What became of the source of a Release that a Target has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceState {
    /// It still binds the Release to the Target, or this version of the hub cannot read it.
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

/// The Releases that are bound to a Target, each by the first of its sources and with the data of all, in the order of the sources.
#[must_use]
pub fn bound<'o>(
    target: TargetView<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Vec<BoundRelease<'o>> {
    let mut found = of_bindings(target, objects, rules);
    found.extend(of_profiles(target, objects, rules));
    found.sort_unstable_by(|a, b| (&a.release, &a.source).cmp(&(&b.release, &b.source)));
    found.dedup_by(|later, first| {
        let is_same = later.release == first.release;
        if is_same {
            first.further.push(later.source);
            first.userdata.append(&mut later.userdata);
        }
        is_same
    });
    found.sort_by(|a, b| a.source.cmp(&b.source));
    found
}

fn of_bindings<'o>(
    target: TargetView<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Vec<BoundRelease<'o>> {
    let kind = ReleaseSourceKind::ReleaseBinding;
    let mut found = Vec::new();
    for namespace in rules.reaching(&objects.grants, kind.as_str(), "Target", target.key) {
        let bindings = &objects.release_bindings;
        for (key, binding) in bindings.naming_from(namespace, NamedKind::Target, target.key) {
            found.extend(binding.spec.as_ref().map(|spec| BoundRelease {
                source: SourceKey { key, kind },
                release: ObjectKey::new(&key.namespace, &spec.release_ref.name),
                further: Vec::new(),
                userdata: Vec::new(),
            }));
        }
    }
    found
}

fn of_profiles<'o>(
    target: TargetView<'o>,
    objects: &'o PipelineObjects,
    rules: &ReferenceRules,
) -> Vec<BoundRelease<'o>> {
    let kind = ReleaseSourceKind::Profile;
    let labels = &target.object.labels;
    let mut found = Vec::new();
    for namespace in rules.reaching(&objects.grants, kind.as_str(), "Target", target.key) {
        for (key, profile) in that_may_match(namespace, labels, objects) {
            let Some(spec) = &profile.spec else { continue };
            if matches(&spec.target_selector, labels) {
                found.push(BoundRelease {
                    source: SourceKey { key, kind },
                    release: ObjectKey::new(&key.namespace, &spec.release_ref.name),
                    further: Vec::new(),
                    userdata: spec.userdata.iter().map(|data| (key, data)).collect(),
                });
            }
        }
    }
    found
}

/// The Profiles of a namespace that require one of these labels, or none in particular.
pub(super) fn that_may_match<'o>(
    namespace: &str,
    labels: &BTreeMap<String, String>,
    objects: &'o PipelineObjects,
) -> impl Iterator<Item = (&'o ObjectKey, &'o PipelineObject<ProfileSpec, ProfileStatus>)> {
    let labels = labels.iter().map(|(key, value)| label(key, value));
    let required = labels.chain([String::new()]);
    let required = required.map(|label| ObjectKey::new(namespace, &label));
    required.flat_map(|label| objects.profiles.naming(NamedKind::Label, &label))
}

/// The Targets that the Profile in `key` matches and may reach, in their order.
pub fn matched<'o>(
    key: &'o ObjectKey,
    spec: &'o ProfileSpec,
    objects: &'o PipelineObjects,
    rules: &'o ReferenceRules,
) -> impl Iterator<Item = TargetView<'o>> {
    let namespaces = rules
        .reached(&objects.grants, "Profile", &key.namespace)
        .into_iter();
    let targets = namespaces.flat_map(|namespace| within(&objects.targets, namespace));
    let targets = targets.map(|(key, object)| TargetView { key, object });
    targets.filter(|target| {
        matches(&spec.target_selector, &target.object.labels)
            && may_reach(ReleaseSourceKind::Profile, key, target.key, objects, rules)
    })
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
    rules.allow(&objects.grants, (kind.as_str(), &key.namespace), "Target", target)
}

/// The source with this key.
pub(super) fn source(kind: ReleaseSourceKind, key: &ObjectKey) -> ReleaseSource {
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
    if !rules.sees(source.kind, &source.namespace) {
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
                } else if !is_valid(&spec.target_selector)
                    || matches(&spec.target_selector, &target.object.labels)
                {
                    SourceState::Binds
                } else {
                    SourceState::Unmatched
                }
            }),
        },
    }
}
