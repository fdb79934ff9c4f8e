//! The rights that a hub has more where it makes tasks for Targets: it uses each, needs no other, and writes nothing else with them.

use std::collections::BTreeSet;

use renderhub_harness::audit::Mark;

use super::*;
use crate::scene::Scene;
use support::api::GRANTED_KINDS;
use support::record::is_housekeeping;
use support::rights::chart_values;

const ON: &str = "--pipeline=true";
const CROSSING: &str = "--no-cross-namespace-refs=false";

async fn make_component(scene: &Scene) -> Result<()> {
    let component = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "Component",
        "metadata": {"name": "shop", "namespace": scene.tenant()}, "spec": {},
    });
    apply::object(&scene.stage.admin, component).await?;
    Ok(())
}

/// What a hub does for Targets so that it needs each of its rights: versions come and go, and each status is written.
async fn serve_targets(scene: &Scene) -> Result<()> {
    scene.release("shop", "1.0.0", json!({})).await?;
    scene
        .registry("images", json!({"hostname": "registry.test"}))
        .await?;
    scene
        .target_with("edge", json!({"ring": "one"}), json!({"historyLimit": 1}))
        .await?;
    scene.bind_registry("edge", "images").await?;
    scene
        .profile("shops", "shop", json!({"ring": "one"}), json!(null))
        .await?;
    scene.bind("edge", "shop").await?;
    scene.complete_next("release-shop-").await?;
    scene.complete_version("edge", 1).await?;
    for round in [2, 3] {
        let data = json!({"round": round});
        scene.change_target("edge", json!({"userdata": data})).await?;
        let number = wait_for("the next version", LIMIT, async || {
            let newest = scene.versions("edge").await?.pop().map(|newest| newest.spec);
            let newest = newest.filter(|newest| newest.userdata.as_ref() == Some(&data));
            Ok(newest.map(|newest| newest.version))
        })
        .await?;
        scene.complete_next(&format!("bootstrap-edge-v{number}-")).await?;
        wait_for(
            "the version to be pushed, and old ones to go",
            LIMIT,
            async || {
                let versions = scene.versions("edge").await?;
                let newest = versions.last().and_then(|newest| newest.status.as_ref());
                let is_pushed = newest.is_some_and(|status| status.pushed_at.is_some());
                Ok((is_pushed && versions.len() == 2).then_some(()))
            },
        )
        .await?;
    }
    scene.ready("edge").await?;
    Ok(())
}

/// A hub with the pipeline on, and its catalog where it has a list.
async fn served(prefix: &str, flags: &[&str]) -> Result<Scene> {
    let flags = [&[ON][..], flags].concat();
    let mut stage = Stage::on(old_plane().await?, prefix, &flags).await?;
    stage.make_registry().await?;
    stage.start_hub().await?;
    let scene = Scene { stage };
    make_component(&scene).await?;
    serve_targets(&scene).await?;
    Ok(scene)
}

/// What the chart gives with these flags and not without the pipeline.
async fn added(stage: &Stage, flags: &[&str]) -> Result<BTreeSet<Grant>> {
    let is_kept = |flag: &&&str| !flag.starts_with("--catalog-namespaces");
    let flags: Vec<String> = flags.iter().filter(is_kept).map(ToString::to_string).collect();
    let without = Rights::of_chart(&chart_values(&stage.scope, &flags, &[])).await?;
    let (with, without) = (stage.rights.grants(), without.grants());
    Ok(with.difference(&without).cloned().collect())
}

/// Writes of a hub, by the place and what is done there.
async fn writes(stage: &Stage) -> Result<BTreeSet<String>> {
    let events = stage
        .plane
        .audit()?
        .since_with(Mark::START, stage.hub_user.name())
        .await?;
    let own = events.iter().filter(|event| {
        let who = event.impersonated_user.as_deref().unwrap_or(&event.user);
        who == stage.hub_user.name() && event.is_write() && !is_housekeeping(event)
    });
    let places = own.map(|event| {
        let place = match event.namespace.as_str() {
            "" => "the cluster",
            name if name == stage.scope.tenant => "the tenant",
            name if name == stage.scope.rendering => "rendering",
            other => other,
        };
        format!("{} in {place}", event.action())
    });
    Ok(places.collect())
}

