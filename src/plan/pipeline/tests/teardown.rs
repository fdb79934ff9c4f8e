//! A Target that is deleted: what goes with it, in which order, and for how long it waits.

use serde_json::json;

use super::world::{World, at, key};
use crate::plan::pipeline::decide::{FinalizerChange, NeededTasks, TEARDOWN_LIMIT};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::{IndexedMap, NamesOthers};
use crate::plan::task::finalizer_summary::FinalizerSummary;

fn with_version() -> World {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({"serviceAccountName": "builder"}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.settle("edge");
    world
}

/// Changes every object of a kind.
fn each<V: NamesOthers>(map: &mut IndexedMap<V>, change: impl Fn(&mut V)) {
    let keys: Vec<ObjectKey> = map.keys().cloned().collect();
    for key in keys {
        change(&mut map.get_mut(&key).unwrap());
    }
}

#[test]
fn the_finalizer_is_there_before_anything_of_the_target_is() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    let idle = world.step("edge");
    assert_eq!(idle.finalizer, FinalizerChange::Keep, "nothing is made for it");
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    let first = world.step("edge");
    assert_eq!(
        (first.finalizer, first.new_tasks.len()),
        (FinalizerChange::Add, 1)
    );
    world.settle("edge");
    assert_eq!(world.decide("edge").finalizer, FinalizerChange::Keep);
    // A Target that another writer took it from, or a restored backup brought back, gets it again.
    world.objects.targets.get_mut(&key("edge")).unwrap().finalizers = FinalizerSummary::default();
    assert_eq!(world.decide("edge").finalizer, FinalizerChange::Add);
    world.objects.hydrated_targets.clear();
    world
        .objects
        .tasks
        .retain(|name, _| name.name.starts_with("bootstrap-"));
    world.objects.release_bindings.clear();
    assert_eq!(
        world.decide("edge").finalizer,
        FinalizerChange::Add,
        "one of its tasks is there"
    );
}

#[test]
fn what_was_made_for_a_target_goes_before_its_finalizer_does() {
    let mut world = with_version();
    world.delete_target("edge");
    let first = world.decide("edge");
    assert_eq!(first.finalizer, FinalizerChange::Keep);
    let gone: Vec<&str> = first.old_tasks.iter().map(|(key, _)| key.name.as_str()).collect();
    assert!(
        gone.len() == 1 && gone[0].starts_with("bootstrap-edge-v"),
        "{gone:?}"
    );
    assert_eq!((first.old_versions.len(), first.records.len()), (1, 0));
    assert!(
        first.needed == NeededTasks::default() && first.new_tasks.is_empty() && first.new_version.is_none()
    );
    // What is on its way is not asked for twice, and waited for.
    each(&mut world.objects.tasks, |task| task.deleting = true);
    let second = world.decide("edge");
    assert_eq!(
        (second.finalizer, second.old_tasks.len()),
        (FinalizerChange::Keep, 0)
    );
    world
        .objects
        .tasks
        .retain(|name, _| name.name.starts_with("release-"));
    each(&mut world.objects.hydrated_targets, |version| {
        version.deleting = true;
    });
    assert_eq!(
        world.decide("edge").finalizer,
        FinalizerChange::Remove,
        "shared tasks are not its own"
    );
    // A Target that others hold is done with.
    world.step("edge");
    assert_eq!(world.decide("edge").finalizer, FinalizerChange::Keep);
}

#[test]
fn charts_hold_up_no_deletion() {
    let mut world = with_version();
    world.prune(true);
    world.delete_target("edge");
    let first = world.step("edge");
    assert_eq!((first.old_versions.len(), first.records.len()), (0, 1));
    let progress = first.records[0].status.prune.clone().unwrap();
    assert_eq!(
        (progress.service_account_name.as_deref(), progress.since.0),
        (Some("builder"), at(world.now))
    );
    assert_eq!(world.decide("edge").finalizer, FinalizerChange::Remove);
    assert_eq!(world.objects.hydrated_targets.len(), 1, "the record stays");
}

#[test]
fn a_version_beyond_the_limit_is_a_record_and_no_version_any_more() {
    let mut world = World::new();
    world.prune(true);
    world.target("edge", &json!({}), json!({"historyLimit": 1}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.settle("edge");
    for tag in ["2.0.0", "3.0.0"] {
        world.component_version("a", tag);
        world.settle("edge");
    }
    let records = |world: &World| {
        let all = world.objects.hydrated_targets.values();
        all.filter(|version| version.status.prune.is_some()).count()
    };
    assert_eq!((world.objects.hydrated_targets.len(), records(&world)), (3, 1));
    // It is on its way out, so no Target goes back to it.
    let oldest = world.objects.hydrated_targets.values().next().unwrap();
    let number = oldest.spec.as_ref().unwrap().version;
    world.change_target("edge", |spec| spec.rollback_to = Some(number));
    world.step("edge");
    assert_eq!(world.ready("edge").0, "VersionNotFound");
}

#[test]
fn ten_minutes_after_its_deletion_a_target_goes_whatever_is_left() {
    for (seconds, expected) in [
        (TEARDOWN_LIMIT.as_secs() - 1, FinalizerChange::Keep),
        (TEARDOWN_LIMIT.as_secs(), FinalizerChange::Force),
    ] {
        let mut world = with_version();
        world.delete_target("edge");
        assert_eq!(
            world.decide("edge").look_again,
            Some(at(TEARDOWN_LIMIT.as_secs()))
        );
        world.now += seconds;
        let decision = world.decide("edge");
        assert_eq!(decision.finalizer, expected, "{seconds}");
        let asks = !decision.old_tasks.is_empty() || !decision.old_versions.is_empty();
        assert_eq!(
            asks,
            expected == FinalizerChange::Keep,
            "what failed before holds it no longer"
        );
    }
    // One of which nothing is left is not forced.
    let mut world = with_version();
    world.delete_target("edge");
    world.objects.tasks.clear();
    world.objects.hydrated_targets.clear();
    world.now += 2 * TEARDOWN_LIMIT.as_secs();
    assert_eq!(world.decide("edge").finalizer, FinalizerChange::Remove);
}
