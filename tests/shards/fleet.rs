//! The hubs' cluster, two clusters more that render for them, and their tenants.

use anyhow::{Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{Api, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::labels::FINALIZER;
use renderhub_harness::audit::Mark;
use renderhub_harness::{ControlPlane, Remote, apply, wait_for};
use serde_json::{Value, json};

use support::away::another;
use support::plane::own_plane;
use support::{CANARY, LIMIT, shop_task};

/// How many clusters there are besides the hubs' own.
const REMOTES: usize = 2;
/// Requests of the test in flight.
pub const AT_ONCE: usize = 16;
/// Name of the registry that every task pushes to.
const REGISTRY: &str = "registry";

/// A cluster that Jobs run on.
pub struct Site {
    /// Name of the `RenderCluster`; `None` is the hubs' own cluster.
    pub cluster: Option<String>,
    /// Its control plane.
    pub plane: &'static ControlPlane,
    /// A client that may do everything there.
    pub admin: Client,
    /// Where the Jobs are.
    pub namespace: String,
    /// Where its audit log was when the test began.
    pub start: Mark,
}

/// The ground that the hubs run on.
pub struct Fleet {
    pub admin: Client,
    pub rendering: String,
    pub namespaces: Vec<String>,
    /// The hubs' own cluster, and the others.
    pub sites: Vec<Site>,
}

impl Fleet {
    /// Starts the control planes and makes everything but hubs and tasks.
    pub async fn new(namespaces: usize) -> Result<Self> {
        // As the chart installs it: the API server sets the finalizer.
        let (plane, first, second) =
            tokio::try_join!(own_plane(&["crds", "policies"]), another(), another())?;
        let admin = plane.admin().client().await?;
        let rendering = plane.rendering_namespace("rendering").await?;
        let names = stream::iter(0..namespaces)
            .map(|_| plane.namespace("team"))
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        let own = Site {
            cluster: None,
            plane,
            admin: admin.clone(),
            namespace: rendering.clone(),
            start: plane.audit()?.mark().await?,
        };
        let mut fleet = Self {
            admin,
            rendering,
            namespaces: names,
            sites: vec![own],
        };
        fleet.make_platform().await?;
        for plane in [first, second] {
            // They end with the process.
            let site = fleet.register(Box::leak(Box::new(plane))).await?;
            fleet.sites.push(site);
        }
        fleet.until_policies_are_in_force().await?;
        ensure!(fleet.sites.len() == 1 + REMOTES, "a site is missing");
        Ok(fleet)
    }

    async fn make_platform(&self) -> Result<()> {
        let group = "renderhub.dev/v1alpha1";
        let object = |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name, "namespace": self.rendering}});
        let mut push = object("Secret", "push");
        push["type"] = json!("kubernetes.io/basic-auth");
        push["stringData"] = json!({"username": "pusher", "password": CANARY});
        let registry = json!({
            "apiVersion": group, "kind": "ClusterRegistry", "metadata": {"name": REGISTRY},
            "spec": {
                "hostname": "registry.test:5000", "pushSecretRef": {"name": "push"}, "allowedNamespaces": ["*"],
                // It is nowhere; what it must confirm has tests of its own.
                "verify": "None",
            },
        });
        for object in [object("ServiceAccount", "renderhub-renderer"), push, registry] {
            apply::object(&self.admin, object).await?;
        }
        Ok(())
    }

    /// Registers another cluster with the hubs.
    async fn register(&self, plane: &'static ControlPlane) -> Result<Site> {
        let remote = Remote::make(plane, "renders").await?;
        let name = remote.namespace.clone();
        let kubeconfig = remote.kubeconfig().await?;
        let mut cluster = remote.render_cluster(&name, &name);
        cluster["spec"]["registries"] = json!([REGISTRY]);
        // What is tried here is who does what, not how fast it may be done.
        cluster["spec"]["qps"] = json!(1000);
        cluster["spec"]["burst"] = json!(1000);
        for object in [remote.secret(&self.rendering, &name, &kubeconfig), cluster] {
            apply::object(&self.admin, object).await?;
        }
        Ok(Site {
            cluster: Some(name),
            plane,
            admin: plane.admin().client().await?,
            namespace: remote.namespace,
            start: plane.audit()?.mark().await?,
        })
    }

    /// Waits until the API server sets the finalizer, so that it does so for every task.
    async fn until_policies_are_in_force(&self) -> Result<()> {
        let dry_run = PostParams {
            dry_run: true,
            ..PostParams::default()
        };
        let task: RenderTask = serde_json::from_value(self.task(0))?;
        let api = self.tasks(&self.namespaces[0]);
        wait_for("the admission policies", LIMIT * 2, async || {
            let made = api.create(&dry_run, &task).await?;
            Ok(made.finalizers().iter().any(|f| f == FINALIZER).then_some(()))
        })
        .await
    }

    // === tasks ===

    pub fn tasks(&self, namespace: &str) -> Api<RenderTask> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// The namespace of the task with this number.
    pub fn namespace_of(&self, number: usize) -> &str {
        &self.namespaces[number % self.namespaces.len()]
    }

    /// Where the task with this number is to run: the sites in rotation, in each namespace.
    pub fn site_of(&self, number: usize) -> usize {
        number / self.namespaces.len() % self.sites.len()
    }

    fn task(&self, number: usize) -> Value {
        let namespace = self.namespace_of(number);
        let mut task = shop_task(namespace, REGISTRY, &format!("task-{number}"));
        if let Some(cluster) = &self.sites[self.site_of(number)].cluster {
            task["spec"]["clusterName"] = json!(cluster);
        }
        task
    }

    /// Makes so many tasks as fast as the API server takes them; in the order of their numbers.
    pub async fn submit(&self, tasks: usize) -> Result<Vec<RenderTask>> {
        stream::iter(0..tasks)
            .map(|number| async move {
                let task: RenderTask = serde_json::from_value(self.task(number))?;
                let tasks = self.tasks(self.namespace_of(number));
                anyhow::Ok(tasks.create(&PostParams::default(), &task).await?)
            })
            .buffered(AT_ONCE)
            .try_collect()
            .await
    }
}
