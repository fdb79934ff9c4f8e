//! One test's world: a hub of loops in this process, with a control plane to keep and another one to reach.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::{Namespace, Secret};
use k8s_openapi::api::rbac::v1::PolicyRule;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Client;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use prometheus_client::registry::Registry as Shown;
use renderhub::api::names::HubId;
use renderhub::api::{RenderCluster, RenderClusterStatus, RendererClassSpec, custom_resource_definitions};
use renderhub::base::metrics::Metrics;
use renderhub::controllers::clusters::{ClusterController, ClusterControllerLimits, ClusterControllerParts};
use renderhub::controllers::platform::{CatalogController, PublishedCatalog};
use renderhub::kubernetes::apply::HubClient;
use renderhub::kubernetes::events::EventRecorder;
use renderhub::kubernetes::tenant::TenantSessions;
use renderhub::kubernetes::watch::{ReceivedEvent, TaskWatchEvent};
use renderhub::plan::platform::identity_method::IdentityMethod;
use renderhub::plan::remote::address::AddressPolicy;
use renderhub::plan::remote::health::ConnectionTiming;
use renderhub::plan::remote::site::{Site, SiteState};
use renderhub::remote::SiteRequest;
use renderhub::remote::client::RemoteClientSettings;
use renderhub::remote::connection_registry::{ConnectionRegistry, ConnectionSettings};
use renderhub::remote::limits::RemoteClientLimits;
use renderhub::remote::memory_budget::MemoryBudget;
use renderhub::remote::resolve::Resolver;
use renderhub_harness::{AuditLevel, ControlPlane, Identity, apply, wait_for};
use serde_json::{Value, json};
use tokio::sync::{MutexGuard, OnceCell, mpsc, watch};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::kubeconfigs::put_secret;
use support::api::{GRANTED_KINDS, PLATFORM_KINDS};
use support::claim::claimed;

/// Longest that anything may take that normally takes moments.
pub const LIMIT: Duration = Duration::from_secs(60);

/// One hub at a time: each sees all `RenderClusters`.
static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
static PLANES: OnceCell<(ControlPlane, ControlPlane)> = OnceCell::const_new();

type States = Arc<Mutex<HashMap<Arc<Site>, SiteState>>>;

/// What runs.
pub struct Running {
    registry: ConnectionRegistry,
    pub wants: mpsc::UnboundedSender<SiteRequest>,
    pub catalog: watch::Receiver<PublishedCatalog>,
    pub active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    pub states: States,
    pub metrics: Metrics,
    pub shown: Arc<Shown>,
    stop: CancellationToken,
    loops: JoinSet<()>,
}

/// A hub between two control planes.
pub struct World {
    pub hub: &'static ControlPlane,
    pub remote: &'static ControlPlane,
    /// Administrator of the hub's cluster.
    pub admin: Client,
    /// The hub's own user.
    pub hub_user: Identity,
    /// Namespace of kubeconfigs.
    pub namespace: String,
    /// Namespace of Jobs on the other cluster.
    pub jobs: String,
    limits: ClusterControllerLimits,
    pub running: Running,
    _turn: MutexGuard<'static, ()>,
}

async fn planes() -> Result<&'static (ControlPlane, ControlPlane)> {
    let start = || {
        ControlPlane::builder()
            .with_audit(AuditLevel::Metadata)
            .without_job_controller()
            .start()
    };
    PLANES
        .get_or_try_init(|| async {
            let (hub, remote) = tokio::try_join!(start(), start())?;
            let admin = hub.admin().client().await?;
            for crd in custom_resource_definitions() {
                apply::object(&admin, serde_json::to_value(crd)?).await?;
            }
            // The account of a tenant's kubeconfig may watch Jobs there.
            let group = "rbac.authorization.k8s.io";
            let of_accounts = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
                "metadata": {"name": "accounts-render"},
                "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "edit"},
                "subjects": [{"apiGroup": group, "kind": "Group", "name": "system:serviceaccounts"}]});
            apply::object(&remote.admin().client().await?, of_accounts).await?;
            Ok((hub, remote))
        })
        .await
}

fn rule(groups: &[&str], resources: &[&str], verbs: &[&str]) -> PolicyRule {
    let all = |words: &[&str]| words.iter().map(ToString::to_string).collect::<Vec<_>>();
    PolicyRule {
        api_groups: Some(all(groups)),
        resources: Some(all(resources)),
        verbs: all(verbs),
        ..PolicyRule::default()
    }
}

impl World {
    pub async fn new() -> Result<Self> {
        Self::with_limits(ClusterControllerLimits::default()).await
    }

