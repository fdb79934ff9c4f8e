//! What is done for a Target, step by step.

use std::collections::BTreeSet;

use serde_json::json;

use super::world::{World, at, key};
use crate::plan::pipeline::chart_cache::{ChartCache, REMEMBERED};
use crate::plan::pipeline::destination::destination;
use crate::plan::pipeline::resolve::LEAVES_AFTER;

fn with_release() -> World {
    let mut world = World::new();
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world
}

#[test]
fn a_version_is_written_before_its_chart_is_rendered_and_after_all_others_are() {
    let mut world = with_release();
    world.bind("edge", "a");
    let first = world.step("edge");
    assert_eq!((first.new_tasks.len(), first.new_version.is_none()), (1, true));
    assert!(!first.new_tasks[0].is_targets_own);
    assert!(world.step("edge").new_tasks.is_empty(), "it runs");
    world.succeed();
    let second = world.step("edge");
    assert!(second.new_tasks.is_empty() && second.new_version.is_some());
    let third = world.step("edge");
    assert!(third.new_tasks[0].is_targets_own && third.new_version.is_none());
    world.succeed();
    assert!(world.step("edge").version_status.is_some());
    assert_eq!(world.ready("edge").0, "Ready");
    // Nothing is left to do, and the status is as it is.
    let rest = world.decide("edge");
    assert_eq!(rest.status, world.objects.targets[&key("edge")].status);
    assert!(rest.new_tasks.is_empty() && rest.new_version.is_none() && rest.version_status.is_none());
    assert!(rest.old_tasks.is_empty() && rest.old_versions.is_empty());
}

#[test]
fn a_hub_that_lost_its_statuses_makes_nothing_anew() {
    let mut world = with_release();
    world.bind("edge", "a");
    world.settle("edge");
    let tags = |world: &World| world.objects.hydrated_targets.keys().cloned().collect::<Vec<_>>();
    let (before, bundled) = (tags(&world), world.bundled("edge"));
    world.objects.targets.get_mut(&key("edge")).unwrap().status =
        crate::api::pipeline::TargetStatus::default();
    world.settle("edge");
    assert_eq!((tags(&world), world.bundled("edge")), (before, bundled));
    assert_eq!(world.ready("edge").0, "Ready");
}

#[test]
fn targets_share_a_chart_only_where_everything_it_depends_on_is_the_same() {
    // What the second Target has that the first has not, and how many charts there are then.
    for (spec, charts) in [
        (json!({}), 1),
        (json!({"userdata": {"a": 1}}), 1),
        (json!({"serviceAccountName": "s"}), 2),
        (json!({"rendererClassName": "c"}), 2),
        (json!({"renderClusterName": "c"}), 2),
    ] {
        let mut world = with_release();
        world.target("other", &json!({}), spec.clone());
        world.bind("edge", "a");
        world.bind("other", "a");
        let made: BTreeSet<String> = ["edge", "other"]
            .into_iter()
            .flat_map(|target| world.decide(target).new_tasks)
            .map(|task| task.name)
            .collect();
        assert_eq!(made.len(), charts, "{spec}");
    }
}

/// Holds: F5.
#[test]
fn another_content_is_another_tag() {
    let mut world = with_release();
    world.bind("edge", "a");
    let tag = |world: &World| world.decide("edge").new_tasks[0].spec.tag.clone();
    let mut tags = vec![tag(&world)];
    world.component_version("a", "2.0.0");
    tags.push(tag(&world));
    world.release("a", "a", &json!({}), json!({"values": {"replicas": 2}}));
    tags.push(tag(&world));
    world.registry_binding("pulls", "edge", "charts.test", "secret");
    tags.push(tag(&world));
    let different: BTreeSet<&String> = tags.iter().collect();
    assert_eq!(different.len(), tags.len(), "{tags:?}");
}

/// Holds: F8.
#[test]
fn a_release_leaves_when_its_binding_is_gone_and_not_when_something_is_missing() {
    let mut world = with_release();
    world.release("b", "b", &json!({}), json!({}));
    world.bind("edge", "a");
    world.bind("edge", "b");
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["a 1.0.0", "b 1.0.0"]);
    let missing: [fn(&mut World); 2] = [
        |world| _ = world.objects.releases.remove(&key("b")),
        |world| _ = world.objects.component_versions.remove(&key("b")),
    ];
    for take_away in missing {
        let mut world = world.clone();
        take_away(&mut world);
        world.settle("edge");
        assert_eq!(world.bundled("edge"), ["a 1.0.0", "b 1.0.0"]);
        assert_eq!(world.ready("edge").0, "MissingDependencies");
        assert!(
            world.ready("edge").1.contains("it stays as it is"),
            "{}",
            world.ready("edge").1
        );
        world.objects.release_bindings.remove(&key("edge-b"));
        world.settle("edge");
        assert_eq!(
            (world.bundled("edge"), world.ready("edge").0.as_str()),
            (vec!["a 1.0.0".to_owned()], "Ready")
        );
    }
    // One that cannot be decoded is there all the same.
    world
        .objects
        .release_bindings
        .get_mut(&key("edge-b"))
        .unwrap()
        .spec = None;
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
}

