//! Statuses of tasks that failed.

use super::*;

#[test]
#[rustfmt::skip]
fn a_failure_is_failed_and_says_who_and_why() {
    use termination::TerminationReason::{BadConfig, RegistryUnreachable, TagConflict, Unauthorized};
    let render = |reason| Some(note(Termination::failed(termination::TerminationPhase::Render, reason)));
    let push = |reason| Some(note(Termination::failed(termination::TerminationPhase::Push, reason)));
    let silent = Some(PodTermination { message: None, exit_code: Some(137), ..note(Termination::rendered()) });
    let table = [
        (render(BadConfig), false, Reason::JobFailed, FailurePhase::Render),
        (push(Unauthorized), false, Reason::JobFailed, FailurePhase::Push),
        (push(TagConflict), false, Reason::TagConflict, FailurePhase::Push),
        (push(TagConflict), true, Reason::TagConflict, FailurePhase::Push),
        (push(RegistryUnreachable), true, Reason::DeadlineExceeded, FailurePhase::Push),
        (silent, false, Reason::JobFailed, FailurePhase::Pod),
        (None, true, Reason::DeadlineExceeded, FailurePhase::Pod),
        (None, false, Reason::JobFailed, FailurePhase::Pod),
    ];
    for (note, deadline, reason, phase) in table {
        let before = running(at(9));
        let verdict = report(JobProgress::Failed(at(20), deadline));
        let task = with(&before, failed(&before, &verdict, at(20), deadline, note.as_ref(), at(21)));
        assert_eq!(condition(&task, JobFailed), Some(("True", reason)));
        assert_eq!(condition(&task, Ready), Some(("False", reason)));
        assert_eq!(condition(&task, Stalled), Some(("True", reason)));
        assert_eq!((kstatus(&task), task.phase()), ("Failed", TaskPhase::Failed));
        let failure = task.status.failure.unwrap();
        assert_eq!((failure.phase, failure.exit_code), (phase, note.and_then(|n| n.exit_code)));
        assert!(!failure.message.is_empty());
    }
}

#[test]
fn a_failure_is_never_explained_with_a_success() {
    // The deadline can end a Job whose pod has just pushed; and a foreign renderer can claim anything.
    let digest = crate::api::oci::Digest::of(b"chart");
    for message in [Termination::pushed(digest), Termination::rendered()] {
        let sentence = message.reason.sentence();
        let verdict = report(JobProgress::Failed(at(20), true));
        let status = failed(
            &running(at(9)),
            &verdict,
            at(20),
            true,
            Some(&note(message)),
            at(21),
        );
        let failure = status.failure.unwrap();
        assert_ne!(failure.message, sentence);
    }
}

#[test]
fn a_lost_job_is_a_failure() {
    let task = with(&running(at(9)), lost(&running(at(9)), at(30)));
    assert_eq!(condition(&task, JobFailed), Some(("True", Reason::JobLost)));
    assert_eq!((kstatus(&task), task.phase()), ("Failed", TaskPhase::Failed));
    assert_eq!(task.status.completion_time.unwrap().0, at(30));
}

/// Holds: B4.
#[test]
fn a_failure_says_that_its_job_is_kept_for_less_time_than_the_task_asks_for() {
    let reported = "; failedJobTTL is larger than the platform's maximum of 86400 seconds, which counts";
    let with_ttl = |ttl| super::super::task_of(super::super::spec_with(json!({"failedJobTTL": ttl})));
    for (ttl, is_reported) in [(86_400, false), (86_401, true)] {
        let task = with_ttl(ttl);
        let before = failed(&task, &report(JobProgress::Running), at(20), false, None, at(21));
        let mut status = before.clone();
        mention_shorter_ttl(&mut status, &task, KEPT_AT_MOST);
        for (after, before) in status.conditions.iter().zip(&before.conditions) {
            let is_own = is_reported && after.type_ != JobScheduled.as_str();
            assert_eq!(
                after.message,
                format!("{}{}", before.message, if is_own { reported } else { "" })
            );
        }
        let mut running = scheduled(&task, started(), at(9));
        mention_shorter_ttl(&mut running, &task, KEPT_AT_MOST);
        assert!(
            running
                .conditions
                .iter()
                .all(|c| !c.message.contains("failedJobTTL"))
        );
    }
}

#[test]
fn one_second_is_no_seconds() {
    let task = super::super::task_of(super::super::spec_with(json!({"failedJobTTL": 60})));
    for (longest, reported) in [(1, " 1 second, "), (2, " 2 seconds, ")] {
        let mut status = failed(&task, &report(JobProgress::Running), at(20), false, None, at(21));
        mention_shorter_ttl(&mut status, &task, SignedDuration::from_secs(longest));
        let condition = status.conditions.iter().find(|c| c.type_ == JobFailed.as_str());
        let message = &condition.unwrap().message;
        assert!(message.contains(reported), "{message}");
    }
}
