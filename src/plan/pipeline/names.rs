//! What each kind of the pipeline names.

use serde::Serialize;
use serde_json::Value;

use crate::api::RegistrySpec;
use crate::api::pipeline::{
    ComponentSpec, ComponentVersionSpec, HydratedTargetSpec, HydratedTargetStatus, OmitsKnownNames as _,
    PipelineStatus, ProfileSpec, ProfileStatus, RegistryBindingSpec, ReleaseBindingSpec, ReleaseSource,
    ReleaseSourceKind, ReleaseSpec, ReleaseStatus, RenderRegistryKind, TargetReference, TargetSpec,
    TargetStatus,
};
use crate::plan::task::model::json_bytes;

use super::kept_bytes::{INDEX_BYTES, STRING_BYTES, object_bytes};
use super::object::{ObjectKey, PipelineObject};
use super::object_map::{NamedKind, NamedObject, NamesOthers};
use super::selector::required_labels;
use super::shared_parts::SharedParts;
use super::task_state::PipelineTask;

/// The spec of a kind of the pipeline whose status is a `T`.
pub trait PipelineSpec<T>: Sized + Serialize {
    /// Everything that an object of this key names in its spec.
    fn named(&self, _key: &ObjectKey) -> Vec<NamedObject> {
        Vec::new()
    }

    /// The same in its status.
    fn named_by_status(_status: &T, _key: &ObjectKey) -> Vec<NamedObject> {
        Vec::new()
    }

    /// Fills in what is left out of the spec of an object of this namespace, and lets it have what it has in common with others from
    /// among what is known.
    fn complete(&mut self, _own: &str, _parts: &mut SharedParts) {}

    /// The same for a status.
    fn complete_status(_status: &mut T, _own: &str, _parts: &mut SharedParts) {}

    /// Its values that have no schema.
    fn free_form(&self) -> impl Iterator<Item = &Value> {
        std::iter::empty()
    }

    /// Bytes that each string of a spec takes besides its text.
    const STRING_BYTES: usize = STRING_BYTES;

    /// Bytes of the indexes that find an object by what its spec selects.
    fn index_bytes(&self) -> usize {
        0
    }

    /// Bytes of a status that grows with what it tells of.
    fn status_bytes(_status: &T) -> usize {
        0
    }
}

impl<S: PipelineSpec<T>, T> NamesOthers for PipelineObject<S, T> {
    fn names(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let by_spec = self.spec.as_ref().map(|spec| spec.named(key));
        let mut all = by_spec.unwrap_or_default();
        all.extend(S::named_by_status(&self.status, key));
        all
    }

    fn kept_bytes(&self) -> usize {
        let free = self.spec.iter().flat_map(S::free_form);
        let indexes = self.spec.as_ref().map_or(0, S::index_bytes);
        object_bytes(self, S::STRING_BYTES, free) + indexes + S::status_bytes(&self.status)
    }
}

impl PipelineSpec<TargetStatus> for TargetSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let named = &self.render_registry_ref;
        if named.kind != RenderRegistryKind::Registry {
            return Vec::new();
        }
        let namespace = named.namespace.as_ref().unwrap_or(&key.namespace);
        vec![NamedObject::new(NamedKind::Registry, namespace, &named.name)]
    }

    fn named_by_status(status: &TargetStatus, key: &ObjectKey) -> Vec<NamedObject> {
        let sources = status.releases.iter().map(|release| &release.source);
        foreign(sources, key).collect()
    }

    fn complete_status(status: &mut TargetStatus, own: &str, parts: &mut SharedParts) {
        status.fill_in(own);
        status
            .releases
            .iter_mut()
            .for_each(|release| parts.listed.share(release));
    }

    fn free_form(&self) -> impl Iterator<Item = &Value> {
        self.userdata.iter()
    }

    fn status_bytes(status: &TargetStatus) -> usize {
        json_bytes(status)
    }
}

impl PipelineSpec<ReleaseStatus> for ReleaseSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let named = &self.component_version_ref;
        let namespace = named.namespace.as_ref().unwrap_or(&key.namespace);
        vec![NamedObject::new(
            NamedKind::ComponentVersion,
            namespace,
            &named.name,
        )]
    }

    fn free_form(&self) -> impl Iterator<Item = &Value> {
        self.values.iter()
    }
}

