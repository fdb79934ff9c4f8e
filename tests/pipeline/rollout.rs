//! A change of a Release reaches so many Targets of a Profile at a time, and halts when it fails.

use anyhow::Result;
use k8s_openapi::api::events::v1::Event;
use kube::ResourceExt;
use kube::api::{Api, ListParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::pipeline::{HydratedTarget, Profile, ProfileStatus};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::scene::{Scene, condition};
use support::LIMIT;

impl Scene {
    /// Targets that have the Release `shop` by the Profile `shops`, which brings a change to so many at a time.
    async fn with_fleet(&self, targets: &[&str], limit: Value) -> Result<()> {
        self.release("shop", "1.0.0", json!({})).await?;
        self.profile("shops", "shop", json!({"ring": "one"}), json!(null))
            .await?;
        self.limit("shops", limit).await?;
        for target in targets {
            self.target_with(target, json!({"ring": "one"}), json!({}))
                .await?;
        }
        self.complete_next("release-shop-").await?;
        for target in targets {
            self.complete_version(target, 1).await?;
            self.ready(target).await?;
        }
        Ok(())
    }

    /// A change reaches so many Targets of a Profile at a time.
    pub async fn limit(&self, profile: &str, limit: Value) -> Result<()> {
        let api: Api<Profile> = self.api();
        let patch = Patch::Merge(json!({"spec": {"maxUnavailable": limit}}));
        api.patch(profile, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until a Profile says so of its rollout.
    pub async fn profile_is(&self, profile: &str, reason: &str, updated: i32) -> Result<ProfileStatus> {
        let api: Api<Profile> = self.api();
        wait_for(
            &format!("{profile}: {reason}, {updated} updated"),
            LIMIT,
            async || {
                let status = api.get(profile).await?.status.unwrap_or_default();
                let is_so =
                    condition(&status.conditions, "Ready").is_some_and(|ready| ready.reason == reason);
                Ok((is_so && status.updated_targets == Some(updated)).then_some(status))
            },
        )
        .await
    }

    /// The hub has looked at everything that there was: a Target that comes to it later is served.
    async fn looked(&self, target: &str) -> Result<()> {
        self.target(target, json!({})).await?;
        self.target_is(target, "Ready", "False", "NoReleaseBindings")
            .await?;
        Ok(())
    }

    /// Waits for an event about an object.
    async fn event(&self, kind: &str, name: &str, reason: &str) -> Result<Event> {
        let api: Api<Event> = self.api();
        wait_for(&format!("an event {reason} of {name}"), LIMIT, async || {
            let events = api.list(&ListParams::default()).await?;
            let is_it = |event: &Event| {
                let about = event.regarding.as_ref();
                let is_about = about.is_some_and(|about| {
                    about.kind.as_deref() == Some(kind) && about.name.as_deref() == Some(name)
                });
                is_about && event.reason.as_deref() == Some(reason)
            };
            Ok(events.into_iter().find(is_it))
        })
        .await
    }
}

/// Holds: F15.
#[tokio::test]
async fn each_target_waits_for_the_chart_of_the_one_before_also_where_hubs_are_killed() -> Result<()> {
    let mut scene = Scene::new("staged").await?;
    let targets = ["a", "b", "c"];
    scene.with_fleet(&targets, json!(1)).await?;
    let status = scene.profile_is("shops", "Ready", 3).await?;
    let matched: Vec<&str> = status.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!((status.matched_targets, matched), (Some(3), targets.to_vec()));
    let first = scene.task_named("release-shop-").await?;
    scene.component_version("shop", "1.1.0").await?;
    scene.complete_other("release-shop-", &first).await?;
    let versions = scene.until_versions("a", 2).await?;
    assert_eq!(versions[1].spec.changes, "shop 1.0.0 → 1.1.0");
    for waiting in ["b", "c"] {
        let message = scene
            .target_is(waiting, "Ready", "False", "RolloutWaiting")
            .await?;
        assert!(
            message.contains(&format!("Profile {}/shops", scene.tenant())),
            "{message}"
        );
        scene
            .target_is(waiting, "BootstrapReady", "True", "Ready")
            .await?;
    }
    scene.profile_is("shops", "RollingOut", 0).await?;
    wait_for("the chart of the first to be on its way", LIMIT, async || {
        let message = scene.target_is("a", "BootstrapReady", "False", "Pending").await?;
        Ok(message.ends_with("is not pushed yet").then_some(()))
    })
    .await?;
    // Another hub lets no more through, and has nothing to say.
    let before = scene.versions_of_objects().await?;
    scene.stage.restart_hub().await?;
    scene.looked("later").await?;
    let after = scene.versions_of_objects().await?;
    for (name, version) in before {
        assert_eq!(after.get(&name), Some(&version), "{name} was written");
    }
    assert_eq!(
        scene.versions("b").await?.len() + scene.versions("c").await?.len(),
        2
    );
    scene.complete_version("a", 2).await?;
    scene.until_versions("b", 2).await?;
    scene.stage.restart_hub().await?;
    scene.looked("last").await?;
    assert_eq!(scene.versions("c").await?.len(), 1);
    scene.profile_is("shops", "RollingOut", 1).await?;
    scene.complete_version("b", 2).await?;
    scene.complete_version("c", 2).await?;
    for target in targets {
        scene.ready(target).await?;
        assert_eq!(scene.versions(target).await?.len(), 2);
    }
    scene.profile_is("shops", "Ready", 3).await?;
    let event = scene.event("Target", "a", "VersionMade").await?;
    assert_eq!(event.type_.as_deref(), Some("Normal"));
    let pushed = scene.event("Target", "c", "VersionPushed").await?;
    assert!(
        pushed.note.is_some_and(|note| note.ends_with("is pushed")),
        "a good event has no page"
    );
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_rollout_that_failed_halts_and_another_change_goes_on_where_it_halted() -> Result<()> {
    let mut scene = Scene::new("halted").await?;
    scene.with_fleet(&["a", "b"], json!("50%")).await?;
    let first = scene.task_named("release-shop-").await?;
    scene.component_version("shop", "1.1.0").await?;
    let second = scene.complete_other("release-shop-", &first).await?;
    let versions = scene.until_versions("a", 2).await?;
    let bootstrap = scene
        .task_named(&format!("bootstrap-a-v{}-", versions[1].spec.version))
        .await?;
    scene.fail(&bootstrap).await?;
    scene.target_is("a", "Ready", "False", "Failed").await?;
    let message = scene.target_is("b", "Ready", "False", "RolloutHalted").await?;
    assert!(message.contains("shops halted its rollout"), "{message}");
    let status = scene.profile_is("shops", "RolloutHalted", 0).await?;
    let message = &condition(&status.conditions, "Ready")
        .expect("it is there")
        .message;
    assert!(message.contains("failed on 1 of 2 Targets"), "{message}");
    let halted = scene.event("Profile", "shops", "RolloutHalted").await?;
    assert_eq!(halted.type_.as_deref(), Some("Warning"));
    scene.event("Target", "a", "Failed").await?;
    // The version says itself that it failed; before, it said that the hub has not spoken.
    let api: Api<HydratedTarget> = scene.api();
    let said = api.get(&versions[1].name_any()).await?.status.unwrap_or_default();
    assert_eq!(
        condition(&said.conditions, "Ready").map(|ready| ready.reason.as_str()),
        Some("Failed")
    );
    scene.stage.restart_hub().await?;
    scene.looked("later").await?;
    assert_eq!(scene.versions("b").await?.len(), 1, "it stays halted");
    scene.component_version("shop", "1.2.0").await?;
    let known = [first.uid(), second.uid()];
    let third = wait_for("the chart of the third change", LIMIT, async || {
        let tasks = scene.all_tasks().await?;
        let is_new =
            |task: &RenderTask| task.name_any().starts_with("release-shop-") && !known.contains(&task.uid());
        Ok(tasks.into_iter().find(is_new))
    })
    .await?;
    scene.stage.complete(&third).await?;
    scene.complete_version("a", 3).await?;
    scene.complete_version("b", 2).await?;
    for target in ["a", "b"] {
        scene.ready(target).await?;
    }
    let versions = scene.versions("b").await?;
    assert_eq!(
        versions[1].spec.changes, "shop 1.0.0 → 1.2.0",
        "it never had what failed"
    );
    scene.profile_is("shops", "Ready", 2).await?;
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_limit_is_a_number_from_1_or_a_percentage_up_to_100() -> Result<()> {
    let scene = Scene::new("limits").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!(null))
        .await?;
    for limit in [
        json!(1),
        json!(2_147_483_647),
        json!("1%"),
        json!("99%"),
        json!("100%"),
    ] {
        scene.limit("shops", limit).await?;
    }
    let refused = [
        json!(0),
        json!(-1),
        json!(2_147_483_648_i64),
        json!("0%"),
        json!("101%"),
        json!("01%"),
        json!("1"),
        json!("%"),
        json!(1.5),
        json!(true),
    ];
    for limit in refused {
        let answer = scene.limit("shops", limit.clone()).await;
        let message = answer.expect_err("the schema refuses it").to_string();
        assert!(message.contains("spec.maxUnavailable"), "{limit}: {message}");
    }
    scene.passed();
    Ok(())
}
