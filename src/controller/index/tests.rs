//! What is remembered, when lists are incomplete, events come late, and tasks are many.

use serde_json::{Value, json};

use super::*;
use crate::names::TaskKind;

const TASK: &str = "11111111-2222-4333-8444-555555555555";

fn uid() -> TaskUid {
    TaskUid::new(TASK)
}

fn all() -> Scope {
    Scope {
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
fn knowing(version: u64, status: Value) -> Index {
    let mut index = Index::default();
    assert!(index.see_task(&all(), task(TASK, version, spec(10), status)));
    index
}

fn job(uid: &str, hint: EndHint) -> JobMark {
    JobMark {
        task: TaskUid::new(TASK),
        name: "render-shop".to_owned(),
        uid: uid.to_owned(),
        spec_hash: "hash".to_owned(),
        chart_url: None,
        hint,
    }
}

fn view(index: &Index, now: Instant) -> View {
    index.view(&uid(), at(1_000), now).0.expect("something to do")
}

fn phases(index: &Index) -> Vec<(&'static str, usize)> {
    index.phases().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_late_event_is_no_news_and_changes_nothing() {
    let mut index = knowing(7, ended("JobSucceeded"));
    for version in [1, 6, 7] {
        assert!(
            !index.see_task(&all(), task(TASK, version, spec(10), Value::Null)),
            "{version}"
        );
    }
    assert_eq!(phases(&index), [("succeeded", 1)]);
    assert!(index.see_task(&all(), task(TASK, 8, spec(10), ended("JobFailed"))));
    assert_eq!(phases(&index), [("failed", 1)]);
}

#[test]
fn the_hubs_own_write_counts_before_its_event_and_outranks_older_ones() {
    let mut index = knowing(7, Value::Null);
    index.changed_task(Arc::new(task(TASK, 9, spec(10), ended("JobSucceeded"))));
    assert_eq!(phases(&index), [("succeeded", 1)]);
    assert!(
        !index.see_task(&all(), task(TASK, 8, spec(10), Value::Null)),
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
    index.see_task(&all(), task("other", 7, spec(10), Value::Null));
    index.restart(Some(&all()));
    assert_eq!(index.vanished_tasks(&all()).len(), 2, "nothing was shown yet");
    assert!(
        !index.see_task(&all(), task(TASK, 7, spec(10), Value::Null)),
        "no news, but there"
    );
    assert_eq!(index.vanished_tasks(&all()), [TaskUid::new("other")]);
}

#[test]
fn a_list_of_one_scope_says_nothing_about_another() {
    let one = |name: &str| Scope {
        kind: TaskKind::RenderTask,
        namespace: Some(name.into()),
    };
    let mut index = Index::default();
    index.see_task(&one("team-a"), task(TASK, 7, spec(10), Value::Null));
    index.restart(Some(&one("team-b")));
    assert_eq!(index.vanished_tasks(&one("team-b")), []);
    index.restart(Some(&one("team-a")));
    assert_eq!(index.vanished_tasks(&one("team-a")), [uid()]);
}

#[test]
fn jobs_that_a_list_does_not_show_are_gone() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    index.see_job(job("j1", EndHint::No), now);
    index.restart(None);
    assert_eq!(index.vanished_jobs(), [uid()]);
    index.see_job(job("j1", EndHint::No), now);
    assert_eq!(index.vanished_jobs(), []);
    index.restart(None);
    index.keep_job(job("j2", EndHint::No), now);
    assert_eq!(index.vanished_jobs(), [uid()], "of another Job nothing was shown");
}

#[test]
fn a_job_is_looked_at_when_it_is_new_and_when_it_may_have_ended() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    assert_eq!(index.see_job(job("j1", EndHint::No), now), Some(now), "new");
    assert_eq!(index.see_job(job("j1", EndHint::No), now), Some(now + QUIET));
    assert_eq!(index.see_job(job("j1", EndHint::Soon), now), Some(now + SOON));
    assert_eq!(index.see_job(job("j1", EndHint::Now), now), Some(now));
    assert_eq!(index.see_job(job("j2", EndHint::No), now), Some(now), "another");
    let may_have_ended = |index: &Index, now| {
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
    index.see_job(job("j2", EndHint::Now), now);
    assert!(may_have_ended(&index, now));
}

#[test]
fn a_job_whose_end_could_not_be_recorded_stays_due() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    index.see_job(job("j1", EndHint::Now), now);
    index.keep_job(job("j1", EndHint::Now), now);
    assert_eq!(index.read_due(&uid()), Some(now));
}

#[test]
fn a_job_that_was_read_in_vain_is_read_again_later_not_in_a_loop() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    for (hint, pause) in [
        (EndHint::Now, LINGER),
        (EndHint::Soon, LINGER),
        (EndHint::No, QUIET),
    ] {
        index.forget_job(&uid());
        let seen = index.see_job(job("j1", hint), now).unwrap();
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

#[test]
fn late_events_of_a_cleared_job_are_ignored_and_those_of_another_are_not() {
    let (mut index, now) = (knowing(7, ended("JobSucceeded")), Instant::now());
    index.see_job(job("j1", EndHint::Now), now);
    index.clear_job(&uid(), "j1");
    assert_eq!(index.see_job(job("j1", EndHint::Now), now), None);
    assert!(!index.has_job(&uid()));
    index.see_task(&all(), task(TASK, 8, spec(10), ended("JobSucceeded")));
    assert_eq!(
        index.see_job(job("j1", EndHint::Now), now),
        None,
        "an event of the task does not undo it"
    );
    assert_eq!(index.see_job(job("j2", EndHint::Now), now), Some(now));
    assert!(index.has_job(&uid()));
}

#[test]
fn a_finished_task_with_nothing_left_costs_no_pass_and_no_memory_of_its_spec() {
    for type_ in ["JobSucceeded", "JobFailed"] {
        let index = knowing(7, ended(type_));
        let removal = at(200 + 9_000);
        assert!(
            matches!(index.view(&uid(), at(1_000), Instant::now()), (None, Some(due)) if due == removal),
            "{type_}"
        );
        assert_eq!(index.spec_bytes, 0);
        let (due, _) = index.view(&uid(), removal, Instant::now());
        assert!(due.expect("its own time is over").task.is_none());
    }
}

#[test]
fn leftovers_of_a_success_are_work_at_once_and_those_of_a_failure_when_their_time_is_over() {
    let now = Instant::now();
    let left = |type_: &str, secret: bool| {
        let mut index = knowing(7, ended(type_));
        if secret {
            index.keep_secret(&uid(), "s1");
        } else {
            index.see_job(job("j1", EndHint::Now), now);
        }
        index
    };
    let kept_until = at(200 + 3_600);
    for secret in [true, false] {
        assert!(
            left("JobSucceeded", secret)
                .view(&uid(), at(200), now)
                .0
                .is_some()
        );
        let failed = left("JobFailed", secret);
        assert!(matches!(failed.view(&uid(), at(1_000), now), (None, Some(due)) if due == kept_until));
        assert!(failed.view(&uid(), kept_until, now).0.is_some());
    }
}

#[test]
fn a_deletion_is_work_whatever_the_phase() {
    for status in [Value::Null, ended("JobSucceeded"), ended("JobFailed")] {
        let mut deleting = task(TASK, 7, spec(10), status);
        deleting.deleting = true;
        let mut index = Index::default();
        index.see_task(&all(), deleting);
        assert!(view(&index, Instant::now()).task.is_some());
    }
    assert!(
        Index::default().view(&uid(), at(0), Instant::now()).0.is_none(),
        "a task nobody knows is none"
    );
}

#[test]
fn specs_beyond_the_budget_are_read_when_their_turn_comes() {
    let mut index = Index::default();
    let megabyte = 1 << 20;
    for n in 0..40 {
        index.see_task(&all(), task(&format!("u{n:02}"), 7, spec(megabyte), Value::Null));
    }
    let kept = |index: &Index| index.tasks().filter(|(_, r)| r.whole.is_some()).count();
    assert!(
        index.spec_bytes <= SPEC_BUDGET && kept(&index) == 31,
        "{}",
        kept(&index)
    );
    for n in 0..10 {
        index.see_task(
            &all(),
            task(&format!("u{n:02}"), 8, spec(megabyte), ended("JobSucceeded")),
        );
    }
    assert_eq!(kept(&index), 21, "finished tasks make room");
    index.see_task(&all(), task("u39", 8, spec(megabyte), Value::Null));
    assert_eq!(kept(&index), 22);
}

#[test]
fn the_budget_is_given_back_in_every_way_that_a_spec_is_dropped() {
    let ways: [fn(&mut Index); 4] = [
        |index| index.forget_spec(&uid()),
        |index| _ = index.forget_task(&uid()),
        |index| _ = index.see_task(&all(), task(TASK, 8, spec(10), ended("JobFailed"))),
        |index| {
            index.forget_spec(&uid());
            index.changed_task(Arc::new(task(TASK, 8, spec(10), Value::Null)));
            index.forget_spec(&uid());
            index.forget_spec(&uid());
        },
    ];
    for (line, drop) in ways.into_iter().enumerate() {
        let mut index = knowing(7, Value::Null);
        assert!(index.spec_bytes > 0);
        drop(&mut index);
        assert_eq!(index.spec_bytes, 0, "way {line}");
    }
}

#[test]
fn phases_are_counted_through_every_change() {
    let mut index = knowing(7, Value::Null);
    assert_eq!(phases(&index), [("pending", 1)]);
    let running = json!({"jobRef": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "r", "name": "j"}});
    index.see_task(&all(), task(TASK, 8, spec(10), running));
    index.see_task(&all(), task("other", 8, spec(10), Value::Null));
    assert_eq!(phases(&index), [("pending", 1), ("running", 1)]);
    index.see_task(&all(), task(TASK, 9, spec(10), ended("JobFailed")));
    index.forget_task(&TaskUid::new("other"));
    assert_eq!(phases(&index), [("failed", 1)]);
    assert_eq!(
        index.phases().count(),
        4,
        "phases without a task are shown as zero"
    );
}

#[test]
fn what_holds_a_task_is_believed_for_a_while_then_tried_again() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    let held = Some(Held::NameConflict);
    let retry = index.hold(&uid(), held, now).unwrap();
    assert_eq!(view(&index, now).held, held);
    let later = now + HELD_RETRY / 2;
    assert_eq!(
        index.hold(&uid(), held, later),
        Some(retry),
        "a pass in between does not put it off"
    );
    assert_eq!(view(&index, retry).held, None, "it is tried again");
    assert!(index.hold(&uid(), held, retry).unwrap() > retry);
    assert_eq!(view(&index, retry).held, held);
    assert_eq!(index.hold(&uid(), None, retry), None);
    assert_eq!(view(&index, retry).held, None);
}

#[test]
fn a_wait_is_told_only_after_a_while() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    assert!(!view(&index, now).has_waited);
    index.task_mut(&uid()).unwrap().waits_since = Some(now);
    index.see_task(&all(), task(TASK, 8, spec(10), Value::Null));
    assert!(!view(&index, now + QUEUED_AFTER / 2).has_waited);
    assert!(
        view(&index, now + QUEUED_AFTER).has_waited,
        "an event of the task does not start the wait anew"
    );
}

