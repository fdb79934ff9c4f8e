//! Calls for tasks, for what the platform keeps in the rendering namespace, and for Secrets that tenants name.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::GetParams;
use kube::core::Request;
use kube::{Client, Resource as _};
use tokio::sync::{Mutex, Semaphore};

use crate::api::RenderTaskStatus;
use crate::api::labels::FINALIZER;
use crate::api::names::{HubId, TaskKind};
use crate::api::zeroized::ZeroizedSecret;
use crate::base::metrics::Metrics;
use crate::kubernetes::object::SlimObject;
use crate::plan::remote::ledger::LedgerBudget;
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::model::{Task, TaskId, TaskRevision};
use crate::plan::task::path::tasks_path;

use super::error::{CallError, done, found, in_place};
use super::objects::TaskObjectClient;
use super::response::{WriteResponse, delete, manager};
use super::secret::SecretBody;
use super::transport::{HubTransport, ResponseLimit};
use super::transport_stage::TransportStage;
use super::write_request::{finalizer_patch, json_patch, status_patch};

/// Whole tasks that are read at a time: each comes with all of its metadata, of which hardly anything is kept.
const READS: usize = 4;

/// The ledger as it was read or written last: what its entries take, not what they say.
#[derive(Debug)]
pub(super) struct CachedLedger {
    /// Version of the object; `None` where there is none.
    pub(super) version: Option<String>,
    pub(super) ledger_budget: LedgerBudget,
}

/// Calls to the hub's own cluster.
#[derive(Clone, Debug)]
pub struct HubClient {
    pub(super) objects: TaskObjectClient,
    /// The ledger, which one call at a time changes.
    pub(super) ledger: Arc<Mutex<Option<CachedLedger>>>,
    reads: Arc<Semaphore>,
}

impl HubClient {
    /// Calls of this hub, with Jobs and Secrets in `namespace`.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics, namespace: String, hub_id: HubId) -> Self {
        let transport = Arc::new(HubTransport(client));
        Self::over(TaskObjectClient::new(transport, Some(metrics), namespace, hub_id))
    }

    pub(super) fn over(objects: TaskObjectClient) -> Self {
        Self {
            objects,
            ledger: Arc::default(),
            reads: Arc::new(Semaphore::new(READS)),
        }
    }

    /// The identity of the hub.
    #[must_use]
    pub fn hub_id(&self) -> &HubId {
        self.objects.hub_id()
    }

    /// Calls for what the hub makes in the rendering namespace.
    #[must_use]
    pub fn objects(&self) -> &TaskObjectClient {
        &self.objects
    }

    /// Puts the hub's finalizer on a task; the new resource version, and what finalizers there are then.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task changed since it was read.
    pub async fn add_finalizer(&self, task: &Task) -> Result<(String, FinalizerSummary), CallError> {
        self.patch_finalizer(task, true).await
    }

    /// Takes the hub's finalizer off a task; what finalizers there are then. A task that is gone has none.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task changed since it was read.
    pub async fn remove_finalizer(&self, task: &Task) -> Result<FinalizerSummary, CallError> {
        let left = found(self.patch_finalizer(task, false).await)?;
        Ok(left.map(|(_, left)| left).unwrap_or_default())
    }

    async fn patch_finalizer(
        &self,
        task: &Task,
        is_wanted: bool,
    ) -> Result<(String, FinalizerSummary), CallError> {
        let (id, version) = (&task.id, task.resource_version.as_str());
        let seen = (id.uid.as_str(), version, task.finalizers);
        let Some(operations) = finalizer_patch(FINALIZER, seen, is_wanted) else {
            return Ok((version.to_owned(), task.finalizers));
        };
        let request = json_patch(&tasks(id)?, None, &id.name, &manager(), &operations);
        let answer: Result<WriteResponse, _> = self.objects.write("patch", resource(id.kind), request).await;
        let metadata = in_place(answer)?.metadata;
        Ok((metadata.resource_version, metadata.finalizers))
    }

    /// Reads a task; `None` when it does not exist or another one has its name.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_task(&self, id: &TaskId) -> Result<Option<Task>, CallError> {
        let request = tasks(id)?.get(&id.name, &GetParams::default());
        // Never closed.
        let _turn = self.reads.acquire().await;
        let read: Option<SlimObject> = found(self.objects.send("get", resource(id.kind), request).await)?;
        Ok(read
            .and_then(|o| o.into_task(id.kind, None))
            .filter(|t| t.id.uid == id.uid))
    }

    /// Writes a task's status over any other; returns the rest of the task after it.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task is another one of the same name.
    pub async fn write_status(
        &self,
        id: &TaskId,
        status: &RenderTaskStatus,
    ) -> Result<TaskRevision, CallError> {
        let request = status_patch(&tasks(id)?, &id.name, id.uid.as_str(), status);
        let resource = status_resource(id.kind);
        let answer: WriteResponse = self.objects.write("patch", resource, request).await?;
        Ok(TaskRevision {
            resource_version: answer.metadata.resource_version,
            generation: answer.metadata.generation,
            deleted_at: answer.metadata.deletion_timestamp.map(|time| time.0),
            finalizers: answer.metadata.finalizers,
        })
    }

    /// Deletes a task whose time to live is over.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub async fn delete_task(&self, id: &TaskId) -> Result<(), CallError> {
        let request = tasks(id)?.delete(&id.name, &delete(id.uid.as_str()));
        let resource = resource(id.kind);
        done(
            self.objects
                .exchange("delete", resource, request, ResponseLimit::Status)
                .await,
        )
    }

    /// Reads a platform credential of the rendering namespace; it is wiped when it is dropped, and the response it came in too.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_secret(&self, name: &str) -> Result<Option<ZeroizedSecret>, CallError> {
        let body = self.get_secret_body(self.objects.namespace(), name).await?;
        body.map(|body| body.whole().ok_or(CallError::Transport(TransportStage::Decode)))
            .transpose()
    }

    /// Reads a Secret of a namespace as it is; `None` when it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_secret_body(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<SecretBody>, CallError> {
        let path = Secret::url_path(&(), Some(namespace));
        let request = Request::new(path).get(name, &GetParams::default());
        let answer = self
            .objects
            .exchange("get", "secrets", request, ResponseLimit::Object)
            .await;
        found(answer.map(|body| SecretBody::new(body.into())))
    }

    /// Reads certificates of the platform's, a ConfigMap of the rendering namespace.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_config_map(&self, name: &str) -> Result<Option<ConfigMap>, CallError> {
        let request = self.objects.own::<ConfigMap>().get(name, &GetParams::default());
        found(self.objects.send("get", "configmaps", request).await)
    }
}

