//! The chart does its work: installed by the real helm on a real node, it turns a tenant's task into a chart in the registry, the
//! credential is nowhere that a tenant can read, upgrading and rolling back lose nothing, and uninstalling removes neither tasks
//! nor credentials. One cluster has one release after the other, in both modes, and three at once.

#[path = "upgrade/front.rs"]
mod front;
#[path = "installation/instances.rs"]
mod instances;
#[path = "installation/release.rs"]
mod release;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod, Secret};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client};
use renderhub::api::RenderTask;
use renderhub::api::conditions::{ConditionType, Reason, is_true};
use renderhub::api::labels::TASK_UID;
use renderhub_harness::diagnose::Watch;
use renderhub_harness::helm::Helm;
use renderhub_harness::reach::{everything, logs};
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{Canaries, ControlPlane, Node, apply, rundir, wait_for};
use serde_json::{Value, json};

use front::Front;

const HUB: &str = "renderhub-system";
const RENDERING: &str = "renderhub-rendering";
const TENANT: &str = "team-a";
const LIMIT: Duration = Duration::from_secs(120);

/// Holds: I1, R4, M6, B36.
#[tokio::test]
async fn a_release_lives_in_both_modes_and_leaves_what_is_not_its_own() -> Result<()> {
    let world = World::start().await?;
    let watch = Watch::new(&world.plane, &[TENANT, RENDERING, HUB]);
    world.install_an_earlier_chart().await?;
    world.the_hub_may_not_read_tenants_secrets().await?;
    let tenant = world.make_tenant().await?;
    let first = async {
        world.a_task_becomes_a_chart(&tenant).await?;
        world.the_credential_is_out_of_reach(&tenant).await
    };
    tokio::try_join!(first, world.the_api_server_takes_every_mode())?;

    world.upgrading_loses_nothing(&tenant).await?;
    world.helm_test_sees_an_open_network().await?;
    world.releases_share_a_cluster_and_one_fails_over(&tenant).await?;
    world.rolling_back_works(&tenant).await?;
    world.uninstalling_keeps_tasks_and_credentials(&tenant).await?;

    world.one_team_needs_no_service_account(&tenant).await?;
    world.close_the_network().await?;
    tokio::select! {
        end = world.node.spare(&world.plane, HUB) => end?,
        done = async {
            world.helm_test_sees_a_closed_network().await?;
            world.uninstalling_keeps_tasks_and_credentials(&tenant).await
        } => done?,
    }
    watch.passed();
    Ok(())
}

/// A cluster with a node, a registry, and helm.
struct World {
    node: Node,
    registry: Registry,
    /// The way to it that pods and helm take.
    way: Front,
    helm: Helm,
    plane: ControlPlane,
}

