//! The statuses of a namespace's Releases, Profiles and bindings, and the shared tasks that no Target needs any more.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::api::pipeline::{
    PipelineStatus, Profile, ProfileStatus, RegistryBinding, Release, ReleaseBinding, ReleaseStatus,
};
use crate::kubernetes::apply::{CallError, HubClient, StatusWrite};
use crate::plan::pipeline::decide::SeenObject;
use crate::plan::pipeline::object::{ObjectKey, PipelineObjects, within};
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::status::{of_profile, of_registry_binding, of_release, of_release_binding};
use crate::plan::pipeline::task::base_name;

use super::work::{WorkOutcome, Written, delete_tasks};

/// A status of one of the kinds, for the object of a key and a UID.
#[derive(Clone, Debug)]
pub(super) enum NamespaceStatusWrite {
    Release(SeenObject, ReleaseStatus),
    Profile(SeenObject, ProfileStatus),
    ReleaseBinding(SeenObject, PipelineStatus),
    RegistryBinding(SeenObject, PipelineStatus),
}

impl NamespaceStatusWrite {
    async fn send(&self, client: &HubClient) -> Result<Option<u64>, CallError> {
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
        }
    }

    /// Puts the status into the store.
    pub fn take_in(self, objects: &mut PipelineObjects, version: Option<u64>) {
        macro_rules! put {
            ($field:ident, $seen:ident, $status:ident) => {
                if let Some(object) = objects
                    .$field
                    .get_mut(&$seen.0)
                    .filter(|known| known.uid == $seen.1)
                {
                    object.status = $status;
                    object.version = version.unwrap_or(object.version);
                }
            };
        }
        match self {
            Self::Release(seen, status) => put!(releases, seen, status),
            Self::Profile(seen, status) => put!(profiles, seen, status),
            Self::ReleaseBinding(seen, status) => put!(release_bindings, seen, status),
            Self::RegistryBinding(seen, status) => put!(registry_bindings, seen, status),
        }
    }
}

/// Work for one namespace.
#[derive(Default)]
pub(super) struct NamespaceWork {
    statuses: Vec<NamespaceStatusWrite>,
    old_tasks: Vec<SeenObject>,
}

impl NamespaceWork {
    /// The statuses that differ from what is there, and the tasks that are in none of `needed`; `None` where nothing is to be
    /// done. Without `needed`, not every Target was decided about, and every task stays.
    pub fn of(
        namespace: &str,
        objects: &PipelineObjects,
        rules: &ReferenceRules,
        needed: Option<&BTreeSet<&str>>,
        now: Timestamp,
    ) -> Option<Self> {
        let mut work = Self::default();
        macro_rules! changed {
            ($field:ident, $of:ident, $variant:ident) => {
                for (key, object) in within(&objects.$field, namespace) {
                    if let Some(status) = $of(key, object, objects, rules, now)
                        && status != object.status
                    {
                        let seen = (key.clone(), object.uid.clone());
                        work.statuses
                            .push(NamespaceStatusWrite::$variant(seen, status));
                    }
                }
            };
        }
        changed!(releases, of_release, Release);
        changed!(profiles, of_profile, Profile);
        changed!(release_bindings, of_release_binding, ReleaseBinding);
        changed!(registry_bindings, of_registry_binding, RegistryBinding);
        if let Some(needed) = needed {
            work.old_tasks = unneeded(namespace, objects, needed);
        }
        (!work.statuses.is_empty() || !work.old_tasks.is_empty()).then_some(work)
    }

    /// Does it.
    pub async fn run(self, client: HubClient) -> WorkOutcome {
        let mut written = Vec::new();
        let result = self.write(&client, &mut written).await;
        WorkOutcome { written, result }
    }

    async fn write(&self, client: &HubClient, written: &mut Vec<Written>) -> Result<(), CallError> {
        for status in &self.statuses {
            let version = status.send(client).await?;
            written.push(Written::NamespaceStatus(status.clone(), version));
        }
        delete_tasks(client, &self.old_tasks, written).await
    }
}

/// Shared tasks that no Target needs.
fn unneeded(namespace: &str, objects: &PipelineObjects, needed: &BTreeSet<&str>) -> Vec<SeenObject> {
    let tasks = within(&objects.tasks, namespace).filter(|(key, task)| {
        let is_shared = task.owner.as_ref().is_some_and(|owner| owner.kind == "Release");
        is_shared && !task.deleting && !needed.contains(base_name(&key.name))
    });
    tasks
        .map(|(key, task): (&ObjectKey, _)| (key.clone(), task.uid.clone()))
        .collect()
}
