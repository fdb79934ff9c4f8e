//! Both gates from end to end: a tenant's own cluster with a real node renders and pushes, and the chart is in the tenant's
//! registry under the digest that the task shows.

#[path = "own_node/pulls.rs"]
mod pulls;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::{ContainerState, Pod};
use kube::api::{Api, ListParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobFailed, JobSucceeded};
use renderhub_harness::image::Image;
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{AuditLevel, ControlPlane, Node, apply, helm, rundir, wait_for};
use serde_json::{Value, json};
use support::own::{CROSS_GATE, OWN_GATE};
use support::programs;
use support::tenant::BUILDER;
use support::{LIMIT, Stage};
use tokio::sync::OnceCell;

/// The tenant's cluster and the tenant's registry beside it.
struct World {
    registry: Registry,
    _node: Node,
    plane: ControlPlane,
}

impl World {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::builder()
            .with_node_network()
            .with_audit(AuditLevel::Metadata)
            .start()
            .await?;
        let node = Node::start(&plane).await?;
        let image = Image::renderer(programs::renderer());
        node.import_image(&image.write(&rundir::fresh("images")?)?.tar)?;
        let options = RegistryOptions::new().with_address(node.registry_address());
        let registry = Registry::start(options).await?;
        Ok(Self {
            registry,
            _node: node,
            plane,
        })
    }
}

async fn world() -> Result<&'static World> {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(World::start).await
}

trait Delivery {
    /// The tenant's registry, with a credential of the tenant's.
    async fn use_registry(&self, registry: &Registry) -> Result<()>;
    /// Waits for the chart, pulls it, and compares its digest with what the task says.
    async fn delivered(&self, task: &RenderTask, world: &World) -> Result<()>;
}

impl Delivery for Stage {
    async fn use_registry(&self, registry: &Registry) -> Result<()> {
        let tenant = &self.scope.tenant;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
            "metadata": {"name": "own-push", "namespace": tenant},
            "stringData": {"username": registry.username(), "password": registry.password()},
        });
        apply::object(&self.admin, secret).await?;
        let registry = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "Registry", "metadata": {"name": "own", "namespace": tenant},
            "spec": {"hostname": registry.host(), "plainHTTP": true, "pushSecretRef": {"name": "own-push"}},
        });
        apply::object(&self.admin, registry).await?;
        Ok(())
    }

    async fn delivered(&self, task: &RenderTask, world: &World) -> Result<()> {
        let status = self.condition(task, JobSucceeded, "True", "JobSucceeded").await?;
        let digest = status.digest.context("the task shows no digest")?;
        let registry = &world.registry;
        let helm =
            helm::Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())?;
        let url = format!("oci://{}/{}/shop", registry.host(), self.scope.tenant);
        let chart = helm.pull_plain(&url, "1.0.0", &rundir::fresh("pulled")?).await?;
        ensure!(chart.join("Chart.yaml").is_file(), "no chart was pulled");
        ensure!(
            registry.log().contains(&digest),
            "the registry knows another digest"
        );
        Ok(())
    }
}

/// Waits until no pod is left.
async fn nothing_is_left(world: &World, namespace: &str) -> Result<()> {
    let admin = world.plane.admin().client().await?;
    let pods: Api<Pod> = Api::namespaced(admin, namespace);
    wait_for("the pods of the tenant's cluster to go", LIMIT, async || {
        let left = pods.list_metadata(&ListParams::default()).await?.items.len();
        Ok((left == 0).then_some(()))
    })
    .await
}

/// Holds: C2, I4.
#[tokio::test]
async fn a_tenants_own_cluster_renders_and_pushes() -> Result<()> {
    let world = world().await?;
    let stage = Stage::with_builder("node", &[OWN_GATE]).await?;
    stage.use_registry(&world.registry).await?;
    let cluster = stage.bring(&world.plane, &stage.scope.tenant).await?;
    let there = &cluster.remote.namespace;
    let task = stage.submit_own("shop", there, json!({})).await?;
    stage.delivered(&task, world).await?;
    cluster.cleared(&task).await?;
    nothing_is_left(world, there).await?;
    stage.passed();
    Ok(())
}

/// Holds: C2, T9.
#[tokio::test]
async fn a_kubeconfig_that_was_lent_leads_to_a_cluster_that_renders_and_pushes() -> Result<()> {
    let world = world().await?;
    let flags = [CROSS_GATE, "--no-cross-namespace-refs=false"];
    let mut stage = Stage::with_builder("lent", &flags).await?;
    stage.use_registry(&world.registry).await?;
    let owner = stage.plane.namespace("owner").await?;
    stage.also_watch(&owner).await?;
    stage.restart_hub().await?;
    stage.lend(&owner).await?;
    let cluster = stage.bring(&world.plane, &owner).await?;
    let named: Value = json!({"kubeConfig": {"secretRef": {"name": "own-cluster", "namespace": owner}}});
    let task = stage.submit_own("shop", &cluster.remote.namespace, named).await?;
    stage.delivered(&task, world).await?;
    cluster.cleared(&task).await?;
    stage.passed();
    Ok(())
}

/// Waits until the renderer of the only pod there runs: its chart is rendered, and it is to be pushed.
async fn until_pushing(world: &World, namespace: &str) -> Result<()> {
    let admin = world.plane.admin().client().await?;
    let pods: Api<Pod> = Api::namespaced(admin, namespace);
    wait_for("the pod to push", LIMIT, async || {
        let pods = pods.list(&ListParams::default()).await?.items;
        let statuses = pods.iter().filter_map(|pod| pod.status.as_ref());
        let mut containers = statuses.flat_map(|status| status.container_statuses.iter().flatten());
        let is_running = |state: &ContainerState| state.running.is_some();
        Ok(containers
            .any(|c| c.state.as_ref().is_some_and(is_running))
            .then_some(()))
    })
    .await
}

/// Holds: B33.
#[tokio::test]
async fn a_job_that_was_given_up_pushes_nothing_once_its_cluster_is_back() -> Result<()> {
    let world = World::start().await?;
    let stage = Stage::with_builder("given-up", &["--cluster-lost-timeout=2s"]).await?;
    stage.use_registry(&world.registry).await?;
    let cluster = stage.register(&world.plane, json!({})).await?;
    let there = cluster.remote.namespace.clone();
    world.registry.freeze()?;
    let spec = json!({
        "clusterName": cluster.name, "serviceAccountName": BUILDER,
        "registryRef": {"kind": "Registry", "name": "own"},
    });
    let task = stage.submit_with("shop", spec).await?;
    until_pushing(&world, &there).await?;
    world.plane.stop_api_server()?;
    stage.condition(&task, JobFailed, "True", "JobLost").await?;
    world.plane.start_api_server().await?;
    cluster.cleared(&task).await?;
    nothing_is_left(&world, &there).await?;
    world.registry.thaw()?;
    let registry = &world.registry;
    let helm = helm::Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())?;
    let url = format!("oci://{}/{}/shop", registry.host(), stage.scope.tenant);
    let pulled = helm.pull_plain(&url, "1.0.0", &rundir::fresh("pulled")?).await;
    ensure!(pulled.is_err(), "the chart was pushed after its task had failed");
    // It answers, and nothing was written.
    let log = registry.log();
    ensure!(log.contains("/v2/") && !log.contains("PUT "), "{log}");
    stage.passed();
    Ok(())
}