impl World {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::builder()
            .with_node_network()
            .with_scheduler()
            .start()
            .await?;
        let node = Node::start(&plane).await?;
        let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
        let way = Front::before(registry.address()).await?;
        let helm = Helm::new()?
            .with_cluster(plane.admin().kubeconfig()?)
            .with_login(&way.host(), registry.username(), registry.password())?;
        Ok(Self {
            node,
            registry,
            way,
            helm,
            plane,
        })
    }

    async fn a_task_becomes_a_chart(&self, tenant: &Client) -> Result<()> {
        let task = finish(tenant, "web", "web", json!({})).await?;
        ensure!(
            holds(&task, ConditionType::JobSucceeded) && holds(&task, ConditionType::Ready),
            "web did not succeed"
        );
        self.pushed_is_what_was_asked_for(&task).await?;
        // The same tag with another content: the push fails, and its Job and log stay for people to read.
        let conflict = finish(
            tenant,
            "web-again",
            "web",
            json!({ "description": "Another shop" }),
        )
        .await?;
        ensure!(
            failed_because(&conflict, Reason::TagConflict),
            "web-again: {:?}",
            conflict.status
        );
        Ok(())
    }

    async fn the_credential_is_out_of_reach(&self, tenant: &Client) -> Result<()> {
        let canaries = self.canaries();
        let admin = self.plane.admin().client().await?;
        let own = everything(&admin, Some(RENDERING)).await?;
        ensure!(
            canaries.show_in(&own),
            "the scan does not find the credential even where it is"
        );
        ensure!(
            !canaries.show_in(&readable(tenant).await?),
            "a tenant can read the credential"
        );
        ensure!(
            !canaries.show_in(&logs(&admin, RENDERING).await?),
            "a renderer has logged the credential"
        );
        ensure!(
            !canaries.show_in(&logs(&admin, HUB).await?),
            "the hub has logged the credential"
        );
        Ok(())
    }

    /// The chart's `ServiceAccount`, as the API server judges it.
    async fn the_hub_may_not_read_tenants_secrets(&self) -> Result<()> {
        let hub = self
            .plane
            .service_account(HUB, "renderhub")
            .await?
            .client()
            .await?;
        for namespace in ["default", "kube-system", TENANT] {
            let secrets: Api<Secret> = Api::namespaced(hub.clone(), namespace);
            ensure!(
                is_refusal(&secrets.list(&ListParams::default()).await),
                "the hub may list Secrets in {namespace}"
            );
        }
        // The kubeconfigs of the platform's clusters are there: the hub may read them, and no client of the hub may write them.
        let kubeconfigs: Api<Secret> = Api::namespaced(hub.clone(), HUB);
        kubeconfigs.list_metadata(&ListParams::default()).await?;
        let secret: Secret = serde_json::from_value(json!({ "metadata": { "name": "x" } }))?;
        ensure!(
            is_refusal(&kubeconfigs.create(&PostParams::default(), &secret).await),
            "the hub may write Secrets where the kubeconfigs are"
        );
        let pods: Api<Pod> = Api::namespaced(hub, RENDERING);
        let pod =
            json!({ "metadata": { "name": "x" }, "spec": { "containers": [{ "name": "x", "image": "x" }] } });
        let pod: Pod = serde_json::from_value(pod)?;
        ensure!(
            is_refusal(&pods.create(&PostParams::default(), &pod).await),
            "the hub may create pods"
        );
        Ok(())
    }

    /// A registry that `team-a` may use, and a user with the `admin` role there.
    async fn make_tenant(&self) -> Result<Client> {
        let admin = self.plane.admin().client().await?;
        let metadata = ObjectMeta {
            name: Some(TENANT.to_owned()),
            ..ObjectMeta::default()
        };
        let namespace = Namespace {
            metadata,
            ..Namespace::default()
        };
        Api::all(admin.clone())
            .create(&PostParams::default(), &namespace)
            .await?;
        let secret = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": { "name": "push", "namespace": RENDERING },
            "type": "kubernetes.io/dockerconfigjson",
            "stringData": { ".dockerconfigjson": self.registry.docker_config_json_for(&self.way.host()) },
        });
        apply::object(&admin, secret).await?;
        let registry = json!({
            "apiVersion": "renderhub.dev/v1alpha1",
            "kind": "ClusterRegistry",
            "metadata": { "name": "main" },
            "spec": {
                "hostname": self.way.host(),
                "plainHTTP": true,
                "pushSecretRef": { "name": "push" },
                "allowedNamespaces": [TENANT, instances::OTHER],
            },
        });
        apply::object(&admin, registry).await?;
        self.plane.tenant(TENANT).await?.client().await
    }

    async fn pushed_is_what_was_asked_for(&self, task: &RenderTask) -> Result<()> {
        let status = task.status.clone().unwrap_or_default();
        let url = format!("oci://{}/{TENANT}/web", self.way.host());
        assert_eq!(status.chart_url.as_deref(), Some(format!("{url}:1.0.0").as_str()));
        let chart = self
            .helm
            .pull_plain(&url, "1.0.0", &rundir::fresh("pulled")?)
            .await?;
        let metadata = chart_yaml(&chart)?;
        assert_eq!(metadata["description"], "The shop");
        self.nothing_is_left_of_it().await
    }

    /// The result is recorded first, so a test may look before the rest is gone.
    async fn nothing_is_left_of_it(&self) -> Result<()> {
        let admin = self.plane.admin().client().await?;
        let jobs: Api<Job> = Api::namespaced(admin.clone(), RENDERING);
        let secrets: Api<Secret> = Api::namespaced(admin, RENDERING);
        wait_for("the Job and the config Secret to be gone", LIMIT, async || {
            let jobs = jobs.list_metadata(&ListParams::default()).await?;
            let of_tasks = ListParams::default().labels(TASK_UID);
            let secrets = secrets.list_metadata(&of_tasks).await?;
            Ok((jobs.items.is_empty() && secrets.items.is_empty()).then_some(()))
        })
        .await
    }

    fn canaries(&self) -> Canaries {
        Canaries::new().with("the password", self.registry.password())
    }

    async fn uninstalling_keeps_tasks_and_credentials(&self, tenant: &Client) -> Result<()> {
        self.helm
            .run(&["uninstall", "renderhub", "--namespace", HUB, "--wait"])
            .await?;
        let admin = self.plane.admin().client().await?;
        Api::<Secret>::namespaced(admin.clone(), RENDERING)
            .get_metadata("push")
            .await?;
        let tasks: Api<RenderTask> = Api::namespaced(admin.clone(), TENANT);
        tasks.get_metadata("web").await?;
        let deployments: Api<Deployment> = Api::namespaced(admin, HUB);
        ensure!(
            deployments
                .list_metadata(&ListParams::default())
                .await?
                .items
                .is_empty(),
            "the hub is still there"
        );
        self.its_leases_are_released("renderhub-main-").await?;
        self.nothing_is_left_of_the_uninstall().await?;
        let rights: Api<RenderTask> = Api::namespaced(tenant.clone(), TENANT);
        ensure!(
            is_refusal(&rights.list_metadata(&ListParams::default()).await),
            "the tenants' roles are still there"
        );
        Ok(())
    }
}

