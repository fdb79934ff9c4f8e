//! The ground of the remote cases: a hub's control plane, one more of the same kind, and the clusters that lead there.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use renderhub::api::RenderCluster;
use renderhub::api::labels::HUB_ID;
pub use renderhub::remote::connection_registry::RateLimit;
use renderhub_harness::progress::Progress;
use renderhub_harness::{ControlPlane, Hub, Identity, Remote, Rights, wait_for};
use serde_json::{Value, json};

use super::load::Made;
use crate::objects;
use crate::options::Options;
use crate::rights;
use crate::wire::IN_FLIGHT;
use crate::world::World;

/// Lets a hub reach control planes on loopback.
pub const LOOPBACK: &str = "--cluster-allow-cidrs=127.0.0.0/8";
/// Label of the Secrets with kubeconfigs.
const KUBECONFIG: &str = "bench.renderhub.dev/kubeconfig";
/// Longest for anything small, on a busy machine.
pub const LIMIT: Duration = Duration::from_secs(120);

/// Two control planes: the hub's world, and the one that is remote.
pub struct Stage {
    /// The hub's.
    pub world: World,
    /// The other one.
    pub plane: ControlPlane,
    /// A client that may do everything there.
    pub admin: Client,
}

/// A namespace of the remote control plane, and the cluster by which a hub knows it.
pub struct Cluster {
    /// Name of the `RenderCluster`, and of its Secret.
    pub name: String,
    /// The namespace there.
    pub namespace: String,
    /// The hub's user.
    pub identity: Identity,
}

impl Stage {
    /// Starts both control planes.
    ///
    /// # Errors
    /// If one does not start.
    pub async fn start(options: &Options) -> Result<Self> {
        Self::start_with(options, rights::hub).await
    }

    /// The same with other rights of the hub, by its rendering namespace.
    ///
    /// # Errors
    /// If one does not start.
    pub async fn start_with(
        options: &Options,
        rights: impl AsyncFnOnce(&str) -> Result<Rights>,
    ) -> Result<Self> {
        let world = World::start_with(options, true, rights).await?;
        let plane = ControlPlane::builder().without_job_controller().start().await?;
        let admin = plane.admin().client().await?;
        Ok(Self { world, plane, admin })
    }

    /// Where the remote API server listens.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::new(self.plane.address(), self.plane.port())
    }

    /// Makes a namespace there, with the account and the Role of the example.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn cluster(&self, prefix: &str) -> Result<Cluster> {
        let remote = Remote::make(&self.plane, prefix).await?;
        Ok(Cluster {
            identity: remote.identity().await?,
            name: remote.namespace.clone(),
            namespace: remote.namespace,
        })
    }

    /// The same many times.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn clusters(&self, prefix: &str, count: usize) -> Result<Vec<Cluster>> {
        let _progress = Progress::start(format!("making {count} namespaces"));
        futures::stream::iter(0..count)
            .map(|_| self.cluster(prefix))
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await
    }

    /// Registers a cluster with hubs.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn register(&self, name: &str, namespace: &str, kubeconfig: &str) -> Result<()> {
        // A cluster that is measured alone gets what the load asks for.
        let pace = RateLimit { qps: 500, burst: 500 };
        self.register_with(name, namespace, kubeconfig, pace).await
    }

    /// The same with a pace at which it is asked.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn register_with(
        &self,
        name: &str,
        namespace: &str,
        kubeconfig: &str,
        pace: RateLimit,
    ) -> Result<()> {
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": name, "labels": {KUBECONFIG: "true"}}, "stringData": {"value": kubeconfig},
        }))?;
        let cluster: RenderCluster = serde_json::from_value(json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
            "spec": {
                "kubeConfig": {"secretRef": {"name": name}}, "renderNamespace": namespace,
                "allowedNamespaces": ["*"], "registries": [objects::REGISTRY],
                "qps": pace.qps, "burst": pace.burst,
            },
        }))?;
        let post = PostParams::default();
        self.secrets().create(&post, &secret).await?;
        self.render_clusters().create(&post, &cluster).await?;
        Ok(())
    }

    /// Puts another kubeconfig in the place of a cluster's.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn replace(&self, name: &str, kubeconfig: &str) -> Result<()> {
        let patch = Patch::Merge(json!({"stringData": {"value": kubeconfig}}));
        self.secrets()
            .patch_metadata(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    /// Takes these clusters away, and their Secrets.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn forget(&self, names: &[String]) -> Result<()> {
        let delete = DeleteParams::default();
        for name in names {
            self.render_clusters().delete(name, &delete).await?;
            self.secrets().delete(name, &delete).await?;
        }
        Ok(())
    }

    /// Takes all clusters away.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn forget_all(&self) -> Result<()> {
        let (delete, all) = (DeleteParams::default(), ListParams::default());
        self.render_clusters().delete_collection(&delete, &all).await?;
        let kubeconfigs = all.labels(KUBECONFIG);
        self.secrets().delete_collection(&delete, &kubeconfigs).await?;
        wait_for("the clusters to be gone", LIMIT, async || {
            let left = self
                .render_clusters()
                .list_metadata(&ListParams::default().limit(1))
                .await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    pub fn render_clusters(&self) -> Api<RenderCluster> {
        Api::all(self.world.admin.clone())
    }

    fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.world.admin.clone(), &self.world.rendering)
    }

    // === hubs ===

    /// Starts a hub, without waiting for it.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_hub(&self) -> Result<Hub> {
        self.world.spawn_hub_with(&[LOOPBACK.to_owned()])
    }

    /// Starts a hub, and waits until so many clusters are connected.
    ///
    /// # Errors
    /// If they do not connect.
    pub async fn hub(&self, clusters: usize) -> Result<Hub> {
        let hub = self.spawn_hub()?;
        hub.wait_ready().await?;
        until_connected(&hub, clusters, Duration::from_millis(100)).await?;
        Ok(hub)
    }

    /// Ends a hub as a node does, so that the next one need not wait for its Lease.
    ///
    /// # Errors
    /// If it does not end.
    pub async fn end(&self, hub: Hub) -> Result<()> {
        let status = hub.sigterm(LIMIT).await?;
        ensure!(status.success(), "the hub ended with {status}");
        Ok(())
    }

    /// Removes the tasks of a load, and whatever is left of them on either side; the hub is gone.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn clear(&self, made: Vec<Made>) -> Result<()> {
        let tasks: Vec<_> = made.into_iter().map(|made| made.task).collect();
        let mut namespaces: Vec<_> = self.remote_leftovers().await?;
        namespaces.dedup();
        let own = ListParams::default().labels(HUB_ID);
        for namespace in namespaces {
            let jobs: Api<Job> = Api::namespaced(self.admin.clone(), &namespace);
            let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), &namespace);
            jobs.delete_collection(&DeleteParams::background(), &own).await?;
            secrets.delete_collection(&DeleteParams::default(), &own).await?;
        }
        self.world.remove_tasks(&tasks).await
    }

    /// Namespaces of the remote side in which something of a hub's is left.
    async fn remote_leftovers(&self) -> Result<Vec<String>> {
        let own = ListParams::default().labels(HUB_ID);
        let secrets: Api<Secret> = Api::all(self.admin.clone());
        let listed = secrets.list_metadata(&own).await?.items;
        Ok(listed
            .into_iter()
            .filter_map(|secret| secret.metadata.namespace)
            .collect())
    }

    /// Waits until the hub has left nothing on either side.
    ///
    /// # Errors
    /// If it leaves something.
    pub async fn until_cleared(&self) -> Result<()> {
        wait_for("the hub to clear up", LIMIT, async || {
            let is_clear = self.world.is_cleared().await? && self.remote_leftovers().await?.is_empty();
            Ok(is_clear.then_some(()))
        })
        .await
    }
}