#[test]
fn secrets_of_tasks_that_do_not_exist_are_forgotten() {
    let mut index = knowing(7, Value::Null);
    index.keep_secret(&uid(), "s1");
    index.keep_secret(&TaskUid::new("gone"), "s2");
    index.prune_secrets();
    assert_eq!(
        (index.secrets.len(), view(&index, Instant::now()).secret),
        (1, Some("s1".to_owned()))
    );
    index.forget_secret(&uid());
    assert_eq!(view(&index, Instant::now()).secret, None);
}

#[test]
fn a_quota_is_tried_again_sooner_than_a_conflict() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    let quota = index.hold(&uid(), Some(Held::NotAdmitted), now).unwrap();
    let conflict = index.hold(&uid(), Some(Held::NameConflict), now).unwrap();
    assert_eq!(
        (quota, conflict),
        (now + QUOTA_RETRY, now + HELD_RETRY),
        "another cause counts anew"
    );
    assert!(quota < conflict);
}

#[test]
fn a_late_list_does_not_bring_a_cleared_secret_back() {
    for (status, is_late) in [
        (Value::Null, false),
        (ended("JobSucceeded"), true),
        (ended("JobFailed"), true),
    ] {
        let mut index = knowing(7, status);
        index.keep_secret(&uid(), "s1");
        index.forget_secret(&uid());
        assert_eq!(index.is_secret_cleared(&uid()), is_late);
        index.see_task(&all(), task(TASK, 8, spec(10), ended("JobSucceeded")));
        assert_eq!(
            index.is_secret_cleared(&uid()),
            is_late,
            "an event of the task does not undo it"
        );
    }
    assert!(!Index::default().is_secret_cleared(&uid()));
}