    pub async fn with_limits(limits: ClusterControllerLimits) -> Result<Self> {
        let turn = TURN.lock().await;
        let (hub, remote) = planes().await?;
        let admin = hub.admin().client().await?;
        // What a test that failed has left behind.
        delete_clusters(&admin).await?;
        let ours: Vec<_> = PLATFORM_KINDS.iter().map(String::as_str).collect();
        let statuses: Vec<_> = GRANTED_KINDS
            .iter()
            .map(|kind| format!("{kind}/status"))
            .collect();
        let statuses: Vec<_> = statuses.iter().map(String::as_str).collect();
        let rules = vec![
            rule(&["renderhub.dev"], &ours, &["list", "watch"]),
            rule(&["renderhub.dev"], &statuses, &["patch"]),
            rule(&[""], &["namespaces"], &["list", "watch"]),
            rule(&[""], &["secrets"], &["get", "list", "watch"]),
            rule(&[""], &["serviceaccounts/token"], &["create"]),
            rule(&["events.k8s.io"], &["events"], &["create"]),
        ];
        let hub_user = hub.user_with_rules("hub", rules).await?;
        let namespace = hub.namespace("clusters").await?;
        let running = start(hub, &hub_user, &namespace, limits).await?;
        Ok(Self {
            hub,
            remote,
            admin,
            hub_user,
            namespace,
            jobs: remote.namespace("jobs").await?,
            limits,
            running,
            _turn: turn,
        })
    }

    /// Ends the loops and starts others.
    pub async fn restart(&mut self) -> Result<()> {
        self.end().await;
        self.running = start(self.hub, &self.hub_user, &self.namespace, self.limits).await?;
        Ok(())
    }

    async fn end(&mut self) {
        self.running.stop.cancel();
        self.running.loops.shutdown().await;
        self.running.registry.shutdown().await;
    }

    /// The test has passed: nothing was refused to the hub's user, and nothing of the test stays.
    pub async fn passed(mut self) -> Result<()> {
        self.end().await;
        delete_clusters(&self.admin).await?;
        let refused = self.hub.audit()?.refused(self.hub_user.name())?;
        assert!(refused.is_empty(), "{refused:#?}");
        Ok(())
    }

    pub fn registry(&self) -> &ConnectionRegistry {
        &self.running.registry
    }

    /// A name of this test's own.
    pub fn name(&self, name: &str) -> String {
        format!("{name}-{}", &self.namespace[self.namespace.len() - 8..])
    }

    /// A user of the other cluster with what the hub needs there, and no more.
    pub async fn user(&self, name: &str) -> Result<Identity> {
        let rules = vec![
            rule(
                &["batch"],
                &["jobs"],
                &["list", "watch", "get", "create", "delete"],
            ),
            rule(&[""], &["secrets"], &["get", "list", "create", "delete"]),
            rule(&[""], &["namespaces"], &["get"]),
            rule(&[""], &["serviceaccounts"], &["impersonate"]),
        ];
        self.remote.user_with_rules(name, rules).await
    }

    fn clusters(&self) -> Api<RenderCluster> {
        Api::all(self.admin.clone())
    }

