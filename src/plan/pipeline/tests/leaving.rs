//! What a selector does not match any more leaves once, and its time does not begin anew.

use serde_json::{Value, json};

use super::keeping::with_profile;
use super::rollout::{fleet, roll_out};
use super::world::{World, at, key};
use crate::plan::pipeline::kept::LEAVES_AFTER;

fn leaving(world: &World) -> Vec<(String, i64)> {
    let status = &world.objects.targets.get(&key("edge")).unwrap().status;
    let leaving = status.leaving.iter();
    leaving
        .map(|one| (one.unique_name.clone(), one.since.0.as_second()))
        .collect()
}

/// Holds: F8.
#[test]
fn what_has_to_leave_leaves_with_the_next_version_however_long_another_chart_holds_it_back() {
    for is_bound_besides in [false, true] {
        let mut world = with_profile();
        if is_bound_besides {
            // Only the data of the Profile leaves then.
            world.bind("edge", "a");
        }
        world.settle("edge");
        world.relabel("edge", "two");
        world.now = 100;
        world.settle("edge");
        // The next whole second.
        let since = vec![("a".to_owned(), at(101).as_second())];
        assert_eq!(leaving(&world), since);
        world.release("c", "c", &json!({}), json!({}));
        world.bind("edge", "c");
        for _ in 0..3 {
            world.now += LEAVES_AFTER.as_secs() / 2 + 1;
            let decision = world.step("edge");
            assert!(
                decision
                    .look_again
                    .is_none_or(|look_again| look_again > at(world.now))
            );
            assert_eq!(leaving(&world), since);
        }
        world.succeed();
        world.step("edge");
        let newest = world.newest("edge").unwrap();
        let left: &[&str] = if is_bound_besides { &["a", "c"] } else { &["c"] };
        assert_eq!(newest.releases.keys().collect::<Vec<_>>(), left);
        assert_eq!(newest.profiles, []);
        world.settle("edge");
        assert_eq!(leaving(&world), []);
    }
}

/// What is seen to match again while nothing is decided about what leaves begins its minute anew.
#[test]
fn a_target_that_is_suspended_or_has_no_registry_begins_the_minute_anew() {
    for is_suspended in [true, false] {
        let mut world = with_profile();
        world.release("b", "b", &json!({}), json!({}));
        world.bind("edge", "b");
        world.settle("edge");
        world.relabel("edge", "two");
        world.now = 100;
        world.settle("edge");
        assert_eq!(leaving(&world), [("a".to_owned(), at(101).as_second())]);
        let registries = world.objects.registries.clone();
        if is_suspended {
            world.change_target("edge", |spec| spec.suspend = Some(true));
        } else {
            world.objects.registries.clear();
        }
        world.settle("edge");
        assert_eq!(leaving(&world), []);
        world.change_target("edge", |spec| spec.suspend = None);
        world.objects.registries = registries;
        world.now = 100 + 2 * LEAVES_AFTER.as_secs();
        world.settle("edge");
        assert_eq!(world.bundled("edge"), ["a 1.0.0", "b 1.0.0"]);
    }
}

/// The labels of two Profiles' selectors are taken away one after the other; a binding keeps the Release.
///
/// Holds: F7.
#[test]
fn the_data_of_each_profile_has_a_minute_of_its_own() {
    let mut world = with_profile();
    world.bind("edge", "a");
    world.profile("all", "a", &json!({"tier": "gold"}));
    world.profile_data("all", json!({"color": "red"}));
    let relabel = |world: &mut World, labels: Value| {
        let mut target = world.objects.targets.get_mut(&key("edge")).unwrap();
        target.labels = serde_json::from_value(labels).unwrap();
    };
    let data = |world: &World| world.newest("edge").unwrap().userdata.clone();
    relabel(&mut world, json!({"ring": "one", "tier": "gold"}));
    world.settle("edge");
    assert_eq!(data(&world), Some(json!({"color": "red", "site": "north"})));
    world.now = 100;
    relabel(&mut world, json!({"tier": "gold"}));
    world.settle("edge");
    world.now += LEAVES_AFTER.as_secs() - 10;
    relabel(&mut world, json!({}));
    world.settle("edge");
    world.now += 12;
    world.settle("edge");
    assert_eq!(data(&world), Some(json!({"color": "red"})), "the second for 12 s");
    world.now += LEAVES_AFTER.as_secs();
    world.settle("edge");
    assert_eq!(data(&world), None);
    assert_eq!((leaving(&world), world.bundled("edge").len()), (vec![], 1));
}

/// As where a pipeline applies the Profile before the Release that it names.
#[test]
fn a_profile_that_names_a_release_which_is_not_there_takes_nothing_away_and_what_comes_is_staged() {
    let names = ["a", "b", "c"];
    let mut world = fleet(&names, &json!(1));
    world.release("blog", "blog", &json!({}), json!({}));
    for name in names {
        world.bind(name, "blog");
        world.settle(name);
    }
    world.staged_profile("shops", "shop-two", &json!({"ring": "one"}), &json!(1));
    for name in names {
        world.settle(name);
        assert_eq!(world.bundled(name), ["blog 1.0.0", "shop 1.0.0"]);
        let (reason, message) = world.ready(name);
        assert_eq!(reason, "MissingDependencies");
        assert!(message.contains("shop-two"), "{message}");
    }
    world.component_version("shop-two", "2.0.0");
    world.release("shop-two", "shop-two", &json!({}), json!({"uniqueName": "shop"}));
    roll_out(&mut world, &names, 1);
    for name in names {
        assert_eq!(world.bundled(name), ["blog 1.0.0", "shop 2.0.0"]);
    }
    // What names nothing any more leaves.
    world.objects.profiles.clear();
    world.settle("a");
    assert_eq!(world.bundled("a"), ["blog 1.0.0"]);
}
