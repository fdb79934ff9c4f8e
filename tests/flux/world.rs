//! Two clusters with a node each: the hub's renders, Flux on the other installs. A registry with a password is between them.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use renderhub::api::ReferenceGrant;
use renderhub::api::pipeline::{HydratedTarget, ReleaseBinding, Target};
use renderhub_harness::helm::Helm;
use renderhub_harness::image::Image;
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{AuditLevel, ControlPlane, Flux, Node, apply, flux, rundir, wait_for};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use crate::support::Stage;
use crate::support::plane::crds;

/// Longest that a change takes from a tenant's write to the pod; Flux asks for a new chart every two seconds, and backs off to
/// half a minute.
pub const LIMIT: Duration = Duration::from_secs(240);
/// The image of the app.
const IMAGE: &str = "renderhub.test/app:1";
/// Secret on the target cluster that charts are pulled with.
const PULL_SECRET: &str = "pull";

/// Both clusters, the registry, and Flux; they end when they are dropped, pods first.
pub struct World {
    pub registry: Registry,
    _flux: Flux,
    _hub_node: Node,
    target_node: Node,
    pub hub_plane: ControlPlane,
    pub target_plane: ControlPlane,
}

/// The world of this test binary.
pub async fn world() -> Result<&'static World> {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(World::start).await
}

impl World {
    async fn start() -> Result<Self> {
        let builder = ControlPlane::builder().with_node_network();
        let hub_plane = builder.with_audit(AuditLevel::Metadata).start().await?;
        for file in crds()? {
            hub_plane.apply_file(&file).await?;
        }
        let hub_node = Node::start(&hub_plane).await?;
        let renderer = env!("CARGO_BIN_EXE_renderhub-renderer");
        hub_node.import_image(&Image::renderer(renderer).write(&rundir::fresh("images")?)?.tar)?;
        let target_plane = ControlPlane::builder().with_node_network().start().await?;
        let target_node = Node::start(&target_plane).await?;
        let app = Image::new(IMAGE, renderer, "unused")
            .with_file("bin/busybox", Node::busybox()?)
            .with_file("app.sh", sources().join("app.sh"));
        target_node.import_image(&app.write(&rundir::fresh("images")?)?.tar)?;
        let options = RegistryOptions::new().with_address(hub_node.registry_address());
        let registry = Registry::start(options).await?;
        let world = Self {
            _flux: Flux::start(&target_plane).await?,
            registry,
            _hub_node: hub_node,
            target_node,
            hub_plane,
            target_plane,
        };
        world.push_app("1.0.0").await?;
        world.push_app("2.0.0").await?;
        Ok(world)
    }

    pub fn helm(&self) -> Result<Helm> {
        Helm::new()?.with_login(
            &self.registry.host(),
            self.registry.username(),
            self.registry.password(),
        )
    }

    /// Pushes a version of the app's chart.
    async fn push_app(&self, version: &str) -> Result<()> {
        let chart = rundir::fresh("app")?.join("app");
        std::fs::create_dir_all(chart.join("templates"))?;
        let about = format!("apiVersion: v2\nname: app\nversion: {version}\nappVersion: {version}\n");
        std::fs::write(chart.join("Chart.yaml"), about)?;
        std::fs::copy(sources().join("app.yaml"), chart.join("templates/app.yaml"))?;
        let (helm, out) = (self.helm()?, rundir::fresh("app")?);
        let words = [Path::new("package"), &chart, Path::new("--destination"), &out];
        helm.run(&words).await?;
        let package = out.join(format!("app-{version}.tgz"));
        let charts = format!("oci://{}/charts", self.registry.host());
        let words = [
            Path::new("push"),
            &package,
            Path::new(&charts),
            Path::new("--plain-http"),
        ];
        helm.run(&words).await.map(drop)
    }

    async fn target_admin(&self) -> Result<Client> {
        self.target_plane.admin().client().await
    }

