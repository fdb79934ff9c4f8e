//! What Jobs and pods say, read the way a hostile server could write it.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Pod;
use serde_json::{Value, json};

use super::at;
use crate::api::termination::{TerminationPhase, TerminationReason};
use crate::plan::task::job_state::{
    JobProgress, ObservedJob, PodKillReason, PodTermination, read_job, read_pod,
};

fn job(status: &Value) -> ObservedJob {
    let job: Job = serde_json::from_value(json!({
        "metadata": {"uid": "j1", "annotations": {"renderhub.dev/spec-hash": "abc"}},
        "status": status,
    }))
    .unwrap();
    read_job(&job.metadata, &job.status.unwrap_or_default()).unwrap()
}

fn held(type_: &str, status: &str) -> Value {
    json!({"type": type_, "status": status, "lastTransitionTime": at(5).to_string()})
}

fn failed_for(reason: &str) -> Value {
    let mut condition = held("Failed", "True");
    condition["reason"] = json!(reason);
    condition
}

#[test]
fn the_verdict_is_in_the_conditions() {
    let table = [
        (json!([]), JobProgress::Running),
        (json!([held("Complete", "True")]), JobProgress::Complete(at(5))),
        (json!([held("Failed", "True")]), JobProgress::Failed(at(5), false)),
        (
            json!([failed_for("BackoffLimitExceeded")]),
            JobProgress::Failed(at(5), false),
        ),
        (
            json!([failed_for("DeadlineExceeded")]),
            JobProgress::Failed(at(5), true),
        ),
        (
            json!([held("Complete", "False"), held("Failed", "Unknown")]),
            JobProgress::Running,
        ),
        (
            json!([held("Suspended", "True"), held("FailureTarget", "True")]),
            JobProgress::Running,
        ),
        (json!([held("SuccessCriteriaMet", "True")]), JobProgress::Running),
        // No server should say both; a failure that is claimed is not turned into a success.
        (
            json!([held("Complete", "True"), held("Failed", "True")]),
            JobProgress::Failed(at(5), false),
        ),
    ];
    for (conditions, verdict) in table {
        assert_eq!(
            job(&json!({"conditions": conditions})).progress,
            verdict,
            "{conditions}"
        );
    }
}

#[test]
fn counters_are_counted_and_decide_nothing() {
    let table = [
        (json!({"failed": 1, "active": 1}), 1),
        (json!({"failed": 3}), 3),
        (json!({"succeeded": 1}), 1),
        (json!({"succeeded": 1, "failed": 2}), 3),
        (json!({"succeeded": -7, "failed": i32::MIN}), 0),
        (json!({"succeeded": i32::MAX, "failed": i32::MAX}), 2_000),
        (json!({"completionTime": at(9).to_string()}), 0),
    ];
    for (status, attempts) in table {
        let report = job(&status);
        assert_eq!(
            (report.progress, report.attempts),
            (JobProgress::Running, attempts),
            "{status}"
        );
    }
}

#[test]
fn a_job_without_a_status_runs_and_one_without_a_uid_is_none() {
    let read = |value: Value| {
        let job: Job = serde_json::from_value(value).unwrap();
        read_job(&job.metadata, &job.status.unwrap_or_default())
    };
    let bare = read(json!({"metadata": {"uid": "j1"}})).unwrap();
    assert_eq!(
        (bare.progress, bare.spec_hash.as_str()),
        (JobProgress::Running, "")
    );
    assert_eq!(read(json!({"metadata": {"name": "x"}})), None);
}

fn terminated(name: &str, exit_code: i64, message: &str) -> Value {
    json!({
        "name": name, "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
        "state": {"terminated": {"exitCode": exit_code, "message": message}},
    })
}

fn pod(phase: &str, init: &Value, main: &Value) -> Option<PodTermination> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"uid": "p1", "creationTimestamp": at(3).to_string()},
        "status": {"phase": phase, "initContainerStatuses": init, "containerStatuses": main},
    }))
    .unwrap();
    read_pod(&pod)
}

const RENDERED: &str = r#"{"phase":"Render","reason":"Rendered"}"#;
const BAD_CONFIG: &str = r#"{"phase":"Render","reason":"BadConfig"}"#;
const DENIED: &str = r#"{"phase":"Push","reason":"Unauthorized"}"#;

fn pushed() -> String {
    format!(
        r#"{{"phase":"Push","reason":"Pushed","digest":"sha256:{}"}}"#,
        "a".repeat(64)
    )
}

