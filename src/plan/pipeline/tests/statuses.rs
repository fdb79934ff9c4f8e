//! What statuses say of Profiles, bindings and components.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use serde_json::json;

use super::world::{HOME, World, at, key, object};
use crate::api::conditions::Reason;
use crate::api::pipeline::{PipelineStatus, ProfileStatus};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::left_out::{LeftOutIndex, winner};
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::profile_status::{MAX_LISTED, of_profile};
use crate::plan::pipeline::reports;
use crate::plan::pipeline::resolution::{LeftOutReason, LeftOutRelease};
use crate::plan::pipeline::rollout::RolloutIndex;
use crate::plan::pipeline::status::{
    StatusInput, of_component, of_component_version, of_registry_binding, of_release, of_release_binding,
};

/// Who lost on each Target, as the controller notes it.
pub fn left_out(world: &World) -> LeftOutIndex {
    let mut index = LeftOutIndex::default();
    for target in world.objects.targets.keys() {
        if let Some(decision) = world.decide_of(target) {
            index.put(target, decision.left_out);
        }
    }
    index
}

/// Asks for a status, with all that is known.
fn with_input<T>(world: &World, ask: impl FnOnce(&StatusInput<'_>) -> T) -> T {
    let (rollouts, left_out) = (world.rollouts(&ChartCache::default()), left_out(world));
    ask(&input(world, &rollouts, &left_out))
}

/// What statuses rest on, with what is known of rollouts and of losers.
pub fn input<'o>(
    world: &'o World,
    rollouts: &'o RolloutIndex,
    left_out: &'o LeftOutIndex,
) -> StatusInput<'o> {
    StatusInput {
        objects: &world.objects,
        rules: &world.rules,
        rollouts,
        left_out,
        now: at(world.now),
    }
}

fn profile(world: &World, name: &str) -> ProfileStatus {
    let (key, object) = world.objects.profiles.get_key_value(&key(name)).unwrap();
    with_input(world, |input| {
        let key = input.objects.profiles.get_key_value(key).unwrap().0;
        of_profile(key, object, input)
    })
    .unwrap()
}

fn binding(world: &World, name: &str) -> PipelineStatus {
    let (key, object) = world.objects.release_bindings.get_key_value(&key(name)).unwrap();
    with_input(world, |input| of_release_binding(key, object, input)).unwrap()
}

/// The status, the reason and the message of `Ready`, and whether it is stalled.
pub fn ready(conditions: &[Condition]) -> (&str, &str, &str, bool) {
    let ready = conditions
        .iter()
        .find(|condition| condition.type_ == "Ready")
        .unwrap();
    let is_stalled = conditions.iter().any(|condition| condition.type_ == "Stalled");
    (&ready.status, &ready.reason, &ready.message, is_stalled)
}

/// Two Targets; on the first, another Release takes the place of that of the Profile.
fn contested() -> World {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.release("own", "shop", &json!({}), json!({"priority": 1}));
    for name in ["a", "b"] {
        world.target(name, &json!({"ring": "one"}), json!({}));
    }
    world.profile("shops", "shop", &json!({"ring": "one"}));
    world.bind("a", "own");
    world
}

#[test]
fn what_binds_a_release_that_lost_says_which_one_is_there() {
    let mut world = contested();
    let status = profile(&world, "shops");
    let (is_ready, reason, message, _) = ready(&status.conditions);
    assert_eq!((is_ready, reason), ("True", "Ready"));
    assert_eq!(
        message,
        "another Release is on 1 of 2 Targets in place of this one: on Target team-a/a, Release team-a/own has the same unique name"
    );
    let status = binding(&world, "a-own");
    assert_eq!(ready(&status.conditions).0, "True");
    // On the other one too.
    world.bind("b", "own");
    let status = profile(&world, "shops");
    let (is_ready, reason, _, is_stalled) = ready(&status.conditions);
    assert_eq!((is_ready, reason, is_stalled), ("False", "Superseded", true));
    // A binding that loses says it of its one Target.
    world.release("shop", "shop", &json!({}), json!({"priority": 2}));
    let status = binding(&world, "a-own");
    let (is_ready, reason, message, is_stalled) = ready(&status.conditions);
    assert_eq!((is_ready, reason, is_stalled), ("False", "Superseded", true));
    assert!(
        message.contains("Release team-a/shop has the same unique name"),
        "{message}"
    );
    // A Release that is missing is the first thing to be said.
    world.objects.releases.remove(&key("own"));
    assert_eq!(ready(&binding(&world, "a-own").conditions).1, "NotFound");
}

#[test]
fn a_target_that_is_suspended_or_pinned_has_the_same_losers() {
    for pin in [false, true] {
        let mut world = contested();
        world.settle("a");
        world.change_target("a", |spec| {
            spec.rollback_to = pin.then_some(7);
            spec.suspend = Some(!pin);
        });
        assert_eq!(world.decide("a").left_out.len(), 1);
    }
}

