//! A change of a Release reaches a few Targets at a time.

use serde_json::{Value, json};

use super::world::{World, at, key};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::history::is_pushed;
use crate::plan::pipeline::task_state::PipelineTaskState;

/// Targets that have the Release `shop` in version 1.0.0 by a Profile that brings a change to so many at a time.
pub(super) fn fleet(names: &[&str], limit: &Value) -> World {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.staged_profile("shops", "shop", &json!({"ring": "one"}), limit);
    for name in names {
        world.target(name, &json!({"ring": "one"}), json!({}));
    }
    // None has it yet, so each gets it at once.
    for name in names {
        world.step(name);
        assert_eq!(world.ready(name).0, "Pending");
    }
    for name in names {
        world.settle(name);
        assert_eq!(world.bundled(name), ["shop 1.0.0"]);
    }
    world
}

/// Steps once for each.
pub(super) fn step(world: &mut World, names: &[&str]) -> Vec<TargetDecision> {
    names.iter().map(|name| world.step(name)).collect()
}

/// What each has in its newest version, and why it is not ready.
fn stand(world: &World, names: &[&str]) -> Vec<String> {
    let of = |name: &&str| {
        let version = world.bundled(name).concat();
        let version = version.trim_start_matches("shop ").to_owned();
        format!("{version} {}", world.ready(name).0)
    };
    names.iter().map(of).collect()
}

fn on_their_way(world: &World) -> usize {
    let versions = world.objects.hydrated_targets.values();
    versions.filter(|version| !is_pushed(version)).count()
}

/// Steps and tasks that succeed, until nothing is left to do; never more than so many are on their way.
pub(super) fn roll_out(world: &mut World, names: &[&str], most: usize) {
    for _ in 0..names.len() * 8 {
        step(world, names);
        assert!(on_their_way(world) <= most);
        world.succeed();
    }
}

/// Holds: F15.
#[test]
fn the_second_target_waits_until_the_chart_of_the_first_is_pushed() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    let tasks: Vec<usize> = step(&mut world, &names)
        .iter()
        .map(|decision| decision.new_tasks.len())
        .collect();
    assert_eq!(tasks, [1, 0, 0]);
    let waits = "1.0.0 RolloutWaiting";
    assert_eq!(stand(&world, &names), ["1.0.0 Pending", waits, waits]);
    let message = world.ready("b").1;
    assert!(
        message.contains("the rollout of Profile team-a/shops"),
        "{message}"
    );
    world.succeed();
    // The version of the first is made; its chart is not pushed.
    for _ in 0..3 {
        step(&mut world, &names);
        assert_eq!(stand(&world, &names), ["2.0.0 Pending", waits, waits]);
    }
    world.succeed();
    step(&mut world, &names);
    // The chart of the Release is there already, so the next version is made at once.
    assert_eq!(stand(&world, &names), ["2.0.0 Ready", "2.0.0 Pending", waits]);
    roll_out(&mut world, &names, 1);
    assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 3]);
}

#[test]
fn so_many_are_reached_at_a_time_as_the_profile_says() {
    let names = ["a", "b", "c", "d", "e"];
    for (limit, places) in [
        (json!(1), 1),
        (json!(2), 2),
        (json!("40%"), 2),
        (json!("59%"), 2),
        (json!("1%"), 1),
        (json!("100%"), 5),
        (json!(9), 5),
    ] {
        let mut world = fleet(&names, &limit);
        world.component_version("shop", "2.0.0");
        step(&mut world, &names);
        world.succeed();
        step(&mut world, &names);
        assert_eq!(on_their_way(&world), places, "{limit}");
        roll_out(&mut world, &names, places);
        assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 5], "{limit}");
    }
}

