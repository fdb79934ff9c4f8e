//! Which Releases a Target gets.

use proptest::prelude::*;
use serde_json::json;

use super::edits::{edited, population};
use super::keeping::grant;
use super::world::{HOME, World, key};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::resolution::{
    LeftOutReason, MAX_RELEASES, ReleaseObject, Resolution, ResolveFailure,
};
use crate::plan::pipeline::selector::matches;

fn names(resolution: &Resolution<'_>) -> Vec<String> {
    let accepted = resolution.accepted.iter();
    accepted.map(|release| release.release.name.clone()).collect()
}

/// Holds: F3.
#[test]
fn of_one_unique_name_the_highest_priority_wins_and_then_the_first_binding() {
    // Priorities of a, b and c, and who wins.
    for (priorities, winner) in [
        ([0, 0, 0], "a"),
        ([0, 1, 0], "b"),
        ([-1, 0, 0], "b"),
        ([1, 1, 2], "c"),
    ] {
        let mut world = World::new();
        world.target("edge", &json!({}), json!({}));
        for (name, priority) in ["a", "b", "c"].into_iter().zip(priorities) {
            world.release(name, "shop", &json!({}), json!({"priority": priority}));
            world.bind("edge", name);
        }
        let resolution = world.resolve("edge");
        assert_eq!(names(&resolution), [winner], "{priorities:?}");
        assert_eq!(resolution.left_out.len(), 2);
        for release in &resolution.left_out {
            assert_eq!(
                (release.winner.name.as_str(), release.why),
                (winner, LeftOutReason::UniqueName)
            );
        }
    }
}

/// Holds: F3.
#[test]
fn of_two_namespaces_the_binding_in_the_first_wins() {
    let mut world = World::new();
    world.rules.crosses_namespaces = true;
    world.target("edge", &json!({"ring": "one"}), json!({}));
    for name in ["a", "z"] {
        world.release(name, "shop", &json!({}), json!({}));
        world.profile(name, name, &json!({"ring": "one"}));
    }
    assert_eq!(names(&world.resolve("edge")), ["a"]);
    let before_home = |name: &str| ObjectKey::new("a-team", name);
    assert!(before_home("z") < key("a"));
    let objects = &mut world.objects;
    let release = objects.releases.remove(&key("z")).unwrap();
    objects.releases.insert(before_home("z"), release);
    let profile = objects.profiles.remove(&key("z")).unwrap();
    objects.profiles.insert(before_home("z"), profile);
    let version = objects.component_versions.get(&key("shop")).unwrap().clone();
    objects.component_versions.insert(before_home("shop"), version);
    grant(&mut world, ("Profile", "a-team"), ("Target", HOME));
    assert_eq!(names(&world.resolve("edge")), ["z"]);
}

#[test]
fn exclusion_works_both_ways_and_follows_priority() {
    let web = json!({"matchLabels": {"tier": "web"}});
    // Which of the two says that it excludes the other, and their priorities; who is there.
    for (says_first, priorities, winner) in [
        (true, [0, 0], "a"),
        (false, [0, 0], "a"),
        (true, [0, 1], "b"),
        (false, [0, 1], "b"),
    ] {
        let mut world = World::new();
        world.target("edge", &json!({}), json!({}));
        for ((name, says), priority) in [("a", says_first), ("b", !says_first)]
            .into_iter()
            .zip(priorities)
        {
            let mut spec = json!({"priority": priority});
            if says {
                spec["antiAffinity"] = web.clone();
            }
            let labels = if says { json!({}) } else { json!({"tier": "web"}) };
            world.release(name, name, &labels, spec);
            world.bind("edge", name);
        }
        let resolution = world.resolve("edge");
        assert_eq!(names(&resolution), [winner]);
        assert_eq!(resolution.left_out[0].why, LeftOutReason::AntiAffinity);
    }
}

#[test]
fn a_release_that_is_bound_twice_is_there_once() {
    let mut world = World::new();
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.profile("everywhere", "a", &json!({"ring": "one"}));
    world.profile("nowhere", "a", &json!({"ring": "two"}));
    let resolution = world.resolve("edge");
    assert_eq!(
        (names(&resolution), resolution.left_out.len()),
        (vec!["a".to_owned()], 0)
    );
    assert_eq!(resolution.accepted[0].source.key.name, "edge-a");
}

#[test]
fn what_is_missing_is_named() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    world.bind("edge", "a");
    let why = |world: &World| world.resolve("edge").unresolved[0].why.clone();
    assert_eq!(why(&world), ResolveFailure::ReleaseNotFound);
    world.release("a", "a", &json!({}), json!({}));
    world.objects.component_versions.clear();
    assert_eq!(why(&world), ResolveFailure::VersionNotFound(key("a")));
    world.component_version("a", "1.0.0");
    world.rules.is_registry_binding_strict = true;
    assert_eq!(
        why(&world),
        ResolveFailure::MissingRegistryBinding("charts.test".to_owned())
    );
    world.registry_binding("one", "edge", "charts.test", "s");
    assert_eq!(world.resolve("edge").accepted[0].pull_secrets["chart"], "s");
    world.registry_binding("two", "edge", "Charts.TEST", "t");
    assert_eq!(
        why(&world),
        ResolveFailure::RegistryBindingConflict("charts.test".to_owned())
    );
    world.registry_binding("two", "edge", "charts.test", "s");
    assert_eq!(names(&world.resolve("edge")), ["a"]);
    world.registry_binding("two", "another", "charts.test", "t");
    assert_eq!(names(&world.resolve("edge")), ["a"]);
}

