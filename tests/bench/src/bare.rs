//! The bare writer: the writes of a hub with the hub's own bodies, and no watching, no waiting, no decoding.
//!
//! It is the best that the API server allows, so the hub's rate is given as a part of its rate. It also makes the status patch
//! that the finisher makes for a hub, so that the API server does the same work for both.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, anyhow};
use futures::TryStreamExt;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::Request;
use kube::{Api, Client, Resource};
use renderhub::api::RenderTaskStatus;
use renderhub::api::labels::{FIELD_MANAGER, FINALIZER};
use renderhub::api::names::{TaskKind, job_name};
use renderhub::kubernetes::apply::status_patch;
use renderhub::kubernetes::object::{SlimObject, task_resource};
use renderhub::plan::platform::catalog::Catalog;
use renderhub::plan::task::job::{JobPlacement, TaskManifests, manifests};
use renderhub::plan::task::job_state::{JobProgress, ObservedJob};
use renderhub::plan::task::model::Task;
use renderhub::plan::task::status::{StartedJob, scheduled, succeeded};
use serde::Serialize;
use serde_json::{Value, json};

use crate::options::Part;
use crate::wire;
use crate::{finisher, measure, objects};

/// In the place of the Job's UID in the statuses of a hub: the responses with the real one are not decoded.
const SOME_UID: &str = "00000000-0000-0000-0000-000000000000";

/// Makes all writes of every task that exists.
///
/// # Errors
/// If the API server refuses one of them.
pub async fn run(part: &Part, in_flight: usize) -> Result<()> {
    let writer = Arc::new(Writer::new(
        wire::client().await?,
        &part.hub_id,
        &part.rendering_namespace,
    )?);
    let tasks = all_tasks(&writer.client).await?;
    futures::stream::iter(tasks.into_iter().map(Ok))
        .try_for_each_concurrent(in_flight, |task| {
            let writer = Arc::clone(&writer);
            // A task of its own, so that all cores take part, as for the hub.
            async move { tokio::spawn(async move { writer.whole_life(task).await }).await? }
        })
        .await?;
    println!("{}", measure::cpu_seconds("self")?);
    Ok(())
}

async fn all_tasks(client: &Client) -> Result<Vec<Task>> {
    let api: Api<SlimObject> = Api::all_with(client.clone(), &task_resource(TaskKind::RenderTask));
    let listed = api.list(&ListParams::default()).await?;
    let tasks = listed
        .items
        .into_iter()
        .map(|object| object.into_task(TaskKind::RenderTask, None));
    tasks.collect::<Option<_>>().context("a task without a name")
}

/// Makes a hub's writes.
pub struct Writer {
    client: Client,
    place: JobPlacement,
    catalog: Catalog,
}

impl Writer {
    /// A writer in a hub's place.
    ///
    /// # Errors
    /// If there can be no such hub.
    pub fn new(client: Client, hub_id: &str, rendering_namespace: &str) -> Result<Self> {
        Ok(Self {
            client,
            place: objects::place(hub_id, rendering_namespace)?,
            catalog: objects::catalog(rendering_namespace)?,
        })
    }

    /// Everything from the finalizer to the deletion of the config Secret.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn whole_life(&self, task: Task) -> Result<()> {
        self.start(&task).await?;
        self.end(task).await
    }

    /// The writes up to the Job.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn start(&self, task: &Task) -> Result<()> {
        if !task.has_finalizer() {
            self.send(add_finalizer(task)).await?;
        }
        let spec = task.decoded.spec.as_ref().context("a task without a spec")?;
        let resolved = self
            .catalog
            .resolve(task, spec, None, None)
            .map_err(|refusal| anyhow!("the task is refused: {}", refusal.message))?;
        let TaskManifests { secret, job } = manifests(&self.place, task, &resolved);
        self.create(&secret).await?;
        self.create(&job).await
    }

    /// The writes after the Job, and the one of the finisher among them.
    async fn end(&self, mut task: Task) -> Result<()> {
        let name = job_name(&task.id.name, &task.id.uid);
        task.status = self.running(&task, &name);
        self.send(write_status(&task)).await?;
        self.send(finisher::complete(&self.place.namespace, &name))
            .await?;
        task.status = finished(&task);
        self.send(write_status(&task)).await?;
        self.delete::<Job>(&name).await?;
        self.delete::<Secret>(&name).await
    }

    fn running(&self, task: &Task, name: &str) -> RenderTaskStatus {
        let started = StartedJob {
            cluster: None,
            namespace: self.place.namespace.clone(),
            name: name.to_owned(),
            job_uid: SOME_UID.to_owned(),
            secret_uid: Some(SOME_UID.to_owned()),
            chart_url: Some(format!(
                "oci://registry.test:5000/{}/shop:1.0.0",
                task.id.namespace
            )),
            since: Timestamp::now(),
        };
        scheduled(task, started, Timestamp::now())
    }

    async fn create<K>(&self, object: &K) -> Result<()>
    where
        K: Resource<DynamicType = ()> + Serialize,
    {
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let body = serde_json::to_vec(object)?;
        self.send(self.own::<K>().create(&parameters, body)).await
    }

    async fn delete<K: Resource<DynamicType = ()>>(&self, name: &str) -> Result<()> {
        self.send(self.own::<K>().delete(name, &DeleteParams::background()))
            .await
    }

    fn own<K: Resource<DynamicType = ()>>(&self) -> Request {
        Request::new(K::url_path(&(), Some(&self.place.namespace)))
    }

    async fn send(&self, request: wire::Request) -> Result<()> {
        wire::write(&self.client, request).await
    }
}

fn add_finalizer(task: &Task) -> wire::Request {
    let body = json!({"metadata": {
        "uid": task.id.uid.as_str(), "resourceVersion": task.resource_version, "finalizers": [FINALIZER],
    }});
    tasks(task).patch(&task.id.name, &manager(), &Patch::Merge(&body))
}

fn write_status(task: &Task) -> wire::Request {
    let status = sealed(&task.status).map_err(kube::core::request::Error::SerializeBody)?;
    status_patch(&tasks(task), &task.id.name, task.id.uid.as_str(), &status)
}

/// A status with a seal that no other has, as the hub's have.
///
/// # Errors
/// It cannot be written as JSON.
pub fn sealed<T: Serialize>(status: &T) -> serde_json::Result<Value> {
    static SEALS: AtomicU64 = AtomicU64::new(0);
    let mut status = serde_json::to_value(status)?;
    status["seal"] = format!("{:064x}", SEALS.fetch_add(1, Ordering::Relaxed)).into();
    Ok(status)
}

/// The status of a task that succeeded now.
pub fn finished(task: &Task) -> RenderTaskStatus {
    let now = Timestamp::now();
    let job = ObservedJob {
        uid: SOME_UID.to_owned(),
        spec_hash: task.decoded.spec_hash.clone(),
        chart_url: None,
        progress: JobProgress::Complete(now),
        attempts: 1,
        created: Some(now),
    };
    succeeded(task, &job, now, None, now)
}

/// Requests on the tasks of a task's namespace.
pub fn tasks(task: &Task) -> Request {
    Request::new(SlimObject::url_path(
        &task_resource(task.id.kind),
        Some(&task.id.namespace),
    ))
}

/// The hub's field manager.
pub fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}
