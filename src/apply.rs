//! The hub's calls to an API server: each with a deadline, counted, and with only what is needed of the answer decoded.
//!
//! Deletes carry a UID precondition; `404` counts as done. Nothing here decides anything.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request as HttpRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, ListParams, ObjectMeta, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ObjectList, PartialObjectMeta, Request};
use kube::{Client, Resource};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::RenderTaskStatus;
use crate::api::labels::{FIELD_MANAGER, FINALIZER, GROUP, TASK_UID, VERSION, own_objects};
use crate::metrics::Metrics;
use crate::names::{HubId, TaskKind, TaskUid};
use crate::object::SlimObject;
use crate::plan::task::{Standing, Task, TaskId};

mod error;
mod platform;
mod secret;
mod wire;

pub use error::CallError;
use error::{done, found, gone};
pub use platform::StatusWrite;
pub use secret::{SecretBody, SecretData};
use wire::Hub;
pub use wire::Wire;

/// Longest a call to the hub's own API server may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// Objects in a page of a list.
const PAGE: u32 = 500;

/// What is looked at of the answer to a write.
#[derive(Clone, Debug, Deserialize)]
struct Answer {
    metadata: AnswerMeta,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnswerMeta {
    #[serde(default)]
    uid: String,
    #[serde(default)]
    resource_version: String,
    generation: Option<i64>,
    deletion_timestamp: Option<Time>,
    #[serde(default)]
    finalizers: Vec<String>,
}

/// Calls to the hub's own cluster.
#[derive(Clone)]
pub struct Calls {
    wire: Arc<dyn Wire>,
    metrics: Metrics,
    /// Namespace of Jobs and Secrets.
    namespace: String,
    hub_id: HubId,
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Calls {
    /// Calls of this hub, with Jobs and Secrets in `namespace`.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics, namespace: String, hub_id: HubId) -> Self {
        Self {
            wire: Arc::new(Hub(client)),
            metrics,
            namespace,
            hub_id,
        }
    }

    /// Who the hub is.
    #[must_use]
    pub fn hub_id(&self) -> &HubId {
        &self.hub_id
    }

    /// Puts the hub's finalizer on a task; the new resource version.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task changed since it was read.
    pub async fn add_finalizer(&self, task: &Task) -> Result<String, CallError> {
        let finalizers = task
            .finalizers
            .iter()
            .cloned()
            .chain([FINALIZER.to_owned()])
            .collect();
        self.set_finalizers(task, finalizers).await
    }

    /// Takes the hub's finalizer off a task; a task that is gone counts as done.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task changed since it was read.
    pub async fn remove_finalizer(&self, task: &Task) -> Result<(), CallError> {
        let finalizers = task
            .finalizers
            .iter()
            .filter(|f| *f != FINALIZER)
            .cloned()
            .collect();
        done(self.set_finalizers(task, finalizers).await)
    }

    async fn set_finalizers(&self, task: &Task, finalizers: Vec<String>) -> Result<String, CallError> {
        let body = json!({"metadata": {
            "uid": task.id.uid.as_str(),
            "resourceVersion": task.resource_version,
            "finalizers": finalizers,
        }});
        let request = tasks(&task.id).patch(&task.id.name, &manager(), &Patch::Merge(&body));
        let answer: Answer = self.send("patch", resource(task.id.kind), request).await?;
        Ok(answer.metadata.resource_version)
    }

    /// Reads a task; `None` when it does not exist or another one has its name.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn get_task(&self, id: &TaskId) -> Result<Option<Task>, CallError> {
        let request = tasks(id).get(&id.name, &kube::api::GetParams::default());
        let read: Option<SlimObject> = found(self.send("get", resource(id.kind), request).await)?;
        Ok(read
            .and_then(|o| o.into_task(id.kind))
            .filter(|t| t.id.uid == id.uid))
    }

    /// Writes a task's status in the place of whatever is there; what became of the rest of the task.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the task is another one of the same name.
    pub async fn write_status(&self, id: &TaskId, status: &RenderTaskStatus) -> Result<Standing, CallError> {
        // Unlike a merge, it leaves nothing of what others wrote, and needs no read before.
        let body = json!([
            {"op": "replace", "path": "/metadata/uid", "value": id.uid.as_str()},
            {"op": "add", "path": "/status", "value": status},
        ]);
        let patch = Patch::Json::<()>(serde_json::from_value(body).map_err(|_| CallError::Transport)?);
        let request = tasks(id).patch_subresource("status", &id.name, &manager(), &patch);
        let answer: Answer = self.send("patch", status_resource(id.kind), request).await?;
        Ok(Standing {
            resource_version: answer.metadata.resource_version,
            generation: answer.metadata.generation,
            deleting: answer.metadata.deletion_timestamp.is_some(),
            finalizers: answer.metadata.finalizers,
        })
    }

    /// Deletes a task whose time to live is over.
    ///
    /// # Errors
    /// Whatever keeps it from being deleted.
    pub async fn delete_task(&self, id: &TaskId) -> Result<(), CallError> {
        let request = tasks(id).delete(&id.name, &delete(id.uid.as_str()));
        done(self.send::<Value>("delete", resource(id.kind), request).await)
    }

