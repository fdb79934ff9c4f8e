//! A Target that is pinned to an earlier version has its content, under a new number.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};
use kube::ResourceExt;
use renderhub::api::RenderTask;
use renderhub::api::pipeline::HydratedTargetSpec;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::prune::{Found, Pushed, Store};
use crate::scene::Scene;
use support::away::LOOPBACK;
use support::registry::{BASIC, Hostile, PASSWORD, Reply, Seen, say};
use support::tenant::BUILDER;
use support::{DIGEST, LIMIT};

/// What a scripted registry does with a question.
const HANGS: u16 = 0;

/// A registry that answers every question for a tag with a status, which can be another later, and for a digest that it has it: by
/// their digest the hub asks for what tasks say that they pushed.
struct Scripted {
    registry: Hostile,
    status: Arc<AtomicU16>,
}

impl Scripted {
    async fn start(status: u16) -> Self {
        let status = Arc::new(AtomicU16::new(status));
        let said = Arc::clone(&status);
        let registry = Hostile::start(move |seen, _| {
            let is_there = || say(200, &[("Docker-Content-Digest", DIGEST.to_owned())]);
            Some(match said.load(Ordering::Relaxed) {
                _ if !is_for_tag(seen) => is_there(),
                HANGS => Reply::Hang,
                200 => is_there(),
                status => say(status, &[]),
            })
        })
        .await;
        Self { registry, status }
    }

    fn host(&self) -> String {
        self.registry.address.to_string()
    }

    fn says(&self, status: u16) {
        self.status.store(status, Ordering::Relaxed);
    }

    /// The questions for tags.
    fn asked(&self) -> Vec<String> {
        let seen = self.registry.seen();
        let for_tags = seen.iter().filter(|seen| is_for_tag(seen));
        for_tags
            .map(|seen| format!("{} {}", seen.method(), seen.target()))
            .collect()
    }
}

fn is_for_tag(seen: &Seen) -> bool {
    seen.target().contains("/manifests/v0.0.")
}

/// The question for the chart of the Release in a version.
fn question(version: &HydratedTargetSpec) -> Result<String> {
    let shop = &version.releases["shop"];
    let (_, path) = shop.repository.split_once('/').context("a path")?;
    Ok(format!("HEAD /v2/{path}/manifests/{}", shop.version))
}

impl Scene {
    /// A Target with two versions, of which the charts of the Release differ; the first.
    async fn target_with_two_versions(&self, spec: Value) -> Result<HydratedTargetSpec> {
        self.release("shop", "1.0.0", json!({})).await?;
        self.target("edge", spec).await?;
        self.bind("edge", "shop").await?;
        let first = self.complete_next("release-shop-").await?;
        self.complete_version("edge", 1).await?;
        self.component_version("shop", "1.1.0").await?;
        self.complete_other("release-shop-", &first).await?;
        self.complete_version("edge", 2).await?;
        self.ready("edge").await?;
        Ok(self.versions("edge").await?.remove(0).spec)
    }

    /// The same with a real registry, and the charts of the Release and the Target in either version.
    async fn target_with_two_versions_in(
        &self,
        store: &Store,
    ) -> Result<(HydratedTargetSpec, [Pushed; 2], [Pushed; 2])> {
        self.release("shop", "1.0.0", json!({})).await?;
        self.target("edge", json!({})).await?;
        self.bind("edge", "shop").await?;
        let shop = self.push_next(store, "release-shop-", &[]).await?;
        let edge = self.push_next(store, "bootstrap-edge-v", &[]).await?;
        self.component_version("shop", "1.1.0").await?;
        let newer_shop = self.push_next(store, "release-shop-", &[&shop]).await?;
        let newer_edge = self.push_next(store, "bootstrap-edge-v", &[&edge]).await?;
        let versions = self.until_versions("edge", 2).await?;
        self.ready("edge").await?;
        let first = versions[0].spec.clone();
        Ok((first, [shop, newer_shop], [edge, newer_edge]))
    }

    /// Names of the tasks for charts of Releases.
    async fn release_tasks(&self) -> Result<Vec<String>> {
        let all = self.all_tasks().await?;
        let names = all.iter().map(ResourceExt::name_any);
        Ok(names.filter(|name| name.starts_with("release-")).collect())
    }

    async fn task_of_attempt(&self, number: u32) -> Result<RenderTask> {
        wait_for(&format!("attempt {number}"), LIMIT, async || {
            let all = self.all_tasks().await?;
            let is_it = |task: &RenderTask| task.name_any().ends_with(&format!("-r{number}"));
            Ok(all.into_iter().find(is_it))
        })
        .await
    }
}

