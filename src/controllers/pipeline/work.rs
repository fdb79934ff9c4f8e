//! Carries out decisions, one worker a Target, and says what was written.

use std::sync::Arc;

use crate::api::RenderTask;
use crate::api::labels::{PIPELINE_BOOTSTRAP, PIPELINE_RELEASE};
use crate::api::pipeline::{HydratedTarget, HydratedTargetSpec, HydratedTargetStatus, Target, TargetStatus};
use crate::kubernetes::apply::{CallError, HubClient, NewObject, StatusWrite};
use crate::plan::pipeline::content_hash::content_hash;
use crate::plan::pipeline::decide::{NewTask, SeenObject, TargetDecision};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::task::status_seal::SealKey;

use super::status_write::NamespaceStatusWrite;

/// What a worker has.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum PipelineKey {
    /// A Target.
    Target(ObjectKey),
    /// The statuses of a namespace's other objects, and its shared tasks.
    Namespace(String),
}

/// What was written, so that the store has it before the watch shows it.
#[derive(Debug)]
pub(super) enum Written {
    Task(ObjectKey, String, Arc<NewTask>),
    Version(ObjectKey, String, Box<HydratedTargetSpec>),
    TargetStatus(ObjectKey, Box<TargetStatus>, Option<u64>),
    VersionStatus(ObjectKey, Box<HydratedTargetStatus>, Option<u64>),
    TaskGone(ObjectKey),
    VersionGone(ObjectKey),
    NamespaceStatus(NamespaceStatusWrite, Option<u64>),
}

/// What a worker did.
pub(super) struct WorkOutcome {
    pub written: Vec<Written>,
    pub result: Result<(), CallError>,
}

/// Work for one Target.
pub(super) struct TargetWork {
    pub key: ObjectKey,
    pub uid: String,
    pub seal_key: Arc<SealKey>,
    pub decision: TargetDecision,
    /// Whether the status differs from the one that is there.
    pub has_new_status: bool,
}

impl TargetWork {
    /// Whether there is anything to do.
    pub fn has_work(&self) -> bool {
        let decision = &self.decision;
        self.has_new_status
            || decision.new_version.is_some()
            || decision.version_status.is_some()
            || !decision.new_tasks.is_empty()
            || !decision.old_tasks.is_empty()
            || !decision.old_versions.is_empty()
    }

    /// The tasks to be made that other Targets may need too.
    pub fn shared_tasks(&self) -> Vec<ObjectKey> {
        let shared = self.decision.new_tasks.iter().filter(|task| !task.is_targets_own);
        shared
            .map(|task| ObjectKey::new(&self.key.namespace, &task.name))
            .collect()
    }

    /// Does what was decided.
    pub async fn run(self, client: HubClient) -> WorkOutcome {
        let mut written = Vec::new();
        let result = self.write(&client, &mut written).await;
        WorkOutcome { written, result }
    }

    async fn write(&self, client: &HubClient, written: &mut Vec<Written>) -> Result<(), CallError> {
        if let Some((name, spec)) = &self.decision.new_version {
            self.create_version(client, name, spec, written).await?;
        }
        for task in &self.decision.new_tasks {
            self.create_task(client, task, written).await?;
        }
        if let Some(((key, uid), status)) = &self.decision.version_status {
            let write = StatusWrite { key, uid, status };
            let version = client
                .write_pipeline_status::<HydratedTarget, _>("hydratedtargets/status", write)
                .await?;
            written.push(Written::VersionStatus(
                key.clone(),
                Box::new(status.clone()),
                version,
            ));
        }
        if self.has_new_status {
            let write = StatusWrite {
                key: &self.key,
                uid: &self.uid,
                status: &self.decision.status,
            };
            let version = client
                .write_pipeline_status::<Target, _>("targets/status", write)
                .await?;
            let status = Box::new(self.decision.status.clone());
            written.push(Written::TargetStatus(self.key.clone(), status, version));
        }
        delete_tasks(client, &self.decision.old_tasks, written).await?;
        for (key, uid) in &self.decision.old_versions {
            client
                .delete_pipeline_object::<HydratedTarget>("hydratedtargets", key, uid)
                .await?;
            written.push(Written::VersionGone(key.clone()));
        }
        Ok(())
    }

    async fn create_version(
        &self,
        client: &HubClient,
        name: &str,
        spec: &HydratedTargetSpec,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let key = ObjectKey::new(&self.key.namespace, name);
        let new = NewObject {
            key: &key,
            label: PIPELINE_BOOTSTRAP,
            target: Some((&self.key.name, &self.uid)),
            seal: None,
            spec,
        };
        let uid = client
            .create_pipeline_object::<HydratedTarget, _>("hydratedtargets", new)
            .await?;
        tracing::info!(
            namespace = key.namespace,
            target = self.key.name,
            version = spec.version,
            changes = spec.changes,
            "a version of a Target was made"
        );
        written.push(Written::Version(key, uid, Box::new(spec.clone())));
        Ok(())
    }

    /// The seal of a task that refers to another namespace.
    fn seal(&self, task: &NewTask) -> Option<String> {
        task.spec.registry_ref.as_ref()?.namespace.as_ref()?;
        let hash = content_hash(&task.spec);
        Some(self.seal_key.target_seal(&self.key.namespace, &task.name, &hash))
    }

    async fn create_task(
        &self,
        client: &HubClient,
        task: &NewTask,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let key = ObjectKey::new(&self.key.namespace, &task.name);
        let label = if task.is_targets_own {
            PIPELINE_BOOTSTRAP
        } else {
            PIPELINE_RELEASE
        };
        let new = NewObject {
            key: &key,
            label,
            target: task
                .is_targets_own
                .then_some((self.key.name.as_str(), self.uid.as_str())),
            seal: self.seal(task),
            spec: &task.spec,
        };
        let uid = client
            .create_pipeline_object::<RenderTask, _>("rendertasks", new)
            .await?;
        written.push(Written::Task(key, uid, Arc::new(task.clone())));
        Ok(())
    }
}

/// Deletes tasks, each if it is still the one that was seen.
pub(super) async fn delete_tasks(
    client: &HubClient,
    tasks: &[SeenObject],
    written: &mut Vec<Written>,
) -> Result<(), CallError> {
    for (key, uid) in tasks {
        client
            .delete_pipeline_object::<RenderTask>("rendertasks", key, uid)
            .await?;
        written.push(Written::TaskGone(key.clone()));
    }
    Ok(())
}
