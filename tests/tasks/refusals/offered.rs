//! A tenant with no right on the platform's objects finds the names to write: the message of a refused task has them, and none of
//! others.

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::{ClusterRegistry, RenderCluster, RenderTask, RendererClass};
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::{LIMIT, Stage, plane};

trait Offers {
    /// A client with the rights of the chart's roles for tenants, in the tenant's namespace.
    async fn tenants_client(&self) -> Result<kube::Client>;
    /// Makes a registry, a class and a cluster of this name, all for one namespace.
    async fn offer(&self, name: &str, namespace: &str) -> Result<()>;
}

impl Offers for Stage {
    async fn tenants_client(&self) -> Result<kube::Client> {
        let objects = helm::template(&Helm::new()?, RELEASE_NAMESPACE, &["crds.install=false"]).await?;
        let user = self.plane.user(&format!("tenant-{}", self.scope.shard), &[])?;
        let subject = json!({"kind": "User", "name": user.name(), "apiGroup": "rbac.authorization.k8s.io"});
        for name in ["renderhub-edit", "renderhub-view"] {
            let is_it =
                |object: &&Value| object["kind"] == "ClusterRole" && object["metadata"]["name"] == name;
            let role = objects.iter().find(is_it).context("the chart has it")?;
            for rule in role["rules"].as_array().context("it has rules")? {
                self.bind(&self.scope.tenant, name, rule, &subject).await?;
            }
        }
        let client = user.client().await?;
        let tasks: Api<RenderTask> = Api::namespaced(client.clone(), &self.scope.tenant);
        wait_for("the tenant's rights to be in force", LIMIT, async || {
            Ok(tasks.list(&ListParams::default()).await.ok().map(drop))
        })
        .await?;
        Ok(client)
    }

    async fn offer(&self, name: &str, namespace: &str) -> Result<()> {
        let spec = |kind: &str| match kind {
            "ClusterRegistry" => json!({"hostname": format!("{name}.test")}),
            "RendererClass" => json!({"image": "renderer.test/r:1"}),
            _ => json!({"kubeConfig": {"secretRef": {"name": name}}, "renderNamespace": "renders"}),
        };
        for kind in ["ClusterRegistry", "RendererClass", "RenderCluster"] {
            let mut spec = spec(kind);
            spec["allowedNamespaces"] = json!([namespace]);
            let object = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
                "metadata": {"name": name}, "spec": spec});
            apply::object(&self.admin, object).await?;
        }
        Ok(())
    }
}

/// What a list of names begins with.
const MAY_USE: &str = "this namespace may use: ";

/// A tenant with its own client, and the names that it must not see.
struct Scene<'a> {
    stage: &'a Stage,
    tasks: Api<RenderTask>,
    /// Name of a registry, a class and a cluster for another namespace.
    theirs: String,
}

