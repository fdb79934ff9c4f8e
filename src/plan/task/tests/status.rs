//! Statuses as people, `kubectl wait` and kstatus read them.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{at, condition, task};
use crate::api::conditions::ConditionType::{self, JobFailed, JobScheduled, JobSucceeded, Ready, Stalled};
use crate::api::conditions::Reason;
use crate::api::names::TaskUid;
use crate::api::termination::{self, Termination};
use crate::api::{FailurePhase, RenderTaskStatus};
use crate::plan::task::job_state::{JobProgress, ObservedJob, PodKillReason, PodTermination};
use crate::plan::task::model::{Task, TaskPhase};
use crate::plan::task::refusal::Refusal;
use crate::plan::task::retention::KEPT_AT_MOST;
use crate::plan::task::status::{
    StartedJob, failed, lost, mention_shorter_ttl, refused, scheduled, succeeded,
};

mod failures;

const ALL: [ConditionType; 5] = [JobScheduled, JobSucceeded, JobFailed, Ready, Stalled];

fn report(verdict: JobProgress) -> ObservedJob {
    ObservedJob {
        uid: "j1".to_owned(),
        spec_hash: task().decoded.spec_hash.clone(),
        chart_url: None,
        progress: verdict,
        attempts: 2,
        created: Some(at(1)),
    }
}

fn note(message: Termination) -> PodTermination {
    PodTermination {
        pod_uid: "p1".to_owned(),
        created: at(2),
        succeeded: message.reason.is_success(),
        exit_code: Some(i32::from(!message.reason.is_success())),
        message: Some(message),
        stop: None,
    }
}

fn started() -> StartedJob {
    StartedJob {
        cluster: None,
        namespace: "rendering".to_owned(),
        name: crate::api::names::job_name("shop", &TaskUid::new("u")),
        job_uid: "j1".to_owned(),
        secret_uid: Some("s1".to_owned()),
        chart_url: Some("oci://registry.test/team-a/shop:1.0.0".to_owned()),
        since: at(9),
    }
}

/// The task with another status.
fn with(task: &Task, status: RenderTaskStatus) -> Task {
    Task {
        status,
        ..task.clone()
    }
}

fn running(now: Timestamp) -> Task {
    with(&task(), scheduled(&task(), started(), now))
}

/// What kstatus makes of an object: <https://github.com/kubernetes-sigs/cli-utils/tree/master/pkg/kstatus>.
fn kstatus(task: &Task) -> &'static str {
    let is = |type_, status: &str| condition(task, type_).is_some_and(|(s, _)| s == status);
    if task.status.observed_generation != Some(task.generation) {
        "InProgress"
    } else if is(Stalled, "True") {
        "Failed"
    } else if is(Ready, "True") {
        "Current"
    } else {
        "InProgress"
    }
}

#[test]
fn a_running_task_is_in_progress() {
    let task = running(at(9));
    assert_eq!(
        condition(&task, JobScheduled),
        Some(("True", Reason::JobScheduled))
    );
    assert_eq!(condition(&task, Ready), Some(("False", Reason::JobScheduled)));
    assert_eq!(
        (condition(&task, Stalled), kstatus(&task), task.phase()),
        (None, "InProgress", TaskPhase::Running)
    );
    let job = task.status.job_ref.unwrap();
    assert_eq!(
        (job.kind.as_str(), job.namespace.as_str(), job.uid.as_deref()),
        ("Job", "rendering", Some("j1"))
    );
    let secret = task.status.config_secret_ref.unwrap();
    assert_eq!((secret.name, secret.uid.as_deref()), (job.name, Some("s1")));
    assert_eq!(task.status.start_time.unwrap().0, at(9));
}

