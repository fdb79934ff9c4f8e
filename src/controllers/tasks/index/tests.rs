//! What is remembered, when lists are incomplete, events come late, and tasks are many.

use serde_json::{Value, json};

use super::super::outcome::StatusUpdate;
use super::super::task_record::{HELD_RETRY, QUOTA_RETRY};
use super::jobs::{LINGER, QUIET, SOON};
use super::*;
use crate::api::names::{TaskKind, job_name};
use crate::kubernetes::watch::JobMetadata;
use crate::plan::task::job_state::CompletionHint;
use crate::plan::task::status_seal::SealKey;

mod forgotten;
mod places;
mod statuses;
mod work;

const TASK: &str = "11111111-2222-4333-8444-555555555555";

fn uid() -> TaskUid {
    TaskUid::new(TASK)
}

fn all() -> TaskWatchScope {
    TaskWatchScope {
        kind: TaskKind::RenderTask,
        namespace: None,
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// A task as the watch shows it at a resource version.
fn task(uid: &str, version: u64, spec: Value, status: Value) -> Task {
    let meta = json!({
        "name": "shop", "namespace": "team-a", "uid": uid, "generation": 1,
        "resourceVersion": version.to_string(), "creationTimestamp": at(100).to_string(),
    });
    Task::new(
        TaskKind::RenderTask,
        &serde_json::from_value(meta).unwrap(),
        spec,
        status,
    )
    .unwrap()
}

fn spec(bytes: usize) -> Value {
    json!({
        "config": {"type": "slides", "deck": "x".repeat(bytes)},
        "repository": "team-a/shop", "tag": "1", "registryRef": {"name": "main"}, "ttlSecondsAfterFinished": 9_000,
    })
}

fn ended(type_: &str) -> Value {
    let condition = json!({
        "type": type_, "status": "True", "reason": type_, "message": "", "lastTransitionTime": at(200).to_string(),
    });
    json!({"conditions": [condition], "completionTime": at(200).to_string()})
}

/// An index that has seen one task in this state.
fn knowing(version: u64, status: Value) -> TaskIndex {
    let mut index = TaskIndex::default();
    assert!(see(&mut index, task(TASK, version, spec(10), status)));
    index
}

/// A key that is older than every task.
fn key() -> SealKey {
    SealKey::new([7; 32], at(0))
}

/// Shows a task with a status that the hub wrote; returns whether its state is new.
fn see(index: &mut TaskIndex, task: Task) -> bool {
    see_in(index, &all(), task)
}

fn see_in(index: &mut TaskIndex, scope: &TaskWatchScope, mut task: Task) -> bool {
    let lost_answer = StatusUpdate {
        in_doubt: true,
        ..StatusUpdate::default()
    };
    index.take_status(&task.id.uid, lost_answer, Instant::now());
    task.set_status(key().sealed(&task.id.uid, task.status.clone()).0);
    let sight = index.see_task(scope, task, &key());
    assert_ne!(sight, TaskEventKind::Forged);
    sight == TaskEventKind::Changed
}

fn job(uid: &str, hint: CompletionHint) -> JobMetadata {
    JobMetadata {
        task: TaskUid::new(TASK),
        name: job_name("shop", &TaskUid::new(TASK)),
        uid: uid.to_owned(),
        spec_hash: "hash".to_owned(),
        chart_url: None,
        hint,
        ended: None,
    }
}

fn view(index: &TaskIndex, now: Instant) -> TaskView {
    index.view(&uid(), at(1_000), now).0.expect("something to do")
}

fn phases(index: &TaskIndex) -> Vec<(&'static str, usize)> {
    index.phases().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_late_event_changes_nothing() {
    let mut index = knowing(7, ended("JobSucceeded"));
    for version in [1, 6, 7] {
        assert!(
            !see(&mut index, task(TASK, version, spec(10), Value::Null)),
            "{version}"
        );
    }
    assert_eq!(phases(&index), [("succeeded", 1)]);
    assert!(see(&mut index, task(TASK, 8, spec(10), ended("JobFailed"))));
    assert_eq!(phases(&index), [("failed", 1)]);
}

#[test]
fn the_hubs_own_write_counts_before_its_event_and_outranks_older_ones() {
    let mut index = knowing(7, Value::Null);
    index.changed_task(Arc::new(task(TASK, 9, spec(10), ended("JobSucceeded"))));
    assert_eq!(phases(&index), [("succeeded", 1)]);
    assert!(
        !see(&mut index, task(TASK, 8, spec(10), Value::Null)),
        "sent before the write"
    );
    index.changed_task(Arc::new(task(TASK, 8, spec(10), Value::Null)));
    assert_eq!(phases(&index), [("succeeded", 1)]);
}

#[test]
fn a_write_to_a_task_that_is_gone_does_not_bring_it_back() {
    let mut index = knowing(7, Value::Null);
    assert!(index.forget_task(&uid()).is_some());
    index.changed_task(Arc::new(task(TASK, 9, spec(10), Value::Null)));
    assert!(index.task(&uid()).is_none() && phases(&index).is_empty());
    assert!(index.forget_task(&uid()).is_none());
}

#[test]
fn a_list_drops_what_it_does_not_show() {
    let mut index = knowing(7, Value::Null);
    see(&mut index, task("other", 7, spec(10), Value::Null));
    index.restart(&all());
    assert_eq!(index.vanished_tasks(&all()).len(), 2, "nothing was shown yet");
    assert!(
        !see(&mut index, task(TASK, 7, spec(10), Value::Null)),
        "no news, but there"
    );
    assert_eq!(index.vanished_tasks(&all()), [TaskUid::new("other")]);
}

#[test]
fn a_list_of_one_scope_says_nothing_about_another() {
    let one = |name: &str| TaskWatchScope {
        kind: TaskKind::RenderTask,
        namespace: Some(name.into()),
    };
    let mut index = TaskIndex::default();
    see_in(&mut index, &one("team-a"), task(TASK, 7, spec(10), Value::Null));
    index.restart(&one("team-b"));
    assert_eq!(index.vanished_tasks(&one("team-b")), []);
    index.restart(&one("team-a"));
    assert_eq!(index.vanished_tasks(&one("team-a")), [uid()]);
}

#[test]
fn jobs_that_a_list_does_not_show_are_gone() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    index.see_job(&None, job("j1", CompletionHint::No), now);
    index.restart_jobs(&None);
    assert_eq!(index.vanished_jobs(&None), [uid()]);
    index.see_job(&None, job("j1", CompletionHint::No), now);
    assert_eq!(index.vanished_jobs(&None), []);
    index.restart_jobs(&None);
    index.keep_job(job("j2", CompletionHint::No), now);
    assert_eq!(
        index.vanished_jobs(&None),
        [uid()],
        "of another Job nothing was shown"
    );
}

#[test]
fn a_job_is_looked_at_when_it_is_new_and_when_it_may_have_ended() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    assert_eq!(
        index.see_job(&None, job("j1", CompletionHint::No), now),
        Some(now),
        "new"
    );
    assert_eq!(
        index.see_job(&None, job("j1", CompletionHint::No), now),
        Some(now + QUIET)
    );
    assert_eq!(
        index.see_job(&None, job("j1", CompletionHint::Soon), now),
        Some(now + SOON)
    );
    assert_eq!(
        index.see_job(&None, job("j1", CompletionHint::Now), now),
        Some(now)
    );
    assert_eq!(
        index.see_job(&None, job("j2", CompletionHint::No), now),
        Some(now),
        "another"
    );
    let may_have_ended = |index: &TaskIndex, now| {
        matches!(
            view(index, now).job,
            JobState::Seen {
                may_have_ended: true,
                ..
            }
        )
    };
    assert!(!may_have_ended(&index, now));
    assert!(
        may_have_ended(&index, now + QUIET),
        "a quiet Job is looked at in the end"
    );
    index.see_job(&None, job("j2", CompletionHint::Now), now);
    assert!(may_have_ended(&index, now));
}

#[test]
fn a_job_whose_end_could_not_be_recorded_stays_due() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    index.see_job(&None, job("j1", CompletionHint::Now), now);
    index.keep_job(job("j1", CompletionHint::Now), now);
    assert_eq!(index.read_due(&uid()), Some(now));
}