/// Requests on the tasks in the namespace of this one.
fn tasks(id: &TaskId) -> Result<Request, CallError> {
    tasks_path(id).map(Request::new).ok_or(CallError::Invalid)
}

const fn resource(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::RenderTask => "rendertasks",
        TaskKind::ClusterRenderTask => "clusterrendertasks",
    }
}

const fn status_resource(kind: TaskKind) -> &'static str {
    match kind {
        TaskKind::RenderTask => "rendertasks/status",
        TaskKind::ClusterRenderTask => "clusterrendertasks/status",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use bytes::Bytes;
    use futures::future::{BoxFuture, join_all};
    use serde_json::json;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::api::labels::PIPELINE_BOOTSTRAP;
    use crate::api::names::TaskUid;
    use crate::api::pipeline::{Target, TargetStatus};
    use crate::kubernetes::apply::write_request::METADATA_ONLY;
    use crate::kubernetes::apply::{ApiTransport, NewObject, StatusWrite};
    use crate::plan::pipeline::object::ObjectKey;

    /// Time that the API server takes for a task.
    const PAUSE: Duration = Duration::from_secs(1);

    /// An API server that knows no task: how many are asked for at the moment, and how many were at most.
    #[derive(Debug, Default)]
    struct Counting(AtomicUsize, AtomicUsize);

    impl ApiTransport for Counting {
        fn send(
            &self,
            _: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            Box::pin(async {
                let now = self.0.fetch_add(1, Ordering::Relaxed) + 1;
                self.1.fetch_max(now, Ordering::Relaxed);
                sleep(PAUSE).await;
                self.0.fetch_sub(1, Ordering::Relaxed);
                Err(CallError::NotFound)
            })
        }
    }

    fn hub_client(transport: Arc<dyn ApiTransport>) -> HubClient {
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        HubClient::over(TaskObjectClient::new(
            transport,
            None,
            "rendering".to_owned(),
            hub,
        ))
    }

    fn task_id(number: usize) -> TaskId {
        TaskId {
            kind: TaskKind::RenderTask,
            namespace: "team-a".to_owned(),
            name: format!("task-{number}"),
            uid: TaskUid::new("t"),
        }
    }

    /// An API server that answers each request with a version, if it is asked for the metadata alone.
    #[derive(Debug)]
    struct MetadataAlone;

    impl ApiTransport for MetadataAlone {
        fn send(
            &self,
            request: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            let accepts = request.headers().get(http::header::ACCEPT).cloned();
            let is_lean = accepts.is_some_and(|accepts| accepts == METADATA_ONLY);
            let answer = Bytes::from_static(br#"{"metadata": {"resourceVersion": "7", "uid": "u"}}"#);
            Box::pin(async move { is_lean.then_some(answer).ok_or(CallError::Invalid) })
        }
    }

    #[tokio::test]
    async fn of_what_a_write_made_only_the_metadata_is_asked_for() {
        let calls = hub_client(Arc::new(MetadataAlone));
        let status = RenderTaskStatus::default();
        let written = calls.write_status(&task_id(0), &status).await.unwrap();
        assert_eq!(written.resource_version, "7");
        let (key, status) = (ObjectKey::new("team-a", "edge"), TargetStatus::default());
        let write = StatusWrite {
            key: &key,
            uid: "u",
            resource_version: None,
            status: &status,
        };
        let written = calls
            .write_pipeline_status::<Target, _>("targets/status", write)
            .await;
        assert_eq!(written.unwrap(), Some(7));
        let new = NewObject {
            key: &key,
            label: PIPELINE_BOOTSTRAP,
            target: None,
            seal: None,
            spec: &json!({}),
        };
        let made = calls
            .create_pipeline_object::<Target, _>("targets", new)
            .await
            .unwrap();
        assert_eq!((made.uid.as_str(), made.version), ("u", 7));
    }

    #[tokio::test(start_paused = true)]
    async fn few_whole_tasks_are_read_at_a_time_and_each_gets_its_turn() {
        let transport = Arc::new(Counting::default());
        let calls = hub_client(transport.clone());
        let begin = Instant::now();
        let ids: Vec<_> = (0..3 * READS).map(task_id).collect();
        let read = join_all(ids.iter().map(|id| calls.get_task(id))).await;
        assert!(read.into_iter().all(|task| task.unwrap().is_none()));
        assert_eq!(
            (transport.1.load(Ordering::Relaxed), begin.elapsed()),
            (READS, 3 * PAUSE)
        );
    }
}
