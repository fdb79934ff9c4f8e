//! More than a Target and a namespace can have, on a real API server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, PostParams};
use renderhub::api::pipeline::{ComponentVersion, HydratedTarget, Release, ReleaseBinding, Target};
use renderhub::plan::pipeline::kept_bytes::OBJECTS_OF_NAMESPACE;
use renderhub::plan::pipeline::resolution::BINDINGS_OF_TARGET;
use renderhub::plan::pipeline::version_bytes::VERSIONS_OF_NAMESPACE;
use renderhub_harness::finish::{self, Outcome};
use renderhub_harness::wait_for;
use serde_json::json;
use tokio::task::JoinHandle;

use crate::namespaces::CROSSING;
use crate::scene::{Scene, condition};
use support::{DIGEST, LIMIT};

/// Releases that a Target can have.
const RELEASES: i32 = 256;
/// Time that as many charts take on a machine that runs other programs too.
const FULL: Duration = LIMIT.saturating_mul(3);
/// Bytes of a large object's text.
const TEXT: usize = 1 << 20;
/// Bytes of the userdata of a Target whose versions are large.
const USERDATA: usize = 250_000;
/// Objects that are made at once.
const AT_ONCE: usize = 16;

impl Scene {
    /// Completes every Job from now on.
    fn complete_all(&self) -> JoinHandle<Result<()>> {
        let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
        let (client, rendering) = (self.stage.admin.clone(), self.stage.scope.rendering.clone());
        tokio::spawn(async move {
            finish::every_job(client, &rendering, |_| Outcome::Complete(said.clone())).await
        })
    }

    /// A Release that takes as much memory as `bytes` of text.
    async fn large_release(&self, namespace: &str, name: &str, bytes: usize) -> Result<()> {
        let release = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "Release", "metadata": {"name": name},
            "spec": {"componentVersionRef": {"name": "shop"}, "values": {"text": "x".repeat(bytes)}},
        });
        let releases: Api<Release> = Api::namespaced(self.stage.admin.clone(), namespace);
        let release = serde_json::from_value(release)?;
        releases.create(&PostParams::default(), &release).await?;
        Ok(())
    }

    /// As many large Releases as a namespace with little else has room for.
    async fn fill(&self, namespace: &str) -> Result<()> {
        let made = (0..OBJECTS_OF_NAMESPACE / (TEXT + 4_096)).map(|number| async move {
            let name = format!("large-{number}");
            self.large_release(namespace, &name, TEXT).await
        });
        stream::iter(made).buffer_unordered(4).try_collect::<()>().await
    }

    /// How many versions there are of the Targets whose names begin so. Whole ones would be many MiB.
    async fn count_versions(&self, target: &str) -> Result<usize> {
        let versions: Api<HydratedTarget> = self.api();
        let all = versions.list_metadata(&ListParams::default()).await?.items;
        let own = all
            .iter()
            .filter(|version| version.name_any().starts_with(target));
        Ok(own.count())
    }

    async fn until_count(&self, target: &str, count: usize) -> Result<()> {
        wait_for(&format!("{count} versions of {target}…"), LIMIT, async || {
            Ok((self.count_versions(target).await? == count).then_some(()))
        })
        .await
    }
}

