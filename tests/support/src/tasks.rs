//! What a test does with the registry and the tasks of its stage.

use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType;
use renderhub::api::{ClusterRegistry, RenderTask, RenderTaskStatus};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use crate::{CANARY, DIGEST, LIMIT, Stage, has, job_name_of, of_task};

/// The task that tests make: a release of one chart, pushed to a repository of its namespace.
pub fn shop_task(namespace: &str, registry: &str, name: &str) -> Value {
    json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "config": {"type": "release", "release": {
                "chart": {"name": "shop", "version": "1.0.0"},
                "input": {
                    "component": {"name": "shop"},
                    "resources": {"chart": {
                        "repository": "registry.test/shop", "tag": "1.0.0", "insecure": false,
                    }},
                    "entrypoint": {"resourceName": "chart", "type": "helm"},
                },
                "values": {"replicas": 3},
            }},
            "repository": format!("{namespace}/shop"),
            "tag": "1.0.0",
            "registryRef": {"name": registry},
        },
    })
}

impl Stage {
    /// Makes the registry and its credential.
    pub async fn make_registry(&self) -> Result<()> {
        self.make_push_secret("push").await?;
        self.put_registry(json!({"pushSecretRef": {"name": "push"}}))
            .await
    }

    /// Makes a usable basic-auth credential in the rendering namespace.
    pub async fn make_push_secret(&self, name: &str) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name},
            "type": "kubernetes.io/basic-auth",
            "stringData": {"username": "pusher", "password": CANARY},
        }))?;
        self.secrets().create(&PostParams::default(), &secret).await?;
        Ok(())
    }

    /// Makes or changes the stage's registry; `spec` is laid over a usable one.
    pub async fn put_registry(&self, spec: Value) -> Result<()> {
        let mut registry = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry",
            "metadata": {"name": self.scope.tenant},
            "spec": {"hostname": "registry.test:5000", "allowedNamespaces": [self.scope.tenant]},
        });
        for (key, value) in spec.as_object().context("no object")? {
            registry["spec"][key] = value.clone();
        }
        let api: Api<ClusterRegistry> = Api::all(self.admin.clone());
        let apply = PatchParams::apply("test").force();
        api.patch(&self.scope.tenant, &apply, &Patch::Apply(&registry))
            .await?;
        Ok(())
    }

    /// Lets the stage's registry be the one at `host`, in plain HTTP, with these fields laid over, and waits until its hub knows it.
    pub async fn use_registry_at(&self, host: &str, spec: Value) -> Result<()> {
        let mut changes = json!({"hostname": host, "plainHTTP": true, "pushSecretRef": {"name": "push"}});
        for (key, value) in spec.as_object().context("no object")? {
            changes[key] = value.clone();
        }
        let api: Api<ClusterRegistry> = Api::all(self.admin.clone());
        let patch = Patch::Merge(json!({"spec": changes}));
        api.patch(&self.scope.tenant, &PatchParams::default(), &patch)
            .await?;
        self.sees_registries().await
    }

    /// Makes or changes a renderer class.
    pub async fn put_class(&self, name: &str, spec: Value) -> Result<()> {
        let class = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass",
            "metadata": {"name": name}, "spec": spec,
        });
        apply::object(&self.admin, class).await?;
        Ok(())
    }

    /// Waits until this stage's hub has seen all registries as they are now. Their statuses do not say so, because each hub of the
    /// plane writes them; but one that is made now, and is seen by the refusal of a task for it, is seen after all others.
    pub async fn sees_registries(&self) -> Result<()> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "{}-seen-{}",
            self.scope.tenant,
            MADE.fetch_add(1, Ordering::Relaxed)
        );
        let registry = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": name},
            "spec": {"hostname": "registry.test", "repositoryPrefix": "seen/", "allowedNamespaces": [self.scope.tenant]},
        });
        apply::object(&self.admin, registry).await?;
        let task = self
            .submit_with(&name, json!({"registryRef": {"name": name}}))
            .await?;
        self.condition(
            &task,
            ConditionType::JobScheduled,
            "False",
            "RepositoryNotAllowed",
        )
        .await?;
        self.delete(&task).await?;
        let api: Api<ClusterRegistry> = Api::all(self.admin.clone());
        api.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// A task that this stage can serve, as JSON to be changed.
    pub fn task(&self, name: &str) -> Value {
        shop_task(&self.scope.tenant, &self.scope.tenant, name)
    }

    /// Submits a task as the administrator; tenants' rights have tests of their own.
    pub async fn submit(&self, task: Value) -> Result<RenderTask> {
        let task: RenderTask = serde_json::from_value(task)?;
        Ok(self.tasks().create(&PostParams::default(), &task).await?)
    }

    /// Submits a usable task with these fields of its spec laid over.
    pub async fn submit_with(&self, name: &str, spec: Value) -> Result<RenderTask> {
        let mut task = self.task(name);
        for (key, value) in spec.as_object().context("no object")? {
            task["spec"][key] = value.clone();
        }
        self.submit(task).await
    }

    /// The tasks in the tenant's namespace.
    pub fn tasks(&self) -> Api<RenderTask> {
        Api::namespaced(self.admin.clone(), &self.scope.tenant)
    }

    /// The Jobs in the rendering namespace.
    pub fn jobs(&self) -> Api<Job> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    /// The Secrets in the rendering namespace.
    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    /// The pods in the rendering namespace.
    pub fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    /// Waits for the task's Job.
    pub async fn job_of(&self, task: &RenderTask) -> Result<Job> {
        let name = job_name_of(task);
        wait_for("the task's Job", LIMIT, async || {
            Ok(self.jobs().get_opt(&name).await?)
        })
        .await
    }

    /// Whether the task's Job and config Secret exist.
    pub async fn objects(&self, task: &RenderTask) -> Result<(bool, bool)> {
        let name = job_name_of(task);
        let job = self.jobs().get_opt(&name).await?.is_some();
        Ok((job, self.secrets().get_opt(&name).await?.is_some()))
    }

    /// Lets the hub handle every event so far: a new task runs to its end.
    pub async fn barrier(&self) -> Result<()> {
        let mut task = self.task("barrier");
        task["metadata"] = json!({"generateName": "barrier-", "namespace": self.scope.tenant});
        let task = self.submit(task).await?;
        self.succeeds(&task).await?;
        self.delete(&task).await
    }

    /// Completes the task's Job with a pod that reports the digest.
    pub async fn complete(&self, task: &RenderTask) -> Result<Job> {
        self.complete_with(task, DIGEST).await
    }

    /// The same with this digest.
    pub async fn complete_with(&self, task: &RenderTask, digest: &str) -> Result<Job> {
        let job = self.job_of(task).await?;
        let message = json!({"phase": "Push", "reason": "Pushed", "digest": digest}).to_string();
        finish::pod_for_job(&self.admin, &job, &[Exit::new("renderer", 0, message)]).await?;
        finish::complete_job(&self.admin, &self.scope.rendering, &job.name_any()).await?;
        Ok(job)
    }

    /// Completes the task's Job, and waits until the task has succeeded and nothing of it is left.
    pub async fn succeeds(&self, task: &RenderTask) -> Result<()> {
        self.complete(task).await?;
        self.condition(task, ConditionType::JobSucceeded, "True", "JobSucceeded")
            .await?;
        self.cleared(task).await
    }

    /// Submits a usable task and waits until its Job is made.
    pub async fn scheduled(&self, name: &str) -> Result<RenderTask> {
        let task = self.submit(self.task(name)).await?;
        self.condition(&task, ConditionType::JobScheduled, "True", "JobScheduled")
            .await?;
        Ok(task)
    }

    /// Submits a usable task and completes it.
    pub async fn succeeded(&self, name: &str) -> Result<RenderTask> {
        let task = self.submit(self.task(name)).await?;
        self.complete(&task).await?;
        self.condition(&task, ConditionType::JobSucceeded, "True", "JobSucceeded")
            .await?;
        Ok(task)
    }

    /// Fails the task's Job with a pod that ended so.
    pub async fn fail(&self, task: &RenderTask, exit: Exit, reason: &str) -> Result<Job> {
        let job = self.job_of(task).await?;
        finish::pod_for_job(&self.admin, &job, &[exit]).await?;
        finish::fail_job(&self.admin, &self.scope.rendering, &job.name_any(), reason).await?;
        Ok(job)
    }

    /// Waits until the status is as wanted.
    pub async fn status_when(
        &self,
        task: &RenderTask,
        what: &str,
        is_so: impl Fn(&RenderTaskStatus) -> bool,
    ) -> Result<RenderTaskStatus> {
        let name = task.name_any();
        wait_for(what, LIMIT, async || {
            let status = self.tasks().get(&name).await?.status.unwrap_or_default();
            Ok(is_so(&status).then_some(status))
        })
        .await
    }

    /// Waits until a condition of the task has the status and reason.
    pub async fn condition(
        &self,
        task: &RenderTask,
        type_: ConditionType,
        status: &str,
        reason: &str,
    ) -> Result<RenderTaskStatus> {
        let what = format!("{}={status} with reason {reason}", type_.as_str());
        self.status_when(task, &what, |s| has(s, type_, status, reason))
            .await
    }

    /// Waits until no Job and no config Secret of the task exists.
    pub async fn cleared(&self, task: &RenderTask) -> Result<()> {
        let of_task = of_task(task);
        wait_for("the task's objects to be gone", LIMIT, async || {
            let jobs = self.jobs().list(&of_task).await?.items.len();
            let secrets = self.secrets().list(&of_task).await?.items.len();
            Ok((jobs + secrets == 0).then_some(()))
        })
        .await
    }

    /// Deletes the task and waits until it is gone.
    pub async fn delete(&self, task: &RenderTask) -> Result<()> {
        let name = task.name_any();
        self.tasks().delete(&name, &DeleteParams::default()).await?;
        wait_for("the task to be gone", LIMIT, async || {
            let found = self.tasks().get_opt(&name).await?;
            Ok(found.is_none_or(|t| t.uid() != task.uid()).then_some(()))
        })
        .await
    }
}
