//! Whose turn it is in a rollout, by what was last looked at.

use serde_json::json;

use super::rollout::{fleet, roll_out, step};
use super::world::{World, key};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::rollout::{RolloutIndex, RolloutTurn, VersionsInMaking};

/// The version of the chart that the first Target is to get.
fn next_chart(world: &World) -> String {
    world.decide("a").new_tasks[0].spec.tag.clone()
}

fn turn(index: &RolloutIndex, target: &str, version: &str) -> RolloutTurn {
    index.turn(&key("shops"), &key(target), version)
}

/// What is known is known until something changes; a decision that came in between waits for the next look.
#[test]
fn a_turn_is_known_for_what_was_looked_at_and_for_nothing_else() {
    let names = ["a", "b"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    let (charts, none) = (ChartCache::default(), VersionsInMaking::new());
    let mut index = RolloutIndex::default();
    let second = next_chart(&world);
    assert_eq!(turn(&index, "a", &second), RolloutTurn::Unknown);
    let changes = index.refresh(world.rollout_input(&charts, &none));
    assert_eq!(changes.targets, [key("a"), key("b")].into());
    assert_eq!(changes.profiles, [key("shops")].into());
    assert_eq!(turn(&index, "a", &second), RolloutTurn::Now);
    assert_eq!(turn(&index, "b", &second), RolloutTurn::Waits);
    // Nothing changed, so nothing is looked at and no Target is woken.
    let changes = index.refresh(world.rollout_input(&charts, &none));
    assert!(changes.targets.is_empty() && changes.profiles.is_empty());
    world.component_version("shop", "3.0.0");
    let third = next_chart(&world);
    index.mark("team-b");
    assert_eq!(turn(&index, "a", &third), RolloutTurn::Unknown);
    // Another namespace does not matter to it.
    index.refresh(world.rollout_input(&charts, &none));
    assert_eq!(turn(&index, "a", &third), RolloutTurn::Waits);
    index.mark("team-a");
    index.refresh(world.rollout_input(&charts, &none));
    assert_eq!(turn(&index, "a", &third), RolloutTurn::Now);
    // Once the first is reached, the second is woken.
    roll_out(&mut world, &["a"], 1);
    index.mark("team-a");
    let changes = index.refresh(world.rollout_input(&charts, &none));
    assert_eq!(changes.targets, [key("b")].into());
    world.objects.profiles.clear();
    index.mark("team-a");
    index.refresh(world.rollout_input(&charts, &none));
    assert!(index.is_empty());
}

/// Holds: F15.
#[test]
fn a_version_that_is_being_made_holds_a_place() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.component_version("shop", "2.0.0");
    world.change_target("a", |spec| spec.suspend = Some(true));
    step(&mut world, &names);
    world.succeed();
    let (_, version) = world.decide("b").new_version.unwrap();
    // A worker makes it. Meanwhile one that comes first is let go.
    world.change_target("a", |spec| spec.suspend = None);
    let in_making: VersionsInMaking = [(key("b"), version.releases.clone())].into();
    let (charts, none) = (ChartCache::default(), VersionsInMaking::new());
    let turns = |in_making| {
        let mut index = RolloutIndex::default();
        index.refresh(world.rollout_input(&charts, in_making));
        let turn = |name| index.turn(&key("shops"), &key(name), &version.releases["shop"].version);
        (turn("a"), turn("b"))
    };
    assert_eq!(turns(&in_making), (RolloutTurn::Waits, RolloutTurn::Now));
    assert_eq!(
        turns(&none),
        (RolloutTurn::Now, RolloutTurn::Waits),
        "it is what the test is about"
    );
    let mut made = world.clone();
    made.objects.hydrated_targets.insert(
        key("b-made"),
        PipelineObject::made("made".to_owned(), version.clone()),
    );
    let mut index = RolloutIndex::default();
    index.refresh(made.rollout_input(&charts, &none));
    assert_eq!(
        index.turn(&key("shops"), &key("a"), &version.releases["shop"].version),
        RolloutTurn::Waits
    );
}

#[test]
fn targets_of_other_namespaces_take_their_turn_where_they_are_granted() {
    let mut world = fleet(&["z"], &json!(1));
    world.rules.crosses_namespaces = true;
    let grant = json!({
        "from": [{"group": "renderhub.dev", "kind": "Profile", "namespace": "team-a"}],
        "to": [{"group": "renderhub.dev", "kind": "Target"}],
    });
    let grant = serde_json::from_value(grant).unwrap();
    world.objects.grants.put(&None, "team-b", "uid", Some(grant));
    let other = |namespace: &str| ObjectKey::new(namespace, "a");
    let (target, versions) = (
        world.objects.targets[&key("z")].clone(),
        world.objects.hydrated_targets.clone(),
    );
    let version = versions.values().next().unwrap();
    for namespace in ["team-b", "team-c"] {
        world.objects.targets.insert(other(namespace), target.clone());
        let mut version = version.clone();
        version.spec.as_mut().unwrap().target_name = "a".to_owned();
        world.objects.hydrated_targets.insert(other(namespace), version);
        let registry = world.objects.registries[&key("main")].clone();
        world
            .objects
            .registries
            .insert(ObjectKey::new(namespace, "main"), registry);
    }
    world.component_version("shop", "2.0.0");
    let rollouts = world.rollouts(&ChartCache::default());
    let plan = rollouts.of(&key("shops")).unwrap();
    assert_eq!(
        (plan.matched, plan.working, plan.waiting),
        (2, 1, 1),
        "the third grants nothing"
    );
    let chart = world.decide("z").new_tasks[0].spec.tag.clone();
    let turn = |target: &ObjectKey| rollouts.turn(&key("shops"), target, &chart);
    assert_eq!(
        (turn(&key("z")), turn(&other("team-b"))),
        (RolloutTurn::Now, RolloutTurn::Waits)
    );
}

/// The status of a Profile waits for the first look at its rollout.
#[test]
fn a_profile_that_matches_no_target_is_looked_at_once() {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.staged_profile("shops", "shop", &json!({"ring": "none"}), &json!(1));
    let (charts, none) = (ChartCache::default(), VersionsInMaking::new());
    let mut index = RolloutIndex::default();
    for profiles in [vec![key("shops")], Vec::new()] {
        let changes = index.refresh(world.rollout_input(&charts, &none));
        assert_eq!(changes.profiles.into_iter().collect::<Vec<_>>(), profiles);
        index.mark("team-a");
    }
}
