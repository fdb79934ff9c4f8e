//! Objects of other namespaces: nothing reaches a Target without a grant in its namespace, and a grant that goes takes nothing off.

use anyhow::Result;
use kube::api::{Api, DeleteParams, DynamicObject};
use renderhub::api::ReferenceGrant;
use renderhub::api::conditions::ConditionType;
use renderhub::api::pipeline::{Profile, ReleaseBinding};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use crate::scene::{Scene, condition};
use support::tenant::BUILDER;
use support::{LIMIT, Stage};

/// Lets cross what a grant allows.
pub const CROSSING: &str = "--no-cross-namespace-refs=false";

impl Scene {
    /// A scene with a second tenant, whose namespace the hub serves too.
    pub async fn with_neighbour(prefix: &str, flags: &[&str]) -> Result<(Self, String)> {
        let flags: Vec<&str> = ["--pipeline=true"].iter().chain(flags).copied().collect();
        let mut stage = Stage::without_hub(prefix, &flags).await?;
        let neighbour = stage.plane.namespace("neighbour").await?;
        stage.also_watch(&neighbour).await?;
        stage.make_registry().await?;
        stage.start_hub().await?;
        Ok((Self { stage }, neighbour))
    }

    /// A Target with a Release of its own, which is pushed.
    async fn with_own_release(&self) -> Result<()> {
        self.release("shop", "1.0.0", json!({})).await?;
        self.target_with("edge", json!({"ring": "one"}), json!({}))
            .await?;
        self.bind("edge", "shop").await?;
        self.complete_next("release-shop-").await?;
        self.complete_version("edge", 1).await?;
        self.ready("edge").await?;
        Ok(())
    }

