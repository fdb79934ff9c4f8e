//! Objects of another client that look like the hub's.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::ByteString;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::jiff::Timestamp;
use kube::ResourceExt;
use kube::api::{Api, ObjectMeta, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobScheduled, Ready, Stalled};
use renderhub::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, SPEC_HASH, TASK_UID};
use renderhub::api::names::TaskUid;
use renderhub::kubernetes::seal_key;
use renderhub::plan::task::status_seal::{KEY_BYTES, SealKey};
use serde_json::{Value, json};

use super::{Stage, has};

/// What a forger writes on an object.
#[derive(Clone, Default)]
pub struct Marks {
    /// Labels, all of them.
    pub labels: BTreeMap<String, String>,
    /// Annotations, all of them.
    pub annotations: BTreeMap<String, String>,
}

impl Stage {
    /// The id of this stage's hub.
    pub async fn hub_id(&self) -> Result<String> {
        let all: Api<Namespace> = Api::all(self.admin.clone());
        let uid = all.get("kube-system").await?.uid().unwrap_or_default();
        Ok(format!("{}-{}", self.scope.shard, &uid[..8]))
    }

    /// The hub's own marks for the task, but for the hash of the spec.
    pub fn marks(&self, task: &RenderTask, hub_id: &str, task_uid: &str) -> Marks {
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        let labels = BTreeMap::from([
            pair(MANAGED_BY, MANAGED_BY_VALUE),
            pair(HUB_ID, hub_id),
            pair(TASK_UID, task_uid),
        ]);
        let annotations = BTreeMap::from([
            pair("renderhub.dev/task-kind", "RenderTask"),
            pair("renderhub.dev/task-namespace", &self.scope.tenant),
            pair("renderhub.dev/task-name", &task.name_any()),
            pair(SPEC_HASH, &"0".repeat(64)),
        ]);
        Marks { labels, annotations }
    }

    /// Makes a Job in the rendering namespace with these marks.
    pub async fn forge_job(&self, name: &str, marks: &Marks) -> Result<Job> {
        let mut job: Job = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {"template": {"spec": {
                "restartPolicy": "Never", "containers": [{"name": "renderer", "image": "foreign.test/x"}],
            }}},
        }))?;
        mark(&mut job.metadata, marks);
        Ok(self.jobs().create(&PostParams::default(), &job).await?)
    }

    /// Makes a Secret in the rendering namespace with these marks.
    pub async fn forge_secret(&self, name: &str, marks: &Marks) -> Result<Secret> {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name}, "stringData": {"url": "oci://foreign.test/x:1"},
        }))?;
        mark(&mut secret.metadata, marks);
        Ok(self.secrets().create(&PostParams::default(), &secret).await?)
    }

    /// Makes the key that a hub makes at its first start, so that this stage has had one before.
    pub(crate) async fn make_seal_key(&self) -> Result<()> {
        let key = ByteString(vec![7; KEY_BYTES]);
        let secret = Secret {
            metadata: ObjectMeta {
                name: Some(seal_key::NAME.to_owned()),
                ..ObjectMeta::default()
            },
            data: Some(BTreeMap::from([("key".to_owned(), key)])),
            immutable: Some(true),
            ..Secret::default()
        };
        self.secrets().create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// The status as the stage's hub itself would have written it on the task.
    pub async fn sealed(&self, task: &RenderTask, status: Value) -> Result<Value> {
        let secret = self.secrets().get(seal_key::NAME).await?;
        let bytes = secret
            .data
            .and_then(|mut data| data.remove("key"))
            .context("a key")?;
        let key: [u8; KEY_BYTES] = bytes.0.as_slice().try_into()?;
        let uid = TaskUid::new(&task.uid().unwrap_or_default());
        let (status, _) = SealKey::new(key, Timestamp::now()).sealed(&uid, serde_json::from_value(status)?);
        Ok(serde_json::to_value(status)?)
    }

    /// Asserts that the foreign object is as it was.
    pub async fn job_is_untouched(&self, before: &Job) -> Result<()> {
        let now = self.jobs().get(&before.name_any()).await?;
        assert_eq!(version(&now.metadata), version(&before.metadata));
        assert!(now.metadata.deletion_timestamp.is_none());
        Ok(())
    }

    /// Asserts that the foreign Secret is as it was.
    pub async fn secret_is_untouched(&self, before: &Secret) -> Result<()> {
        let now = self.secrets().get(&before.name_any()).await?;
        assert_eq!(version(&now.metadata), version(&before.metadata));
        Ok(())
    }

    /// The task says that its name is taken, and never that it succeeded.
    pub async fn conflicts(&self, task: &RenderTask) -> Result<()> {
        let status = self
            .condition(task, JobScheduled, "False", "NameConflict")
            .await?;
        assert!(
            has(&status, Ready, "False", "NameConflict") && has(&status, Stalled, "True", "NameConflict")
        );
        assert!(status.job_ref.is_none());
        Ok(())
    }
}

fn mark(meta: &mut ObjectMeta, marks: &Marks) {
    meta.labels = Some(marks.labels.clone());
    meta.annotations = Some(marks.annotations.clone());
}

fn version(meta: &ObjectMeta) -> (Option<String>, Option<String>) {
    (meta.uid.clone(), meta.resource_version.clone())
}