#[test]
fn nothing_is_said_before_all_targets_were_decided_about() {
    let mut world = contested();
    let (mut known, rollouts) = (left_out(&world), world.rollouts(&ChartCache::default()));
    known.remove(&key("a"));
    world.bind("b", "shop");
    {
        let input = input(&world, &rollouts, &known);
        let (key, object) = world.objects.profiles.get_key_value(&key("shops")).unwrap();
        assert_eq!(of_profile(key, object, &input), None);
        let of_binding = |name: &str| {
            let (key, object) = world
                .objects
                .release_bindings
                .get_key_value(&super::world::key(name))
                .unwrap();
            of_release_binding(key, object, &input)
        };
        assert_eq!(of_binding("a-own"), None);
        assert!(of_binding("b-shop").is_some());
    }
    // Nor before its rollout was looked at.
    world.staged_profile("shops", "shop", &json!({"ring": "one"}), &json!(1));
    let (known, rollouts) = (left_out(&world), RolloutIndex::default());
    let input = input(&world, &rollouts, &known);
    let (key, object) = world.objects.profiles.get_key_value(&key("shops")).unwrap();
    assert_eq!(of_profile(key, object, &input), None);
}

#[test]
fn only_what_changed_is_told_to_those_whom_it_concerns() {
    let source = |namespace: &str| crate::api::pipeline::ReleaseSource {
        namespace: namespace.to_owned(),
        name: "binding".to_owned(),
        kind: crate::api::pipeline::ReleaseSourceKind::ReleaseBinding,
    };
    let lost = |namespace: &str| LeftOutRelease {
        source: source(namespace),
        release: ObjectKey::new(namespace, "lost"),
        winner: key("winner"),
        why: LeftOutReason::AntiAffinity,
    };
    let mut index = LeftOutIndex::default();
    let put = |index: &mut LeftOutIndex, lost| {
        let changed = index.put(&key("edge"), lost).into_iter();
        changed.map(|source| source.namespace).collect::<Vec<_>>()
    };
    assert_eq!(put(&mut index, vec![lost("x"), lost("y")]), ["x", "y"]);
    assert_eq!(put(&mut index, vec![lost("x"), lost("y")]), Vec::<String>::new());
    assert_eq!(put(&mut index, vec![lost("x"), lost("z")]), ["y", "z"]);
    assert!(index.of(&key("edge"), &source("x")).is_some() && index.of(&key("edge"), &source("y")).is_none());
    index.remove(&key("edge"));
    assert!(!index.knows(&key("edge")));
}

/// Holds: F16.
#[test]
fn the_winner_has_a_name_only_for_who_may_know_it() {
    // The namespaces of the binding, the Target and the winner, and whether the text has the winner's name.
    for (own, target, of_winner, is_reported) in [
        ("a", "a", "a", true),
        ("a", "a", "b", true),
        ("a", "b", "a", true),
        ("a", "b", "b", false),
        ("a", "b", "c", false),
    ] {
        let lost = LeftOutRelease {
            source: crate::api::pipeline::ReleaseSource {
                namespace: own.to_owned(),
                name: "binding".to_owned(),
                kind: crate::api::pipeline::ReleaseSourceKind::Profile,
            },
            release: ObjectKey::new(own, "lost"),
            winner: ObjectKey::new(of_winner, "secret-name"),
            why: LeftOutReason::UniqueName,
        };
        let text = winner(&lost, &ObjectKey::new(target, "edge"));
        assert_eq!(
            text.contains("secret-name"),
            is_reported,
            "{own} {target} {of_winner}: {text}"
        );
    }
}

#[test]
fn a_profile_lists_the_first_of_its_targets_and_counts_all() {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.profile("shops", "shop", &json!({"ring": "one"}));
    for number in 0..=MAX_LISTED {
        world.target(&format!("t{number:03}"), &json!({"ring": "one"}), json!({}));
    }
    world.target("other", &json!({"ring": "two"}), json!({}));
    let status = profile(&world, "shops");
    assert_eq!(
        status.matched_targets,
        Some(i32::try_from(MAX_LISTED).unwrap() + 1)
    );
    let listed: Vec<&str> = status.targets.iter().map(|target| target.name.as_str()).collect();
    assert_eq!(
        (listed.len(), listed[0], listed[99]),
        (MAX_LISTED, "t000", "t099")
    );
    assert!(status.targets.iter().all(|target| target.namespace.is_none()));
    assert_eq!(status.updated_targets, None, "it has no limit");
}

/// Two Targets that have a Release by a Profile, which brings a change to one at a time.
fn staged() -> World {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.staged_profile("shops", "shop", &json!({"ring": "one"}), &json!(1));
    for name in ["a", "b"] {
        world.target(name, &json!({"ring": "one"}), json!({}));
        world.settle(name);
    }
    world
}

/// How many Targets are updated, and why the Profile is ready or not.
fn said(world: &World) -> (Option<i32>, String, String) {
    let status = profile(world, "shops");
    let (_, reason, message, is_stalled) = ready(&status.conditions);
    assert!(!is_stalled);
    (status.updated_targets, reason.to_owned(), message.to_owned())
}