    pub async fn make_in(&self, namespace: &str, kind: &str, name: &str, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": namespace}, "spec": spec,
        });
        apply::object(&self.stage.admin, object).await?;
        Ok(())
    }

    /// What a neighbour would put on the Target: a Release that takes the place of the tenant's own, bound and by a Profile.
    async fn attack(&self, neighbour: &str) -> Result<()> {
        let chart = json!({"repository": "registry.test/evil", "tag": "6.6.6"});
        let version = json!({
            "componentRef": {"name": "shop"}, "tag": "6.6.6", "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        });
        self.make_in(neighbour, "ComponentVersion", "evil", version)
            .await?;
        let release = json!({"componentVersionRef": {"name": "evil"}, "priority": 1000});
        self.make_in(neighbour, "Release", "evil", release).await?;
        let target = json!({"name": "edge", "namespace": self.tenant()});
        let binding = json!({"targetRef": target, "releaseRef": {"name": "evil"}});
        self.make_in(neighbour, "ReleaseBinding", "evil", binding).await?;
        let profile = json!({"targetSelector": {}, "releaseRef": {"name": "evil"}});
        self.make_in(neighbour, "Profile", "evil", profile).await
    }

    /// Waits until the neighbour's objects were looked at; nothing of them reached the Target.
    async fn is_unharmed(&self, neighbour: &str) -> Result<()> {
        let bindings: Api<ReleaseBinding> = Api::namespaced(self.stage.admin.clone(), neighbour);
        self.condition_of(
            &bindings,
            "evil",
            |o| Some(&o.status.as_ref()?.conditions),
            "False",
            "NotGranted",
        )
        .await?;
        let profiles: Api<Profile> = Api::namespaced(self.stage.admin.clone(), neighbour);
        wait_for("the Profile to be looked at", LIMIT, async || {
            let status = profiles.get("evil").await?.status.unwrap_or_default();
            Ok((status.matched_targets == Some(0)).then_some(()))
        })
        .await?;
        // Something of its own changes, so the Target was decided about with all of that there.
        self.change_target("edge", json!({"userdata": {"looked": true}}))
            .await?;
        self.complete_version("edge", 2).await?;
        let versions = self.versions("edge").await?;
        assert_eq!(versions[1].spec.changes, "userdata changed");
        Ok(())
    }

    /// Lets Targets of the tenant use the neighbour's registries, and their account read them.
    pub async fn share_registry(&self, neighbour: &str) -> Result<()> {
        self.stage.make_builder("create").await?;
        self.stage.make_own_registry(neighbour, "shared").await?;
        self.stage.make_own_secret(neighbour, "own-push").await?;
        let readable = ["secrets", "registries"];
        self.stage
            .let_read(self.tenant(), neighbour, BUILDER, &readable)
            .await?;
        let from = json!([{"group": "renderhub.dev", "kind": "Target", "namespace": self.tenant()}]);
        let to = json!([{"group": "renderhub.dev", "kind": "Registry"}]);
        let spec = json!({"from": from, "to": to});
        self.make_in(neighbour, "ReferenceGrant", "targets", spec).await
    }

    async fn grant(&self, from: &[&str], neighbour: &str) -> Result<()> {
        let from: Vec<Value> = from
            .iter()
            .map(|kind| json!({"group": "renderhub.dev", "kind": kind, "namespace": neighbour}))
            .collect();
        let to = json!([{"group": "renderhub.dev", "kind": "Target", "name": "edge"}]);
        let spec = json!({"from": from, "to": to});
        self.make_in(self.tenant(), "ReferenceGrant", "neighbours", spec)
            .await
    }
}

/// Holds: F1, F2, F3.
#[tokio::test]
async fn without_a_grant_nothing_of_another_namespace_reaches_a_target() -> Result<()> {
    // With references that may cross, and by default.
    for flags in [&[CROSSING][..], &[]] {
        let (scene, neighbour) = Scene::with_neighbour("foreign", flags).await?;
        scene.with_own_release().await?;
        scene.attack(&neighbour).await?;
        if !flags.is_empty() {
            // A grant for another kind is none.
            scene.grant(&["Target", "RenderTask"], &neighbour).await?;
        }
        scene.is_unharmed(&neighbour).await?;
        scene.passed();
    }
    Ok(())
}

/// Holds: F3, F8.
#[tokio::test]
async fn a_grant_lets_a_release_in_and_its_end_takes_nothing_off() -> Result<()> {
    let (scene, neighbour) = Scene::with_neighbour("granted", &[CROSSING]).await?;
    scene.with_own_release().await?;
    scene.attack(&neighbour).await?;
    scene.grant(&["ReleaseBinding", "Profile"], &neighbour).await?;
    // The neighbour's Release has the same unique name and a higher priority: that is what was granted.
    scene.complete_next("release-evil-").await?;
    scene.complete_version("edge", 2).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[1].spec.changes, "shop 1.0.0 → 6.6.6");
    let grants: Api<ReferenceGrant> = scene.api();
    grants.delete("neighbours", &DeleteParams::default()).await?;
    let message = scene.target_is("edge", "Stalled", "True", "NotGranted").await?;
    assert!(
        message.contains("may not reach this Target any more, and stays as it is"),
        "{message}"
    );
    scene
        .change_target("edge", json!({"userdata": {"looked": true}}))
        .await?;
    scene.complete_version("edge", 3).await?;
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[2].spec.changes, "userdata changed");
    // What was granted once leaves when who bound it takes it away.
    for kind in ["ReleaseBinding", "Profile"] {
        let resource = kube::api::ApiResource::from_gvk(&kube::api::GroupVersionKind::gvk(
            "renderhub.dev",
            "v1alpha1",
            kind,
        ));
        let api: Api<DynamicObject> = Api::namespaced_with(scene.stage.admin.clone(), &neighbour, &resource);
        api.delete("evil", &DeleteParams::default()).await?;
    }
    // Its own chart was pushed for the first version, and is not rendered again.
    scene.complete_version("edge", 4).await?;
    let target = scene.ready("edge").await?;
    let conditions = target.status.unwrap_or_default().conditions;
    assert_eq!(condition(&conditions, "Stalled"), None);
    let versions = scene.versions("edge").await?;
    assert_eq!(versions[3].spec.changes, "shop 6.6.6 → 1.0.0");
    scene.passed();
    Ok(())
}

/// Holds: F10.
#[tokio::test]
async fn a_grant_to_targets_counts_for_their_tasks_and_for_no_other() -> Result<()> {
    let (scene, neighbour) = Scene::with_neighbour("lent", &[CROSSING]).await?;
    scene.share_registry(&neighbour).await?;
    let shared = json!({"name": "shared", "namespace": neighbour});
    scene.release("shop", "1.0.0", json!({})).await?;
    let spec = json!({"renderRegistryRef": shared, "serviceAccountName": BUILDER});
    scene.target("edge", spec).await?;
    scene.bind("edge", "shop").await?;
    let chart = scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.ready("edge").await?;
    // A tenant's own task may not, whether it carries the seal of another or not.
    let seal = chart.metadata.annotations.clone().unwrap_or_default();
    assert!(seal.contains_key("renderhub.dev/target-seal"), "{seal:?}");
    for (name, annotations) in [("own", json!({})), ("sealed", json!(seal))] {
        let mut task = scene.stage.task(name);
        let named = json!({"kind": "Registry", "name": "shared", "namespace": neighbour});
        task["spec"]["registryRef"] = named;
        task["spec"]["serviceAccountName"] = json!(BUILDER);
        task["metadata"]["annotations"] = annotations;
        let task = scene.stage.submit(task).await?;
        let scheduled = ConditionType::JobScheduled;
        scene
            .stage
            .condition(&task, scheduled, "False", "CrossNamespaceRefDenied")
            .await?;
    }
    scene.passed();
    Ok(())
}
