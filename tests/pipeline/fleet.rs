//! Many Targets: charts are shared, Profiles match without an object each, and exclusion follows priority.

use anyhow::{Context, Result};
use k8s_openapi::jiff::SignedDuration;
use kube::ResourceExt;
use kube::api::Api;
use renderhub::api::pipeline::{Profile, Target};
use renderhub_harness::wait_for;
use serde_json::json;

use crate::scene::Scene;
use support::LIMIT;

#[tokio::test]
async fn targets_with_one_release_in_common_share_its_chart() -> Result<()> {
    let scene = Scene::new("fleet").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    for target in ["a", "b", "c"] {
        scene
            .target_with(target, json!({"ring": "one"}), json!({}))
            .await?;
    }
    scene.target("d", json!({})).await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!({"from": "shops"}))
        .await?;
    scene
        .profile("blogs", "blog", json!({"ring": "one"}), json!({"and": "blogs"}))
        .await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_next("release-blog-").await?;
    for target in ["a", "b", "c"] {
        scene.complete_version(target, 1).await?;
        let ready = scene.ready(target).await?;
        let releases = ready.status.unwrap().releases;
        let sources = releases
            .iter()
            .map(|release| (release.unique_name.as_str(), String::from(release.source.clone())));
        let expected = [("blog", "Profile/blogs"), ("shop", "Profile/shops")];
        assert!(
            sources.eq(expected.map(|(name, source)| (name, source.to_owned()))),
            "{releases:?}"
        );
    }
    let tasks: Vec<String> = scene
        .all_tasks()
        .await?
        .iter()
        .map(ResourceExt::name_any)
        .collect();
    assert_eq!(tasks.len(), 3 + 2, "M + N, and no more: {tasks:?}");
    let versions = scene.versions("a").await?;
    assert_eq!(
        versions[0].spec.userdata,
        Some(json!({"from": "shops", "and": "blogs"}))
    );
    let profiles: Api<Profile> = scene.api();
    wait_for("the number of matched Targets", LIMIT, async || {
        let status = profiles.get("shops").await?.status.unwrap_or_default();
        Ok((status.matched_targets == Some(3)).then_some(()))
    })
    .await?;
    scene
        .target_is("d", "Ready", "False", "NoReleaseBindings")
        .await?;
    scene.passed();
    Ok(())
}

/// The statuses of most are left while many are on their way, and none is forgotten.
#[tokio::test]
async fn each_of_many_targets_says_that_its_charts_are_on_their_way() -> Result<()> {
    let mut scene = Scene::new("crowd").await?;
    scene.stage.kill_hub();
    scene.release("shop", "1.0.0", json!({})).await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!({}))
        .await?;
    let targets: Vec<String> = (0..60).map(|number| format!("edge-{number}")).collect();
    for target in &targets {
        scene
            .target_with(target, json!({"ring": "one"}), json!({}))
            .await?;
    }
    scene.stage.start_hub().await?;
    let task = scene.task_named("release-shop-").await?;
    let decided = task.metadata.creation_timestamp.context("no creation time")?.0;
    let (api, mut left): (Api<Target>, _) = (scene.api(), 0);
    for target in &targets {
        scene.target_is(target, "Ready", "False", "Pending").await?;
        let said = api.get(target).await?.status.context("no status")?.conditions;
        let ready = said.iter().find(|condition| condition.type_ == "Ready");
        let written = ready.context("no Ready")?.last_transition_time.0;
        // No status of such a Target is written sooner, however fast the hub is.
        left += usize::from(written.duration_since(decided) > SignedDuration::from_secs(25));
    }
    assert!(left > 30, "only {left} of the statuses were left");
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn of_releases_that_exclude_each_other_the_one_with_the_highest_priority_is_there() -> Result<()> {
    let scene = Scene::new("excluded").await?;
    scene
        .release("shop", "1.0.0", json!({"priority": 5, "labels": {"tier": "web"}}))
        .await?;
    scene.release_of("shop-old", "shop", json!({})).await?;
    let selector = json!({"matchLabels": {"tier": "web"}});
    scene
        .release("proxy", "1.0.0", json!({"antiAffinity": selector}))
        .await?;
    scene.target("edge", json!({})).await?;
    for release in ["shop", "shop-old", "proxy"] {
        scene.bind("edge", release).await?;
    }
    scene.complete_next("release-shop-").await?;
    scene.complete_next("bootstrap-edge-v").await?;
    scene.ready("edge").await?;
    let message = scene
        .target_is("edge", "ReleasesResolved", "True", "Resolved")
        .await?;
    let tenant = scene.tenant();
    assert!(
        message.contains(&format!(
            "{tenant}/proxy is left out, because {tenant}/shop excludes it"
        )),
        "{message}"
    );
    assert!(
        message.contains(&format!(
            "{tenant}/shop-old is left out, because {tenant}/shop has the same unique name"
        )),
        "{message}"
    );
    scene.passed();
    Ok(())
}
