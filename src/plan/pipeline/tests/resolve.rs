//! Which Releases a Target gets.

use proptest::prelude::*;
use serde_json::json;

use super::world::{World, key};
use crate::plan::pipeline::resolve::{LeftOutReason, MAX_RELEASES, Resolution, ResolveFailure};
use crate::plan::pipeline::source::matches;

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
    assert_eq!(resolution.accepted[0].source.name, "edge-a");
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
                let excludes = |a: &crate::plan::pipeline::resolve::AcceptedRelease<'_>, b: &crate::plan::pipeline::resolve::AcceptedRelease<'_>| {
                    a.spec.anti_affinity.as_ref().is_some_and(|selector| matches(selector, &b.object.labels))
                };
                prop_assert!(!excludes(one, other) && !excludes(other, one));
            }
        }
        prop_assert_eq!(resolution.accepted.len() + resolution.left_out.len(), releases.len());
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
    fn the_order_in_which_releases_were_bound_does_not_matter(releases in releases()) {
        // Maps are sorted by name, so the order is that of the names: the same Releases under other names of bindings.
        let world = drawn(&releases);
        let mut renamed = world.clone();
        renamed.objects.release_bindings.clear();
        for number in (0..releases.len()).rev() {
            renamed.bind("edge", &format!("r{number}"));
        }
        prop_assert_eq!(names(&renamed.resolve("edge")), names(&world.resolve("edge")));
    }
}
