//! Whom a grant concerns.

use super::search::ConcernSearch;
use crate::api::ReferenceGrantSpec;
use crate::plan::pipeline::object::within;
use crate::plan::pipeline::object_map::NamedKind;
use crate::plan::pipeline::status::StatusKind;

impl ConcernSearch<'_> {
    /// Whom a grant of a namespace concerns.
    pub fn grant(&mut self, namespace: &str, grant: &ReferenceGrantSpec) {
        let of = |kind: &'static str| grant.to.iter().any(move |to| to.kind == kind);
        if of("Target") {
            self.all(namespace);
        }
        for from in &grant.from {
            match from.kind.as_str() {
                "Release" if of("ComponentVersion") => self.releases_granted(&from.namespace, namespace),
                "Target" if of("Registry") => {
                    let targets = self.objects.targets.naming_within(NamedKind::Registry, namespace);
                    let granted = targets.filter(|(key, _)| key.namespace == from.namespace);
                    self.found.targets.extend(granted.map(|(key, _)| key.clone()));
                    self.pinned(|namespace| namespace == from.namespace);
                }
                kind if of("Target") => self.bindings_granted(kind, &from.namespace, namespace),
                _ => {}
            }
        }
    }

    fn releases_granted(&mut self, from: &str, namespace: &str) {
        let releases = self
            .objects
            .releases
            .naming_within(NamedKind::ComponentVersion, namespace);
        for (key, _) in releases.filter(|(key, _)| key.namespace == from) {
            self.release(key);
        }
        // What a Target is pinned to may rest on versions that its Releases do not name any more.
        let versions = &self.objects.hydrated_targets;
        for (key, version) in versions.naming_within(NamedKind::ComponentVersion, namespace) {
            self.version_rests(key, version);
        }
    }

    fn bindings_granted(&mut self, kind: &str, from: &str, namespace: &str) {
        let objects = self.objects;
        match kind {
            "ReleaseBinding" => {
                let bindings = objects
                    .release_bindings
                    .naming_within(NamedKind::Target, namespace);
                for (key, _) in bindings.filter(|(key, _)| key.namespace == from) {
                    self.found.status(StatusKind::ReleaseBinding, key);
                }
            }
            "RegistryBinding" => {
                let bindings = objects
                    .registry_bindings
                    .naming_within(NamedKind::Target, namespace);
                for (key, _) in bindings.filter(|(key, _)| key.namespace == from) {
                    self.found.status(StatusKind::RegistryBinding, key);
                }
            }
            "Profile" => {
                for (key, _) in within(&objects.profiles, from) {
                    self.found.status(StatusKind::Profile, key);
                }
            }
            _ => {}
        }
    }
}
