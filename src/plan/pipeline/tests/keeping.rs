//! What a Target keeps while something that it rests on is missing.

use serde_json::{Value, json};

use super::world::{HOME, World, key};
use crate::plan::pipeline::decide::CreateRefusal;
use crate::plan::pipeline::history::MAX_PROFILES;
use crate::plan::pipeline::kept::LEAVES_AFTER;
use crate::plan::pipeline::object::ObjectKey;

/// A Target with one Release, by a Profile with data.
pub(super) fn with_profile() -> World {
    let mut world = World::new();
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world.profile("ring", "a", &json!({"ring": "one"}));
    world.profile_data("ring", json!({"site": "north"}));
    world
}

fn userdata(world: &World) -> Option<Value> {
    world.newest("edge").and_then(|version| version.userdata.clone())
}

fn number(world: &World) -> i64 {
    world.newest("edge").map_or(0, |version| version.version)
}

/// Holds: F7, F8.
#[test]
fn the_data_of_a_profile_stays_as_long_as_what_it_put_there() {
    let north = Some(json!({"site": "north"}));
    let mut world = with_profile();
    world.settle("edge");
    assert_eq!(userdata(&world), north);
    // What it put there cannot be resolved, or its selector matches no more.
    let changes: [fn(&mut World); 3] = [
        |world| _ = world.objects.releases.remove(&key("a")),
        |world| _ = world.objects.component_versions.remove(&key("a")),
        |world| world.relabel("edge", "two"),
    ];
    for change in changes {
        let (mut world, before) = (world.clone(), number(&world));
        change(&mut world);
        world.settle("edge");
        assert_eq!((userdata(&world), number(&world)), (north.clone(), before));
    }
    // Another binding holds the Release; the Profile's data leaves after its minute all the same.
    world.bind("edge", "a");
    world.relabel("edge", "two");
    world.now = LEAVES_AFTER.as_secs() - 1;
    world.settle("edge");
    world.step("edge");
    assert_eq!(userdata(&world), north, "the minute begins when it is seen");
    world.now += LEAVES_AFTER.as_secs() + 1;
    world.settle("edge");
    assert_eq!((userdata(&world), world.bundled("edge").len()), (None, 1));
}

/// Holds: F8.
#[test]
fn the_data_of_a_profile_that_is_not_granted_any_more_stays_and_of_one_that_is_deleted_goes() {
    let mut world = with_profile();
    let profile = world.objects.profiles.remove(&key("ring")).unwrap();
    let release = world.objects.releases.remove(&key("a")).unwrap();
    let version = world.objects.component_versions.remove(&key("a")).unwrap();
    let neighbour = |name: &str| ObjectKey::new("team-b", name);
    world.objects.profiles.insert(neighbour("ring"), profile);
    world.objects.releases.insert(neighbour("a"), release);
    world.objects.component_versions.insert(neighbour("a"), version);
    world.rules.crosses_namespaces = true;
    grant(&mut world, ("Profile", "team-b"), ("Target", HOME));
    world.settle("edge");
    assert_eq!(userdata(&world), Some(json!({"site": "north"})));
    world.objects.grants.remove(HOME, "uid");
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "NotGranted");
    assert_eq!(
        (userdata(&world), world.bundled("edge").len()),
        (Some(json!({"site": "north"})), 1)
    );
    // A Target of its own goes on, and the data is there as it was.
    world.release("b", "b", &json!({}), json!({}));
    world.bind("edge", "b");
    world.settle("edge");
    assert_eq!(
        (userdata(&world), world.bundled("edge").len()),
        (Some(json!({"site": "north"})), 2)
    );
    world.objects.profiles.clear();
    world.settle("edge");
    assert_eq!((userdata(&world), world.bundled("edge").len()), (None, 1));
}

