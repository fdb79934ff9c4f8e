//! What is done for a Target, step by step.

use std::collections::BTreeSet;

use serde_json::json;

use super::world::{World, at, key};
use crate::plan::pipeline::kept::LEAVES_AFTER;

pub(super) fn with_release() -> World {
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
    assert!(second.new_tasks[0].is_targets_own && second.new_version.is_some());
    let third = world.step("edge");
    assert!(
        third.new_tasks.is_empty() && third.new_version.is_none(),
        "it runs"
    );
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
    world.relabel("edge", "two");
    let seconds = LEAVES_AFTER.as_secs();
    // The next whole second after that of the change, which an API server keeps, and a minute.
    assert_eq!(world.step("edge").look_again, Some(at(1 + seconds)));
    world.now = seconds;
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
    // It matched in between, so the minute begins anew.
    world.relabel("edge", "one");
    world.settle("edge");
    world.relabel("edge", "two");
    world.settle("edge");
    world.now += seconds;
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
fn a_registry_without_a_secret_to_push_with_is_told_of_and_what_is_there_stays() {
    let of_name =
        |field: &str| serde_json::from_value(json!({"hostname": "r.test", field: {"name": "push"}}));
    for field in ["pushSecretRef", "solarSecretRef"] {
        let mut world = with_release();
        world.bind("edge", "a");
        let set = |world: &mut World, spec| {
            world.objects.registries.get_mut(&key("main")).unwrap().spec = Some(spec);
        };
        set(&mut world, of_name(field).unwrap());
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "Ready", "{field}");
        set(
            &mut world,
            serde_json::from_value(json!({"hostname": "r.test"})).unwrap(),
        );
        world.settle("edge");
        let (reason, message) = world.ready("edge");
        assert_eq!(reason, "MissingPushSecretRef");
        assert!(
            message.contains("\"main\" names no Secret") && message.contains("pushSecretRef"),
            "{message}"
        );
        assert_eq!(
            (world.bundled("edge").len(), world.objects.tasks.len()),
            (1, 2),
            "nothing goes"
        );
        let status = &world.objects.targets[&key("edge")].status;
        let is_so = |type_: &str, value: &str| {
            let mut conditions = status.conditions.iter();
            conditions.any(|c| c.type_ == type_ && c.status == value && c.reason == "MissingPushSecretRef")
        };
        assert!(is_so("RegistryResolved", "False") && is_so("Stalled", "True"));
    }
}

/// A Release that several bind has the data of all, whichever is the first by its name.
#[test]
fn data_of_each_profile_count_also_where_they_bind_one_release() {
    let mut world = World::new();
    world.target("edge", &json!({"ring": "one"}), json!({"userdata": {"own": 1}}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    for (name, data) in [("x", json!({"x": 1})), ("y", json!({"y": 1}))] {
        world.profile(name, "a", &json!({"ring": "one"}));
        world.profile_data(name, data);
    }
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
    let version = world.objects.hydrated_targets.values().next().unwrap();
    let data = version.spec.as_ref().unwrap().userdata.clone();
    assert_eq!(data, Some(json!({"own": 1, "x": 1, "y": 1})));
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
        let mut registry = world.objects.registries.get_mut(&key("main")).unwrap();
        registry.spec.as_mut().unwrap().repository_prefix = Some(prefix.to_owned());
        drop(registry);
        assert_eq!(
            world.decide("edge").new_tasks[0].spec.repository,
            repository,
            "{prefix}"
        );
    }
}

#[test]
fn names_are_cut_to_what_oci_helm_and_kubernetes_allow() {
    let mut world = World::new();
    let (long, other) = ("r".repeat(253), format!("{}x", "r".repeat(252)));
    world.target(&long, &json!({}), json!({}));
    for release in [&long, &other] {
        world.release(release, release, &json!({}), json!({}));
        let binding = format!("b{}", release.len() + usize::from(release.ends_with('x')));
        world.bind_as(&binding, &long, release);
    }
    let tasks = world.decide(&long).new_tasks;
    assert_eq!(tasks.len(), 2);
    assert_ne!(
        (&tasks[0].name, &tasks[0].spec.repository),
        (&tasks[1].name, &tasks[1].spec.repository)
    );
    world.settle(&long);
    let bootstrap = world
        .objects
        .tasks
        .keys()
        .find(|key| key.name.starts_with("bootstrap-"));
    let names = tasks
        .iter()
        .map(|task| task.name.as_str())
        .chain(bootstrap.map(|key| key.name.as_str()));
    assert!(
        names.clone().count() == 3 && names.clone().all(|name| name.len() <= 80),
        "{:?}",
        names.collect::<Vec<_>>()
    );
    for task in &tasks {
        let chart = task.spec.repository.rsplit('/').next().unwrap();
        assert!(chart.len() <= 53 && task.spec.repository.len() <= 255 && task.spec.tag.len() <= 63);
    }
}

#[test]
fn a_prefix_that_leaves_no_room_for_the_names_of_charts_is_refused() {
    let mut world = with_release();
    world.bind("edge", "a");
    let registry = |prefix: String| json!({"hostname": "r.test", "pushSecretRef": {"name": "push"}, "repositoryPrefix": prefix});
    for (prefix, is_taken) in [(255 - 6 - 63 - 46 - 3, true), (255 - 6 - 63 - 46 - 2, false)] {
        let mut registered = world.objects.registries.get_mut(&key("main")).unwrap();
        registered.spec = serde_json::from_value(registry("p".repeat(prefix))).unwrap();
        drop(registered);
        world.step("edge");
        assert_eq!(
            world.ready("edge").0 != "RepositoryNotAllowed",
            is_taken,
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
