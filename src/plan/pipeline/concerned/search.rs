//! Whom each kind of object concerns.

use super::found::Concerned;
use crate::api::pipeline::{
    HydratedProfile, HydratedTargetSpec, NamespacedName, PipelineStatus, ProfileSpec, ProfileStatus,
    RegistryBindingSpec, ReleaseBindingSpec, ReleaseSource, ReleaseSourceKind, TargetReference, TargetSpec,
    TargetStatus,
};
use crate::plan::pipeline::chart::{bootstrap_name, release_name};
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject, within};
use crate::plan::pipeline::object_map::{NamedKind, NamedObject, NamesOthers as _};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::source::{matched, that_may_match};
use crate::plan::pipeline::status::StatusKind;
use crate::plan::pipeline::task_state::PipelineTask;

/// Profiles of one Release whose selectors are matched to find whom it concerns. Of more, all Targets that they may reach are looked at,
/// each in its turn: to match them all here would take as long as there are Profiles times Targets.
pub const PROFILES_MATCHED: usize = 16;

/// What there is at one moment, to find in it whom an object concerns.
#[derive(Debug)]
pub struct ConcernSearch<'o> {
    pub(super) objects: &'o PipelineObjects,
    rules: &'o ReferenceRules,
    pub(super) found: &'o mut Concerned,
}

impl<'o> ConcernSearch<'o> {
    /// Adds to what was found whom objects concern as they are at the moment.
    pub fn new(objects: &'o PipelineObjects, rules: &'o ReferenceRules, found: &'o mut Concerned) -> Self {
        Self {
            objects,
            rules,
            found,
        }
    }

    /// Whom a Target concerns.
    pub fn target(&mut self, key: &ObjectKey, object: &PipelineObject<TargetSpec, TargetStatus>) {
        self.found.own(key.clone());
        let objects = self.objects;
        for (binding, _) in objects.release_bindings.naming(NamedKind::Target, key) {
            self.found.status(StatusKind::ReleaseBinding, binding);
        }
        for (binding, _) in objects.registry_bindings.naming(NamedKind::Target, key) {
            self.found.status(StatusKind::RegistryBinding, binding);
        }
        for namespace in self.rules.reaching(&objects.grants, "Profile", "Target", key) {
            for (profile, _) in that_may_match(namespace, &object.labels, objects) {
                self.found.status(StatusKind::Profile, profile);
            }
        }
    }

    /// Whom a version of a Target concerns.
    pub fn version(&mut self, key: &ObjectKey, object: &StoredVersion) {
        self.found.own_of_version(key, object);
    }

    /// Whom a Release concerns.
    pub fn release(&mut self, key: &ObjectKey) {
        let objects = self.objects;
        self.found.status(StatusKind::Release, key);
        for (binding, object) in objects.release_bindings.naming(NamedKind::Release, key) {
            self.found.status(StatusKind::ReleaseBinding, binding);
            let target = object.spec.as_ref().map(|spec| &spec.target_ref);
            self.reached("ReleaseBinding", binding, target);
        }
        let mut profiles = 0;
        for (profile, object) in objects.profiles.naming(NamedKind::Release, key) {
            self.found.status(StatusKind::Profile, profile);
            profiles += 1;
            if profiles <= PROFILES_MATCHED {
                self.matched(profile, object);
            }
        }
        if profiles > PROFILES_MATCHED {
            for namespace in self.rules.reached(&objects.grants, "Profile", &key.namespace) {
                self.all(namespace);
            }
        }
    }

    /// Whom a Component concerns.
    pub fn component(&mut self, key: &ObjectKey) {
        self.found.status(StatusKind::Component, key);
        let versions = &self.objects.component_versions;
        for (version, _) in versions.naming(NamedKind::Component, key) {
            self.found.status(StatusKind::ComponentVersion, version);
        }
    }

    /// Whom a `ComponentVersion` concerns.
    pub fn component_version(&mut self, key: &ObjectKey) {
        self.found.status(StatusKind::ComponentVersion, key);
        let releases = &self.objects.releases;
        for (release, _) in releases.naming(NamedKind::ComponentVersion, key) {
            self.release(release);
        }
    }

