//! What a Target names is read as its `ServiceAccount`, and no object of the pipeline makes the hub read a Secret for it.

use anyhow::{Result, ensure};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::namespaces::CROSSING;
use crate::scene::Scene;
use support::LIMIT;
use support::tenant::{BUILDER, account};

impl Scene {
    /// A Target as an account, whose Release is bound.
    async fn target_as(&self, name: &str, registry: Value, account: &str) -> Result<()> {
        let spec = json!({"renderRegistryRef": registry, "serviceAccountName": account});
        self.target(name, spec).await?;
        self.bind(name, "shop").await
    }

    /// Waits until a Target says that the charts of its Releases wait for this reason.
    async fn waits_for(&self, target: &str, reason: &str) -> Result<()> {
        wait_for(&format!("{target} to name {reason}"), LIMIT, async || {
            let message = self.target_is(target, "Ready", "False", "Pending").await?;
            Ok(message.contains(reason).then_some(()))
        })
        .await
    }

    /// The Secrets that a user got, or asked for in vain, in a namespace.
    async fn secrets_of(&self, user: &str, namespace: &str) -> Result<Vec<(String, u16)>> {
        let requests = self.stage.requests_of(user, namespace).await?;
        let secrets = requests.into_iter().filter(|event| event.resource == "secrets");
        let mut asked: Vec<_> = secrets.map(|event| (event.name.clone(), event.code)).collect();
        asked.sort();
        asked.dedup();
        Ok(asked)
    }
}

/// Holds: C7.
#[tokio::test]
async fn a_targets_registry_and_secret_are_read_as_its_account_alone() -> Result<()> {
    let scene = Scene::new("identity").await?;
    scene.stage.make_builder("create").await?;
    let tenant = scene.tenant().to_owned();
    scene.stage.make_own_secret(&tenant, "own-push").await?;
    scene.stage.make_own_registry(&tenant, "own").await?;
    // An account that the hub may become, and that may read Registries and no Secret.
    scene.stage.make_account(&tenant, "poor").await?;
    scene.stage.let_hub_become(&tenant, "poor", "create").await?;
    scene
        .stage
        .let_read(&tenant, &tenant, "poor", &["registries"])
        .await?;
    // One that the hub may not become: it asks, and is refused.
    scene.stage.allow_forbidden();
    scene.stage.make_account(&tenant, "other").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    for name in ["poor", "other"] {
        scene.target_as(name, json!({"name": "own"}), name).await?;
        scene.waits_for(name, "RBACDenied").await?;
    }
    scene.target_as("edge", json!({"name": "own"}), BUILDER).await?;
    wait_for("the chart of the account that may", LIMIT, async || {
        let all = scene.all_tasks().await?;
        let task = all
            .into_iter()
            .find(|task| task.spec.service_account_name.as_deref() == Some(BUILDER));
        let Some(task) = task else { return Ok(None) };
        scene.stage.complete(&task).await?;
        Ok(Some(()))
    })
    .await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    for (name, code) in [(BUILDER, 200), ("poor", 403)] {
        let asked = scene.secrets_of(&account(&tenant, name), &tenant).await?;
        ensure!(asked == [("own-push".to_owned(), code)], "{name}: {asked:?}");
    }
    scene.stage.hub_read_nothing_itself(&tenant).await?;
    scene.passed();
    Ok(())
}

/// A grant is no right: what is in another namespace is read as the account too.
///
/// Holds: C7.
#[tokio::test]
async fn a_granted_registry_is_read_as_the_account_alone() -> Result<()> {
    let (scene, neighbour) = Scene::with_neighbour("granting", &[CROSSING]).await?;
    scene.share_registry(&neighbour).await?;
    let tenant = scene.tenant().to_owned();
    scene.stage.make_account(&tenant, "poor").await?;
    scene.stage.let_hub_become(&tenant, "poor", "create").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    let shared = json!({"name": "shared", "namespace": neighbour});
    scene.target_as("poor", shared.clone(), "poor").await?;
    scene.waits_for("poor", "CrossNamespaceRefDenied").await?;
    let asked = scene.secrets_of(&account(&tenant, "poor"), &neighbour).await?;
    ensure!(asked.iter().all(|(_, code)| *code == 403), "{asked:?}");
    scene.stage.hub_read_nothing_itself(&neighbour).await?;
    scene.passed();
    Ok(())
}
