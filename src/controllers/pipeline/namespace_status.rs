//! The statuses of a namespace's Releases, Profiles and bindings, and the shared tasks that no Target needs any more.

use std::collections::BTreeSet;

use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::apply::{CallError, HubClient};
use crate::plan::pipeline::decide::SeenObject;
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::status::{of_profile, of_registry_binding, of_release, of_release_binding};
use crate::plan::pipeline::task::base_name;

use super::status_write::NamespaceStatusWrite;
use super::work::{WorkOutcome, Written, delete_tasks};

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