#[test]
fn a_success_is_current_and_carries_the_digest() {
    let digest = crate::api::oci::Digest::of(b"chart");
    for message in [
        Termination::pushed(digest.clone()),
        Termination::already_exists(digest.clone()),
    ] {
        let before = running(at(9));
        let status = succeeded(
            &before,
            &report(JobProgress::Complete(at(20))),
            at(20),
            Some(&note(message)),
            at(21),
        );
        let task = with(&before, status);
        assert_eq!(
            condition(&task, JobSucceeded),
            Some(("True", Reason::JobSucceeded))
        );
        assert_eq!(condition(&task, Ready), Some(("True", Reason::JobSucceeded)));
        assert_eq!((kstatus(&task), task.phase()), ("Current", TaskPhase::Succeeded));
        assert_eq!(task.status.digest.as_deref(), Some(digest.as_str()));
        assert_eq!(
            (task.status.attempts, task.status.completion_time.unwrap().0),
            (Some(2), at(20))
        );
        assert_eq!(task.status.start_time.unwrap().0, at(9), "the start stays");
    }
}

#[test]
fn a_success_without_a_termination_message_has_no_digest() {
    let status = succeeded(
        &running(at(9)),
        &report(JobProgress::Complete(at(20))),
        at(20),
        None,
        at(21),
    );
    assert_eq!(status.digest, None);
}

#[test]
#[rustfmt::skip]
fn what_stopped_a_pod_without_a_message_is_reported() {
    let silent = |stop| PodTermination { message: None, exit_code: Some(137), stop, ..note(Termination::rendered()) };
    let spoke = PodTermination { stop: Some(PodKillReason::Evicted), ..note(Termination::failed(termination::TerminationPhase::Render, termination::TerminationReason::BadConfig)) };
    let table = [
        (silent(Some(PodKillReason::OutOfMemory)), "the renderer used more memory than its limit"),
        (silent(Some(PodKillReason::Evicted)), "the pod was evicted from its node, as when it uses more disk than its limit"),
        (silent(None), "the renderer's pod ended without saying why, as when it was killed or its image is not a renderer; ask the platform operator to look at the pod"),
        (spoke, "the configuration cannot be parsed or rendered"),
    ];
    let page = include_str!("../../../../docs/reasons/failures.md");
    for (note, said) in table {
        let before = running(at(9));
        let status = failed(&before, &report(JobProgress::Failed(at(30), false)), at(30), false, Some(&note), at(31));
        assert_eq!(status.failure.unwrap().message, said);
        assert!(page.contains(&format!("> {said}\n")), "{said}");
    }
}

#[test]
fn a_refusal_is_failed_only_where_no_event_can_help() {
    for reason in Reason::ALL {
        let status = refused(&task(), &Refusal::new(*reason, "why"), at(1));
        let task = with(&task(), status);
        assert_eq!(condition(&task, JobScheduled), Some(("False", *reason)));
        assert_eq!(condition(&task, Ready), Some(("False", *reason)));
        let expected = if reason.is_stalled() {
            "Failed"
        } else {
            "InProgress"
        };
        assert_eq!(
            (kstatus(&task), task.phase()),
            (expected, TaskPhase::Pending),
            "{reason}"
        );
    }
}

#[test]
fn a_mended_task_is_no_longer_stalled() {
    let stuck = with(
        &task(),
        refused(&task(), &Refusal::new(Reason::NameConflict, "why"), at(1)),
    );
    let waiting = with(
        &stuck,
        refused(&stuck, &Refusal::new(Reason::PushSecretNotFound, "why"), at(2)),
    );
    assert_eq!(
        (condition(&waiting, Stalled), kstatus(&waiting)),
        (None, "InProgress")
    );
    let started = with(&stuck, scheduled(&stuck, started(), at(3)));
    assert_eq!(
        (condition(&started, Stalled), kstatus(&started)),
        (None, "InProgress")
    );
}

#[test]
fn a_transition_time_moves_with_the_status_alone() {
    let since = |task: &Task, type_: ConditionType| {
        let found = task
            .status
            .conditions
            .iter()
            .find(|c| c.type_ == type_.as_str())
            .unwrap();
        found.last_transition_time.0
    };
    let missing = with(
        &task(),
        refused(&task(), &Refusal::new(Reason::PushSecretNotFound, "a"), at(1)),
    );
    let invalid = with(
        &missing,
        refused(&missing, &Refusal::new(Reason::PushSecretInvalid, "b"), at(2)),
    );
    assert_eq!(
        (since(&invalid, JobScheduled), since(&invalid, Ready)),
        (at(1), at(1)),
        "still False"
    );
    let runs = with(&invalid, scheduled(&invalid, started(), at(3)));
    assert_eq!((since(&runs, JobScheduled), since(&runs, Ready)), (at(3), at(1)));
    let done = with(
        &runs,
        succeeded(&runs, &report(JobProgress::Complete(at(4))), at(4), None, at(5)),
    );
    assert_eq!((since(&done, JobScheduled), since(&done, Ready)), (at(3), at(5)));
}

