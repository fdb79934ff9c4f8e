//! What is work, what it costs in memory, and what is forgotten.

use super::*;

#[test]
fn a_finished_task_with_nothing_left_costs_no_pass_and_no_memory_of_its_spec() {
    for type_ in ["JobSucceeded", "JobFailed"] {
        let index = knowing(7, ended(type_));
        let removal = at(200 + 9_000);
        assert!(
            matches!(index.view(&uid(), at(1_000), Instant::now()), (None, Some(due)) if due == removal),
            "{type_}"
        );
        assert_eq!(index.kept_bytes, 0);
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
            index.see_job(&None, job("j1", CompletionHint::Now), now);
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
        let mut index = TaskIndex::default();
        see(&mut index, deleting);
        assert!(view(&index, Instant::now()).task.is_some());
    }
    assert!(
        TaskIndex::default()
            .view(&uid(), at(0), Instant::now())
            .0
            .is_none(),
        "a task that the index does not know is none"
    );
}

#[test]
fn specs_beyond_the_budget_are_read_when_their_turn_comes() {
    let mut index = TaskIndex::default();
    let megabyte = 1 << 20;
    for n in 0..40 {
        see(
            &mut index,
            task(&format!("u{n:02}"), 7, spec(megabyte), Value::Null),
        );
    }
    let kept = |index: &TaskIndex| index.tasks().filter(|(_, r)| r.whole.is_some()).count();
    assert!(
        index.kept_bytes <= KEPT_BUDGET && kept(&index) == 31,
        "{}",
        kept(&index)
    );
    for n in 0..10 {
        see(
            &mut index,
            task(&format!("u{n:02}"), 8, spec(megabyte), ended("JobSucceeded")),
        );
    }
    assert_eq!(kept(&index), 21, "finished tasks make room");
    see(&mut index, task("u39", 8, spec(megabyte), Value::Null));
    assert_eq!(kept(&index), 22);
}

#[test]
fn the_budget_is_given_back_in_every_way_that_a_spec_is_dropped() {
    let ways: [fn(&mut TaskIndex); 4] = [
        |index| index.forget_spec(&uid()),
        |index| _ = index.forget_task(&uid()),
        |index| _ = see(index, task(TASK, 8, spec(10), ended("JobFailed"))),
        |index| {
            index.forget_spec(&uid());
            index.changed_task(Arc::new(task(TASK, 8, spec(10), Value::Null)));
            index.forget_spec(&uid());
            index.forget_spec(&uid());
        },
    ];
    for (line, drop) in ways.into_iter().enumerate() {
        let mut index = knowing(7, Value::Null);
        assert!(index.kept_bytes > 0);
        drop(&mut index);
        assert_eq!(index.kept_bytes, 0, "way {line}");
    }
}

#[test]
fn phases_are_counted_through_every_change() {
    let mut index = knowing(7, Value::Null);
    assert_eq!(phases(&index), [("pending", 1)]);
    let running = json!({"jobRef": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "r", "name": "j"}});
    see(&mut index, task(TASK, 8, spec(10), running));
    see(&mut index, task("other", 8, spec(10), Value::Null));
    assert_eq!(phases(&index), [("pending", 1), ("running", 1)]);
    see(&mut index, task(TASK, 9, spec(10), ended("JobFailed")));
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
    let held = Some(CreateBlocked::NameConflict);
    let retry = index.set_create_blocked(&uid(), held, None, now).unwrap();
    assert_eq!(view(&index, now).create_blocked, held);
    let later = now + HELD_RETRY / 2;
    assert_eq!(
        index.set_create_blocked(&uid(), held, None, later),
        Some(retry),
        "a pass in between does not put it off"
    );
    assert_eq!(view(&index, retry).create_blocked, None, "it is tried again");
    assert!(index.set_create_blocked(&uid(), held, None, retry).unwrap() > retry);
    assert_eq!(view(&index, retry).create_blocked, held);
    assert_eq!(index.set_create_blocked(&uid(), None, None, retry), None);
    assert_eq!(view(&index, retry).create_blocked, None);
}

#[test]
fn a_wait_is_reported_only_after_a_while() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    assert!(!view(&index, now).has_waited);
    index.task_mut(&uid()).unwrap().waits_since = Some(now);
    see(&mut index, task(TASK, 8, spec(10), Value::Null));
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
    let quota = index
        .set_create_blocked(&uid(), Some(CreateBlocked::NotAdmitted), None, now)
        .unwrap();
    let conflict = index
        .set_create_blocked(&uid(), Some(CreateBlocked::NameConflict), None, now)
        .unwrap();
    assert_eq!(
        (quota, conflict),
        (now + QUOTA_RETRY, now + HELD_RETRY),
        "another cause counts anew"
    );
    assert!(quota < conflict);
}

#[test]
fn a_refused_job_is_tried_again_when_the_plan_says() {
    let (mut index, now) = (knowing(7, Value::Null), Instant::now());
    let (held, soon) = (Some(CreateBlocked::JobRefused), now + Duration::from_secs(5));
    assert_eq!(
        index.set_create_blocked(&uid(), held, Some(soon), now),
        Some(soon)
    );
    assert_eq!(
        (
            view(&index, now).create_blocked,
            view(&index, soon).create_blocked
        ),
        (held, None)
    );
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
        see(&mut index, task(TASK, 8, spec(10), ended("JobSucceeded")));
        assert_eq!(
            index.is_secret_cleared(&uid()),
            is_late,
            "an event of the task does not undo it"
        );
    }
    assert!(!TaskIndex::default().is_secret_cleared(&uid()));
}
