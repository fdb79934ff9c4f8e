//! Attempts at a task.

use serde_json::json;

use super::world::{World, at, key};
use crate::api::conditions::Reason;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::task::{Attempts, TaskProgress, base_name};
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState, TaskChart};

fn task(state: PipelineTaskState) -> PipelineTask {
    PipelineTask {
        uid: "u".to_owned(),
        spec_hash: "h".to_owned(),
        deleting: false,
        owner: None,
        chart: TaskChart::default(),
        state,
    }
}

fn failed(second: i64, is_final: bool) -> PipelineTask {
    let (reason, at) = (Reason::JobFailed, at(second));
    task(PipelineTaskState::Failed { reason, at, is_final })
}

fn of(tasks: Vec<(&str, PipelineTask)>) -> PipelineObjects {
    PipelineObjects {
        tasks: tasks.into_iter().map(|(name, task)| (key(name), task)).collect(),
        ..PipelineObjects::default()
    }
}

#[test]
fn a_failed_attempt_is_replaced_after_a_pause_that_doubles_up_to_an_hour() {
    // The number of the attempt, and the minutes until the next.
    for (attempt, minutes) in [(1, 1), (2, 2), (3, 4), (6, 32), (7, 60), (30, 60)] {
        let name = if attempt == 1 {
            "t".to_owned()
        } else {
            format!("t-r{attempt}")
        };
        let objects = of(vec![(&name, failed(0, false))]);
        let due = at(60 * minutes);
        let now = |second| Attempts::of(&objects, "team-a", "t").progress("t", "h", at(second));
        assert_eq!(
            now(60 * minutes - 1),
            TaskProgress::Failed(Reason::JobFailed, Some(due)),
            "{attempt}"
        );
        assert_eq!(
            now(60 * minutes),
            TaskProgress::Missing(format!("t-r{}", attempt + 1)),
            "{attempt}"
        );
    }
}

#[test]
fn what_would_fail_again_is_not_tried_again() {
    let objects = of(vec![("t", failed(0, true))]);
    assert_eq!(
        Attempts::of(&objects, "team-a", "t").progress("t", "h", at(1_000_000)),
        TaskProgress::Failed(Reason::JobFailed, None)
    );
}

#[test]
fn only_the_last_attempt_counts_and_the_others_go() {
    let running = || task(PipelineTaskState::Running);
    let objects = of(vec![
        ("t", failed(0, false)),
        ("t-r2", failed(0, false)),
        ("t-r3", running()),
        ("t-rx", running()),
    ]);
    assert_eq!(
        Attempts::of(&objects, "team-a", "t").progress("t", "h", at(0)),
        TaskProgress::Running
    );
    let older: Vec<String> = Attempts::of(&objects, "team-a", "t")
        .older()
        .map(|(key, _)| key.name.clone())
        .collect();
    assert_eq!(older, ["t", "t-r2"]);
    // The first attempts are gone by and by, and the third is still the last.
    let objects = of(vec![("t-r3", running())]);
    assert_eq!(
        Attempts::of(&objects, "team-a", "t").progress("t", "h", at(0)),
        TaskProgress::Running
    );
    assert_eq!(Attempts::of(&objects, "team-a", "t").older().count(), 0);
    assert_eq!(
        (base_name("t-r3"), base_name("t-rx"), base_name("t-r")),
        ("t", "t-rx", "t-r")
    );
}

/// By name, the tenth attempt comes before the second.
#[test]
fn attempts_are_told_apart_by_their_numbers_and_not_by_the_order_of_their_names() {
    let running = task(PipelineTaskState::Running);
    let objects = of(vec![
        ("t", failed(0, false)),
        ("t-r10", running),
        ("t-r2", failed(0, true)),
    ]);
    let attempts = Attempts::of(&objects, "team-a", "t");
    assert_eq!(attempts.progress("t", "h", at(0)), TaskProgress::Running);
    let older: Vec<&str> = attempts.older().map(|(key, _)| key.name.as_str()).collect();
    assert_eq!(older, ["t", "t-r2"]);
}

#[test]
fn a_task_that_is_being_deleted_is_replaced_by_one_of_another_name() {
    let mut gone = task(PipelineTaskState::Running);
    gone.deleting = true;
    let objects = of(vec![("t", gone)]);
    assert_eq!(
        Attempts::of(&objects, "team-a", "t").progress("t", "h", at(0)),
        TaskProgress::Missing("t-r2".to_owned())
    );
    assert_eq!(Attempts::of(&objects, "team-a", "t").older().count(), 0);
}

#[test]
fn a_task_with_another_spec_is_anothers() {
    let objects = of(vec![("t", task(PipelineTaskState::Running))]);
    assert_eq!(
        Attempts::of(&objects, "team-a", "t").progress("t", "other", at(0)),
        TaskProgress::Taken
    );
    assert_eq!(
        Attempts::of(&objects, "team-b", "t").progress("t", "h", at(0)),
        TaskProgress::Missing("t".to_owned())
    );
}

#[test]
fn a_chart_that_fails_is_tried_again_and_what_is_there_stays() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.settle("edge");
    world.component_version("a", "2.0.0");
    world.step("edge");
    world.fail(false);
    let failed = world.step("edge");
    assert_eq!(
        (world.ready("edge").0.as_str(), failed.look_again),
        ("ReleaseFailed", Some(at(60)))
    );
    assert_eq!(world.bundled("edge"), ["a 1.0.0"]);
    world.now = 60;
    let again = world.step("edge");
    assert!(
        again.new_tasks[0].name.ends_with("-r2"),
        "{}",
        again.new_tasks[0].name
    );
    world.settle("edge");
    assert_eq!(
        (world.ready("edge").0.as_str(), world.bundled("edge")),
        ("Ready", vec!["a 2.0.0".to_owned()])
    );
    world.component_version("a", "3.0.0");
    world.step("edge");
    world.fail(true);
    let status = world.step("edge").status;
    let stalled = status.conditions.iter().find(|c| c.type_ == "Stalled");
    assert_eq!(stalled.map(|c| c.reason.as_str()), Some("ReleaseFailed"));
}