#[test]
fn success_and_failure_exclude_each_other_whatever_stood_there() {
    let complete = report(JobProgress::Complete(at(20)));
    let gone = report(JobProgress::Failed(at(20), false));
    let good = with(
        &running(at(9)),
        succeeded(&running(at(9)), &complete, at(20), None, at(21)),
    );
    let bad = with(&good, failed(&good, &gone, at(22), false, None, at(23)));
    assert_eq!(
        (condition(&bad, JobSucceeded), bad.phase()),
        (None, TaskPhase::Failed)
    );
    let again = with(&bad, succeeded(&bad, &complete, at(24), None, at(25)));
    assert_eq!(
        (condition(&again, JobFailed), condition(&again, Stalled)),
        (None, None)
    );
    assert_eq!(again.phase(), TaskPhase::Succeeded);
}

#[test]
fn no_condition_type_comes_twice_and_all_speak_of_this_generation() {
    let mut task = running(at(9));
    for step in 0..4 {
        let status = if step % 2 == 0 {
            refused(&task, &Refusal::new(Reason::SpecMutated, "why"), at(step))
        } else {
            failed(
                &task,
                &report(JobProgress::Failed(at(20), false)),
                at(20),
                false,
                None,
                at(step),
            )
        };
        task = with(&task, status);
        for type_ in ALL {
            let count = task
                .status
                .conditions
                .iter()
                .filter(|c| c.type_ == type_.as_str())
                .count();
            assert!(count <= 1, "{type_:?}");
        }
        assert!(
            task.status
                .conditions
                .iter()
                .all(|c| c.observed_generation == Some(1))
        );
    }
}

#[test]
fn a_status_reads_back_as_the_phase_it_was_written_for() {
    let statuses = [
        (running(at(9)).status, TaskPhase::Running),
        (lost(&running(at(9)), at(10)), TaskPhase::Failed),
        (RenderTaskStatus::default(), TaskPhase::Pending),
    ];
    for (status, phase) in statuses {
        let stored = serde_json::to_value(&status).unwrap();
        assert_eq!(
            with(&task(), serde_json::from_value(stored).unwrap()).phase(),
            phase
        );
    }
}

#[test]
fn of_a_status_that_cannot_be_decoded_what_ended_stays_ended() {
    let stored = |status: RenderTaskStatus, digest: serde_json::Value| {
        let mut status = serde_json::to_value(status).unwrap();
        status["digest"] = digest;
        read(status)
    };
    let newer = json!({"algorithm": "sha1024"});
    let runs = stored(running(at(9)).status, newer.clone());
    assert_eq!(
        (runs.phase(), runs.status.job_ref.is_some()),
        (TaskPhase::Running, true)
    );
    let over = stored(lost(&running(at(9)), at(30)), newer);
    assert_eq!(
        (over.phase(), over.failure_cleanup_due(KEPT_AT_MOST)),
        (TaskPhase::Failed, at(30)),
        "of a Job that was lost nothing is kept"
    );
    let garbage = json!({"conditions": "none of your business", "jobRef": 7});
    assert_eq!(read(garbage).phase(), TaskPhase::Pending);
}

/// The task as it is read with this status.
fn read(status: serde_json::Value) -> Task {
    let meta = json!({"name": "shop", "namespace": "team-a", "uid": "u"});
    let meta = serde_json::from_value(meta).unwrap();
    Task::new(
        crate::api::names::TaskKind::RenderTask,
        &meta,
        super::spec(),
        status,
    )
    .unwrap()
}
