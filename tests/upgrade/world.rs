//! Two clusters with a node each, the images of both releases on them, a registry, and helm.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use kube::{Api, Client};
use renderhub::api::conditions::{ConditionType, is_true};
use renderhub::api::{ClusterRegistry, RenderCluster};
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::image::Image;
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{AuditLevel, ControlPlane, Earlier, Node, Remote, apply, rundir, wait_for};
use serde_json::json;

use crate::front::Front;
use support::programs;

pub const HUB: &str = "renderhub-system";
pub const RENDERING: &str = "renderhub-rendering";
pub const TENANT: &str = "team-a";
/// The other cluster's name on the hub.
pub const EDGE: &str = "edge";
/// Longest that anything may take on a machine that is busy with other tests.
pub const LIMIT: Duration = Duration::from_secs(180);

/// The hub's cluster and another one, each with a node.
pub struct World {
    _nodes: [Node; 2],
    pub registry: Registry,
    /// The way to it that pods take.
    pub way: Front,
    /// A registry that wants no password, as a tenant may have one.
    pub open: Registry,
    pub open_way: Front,
    helm: Helm,
    pub plane: ControlPlane,
    pub edge: ControlPlane,
    /// Where Jobs run on the other cluster.
    pub edge_namespace: String,
    pub admin: Client,
    earlier: Earlier,
}

impl World {
    /// Starts all of it, with the images of both releases, and installs nothing.
    pub async fn start() -> Result<Self> {
        // First, because it is what a machine may lack.
        let earlier = Earlier::ensure()?;
        let start = async || -> Result<(ControlPlane, Node)> {
            let builder = ControlPlane::builder().with_node_network();
            let plane = builder.with_audit(AuditLevel::Metadata).start().await?;
            let node = Node::start(&plane).await?;
            Ok((plane, node))
        };
        let ((plane, node), (edge, edge_node)) = tokio::try_join!(start(), start())?;
        import(&earlier, &node, &edge_node)?;
        let options = || RegistryOptions::new().with_address(node.registry_address());
        let registry = Registry::start(options()).await?;
        let way = Front::before(registry.address()).await?;
        let open = Registry::start(options().with_anonymous_access()).await?;
        let open_way = Front::before(open.address()).await?;
        let helm = Helm::new()?.with_cluster(plane.admin().kubeconfig()?);
        let admin = plane.admin().client().await?;
        let edge_namespace = Remote::make(&edge, "renders").await?.namespace;
        Ok(Self {
            _nodes: [node, edge_node],
            registry,
            way,
            open,
            open_way,
            helm,
            plane,
            edge,
            edge_namespace,
            admin,
            earlier,
        })
    }

    /// With its default values; only its version is another, which images and chart of both releases share.
    pub async fn install_the_earlier_release(&self) -> Result<()> {
        let into = rundir::fresh("earlier")?;
        let (chart, to) = (text_of(&self.earlier.chart())?, text_of(&into)?);
        let version = Earlier::VERSION;
        let package = ["package", &chart, "--version", version, "--app-version", version];
        self.helm
            .run(&[&package[..], &["--destination", &to]].concat())
            .await?;
        let package = text_of(&into.join(format!("renderhub-{version}.tgz")))?;
        let words = [
            "install",
            "renderhub",
            &package,
            "--namespace",
            HUB,
            "--create-namespace",
        ];
        self.helm
            .run(&[&words[..], &["--wait", "--timeout", "2m"]].concat())
            .await?;
        self.hub_is(version).await
    }

    /// Runs `helm upgrade` to this chart; what it prints.
    pub async fn upgrade(&self, words: &[&str]) -> Result<String> {
        let chart = text_of(&helm::renderhub_chart())?;
        let upgrade = ["upgrade", "renderhub", &chart, "--namespace", HUB];
        let said = self.helm.run(&[&upgrade[..], words].concat()).await?;
        if words.contains(&"--wait") {
            self.hub_is(renderhub_harness::image::VERSION).await?;
        }
        Ok(said)
    }

