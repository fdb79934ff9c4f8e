//! Numbers of versions and tags of charts, each of which means one content.

use super::keeping::with_profile;
use super::world::{World, key};
use crate::api::conditions::Reason;
use crate::plan::pipeline::decide::NeededTasks;

#[test]
fn a_number_of_a_version_is_used_once_whatever_becomes_of_the_version() {
    let mut world = with_profile();
    world.step("edge");
    world.succeed();
    let (_, first) = world.step("edge").new_version.unwrap();
    let second = |world: &mut World| {
        world.objects.hydrated_targets.clear();
        world.step("edge").new_version.unwrap().1.version
    };
    assert_eq!(second(&mut world.clone()), first.version + 1);
    // Where the status of the Target was left, the task of the version says its number.
    unrecorded(&mut world);
    assert_eq!(second(&mut world.clone()), first.version + 1);
    // A hub that follows one that was killed before that status records the number before the version and its task can go.
    world.step("edge");
    world
        .objects
        .tasks
        .retain(|key, _| !key.name.starts_with("bootstrap-"));
    assert_eq!(second(&mut world), first.version + 1);
}

/// The status of the Target names no version.
fn unrecorded(world: &mut World) {
    let mut target = world.objects.targets.get_mut(&key("edge")).unwrap();
    target.status.newest_version = None;
}

fn needed<'n>(names: impl IntoIterator<Item = &'n String>) -> NeededTasks {
    NeededTasks::Named(names.into_iter().cloned().collect())
}

#[test]
fn a_tag_that_holds_other_bytes_gives_the_chart_another_tag_which_stays() {
    let mut world = with_profile();
    let first = world.step("edge").new_tasks.remove(0);
    world.fail_with(Reason::TagConflict, true);
    let second = world.step("edge").new_tasks.remove(0);
    let generation = |tag: &str| tag.split_once("-h").unwrap().0.to_owned();
    assert_ne!(first.spec.tag, second.spec.tag);
    assert_eq!(generation(&first.spec.tag), generation(&second.spec.tag));
    assert_eq!(world.decide("edge").needed, needed([&first.name, &second.name]));
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
    let bundled = |world: &World| world.newest("edge").unwrap().releases["a"].version.clone();
    assert_eq!(bundled(&world), second.spec.tag);
    // Without its tasks it is known by the version that names it, and no other chart is rendered.
    world
        .objects
        .tasks
        .retain(|key, _| key.name.starts_with("bootstrap-"));
    let decision = world.step("edge");
    assert!(decision.new_tasks.is_empty() && decision.new_version.is_none());
    assert_eq!(decision.needed, needed([&second.name]));
    assert_eq!(bundled(&world), second.spec.tag);
}

#[test]
fn a_chart_whose_tags_are_all_taken_needs_a_person() {
    let mut world = with_profile();
    for _ in 0..crate::plan::pipeline::chart::SALTS {
        assert_eq!(world.step("edge").new_tasks.len(), 1);
        world.fail_with(Reason::TagConflict, true);
    }
    assert!(world.step("edge").new_tasks.is_empty());
    let stalled = &world.objects.targets[&key("edge")].status.conditions;
    assert!(
        stalled
            .iter()
            .any(|condition| condition.type_ == "Stalled" && condition.reason == "ReleaseFailed")
    );
}

#[test]
fn a_version_whose_tag_is_taken_is_made_once_more_with_the_next_number() {
    let mut world = with_profile();
    world.step("edge");
    world.succeed();
    let (_, first) = world.step("edge").new_version.unwrap();
    world.step("edge");
    world.fail_with(Reason::TagConflict, true);
    let (_, second) = world.step("edge").new_version.unwrap();
    assert_eq!(second.version, first.version + 1);
    assert_eq!(
        (&second.releases, &second.userdata),
        (&first.releases, &first.userdata)
    );
    let why = format!("as version {}, whose tag holds another chart", first.version);
    assert_eq!(second.changes, why);
    world.step("edge");
    let mut lost = world.clone();
    lost.fail_with(Reason::TagConflict, true);
    assert!(
        lost.step("edge").new_version.is_none(),
        "a third number does not help"
    );
    assert_eq!(lost.ready("edge").0, "Failed");
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
}

#[test]
fn of_one_version_there_is_one_task_whatever_renders_it() {
    let mut world = with_profile();
    world.step("edge");
    world.succeed();
    let first = world.step("edge").new_tasks.remove(0);
    world.change_target("edge", |spec| spec.renderer_class_name = Some("other".to_owned()));
    // The chart of the Release is another one's too, but the version names it.
    let decision = world.step("edge");
    assert!(
        decision.old_tasks.iter().any(|(key, _)| key.name == first.name),
        "{decision:?}"
    );
}