    /// What the owner of the target cluster does once: a pull Secret, and Flux that follows the Target's chart.
    pub async fn follow(&self, repository: &str) -> Result<()> {
        let client = self.target_admin().await?;
        let metadata = |name: &str| json!({"name": name, "namespace": flux::NAMESPACE});
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": metadata(PULL_SECRET),
            "stringData": {".dockerconfigjson": self.registry.docker_config_json()},
        });
        let source = json!({
            "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository", "metadata": metadata("bootstrap"),
            "spec": {
                "interval": "2s", "url": format!("oci://{}/{repository}", self.registry.host()), "insecure": true,
                "ref": {"semver": ">=0.0.0-0"}, "secretRef": {"name": PULL_SECRET},
                "layerSelector": {
                    "mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy",
                },
            },
        });
        let release = json!({
            "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease", "metadata": metadata("bootstrap"),
            "spec": {"interval": "1m", "chartRef": {"kind": "OCIRepository", "name": "bootstrap"}},
        });
        for object in [secret, source, release] {
            apply::object(&client, object).await?;
        }
        Ok(())
    }

    /// The pods of an app that are not about to go.
    pub async fn app_pods(&self, name: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::all(self.target_admin().await?);
        let of_app = ListParams::default().labels(&format!("app={name}"));
        let mut pods = pods.list(&of_app).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until the only pod of an app says so; returns its UID.
    pub async fn app_says(&self, name: &str, expected: &str) -> Result<String> {
        wait_for(
            &format!("the pod of {name} to say {expected}"),
            LIMIT,
            async || {
                let pods = self.app_pods(name).await?;
                let [pod] = &pods[..] else {
                    return Ok(None);
                };
                let uid = pod.uid().unwrap_or_default();
                Ok(self.said(&uid)?.contains(expected).then_some(uid))
            },
        )
        .await
    }

    /// What a pod has written, read where the kubelet keeps it.
    fn said(&self, uid: &str) -> Result<String> {
        let mut text = String::new();
        for entry in std::fs::read_dir(self.target_node.pod_logs())? {
            let dir = entry?.path();
            let log = dir.join("app/0.log");
            if dir.to_string_lossy().ends_with(uid) && log.is_file() {
                text.push_str(&std::fs::read_to_string(log)?);
            }
        }
        Ok(text)
    }

    /// Waits until an app has no pod.
    pub async fn app_is_gone(&self, name: &str) -> Result<()> {
        wait_for(&format!("the pod of {name} to go"), LIMIT, async || {
            Ok(self.app_pods(name).await?.is_empty().then_some(()))
        })
        .await
    }
}

fn sources() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/flux")
}

/// A tenant of the hub, with a Target.
pub struct Tenant {
    pub stage: Stage,
    /// Another namespace, where versions of components are kept.
    pub shelf: String,
    world: &'static World,
}

impl Tenant {
    /// The tenant and its Target; its hub does not run yet.
    pub async fn new(world: &'static World) -> Result<Self> {
        let flags = ["--pipeline=true", "--no-cross-namespace-refs=false"];
        let mut stage = Stage::on(&world.hub_plane, "flux", &flags).await?;
        let shelf = stage.plane.namespace("shelf").await?;
        stage.also_watch(&shelf).await?;
        let tenant = Self { stage, shelf, world };
        tenant.make_registries().await?;
        let spec = json!({
            "renderRegistryRef": {"kind": "ClusterRegistry", "name": tenant.name()}, "userdata": {"site": "north"},
        });
        tenant.make("Target", "edge", spec).await?;
        let binding = json!({"targetRef": {"name": "edge"}, "registryRef": {"name": "charts"}});
        tenant.make("RegistryBinding", "edge-charts", binding).await?;
        for version in ["1.0.0", "2.0.0"] {
            tenant.make_version(version).await?;
        }
        tenant.grant().await?;
        Ok(tenant)
    }

    pub fn name(&self) -> &str {
        &self.stage.scope.tenant
    }

