//! Several instances of one release, and several releases on one cluster: which one is active, which is a standby, which takes
//! over, and which is refused.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{DeleteParams, ListParams, LogParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType;
use renderhub_harness::{apply, helm, wait_for};
use serde_json::json;

use super::release::holder;
use super::{HUB, LIMIT, RENDERING, TENANT, World, ended_in, finish, holds, submit, submit_in};

/// The namespace that another release's hub serves.
pub const OTHER: &str = "team-b";
/// What a release beside another one says, but for its name and its list.
const BESIDE: [&str; 3] = [
    "renderingNamespace.shared=true",
    "crds.install=false",
    "policies.install=false",
];

/// The two instances of the release, by the names of their pods.
struct Pair {
    active: Pod,
    standby: Pod,
}

impl World {
    /// Submits a task whose push is not answered until the way to the registry is released; the UIDs of its running pods.
    pub async fn start_a_task_that_runs_on(&self, tenant: &Client, name: &str) -> Result<BTreeSet<String>> {
        self.way.hold();
        submit(tenant, name, name, json!({})).await?;
        wait_for("the task's pod", LIMIT, async || {
            let pods = self.running_pods().await?;
            Ok((!pods.is_empty()).then_some(pods))
        })
        .await
    }

    /// UIDs of the pods of Jobs that have not ended.
    pub async fn running_pods(&self) -> Result<BTreeSet<String>> {
        let pods: Api<Pod> = Api::namespaced(self.plane.admin().client().await?, RENDERING);
        let of_hub = ListParams::default().labels("app.kubernetes.io/managed-by=renderhub");
        let is_running = |pod: &Pod| pod.status.as_ref().and_then(|s| s.phase.as_deref()) == Some("Running");
        let pods = pods.list(&of_hub).await?.items;
        Ok(pods
            .iter()
            .filter(|pod| is_running(pod))
            .filter_map(ResourceExt::uid)
            .collect())
    }

    /// Both are ready, and each says what it does.
    pub async fn one_is_active_and_one_is_a_standby(&self) -> Result<()> {
        self.pair().await.map(drop)
    }

    /// Whose Lease is elsewhere, or has another name, does not see that this hub works.
    pub async fn no_update_starts_another_hub_beside_this_one(&self) -> Result<()> {
        let chart = helm::renderhub_chart();
        let chart = chart.to_str().context("a path that is no text")?;
        for set in [
            "controller.leaseNamespace=default",
            "controller.shardName=other",
            "renderingNamespace.name=elsewhere",
        ] {
            let words = [
                "upgrade",
                "renderhub",
                chart,
                "--namespace",
                HUB,
                "--reuse-values",
            ];
            let refused = self
                .helm
                .run(&[&words[..], &["--dry-run=server", "--set", set]].concat())
                .await;
            let said = refused.err().with_context(|| format!("{set} is accepted"))?;
            ensure!(
                format!("{said:#}").contains("scale the Deployment to 0 first"),
                "{set}: {said:#}"
            );
        }
        Ok(())
    }

    async fn pair(&self) -> Result<Pair> {
        let admin = self.plane.admin().client().await?;
        wait_for("one that works and one that stands by", LIMIT, async || {
            let pods = pods_of(&admin, "renderhub").await?;
            let (mut active, mut standby) = (Vec::new(), Vec::new());
            for pod in pods {
                match readyz(&admin, &pod.name_any()).await?.as_str() {
                    "ok (standby)" => standby.push(pod),
                    "ok (active)" => active.push(pod),
                    other => anyhow::bail!("{other}"),
                }
            }
            ensure!(
                active.len() == 1 && standby.len() == 1,
                "{} and {}",
                active.len(),
                standby.len()
            );
            Ok(active
                .pop()
                .zip(standby.pop())
                .map(|(active, standby)| Pair { active, standby }))
        })
        .await
    }