/// Holds: F7.
#[test]
fn a_selector_must_not_match_for_a_minute_before_its_release_leaves() {
    let mut world = with_release();
    world.release("b", "b", &json!({}), json!({}));
    world.bind("edge", "a");
    world.profile("some", "b", &json!({"ring": "one"}));
    world.settle("edge");
    let relabel = |world: &mut World, ring: &str| {
        let target = world.objects.targets.get_mut(&key("edge")).unwrap();
        target.labels = [("ring".to_owned(), ring.to_owned())].into();
    };
    relabel(&mut world, "two");
    let seconds = LEAVES_AFTER.as_secs();
    assert_eq!(world.step("edge").look_again, Some(at(seconds)));
    world.now = seconds - 1;
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
    // It matched in between, so the minute begins anew.
    relabel(&mut world, "one");
    world.settle("edge");
    relabel(&mut world, "two");
    world.settle("edge");
    world.now += seconds - 1;
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
    world.now += 1;
    world.settle("edge");
    assert_eq!(
        (world.bundled("edge"), world.ready("edge").0.as_str()),
        (vec!["a 1.0.0".to_owned()], "Ready")
    );
}

#[test]
fn a_release_that_is_kept_gives_way_to_one_with_a_higher_priority_only() {
    for (priority, bundled) in [(0, "1.0.0"), (1, "2.0.0")] {
        let mut world = with_release();
        world.release("a", "a", &json!({}), json!({"priority": 0}));
        world.bind("edge", "a");
        world.settle("edge");
        world.objects.releases.remove(&key("a"));
        world.component_version("z", "2.0.0");
        world.release(
            "z",
            "z",
            &json!({}),
            json!({"uniqueName": "a", "priority": priority}),
        );
        world.bind("edge", "z");
        world.settle("edge");
        assert_eq!(world.bundled("edge"), [format!("a {bundled}")], "{priority}");
    }
}

#[test]
fn a_target_without_releases_keeps_what_it_has_unless_it_may_be_empty() {
    let mut world = with_release();
    world.step("edge");
    assert_eq!(world.ready("edge").0, "NoReleaseBindings");
    world.bind("edge", "a");
    world.settle("edge");
    world.objects.release_bindings.clear();
    world.settle("edge");
    assert_eq!(
        (world.bundled("edge").len(), world.ready("edge").0.as_str()),
        (1, "NoReleaseBindings")
    );
    world.target("edge", &json!({}), json!({"allowEmpty": true}));
    world.settle("edge");
    assert_eq!(
        (world.bundled("edge").len(), world.ready("edge").0.as_str()),
        (0, "Ready")
    );
}

#[test]
fn a_suspended_target_is_left_alone() {
    let mut world = with_release();
    world.bind("edge", "a");
    world.target("edge", &json!({}), json!({"suspend": true}));
    let decision = world.step("edge");
    assert!(decision.new_tasks.is_empty());
    assert_eq!(world.ready("edge").0, "Suspended");
}

#[test]
fn a_repository_begins_with_what_the_registry_grants() {
    for (prefix, repository) in [
        ("", "team-a/team-a/release-a"),
        ("{namespace}/", "team-a/team-a/release-a"),
        ("tenants/{namespace}/", "tenants/team-a/team-a/release-a"),
        ("tenants/{namespace}", "tenants/team-a/team-a/release-a"),
        ("shared/", "shared/team-a/team-a/release-a"),
    ] {
        let mut world = with_release();
        world.bind("edge", "a");
        let registry = world.objects.registries.get_mut(&key("main")).unwrap();
        registry.spec.as_mut().unwrap().repository_prefix = Some(prefix.to_owned());
        assert_eq!(
            world.decide("edge").new_tasks[0].spec.repository,
            repository,
            "{prefix}"
        );
    }
}

#[test]
fn a_message_names_so_many_objects_at_most() {
    let mut world = with_release();
    world.bind("edge", "a");
    for number in 0..50 {
        world.bind("edge", &format!("missing-{number}"));
    }
    world.settle("edge");
    let (reason, message) = world.ready("edge");
    assert_eq!(
        (reason.as_str(), message.matches("does not exist").count()),
        ("MissingDependencies", 10)
    );
    assert!(message.ends_with("; and 40 more"), "{message}");
}

#[test]
fn only_so_many_charts_are_remembered() {
    let mut world = with_release();
    world.bind("edge", "a");
    let resolution = world.resolve("edge");
    let (key, target) = world.objects.targets.get_key_value(&key("edge")).unwrap();
    let spec = target.spec.as_ref().unwrap();
    let mut destination = destination(key, spec, &world.objects, &world.rules, &world.catalog).unwrap();
    let charts = ChartCache::default();
    for number in 0..=REMEMBERED {
        destination.prefix = format!("prefix-{number}");
        charts.release_chart(&resolution.accepted[0], key, spec, &destination);
        assert!(charts.len() <= REMEMBERED);
    }
    assert!(!charts.is_empty());
}