#[test]
#[rustfmt::skip]
fn the_container_that_failed_speaks_else_the_one_that_pushes() {
    let render = |code, message: &str| json!([terminated("render", code, message)]);
    let push = |code, message: &str| json!([terminated("renderer", code, message)]);
    let waiting = json!([{"name": "renderer", "image": "i", "imageID": "i", "ready": false, "restartCount": 0,
        "state": {"waiting": {"reason": "PodInitializing"}}}]);
    let said = |phase, reason| Some((phase, reason));
    let (nothing, denied) = (json!([]), said(TerminationPhase::Push, TerminationReason::Unauthorized));
    let table = [
        ("Succeeded", render(0, RENDERED), push(0, &pushed()), Some(0), said(TerminationPhase::Push, TerminationReason::Pushed)),
        ("Failed", render(2, BAD_CONFIG), waiting.clone(), Some(2), said(TerminationPhase::Render, TerminationReason::BadConfig)),
        ("Failed", render(0, RENDERED), push(1, DENIED), Some(1), denied),
        ("Failed", render(0, RENDERED), push(137, ""), Some(137), None),
        ("Failed", render(0, RENDERED), waiting, None, None),
        ("Failed", nothing.clone(), nothing.clone(), None, None),
        ("Failed", nothing, push(1, DENIED), Some(1), denied),
    ];
    for (phase, init, main, code, message) in table {
        let note = pod(phase, &init, &main).unwrap();
        assert_eq!(note.exit_code, code, "{init} {main}");
        assert_eq!(note.message.map(|m| (m.phase, m.reason)), message, "{init} {main}");
        assert_eq!((note.succeeded, note.created), (phase == "Succeeded", at(3)));
    }
}

#[test]
fn what_the_node_says_of_an_end_is_read_and_nothing_else() {
    let read = |reason: &str, of_pod: &str| {
        let mut container = terminated("render", 137, "");
        container["state"]["terminated"]["reason"] = json!(reason);
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "p1"},
            "status": {"phase": "Failed", "reason": of_pod, "message": "hunter2", "initContainerStatuses": [container]},
        }))
        .unwrap();
        read_pod(&pod).unwrap().stop
    };
    assert_eq!(read("OOMKilled", ""), Some(PodKillReason::OutOfMemory));
    assert_eq!(read("Error", "Evicted"), Some(PodKillReason::Evicted));
    for other in ["Error", "", "oomkilled", "OOMKilled: hunter2"] {
        assert_eq!(read(other, other), None, "{other}");
    }
}

#[test]
fn a_pod_that_did_not_end_says_nothing() {
    for phase in ["Pending", "Running", "Unknown", "", "succeeded", "Completed"] {
        assert_eq!(
            pod(phase, &json!([]), &json!([terminated("renderer", 0, &pushed())])),
            None,
            "{phase}"
        );
    }
    assert_eq!(read_pod(&Pod::default()), None);
}

/// Holds: E4.
#[test]
fn unknown_words_and_numbers_are_dropped() {
    let long = format!("{DENIED}{}", " ".repeat(5_000));
    let hostile = [
        "error: login failed for user admin with password hunter2",
        r#"{"phase":"Push","reason":"Unauthorized","message":"hunter2"}"#,
        r#"{"phase":"Push","reason":"Hacked"}"#,
        r#"{"phase":"Push","reason":"Unauthorized"}{"phase":"Push","reason":"Pushed"}"#,
        r#"{"phase":"Push","reason":"Pushed","digest":"sha256:../../etc"}"#,
        &long,
        "\u{0}",
    ];
    for message in hostile {
        let note = pod("Failed", &json!([]), &json!([terminated("renderer", 1, message)])).unwrap();
        assert_eq!((note.exit_code, note.message), (Some(1), None), "{message}");
    }
    for code in [i64::from(i32::MIN), -1, 1, i64::from(i32::MAX)] {
        let note = pod("Failed", &json!([]), &json!([terminated("x", code, DENIED)])).unwrap();
        assert_eq!(note.exit_code.map(i64::from), Some(code));
    }
}

#[test]
fn of_several_pods_that_failed_a_watch_may_not_have_shown_the_last() {
    let table = [
        (JobProgress::Complete(at(3)), 1, true, true),
        (JobProgress::Complete(at(3)), 2, true, true),
        (JobProgress::Complete(at(3)), 2, false, false),
        (JobProgress::Failed(at(3), false), 1, false, true),
        (JobProgress::Failed(at(3), false), 2, false, false),
        (JobProgress::Failed(at(3), true), 1, true, false),
        (JobProgress::Running, 1, false, false),
    ];
    for (progress, attempts, succeeded, is_told) in table {
        let job = ObservedJob {
            progress,
            attempts,
            ..job(&json!({}))
        };
        let pod = PodTermination {
            pod_uid: "p1".to_owned(),
            created: at(2),
            succeeded,
            exit_code: None,
            message: None,
            stop: None,
        };
        assert_eq!(
            job.is_told_by(&pod),
            is_told,
            "{progress:?} {attempts} {succeeded}"
        );
    }
}