    /// Back to what was installed first.
    pub async fn roll_back(&self) -> Result<()> {
        let words = [
            "rollback",
            "renderhub",
            "1",
            "--namespace",
            HUB,
            "--wait",
            "--timeout",
            "2m",
        ];
        self.helm.run(&words).await?;
        self.hub_is(Earlier::VERSION).await
    }

    /// The hub's Deployment is complete with the image of this version.
    async fn hub_is(&self, version: &str) -> Result<()> {
        let deployments: Api<Deployment> = Api::namespaced(self.admin.clone(), HUB);
        let hub = deployments.get("renderhub").await?;
        let pod = hub.spec.and_then(|spec| spec.template.spec).context("no pod")?;
        let image = pod.containers[0].image.clone().unwrap_or_default();
        ensure!(
            image.ends_with(&format!("renderhub:{version}")),
            "the hub is {image}"
        );
        let status = hub.status.unwrap_or_default();
        ensure!(
            status.updated_replicas == Some(1) && status.ready_replicas == Some(1),
            "helm waited, and the hub is not ready"
        );
        Ok(())
    }

    /// A namespace of tenants, the registry that it may use, and the other cluster, on which one Job may run at a time.
    pub async fn register(&self) -> Result<()> {
        let remote = Remote {
            plane: &self.edge,
            namespace: self.edge_namespace.clone(),
        };
        let mut cluster = remote.render_cluster(EDGE, EDGE);
        cluster["spec"]["allowedNamespaces"] = json!([TENANT]);
        cluster["spec"]["registries"] = json!(["main"]);
        cluster["spec"]["maxActiveJobs"] = json!(1);
        let push = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "push", "namespace": RENDERING },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": self.registry.docker_config_json_for(&self.way.host()) },
        });
        let registry = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": { "name": "main" },
            "spec": {
                "hostname": self.way.host(), "plainHTTP": true, "pushSecretRef": { "name": "push" },
                "allowedNamespaces": [TENANT],
            },
        });
        let namespace = json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": TENANT } });
        let kubeconfig = remote.secret(HUB, EDGE, &remote.kubeconfig().await?);
        for object in [namespace, push, registry, kubeconfig, cluster] {
            apply::object(&self.admin, object).await?;
        }
        self.hub_is_connected().await
    }

    /// The hub that works now has found the registry and the other cluster usable.
    pub async fn hub_is_connected(&self) -> Result<()> {
        let registries: Api<ClusterRegistry> = Api::all(self.admin.clone());
        let clusters: Api<RenderCluster> = Api::all(self.admin.clone());
        wait_for(
            "the registry to be ready and the cluster connected",
            LIMIT,
            async || {
                let registry = registries.get("main").await?.status.unwrap_or_default();
                let cluster = clusters.get(EDGE).await?.status.unwrap_or_default();
                let is_usable = is_true(&registry.conditions, ConditionType::Ready)
                    && is_true(&cluster.conditions, ConditionType::Connected);
                Ok(is_usable.then_some(()))
            },
        )
        .await
    }
}

/// The images of both releases: all on the hub's node, the renderers on the other one too.
fn import(earlier: &Earlier, node: &Node, edge_node: &Node) -> Result<()> {
    let dir = rundir::fresh("images")?;
    let this = Image::renderer(programs::renderer());
    let hubs = [earlier.hub(), Image::hub(programs::hub())];
    // One after the other, because both releases' files have the same names.
    for image in hubs {
        node.import_image(&image.write(&dir)?.tar)?;
    }
    for image in [earlier.renderer(), this] {
        let tar = image.write(&dir)?.tar;
        node.import_image(&tar)?;
        edge_node.import_image(&tar)?;
    }
    Ok(())
}

fn text_of(path: &Path) -> Result<String> {
    Ok(path.to_str().context("a path that is no text")?.to_owned())
}
