//! A Target that waits for charts is not decided about for each of them.

use std::collections::BTreeSet;

use serde_json::json;

use super::world::{World, at, key};
use crate::api::conditions::Reason;
use crate::api::pipeline::TargetSpec;
use crate::plan::pipeline::decide::{NeededTasks, TargetDecision};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};

/// A Target with three Releases whose tasks run.
fn with_three() -> World {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for name in ["a", "b", "c"] {
        world.release(name, name, &json!({}), json!({}));
        world.bind("edge", name);
    }
    world.step("edge");
    world
}

fn tasks(world: &World) -> Vec<ObjectKey> {
    world.objects.tasks.keys().cloned().collect()
}

/// The tasks that run, as the controller sees them.
fn running(world: &World) -> BTreeSet<&str> {
    let tasks = world.objects.tasks.iter();
    let running = tasks.filter(|(_, task)| task.is_shared_and_runs());
    running.map(|(key, _)| key.name.as_str()).collect()
}

fn put(world: &mut World, task: &ObjectKey, state: PipelineTaskState) -> PipelineTask {
    let mut known = world.objects.tasks.get_mut(task).unwrap();
    let before = known.clone();
    known.state = state;
    before
}

fn pushed() -> PipelineTaskState {
    PipelineTaskState::Succeeded {
        digest: None,
        at: at(1),
    }
}

/// Whether a pushed chart lets the Target wait.
fn waits(world: &World, decision: &TargetDecision, task: &ObjectKey) -> bool {
    decision.awaits_tasks && decision.needed.has_another(&task.name, &running(world))
}

#[test]
fn nothing_changes_for_a_target_that_waits_beside_a_pushed_chart_and_the_last_one_changes_it() {
    let mut world = with_three();
    let tasks = tasks(&world);
    for (number, task) in tasks.iter().enumerate() {
        let before = world.decide("edge");
        let earlier = put(&mut world, task, pushed());
        assert!(world.objects.tasks[task].is_pushed_since(&earlier));
        let after = world.decide("edge");
        let is_last = number + 1 == tasks.len();
        assert_eq!(waits(&world, &before, task), !is_last, "{number}");
        assert_eq!(after.new_version.is_some(), is_last, "{number}");
        assert_eq!(after.status == before.status, !is_last, "{number}");
    }
    world.settle("edge");
    assert!(!world.decide("edge").awaits_tasks, "it is ready");
}

#[test]
fn a_target_is_decided_about_where_a_chart_failed_or_waits_for_a_person() {
    let failed = PipelineTaskState::Failed {
        reason: Reason::JobFailed,
        at: at(World::new().now),
        is_final: false,
    };
    for state in [failed, PipelineTaskState::Blocked(Reason::RegistryNotFound)] {
        let mut world = with_three();
        let tasks = tasks(&world);
        let earlier = put(&mut world, &tasks[0], state.clone());
        assert!(
            !world.objects.tasks[&tasks[0]].is_pushed_since(&earlier),
            "{state:?}"
        );
        assert!(!world.decide("edge").awaits_tasks, "{state:?}");
        // What it says of that task goes with the task's push, whatever else runs.
        let earlier = put(&mut world, &tasks[0], pushed());
        assert!(
            !world.objects.tasks[&tasks[0]].is_pushed_since(&earlier),
            "{state:?}"
        );
    }
}

/// A chart that a version names is there whatever its task does, such as one that another Target has rendered in another way.
#[test]
fn a_target_with_a_version_waits_for_no_task_of_a_chart_that_it_has() {
    let mut world = with_three();
    world.settle("edge");
    let class = |spec: &mut TargetSpec| spec.renderer_class_name = Some("other".to_owned());
    world.change_target("edge", class);
    world.target("new", &json!({}), json!({}));
    world.change_target("new", class);
    world.bind_as("new-a", "new", "a");
    assert_eq!(
        world.step("new").new_tasks.len(),
        1,
        "the chart is rendered by the other class"
    );
    let version = world.newest("edge").map(|newest| newest.version);
    world.change_release("b", |spec| spec.target_namespace = Some("elsewhere".to_owned()));
    let decision = world.step("edge");
    let [task] = &decision.new_tasks[..] else {
        panic!("{:?}", decision.new_tasks)
    };
    let task = key(&task.name);
    let decision = world.decide("edge");
    assert!(
        decision.needed.has_another(&task.name, &running(&world)),
        "the other chart is rendered still"
    );
    assert!(!waits(&world, &decision, &task));
    put(&mut world, &task, pushed());
    let next = world.decide("edge").new_version.map(|(_, spec)| spec.version);
    assert_eq!(next, version.map(|version| version + 1));
}

#[test]
fn only_a_task_that_is_needed_beside_a_needed_one_counts() {
    let named = |names: &[&str]| NeededTasks::Named(names.iter().map(|name| (*name).to_owned()).collect());
    for (needed, running, has) in [
        (named(&["a", "b"]), &["b"][..], true),
        (named(&["a", "b"]), &["a"], false),
        (named(&["a", "b"]), &["c"], false),
        (named(&["b", "c"]), &["b"], false),
        (NeededTasks::All, &["b"], false),
    ] {
        let running = running.iter().copied().collect();
        assert_eq!(needed.has_another("a", &running), has, "{needed:?} {running:?}");
    }
}