    /// While the hub of `team-a` fails over, a tenant goes on, another release comes to serve `team-b`, and a third one that
    /// would serve it too is not let in.
    pub async fn releases_share_a_cluster_and_one_fails_over(&self, tenant: &Client) -> Result<()> {
        let admin = self.plane.admin().client().await?;
        apply::object(
            &admin,
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": OTHER } }),
        )
        .await?;
        let neighbours = async {
            self.a_second_release_serves_another_namespace(&admin).await?;
            self.a_third_release_is_not_let_in(&admin).await
        };
        let tenant_goes_on = self.a_task_with_a_service_account_pushes_to_its_own_registry(tenant);
        let (failover, others, own) = tokio::join!(
            Box::pin(self.the_standby_takes_over(tenant)),
            Box::pin(neighbours),
            Box::pin(tenant_goes_on),
        );
        failover.context("the failover")?;
        others.context("the other releases")?;
        own.context("the tenant's own registry")?;
        self.remove_the_neighbours(&admin).await
    }

    /// Killed at once: nothing is released, and the pod is not started again in its place.
    async fn the_standby_takes_over(&self, tenant: &Client) -> Result<()> {
        let Pair { active, standby } = self.pair().await?;
        let status = active.status.clone().unwrap_or_default();
        let container = status.container_statuses.unwrap_or_default().pop();
        let id = container.and_then(|c| c.container_id).context("no container")?;
        self.node.kill_container(&id)?;
        let admin = self.plane.admin().client().await?;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), HUB);
        let at_once = DeleteParams::default().grace_period(0);
        pods.delete(&active.name_any(), &at_once).await?;
        let task = finish(tenant, "after-a-kill", "after-a-kill", json!({})).await?;
        ensure!(holds(&task, ConditionType::JobSucceeded), "{:?}", task.status);
        let leases: Api<Lease> = Api::namespaced(admin, RENDERING);
        let held = leases.list(&ListParams::default()).await?;
        let is_shards = |lease: &&Lease| {
            let name = lease.name_any();
            name.starts_with("renderhub-main-") && !name.contains(".standby-")
        };
        let holders: Vec<_> = held.iter().filter(is_shards).collect();
        ensure!(
            holders.len() == 1 && holder(holders[0]) == Some(standby.name_any()),
            "who stood by did not take over: {holders:?}"
        );
        self.one_is_active_and_one_is_a_standby().await
    }

    async fn a_second_release_serves_another_namespace(&self, admin: &Client) -> Result<()> {
        let sets = ["controller.shardName=b", "controller.watchNamespaces={team-b}"];
        self.install_beside("renderhub-b", &sets, true).await?;
        submit_in(OTHER, admin, "other", "other", json!({})).await?;
        let task = ended_in(OTHER, admin, "other").await?;
        ensure!(holds(&task, ConditionType::JobSucceeded), "{:?}", task.status);
        Ok(())
    }

    async fn a_third_release_is_not_let_in(&self, admin: &Client) -> Result<()> {
        let sets = ["controller.shardName=c", "controller.watchNamespaces={team-b}"];
        self.install_beside("renderhub-c", &sets, false).await?;
        let pods: Api<Pod> = Api::namespaced(admin.clone(), HUB);
        let said = wait_for("the third hub to refuse", LIMIT, async || {
            let mut said = String::new();
            for pod in pods_of(admin, "renderhub-c").await? {
                said.push_str(&pods.logs(&pod.name_any(), &LogParams::default()).await?);
            }
            let refusal = said.lines().find(|line| line.contains("refused: "));
            Ok(refusal.map(str::to_owned))
        })
        .await?;
        for part in ["the hub b-", "(renderhub-b-", "serves team-b too"] {
            ensure!(said.contains(part), "{part} is not in {said}");
        }
        let hubs: Api<Deployment> = Api::namespaced(admin.clone(), HUB);
        let status = hubs.get("renderhub-c").await?.status.unwrap_or_default();
        ensure!(
            status.ready_replicas.unwrap_or_default() == 0,
            "the third hub is ready"
        );
        Ok(())
    }

    /// What an uninstalled hub served is another's without a wait: nothing has to be found out about a Lease that has no holder.
    async fn another_release_takes_over_at_once(&self, admin: &Client) -> Result<()> {
        let sets = ["controller.shardName=d", "controller.watchNamespaces={team-b}"];
        self.install_beside("renderhub-d", &sets, true).await?;
        let pods = pods_of(admin, "renderhub-d").await?;
        let [pod] = &pods[..] else {
            anyhow::bail!("{} pods", pods.len())
        };
        ensure!(
            readyz(admin, &pod.name_any()).await? == "ok (active)",
            "the hub does not work"
        );
        let containers = pod.status.iter().flat_map(|status| &status.container_statuses);
        let restarts: i32 = containers.flatten().map(|one| one.restart_count).sum();
        let logs: Api<Pod> = Api::namespaced(admin.clone(), HUB);
        let said = logs.logs(&pod.name_any(), &LogParams::default()).await?;
        ensure!(
            restarts == 0 && !said.contains("waiting until it is known"),
            "{said}"
        );
        Ok(())
    }

    async fn install_beside(&self, release: &str, sets: &[&str], is_waited_for: bool) -> Result<()> {
        let chart = helm::renderhub_chart();
        let chart = chart.to_str().context("a path that is no text")?;
        let words = ["install", release, chart, "--namespace", HUB, "--timeout", "2m"];
        let wait = is_waited_for.then_some("--wait");
        let sets = sets.iter().chain(&BESIDE).flat_map(|set| ["--set", set]);
        let all: Vec<&str> = words.into_iter().chain(wait).chain(sets).collect();
        self.helm.run(&all).await.map(drop)
    }

    /// Tasks go while their hub is there to let them go.
    async fn remove_the_neighbours(&self, admin: &Client) -> Result<()> {
        let tasks: Api<RenderTask> = Api::namespaced(admin.clone(), OTHER);
        tasks.delete("other", &DeleteParams::default()).await?;
        wait_for("the other task to be gone", LIMIT, async || {
            Ok(tasks.get_opt("other").await?.is_none().then_some(()))
        })
        .await?;
        let words = |release| ["uninstall", release, "--namespace", HUB];
        let [b, c, d] = ["renderhub-b", "renderhub-c", "renderhub-d"].map(words);
        tokio::try_join!(self.helm.run(&b), self.helm.run(&c))?;
        self.its_leases_are_released("renderhub-b-").await?;
        self.another_release_takes_over_at_once(admin).await?;
        self.helm.run(&d).await?;
        let namespaces: Api<Namespace> = Api::all(admin.clone());
        namespaces.get_metadata(RENDERING).await?;
        let tasks: Api<RenderTask> = Api::namespaced(admin.clone(), TENANT);
        ensure!(
            tasks.get_opt("web").await?.is_some(),
            "the first release's tasks are gone"
        );
        Ok(())
    }
}

/// A release's pods that are not on their way out.
async fn pods_of(admin: &Client, release: &str) -> Result<Vec<Pod>> {
    let pods: Api<Pod> = Api::namespaced(admin.clone(), HUB);
    let labels = format!("app.kubernetes.io/instance={release},app.kubernetes.io/component=hub");
    let mut pods = pods.list(&ListParams::default().labels(&labels)).await?.items;
    pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
    Ok(pods)
}

/// What a ready pod says of itself; an error while it is not ready.
async fn readyz(admin: &Client, pod: &str) -> Result<String> {
    let path = format!("/api/v1/namespaces/{HUB}/pods/{pod}:8080/proxy/readyz");
    let request = http::Request::get(path).body(Vec::new())?;
    Ok(admin.request_text(request).await?)
}