#[test]
fn each_source_of_a_release_gives_its_data_and_differing_ones_are_named() {
    let mut world = with_profile();
    world.bind("edge", "a");
    world.profile("all", "a", &json!({}));
    world.profile_data("all", json!({"color": "red"}));
    world.settle("edge");
    assert_eq!(userdata(&world), Some(json!({"color": "red", "site": "north"})));
    world.profile_data("all", json!({"site": "south"}));
    world.settle("edge");
    assert_eq!(userdata(&world), Some(json!({})));
    let (reason, message) = world.ready("edge");
    assert_eq!(reason, "UserdataConflict");
    let named = "Profiles team-a/all and team-a/ring set the key /site of its data differently";
    assert!(message.contains(named), "{message}");
    // A key that is no plain word is not repeated.
    world.profile_data("all", json!({"<b>": 1}));
    world.profile_data("ring", json!({"<b>": 2}));
    world.settle("edge");
    assert!(
        world
            .ready("edge")
            .1
            .contains("set a key of its data differently")
    );
}

/// Holds: F8.
#[test]
fn a_registry_that_is_missing_does_not_take_the_pull_secret_away() {
    let mut world = with_profile();
    world.registry_binding("pulls", "edge", "charts.test", "secret");
    world.settle("edge");
    let before = number(&world);
    for is_deleted in [true, false] {
        let mut world = world.clone();
        if is_deleted {
            world.objects.registries.remove(&key("pulls"));
        } else {
            world.objects.registries.get_mut(&key("pulls")).unwrap().spec = None;
        }
        world.settle("edge");
        assert_eq!(
            (number(&world), world.ready("edge").0.as_str()),
            (before, "MissingDependencies")
        );
        assert!(
            world.ready("edge").1.contains("RegistryBinding team-a/pulls"),
            "{:?}",
            world.ready("edge")
        );
        // To delete the binding is on purpose.
        world.objects.registry_bindings.remove(&key("pulls"));
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "Ready");
        assert!(number(&world) > before);
    }
}

/// Holds: F8.
#[test]
fn a_registry_binding_of_another_namespace_counts_while_the_last_version_rests_on_it() {
    let mut world = with_profile();
    world.registry_binding("pulls", "edge", "charts.test", "secret");
    let neighbour = ObjectKey::new("team-b", "pulls");
    let mut binding = world.objects.registry_bindings.remove(&key("pulls")).unwrap();
    binding.spec.as_mut().unwrap().target_ref.namespace = Some(HOME.to_owned());
    let registry = world.objects.registries.remove(&key("pulls")).unwrap();
    world.objects.registry_bindings.insert(neighbour.clone(), binding);
    world.objects.registries.insert(neighbour, registry);
    world.rules.crosses_namespaces = true;
    // Without a grant it is nothing to the Target, which no tenant can hold back with one.
    let mut without = world.clone();
    without.objects.registries.retain(|key, _| key.namespace == HOME);
    for world in [&mut without, &mut world.clone()] {
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "Ready");
    }
    grant(&mut world, ("RegistryBinding", "team-b"), ("Target", HOME));
    world.settle("edge");
    let before = number(&world);
    world.objects.grants.remove(HOME, "uid");
    world.settle("edge");
    assert_eq!(
        (number(&world), world.ready("edge").0.as_str()),
        (before, "MissingDependencies")
    );
}

#[test]
fn a_release_that_is_kept_has_the_priority_that_it_had_whatever_became_of_the_status() {
    let mut world = with_profile();
    world.release("a", "a", &json!({}), json!({"priority": 5}));
    world.settle("edge");
    world.objects.targets.get_mut(&key("edge")).unwrap().status =
        crate::api::pipeline::TargetStatus::default();
    world.objects.releases.remove(&key("a"));
    world.component_version("z", "2.0.0");
    world.release("z", "z", &json!({}), json!({"uniqueName": "a", "priority": 4}));
    world.bind("edge", "z");
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["a 1.0.0"]);
}