#[test]
fn a_job_that_was_read_in_vain_is_read_again_later_not_in_a_loop() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    for (hint, pause) in [
        (CompletionHint::Now, LINGER),
        (CompletionHint::Soon, LINGER),
        (CompletionHint::No, QUIET),
    ] {
        index.forget_job(&uid());
        let seen = index.see_job(&None, job("j1", hint), now).unwrap();
        let read_at = seen.max(now) + QUIET;
        index.keep_job(job("j1", hint), read_at);
        assert!(
            index.read_due(&uid()) <= Some(read_at),
            "after a failed pass, at once: {hint:?}"
        );
        index.keep_read_job(job("j1", hint), read_at);
        assert_eq!(index.read_due(&uid()), Some(read_at + pause), "{hint:?}");
    }
}

/// As where a Job made from another spec has the task's name, of which the end says nothing.
#[test]
fn a_job_that_a_reconcile_had_no_need_to_read_is_looked_at_again_later_not_in_a_loop() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    index.see_job(&None, job("j1", CompletionHint::Now), now);
    index.put_off_read(&uid(), now);
    assert_eq!(index.read_due(&uid()), Some(now + LINGER));
    // An event that came while the reconcile went on is newer than what it saw.
    let later = now + LINGER;
    index.see_job(&None, job("j1", CompletionHint::Now), later);
    index.put_off_read(&uid(), now);
    assert_eq!(index.read_due(&uid()), Some(later));
}

/// A worker that creates a copy of a Job in the rendering namespace gives it the labels of the task.
#[test]
fn a_copy_of_a_job_under_another_name_is_not_the_tasks() {
    let copy = || JobMetadata {
        name: format!(
            "render-debug-{}",
            job("j1", CompletionHint::No).name.rsplit('-').next().unwrap()
        ),
        ..job("j2", CompletionHint::Now)
    };
    let now = Instant::now();
    let mut index = knowing(7, Value::Null);
    index.see_job(&None, job("j1", CompletionHint::No), now);
    assert_eq!(index.see_job(&None, copy(), now), None);
    assert_eq!(view(&index, now).job.uid(), Some("j1"));
    // Nor where the copy was seen before the task.
    let mut index = TaskIndex::default();
    index.see_job(&None, copy(), now);
    see(&mut index, task(TASK, 7, spec(10), Value::Null));
    assert!(!index.has_job(&uid()));
}

#[test]
fn late_events_of_a_cleared_job_are_ignored_and_those_of_another_are_not() {
    let (mut index, now) = (knowing(7, ended("JobSucceeded")), Instant::now());
    index.see_job(&None, job("j1", CompletionHint::Now), now);
    index.clear_job(&uid(), "j1");
    assert_eq!(index.see_job(&None, job("j1", CompletionHint::Now), now), None);
    assert!(!index.has_job(&uid()));
    see(&mut index, task(TASK, 8, spec(10), ended("JobSucceeded")));
    assert_eq!(
        index.see_job(&None, job("j1", CompletionHint::Now), now),
        None,
        "an event of the task does not undo it"
    );
    assert_eq!(
        index.see_job(&None, job("j2", CompletionHint::Now), now),
        Some(now)
    );
    assert!(index.has_job(&uid()));
}
