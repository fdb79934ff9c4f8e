//! A namespace that the hub may not read: what rests on it stays as it was, and everything else goes on.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{Api, DeleteParams, ListParams};
use renderhub::api::ReferenceGrant;
use renderhub::api::pipeline::Target;
use renderhub_harness::{Rights, wait_for};
use serde_json::json;

use crate::namespaces::CROSSING;
use crate::scene::Scene;
use support::LIMIT;

/// The rights on everything but some kinds, by a role of its own in one namespace.
fn partly(rights: &Rights, namespace: &str, kinds: &[&str]) -> Rights {
    let mut left = rights.clone();
    left.bound
        .retain(|bound| bound.namespace.as_deref() == Some(namespace));
    for bound in &mut left.bound {
        "partly".clone_into(&mut bound.role);
        for rule in &mut bound.rules {
            let resources = rule.resources.get_or_insert_default();
            resources.retain(|resource| !kinds.contains(&resource.as_str()));
        }
    }
    left
}

impl Scene {
    /// Takes the hub's rights in a namespace, as after it was made anew, but for those on everything other than these kinds.
    async fn take_rights(&self, namespace: &str, kinds: &[&str]) -> Result<()> {
        self.stage.allow_forbidden();
        let bindings: Api<RoleBinding> = Api::namespaced(self.stage.admin.clone(), namespace);
        let name = format!("{}-renderhub-tasks", self.stage.hub_user.name());
        bindings.delete(&name, &DeleteParams::default()).await?;
        if !kinds.is_empty() {
            let left = partly(&self.stage.rights, namespace, kinds);
            self.stage.plane.set_rights(&self.stage.hub_user, &left).await?;
        }
        let grants: Api<ReferenceGrant> = Api::namespaced(self.stage.hub_user.client().await?, namespace);
        wait_for("the rights to be gone", LIMIT, async || {
            let answer = grants.list(&ListParams::default()).await;
            Ok(answer.is_err().then_some(()))
        })
        .await
    }
}

impl Scene {
    /// A Target whose Release names a version that the neighbour grants, which is pushed.
    pub async fn rests_on(&self, neighbour: &str) -> Result<()> {
        let chart = json!({"repository": "registry.test/shop", "tag": "1.0.0"});
        let version = json!({
            "componentRef": {"name": "shop"}, "tag": "1.0.0", "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        });
        self.make_in(neighbour, "ComponentVersion", "shared", version)
            .await?;
        let from = json!([{"group": "renderhub.dev", "kind": "Release", "namespace": self.tenant()}]);
        let to = json!([{"group": "renderhub.dev", "kind": "ComponentVersion"}]);
        self.make_in(
            neighbour,
            "ReferenceGrant",
            "releases",
            json!({"from": from, "to": to}),
        )
        .await?;
        let named = json!({"componentVersionRef": {"name": "shared", "namespace": neighbour}});
        self.make_in(self.tenant(), "Release", "shop", named).await?;
        self.target("edge", json!({})).await?;
        self.bind("edge", "shop").await?;
        self.complete_next("release-shop-").await?;
        self.complete_version("edge", 1).await?;
        self.ready("edge").await?;
        Ok(())
    }
}

/// A lookup of a grant that fails is neither a grant nor a denial.
///
/// Holds: F8.
#[tokio::test]
async fn what_rests_on_a_namespace_that_cannot_be_read_stays_as_it_was_and_the_rest_goes_on() -> Result<()> {
    for kinds in [&["referencegrants"][..], &[]] {
        let (mut scene, neighbour) = Scene::with_neighbour("unread", &[CROSSING]).await?;
        scene.rests_on(&neighbour).await?;
        let before = scene.versions_of_objects().await?;
        scene.stage.kill_hub();
        scene.take_rights(&neighbour, kinds).await?;
        let hub = scene.stage.spawn_hub(&scene.stage.hub_user.kubeconfig()?)?;
        scene.stage.hub = Some(hub);
        // Another Target, which rests on nothing there, is decided about, so all were looked at.
        scene.release("own", "1.0.0", json!({})).await?;
        scene.target("other", json!({})).await?;
        scene.bind("other", "own").await?;
        scene
            .target_is("other", "ReleasesRendered", "False", "Pending")
            .await?;
        if kinds.is_empty() {
            // As after a namespace was made anew, the hub serves the others.
            scene.complete_next("release-own-").await?;
            scene.complete_version("other", 1).await?;
            scene.ready("other").await?;
        }
        let after = scene.versions_of_objects().await?;
        for name in ["Target edge", "Release shop"] {
            ensure!(after.get(name) == before.get(name), "{name} was written");
        }
        let lines = scene
            .stage
            .log_lines("the hub has no rights on these objects of the pipeline; nothing that rests on the namespace is decided, and the others are served");
        let line = lines.iter().find(|line| line["namespace"] == neighbour.as_str());
        line.context("the hub does not say it")?;
        scene.stage.renew_rights().await?;
        scene
            .change_target("edge", json!({"userdata": {"looked": true}}))
            .await?;
        scene.complete_version("edge", 2).await?;
        let versions = scene.versions("edge").await?;
        ensure!(
            versions[1].spec.changes == "userdata changed",
            "{}",
            versions[1].spec.changes
        );
        let api: Api<Target> = scene.api();
        wait_for("the Target to be ready", LIMIT, async || {
            let status = api.get("edge").await?.status.unwrap_or_default();
            Ok((status.bootstrap_version == Some(versions[1].spec.version)).then_some(()))
        })
        .await?;
        scene.passed();
    }
    Ok(())
}
