//! A tenant with no right on the platform's objects finds the names to write: a refused task tells them, and nothing of others.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{Api, ListParams, PostParams};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::{ClusterRegistry, RenderCluster, RenderTask, RendererClass};
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use super::support::{FIXED_LIMIT, LIMIT, Stage, plane};

impl Stage {
    /// A client with the rights of the chart's roles for tenants, in the tenant's namespace.
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

    /// Makes a registry, a class and a cluster of this name, all for one namespace.
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

/// Waits until the message of a task that was refused for this reason holds all of these words; the message.
async fn told(tasks: &Api<RenderTask>, name: &str, reason: &str, words: &[&str]) -> Result<String> {
    wait_for(&format!("{name} to be told {words:?}"), FIXED_LIMIT, async || {
        let status = tasks.get(name).await?.status.unwrap_or_default();
        let ready = status.conditions.into_iter().find(|c| c.type_ == "Ready");
        let message = ready.filter(|c| c.reason == reason).map(|c| c.message);
        Ok(message.filter(|message| words.iter().all(|word| message.contains(word))))
    })
    .await
}

/// The word behind these words of a message.
fn named_after(message: &str, words: &str) -> Result<String> {
    let (_, rest) = message.split_once(words).context("the message names one")?;
    let end = rest.find([' ', ',']).unwrap_or(rest.len());
    Ok(rest[..end].to_owned())
}

/// Holds: B17, B37.
#[tokio::test]
async fn a_tenant_finds_the_names_to_write_in_the_messages_of_a_refused_task() -> Result<()> {
    // A control plane of its own: what other tests open to every namespace would be told here too.
    let mut stage = Stage::on(plane::own_plane(&["crds"]).await?, "offered", &[]).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    let tenant = stage.scope.tenant.clone();
    let theirs = format!("theirs-{tenant}");
    stage.offer(&theirs, "somebody-else").await?;
    let client = stage.tenants_client().await?;
    let tasks: Api<RenderTask> = Api::namespaced(client.clone(), &tenant);
    // Looking is not how: no right of a tenant shows what the platform offers.
    assert!(
        Api::<ClusterRegistry>::all(client.clone())
            .get(&tenant)
            .await
            .is_err()
    );
    assert!(
        Api::<RendererClass>::all(client.clone())
            .list(&ListParams::default())
            .await
            .is_err()
    );
    assert!(
        Api::<RenderCluster>::all(client)
            .list(&ListParams::default())
            .await
            .is_err()
    );
    let submit = async |name: &str, changes: Value| -> Result<RenderTask> {
        let mut task = stage.task(name);
        for (key, value) in changes.as_object().context("no object")? {
            task["spec"][key] = value.clone();
        }
        let task: RenderTask = serde_json::from_value(task)?;
        Ok(tasks.create(&PostParams::default(), &task).await?)
    };

    // A misspelt registry, and one of others: the same words, with the right name, host and prefix in them.
    submit("misspelt", json!({"registryRef": {"name": "exmaple"}})).await?;
    let prefix = format!("repository below {tenant}/");
    let words = [tenant.as_str(), "host registry.test:5000", &prefix];
    let message = told(&tasks, "misspelt", "RegistryNotAllowed", &words).await?;
    submit("of-others", json!({"registryRef": {"name": theirs}})).await?;
    assert_eq!(
        told(&tasks, "of-others", "RegistryNotAllowed", &words).await?,
        message
    );
    let registry = named_after(&message, "this namespace may use: ")?;
    assert_eq!(registry, tenant);

    // The same for a class and a cluster, of which there is none for it yet, and then one.
    let wrong = json!({"registryRef": {"name": registry}, "rendererClassName": "slides"});
    submit("no-class", wrong).await?;
    submit("no-cluster", json!({"clusterName": "west"})).await?;
    told(
        &tasks,
        "no-class",
        "RendererClassNotFound",
        &["may use none; make a new task without rendererClassName"],
    )
    .await?;
    told(
        &tasks,
        "no-cluster",
        "ClusterNotFound",
        &["may use none; make a new task without clusterName"],
    )
    .await?;
    let ours = format!("ours-{tenant}");
    stage.offer(&ours, &tenant).await?;
    let message = told(&tasks, "no-class", "RendererClassNotFound", &[&ours]).await?;
    let class = named_after(&message, "this namespace may use: ")?;
    let message = told(&tasks, "no-cluster", "ClusterNotFound", &[&ours]).await?;
    assert_eq!(named_after(&message, "this namespace may use: ")?, ours);
    told(
        &tasks,
        "misspelt",
        "RegistryNotAllowed",
        &[&format!("{ours}.test")],
    )
    .await?;

    let right = json!({"registryRef": {"name": registry}, "rendererClassName": class});
    let right = submit("right", right).await?;
    stage
        .condition(&right, JobScheduled, "True", "JobScheduled")
        .await?;

    // The event says the same first, and where to read on last; the condition holds no link.
    let event = wait_for("the event of the refusal", LIMIT, async || {
        let events = stage.events().await?;
        let of = |name: &str| {
            events
                .iter()
                .find(|e| e.regarding.as_ref().and_then(|r| r.name.as_deref()) == Some(name))
                .cloned()
        };
        Ok(of("misspelt").and_then(|event| event.note))
    })
    .await?;
    assert!(
        event.starts_with("the ClusterRegistry that registryRef names"),
        "{event}"
    );
    assert!(event.ends_with("/docs/reasons/RegistryNotAllowed.md"), "{event}");
    for task in tasks.list(&ListParams::default()).await? {
        let conditions = task.status.clone().unwrap_or_default().conditions;
        assert!(
            conditions.iter().all(|c| !c.message.contains("http")),
            "{}",
            task.name_any()
        );
    }
    let said = stage.everything_said().await?;
    let leaks: Vec<_> = said
        .lines()
        .filter(|line| line.contains(&format!("{theirs}.test")))
        .collect();
    assert!(leaks.is_empty(), "{leaks:?}");
    let statuses = tasks.list(&ListParams::default()).await?;
    for task in statuses {
        let status = serde_json::to_string(&task.status)?;
        assert!(!status.contains(&theirs), "{status}");
    }
    stage.passed();
    Ok(())
}