#[test]
fn what_the_api_server_does_not_let_the_hub_make_is_said_while_it_is_to_be_made() {
    for (refusal, reason) in [
        (CreateRefusal::NameTaken, "NameConflict"),
        (CreateRefusal::Forbidden, "CreateRefused"),
        (CreateRefusal::Invalid, "CreateRefused"),
    ] {
        let mut world = with_profile();
        world.refusal = Some(refusal);
        let decision = world.step("edge");
        assert_eq!(
            (decision.new_tasks.len(), world.ready("edge").0.as_str()),
            (1, reason)
        );
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "Ready", "there is nothing to be made");
    }
}

/// A Target whose first version holds a component of another namespace, and whose second does not; the number of the first.
fn with_granted_version() -> (World, i64) {
    let mut world = with_profile();
    world.rules.crosses_namespaces = true;
    let version = world.objects.component_versions.remove(&key("a")).unwrap();
    let neighbour = ObjectKey::new("team-b", "a");
    world.objects.component_versions.insert(neighbour, version);
    world.change_release("a", |spec| {
        spec.component_version_ref.namespace = Some("team-b".to_owned());
    });
    grant(&mut world, ("Release", HOME), ("ComponentVersion", "team-b"));
    world.settle("edge");
    let first = number(&world);
    world.component_version("own", "9.0.0");
    world.change_release("a", |spec| {
        let named = &mut spec.component_version_ref;
        (named.namespace, named.name) = (None, "own".to_owned());
    });
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["own 9.0.0"]);
    (world, first)
}

/// Holds: F8.
#[test]
fn a_target_that_goes_back_gets_nothing_that_is_not_granted_any_more() {
    let (mut world, first) = with_granted_version();
    world.change_target("edge", |spec| spec.rollback_to = Some(first));
    let mut revoked = world.clone();
    revoked.objects.grants.remove("team-b", "uid");
    revoked.settle("edge");
    let stays = vec!["own 9.0.0".to_owned()];
    assert_eq!(
        (revoked.ready("edge").0.as_str(), revoked.bundled("edge")),
        ("NotGranted", stays)
    );
    world.settle("edge");
    let back = vec!["a 1.0.0".to_owned()];
    assert_eq!(
        (world.ready("edge").0.as_str(), world.bundled("edge")),
        ("Ready", back)
    );
    let said = format!("pinned to version {first} until rollbackTo is removed");
    for condition in &world.objects.targets[&key("edge")].status.conditions {
        assert!(condition.message.ends_with(&said), "{condition:?}");
    }
}

/// A Target that gets a Release and data from a Profile of another namespace; the Profile changed its data, and the Target is to
/// go back to the data before.
fn with_granted_profile() -> World {
    let mut world = with_profile();
    world.rules.crosses_namespaces = true;
    let there = |name: &str| ObjectKey::new("team-b", name);
    let objects = &mut world.objects;
    let version = objects.component_versions.remove(&key("a")).unwrap();
    objects.component_versions.insert(there("a"), version);
    let release = objects.releases.remove(&key("a")).unwrap();
    objects.releases.insert(there("a"), release);
    let mut profile = objects.profiles.remove(&key("ring")).unwrap();
    objects.profiles.insert(there("ring"), profile.clone());
    grant(&mut world, ("Profile", "team-b"), ("Target", HOME));
    world.settle("edge");
    let first = number(&world);
    profile.spec.as_mut().unwrap().userdata = Some(json!({"site": "south"}));
    world.objects.profiles.insert(there("ring"), profile);
    world.settle("edge");
    assert_eq!(userdata(&world), Some(json!({"site": "south"})));
    world.change_target("edge", |spec| spec.rollback_to = Some(first));
    world
}