    pub fn secrets(&self) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// Makes or changes a cluster whose kubeconfig is in this Secret; `more` is laid over its spec.
    pub async fn put_cluster(&self, name: &str, secret: &str, more: Value) -> Result<()> {
        let mut cluster = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
            "spec": {"kubeConfig": {"secretRef": {"name": secret}}, "renderNamespace": self.jobs},
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            cluster["spec"][key] = value.clone();
        }
        apply::object(&self.admin, cluster).await.map(drop)
    }

    pub async fn delete_cluster(&self, name: &str) -> Result<()> {
        self.clusters().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Makes a Secret hold this key and no other.
    pub async fn put_secret(&self, name: &str, key: &str, value: &str) -> Result<()> {
        put_secret(&self.admin, &self.namespace, name, key, value).await
    }

    pub async fn patch_secret(&self, name: &str, patch: Value) -> Result<()> {
        let patch = Patch::Merge(patch);
        self.secrets()
            .patch_metadata(name, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }

    pub async fn delete_secret(&self, name: &str) -> Result<()> {
        self.secrets().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn status(&self, name: &str) -> Result<RenderClusterStatus> {
        Ok(self.clusters().get(name).await?.status.unwrap_or_default())
    }

    /// Waits until the cluster's condition is so.
    pub async fn until_connected_is(&self, name: &str, status: &str, reason: &str) -> Result<Condition> {
        wait_for(&format!("{name} to be {reason}"), LIMIT, async || {
            // Untyped, because one of them is not what the type says.
            let found: Value = serde_json::to_value(self.untyped().get(name).await?)?;
            let conditions: Vec<Condition> = serde_json::from_value(found["status"]["conditions"].clone())
                .context(found["status"].to_string())?;
            let connected = conditions.into_iter().find(|c| c.type_ == "Connected");
            let connected = connected.context("it says nothing")?;
            let is_so = connected.status == status && connected.reason == reason;
            anyhow::ensure!(
                is_so,
                "{} {}: {}",
                connected.status,
                connected.reason,
                connected.message
            );
            Ok(Some(connected))
        })
        .await
    }

    fn untyped(&self) -> Api<DynamicObject> {
        untyped(&self.admin)
    }

    /// Makes a cluster hold what the type does not understand, as another version of the definitions may let it.
    pub async fn break_cluster(&self, name: &str) -> Result<()> {
        let definitions: Api<DynamicObject> = Api::all_with(
            self.admin.clone(),
            &ApiResource::erase::<
                k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
            >(&()),
        );
        let loose = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
        let patch = json!([
            {"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": loose},
        ]);
        let patch = Patch::Json::<()>(serde_json::from_value(patch)?);
        definitions
            .patch("renderclusters.renderhub.dev", &PatchParams::default(), &patch)
            .await?;
        let broken = Patch::Merge(json!({"spec": {"kubeConfig": 7}}));
        wait_for("the definition to be loose", LIMIT, async || {
            self.untyped()
                .patch(name, &PatchParams::default(), &broken)
                .await?;
            Ok(Some(()))
        })
        .await?;
        for crd in custom_resource_definitions() {
            apply::object(&self.admin, serde_json::to_value(crd)?).await?;
        }
        Ok(())
    }
}

async fn start(
    hub: &ControlPlane,
    user: &Identity,
    namespace: &str,
    limits: ClusterControllerLimits,
) -> Result<Running> {
    let client = user.client().await?;
    let system: Api<Namespace> = Api::all(hub.admin().client().await?);
    let system = system
        .get_metadata("kube-system")
        .await?
        .metadata
        .uid
        .context("it has a UID")?;
    let (metrics, shown) = Metrics::new();
    let hub_id = HubId::new("test", &system)?;
    let client_settings = RemoteClientSettings {
        guard: Arc::new(AddressPolicy {
            allowed: vec!["127.0.0.0/8".parse()?],
            denied: Vec::new(),
        }),
        resolver: Resolver::system()?,
        limits: Arc::new(RemoteClientLimits::default()),
        memory_budget: MemoryBudget::default(),
        fence: claimed().0,
    };
    let settings = ConnectionSettings {
        hub_id: hub_id.clone(),
        client: client_settings,
        own_namespaces: Arc::new(move |name| (name == "kube-system").then(|| system.clone())),
        timing: ConnectionTiming::since(Instant::now()),
    };
    let (inputs, mut seen) = mpsc::channel(64);
    let (report, reports) = mpsc::channel(64);
    let (wants, site_requests) = mpsc::unbounded_channel();
    let (active, jobs) = watch::channel(Arc::default());
    let (publish, catalog) = watch::channel(None);
    let registry = ConnectionRegistry::new(settings, metrics.clone(), inputs, report);
    let calls = HubClient::new(client.clone(), metrics.clone(), namespace.to_owned(), hub_id);
    let nobody = hub.anonymous().client().await?;
    let sessions = TenantSessions::new(
        client.clone(),
        nobody,
        IdentityMethod::Token,
        false,
        metrics.clone(),
    );
    let (events, send_events) =
        EventRecorder::new(client.clone(), claimed().0, "test".to_owned(), metrics.clone());
    let clusters = ClusterController::new(ClusterControllerParts {
        client: client.clone(),
        hub_client: calls.clone(),
        namespace: namespace.to_owned(),
        sessions: Arc::new(sessions),
        registry: registry.clone(),
        metrics: metrics.clone(),
        events,
        limits,
        catalog: catalog.clone(),
        active: jobs,
        site_requests,
        reports,
    });
    let (stop, states) = (CancellationToken::new(), States::default());
    let offering = CatalogController::new(calls, RendererClassSpec::default(), &[], publish);
    let mut loops = JoinSet::new();
    loops.spawn(offering.run(client, namespace.to_owned(), metrics.clone(), stop.clone()));
    loops.spawn(send_events);
    loops.spawn(clusters.run(stop.clone()));
    let heard = Arc::clone(&states);
    loops.spawn(async move {
        while let Some(ReceivedEvent { input, .. }) = seen.recv().await {
            if let TaskWatchEvent::Site(site, state) = input {
                heard.lock().expect("no test panics with it").insert(site, state);
            }
        }
    });
    Ok(Running {
        registry,
        wants,
        catalog,
        active,
        states,
        metrics,
        shown,
        stop,
        loops,
    })
}

/// The clusters whatever they hold.
fn untyped(admin: &Client) -> Api<DynamicObject> {
    Api::all_with(admin.clone(), &ApiResource::erase::<RenderCluster>(&()))
}

async fn delete_clusters(admin: &Client) -> Result<()> {
    let all = untyped(admin);
    all.delete_collection(&DeleteParams::default(), &ListParams::default())
        .await?;
    Ok(())
}