#[test]
fn a_rollout_halts_when_it_failed_and_goes_on_once_that_is_mended() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(2));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.succeed();
    step(&mut world, &names);
    step(&mut world, &names);
    world.fail(false);
    step(&mut world, &names);
    let halted = ["2.0.0 Failed", "2.0.0 Failed", "1.0.0 RolloutHalted"];
    assert_eq!(stand(&world, &names), halted);
    let versions = world.objects.hydrated_targets.values();
    let said: Vec<&str> = versions
        .filter(|version| !is_pushed(version))
        .filter_map(|version| Some(version.status.conditions.first()?.reason.as_str()))
        .collect();
    assert_eq!(said, ["Failed", "Failed"], "the versions themselves say it too");
    // While they are tried again, they still failed.
    world.now += 60;
    step(&mut world, &names);
    step(&mut world, &names);
    assert_eq!(stand(&world, &names)[2], halted[2]);
    // One that is mended is not enough: a tenth of three is one.
    let tasks = &mut world.objects.tasks;
    let first = tasks
        .keys()
        .find(|key| key.name.starts_with("bootstrap-a-"))
        .cloned();
    tasks.get_mut(&first.unwrap()).unwrap().state = PipelineTaskState::Succeeded {
        digest: None,
        at: at(60),
    };
    step(&mut world, &names);
    step(&mut world, &names);
    assert_eq!(
        stand(&world, &names),
        ["2.0.0 Ready", "2.0.0 Pending", "1.0.0 RolloutHalted"]
    );
    world.succeed();
    roll_out(&mut world, &names, 2);
    assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 3]);
}

#[test]
fn another_change_is_another_rollout_and_reaches_first_what_the_last_one_broke() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.succeed();
    step(&mut world, &names);
    step(&mut world, &names);
    world.fail(true);
    step(&mut world, &names);
    assert_eq!(
        stand(&world, &names),
        ["2.0.0 Failed", "1.0.0 RolloutHalted", "1.0.0 RolloutHalted"]
    );
    world.component_version("shop", "3.0.0");
    step(&mut world, &names);
    assert_eq!(world.ready("b").0, "RolloutWaiting");
    world.succeed();
    step(&mut world, &names);
    assert_eq!(
        (on_their_way(&world), world.bundled("b")),
        (2, vec!["shop 1.0.0".to_owned()])
    );
    world.succeed();
    // The version that never was pushed stays so.
    roll_out(&mut world, &names, 2);
    assert_eq!(stand(&world, &names), ["3.0.0 Ready"; 3]);
}

#[test]
fn a_chart_of_the_release_that_fails_reaches_none_and_is_tried_again_by_the_first() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.fail(false);
    for _ in 0..3 {
        step(&mut world, &names);
        assert_eq!(
            stand(&world, &names),
            ["1.0.0 ReleaseFailed", "1.0.0 RolloutHalted"]
        );
    }
    // Another change reaches the same one first.
    let mut other = world.clone();
    other.component_version("shop", "3.0.0");
    step(&mut other, &names);
    assert_eq!(stand(&other, &names), ["1.0.0 Pending", "1.0.0 RolloutWaiting"]);
    world.now += 60;
    step(&mut world, &names);
    world.succeed();
    roll_out(&mut world, &names, 1);
    assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 2]);
}

/// What keeps a Target from a change, and how it comes to be.
type Hindrance = (&'static str, fn(&mut World));

#[test]
fn a_target_for_which_nothing_can_be_done_is_passed_over() {
    let names = ["a", "b"];
    let hindered: [Hindrance; 4] = [
        ("suspended", |world| {
            world.change_target("a", |spec| spec.suspend = Some(true));
        }),
        ("pinned", |world| {
            let version = world.objects.hydrated_targets.values().next().unwrap();
            let number = version.spec.as_ref().unwrap().version;
            world.change_target("a", |spec| spec.rollback_to = Some(number));
        }),
        ("without a registry", |world| {
            world.change_target("a", |spec| spec.render_registry_ref.name = "gone".to_owned());
        }),
        ("held back by another Release", |world| {
            world.release("blog", "blog", &json!({}), json!({}));
            world.bind("a", "blog");
            world.step("a");
            world.fail(true);
            world.step("a");
            assert_eq!(world.ready("a").0, "ReleaseFailed");
        }),
    ];
    for (how, hinder) in hindered {
        let mut world = fleet(&names, &json!(1));
        hinder(&mut world);
        world.component_version("shop", "2.0.0");
        roll_out(&mut world, &names, 1);
        assert_eq!(stand(&world, &names)[1], "2.0.0 Ready", "{how}");
        assert_eq!(world.bundled("a"), ["shop 1.0.0"], "{how}");
        let rollouts = world.rollouts(&ChartCache::default());
        assert_eq!(rollouts.of(&key("shops")).unwrap().passed_over, 1, "{how}");
    }
}

#[test]
fn one_that_was_let_go_takes_its_turn_like_the_others() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.change_target("a", |spec| spec.suspend = Some(true));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.succeed();
    step(&mut world, &names);
    assert_eq!(world.bundled("b"), ["shop 2.0.0"]);
    world.change_target("a", |spec| spec.suspend = None);
    step(&mut world, &names);
    assert_eq!(stand(&world, &names), ["1.0.0 RolloutWaiting", "2.0.0 Pending"]);
    world.succeed();
    roll_out(&mut world, &names, 1);
    assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 2]);
}

