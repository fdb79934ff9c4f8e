//! Calls for what the hub makes for a task, in one namespace of one cluster.
//!
//! Deletes carry a UID precondition; `404` counts as done.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;
use http::Request as HttpRequest;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::Resource;
use kube::api::{GetParams, ListParams, ObjectMeta, Patch, PostParams};
use kube::core::{ObjectList, PartialObjectMeta, Request};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::labels::{FIELD_MANAGER, HUB_ID, all_objects, objects_of, others_objects};
use crate::metrics::Metrics;
use crate::names::{HubId, TaskUid};
use crate::plan::adoption::{Maker, maker};

use super::error::{CallError, found, gone};
use super::listed::{self, Found};
use super::wire::Wire;
use super::{Answer, DEADLINE, PAGE, delete, manager};

/// Pages of one list of another cluster, so that a server that always has another one is no endless list.
const PAGES: usize = 100;
/// Bytes of one list of another cluster: 20,000 objects of the usual size.
const WEIGHT: usize = 24 << 20;

/// Calls for Jobs, config Secrets and pods.
#[derive(Clone)]
pub struct Objects {
    wire: Arc<dyn Wire>,
    /// Where calls are counted; a wire to another cluster counts its own.
    metrics: Option<Metrics>,
    namespace: String,
    hub_id: HubId,
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects")
            .field("namespace", &self.namespace)
            .finish_non_exhaustive()
    }
}

impl Objects {
    /// Calls of this hub over a wire, in `namespace`.
    #[must_use]
    pub fn new(wire: Arc<dyn Wire>, metrics: Option<Metrics>, namespace: String, hub_id: HubId) -> Self {
        Self {
            wire,
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
            self.send("get", "jobs", self.own::<Job>().get(name, &GetParams::default()))
                .await,
        )
    }

    /// Reads a config Secret's metadata; `None` when it does not exist.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn get_secret_metadata(&self, name: &str) -> Result<Option<ObjectMeta>, CallError> {
        let request = self.own::<Secret>().get_metadata(name, &GetParams::default());
        let read: Option<PartialObjectMeta<Secret>> = found(self.send("get", "secrets", request).await)?;
        Ok(read.map(|o| o.metadata))
    }

    /// Reads the pods of a task's Job, whichever hub made it: a pod keeps the labels that it was made with.
    ///
    /// # Errors
    /// Whatever keeps them from being read.
    pub async fn list_pods(&self, task: &TaskUid) -> Result<Vec<Pod>, CallError> {
        let of_task = ListParams::default().labels(&objects_of(task)).limit(PAGE);
        let request = self.own::<Pod>().list(&of_task);
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

    /// Makes a Job this hub's own, if it is still the one with this UID and this version.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when it changed since it was read.
    pub async fn adopt_job(&self, name: &str, uid: &str, version: &str) -> Result<(), CallError> {
        let body = json!({"metadata": {
            "uid": uid, "resourceVersion": version, "labels": {HUB_ID: self.hub_id.as_str()},
        }});
        let request = self.own::<Job>().patch(name, &manager(), &Patch::Merge(&body));
        self.send::<Answer>("patch", "jobs", request).await.map(|_| ())
    }

    /// The config Secrets that hubs of this cluster made, this one and others.
    ///
    /// # Errors
    /// Whatever keeps a page from being read.
    pub async fn list_secrets(&self) -> Result<Vec<Found>, CallError> {
        self.list_metadata::<Secret>("secrets", &all_objects()).await
    }

    /// The Jobs that other hubs of this cluster made.
    ///
    /// # Errors
    /// Whatever keeps a page from being read.
    pub async fn list_others_jobs(&self) -> Result<Vec<Found>, CallError> {
        let others = others_objects(&self.hub_id);
        self.list_metadata::<Job>("jobs", &others).await
    }

    /// What hubs of this cluster made, page by page. Another cluster that always has another page, or ever more objects, is
    /// not listened to for ever.
    async fn list_metadata<K>(&self, resource: &'static str, labels: &str) -> Result<Vec<Found>, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        let (mut all, mut pages, mut weight) = (Vec::new(), 0, 0);
        loop {
            let request = self.own::<K>().list_metadata(&parameters);
            let body = self.exchange("list", resource, request).await?;
            let (found, next) = listed::read(&body).ok_or(CallError::Transport)?;
            for object in found {
                if maker(&self.hub_id, &object.meta) != Maker::Foreign {
                    weight += object.weight();
                    all.push(object);
                }
            }
            pages += 1;
            match next {
                None => return Ok(all),
                Some(_) if !self.is_home() && (pages >= PAGES || weight > WEIGHT) => {
                    return Err(CallError::TooLarge);
                }
                Some(token) => parameters = parameters.continue_token(&token),
            }
        }
    }

    /// Whether these are objects of the hub's own cluster, whose API server is trusted.
    const fn is_home(&self) -> bool {
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
        let body = self.exchange(verb, resource, request).await?;
        serde_json::from_slice(&body).map_err(|_| CallError::Transport)
    }

    /// The body of the answer as it came.
    pub(super) async fn exchange(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<Bytes, CallError> {
        let request = request.map_err(|_| CallError::Transport)?;
        let answer = tokio::time::timeout(DEADLINE, self.wire.send(request)).await;
        let answer = answer.unwrap_or(Err(CallError::Timeout));
        if let Some(metrics) = &self.metrics {
            let code = answer.as_ref().map_or_else(|e| e.code(), |_| 200);
            metrics.call(verb, resource, code);
        }
        answer
    }
}
