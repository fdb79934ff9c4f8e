//! Calls for what the hub makes for a task, in one namespace of one cluster.
//!
//! Deletes carry a UID precondition; `404` counts as done.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::Request as HttpRequest;

use k8s_openapi::api::authorization::v1::SelfSubjectAccessReview;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Resource;
use kube::api::{GetParams, ListParams, ObjectMeta, Patch, PostParams};
use kube::core::Request;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, TASK_UID, objects_of};
use crate::api::names::{HubId, TaskUid};
use crate::base::metrics::Metrics;
use crate::kubernetes::object::{FetchedJob, LeanObject, LeanPods, PODS};
use crate::plan::task::CreatePermission;

use super::error::{CallError, CreateError, found, gone};
use super::response::{create, delete, manager};
use super::transport::{ApiTransport, ResponseLimit, log_call};
use super::transport_stage::TransportStage;
use super::write_request::lean_write;

/// Longest a call to the hub's own API server may take.
const DEADLINE: Duration = Duration::from_secs(30);
/// An answer that is not what was asked for.
const UNREADABLE: CallError = CallError::Transport(TransportStage::Decode);

/// Calls for Jobs, config Secrets and pods.
#[derive(Clone)]
pub struct TaskObjectClient {
    transport: Arc<dyn ApiTransport>,
    /// Where calls are counted; a transport to another cluster counts its own.
    metrics: Option<Metrics>,
    namespace: String,
    hub_id: HubId,
}