/// All that is written where Targets are served, tasks included.
const WRITTEN: [&str; 21] = [
    "create events in the tenant",
    "create hydratedtargets in the tenant",
    "create jobs in rendering",
    "create rendertasks in the tenant",
    "create secrets in rendering",
    "delete hydratedtargets in the tenant",
    "delete jobs in rendering",
    "delete rendertasks in the tenant",
    "delete secrets in rendering",
    "patch clusterregistries/status in the cluster",
    "patch components/status in the tenant",
    "patch componentversions/status in the tenant",
    "patch profiles/status in the tenant",
    "patch registrybindings/status in the tenant",
    "patch releasebindings/status in the tenant",
    "patch releases/status in the tenant",
    "patch rendertasks in the tenant",
    "patch rendertasks/status in the tenant",
    "patch targets in the tenant",
    "patch targets/status in the tenant",
    "update hydratedtargets/status in the tenant",
];

/// What a hub writes besides, where other tests of the plane have left platform objects: they have a status too, and events.
fn writes_of_others() -> BTreeSet<String> {
    let statuses = GRANTED_KINDS
        .iter()
        .map(|kind| format!("patch {kind}/status in the cluster"));
    statuses.chain(["create events in default".to_owned()]).collect()
}

/// Holds: I1.
#[tokio::test]
async fn a_hub_that_serves_targets_uses_every_right_that_it_has_more_and_writes_nothing_else() -> Result<()> {
    let _alone = ALONE.lock().await;
    let catalog = old_plane().await?.namespace("catalog").await?;
    let catalogs = format!("--catalog-namespaces={catalog}");
    for (prefix, flags) in [
        ("everywhere", &[EVERYWHERE][..]),
        ("lists", &[CROSSING, &catalogs]),
    ] {
        let scene = served(prefix, flags).await?;
        let added = added(&scene.stage, flags).await?;
        ensure!(added.len() > 10, "{added:?}");
        wait_for("every right of the pipeline to be used", LIMIT, async || {
            let unused = scene.stage.rights.unused(&requests(&scene.stage).await?);
            let unused: Vec<_> = unused.intersection(&added).map(ToString::to_string).collect();
            ensure!(
                unused.is_empty(),
                "the chart gives what no hub needs: {unused:#?}"
            );
            Ok(Some(()))
        })
        .await?;
        let mut written = writes(&scene.stage).await?;
        let known: BTreeSet<_> = WRITTEN.into_iter().map(str::to_owned).collect();
        let of_others = writes_of_others();
        written.retain(|write| known.contains(write) || !of_others.contains(write));
        assert_eq!(written, known, "{flags:?}");
        scene.passed();
    }
    Ok(())
}

/// A hub that may do everything asks for what one with the chart's rights may do, and reads besides only what Targets of its team name.
///
/// Holds: I1.
#[tokio::test]
async fn a_single_tenants_hub_asks_for_nothing_more_for_targets() -> Result<()> {
    let _alone = ALONE.lock().await;
    let flags = [ON, EVERYWHERE, "--single-tenant=true"];
    let mut stage = Stage::on(old_plane().await?, "single", &flags).await?;
    stage.make_registry().await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_own_secret(&tenant, "own-push").await?;
    stage.make_own_registry(&tenant, "own").await?;
    stage.start_hub().await?;
    let scene = Scene { stage };
    serve_targets(&scene).await?;
    scene
        .target("own", json!({"renderRegistryRef": {"name": "own"}}))
        .await?;
    scene.bind("own", "shop").await?;
    let first = scene.task_named("release-shop-").await?;
    scene.complete_other("release-shop-", &first).await?;
    scene.complete_version("own", 1).await?;
    scene.ready("own").await?;
    let bounded: Vec<String> = [ON, EVERYWHERE].map(str::to_owned).to_vec();
    let bounded = Rights::of_chart(&chart_values(&scene.stage.scope, &bounded, &[])).await?;
    // Classes of other tests of this plane are tried.
    let asked: Vec<_> = requests(&scene.stage).await?;
    let asked: Vec<_> = asked
        .into_iter()
        .filter(|event| !is_housekeeping(event) && !event.resource.is_empty() && event.verb != "try")
        .collect();
    let more: Vec<_> = bounded.exceeded(&asked).iter().map(ToString::to_string).collect();
    let read = [
        format!("get secrets own-push in {tenant}"),
        format!("get renderhub.dev/registries own in {tenant}"),
    ];
    assert_eq!(more, read);
    scene.passed();
    Ok(())
}