/// Holds: F6.
#[test]
fn a_target_has_so_many_releases_at_most() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for number in 0..=MAX_RELEASES {
        let name = format!("r{number}");
        world.release(&name, &name, &json!({}), json!({"priority": 1000 - number}));
        world.bind("edge", &name);
    }
    let resolution = world.resolve("edge");
    assert_eq!(resolution.accepted.len(), MAX_RELEASES);
    let last = &resolution.unresolved[0];
    assert_eq!(
        (last.release.clone(), &last.why),
        (key(&format!("r{MAX_RELEASES}")), &ResolveFailure::TooMany)
    );
}

/// Holds: F6.
#[test]
fn what_a_target_has_is_not_pushed_out_by_what_is_one_too_many() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for number in 0..MAX_RELEASES {
        let name = format!("r{number}");
        world.release(&name, &name, &json!({}), json!({}));
        world.bind("edge", &name);
    }
    world.settle("edge");
    world.objects.releases.remove(&key("r7"));
    world.release("new", "new", &json!({}), json!({"priority": 9}));
    world.bind("edge", "new");
    let resolution = world.resolve("edge");
    assert_eq!(
        (resolution.accepted.len(), resolution.kept.len()),
        (MAX_RELEASES - 1, 1)
    );
    assert_eq!(resolution.unresolved[0].release, key("new"));
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), MAX_RELEASES);
}

#[test]
fn a_release_that_says_what_is_no_selector_is_left_out() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    let selector = json!({"matchExpressions": [{"key": "a", "operator": "Near"}]});
    world.release("a", "a", &json!({}), json!({"antiAffinity": selector}));
    world.bind("edge", "a");
    assert_eq!(
        world.resolve("edge").unresolved[0].why,
        ResolveFailure::InvalidAntiAffinity
    );
}

fn excludes(a: &ReleaseObject, b: &ReleaseObject) -> bool {
    let selector = a.spec.as_ref().and_then(|spec| spec.anti_affinity.as_ref());
    selector.is_some_and(|selector| matches(selector, &b.labels))
}

/// A Release of a drawn world: component, priority, label, and what it excludes.
type Drawn = (u8, i32, u8, Option<u8>);

fn drawn(releases: &[Drawn]) -> World {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for (number, (component, priority, label, excludes)) in releases.iter().enumerate() {
        let name = format!("r{number}");
        let mut spec = json!({"priority": priority});
        if let Some(excluded) = excludes {
            spec["antiAffinity"] = json!({"matchLabels": {"l": excluded.to_string()}});
        }
        let labels = json!({"l": label.to_string()});
        world.release(&name, &format!("c{component}"), &labels, spec);
        world.bind("edge", &name);
    }
    world
}

fn releases() -> impl Strategy<Value = Vec<Drawn>> {
    let release = (0..4u8, -1..3i32, 0..4u8, proptest::option::of(0..4u8));
    proptest::collection::vec(release, 0..8)
}

proptest! {
    #[test]
    fn accepted_releases_have_names_of_their_own_and_exclude_none(releases in releases()) {
        let world = drawn(&releases);
        let resolution = world.resolve("edge");
        for (number, one) in resolution.accepted.iter().enumerate() {
            for other in &resolution.accepted[number + 1..] {
                prop_assert_ne!(&one.unique_name, &other.unique_name);
                prop_assert!(!excludes(one.object, other.object) && !excludes(other.object, one.object));
            }
        }
        prop_assert_eq!(resolution.accepted.len() + resolution.left_out.len(), releases.len());
    }

    #[test]
    fn the_order_in_which_objects_come_does_not_matter(
        (one, other) in population().prop_flat_map(|all| (Just(all.clone()), Just(all).prop_shuffle())),
        crosses in any::<bool>(),
    ) {
        let (one, other) = (edited(&one, crosses), edited(&other, crosses));
        for target in one.objects.targets.keys() {
            let decided = |world: &World| format!("{:?}", world.decide_of(target));
            prop_assert_eq!(decided(&one), decided(&other));
        }
    }

    #[test]
    fn to_take_a_release_away_that_lost_changes_nothing(releases in releases()) {
        let world = drawn(&releases);
        let resolution = world.resolve("edge");
        let before = names(&resolution);
        for lost in &resolution.left_out {
            let mut without = world.clone();
            without.objects.release_bindings.remove(&key(&format!("edge-{}", lost.release.name)));
            prop_assert_eq!(&names(&without.resolve("edge")), &before, "without {}", lost.release);
        }
    }

    #[test]
    fn what_a_target_has_and_what_joins_it_exclude_none_and_fit(
        before in releases(), after in releases(), missing in proptest::collection::vec(any::<bool>(), 8),
    ) {
        let mut world = drawn(&before);
        world.settle("edge");
        let had = world.bundled("edge").len();
        for (number, is_missing) in missing.iter().enumerate() {
            if *is_missing {
                world.objects.component_versions.remove(&key(&format!("c{number}")));
            }
        }
        for (name, release) in drawn(&after).objects.releases.iter() {
            let name = format!("new-{}", name.name);
            world.objects.releases.insert(key(&name), release.clone());
            world.bind("edge", &name);
        }
        let resolution = world.resolve("edge");
        let kept = resolution.kept.iter().map(|kept| (kept.unique_name.as_str(), kept.object.unwrap()));
        let chosen: Vec<_> = resolution.accepted.iter().map(|r| (r.unique_name, r.object)).chain(kept).collect();
        for (number, (name, one)) in chosen.iter().enumerate() {
            for (other_name, other) in &chosen[number + 1..] {
                prop_assert_ne!(name, other_name);
                prop_assert!(!excludes(one, other) && !excludes(other, one));
            }
        }
        // Nothing leaves but for one that took its place.
        prop_assert!(chosen.len() + resolution.left_out.len() >= had);
    }
}