    /// Creates a config Secret; its UID.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, whoever made it.
    pub async fn create_secret(&self, secret: &Secret) -> Result<String, CallError> {
        self.create("secrets", secret).await
    }

    /// Creates a Job; its UID.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, whoever made it.
    pub async fn create_job(&self, job: &Job) -> Result<String, CallError> {
        self.create("jobs", job).await
    }

    async fn create<K>(&self, resource: &'static str, object: &K) -> Result<String, CallError>
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let body = serde_json::to_vec(object).map_err(|_| CallError::Transport)?;
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let answer: Answer = self
            .send("create", resource, self.own::<K>().create(&parameters, body))
            .await?;
        Ok(answer.metadata.uid)
    }

    /// Reads a Job; `None` when it does not exist.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn get_job(&self, name: &str) -> Result<Option<Job>, CallError> {
        found(
            self.send(
                "get",
                "jobs",
                self.own::<Job>().get(name, &kube::api::GetParams::default()),
            )
            .await,
        )
    }

    /// Reads a config Secret's metadata; `None` when it does not exist.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn get_secret_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, CallError> {
        let request = self
            .own::<Secret>()
            .get_metadata(name, &kube::api::GetParams::default());
        let read: Option<PartialObjectMeta<Secret>> = found(self.send("get", "secrets", request).await)?;
        Ok(read.map(|o| o.metadata))
    }

    /// Reads a platform credential of the rendering namespace.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn get_secret(&self, name: &str) -> Result<Option<Secret>, CallError> {
        found(
            self.send(
                "get",
                "secrets",
                self.own::<Secret>().get(name, &kube::api::GetParams::default()),
            )
            .await,
        )
    }

    /// Reads the pods of a task's Job.
    ///
    /// # Errors
    /// Whatever keeps them from being read.
    pub async fn list_pods(&self, task: &TaskUid) -> Result<Vec<Pod>, CallError> {
        let of_task = format!("{},{TASK_UID}={task}", own_objects(&self.hub_id));
        let request = self
            .own::<Pod>()
            .list(&ListParams::default().labels(&of_task).limit(PAGE));
        let pods: ObjectList<Pod> = self.send("list", "pods", request).await?;
        Ok(pods.items)
    }

    /// Deletes the Job with this UID and, in the background, its pods.
    ///
    /// # Errors
    /// Whatever keeps it from being deleted; a Job of the same name with another UID stays.
    pub async fn delete_job(&self, name: &str, uid: &str) -> Result<(), CallError> {
        let request = self.own::<Job>().delete(name, &delete(uid));
        gone(self.send::<Value>("delete", "jobs", request).await)
    }

    /// Deletes the config Secret with this UID.
    ///
    /// # Errors
    /// Whatever keeps it from being deleted; a Secret of the same name with another UID stays.
    pub async fn delete_secret(&self, name: &str, uid: &str) -> Result<(), CallError> {
        let request = self.own::<Secret>().delete(name, &delete(uid));
        gone(self.send::<Value>("delete", "secrets", request).await)
    }

    /// Metadata of all Secrets with the hub's mark, page by page.
    ///
    /// # Errors
    /// Whatever keeps a page from being read.
    pub async fn list_own_secrets(&self) -> Result<Vec<ObjectMeta>, CallError> {
        let mut parameters = ListParams::default()
            .labels(&own_objects(&self.hub_id))
            .limit(PAGE);
        let mut all = Vec::new();
        loop {
            let request = self.own::<Secret>().list_metadata(&parameters);
            let page: ObjectList<PartialObjectMeta<Secret>> = self.send("list", "secrets", request).await?;
            all.extend(page.items.into_iter().map(|o| ObjectMeta {
                managed_fields: None,
                ..o.metadata
            }));
            match page.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => parameters = parameters.continue_token(&token),
                None => return Ok(all),
            }
        }
    }

    /// Requests on a kind of the rendering namespace.
    fn own<K: Resource<DynamicType = ()>>(&self) -> Request {
        Request::new(K::url_path(&(), Some(&self.namespace)))
    }

    async fn send<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let answer = self.exchange(request).await;
        let answer = answer.and_then(|body| serde_json::from_slice(&body).map_err(|_| CallError::Transport));
        self.metrics
            .call(verb, resource, answer.as_ref().map_or_else(|e| e.code(), |_| 200));
        answer
    }

    async fn exchange(
        &self,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Bytes, CallError> {
        let request = request.map_err(|_| CallError::Transport)?;
        let answer = tokio::time::timeout(DEADLINE, self.wire.send(request)).await;
        answer.unwrap_or(Err(CallError::Timeout))
    }
}

fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

fn delete(uid: &str) -> DeleteParams {
    DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    })
}

fn tasks(id: &TaskId) -> Request {
    Request::new(match id.kind {
        TaskKind::RenderTask => format!("/apis/{GROUP}/{VERSION}/namespaces/{}/rendertasks", id.namespace),
        TaskKind::ClusterRenderTask => format!("/apis/{GROUP}/{VERSION}/clusterrendertasks"),
    })
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