    /// The platform's registry for charts that are rendered, and what the tenant says of it for the charts that it has there.
    async fn make_registries(&self) -> Result<()> {
        let registry = &self.world.registry;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
            "metadata": {"name": "push", "namespace": self.stage.scope.rendering},
            "stringData": {"username": registry.username(), "password": registry.password()},
        });
        apply::object(&self.stage.admin, secret).await?;
        self.stage
            .put_registry(json!({
                "hostname": registry.host(), "plainHTTP": true, "pushSecretRef": {"name": "push"},
                "targetPullSecretName": PULL_SECRET,
            }))
            .await?;
        let spec = json!({"hostname": registry.host(), "targetPullSecretName": PULL_SECRET});
        self.make("Registry", "charts", spec).await
    }

    async fn make_version(&self, version: &str) -> Result<()> {
        let repository = format!("{}/charts/app", self.world.registry.host());
        let chart = json!({"repository": repository, "tag": version, "insecure": true});
        let spec = json!({
            "componentRef": {"name": "app"}, "tag": version, "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        });
        self.make_in(&self.shelf, "ComponentVersion", &format!("app-{version}"), spec)
            .await
    }

    async fn make(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        self.make_in(self.name(), kind, name, spec).await
    }

    async fn make_in(&self, namespace: &str, kind: &str, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        apply::object(&self.stage.admin, object).await.map(drop)
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<DynamicType = (), Scope = k8s_openapi::NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.admin.clone(), self.name())
    }

    /// Lets Releases of the tenant name the versions on the shelf.
    pub async fn grant(&self) -> Result<()> {
        let from = json!([{"group": "renderhub.dev", "kind": "Release", "namespace": self.name()}]);
        let to = json!([{"group": "renderhub.dev", "kind": "ComponentVersion"}]);
        let spec = json!({"from": from, "to": to});
        self.make_in(&self.shelf, "ReferenceGrant", "tenant", spec).await
    }

    pub async fn revoke(&self) -> Result<()> {
        let grants: Api<ReferenceGrant> = Api::namespaced(self.stage.admin.clone(), &self.shelf);
        grants.delete("tenant", &DeleteParams::default()).await?;
        Ok(())
    }

    /// Releases a version of the app under a name, with a value and what the Target is given.
    pub async fn release(&self, name: &str, version: &str) -> Result<()> {
        let spec = json!({
            "componentVersionRef": {"name": format!("app-{version}"), "namespace": self.shelf},
            "targetNamespace": format!("{name}-here"), "uniqueName": name,
            "values": {"name": name, "greeting": "hello", "site": "{{ .Values.userdata.site }}"},
        });
        self.make("Release", name, spec).await
    }

    /// A chart with a RenderTask, a Release, a Target and a binding of that name.
    pub fn chart(&self, name: &str, registry: &str, version: &str) -> Result<String> {
        let mut task = self.stage.task(name);
        task["spec"]["registryRef"] = json!({"name": registry});
        task["spec"]["repository"] = json!(format!("{}/{name}/shop", self.name()));
        let object = |kind: &str, spec: Value| {
            json!({
                "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
                "metadata": {"name": name, "namespace": self.name()}, "spec": spec,
            })
        };
        let version = json!({"name": version, "namespace": self.shelf});
        let release = object("Release", json!({"componentVersionRef": version}));
        let registry = json!({"kind": "ClusterRegistry", "name": registry});
        let target = object("Target", json!({"renderRegistryRef": registry}));
        let refs = json!({"targetRef": {"name": name}, "releaseRef": {"name": name}});
        let binding = object("ReleaseBinding", refs);
        let chart = rundir::fresh("chart")?.join(name);
        std::fs::create_dir_all(chart.join("templates"))?;
        let about = format!("apiVersion: v2\nname: {name}\nversion: 1.0.0\n");
        std::fs::write(chart.join("Chart.yaml"), about)?;
        for object in [task, release, target, binding] {
            let path = format!("templates/{}.yaml", object["kind"].as_str().unwrap_or_default());
            std::fs::write(chart.join(path), object.to_string())?;
        }
        let chart = chart.to_str().context("the path of the chart is no text")?;
        Ok(chart.to_owned())
    }

    /// Whether a Target is ready right now.
    pub async fn is_ready(&self, target: &str) -> Result<()> {
        let targets: Api<Target> = self.api();
        let status = targets.get(target).await?.status.unwrap_or_default();
        let is_ready = |c: &Condition| c.type_ == "Ready" && c.status == "True";
        ensure!(status.conditions.iter().any(is_ready), "{target} is not ready");
        Ok(())
    }

    pub async fn bind(&self, release: &str) -> Result<()> {
        let spec = json!({"targetRef": {"name": "edge"}, "releaseRef": {"name": release}});
        self.make("ReleaseBinding", release, spec).await
    }

    pub async fn unbind(&self, release: &str) -> Result<()> {
        let bindings: Api<ReleaseBinding> = self.api();
        bindings.delete(release, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn change_target(&self, spec: Value) -> Result<()> {
        let targets: Api<Target> = self.api();
        let patch = Patch::Merge(json!({"spec": spec}));
        targets.patch("edge", &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// The versions of the Target, the oldest first.
    pub async fn versions(&self) -> Result<Vec<HydratedTarget>> {
        let api: Api<HydratedTarget> = self.api();
        let mut all = api.list(&ListParams::default()).await?.items;
        all.sort_by_key(|version| version.spec.version);
        Ok(all)
    }

    /// Kills the hub once something new was begun for the Target, and starts it anew.
    pub async fn crash_amid(&mut self, before: &BTreeSet<String>) -> Result<()> {
        wait_for("another RenderTask", LIMIT, async || {
            Ok((!self.task_uids().await?.is_subset(before)).then_some(()))
        })
        .await?;
        self.stage.restart_hub().await
    }

    pub async fn task_uids(&self) -> Result<BTreeSet<String>> {
        let tasks = self
            .stage
            .tasks()
            .list_metadata(&ListParams::default())
            .await?
            .items;
        Ok(tasks.iter().filter_map(ResourceExt::uid).collect())
    }

    /// Waits until a condition of the Target is so for its newest spec.
    pub async fn target_is(&self, type_: &str, status: &str, reason: &str) -> Result<()> {
        let targets: Api<Target> = self.api();
        wait_for(&format!("edge: {type_}={status} {reason}"), LIMIT, async || {
            let target = targets.get("edge").await?;
            let generation = target.metadata.generation;
            let said = target
                .status
                .filter(|said| said.observed_generation == generation);
            let conditions = said.map(|said| said.conditions).unwrap_or_default();
            let is_so = |c: &Condition| c.type_ == type_ && c.status == status && c.reason == reason;
            Ok(conditions.iter().any(is_so).then_some(()))
        })
        .await
    }
}
