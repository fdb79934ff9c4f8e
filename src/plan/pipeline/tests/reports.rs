//! What events say of charts and versions.

use serde_json::json;

use super::statuses::ready;
use super::world::{World, key};
use crate::api::conditions::Reason;
use crate::api::pipeline::HydratedTargetStatus;
use crate::plan::pipeline::reports;

/// A Target with a Release whose chart is on its way.
fn bound() -> World {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.target("edge", &json!({}), json!({}));
    world.bind("edge", "shop");
    world.step("edge");
    world
}

#[test]
fn a_chart_of_a_release_that_fails_is_told_once() {
    let mut world = bound();
    world.fail(true);
    let before = world.objects.targets[&key("edge")].status.clone();
    let failed = world.step("edge").status;
    let report = reports::of_target(&before, &failed).unwrap();
    assert_eq!((report.is_warning, report.reason), (true, Reason::ReleaseFailed));
    assert_eq!(reports::of_target(&failed, &failed), None);
}

#[test]
fn what_happens_to_a_version_is_told_once() {
    let mut world = bound();
    world.succeed();
    let (_, version) = world.step("edge").new_version.unwrap();
    let report = reports::of_new_version(&version);
    let note = format!("version {} is made: first version: shop 1.0.0", version.version);
    assert_eq!(
        (report.is_warning, report.reason, report.note),
        (false, Reason::VersionMade, note)
    );
    world.step("edge");
    world.fail(false);
    let before = world.objects.targets[&key("edge")].status.clone();
    let decision = world.step("edge");
    let report = reports::of_target(&before, &decision.status).unwrap();
    assert_eq!(report.reason, Reason::Failed);
    let failed = decision.version_status.unwrap().status;
    assert_eq!(ready(&failed.conditions).1, "Failed");
    assert_eq!(
        reports::of_version(7, &HydratedTargetStatus::default(), &failed),
        None
    );
    assert!(world.step("edge").version_status.is_none(), "it is written once");
    world.now += 60;
    world.step("edge");
    world.succeed();
    let pushed = world.step("edge").version_status.unwrap().status;
    assert_eq!(
        (ready(&pushed.conditions).0, pushed.observed_generation),
        ("True", Some(1))
    );
    let report = reports::of_version(7, &failed, &pushed).unwrap();
    let note = "the chart of version 7 is pushed";
    assert_eq!(
        (report.reason, report.note.as_str()),
        (Reason::VersionPushed, note)
    );
    assert_eq!(reports::of_version(7, &pushed, &pushed), None);
}