    /// Whom a Profile concerns.
    pub fn profile(&mut self, key: &ObjectKey, object: &PipelineObject<ProfileSpec, ProfileStatus>) {
        self.found.status(StatusKind::Profile, key);
        self.matched(key, object);
        self.has_source(ReleaseSourceKind::Profile, key);
    }

    /// Whom a binding of a Release concerns.
    pub fn release_binding(
        &mut self,
        key: &ObjectKey,
        object: &PipelineObject<ReleaseBindingSpec, PipelineStatus>,
    ) {
        self.found.status(StatusKind::ReleaseBinding, key);
        let target = object.spec.as_ref().map(|spec| &spec.target_ref);
        self.reached("ReleaseBinding", key, target);
        self.has_foreign_source(ReleaseSourceKind::ReleaseBinding, key);
        if object.spec.is_none() {
            self.has_source(ReleaseSourceKind::ReleaseBinding, key);
        }
    }

    /// Whom a binding of a registry concerns.
    pub fn registry_binding(
        &mut self,
        key: &ObjectKey,
        object: &PipelineObject<RegistryBindingSpec, PipelineStatus>,
    ) {
        self.found.status(StatusKind::RegistryBinding, key);
        let target = object.spec.as_ref().map(|spec| &spec.target_ref);
        self.reached("RegistryBinding", key, target);
        self.resting_on(NamedKind::RegistryBinding, key);
        if object.spec.is_none() {
            let is_it = |name: &NamespacedName| name.namespace == key.namespace && name.name == key.name;
            self.having(
                &key.namespace,
                |_| false,
                |version| {
                    version
                        .releases
                        .values()
                        .any(|r| r.registry_bindings.iter().any(is_it))
                },
            );
        }
    }

    /// Whom a Registry concerns.
    pub fn registry(&mut self, key: &ObjectKey) {
        let objects = self.objects;
        let targets = objects.targets.naming(NamedKind::Registry, key);
        let targets = targets.filter(|(target, _)| {
            let from = ("Target", target.namespace.as_str());
            self.rules.allow(&objects.grants, from, "Registry", key)
        });
        self.found.targets.extend(targets.map(|(key, _)| key.clone()));
        self.pinned(|namespace| {
            let from = ("Target", namespace);
            self.rules.allow(&objects.grants, from, "Registry", key)
        });
        for (binding, object) in objects.registry_bindings.naming(NamedKind::Registry, key) {
            self.registry_binding(binding, object);
        }
    }

    /// Whom a task concerns: its Target, or those that share it. A task that is not named after its owner was not made by the
    /// hub, and may have the name of any other's.
    pub fn task(&mut self, key: &ObjectKey, task: &PipelineTask) {
        let owner = task.names(key).pop();
        let name_of = |owner: &NamedObject| match owner.kind {
            NamedKind::Target => bootstrap_name(&owner.key),
            _ => release_name(&owner.key),
        };
        // The hub makes tasks beside their Target, so one that names another namespace's is a tenant's own.
        let is_its = |owner: &NamedObject| {
            let is_beside = owner.kind != NamedKind::Target || owner.key.namespace == key.namespace;
            is_beside && key.name.starts_with(&name_of(owner))
        };
        match owner.filter(is_its) {
            None => self.all(&key.namespace),
            Some(owner) if owner.kind == NamedKind::Target => self.found.own(owner.key),
            Some(owner) => {
                self.found.leftovers = Some(key.namespace.clone());
                let mut sharing = Concerned::default();
                ConcernSearch::new(self.objects, self.rules, &mut sharing).release(&owner.key);
                let own = sharing.targets.into_iter();
                let own = own.filter(|target| target.namespace == key.namespace);
                self.found.targets.extend(own);
                self.has_release(&key.namespace, &owner.key);
            }
        }
    }

    /// The Targets of these namespaces that go back to an earlier version, which may be at another registry than the spec names.
    pub(super) fn pinned(&mut self, is_meant: impl Fn(&str) -> bool) {
        let targets = self.objects.targets.iter();
        let pinned = targets.filter(|(key, target)| {
            let is_pinned = target
                .spec
                .as_ref()
                .is_some_and(|spec| spec.rollback_to.is_some());
            is_pinned && is_meant(&key.namespace)
        });
        self.found.targets.extend(pinned.map(|(key, _)| key.clone()));
    }

