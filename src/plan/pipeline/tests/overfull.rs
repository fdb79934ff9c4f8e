//! A namespace of which the hub does not hold every object.

use serde_json::json;

use super::world::{HOME, World, at, key};
use crate::api::ReferenceGrantSpec;
use crate::plan::pipeline::decide::NeededTasks;
use crate::plan::pipeline::left_out::LeftOutIndex;
use crate::plan::pipeline::profile_status::of_profile;
use crate::plan::pipeline::rollout::RolloutIndex;
use crate::plan::pipeline::status::StatusInput;

/// A Target with what is bound to it, which is pushed.
fn pushed() -> World {
    let mut world = World::new();
    world.rules.crosses_namespaces = true;
    world.target("edge", &json!({"ring": "one"}), json!({}));
    for name in ["a", "b"] {
        world.release(name, name, &json!({}), json!({}));
    }
    world.bind("edge", "a");
    world.profile("ring", "b", &json!({"ring": "one"}));
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["a 1.0.0", "b 1.0.0"]);
    world
}

/// Lets what is of a kind in another namespace reach the Targets.
fn grant(world: &mut World, kind: &str, from: &str) {
    let spec = json!({
        "from": [{"group": "renderhub.dev", "kind": kind, "namespace": from}],
        "to": [{"group": "renderhub.dev", "kind": "Target"}],
    });
    let spec: ReferenceGrantSpec = serde_json::from_value(spec).unwrap();
    world.objects.grants.put(&None, HOME, "uid", Some(spec));
}

/// Whatever of the namespace is not kept, it is not taken for gone.
///
/// Holds: F6.
#[test]
fn what_is_not_kept_is_neither_missing_nor_gone_and_the_target_says_what_to_do() {
    type Case = (&'static str, fn(&mut World));
    let table: [Case; 6] = [
        ("nothing", |_| ()),
        ("bindings", |w| w.objects.release_bindings.clear()),
        ("profiles", |w| w.objects.profiles.clear()),
        ("releases", |w| w.objects.releases.clear()),
        ("versions of components", |w| w.objects.component_versions.clear()),
        ("registries", |w| w.objects.registries.clear()),
    ];
    for (what, lose) in table {
        let mut world = pushed();
        lose(&mut world);
        world.rules.overfull.insert(HOME.to_owned());
        world.now += 1_000;
        for _ in 0..3 {
            let decision = world.step("edge");
            assert!(
                decision.new_version.is_none() && decision.new_tasks.is_empty(),
                "{what}"
            );
            assert!(
                decision.old_versions.is_empty() && decision.old_tasks.is_empty(),
                "{what}"
            );
            assert!(
                decision.needed == NeededTasks::All && decision.is_left_out_unknown,
                "{what}"
            );
            world.now += 1_000;
        }
        let (reason, message) = world.ready("edge");
        assert_eq!(reason, "TooManyObjects", "{what}");
        assert!(
            message.contains("of namespace team-a take more memory"),
            "{message}"
        );
        let status = &world.objects.targets[&key("edge")].status;
        assert_eq!((status.releases.len(), status.leaving.len()), (2, 0), "{what}");
        assert_eq!(world.bundled("edge"), ["a 1.0.0", "b 1.0.0"], "{what}");
    }
}

#[test]
fn a_target_that_is_deleted_goes_however_much_its_namespace_holds() {
    let mut world = pushed();
    world.rules.overfull.insert(HOME.to_owned());
    world.delete_target("edge");
    // As it is kept where it has no room.
    world.objects.targets.get_mut(&key("edge")).unwrap().spec = None;
    for _ in 0..3 {
        world.step("edge");
    }
    assert!(world.objects.hydrated_targets.is_empty());
    let target = &world.objects.targets[&key("edge")];
    assert!(target.finalizers.hub_index.is_none());
}

#[test]
fn one_namespace_holds_back_only_what_may_rest_on_it() {
    for (kind, is_held) in [
        (None, false),
        (Some("ReleaseBinding"), true),
        (Some("RegistryBinding"), true),
        (Some("Profile"), true),
    ] {
        let mut world = pushed();
        if let Some(kind) = kind {
            grant(&mut world, kind, "team-b");
        }
        world.rules.overfull.insert("team-b".to_owned());
        world.step("edge");
        let (reason, message) = world.ready("edge");
        let expected = if is_held { "TooManyObjects" } else { "Ready" };
        assert_eq!(reason, expected, "{kind:?}");
        assert_eq!(message.contains("team-b"), is_held, "{message}");
    }
}

#[test]
fn a_profile_counts_its_targets_unless_some_of_them_may_not_be_known() {
    // Which namespace is overfull, whether it grants its Targets to the Profile, and whether references cross.
    for (overfull, is_granted, crosses, is_counted) in [
        (HOME, false, false, false),
        ("team-b", false, true, true),
        ("team-b", true, true, false),
        ("team-b", true, false, true),
    ] {
        let mut world = pushed();
        world.rules.crosses_namespaces = crosses;
        world.rules.overfull.insert(overfull.to_owned());
        if is_granted {
            let spec = json!({
                "from": [{"group": "renderhub.dev", "kind": "Profile", "namespace": HOME}],
                "to": [{"group": "renderhub.dev", "kind": "Target", "name": "one"}],
            });
            let spec: ReferenceGrantSpec = serde_json::from_value(spec).unwrap();
            world.objects.grants.put(&None, "team-b", "uid", Some(spec));
        }
        let (rollouts, mut left_out) = (RolloutIndex::default(), LeftOutIndex::default());
        left_out.put(&key("edge"), Vec::new());
        let input = StatusInput {
            objects: &world.objects,
            rules: &world.rules,
            rollouts: &rollouts,
            left_out: &left_out,
            now: at(0),
        };
        let profile = key("ring");
        let status = of_profile(&profile, &input.objects.profiles[&profile], &input);
        assert_eq!(status.is_some(), is_counted, "{overfull} {is_granted} {crosses}");
    }
}
