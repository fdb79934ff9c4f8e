//! Tasks, the states that they are brought into, and what becomes of each.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::{ConditionType, Reason, is_true};
use renderhub::api::labels::TASK_UID;
use renderhub::api::names::{TaskUid, job_name};
use renderhub_harness::audit::{Mark, creations};
use renderhub_harness::registry::Registry;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use super::world::{LIMIT, RENDERING, TENANT, World};

/// A quota of the platform operator's own.
const QUOTA: &str = "for-now";

/// What an upgrade finds.
pub struct Picture {
    /// UIDs of the pods that push, here and on the other cluster.
    pods: BTreeSet<String>,
    /// Versions of the tasks that have ended, by name.
    ended: BTreeMap<String, String>,
    /// UIDs of what is kept of tasks that failed.
    kept: BTreeSet<String>,
}

impl World {
    /// Makes a task for a chart of its name. `name` and `description` in `more` are the chart's, everything else is laid over
    /// the spec.
    pub async fn submit(&self, name: &str, mut more: Value) -> Result<()> {
        let mut field = |key: &str| more.as_object_mut().and_then(|fields| fields.remove(key));
        let chart = field("name").unwrap_or_else(|| json!(name));
        let description = field("description").unwrap_or_else(|| json!("A shop"));
        let mut task = json!({
            "apiVersion": "renderhub.dev/v1alpha1",
            "kind": "RenderTask",
            "metadata": { "name": name, "namespace": TENANT },
            "spec": {
                "registryRef": { "name": "main" },
                "repository": format!("{TENANT}/{name}"),
                "tag": "1.0.0",
                "config": { "type": "release", "release": {
                    "chart": { "name": chart, "description": description, "version": "1.0.0", "appVersion": "1" },
                    "input": {
                        "component": { "name": "shop" },
                        "resources": { "chart": { "repository": "charts.example.com/shop", "tag": "1.0.0" } },
                        "entrypoint": { "resourceName": "chart", "type": "helm" },
                    },
                } },
            },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            task["spec"][key] = value.clone();
        }
        // A null is an unset field, which server-side apply would take for a wish.
        if let Some(spec) = task["spec"].as_object_mut() {
            spec.retain(|_, value| !value.is_null());
        }
        apply::object(&self.admin, task).await.map(drop)
    }

    /// A spec that names a registry of the tenant's own, and no credential.
    pub fn own_registry(&self) -> Value {
        json!({ "registryRef": null, "baseURL": self.open_way.host(), "plainHTTP": true })
    }

    fn tasks(&self) -> Api<RenderTask> {
        Api::namespaced(self.admin.clone(), TENANT)
    }

    /// Waits until these have succeeded.
    pub async fn succeeded(&self, names: &[&str]) -> Result<()> {
        for name in names {
            wait_for(&format!("RenderTask {name} to succeed"), LIMIT, async || {
                let task = self.tasks().get(name).await?;
                Ok(holds(&task, ConditionType::JobSucceeded).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// Waits until a condition of the task has this reason.
    pub async fn has(&self, name: &str, reason: Reason) -> Result<()> {
        wait_for(&format!("RenderTask {name} to be {reason}"), LIMIT, async || {
            let status = self.tasks().get(name).await?.status.unwrap_or_default();
            let is_it = status.conditions.iter().any(|c| c.reason == reason.as_str());
            Ok(is_it.then_some(()))
        })
        .await
    }

    /// From now on pods that push get no answer.
    pub fn hold_pushes(&self) {
        self.way.hold();
        self.open_way.hold();
    }

    /// Pods that push get an answer, and Jobs are admitted.
    pub async fn let_all_through(&self) -> Result<()> {
        self.way.release();
        self.open_way.release();
        let quotas: Api<ResourceQuota> = Api::namespaced(self.admin.clone(), RENDERING);
        quotas.delete(QUOTA, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until so many pods push here, and so many on the other cluster.
    pub async fn until_pods(&self, here: usize, there: usize) -> Result<()> {
        let edge = self.edge.admin().client().await?;
        wait_for("the pods to push", LIMIT, async || {
            let found = (
                pushing(&self.admin, RENDERING).await?.len(),
                pushing(&edge, &self.edge_namespace).await?.len(),
            );
            Ok((found == (here, there)).then_some(()))
        })
        .await
    }

    /// Lets no more Jobs into the rendering namespace than this, those of failed tasks included. So many must be there: it waits
    /// until one more is refused, because the API server hears of a quota by a watch.
    pub async fn admit_jobs(&self, count: usize) -> Result<()> {
        let quota = json!({
            "apiVersion": "v1", "kind": "ResourceQuota", "metadata": { "name": QUOTA, "namespace": RENDERING },
            "spec": { "hard": { "count/jobs.batch": count.to_string() } },
        });
        apply::object(&self.admin, quota).await?;
        let jobs: Api<Job> = Api::namespaced(self.admin.clone(), RENDERING);
        let one_more = serde_json::from_value(json!({
            "metadata": { "generateName": "one-more-" },
            "spec": { "template": { "spec": {
                "restartPolicy": "Never", "containers": [{ "name": "none", "image": "none" }],
            } } },
        }))?;
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        wait_for("the quota to refuse one more Job", LIMIT, async || {
            match jobs.create(&dry_run, &one_more).await {
                Err(kube::Error::Api(status)) if status.message.contains("exceeded quota") => Ok(Some(())),
                other => other.map(|_| None).map_err(Into::into),
            }
        })
        .await
    }

    pub async fn picture(&self) -> Result<Picture> {
        let edge = self.edge.admin().client().await?;
        let mut pods = pushing(&self.admin, RENDERING).await?;
        pods.extend(pushing(&edge, &self.edge_namespace).await?);
        let tasks = self.tasks().list(&ListParams::default()).await?.items;
        let ended = tasks
            .iter()
            .filter(|task| holds(task, ConditionType::JobSucceeded) || holds(task, ConditionType::JobFailed));
        let versions = ended.map(|task| (task.name_any(), task.resource_version().unwrap_or_default()));
        let failed = tasks.iter().filter(|task| holds(task, ConditionType::JobFailed));
        let mut kept = BTreeSet::new();
        for task in failed {
            let of_task = format!("{TASK_UID}={}", task.uid().unwrap_or_default());
            let of_task = ListParams::default().labels(&of_task);
            let jobs: Api<Job> = Api::namespaced(self.admin.clone(), RENDERING);
            let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), RENDERING);
            kept.extend(
                jobs.list_metadata(&of_task)
                    .await?
                    .iter()
                    .filter_map(ResourceExt::uid),
            );
            kept.extend(
                secrets
                    .list_metadata(&of_task)
                    .await?
                    .iter()
                    .filter_map(ResourceExt::uid),
            );
        }
        Ok(Picture {
            pods,
            ended: versions.collect(),
            kept,
        })
    }

    /// Another hub works, and the same pods push.
    pub async fn nothing_has_moved(&self, before: &Picture) -> Result<()> {
        let now = self.picture().await?;
        ensure!(
            now.pods == before.pods,
            "{:?} push instead of {:?}",
            now.pods,
            before.pods
        );
        Ok(())
    }

    /// Nothing was written to tasks that had ended, and what was kept of those that failed is still there.
    pub async fn what_had_ended_is_as_it_was(&self, before: &Picture) -> Result<()> {
        let now = self.picture().await?;
        for (name, version) in &before.ended {
            let written = now.ended.get(name) != Some(version);
            ensure!(!written, "the new hub wrote to {name}, which had ended");
        }
        ensure!(
            before.kept.len() == 2 && now.kept == before.kept,
            "{:?} is kept of the failed task instead of a Job and a Secret, {:?}",
            now.kept,
            before.kept
        );
        Ok(())
    }

    /// By the audit logs of both clusters, and the logs of both registries.
    pub async fn each_job_was_made_and_each_chart_pushed_once(&self) -> Result<()> {
        let here = self.plane.audit()?.since(Mark::START).await?;
        let there = self.edge.audit()?.since(Mark::START).await?;
        let mut made = creations(here, RENDERING, "jobs");
        made.extend(creations(there, &self.edge_namespace, "jobs"));
        let mut made: Vec<_> = made.into_iter().map(|event| event.name).collect();
        made.sort();
        let tasks = self.tasks().list(&ListParams::default()).await?.items;
        let name_of =
            |task: &RenderTask| job_name(&task.name_any(), &TaskUid::new(&task.uid().unwrap_or_default()));
        let mut expected: Vec<_> = tasks.iter().map(name_of).collect();
        expected.sort();
        ensure!(made == expected, "the Jobs {made:?} were made for {expected:?}");
        // The one that failed met the chart of another.
        for task in tasks.iter().filter(|task| task.name_any() != "failed") {
            let name = task.name_any();
            let registry = if name.starts_with("own") {
                &self.open
            } else {
                &self.registry
            };
            let pushes = pushes(registry, &format!("{TENANT}/{name}"));
            ensure!(pushes == 1, "{name} was pushed {pushes} times");
        }
        Ok(())
    }

    /// Whichever release set the finalizer, this one takes it off, and removes what was kept.
    pub async fn every_task_can_be_deleted(&self) -> Result<()> {
        let tasks = self.tasks();
        tasks
            .delete_collection(&DeleteParams::default(), &ListParams::default())
            .await?;
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), RENDERING);
        let edge = self.edge.admin().client().await?;
        let jobs = [
            Api::<Job>::namespaced(self.admin.clone(), RENDERING),
            Api::<Job>::namespaced(edge, &self.edge_namespace),
        ];
        wait_for(
            "the tasks and all that was of them to be gone",
            LIMIT,
            async || {
                let all = ListParams::default();
                let of_tasks = ListParams::default().labels(TASK_UID);
                let mut left = tasks.list_metadata(&all).await?.items.len();
                left += secrets.list_metadata(&of_tasks).await?.items.len();
                for jobs in &jobs {
                    left += jobs.list_metadata(&of_tasks).await?.items.len();
                }
                Ok((left == 0).then_some(()))
            },
        )
        .await
    }
}

fn holds(task: &RenderTask, type_: ConditionType) -> bool {
    task.status
        .as_ref()
        .is_some_and(|status| is_true(&status.conditions, type_))
}

/// UIDs of the pods of Jobs whose charts are rendered and are to be pushed.
async fn pushing(client: &Client, namespace: &str) -> Result<BTreeSet<String>> {
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let of_hub = ListParams::default().labels("app.kubernetes.io/managed-by=renderhub");
    let is_running = |pod: &&Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
    let pods = pods.list(&of_hub).await?.items;
    Ok(pods
        .iter()
        .filter(is_running)
        .filter_map(ResourceExt::uid)
        .collect())
}

/// How often a tag of the repository was written.
fn pushes(registry: &Registry, repository: &str) -> usize {
    let put = format!("\"PUT /v2/{repository}/manifests/");
    let log = registry.log();
    log.lines()
        .filter(|line| line.contains(&put) && line.contains(" 201 "))
        .count()
}
