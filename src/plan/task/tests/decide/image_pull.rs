use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::plan::pull_secrets::copy::PullSecretFault;
use crate::plan::pull_secrets::named::NamedPullSecret;
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

/// Holds: S1.
#[test]
fn a_task_names_the_secrets_of_its_class_and_on_a_tenants_own_cluster_none() {
    let missing = NamedPullSecret {
        name: "pull".to_owned(),
        copy: Err(PullSecretFault::Missing),
        is_by_hand: false,
    };
    let failing = |situation: Situation| {
        let task = written(&situation.with(|s| {
            s.catalog.fallback.spec.image = "registry.example.com/renderer".to_owned();
            s.catalog.fallback.pull_secrets = vec![missing.clone()];
            (s.pull, s.now) = (FAILING, at(200));
        }));
        let conditions = task.status.conditions.into_iter();
        let mut ready = conditions.filter(|condition| condition.type_ == "Ready");
        ready.next().map(|condition| condition.message).unwrap()
    };
    let remotely = |situation| remote::seen(remote::running(situation), remote::JOB, false);
    for (situation, words) in [
        (running(120), "with pull (does not exist, neither"),
        (
            remotely(remote::to_east()),
            "with pull (does not exist in the hub's release namespace;",
        ),
        (remotely(remote::to_own()), "without a Secret of the platform's"),
    ] {
        let is_own = words.starts_with("without");
        let said = failing(situation);
        assert!(
            said.contains(&format!("from registry.example.com {words}")),
            "{said}"
        );
        assert_eq!(said.contains("with pull"), !is_own, "{said}");
    }
}
