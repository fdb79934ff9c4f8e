//! Statuses that another writer wrote.

use super::*;

/// Shows a task with any status.
fn show(index: &mut TaskIndex, version: u64, status: Value) -> TaskEventKind {
    index.see_task(&all(), task(TASK, version, spec(10), status), &key())
}

fn sealed(status: Value) -> Value {
    let typed = key().sealed(&uid(), serde_json::from_value(status).unwrap()).0;
    serde_json::to_value(typed).unwrap()
}

fn running() -> Value {
    json!({"jobRef": {"apiVersion": "batch/v1", "kind": "Job", "namespace": "r", "name": "j"}})
}

fn take(index: &mut TaskIndex, changes: StatusUpdate, now: Instant) {
    index.take_status(&uid(), changes, now);
}

const READ_FORGED: StatusUpdate = StatusUpdate {
    is_forged: Some(true),
    was_written: false,
    was_restored: false,
    in_doubt: false,
};
const RESTORED: StatusUpdate = StatusUpdate {
    is_forged: Some(false),
    was_written: true,
    was_restored: true,
    in_doubt: false,
};

/// Holds: T1.
#[test]
fn a_forged_end_of_a_new_task_is_no_end() {
    for forged in [ended("JobSucceeded"), ended("JobFailed"), running()] {
        let mut index = TaskIndex::default();
        assert_eq!(show(&mut index, 7, forged), TaskEventKind::Forged);
        assert_eq!(phases(&index), [("pending", 1)]);
        let view = view(&index, Instant::now());
        assert!(view.is_forged && view.may_restore);
        assert_eq!(view.task.unwrap().status, RenderTaskStatus::default());
    }
}

/// Holds: T1.
#[test]
fn the_last_status_of_the_hub_withstands_everything_that_is_written_later() {
    let last = sealed(ended("JobSucceeded"));
    let older = sealed(running());
    let mut changed = last.clone();
    changed["digest"] = json!(format!("sha256:{:064}", 1));
    let mut more = last.clone();
    more["unknown"] = json!(1);
    for forged in [Value::Null, json!({}), changed, more, older, ended("JobFailed")] {
        let mut index = knowing(7, Value::Null);
        index.changed_task(Arc::new(task(TASK, 8, spec(10), last.clone())));
        assert_eq!(
            show(&mut index, 9, forged.clone()),
            TaskEventKind::Forged,
            "{forged}"
        );
        assert_eq!(phases(&index), [("succeeded", 1)], "{forged}");
        let (said, status) = view(&index, Instant::now()).last_written.unwrap();
        assert_eq!(
            key().sealed(&uid(), status).0,
            serde_json::from_value(last.clone()).unwrap()
        );
        assert!(key().is_genuine(&task(TASK, 9, spec(10), last.clone()), Some(said)));
        // The same status again, as the hub puts it back or another event shows it, is right.
        assert_eq!(show(&mut index, 10, last.clone()), TaskEventKind::Changed);
        let later = at(100_000);
        assert!(!index.view(&uid(), later, Instant::now()).0.unwrap().is_forged);
    }
}

/// While a task is kept whole that has its last status; then it is compressed.
#[test]
fn the_last_status_of_a_task_that_runs_withstands_a_forgery_too() {
    let mut index = knowing(7, Value::Null);
    index.changed_task(Arc::new(task(TASK, 8, spec(10), sealed(running()))));
    let said: RenderTaskStatus = serde_json::from_value(running()).unwrap();
    for (version, forged) in [(9, ended("JobSucceeded")), (10, json!({})), (11, Value::Null)] {
        assert_eq!(show(&mut index, version, forged), TaskEventKind::Forged);
        let view = view(&index, Instant::now());
        assert!(view.is_forged && view.last_written.is_none());
        assert_eq!(view.task.unwrap().status, said);
    }
    index.forget_spec(&uid());
    let read = || view(&index, Instant::now()).last_written.unwrap();
    assert_eq!(read().1, said);
    assert!(key().is_genuine(&task(TASK, 12, spec(10), running()), Some(read().0)));
    assert_eq!(show(&mut index, 12, json!({})), TaskEventKind::Forged);
    assert_eq!(view(&index, Instant::now()).task.unwrap().status, said);
}

#[test]
fn a_write_without_an_answer_may_be_seen_and_a_forgery_may_not() {
    let in_doubt = StatusUpdate {
        in_doubt: true,
        ..StatusUpdate::default()
    };
    let mut index = knowing(7, Value::Null);
    take(&mut index, in_doubt, Instant::now());
    assert_eq!(show(&mut index, 8, ended("JobSucceeded")), TaskEventKind::Forged);
    assert_eq!(phases(&index), [("pending", 1)]);
    assert_eq!(show(&mut index, 9, sealed(running())), TaskEventKind::Changed);
    assert_eq!(phases(&index), [("running", 1)]);
    assert_eq!(
        show(&mut index, 10, sealed(ended("JobFailed"))),
        TaskEventKind::Forged,
        "the doubt is over"
    );
    take(&mut index, in_doubt, Instant::now());
    take(&mut index, RESTORED, Instant::now());
    assert_eq!(
        show(&mut index, 11, sealed(ended("JobFailed"))),
        TaskEventKind::Forged,
        "so it is by an answer"
    );
}

/// Holds: D2.
#[test]
fn a_status_is_put_right_at_once_and_then_once_a_second() {
    let mut index = knowing(7, sealed(ended("JobSucceeded")));
    let now = Instant::now();
    assert!(index.view(&uid(), at(1_000), now).0.is_none(), "nothing to do");
    show(&mut index, 8, Value::Null);
    assert_eq!(index.restore_due(&uid(), now), Some(now));
    assert!(view(&index, now).may_restore);
    take(&mut index, RESTORED, now);
    assert_eq!(index.restore_due(&uid(), now), None);
    show(&mut index, 10, Value::Null);
    let second = now + Duration::from_secs(1);
    let almost = second.checked_sub(Duration::from_millis(1)).unwrap();
    assert_eq!(index.restore_due(&uid(), almost), Some(second));
    assert!(index.view(&uid(), at(1_000), almost).0.is_none());
    assert!(view(&index, second).is_forged && view(&index, second).may_restore);
    // The same where the event is late and a read found it.
    take(&mut index, RESTORED, now);
    take(&mut index, READ_FORGED, now);
    assert_eq!(index.restore_due(&uid(), now), Some(second));
}

#[test]
fn a_task_without_anything_said_of_it_is_no_forgery() {
    for status in [Value::Null, json!({})] {
        let mut index = knowing(7, Value::Null);
        assert_eq!(show(&mut index, 8, status), TaskEventKind::Changed);
        assert_eq!(index.restore_due(&uid(), Instant::now()), None);
    }
}