#[test]
fn a_profile_says_how_far_its_rollout_is() {
    let mut world = staged();
    let there = "the Release is there".to_owned();
    assert_eq!(said(&world), (Some(2), "Ready".to_owned(), there));
    world.component_version("shop", "2.0.0");
    let message = "Release team-a/shop is on 0 of 2 Targets as it is now; it is on its way to 1, and 1 wait";
    assert_eq!(
        said(&world),
        (Some(0), "RollingOut".to_owned(), message.to_owned())
    );
    world.settle("a");
    assert_eq!(said(&world).0, Some(1));
    world.change_target("b", |spec| spec.suspend = Some(true));
    let (updated, reason, message) = said(&world);
    assert_eq!((updated, reason.as_str()), (Some(1), "Ready"));
    assert!(message.ends_with("held back by something else: 1"), "{message}");
}

#[test]
fn a_profile_says_that_its_rollout_halted_and_it_is_told_once() {
    let mut world = staged();
    world.component_version("shop", "2.0.0");
    let running = profile(&world, "shops");
    world.step("a");
    world.fail(true);
    let (updated, reason, message) = said(&world);
    assert_eq!((updated, reason.as_str()), (Some(0), "RolloutHalted"));
    assert!(
        message.contains("failed on 1 of 2 Targets; 0 have it and 1 wait"),
        "{message}"
    );
    let halted = profile(&world, "shops");
    let report = reports::of_profile(&running, &halted).unwrap();
    assert_eq!((report.is_warning, report.reason), (true, Reason::RolloutHalted));
    assert_eq!(report.note, message);
    assert_eq!(reports::of_profile(&halted, &halted), None);
}

#[test]
fn a_component_is_ready_and_a_version_says_whether_its_component_is_there() {
    let mut world = World::new();
    world.component_version("shop", "1.0.0");
    let said = |world: &World| {
        let (key, object) = world
            .objects
            .component_versions
            .get_key_value(&key("shop"))
            .unwrap();
        let status = with_input(world, |input| of_component_version(key, object, input)).unwrap();
        let (is_ready, reason, message, is_stalled) = ready(&status.conditions);
        assert_eq!(
            (is_ready, reason, is_stalled, status.observed_generation),
            ("True", "Ready", false, Some(1))
        );
        message.to_owned()
    };
    assert!(
        said(&world).contains("its Component \"shop\" does not exist"),
        "{}",
        said(&world)
    );
    let component = PipelineObject::made("uid".to_owned(), serde_json::from_value(json!({})).unwrap());
    world
        .objects
        .components
        .insert(ObjectKey::new(HOME, "shop"), component);
    assert!(
        said(&world).ends_with("its Component is there"),
        "{}",
        said(&world)
    );
    let (key, object) = world.objects.components.first_key_value().unwrap();
    let status = with_input(&world, |input| of_component(key, object, input)).unwrap();
    assert_eq!(
        (ready(&status.conditions).0, status.observed_generation),
        ("True", Some(1))
    );
}

#[test]
fn a_release_says_of_which_name_a_target_gets_one() {
    let mut world = World::new();
    world.release("own", "shop", &json!({}), json!({}));
    world.release("named", "shop", &json!({}), json!({"uniqueName": "till"}));
    for (name, unique_name) in [("own", "shop"), ("named", "till")] {
        let (key, object) = world.objects.releases.get_key_value(&key(name)).unwrap();
        let status = with_input(&world, |input| of_release(key, object, input)).unwrap();
        assert_eq!(status.effective_unique_name.as_deref(), Some(unique_name));
    }
}

#[test]
fn a_binding_of_a_registry_says_what_is_missing() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    // It is there, so only a grant is missing.
    let target = object("edge", &json!({}), json!({"renderRegistryRef": {"name": "main"}}));
    world
        .objects
        .targets
        .insert(ObjectKey::new("team-b", "edge"), target);
    let at_home = |name: &str| json!({"name": name});
    let foreign = json!({"name": "edge", "namespace": "team-b"});
    for (target, registry, expected, part) in [
        (at_home("edge"), "main", "Ready", "are there"),
        (at_home("edge"), "absent", "NotFound", "the Registry \"absent\""),
        (at_home("absent"), "main", "NotFound", "the Target \"absent\""),
        (foreign, "main", "NotGranted", "no ReferenceGrant there"),
    ] {
        let spec = json!({"targetRef": target, "registryRef": {"name": registry}});
        let binding = object("binding", &json!({}), spec);
        let asked = with_input(&world, |input| {
            of_registry_binding(&key("binding"), &binding, input)
        });
        let status = asked.unwrap();
        let (is_ready, reason, message, is_stalled) = ready(&status.conditions);
        assert_eq!(reason, expected, "{target} {registry}");
        assert_eq!(
            (is_ready == "True", is_stalled),
            (expected == "Ready", expected != "Ready")
        );
        assert!(message.contains(part), "{target} {registry}: {message}");
    }
}