/// Holds: F8.
#[test]
fn a_target_that_goes_back_gets_no_data_of_a_profile_that_may_not_reach_it_any_more() {
    let mut world = with_granted_profile();
    let mut revoked = world.clone();
    revoked.objects.grants.remove(HOME, "uid");
    revoked.settle("edge");
    let (reason, message) = revoked.ready("edge");
    assert_eq!(
        (reason.as_str(), userdata(&revoked)),
        ("NotGranted", Some(json!({"site": "south"})))
    );
    assert!(message.contains("Profile team-b/ring"), "{message}");
    // What the Target's own data hide is no news to it.
    let mut hidden = world.clone();
    hidden.change_target("edge", |spec| spec.rollback_to = None);
    hidden.change_target("edge", |spec| spec.userdata = Some(json!({"site": "own"})));
    hidden.settle("edge");
    let own = number(&hidden);
    let there = ObjectKey::new("team-b", "ring");
    let mut profile = hidden.objects.profiles.remove(&there).unwrap();
    profile.spec.as_mut().unwrap().userdata = Some(json!({"site": "east"}));
    hidden.objects.profiles.insert(there, profile);
    hidden.bind("edge", "more");
    hidden.release("more", "more", &json!({}), json!({}));
    hidden.settle("edge");
    hidden.objects.release_bindings.remove(&key("edge-more"));
    hidden.settle("edge");
    hidden.objects.grants.remove(HOME, "uid");
    hidden.change_target("edge", |spec| spec.rollback_to = Some(own));
    hidden.settle("edge");
    assert_eq!(hidden.ready("edge").0, "Ready");
    world.settle("edge");
    assert_eq!(
        (world.ready("edge").0.as_str(), userdata(&world)),
        ("Ready", Some(json!({"site": "north"})))
    );
}

/// Lets objects of a kind and namespace refer to those of another.
pub(super) fn grant(world: &mut World, from: (&str, &str), to: (&str, &str)) {
    let spec = json!({
        "from": [{"group": "renderhub.dev", "kind": from.0, "namespace": from.1}],
        "to": [{"group": "renderhub.dev", "kind": to.0}],
    });
    let spec = serde_json::from_value(spec).unwrap();
    world.objects.grants.put(&None, to.1, "uid", Some(spec));
}

#[test]
fn a_version_records_the_data_of_so_many_profiles_at_most() {
    let mut world = with_profile();
    world.objects.profiles.clear();
    for number in 0..=MAX_PROFILES {
        let name = format!("p{number}");
        world.profile(&name, "a", &json!({"ring": "one"}));
        world.profile_data(&name, json!({ &name: 1 }));
    }
    world.settle("edge");
    assert_eq!(
        (world.ready("edge").0.as_str(), number(&world)),
        ("VersionTooLarge", 0)
    );
    world.objects.profiles.remove(&key("p0"));
    world.settle("edge");
    assert_eq!(world.newest("edge").unwrap().profiles.len(), MAX_PROFILES);
}

#[test]
fn a_version_names_so_many_registry_bindings_of_a_release_at_most() {
    let mut world = with_profile();
    for number in 0..70 {
        world.registry_binding(&format!("b{number}"), "edge", "charts.test", "secret");
    }
    world.settle("edge");
    assert_eq!(
        world.newest("edge").unwrap().releases["a"]
            .registry_bindings
            .len(),
        64
    );
}

/// The chart of a version may be pushed before the hub has recorded it, and the next version is made meanwhile.
#[test]
fn a_version_that_was_pushed_says_so_although_the_next_is_there() {
    let mut world = with_profile();
    world.step("edge");
    world.succeed();
    world.step("edge");
    world.step("edge");
    let first = number(&world);
    world.succeed();
    world.change_target("edge", |spec| spec.userdata = Some(json!({"n": 2})));
    world.settle("edge");
    let mut versions = world.objects.hydrated_targets.values();
    let version = versions
        .find(|version| version.spec.as_ref().unwrap().version == first)
        .unwrap();
    assert!(version.status.pushed_at.is_some() && number(&world) > first);
}