#[tokio::test]
async fn a_target_goes_back_to_a_version_and_forward_again() -> Result<()> {
    let scene = Scene::new("back").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("edge", json!({"userdata": {"n": 1}})).await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    scene.change_target("edge", json!({"userdata": {"n": 2}})).await?;
    scene.complete_version("edge", 2).await?;
    let first = scene.versions("edge").await?[0].spec.clone();
    scene
        .change_target("edge", json!({"rollbackTo": first.version}))
        .await?;
    scene.complete_version("edge", 3).await?;
    let message = scene
        .target_is("edge", "ReleasesResolved", "True", "Resolved")
        .await?;
    assert!(
        message.contains(&format!("pinned to version {}", first.version)),
        "{message}"
    );
    let third = scene.versions("edge").await?[2].spec.clone();
    assert_eq!(
        (third.version, third.userdata, third.rollback_to),
        (first.version + 2, first.userdata, Some(first.version))
    );
    assert_eq!(third.releases, first.releases);
    // What is bound meanwhile changes nothing.
    scene.change_target("edge", json!({"userdata": {"n": 3}})).await?;
    scene.ready("edge").await?;
    assert_eq!(scene.versions("edge").await?.len(), 3);
    scene.change_target("edge", json!({"rollbackTo": null})).await?;
    scene.complete_version("edge", 4).await?;
    assert_eq!(
        scene.versions("edge").await?[3].spec.userdata,
        Some(json!({"n": 3}))
    );
    scene.change_target("edge", json!({"rollbackTo": 7})).await?;
    scene
        .target_is("edge", "Stalled", "True", "VersionNotFound")
        .await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_chart_that_the_registry_has_lost_is_rendered_again_when_a_target_goes_back() -> Result<()> {
    let (scene, store) = Scene::with_store("lost").await?;
    let (first, [shop, newer_shop], [edge, newer_edge]) =
        Box::pin(scene.target_with_two_versions_in(&store)).await?;
    store.lose(&shop).await?;
    assert_eq!(store.found(&shop).await?, Found::Nothing);
    let change = json!({"rollbackTo": first.version});
    scene.change_target("edge", change).await?;
    let again = scene.task_of_attempt(2).await?;
    assert_eq!(
        (&again.spec.repository, &again.spec.tag),
        (&shop.repository, &shop.tag)
    );
    scene
        .target_is("edge", "ReleasesRendered", "False", "Pending")
        .await?;
    assert_eq!(scene.versions("edge").await?.len(), 2, "what runs stays");
    // A renderer of another release gives other bytes for the same content.
    let pushed = scene.push_for(&store, &again, "other bytes").await?;
    scene
        .push_next(&store, "bootstrap-edge-v", &[&edge, &newer_edge])
        .await?;
    scene.ready("edge").await?;
    let third = scene.versions("edge").await?.remove(2).spec;
    let (known, now) = (&first.releases["shop"], &third.releases["shop"]);
    assert_eq!(
        (&now.repository, &now.version),
        (&known.repository, &known.version)
    );
    let digest = pushed.artifact.manifest.digest.to_string();
    assert_ne!(known.digest.as_ref(), Some(&digest));
    assert_eq!(now.digest, Some(digest));
    assert_eq!(third.rollback_to, Some(first.version));
    for chart in [&pushed, &newer_shop] {
        assert_eq!(store.found(chart).await?, Found::TheChart, "{}", chart.tag);
    }
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_chart_that_the_registry_has_is_not_rendered_again_when_a_target_goes_back() -> Result<()> {
    let (scene, store) = Scene::with_store("there").await?;
    let (first, [shop, _], [edge, newer_edge]) = Box::pin(scene.target_with_two_versions_in(&store)).await?;
    // The task of the earlier chart is there: the version names it.
    let before = scene.release_tasks().await?;
    assert_eq!(before.len(), 2);
    let change = json!({"rollbackTo": first.version});
    scene.change_target("edge", change).await?;
    scene
        .push_next(&store, "bootstrap-edge-v", &[&edge, &newer_edge])
        .await?;
    scene.ready("edge").await?;
    assert_eq!(scene.release_tasks().await?, before);
    let third = scene.versions("edge").await?.remove(2).spec;
    assert_eq!(third.releases, first.releases);
    assert_eq!(store.found(&shop).await?, Found::TheChart);
    scene.passed();
    Ok(())
}

/// Holds: F18.
#[tokio::test]
async fn while_a_registry_gives_no_answer_what_runs_stays_and_once_it_does_the_target_goes_on() -> Result<()>
{
    let mut scene = Scene::new("silent").await?;
    let registry = Scripted::start(500).await;
    let host = registry.host();
    scene.stage.use_registry_at(&host, json!({})).await?;
    let first = scene.target_with_two_versions(json!({})).await?;
    let before = scene.release_tasks().await?;
    assert!(registry.asked().is_empty());
    let change = json!({"rollbackTo": first.version});
    scene.change_target("edge", change).await?;
    let message = scene
        .target_is("edge", "Ready", "False", "ChartLookupFailed")
        .await?;
    assert!(message.contains(&host) && message.contains("pinned"), "{message}");
    // Another answer that is none, and a hub that starts anew.
    registry.says(HANGS);
    scene.stage.kill_hub();
    let asked = registry.asked().len();
    scene.stage.start_hub().await?;
    wait_for("the registry to be asked", LIMIT, async || {
        Ok((registry.asked().len() > asked).then_some(()))
    })
    .await?;
    assert_eq!(scene.versions("edge").await?.len(), 2);
    assert_eq!(scene.release_tasks().await?, before);
    registry.says(200);
    scene.complete_version("edge", 3).await?;
    scene.ready("edge").await?;
    assert_eq!(scene.release_tasks().await?, before);
    let (asked, question) = (registry.asked(), question(&first)?);
    assert!(asked.iter().all(|asked| *asked == question), "{asked:?}");
    // A Target that has arrived asks nothing, and a hub that starts anew writes nothing about it.
    let objects = scene.versions_of_objects().await?;
    scene.stage.kill_hub();
    scene.stage.start_hub().await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene.target("other", json!({})).await?;
    scene.bind("other", "blog").await?;
    scene.task_named("release-blog-").await?;
    assert_eq!(registry.asked(), asked);
    let now = scene.versions_of_objects().await?;
    for (object, version) in objects {
        assert_eq!(now.get(&object), Some(&version), "{object}");
    }
    scene.passed();
    Ok(())
}

/// Holds: F18.
#[tokio::test]
async fn a_registry_that_says_that_it_has_nothing_has_a_chart_rendered_once() -> Result<()> {
    let scene = Scene::new("denies").await?;
    let registry = Scripted::start(404).await;
    scene.stage.use_registry_at(&registry.host(), json!({})).await?;
    let first = scene.target_with_two_versions(json!({})).await?;
    let change = json!({"rollbackTo": first.version});
    scene.change_target("edge", change).await?;
    let again = scene.task_of_attempt(2).await?;
    scene.stage.complete(&again).await?;
    scene.complete_version("edge", 3).await?;
    scene.ready("edge").await?;
    assert_eq!(registry.asked(), [question(&first)?]);
    let tasks = scene.release_tasks().await?;
    assert!(tasks.iter().all(|name| !name.ends_with("-r3")), "{tasks:?}");
    scene.passed();
    Ok(())
}

/// Holds: F11, F13.
#[tokio::test]
async fn a_tenants_registry_is_asked_as_the_targets_account_and_at_no_address_of_the_hubs_own() -> Result<()>
{
    for is_allowed in [true, false] {
        let flags: &[&str] = if is_allowed { &[LOOPBACK] } else { &[] };
        let mut scene = Scene::with_flags("asked", flags).await?;
        let registry = Hostile::start(|seen, _| {
            let is_known = seen.authorization() == Some(BASIC);
            Some(if is_known {
                say(200, &[("Docker-Content-Digest", DIGEST.to_owned())])
            } else {
                say(401, &[("WWW-Authenticate", "Basic realm=\"r\"".to_owned())])
            })
        })
        .await;
        scene.make_own_login("canary-user", PASSWORD).await?;
        let own = json!({
            "hostname": registry.address.to_string(), "plainHTTP": true, "pushSecretRef": {"name": "own-push"},
        });
        scene.registry("own", own).await?;
        let target = json!({"renderRegistryRef": {"name": "own"}, "serviceAccountName": BUILDER});
        let first = scene.target_with_two_versions(target).await?;
        let change = json!({"rollbackTo": first.version});
        scene.change_target("edge", change).await?;
        if is_allowed {
            scene.complete_version("edge", 3).await?;
            scene.ready("edge").await?;
            let seen = registry.seen();
            assert_eq!(seen.last().and_then(|seen| seen.authorization()), Some(BASIC));
        } else {
            scene
                .target_is("edge", "Ready", "False", "ChartLookupFailed")
                .await?;
            assert!(registry.seen().is_empty() && registry.connections() == 0);
        }
        scene.stage.hub_read_nothing_itself(scene.tenant()).await?;
        scene.passed();
    }
    Ok(())
}