impl Scene<'_> {
    async fn submit(&self, name: &str, changes: Value) -> Result<RenderTask> {
        let mut task = self.stage.task(name);
        for (key, value) in changes.as_object().context("no object")? {
            task["spec"][key] = value.clone();
        }
        let task: RenderTask = serde_json::from_value(task)?;
        Ok(self.tasks.create(&PostParams::default(), &task).await?)
    }

    /// Waits until the message of a task that was refused for this reason holds all of these texts; returns the message.
    async fn refused(&self, name: &str, reason: &str, words: &[&str]) -> Result<String> {
        wait_for(
            &format!("{name} to be refused with {words:?}"),
            LIMIT,
            async || {
                let status = self.tasks.get(name).await?.status.unwrap_or_default();
                let ready = status.conditions.into_iter().find(|c| c.type_ == "Ready");
                let message = ready.filter(|c| c.reason == reason).map(|c| c.message);
                Ok(message.filter(|message| words.iter().all(|word| message.contains(word))))
            },
        )
        .await
    }

    /// No right of a tenant shows what the platform offers.
    async fn looking_is_no_way(&self, client: &kube::Client) {
        let all = ListParams::default();
        let registry = Api::<ClusterRegistry>::all(client.clone())
            .get(&self.stage.scope.tenant)
            .await;
        assert!(registry.is_err());
        assert!(
            Api::<RendererClass>::all(client.clone())
                .list(&all)
                .await
                .is_err()
        );
        assert!(
            Api::<RenderCluster>::all(client.clone())
                .list(&all)
                .await
                .is_err()
        );
    }

    /// A misspelt registry, and one of others: the same message, with the right name, host and prefix in it; returns the name.
    async fn registry(&self) -> Result<String> {
        let (tenant, reason) = (&self.stage.scope.tenant, "RegistryNotAllowed");
        self.submit("misspelt", json!({"registryRef": {"name": "exmaple"}}))
            .await?;
        let prefix = format!("repository below {tenant}/");
        let words = [tenant.as_str(), "host registry.test:5000", &prefix];
        let message = self.refused("misspelt", reason, &words).await?;
        self.submit("of-others", json!({"registryRef": {"name": self.theirs}}))
            .await?;
        assert_eq!(self.refused("of-others", reason, &words).await?, message);
        named_after(&message, MAY_USE)
    }

    /// The same for a class and a cluster, of which there is none for the tenant yet, and then one; the name of the class.
    async fn class(&self, registry: &str) -> Result<String> {
        let (no_class, no_cluster) = ("RendererClassNotFound", "ClusterNotFound");
        let wrong = json!({"registryRef": {"name": registry}, "rendererClassName": "slides"});
        self.submit("no-class", wrong).await?;
        self.submit("no-cluster", json!({"clusterName": "west"})).await?;
        let none = |field: &str| format!("may use none; make a new task without {field}");
        self.refused("no-class", no_class, &[&none("rendererClassName")])
            .await?;
        self.refused("no-cluster", no_cluster, &[&none("clusterName")])
            .await?;
        let tenant = &self.stage.scope.tenant;
        let ours = format!("ours-{tenant}");
        self.stage.offer(&ours, tenant).await?;
        let message = self.refused("no-cluster", no_cluster, &[&ours]).await?;
        assert_eq!(named_after(&message, MAY_USE)?, ours);
        self.refused("misspelt", "RegistryNotAllowed", &[&format!("{ours}.test")])
            .await?;
        let message = self.refused("no-class", no_class, &[&ours]).await?;
        named_after(&message, MAY_USE)
    }

    /// The event says the same first, and where to read on last; the condition holds no link.
    async fn only_the_event_leads_on(&self) -> Result<()> {
        let note = wait_for("the event of the refusal", LIMIT, async || {
            let events = self.stage.events().await?;
            let is_it = |event: &&Event| {
                let about = event.regarding.as_ref().and_then(|r| r.name.as_deref());
                about == Some("misspelt")
            };
            Ok(events.iter().find(is_it).and_then(|event| event.note.clone()))
        })
        .await?;
        let first = "the ClusterRegistry that registryRef names";
        assert!(note.starts_with(first), "{note}");
        assert!(note.ends_with("/docs/reasons/RegistryNotAllowed.md"), "{note}");
        for task in self.tasks.list(&ListParams::default()).await? {
            let conditions = task.status.clone().unwrap_or_default().conditions;
            let links = conditions.iter().any(|c| c.message.contains("http"));
            assert!(!links, "{}", task.name_any());
        }
        Ok(())
    }

    /// Nothing of what is for others is in a status, an event or the hub's log but the name that the tenant wrote.
    async fn others_are_not_told_of(&self) -> Result<()> {
        let said = self.stage.everything_said().await?;
        let host = format!("{}.test", self.theirs);
        let leak = said.lines().find(|line| line.contains(&host));
        assert!(leak.is_none(), "{leak:?}");
        for task in self.tasks.list(&ListParams::default()).await? {
            let status = serde_json::to_string(&task.status)?;
            assert!(!status.contains(&self.theirs), "{status}");
        }
        Ok(())
    }
}

/// The name after this text in a message.
fn named_after(message: &str, words: &str) -> Result<String> {
    let (_, rest) = message.split_once(words).context("the message names one")?;
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    Ok(rest[..end].to_owned())
}

/// Holds: B17, B37.
#[tokio::test]
async fn a_tenant_finds_the_names_to_write_in_the_messages_of_a_refused_task() -> Result<()> {
    // A control plane of its own: what other tests open to every namespace would be in the message too.
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "offered", &[]).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    let tenant = stage.scope.tenant.clone();
    let theirs = format!("theirs-{tenant}");
    stage.offer(&theirs, "another-team").await?;
    let client = stage.tenants_client().await?;
    let scene = Scene {
        stage: &stage,
        tasks: Api::namespaced(client.clone(), &tenant),
        theirs,
    };
    scene.looking_is_no_way(&client).await;
    let registry = scene.registry().await?;
    assert_eq!(registry, tenant);
    let class = scene.class(&registry).await?;
    let right = json!({"registryRef": {"name": registry}, "rendererClassName": class});
    let right = scene.submit("right", right).await?;
    stage
        .condition(&right, JobScheduled, "True", "JobScheduled")
        .await?;
    scene.only_the_event_leads_on().await?;
    scene.others_are_not_told_of().await?;
    stage.passed();
    Ok(())
}