#[test]
fn another_release_of_the_same_unique_name_is_a_change_too() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop-two", "2.0.0");
    world.release("shop-two", "shop-two", &json!({}), json!({"uniqueName": "shop"}));
    world.staged_profile("shops", "shop-two", &json!({"ring": "one"}), &json!(1));
    step(&mut world, &names);
    assert_eq!(stand(&world, &names), ["1.0.0 Pending", "1.0.0 RolloutWaiting"]);
    let listed = &world.objects.targets[&key("b")].status.releases[0];
    assert_eq!(
        (listed.name.as_str(), listed.unique_name.as_str()),
        ("shop", "shop")
    );
    world.succeed();
    roll_out(&mut world, &names, 1);
    assert_eq!(stand(&world, &names), ["2.0.0 Ready"; 2]);
}

#[test]
fn a_release_that_changes_its_unique_name_waits_under_the_old_one() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("store", "2.0.0");
    world.release("shop", "store", &json!({}), json!({}));
    step(&mut world, &names);
    assert_eq!(world.ready("b").0, "RolloutWaiting");
    world.succeed();
    step(&mut world, &names);
    assert_eq!(
        (world.bundled("a"), world.bundled("b")),
        (vec!["store 2.0.0".to_owned()], vec!["shop 1.0.0".to_owned()])
    );
    roll_out(&mut world, &names, 1);
    assert_eq!(
        (world.bundled("b"), world.ready("b").0.as_str()),
        (vec!["store 2.0.0".to_owned()], "Ready")
    );
}

#[test]
fn who_has_it_not_yet_gets_it_at_once_and_so_does_who_has_it_by_a_binding() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.bind("c", "shop");
    world.component_version("shop", "2.0.0");
    world.target("d", &json!({"ring": "one"}), json!({}));
    let all = ["a", "b", "c", "d"];
    step(&mut world, &all);
    world.succeed();
    step(&mut world, &all);
    let bundled: Vec<String> = all.iter().map(|name| world.bundled(name).concat()).collect();
    assert_eq!(bundled, ["shop 2.0.0", "shop 1.0.0", "shop 2.0.0", "shop 2.0.0"]);
}

#[test]
fn without_a_limit_all_are_reached_at_once() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.profile("shops", "shop", &json!({"ring": "one"}));
    assert!(world.rollouts(&ChartCache::default()).is_empty());
    step(&mut world, &names);
    world.succeed();
    step(&mut world, &names);
    assert_eq!(on_their_way(&world), 3);
}

#[test]
fn the_data_of_a_profile_stays_while_its_release_waits() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.profile_data("shops", json!({"from": "shops"}));
    for name in names {
        world.settle(name);
    }
    world.component_version("shop", "2.0.0");
    let decisions = step(&mut world, &names);
    assert!(decisions[1].new_version.is_none());
    let newest = world.objects.hydrated_targets.values().next_back().unwrap();
    assert_eq!(
        newest.spec.as_ref().unwrap().userdata,
        Some(json!({"from": "shops"}))
    );
}

#[test]
fn a_registry_that_is_gone_in_between_is_a_failure() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    step(&mut world, &names);
    world.succeed();
    step(&mut world, &names);
    world.change_target("a", |spec| spec.render_registry_ref.name = "gone".to_owned());
    step(&mut world, &names);
    assert_eq!(stand(&world, &names), ["2.0.0 NotFound", "1.0.0 RolloutHalted"]);
}

#[test]
fn a_target_that_moves_to_another_registry_does_not_wait() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    let mut other = world.objects.registries[&key("main")].clone();
    other.spec.as_mut().unwrap().hostname = "other.test".to_owned();
    world.objects.registries.insert(key("other"), other);
    world.change_target("b", |spec| spec.render_registry_ref.name = "other".to_owned());
    world.settle("b");
    assert_eq!(stand(&world, &names), ["1.0.0 Ready"; 2]);
    let versions = world.objects.hydrated_targets.values();
    let repositories = versions.map(|version| &version.spec.as_ref().unwrap().releases["shop"].repository);
    assert_eq!(
        repositories
            .filter(|name| name.starts_with("other.test/"))
            .count(),
        1
    );
}
