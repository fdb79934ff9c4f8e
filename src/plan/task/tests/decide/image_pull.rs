use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::plan::pull_secrets::pull_failure::PullFailure;

const FAILING: ObservedPull = ObservedPull::Failing(PullFailure {
    container: "render",
    word: "ImagePullBackOff",
    uncopied: Vec::new(),
});

/// A task whose Job was made at second 100, at another time.
fn running(second: i64) -> Situation {
    let started = fresh().with(|s| s.job = seen(&s.task, false));
    let task = written(&started);
    let job = started.job;
    Situation::of(task).with(|s| (s.job, s.now) = (job, at(second)))
}

#[test]
fn a_job_that_takes_longer_than_most_is_looked_at_again_and_again() {
    let looked = |second: i64, pull| running(second).with(|s| s.pull = pull);
    check(vec![
        (running(101), "rest until 120"),
        (running(119), "rest until 120"),
        (running(120), "look at pods"),
        (looked(120, ObservedPull::Pulled), "rest until 140"),
        (looked(180, ObservedPull::Pulled), "rest until 260"),
        (looked(1_000, ObservedPull::Pulled), "rest until 1300"),
        (looked(120, FAILING), "write Running ImagePullFailed"),
    ]);
}

#[test]
fn what_is_said_of_an_image_is_said_once_and_taken_back() {
    let failing = running(120).with(|s| s.pull = FAILING);
    let task = written(&failing);
    let again = |pull| {
        let task = task.clone();
        running(140).with(|s| (s.task, s.pull) = (task, pull))
    };
    check(vec![
        (again(FAILING), "rest until 180"),
        (again(ObservedPull::Pulled), "write Running JobScheduled"),
    ]);
    let ready = super::super::condition(&task, crate::api::conditions::ConditionType::JobScheduled);
    assert_eq!(ready, Some(("True", Reason::JobScheduled)), "the Job is there");
    assert!(
        task.status
            .start_time
            .as_ref()
            .is_some_and(|start| start.0 < Timestamp::MAX)
    );
}
