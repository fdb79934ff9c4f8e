//! Two clusters with a node each: the hub's renders, Flux on the other installs. A registry with a password is between them.

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Resource;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use renderhub::api::ReferenceGrant;
use renderhub::api::pipeline::{HydratedTarget, ReleaseBinding, Target};
use renderhub_harness::helm::Helm;
use renderhub_harness::image::Image;
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::target::{LIMIT, PULL_SECRET, TargetCluster, push_app};
use renderhub_harness::{AuditLevel, ControlPlane, Node, apply, kstatus, rundir, wait_for};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use support::Stage;
use support::plane::crds;
use support::programs;
use support::proxy::{Proxy, Stop, Write};

/// Both clusters and the registry; they end when they are dropped, pods first.
pub struct World {
    pub registry: Registry,
    pub cluster: TargetCluster,
    _hub_node: Node,
    pub hub_plane: ControlPlane,
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
        let renderer = Image::renderer(programs::renderer());
        hub_node.import_image(&renderer.write(&rundir::fresh("images")?)?.tar)?;
        let options = RegistryOptions::new().with_address(hub_node.registry_address());
        let registry = Registry::start(options).await?;
        let world = Self {
            registry,
            cluster: TargetCluster::start().await?,
            _hub_node: hub_node,
            hub_plane,
        };
        for version in ["1.0.0", "2.0.0"] {
            push_app(&world.helm()?, &world.registry, version).await?;
        }
        Ok(world)
    }

    pub fn helm(&self) -> Result<Helm> {
        let registry = &self.registry;
        Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())
    }
}

/// A tenant of the hub, with a Target.
pub struct Tenant {
    stage: Stage,
    /// Another namespace, where versions of components are kept.
    shelf: String,
    world: &'static World,
    /// Between the hub and its API server.
    proxy: Option<Proxy>,
    /// Where the hub is to be stopped, and how many writes it had sent when that was said.
    stop: (Stop, usize),
    /// Whether a hub before this one was killed in the middle of something.
    was_killed: bool,
}

impl Tenant {
    /// The tenant and its Target; its hub does not run yet.
    pub async fn new(world: &'static World) -> Result<Self> {
        let flags = ["--pipeline=true", "--no-cross-namespace-refs=false"];
        let mut stage = Stage::on(&world.hub_plane, "flux", &flags).await?;
        let shelf = stage.plane.namespace("shelf").await?;
        stage.also_watch(&shelf).await?;
        let tenant = Self {
            stage,
            shelf,
            world,
            proxy: None,
            stop: (Stop::After, 0),
            was_killed: false,
        };
        tenant.make_registries().await?;
        let spec = json!({
            "renderRegistryRef": {"kind": "ClusterRegistry", "name": tenant.name()}, "userdata": {"site": "north"},
        });
        tenant.make("Target", "edge", spec).await?;
        let binding = json!({"targetRef": {"name": "edge"}, "registryRef": {"name": "charts"}});
        tenant.make("RegistryBinding", "edge-charts", binding).await?;
        tenant.make_version("1.0.0").await?;
        tenant.grant().await?;
        Ok(tenant)
    }

    pub fn name(&self) -> &str {
        &self.stage.scope.tenant
    }

    /// Starts a hub behind a proxy, and waits until it is ready.
    pub async fn start_hub(&mut self) -> Result<()> {
        let proxy = Proxy::start(self.stage.hub_user.client().await?).await?;
        let hub = self.stage.spawn_hub(&proxy.kubeconfig()?)?;
        hub.wait_ready().await?;
        self.stage.hub = Some(hub);
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Stops the hub at the first write of this kind from now on.
    pub fn stop_at(&mut self, stop: Stop, is_it: fn(&Write) -> bool) -> Result<()> {
        self.went_on()?;
        let proxy = self.proxy.as_ref().context("no hub runs")?;
        self.stop = (stop, proxy.writes().len());
        proxy.stop_when(stop, move |_, write| is_it(write));
        Ok(())
    }

    /// Kills the hub with SIGKILL once it is stopped at that write, which is returned: the change was begun by then.
    pub async fn killed(&mut self) -> Result<Write> {
        let proxy = self.proxy.take().context("no hub runs")?;
        let write = proxy.stopped_within(LIMIT).await?;
        self.stage.kill_hub();
        let (stop, before) = self.stop;
        let done = proxy.writes().len() - usize::from(stop == Stop::Before);
        ensure!(done > before, "the hub was killed before it had begun");
        self.was_killed = true;
        Ok(write)
    }

    /// Whether a killed hub left something to do to the one that runs now: a hub that finds all done writes nothing.
    fn went_on(&mut self) -> Result<()> {
        let writes = self.proxy.as_ref().context("no hub runs")?.writes();
        let is_so = !std::mem::take(&mut self.was_killed) || !writes.is_empty();
        ensure!(is_so, "the hub was killed when it had ended");
        Ok(())
    }

    /// Ends the test, as [`Stage::passed`].
    pub fn passed(mut self) -> Result<()> {
        self.went_on()?;
        self.stage.passed();
        Ok(())
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

    /// Puts a version of the app on the shelf.
    pub async fn make_version(&self, version: &str) -> Result<()> {
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
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
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

    /// A chart with a RenderTask, a Release, a Target and a binding of that name; or one of which nothing can be rendered.
    pub fn chart(&self, name: &str, is_sound: bool) -> Result<String> {
        let none = "none-of-that-name";
        let (registry, version, prefix) = if is_sound {
            (self.name(), "app-1.0.0", self.name())
        } else {
            (none, none, "not-of-this-tenant")
        };
        let mut task = self.stage.task(name);
        task["spec"]["repository"] = json!(format!("{prefix}/{name}/shop"));
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

    /// Whether Flux makes this of an object's status.
    pub async fn is_for_flux<K>(&self, name: &str, expected: &str) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        let resource = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::namespaced_with(self.stage.admin.clone(), self.name(), &resource);
        let object = api.get(name).await?;
        let found = kstatus::of(&object).await?;
        ensure!(
            found == expected,
            "{} {name} is {found}: {}",
            resource.kind,
            object.data["status"]
        );
        Ok(())
    }

    /// Submits a task that any hub of the tenant would serve.
    pub async fn submit(&self, name: &str) -> Result<()> {
        self.stage.submit(self.stage.task(name)).await.map(drop)
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