/// Waits until so many clusters are connected, by the hub's metrics, at which it looks after each pause.
///
/// # Errors
/// If they do not connect.
pub async fn until_connected(hub: &Hub, clusters: usize, pause: Duration) -> Result<()> {
    let what = format!("{clusters} clusters to be connected");
    wait_for(&what, LIMIT, async || {
        let there = connected(&hub.metrics().await?);
        if there < clusters {
            tokio::time::sleep(pause).await;
            anyhow::bail!("{there} are");
        }
        Ok(Some(()))
    })
    .await
    .with_context(|| hub.log().lines().rev().take(10).collect::<Vec<_>>().join("\n"))
}

/// Clusters that are connected, by a hub's metrics.
pub fn connected(metrics: &str) -> usize {
    let series = metrics
        .lines()
        .filter(|line| line.starts_with("renderhub_cluster_connected{"));
    series.filter(|line| line.ends_with(" 1")).count()
}

/// The sum of a counter over all clusters, by a hub's metrics.
pub fn total(metrics: &str, counter: &str) -> u64 {
    let start = format!("renderhub_{counter}_total{{");
    let series = metrics.lines().filter(|line| line.starts_with(&start));
    series
        .filter_map(|line| line.rsplit_once(' ')?.1.parse::<u64>().ok())
        .sum()
}

/// The spec of a task for a cluster; for the hub's own where there is none.
pub fn placed(cluster: Option<&str>) -> Value {
    cluster.map_or_else(|| json!({}), |name| json!({"clusterName": name}))
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;
    use renderhub::base::metrics::Metrics;
    use renderhub::base::metrics::clusters::label;

    use super::*;

    #[test]
    fn clusters_are_counted_in_metrics_as_the_hub_writes_them() {
        let (metrics, registry) = Metrics::new();
        for (name, is_connected, reconnects) in [("a", 1, 3), ("b", 0, 0), ("c", 1, 2)] {
            metrics
                .clusters
                .connected
                .get_or_create(&label(name))
                .set(is_connected);
            metrics
                .clusters
                .reconnects
                .get_or_create(&label(name))
                .inc_by(reconnects);
        }
        let mut text = String::new();
        encode(&mut text, &registry).unwrap();
        assert_eq!((connected(&text), total(&text, "cluster_reconnects")), (2, 5));
    }
}
