//! Statuses of Releases, Profiles and bindings on their way to the API server and into the store.

use crate::api::pipeline::{
    Component, ComponentVersion, PipelineStatus, Profile, ProfileStatus, RegistryBinding, Release,
    ReleaseBinding, ReleaseStatus,
};
use crate::kubernetes::apply::{CallError, HubClient, StatusWrite};
use crate::plan::pipeline::decide::SeenObject;
use crate::plan::pipeline::objects::PipelineObjects;

/// A status of one of the kinds, for the object of a key and a UID.
#[derive(Clone, Debug)]
pub(super) enum NamespaceStatusWrite {
    Release(SeenObject, ReleaseStatus),
    Profile(SeenObject, ProfileStatus),
    ReleaseBinding(SeenObject, PipelineStatus),
    RegistryBinding(SeenObject, PipelineStatus),
    Component(SeenObject, PipelineStatus),
    ComponentVersion(SeenObject, PipelineStatus),
}

impl NamespaceStatusWrite {
    pub async fn send(&self, client: &HubClient) -> Result<Option<u64>, CallError> {
        macro_rules! write {
            ($kind:ident, $resource:literal, $seen:ident, $status:ident) => {{
                let write = StatusWrite {
                    key: &$seen.0,
                    uid: &$seen.1,
                    status: $status,
                };
                client
                    .write_pipeline_status::<$kind, _>($resource, write)
                    .await
            }};
        }
        match self {
            Self::Release(seen, status) => write!(Release, "releases/status", seen, status),
            Self::Profile(seen, status) => write!(Profile, "profiles/status", seen, status),
            Self::ReleaseBinding(seen, status) => {
                write!(ReleaseBinding, "releasebindings/status", seen, status)
            }
            Self::RegistryBinding(seen, status) => {
                write!(RegistryBinding, "registrybindings/status", seen, status)
            }
            Self::Component(seen, status) => write!(Component, "components/status", seen, status),
            Self::ComponentVersion(seen, status) => {
                write!(ComponentVersion, "componentversions/status", seen, status)
            }
        }
    }

    /// Puts the status into the store.
    pub fn take_in(self, objects: &mut PipelineObjects, version: Option<u64>) {
        macro_rules! put {
            ($field:ident, $seen:ident, $status:ident) => {
                if let Some(mut object) = objects
                    .$field
                    .get_mut(&$seen.0)
                    .filter(|known| known.uid == $seen.1)
                {
                    object.take_in(version, |object| object.status = $status);
                }
            };
        }
        match self {
            Self::Release(seen, status) => put!(releases, seen, status),
            Self::Profile(seen, status) => put!(profiles, seen, status),
            Self::ReleaseBinding(seen, status) => put!(release_bindings, seen, status),
            Self::RegistryBinding(seen, status) => put!(registry_bindings, seen, status),
            Self::Component(seen, status) => put!(components, seen, status),
            Self::ComponentVersion(seen, status) => put!(component_versions, seen, status),
        }
    }
}