    /// The Targets of a namespace.
    pub(super) fn all(&mut self, namespace: &str) {
        let targets = within(&self.objects.targets, namespace).map(|(key, _)| key.clone());
        self.found.targets.extend(targets);
    }

    /// The Target that a binding names, if it may.
    fn reached(&mut self, from_kind: &str, key: &ObjectKey, target: Option<&TargetReference>) {
        let Some(target) = target else { return };
        let (target, is_allowed) = self.rules.target(&self.objects.grants, from_kind, key, target);
        if is_allowed {
            self.found.targets.insert(target);
        }
    }

    /// The Targets that a Profile matches and may reach.
    fn matched(&mut self, key: &ObjectKey, object: &PipelineObject<ProfileSpec, ProfileStatus>) {
        let Some(spec) = &object.spec else { return };
        let targets = matched(key, spec, self.objects, self.rules);
        self.found
            .targets
            .extend(targets.map(|target| target.key.clone()));
    }

    /// The Targets of other namespaces that have a Release of this source, whether it may reach them any more or not.
    fn has_foreign_source(&mut self, kind: ReleaseSourceKind, key: &ObjectKey) {
        let objects = self.objects;
        let named = match kind {
            ReleaseSourceKind::ReleaseBinding => NamedKind::ReleaseBinding,
            ReleaseSourceKind::Profile => NamedKind::Profile,
        };
        let targets = objects.targets.naming(named, key);
        self.found.targets.extend(targets.map(|(key, _)| key.clone()));
        self.resting_on(named, key);
    }

    /// The Targets with a version that rests on this object of another namespace.
    fn resting_on(&mut self, kind: NamedKind, key: &ObjectKey) {
        for (version, object) in self.objects.hydrated_targets.naming(kind, key) {
            self.version_rests(version, object);
        }
    }

    /// The Target of a version that rests on something that changed.
    pub(super) fn version_rests(&mut self, key: &ObjectKey, object: &StoredVersion) {
        if let Some(spec) = &object.spec {
            let target = ObjectKey::new(&key.namespace, &spec.target_name);
            self.found.targets.insert(target);
        }
    }

    /// The Targets that have a Release of this source.
    fn has_source(&mut self, kind: ReleaseSourceKind, key: &ObjectKey) {
        self.has_foreign_source(kind, key);
        let is_it = |source: &ReleaseSource| {
            source.kind == kind && source.namespace == key.namespace && source.name == key.name
        };
        self.having(
            &key.namespace,
            |status| status.releases.iter().any(|release| is_it(&release.source)),
            |version| {
                let is_profile = |profile: &HydratedProfile| {
                    kind == ReleaseSourceKind::Profile
                        && profile.namespace == key.namespace
                        && profile.name == key.name
                };
                version.releases.values().any(|release| is_it(&release.source))
                    || version.profiles.iter().any(is_profile)
            },
        );
    }

    /// The Targets of a namespace that have a Release.
    fn has_release(&mut self, namespace: &str, release: &ObjectKey) {
        let is_it = |namespace: &str, name: &str| release.namespace == namespace && release.name == name;
        self.having(
            namespace,
            |status| {
                status
                    .releases
                    .iter()
                    .any(|known| is_it(&known.namespace, &known.name))
            },
            |version| {
                version
                    .releases
                    .values()
                    .any(|known| is_it(&known.namespace, &known.name))
            },
        );
    }

    /// The Targets of a namespace whose status or newest version is so.
    fn having(
        &mut self,
        namespace: &str,
        is_in_status: impl Fn(&TargetStatus) -> bool,
        is_in: impl Fn(&HydratedTargetSpec) -> bool,
    ) {
        let objects = self.objects;
        let newest = |target: &ObjectKey| {
            let versions = objects.hydrated_targets.naming(NamedKind::Target, target);
            let specs = versions.filter_map(|(_, version)| version.spec.as_ref());
            specs.max_by_key(|spec| spec.version)
        };
        let targets = within(&objects.targets, namespace);
        let having =
            targets.filter(|(key, target)| is_in_status(&target.status) || newest(key).is_some_and(&is_in));
        self.found.targets.extend(having.map(|(key, _)| key.clone()));
    }
}