/// Holds: F6.
#[tokio::test]
async fn the_release_that_is_one_too_many_is_refused_and_the_others_are_there() -> Result<()> {
    let scene = Scene::new("many").await?;
    let jobs = scene.complete_all();
    scene.component_version("shop", "1.0.0").await?;
    scene.target("edge", json!({})).await?;
    let made = stream::iter(0..=RELEASES).map(|number| {
        let (scene, name) = (&scene, format!("r{number}"));
        async move {
            let spec = json!({"uniqueName": name, "priority": RELEASES - number});
            scene.release_of(&name, "shop", spec).await?;
            scene.bind("edge", &name).await
        }
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    // The status comes after the tasks of the pass in which the hub saw the last Release.
    let message = scene
        .target_is_within(FULL, "edge", ("Ready", "False", "TooManyReleases"))
        .await?;
    let last = format!("r{RELEASES}");
    ensure!(
        message
            == format!(
                "Release {}/{last} is one more than a Target can have; bind fewer Releases to this Target",
                scene.tenant()
            ),
        "{message}"
    );
    // Versions of fewer Releases come first: those that were bound when the hub looked.
    let full = usize::try_from(RELEASES)?;
    let newest = wait_for("a version with all that a Target can have", FULL, async || {
        let newest = scene.versions("edge").await?.pop();
        Ok(newest.filter(|version| version.spec.releases.len() >= full))
    })
    .await?;
    ensure!(newest.spec.releases.len() == full && !newest.spec.releases.contains_key(&last));
    scene
        .target_is_within(FULL, "edge", ("BootstrapReady", "True", "Ready"))
        .await?;
    jobs.abort();
    scene.passed();
    Ok(())
}

/// Holds: F6.
#[tokio::test]
async fn the_binding_that_is_one_too_many_stops_the_target_and_what_is_there_stays() -> Result<()> {
    let scene = Scene::new("bindings").await?;
    let jobs = scene.complete_all();
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("app", "1.0.0", json!({})).await?;
    scene
        .profile("apps", "app", json!({"ring": "one"}), json!(null))
        .await?;
    scene.limit("apps", json!(1)).await?;
    scene.bind("edge", "shop").await?;
    for target in ["edge", "other"] {
        scene
            .target_with(target, json!({"ring": "one"}), json!({}))
            .await?;
    }
    for target in ["edge", "other"] {
        scene.ready(target).await?;
    }
    // Those that name no Release are bindings like others, and the Profile is one.
    let made = stream::iter(2..BINDINGS_OF_TARGET).map(|number| {
        let (scene, name) = (&scene, format!("r{}", number % 200));
        async move {
            let spec = json!({"targetRef": {"name": "edge"}, "releaseRef": {"name": name}});
            scene
                .make("ReleaseBinding", &format!("b{number}"), json!({}), spec)
                .await
        }
    });
    made.buffer_unordered(AT_ONCE).try_collect::<()>().await?;
    scene
        .target_is("edge", "ReleasesRendered", "False", "MissingDependencies")
        .await?;
    scene.bind("edge", "blog").await?;
    let message = scene
        .target_is("edge", "ReleasesResolved", "False", "TooManyBindings")
        .await?;
    let begin = format!("{} ReleaseBindings, ", BINDINGS_OF_TARGET + 1);
    ensure!(message.starts_with(&begin), "{message}");
    scene
        .target_is("edge", "Stalled", "True", "TooManyBindings")
        .await?;
    scene.target_is("edge", "BootstrapReady", "True", "Ready").await?;
    // A rollout that reaches one Target at a time passes it over.
    scene.component_version("app", "1.1.0").await?;
    let versions = scene.until_versions("other", 2).await?;
    ensure!(versions[1].spec.changes == "app 1.0.0 → 1.1.0");
    scene.ready("other").await?;
    let status = scene.profile_is("apps", "Ready", 1).await?;
    let message = condition(&status.conditions, "Ready").map(|ready| ready.message.as_str());
    let said = message.context("it is there")?;
    ensure!(
        said.contains("each Target that it can be brought to") && said.ends_with(": 1"),
        "{said}"
    );
    // What would leave on purpose stays until there are few enough.
    let bindings: Api<ReleaseBinding> = scene.api();
    scene.bind("edge", "more").await?;
    bindings.delete("edge-shop", &DeleteParams::default()).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene
        .change_target("edge", json!({"userdata": {"looked": true}}))
        .await?;
    scene
        .target_is("edge", "Ready", "False", "TooManyBindings")
        .await?;
    let versions = scene.versions("edge").await?;
    ensure!(versions.len() == 1 && versions[0].spec.releases.contains_key("shop"));
    bindings.delete("edge-more", &DeleteParams::default()).await?;
    let versions = scene.until_versions("edge", 2).await?;
    ensure!(
        versions[1].spec.releases.keys().eq(["app", "blog"]),
        "{:?}",
        versions[1].spec.changes
    );
    // It takes its turn once it can.
    scene.profile_is("apps", "Ready", 2).await?;
    jobs.abort();
    scene.passed();
    Ok(())
}

/// Holds: F6.
#[tokio::test]
async fn what_does_not_fit_into_a_namespace_takes_nothing_off_its_targets_and_is_told() -> Result<()> {
    let mut scene = Scene::new("overfull").await?;
    let jobs = scene.complete_all();
    for name in ["shop", "blog"] {
        scene.release(name, "1.0.0", json!({})).await?;
    }
    scene.target("edge", json!({})).await?;
    for name in ["shop", "blog"] {
        scene.bind("edge", name).await?;
    }
    scene.ready("edge").await?;
    scene.fill(scene.tenant()).await?;
    scene
        .change_target("edge", json!({"userdata": {"looked": 1}}))
        .await?;
    scene.until_versions("edge", 2).await?;
    scene.ready("edge").await?;
    scene.large_release(scene.tenant(), "one-too-many", TEXT).await?;
    let message = scene
        .target_is("edge", "Stalled", "True", "TooManyObjects")
        .await?;
    ensure!(
        message.contains(&format!("of namespace {} take", scene.tenant())),
        "{message}"
    );
    let events: Api<Event> = scene.api();
    wait_for("the event on what is not kept", LIMIT, async || {
        let all = events.list(&ListParams::default()).await?.items;
        let mut of_bound = all
            .iter()
            .filter(|event| event.reason.as_deref() == Some("TooManyObjects"));
        let is_release = |event: &Event| {
            let about = event.regarding.as_ref();
            about.and_then(|about| about.kind.as_deref()) == Some("Release")
        };
        Ok(of_bound.any(is_release).then_some(()))
    })
    .await?;
    // What would leave on purpose stays, also for a hub that starts anew and knows other objects than this one.
    let bindings: Api<ReleaseBinding> = scene.api();
    bindings.delete("edge-blog", &DeleteParams::default()).await?;
    scene.stage.restart_hub().await?;
    scene
        .change_target("edge", json!({"userdata": {"looked": 2}}))
        .await?;
    scene
        .target_is("edge", "Ready", "False", "TooManyObjects")
        .await?;
    ensure!(scene.versions("edge").await?.len() == 2);
    let releases: Api<Release> = scene.api();
    releases.delete("large-0", &DeleteParams::default()).await?;
    let versions = scene.until_versions("edge", 3).await?;
    ensure!(
        versions[2].spec.releases.keys().eq(["shop"]),
        "{}",
        versions[2].spec.changes
    );
    scene.ready("edge").await?;
    let target: Target = scene.api().get("edge").await?;
    let status = target.status.context("it is ready")?;
    ensure!(status.releases.len() == 1);
    jobs.abort();
    scene.passed();
    Ok(())
}

/// Holds: F6.
#[tokio::test]
async fn what_does_not_fit_into_a_namespace_takes_nothing_off_targets_of_others_and_holds_up_only_those_that_rest_on_it()
-> Result<()> {
    let (mut scene, neighbour) = Scene::with_neighbour("overfull", &[CROSSING]).await?;
    scene.rests_on(&neighbour).await?;
    let jobs = scene.complete_all();
    scene.release("own", "1.0.0", json!({})).await?;
    scene.target("other", json!({})).await?;
    scene.bind("other", "own").await?;
    scene.ready("other").await?;
    scene.fill(&neighbour).await?;
    scene.large_release(&neighbour, "one-too-many", TEXT).await?;
    let message = scene
        .target_is("edge", "Stalled", "True", "TooManyObjects")
        .await?;
    ensure!(
        message.contains(&format!("of namespace {neighbour} take")),
        "{message}"
    );
    scene.target_is("edge", "BootstrapReady", "True", "Ready").await?;
    // A version that goes may be one that is not kept, also for a hub that starts anew.
    let shared: Api<ComponentVersion> = Api::namespaced(scene.stage.admin.clone(), &neighbour);
    shared.delete("shared", &DeleteParams::default()).await?;
    scene.stage.restart_hub().await?;
    for target in ["edge", "other"] {
        scene
            .change_target(target, json!({"userdata": {"looked": true}}))
            .await?;
    }
    scene.until_versions("other", 2).await?;
    scene.ready("other").await?;
    scene
        .target_is("edge", "Ready", "False", "TooManyObjects")
        .await?;
    let versions = scene.versions("edge").await?;
    ensure!(versions.len() == 1 && versions[0].spec.releases.contains_key("shop"));
    // With room it is known that the version is missing, and what runs stays.
    let releases: Api<Release> = Api::namespaced(scene.stage.admin.clone(), &neighbour);
    for name in ["large-0", "large-1"] {
        releases.delete(name, &DeleteParams::default()).await?;
    }
    let versions = scene.until_versions("edge", 2).await?;
    ensure!(
        versions[1].spec.changes == "userdata changed",
        "{}",
        versions[1].spec.changes
    );
    ensure!(versions[1].spec.releases.contains_key("shop"));
    scene
        .target_is("edge", "Stalled", "True", "MissingDependencies")
        .await?;
    jobs.abort();
    scene.passed();
    Ok(())
}

/// Holds: F6.
#[tokio::test]
async fn history_gives_way_to_new_versions_of_a_full_namespace_and_without_it_they_are_refused() -> Result<()>
{
    let scene = Scene::new("history").await?;
    let data = |text: &str| json!({"allowEmpty": true, "userdata": {"text": text.repeat(USERDATA)}});
    let fitting = VERSIONS_OF_NAMESPACE / (USERDATA + 4_096);
    let jobs = scene.complete_all();
    // One Target whose first version is history.
    scene.target("first", data("a")).await?;
    scene.ready("first").await?;
    scene.change_target("first", data("b")).await?;
    scene.until_count("first-", 2).await?;
    scene.ready("first").await?;
    jobs.abort();
    let made = stream::iter(2..fitting).map(|number| {
        let (scene, spec) = (&scene, data("c"));
        async move { scene.target(&format!("t{number}"), spec).await }
    });
    made.buffer_unordered(4).try_collect::<()>().await?;
    scene.until_count("", fitting).await?;
    ensure!(scene.count_versions("first-").await? == 2);
    scene.target("more", data("d")).await?;
    scene.until_count("more-", 1).await?;
    // History gives way.
    scene.until_count("first-", 1).await?;
    scene.target("refused", data("e")).await?;
    let message = scene
        .target_is("refused", "BootstrapReady", "False", "TooManyVersions")
        .await?;
    ensure!(
        message.contains("delete Targets that are not needed"),
        "{message}"
    );
    scene
        .target_is("refused", "Stalled", "True", "TooManyVersions")
        .await?;
    ensure!(scene.count_versions("").await? == fitting);
    // It goes on by itself once there is room.
    let targets: Api<Target> = scene.api();
    targets.delete("more", &DeleteParams::default()).await?;
    scene.until_count("refused-", 1).await?;
    scene.passed();
    Ok(())
}