/// Submits a task for the chart `chart` as the tenant, and waits for its end. In `more`, `description` is the chart's, and
/// everything else is laid over the spec.
async fn finish(tenant: &Client, name: &str, chart: &str, more: Value) -> Result<RenderTask> {
    submit(tenant, name, chart, more).await?;
    ended(tenant, name).await
}

async fn submit(tenant: &Client, name: &str, chart: &str, more: Value) -> Result<()> {
    submit_in(TENANT, tenant, name, chart, more).await
}

async fn submit_in(namespace: &str, client: &Client, name: &str, chart: &str, mut more: Value) -> Result<()> {
    let fields = more.as_object_mut().context("no object")?;
    let description = fields.remove("description").unwrap_or_else(|| json!("The shop"));
    let mut task = json!({
        "apiVersion": "renderhub.dev/v1alpha1",
        "kind": "RenderTask",
        "metadata": { "name": name, "namespace": namespace },
        "spec": {
            "registryRef": { "name": "main" },
            "repository": format!("{namespace}/{chart}"),
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
    for (key, value) in fields.iter() {
        task["spec"][key] = value.clone();
    }
    // A null is an unset field, which server-side apply would take for a wish.
    if let Some(spec) = task["spec"].as_object_mut() {
        spec.retain(|_, value| !value.is_null());
    }
    apply::object(client, task).await?;
    Ok(())
}

async fn ended(tenant: &Client, name: &str) -> Result<RenderTask> {
    ended_in(TENANT, tenant, name).await
}

async fn ended_in(namespace: &str, client: &Client, name: &str) -> Result<RenderTask> {
    let tasks: Api<RenderTask> = Api::namespaced(client.clone(), namespace);
    wait_for(&format!("the end of RenderTask {name}"), LIMIT, async || {
        let task = tasks.get(name).await?;
        let ended = holds(&task, ConditionType::JobSucceeded) || holds(&task, ConditionType::JobFailed);
        Ok(ended.then_some(task))
    })
    .await
}

fn holds(task: &RenderTask, type_: ConditionType) -> bool {
    task.status
        .as_ref()
        .is_some_and(|status| is_true(&status.conditions, type_))
}

fn failed_because(task: &RenderTask, reason: Reason) -> bool {
    let mut conditions = task.status.iter().flat_map(|status| &status.conditions);
    conditions.any(|c| {
        c.type_ == ConditionType::JobFailed.as_str() && c.status == "True" && c.reason == reason.as_str()
    })
}

fn is_refusal<T>(answer: &kube::Result<T>) -> bool {
    matches!(answer, Err(kube::Error::Api(status)) if status.is_forbidden())
}

/// Everything a tenant may read: all kinds in its own namespace, cluster-wide and in the namespaces of the platform, and
/// the logs of its pods.
async fn readable(tenant: &Client) -> Result<String> {
    let mut text = everything(tenant, None).await?;
    for namespace in [TENANT, RENDERING, HUB, "default"] {
        text.push_str(&everything(tenant, Some(namespace)).await?);
    }
    ensure!(
        text.contains("web-again"),
        "the scan does not see the tenant's own task"
    );
    text.push_str(&logs(tenant, TENANT).await?);
    Ok(text)
}

fn chart_yaml(chart: &Path) -> Result<Value> {
    let text = std::fs::read_to_string(chart.join("Chart.yaml"))?;
    serde_saphyr::from_str(&text).context("Chart.yaml is no YAML")
}
