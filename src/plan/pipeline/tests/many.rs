//! What is resolved however much there is.

use serde_json::{Value, json};

use super::keeping::with_profile;
use super::world::{World, key};
use crate::plan::pipeline::conditions::dependencies;
use crate::plan::pipeline::resolution::{BINDINGS_OF_TARGET, MAX_RELEASES, ResolveFailure};

/// Bindings of one Target, many times more than it can have.
const BINDINGS: usize = 100_000;
/// No message is longer, whatever there is to tell.
const MESSAGE_MAX: usize = 4096;

/// A Target with one Release, which is pushed.
fn pushed() -> World {
    let mut world = World::new();
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.release("shop", "shop", &json!({}), json!({}));
    world.bind("edge", "shop");
    world.settle("edge");
    world
}

/// Holds: F6.
#[test]
fn a_hundred_thousand_bindings_change_nothing_of_a_target_and_it_says_so() {
    let mut world = pushed();
    for number in 0..BINDINGS {
        world.bind("edge", &format!("r{number}"));
    }
    // Not even what would leave on purpose leaves.
    world.objects.release_bindings.remove(&key("edge-shop"));
    let resolution = world.resolve("edge");
    assert_eq!(resolution.too_many, Some(BINDINGS));
    assert_eq!((resolution.accepted.len(), resolution.bound.len()), (0, 0));
    let decision = world.step("edge");
    assert!(decision.new_version.is_none() && decision.new_tasks.is_empty());
    assert!(decision.old_tasks.is_empty() && decision.is_left_out_unknown);
    let (reason, message) = world.ready("edge");
    assert_eq!(reason, "TooManyBindings");
    assert!(message.starts_with("100000 ReleaseBindings, "), "{message}");
    assert_eq!(world.bundled("edge"), ["shop 1.0.0"]);
    // Once there are few enough, it goes on.
    world.objects.release_bindings.clear();
    world.bind("edge", "shop");
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
}

/// Holds: F6.
#[test]
fn bindings_of_all_kinds_are_counted_up_to_the_bound_and_one_more_is_too_many() {
    type Case = (&'static str, fn(&mut World, usize));
    let table: [Case; 3] = [
        ("ReleaseBindings", |w, n| {
            w.bind_as(&format!("more-{n}"), "edge", "shop");
        }),
        ("Profiles", |w, n| {
            w.profile(&format!("p{n}"), "shop", &json!({"ring": "one"}));
        }),
        ("RegistryBindings", |w, n| {
            w.registry_binding(&format!("g{n}"), "edge", &format!("h{n}.test"), "s");
        }),
    ];
    for (what, bind) in table {
        let mut world = pushed();
        for number in 1..BINDINGS_OF_TARGET {
            bind(&mut world, number);
        }
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "Ready", "{what}");
        bind(&mut world, BINDINGS_OF_TARGET);
        world.settle("edge");
        assert_eq!(world.ready("edge").0, "TooManyBindings", "{what}");
        assert_eq!(world.bundled("edge"), ["shop 1.0.0"], "{what}");
        // Those of another Target are none of its business.
        world.objects.release_bindings.remove(&key("edge-shop"));
        world.target("other", &json!({}), json!({}));
        world.bind("other", "shop");
        world.settle("other");
        assert_eq!(world.ready("other").0, "Ready", "{what}");
    }
}

/// Holds: F6.
#[test]
fn of_all_releases_that_can_be_bound_a_target_takes_as_many_as_it_can_have() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for number in 0..BINDINGS_OF_TARGET {
        let name = format!("r{number}");
        let spec = json!({"uniqueName": name, "priority": number});
        world.release(&name, "shop", &json!({}), spec);
        world.bind("edge", &name);
    }
    let resolution = world.resolve("edge");
    assert_eq!(resolution.accepted.len(), MAX_RELEASES);
    let lowest = resolution.accepted.iter().map(|release| release.priority).min();
    assert_eq!(lowest, Some(768), "those with the highest priority are taken");
    let mut refused = resolution.unresolved.iter();
    assert!(refused.all(|release| release.why == ResolveFailure::TooMany));
    assert_eq!(resolution.unresolved.len(), BINDINGS_OF_TARGET - MAX_RELEASES);
    let said = dependencies(&resolution).unwrap();
    assert!(said.message.len() <= MESSAGE_MAX, "{}", said.message.len());
}

/// To compare each with all others would take minutes, and they wait in any case.
///
/// Holds: F6.
#[test]
fn what_is_beyond_what_a_target_can_have_is_not_compared() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    let excludes = json!({"matchLabels": {"class": "other"}});
    let last = |world: &mut World| {
        let spec = json!({"uniqueName": "last", "priority": -1, "antiAffinity": excludes});
        world.release("last", "shop", &json!({"class": "other"}), spec);
        world.bind("edge", "last");
    };
    let more = |world: &mut World, numbers: std::ops::Range<usize>| {
        for number in numbers {
            let name = format!("r{number}");
            world.release(
                &name,
                "shop",
                &json!({"class": "other"}),
                json!({"uniqueName": name}),
            );
            world.bind("edge", &name);
        }
    };
    more(&mut world, 0..MAX_RELEASES);
    // One that loses to others takes no place.
    last(&mut world);
    let resolution = world.resolve("edge");
    assert_eq!((resolution.left_out.len(), resolution.unresolved.len()), (1, 0));
    more(&mut world, MAX_RELEASES..MAX_RELEASES + 1);
    let resolution = world.resolve("edge");
    assert_eq!(
        (resolution.accepted.len(), resolution.left_out.len()),
        (MAX_RELEASES, 0)
    );
    let waiting: Vec<_> = resolution
        .unresolved
        .iter()
        .map(|one| (one.release.name.as_str(), &one.why))
        .collect();
    let too_many = &ResolveFailure::TooMany;
    assert_eq!(waiting, [("r99", too_many), ("last", too_many)]);
}

/// However many Profiles with however long names there are, the API server takes the message.
#[test]
fn of_many_profiles_that_differ_few_are_named() {
    let mut world = with_profile();
    for number in 0..20 {
        let name = format!("p{number:0>200}");
        world.profile(&name, "a", &json!({"ring": "one"}));
        let data = (0..12).map(|n| (format!("k{n}"), json!(number)));
        world.profile_data(&name, Value::Object(data.collect()));
    }
    world.settle("edge");
    let (reason, message) = world.ready("edge");
    assert_eq!(reason, "UserdataConflict");
    assert!(
        message.contains("and 17 more set") && message.contains("; and 2 more"),
        "{message}"
    );
    assert!(message.len() < 16 << 10, "{}", message.len());
}