impl PipelineSpec<ProfileStatus> for ProfileSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let namespace = &key.namespace;
        let mut labels = required_labels(&self.target_selector);
        if labels.is_empty() {
            labels.push(String::new());
        }
        let labels = labels.iter();
        let mut names: Vec<NamedObject> = labels
            .map(|label| NamedObject::new(NamedKind::Label, namespace, label))
            .collect();
        names.push(NamedObject::new(
            NamedKind::Release,
            namespace,
            &self.release_ref.name,
        ));
        names
    }

    fn index_bytes(&self) -> usize {
        required_labels(&self.target_selector).len() * INDEX_BYTES
    }

    fn free_form(&self) -> impl Iterator<Item = &Value> {
        self.userdata.iter()
    }

    fn status_bytes(status: &ProfileStatus) -> usize {
        json_bytes(status)
    }
}

impl PipelineSpec<PipelineStatus> for ReleaseBindingSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let release = NamedObject::new(NamedKind::Release, &key.namespace, &self.release_ref.name);
        vec![target(&self.target_ref, key), release]
    }
}

impl PipelineSpec<PipelineStatus> for RegistryBindingSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let registry = NamedObject::new(NamedKind::Registry, &key.namespace, &self.registry_ref.name);
        vec![target(&self.target_ref, key), registry]
    }
}

impl PipelineSpec<HydratedTargetStatus> for HydratedTargetSpec {
    /// The hub makes them, and the Releases of one are those of others.
    const STRING_BYTES: usize = 0;

    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let mut names = vec![NamedObject::new(
            NamedKind::Target,
            &key.namespace,
            &self.target_name,
        )];
        names.extend(foreign(
            self.releases.values().map(|release| &release.source),
            key,
        ));
        let profiles = self.profiles.iter();
        let profiles = profiles.filter(|profile| profile.namespace != key.namespace);
        names.extend(profiles.map(|p| NamedObject::new(NamedKind::Profile, &p.namespace, &p.name)));
        for release in self.releases.values() {
            let bindings = release.registry_bindings.iter();
            let bindings = bindings.filter(|binding| binding.namespace != key.namespace);
            names.extend(
                bindings.map(|b| NamedObject::new(NamedKind::RegistryBinding, &b.namespace, &b.name)),
            );
            let version = &release.component_version_ref;
            if version.namespace != release.namespace {
                let kind = NamedKind::ComponentVersion;
                names.push(NamedObject::new(kind, &version.namespace, &version.name));
            }
        }
        names
    }

    fn complete(&mut self, own: &str, parts: &mut SharedParts) {
        self.fill_in(own);
        self.releases
            .values_mut()
            .for_each(|release| parts.hydrated.share(release));
    }

    fn free_form(&self) -> impl Iterator<Item = &Value> {
        let profiles = self.profiles.iter().map(|profile| &profile.userdata);
        profiles.chain(&self.userdata)
    }
}

impl PipelineSpec<PipelineStatus> for ComponentVersionSpec {
    fn named(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let name = &self.component_ref.name;
        vec![NamedObject::new(NamedKind::Component, &key.namespace, name)]
    }
}

impl PipelineSpec<PipelineStatus> for ComponentSpec {}

impl PipelineSpec<()> for RegistrySpec {}

impl NamesOthers for PipelineTask {
    fn names(&self, key: &ObjectKey) -> Vec<NamedObject> {
        let Some(owner) = &self.owner else {
            return Vec::new();
        };
        let kind = match owner.kind.as_str() {
            "Target" => NamedKind::Target,
            "Release" => NamedKind::Release,
            _ => return Vec::new(),
        };
        let namespace = owner.namespace.as_ref().unwrap_or(&key.namespace);
        vec![NamedObject::new(kind, namespace, &owner.name)]
    }
}

fn target(named: &TargetReference, key: &ObjectKey) -> NamedObject {
    let namespace = named.namespace.as_ref().unwrap_or(&key.namespace);
    NamedObject::new(NamedKind::Target, namespace, &named.name)
}

/// Sources of other namespaces: they may put a Release on a Target that they do not reach any more.
fn foreign<'s>(
    sources: impl Iterator<Item = &'s ReleaseSource>,
    key: &ObjectKey,
) -> impl Iterator<Item = NamedObject> {
    let foreign = sources.filter(|source| source.namespace != key.namespace);
    foreign.map(|source| {
        let kind = match source.kind {
            ReleaseSourceKind::ReleaseBinding => NamedKind::ReleaseBinding,
            ReleaseSourceKind::Profile => NamedKind::Profile,
        };
        NamedObject::new(kind, &source.namespace, &source.name)
    })
}