impl fmt::Debug for TaskObjectClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskObjectClient")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl TaskObjectClient {
    /// Calls of this hub over a transport, in `namespace`.
    #[must_use]
    pub fn new(
        transport: Arc<dyn ApiTransport>,
        metrics: Option<Metrics>,
        namespace: String,
        hub_id: HubId,
    ) -> Self {
        Self {
            transport,
            metrics,
            namespace,
            hub_id,
        }
    }

    /// The identity of the hub.
    #[must_use]
    pub fn hub_id(&self) -> &HubId {
        &self.hub_id
    }

    /// The namespace of the objects.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Creates a Secret; returns its UID.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, made by any client.
    pub async fn create_secret(&self, secret: &Secret) -> Result<String, CreateError> {
        self.create("secrets", secret, false).await
    }

    /// Creates a Job; returns its UID.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, made by any client.
    pub async fn create_job(&self, job: &Job) -> Result<String, CreateError> {
        self.create("jobs", job, false).await
    }

    /// Asks with a dry run whether the API server accepts a Job.
    ///
    /// # Errors
    /// Why it does not, or why it gave no answer.
    pub async fn try_job(&self, job: &Job) -> Result<(), CreateError> {
        self.create("jobs", job, true).await.map(|_| ())
    }

    async fn create<K>(
        &self,
        resource: &'static str,
        object: &K,
        dry_run: bool,
    ) -> Result<String, CreateError>
    where
        K: Resource<DynamicType = ()> + serde::Serialize,
    {
        let body = serde_json::to_vec(object).map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let request = lean_write(self.own::<K>().create(&create(dry_run), body));
        let request = request.map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let answer = tokio::time::timeout(DEADLINE, self.transport.submit(request)).await;
        let answer = answer.unwrap_or(Err(CallError::Timeout.into()));
        self.count(
            "create",
            resource,
            answer.as_ref().map_err(|declined| declined.error),
        );
        let made: LeanObject = serde_json::from_slice(&answer?).map_err(|_| UNREADABLE)?;
        Ok(made.metadata.read().0.uid.ok_or(UNREADABLE)?)
    }

    /// Reads a Job; `None` when it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_job(&self, name: &str) -> Result<Option<FetchedJob>, CallError> {
        let request = self.own::<Job>().get(name, &GetParams::default());
        found(self.send("get", "jobs", request).await)
    }

    /// Reads a Job's metadata; `None` when it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_job_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, CallError> {
        self.get_metadata::<Job>("jobs", name).await
    }

    /// Reads a config Secret's metadata; `None` when it does not exist.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn get_secret_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, CallError> {
        self.get_metadata::<Secret>("secrets", name).await
    }

    async fn get_metadata<K>(
        &self,
        resource: &'static str,
        name: &str,
    ) -> Result<Option<ObjectMeta>, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let request = self.own::<K>().get_metadata(name, &GetParams::default());
        let read: Option<LeanObject> = found(self.send("get", resource, request).await)?;
        Ok(read.map(|object| object.metadata.read().0))
    }

    /// Reads the pods of a task's Job, whichever hub made it: a pod keeps the labels that it was made with.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn list_pods<T>(
        &self,
        task: &TaskUid,
        look: impl Fn(&Pod) -> Option<T>,
    ) -> Result<Vec<T>, CallError> {
        let of_task = ListParams::default().labels(&objects_of(task)).limit(PODS.into());
        let request = self.own::<Pod>().list(&of_task);
        let body = self
            .exchange("list", "pods", request, ResponseLimit::Page)
            .await?;
        let pods: LeanPods = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        Ok(pods.pods().filter_map(|pod| look(&pod)).collect())
    }

    /// Deletes the Job with this UID and, in the background, its pods.
    ///
    /// # Errors
    /// It cannot be deleted; a Job of the same name with another UID stays.
    pub async fn delete_job(&self, name: &str, uid: &str) -> Result<(), CallError> {
        let request = self.own::<Job>().delete(name, &delete(uid));
        gone(
            self.exchange("delete", "jobs", request, ResponseLimit::Status)
                .await,
        )
    }

    /// Deletes the config Secret with this UID.
    ///
    /// # Errors
    /// It cannot be deleted; a Secret of the same name with another UID stays.
    pub async fn delete_secret(&self, name: &str, uid: &str) -> Result<(), CallError> {
        let request = self.own::<Secret>().delete(name, &delete(uid));
        gone(
            self.exchange("delete", "secrets", request, ResponseLimit::Status)
                .await,
        )
    }

    /// Whether the API server says that the right to create these objects is missing; where it does not answer, nothing is.
    pub async fn lacks(&self, right: CreatePermission) -> bool {
        #[derive(Deserialize)]
        struct AccessReview {
            status: AccessReviewStatus,
        }
        #[derive(Deserialize)]
        struct AccessReviewStatus {
            allowed: bool,
        }
        let (group, resource) = right.resource();
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
            "spec": {"resourceAttributes": {
                "group": group, "resource": resource, "verb": "create", "namespace": self.namespace,
            }},
        });
        let reviews = Request::new(SelfSubjectAccessReview::url_path(&(), None));
        let body = serde_json::to_vec(&review).unwrap_or_default();
        let request = reviews.create(&PostParams::default(), body);
        let answer = self.send("create", "selfsubjectaccessreviews", request).await;
        answer.is_ok_and(|review: AccessReview| !review.status.allowed)
    }

    /// Makes a Job this hub's own, if it is still the one with this UID and this version.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when it changed since it was read.
    pub async fn adopt_job(&self, name: &str, uid: &str, version: &str) -> Result<(), CallError> {
        self.label_job(name, uid, version, &json!({HUB_ID: self.hub_id.as_str()}))
            .await
    }

    /// Puts the hub's labels back on a task's Job that lost them, if it is still the one with this UID and this version.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when it changed since it was read.
    pub async fn mark_job(
        &self,
        name: &str,
        uid: &str,
        version: &str,
        task: &TaskUid,
    ) -> Result<(), CallError> {
        let marks = json!({
            MANAGED_BY: MANAGED_BY_VALUE, HUB_ID: self.hub_id.as_str(), TASK_UID: task.as_str(),
        });
        self.label_job(name, uid, version, &marks).await
    }

    async fn label_job(&self, name: &str, uid: &str, version: &str, marks: &Value) -> Result<(), CallError> {
        let body = json!({"metadata": {"uid": uid, "resourceVersion": version, "labels": marks}});
        let request = self
            .own::<Job>()
            .patch_metadata(name, &manager(), &Patch::Merge(&body));
        let answer = self
            .exchange("patch", "jobs", request, ResponseLimit::Status)
            .await;
        answer.map(|_| ())
    }

    /// Whether these are objects of the hub's own cluster, whose API server is trusted.
    pub(super) const fn is_home(&self) -> bool {
        self.metrics.is_some()
    }

    /// Requests on a kind of the rendering namespace.
    pub(super) fn own<K: Resource<DynamicType = ()>>(&self) -> Request {
        Request::new(K::url_path(&(), Some(&self.namespace)))
    }

    pub(super) async fn send<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        let body = self
            .exchange(verb, resource, request, ResponseLimit::Object)
            .await?;
        serde_json::from_slice(&body).map_err(|_| UNREADABLE)
    }

    /// Sends a write; of its answer only the metadata is asked for and read.
    pub(super) async fn write<T: DeserializeOwned>(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<T, CallError> {
        self.send(verb, resource, lean_write(request)).await
    }

    /// The body of the answer as it came, as far as it is wanted.
    pub(super) async fn exchange(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
        extent: ResponseLimit,
    ) -> Result<Bytes, CallError> {
        let request = request.map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let answer = tokio::time::timeout(DEADLINE, self.transport.send(request, extent)).await;
        let answer = answer.unwrap_or(Err(CallError::Timeout));
        self.count(verb, resource, answer.as_ref().map_err(|error| *error));
        answer
    }

    fn count(&self, verb: &'static str, resource: &'static str, answer: Result<&Bytes, CallError>) {
        let (code, error) = (answer.map_or_else(CallError::code, |_| 200), answer.err());
        log_call(verb, resource, code, error);
        if let Some(metrics) = &self.metrics {
            metrics.call(verb, resource, code);
        }
    }
}
