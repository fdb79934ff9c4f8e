//! Once what was decided about a Target is written, nothing is left to write.

use proptest::prelude::*;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use super::world::{World, key};
use crate::api::conditions::Reason;
use crate::plan::pipeline::decide::{FinalizerChange, FollowUp, NeededTasks, TargetDecision};

/// Names of Targets.
const TARGETS: [&str; 2] = ["edge", "shop"];
/// Names of Releases.
const RELEASES: [&str; 3] = ["a", "b", "c"];
/// Values of the label by which Profiles select Targets.
const RINGS: [&str; 2] = ["inner", "outer"];

/// Something that happens: to the Target or the Release of this name.
#[derive(Clone, Debug)]
enum Happening {
    Succeed,
    Fail(Reason, bool),
    Wait(i64),
    ChangeRelease(&'static str, i32),
    RemoveRelease(&'static str),
    MakeRelease(&'static str),
    Bind(&'static str, &'static str),
    Unbind(&'static str, &'static str),
    Relabel(&'static str, &'static str),
    ChangeTarget(&'static str, TargetChange),
    DeleteTarget(&'static str),
    MakeTarget(&'static str),
    Prune(bool),
}

/// What a tenant changes of a Target.
#[derive(Clone, Copy, Debug)]
enum TargetChange {
    Pin(Option<usize>),
    HistoryLimit(i32),
    Suspend(bool),
    AllowEmpty(bool),
    Userdata(i32),
    Account(bool),
}

fn target() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&TARGETS[..])
}

fn release() -> impl Strategy<Value = &'static str> {
    proptest::sample::select(&RELEASES[..])
}

fn change() -> impl Strategy<Value = TargetChange> {
    prop_oneof![
        proptest::option::weighted(0.7, 0..2usize).prop_map(TargetChange::Pin),
        (0..2i32).prop_map(TargetChange::HistoryLimit),
        any::<bool>().prop_map(TargetChange::Suspend),
        any::<bool>().prop_map(TargetChange::AllowEmpty),
        (0..3i32).prop_map(TargetChange::Userdata),
        any::<bool>().prop_map(TargetChange::Account),
    ]
}

fn happening() -> impl Strategy<Value = Happening> {
    use Happening::*;
    let reason = prop_oneof![Just(Reason::JobFailed), Just(Reason::TagConflict)];
    prop_oneof![
        12 => Just(Succeed),
        2 => (reason, any::<bool>()).prop_map(|(reason, is_final)| Fail(reason, is_final)),
        2 => (1..200i64).prop_map(Wait),
        3 => (release(), 0..3i32).prop_map(|(release, value)| ChangeRelease(release, value)),
        1 => release().prop_map(RemoveRelease),
        1 => release().prop_map(MakeRelease),
        2 => (target(), release()).prop_map(|(target, release)| Bind(target, release)),
        1 => (target(), release()).prop_map(|(target, release)| Unbind(target, release)),
        2 => (target(), proptest::sample::select(&RINGS[..])).prop_map(|(target, ring)| Relabel(target, ring)),
        6 => (target(), change()).prop_map(|(target, change)| ChangeTarget(target, change)),
        1 => target().prop_map(DeleteTarget),
        1 => target().prop_map(MakeTarget),
        1 => any::<bool>().prop_map(Prune),
    ]
}

/// Makes a Target that is not there; one of the name that was there before had another UID.
fn make_target(world: &mut World, name: &str, nth: usize) {
    if !world.objects.targets.contains_key(&key(name)) {
        world.target(name, &json!({"ring": "inner"}), json!({}));
        world.objects.targets.get_mut(&key(name)).unwrap().uid = format!("{name}-{nth}");
    }
}

/// The same of a Release.
fn make_release(world: &mut World, name: &str, nth: usize) {
    if !world.objects.releases.contains_key(&key(name)) {
        world.release(name, name, &json!({}), json!({}));
        world.objects.releases.get_mut(&key(name)).unwrap().uid = format!("{name}-{nth}");
    }
}

fn world(is_staged: bool) -> World {
    let mut world = World::new();
    for name in RELEASES {
        make_release(&mut world, name, 0);
    }
    for name in TARGETS {
        make_target(&mut world, name, 0);
    }
    world.profile("all", "a", &json!({"ring": "inner"}));
    world.profile_data("all", json!({"site": "north"}));
    if is_staged {
        world.staged_profile("staged", "b", &json!({"ring": "inner"}), &json!(1));
    } else {
        world.profile("staged", "b", &json!({"ring": "inner"}));
    }
    world
}

fn change_target(world: &mut World, name: &str, change: TargetChange) {
    if !world.objects.targets.contains_key(&key(name)) {
        return;
    }
    let versions = world.objects.hydrated_targets.values();
    let specs = versions.filter_map(|version| version.spec.as_ref());
    let own = specs.filter(|spec| spec.target_name == name);
    let numbers: Vec<i64> = own.map(|spec| spec.version).collect();
    world.change_target(name, |spec| match change {
        TargetChange::Pin(place) => spec.rollback_to = place.and_then(|place| numbers.get(place).copied()),
        TargetChange::HistoryLimit(limit) => spec.history_limit = Some(limit),
        TargetChange::Suspend(is_on) => spec.suspend = Some(is_on),
        TargetChange::AllowEmpty(is_on) => spec.allow_empty = Some(is_on),
        TargetChange::Userdata(value) => spec.userdata = Some(json!({"value": value})),
        TargetChange::Account(is_named) => spec.service_account_name = is_named.then(|| "robot".to_owned()),
    });
}

fn happen(world: &mut World, what: &Happening, nth: usize) {
    let has_target = |world: &World, name: &str| world.objects.targets.contains_key(&key(name));
    match what {
        Happening::Succeed => world.succeed(),
        Happening::Fail(reason, is_final) => world.fail_with(*reason, *is_final),
        Happening::Wait(seconds) => world.now += seconds,
        Happening::ChangeRelease(name, value) => {
            if world.objects.releases.contains_key(&key(name)) {
                world.change_release(name, |spec| spec.values = Some(json!({"value": value})));
            }
        }
        Happening::RemoveRelease(name) => _ = world.objects.releases.remove(&key(name)),
        Happening::MakeRelease(name) => make_release(world, name, nth),
        Happening::Bind(target, release) => world.bind(target, release),
        Happening::Unbind(target, release) => {
            world
                .objects
                .release_bindings
                .remove(&key(&format!("{target}-{release}")));
        }
        Happening::Relabel(target, ring) => {
            if has_target(world, target) {
                world.relabel(target, ring);
            }
        }
        Happening::ChangeTarget(target, change) => change_target(world, target, *change),
        Happening::DeleteTarget(target) => {
            if has_target(world, target) {
                world.delete_target(target);
            }
        }
        Happening::MakeTarget(target) => make_target(world, target, nth),
        Happening::Prune(is_on) => world.prune(*is_on),
    }
}

/// Takes a Target away that was let go, as the API server does.
fn let_go(world: &mut World, name: &str) {
    let target = world.objects.targets.get(&key(name));
    if target.is_some_and(|target| target.deleting && target.finalizers.hub_index.is_none()) {
        world.objects.targets.remove(&key(name));
    }
}

/// What is decided about other Targets than this one, but for tasks that one of them makes for all.
fn for_others(world: &World, name: &str) -> Vec<String> {
    let others = TARGETS.iter().filter(|other| **other != name);
    let others = others.filter_map(|other| world.decide_of(&key(other)));
    let without_tasks = others.map(|decision| TargetDecision {
        new_tasks: Vec::new(),
        // It is put on a Target that makes something, or has something already.
        finalizer: FinalizerChange::Keep,
        // Of a Release that stays as it is, all tasks are kept; the end of this one is seen too.
        needed: NeededTasks::All,
        ..decision
    });
    without_tasks.map(|decision| format!("{decision:?}")).collect()
}

/// A status as an API server gives it back.
fn as_read<S: Serialize + DeserializeOwned>(status: &S) -> S {
    serde_json::from_str(&serde_json::to_string(status).unwrap()).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// The controller does not look once more then, and not at Targets that share the tasks either. A status that a watch shows as it was
    /// written is no reason to look again.
    #[test]
    fn what_is_said_to_be_all_there_is_to_do_is_all(
        happenings in proptest::collection::vec(happening(), 1..30), is_staged in proptest::bool::weighted(0.2),
    ) {
        let mut world = world(is_staged);
        for (number, what) in happenings.iter().enumerate() {
            happen(&mut world, what, number + 1);
            for name in TARGETS {
                if !world.objects.targets.contains_key(&key(name)) {
                    continue;
                }
                let others = for_others(&world, name);
                let first = world.step(name);
                prop_assert_eq!(as_read(&first.status), first.status.clone());
                for record in first.version_status.iter().chain(&first.records) {
                    prop_assert_eq!(as_read(&record.status), record.status.clone());
                }
                if first.follow_up == FollowUp::OnChange {
                    let again = world.decide(name);
                    let is_at_rest = !again.has_writes() && again.status == first.status;
                    prop_assert!(is_at_rest, "{} after {:?}\n{:?}\n{:?}", name, what, first, again);
                    prop_assert_eq!(others, for_others(&world, name));
                }
                let_go(&mut world, name);
            }
        }
    }
}

/// A fleet is decided about once for each thing that happens to it.
#[test]
fn nothing_follows_on_the_way_to_the_first_version() {
    let mut world = world(false);
    let made = world.step("edge");
    assert!(made.follow_up == FollowUp::OnChange && made.new_tasks.len() == 2);
    world.succeed();
    let made = world.step("edge");
    assert!(made.follow_up == FollowUp::OnChange && made.new_version.is_some());
    world.succeed();
    let pushed = world.step("edge");
    assert!(pushed.follow_up == FollowUp::OnChange && pushed.version_status.is_some());
    world.change_release("a", |spec| spec.values = Some(json!({"value": 1})));
    world.step("edge");
    world.succeed();
    let second = world.step("edge");
    assert!(second.follow_up == FollowUp::AtOnce && second.new_version.is_some());
}
