//! What a log says of each step: its name, and why it is the next one.

use super::ended::ended;
use super::remote::to_east;
use super::*;
use crate::plan::task::StepReason;

/// Asserts the name and the cause of the next step of each situation.
fn check_causes(table: Vec<(Situation, &'static str, &'static str)>) {
    for (line, (situation, step, why)) in table.into_iter().enumerate() {
        let said = situation.ask(|o| {
            let step = decide(o);
            (step.as_str(), StepReason::of(o, &step).as_str())
        });
        assert_eq!(said, (step, why), "line {line}");
    }
}

fn left(situation: Situation) -> Situation {
    situation.with(|s| s.secret = Some("s1"))
}

#[test]
#[rustfmt::skip]
fn each_step_of_a_task_that_is_not_over_is_logged_with_its_cause() {
    let runs = |job: JobState| Situation::of(running()).with(|s| s.job = job);
    let wrong = || Situation::of(task_of(spec_with(json!({"repository": "team-b/shop"}))));
    let refused = || Situation::of(written(&wrong()));
    let down = SiteState::down(Reason::Unreachable);
    check_causes(vec![
        (fresh().with(|s| s.task.finalizers = FinalizerSummary::default()), "AddFinalizer", "Start"),
        (fresh(), "Create", "Start"),
        (fresh().with(|s| s.has_slot = false), "Rest", "NoSlot"),
        (fresh().with(|s| s.is_forged = true), "RestoreStatus", "StatusForged"),
        (wrong(), "WriteStatus", "RepositoryNotAllowed"),
        (refused(), "Rest", "Nothing"),
        (left(refused()), "DeleteSecret", "Refused"),
        (to_east().with(|s| s.site = None), "Rest", "WaitsForCluster"),
        (to_east().with(|s| s.site = Some(down)), "WriteStatus", "WaitingForCluster"),
        (runs(JobState::Absent), "ReadJob", "JobNotSeen"),
        (runs(seen(&running(), true)), "ReadJob", "JobMayHaveEnded"),
        (runs(seen(&running(), false)), "LookAtPods", "JobIsSlow"),
        (runs(JobState::Gone), "WriteStatus", "JobLost"),
    ]);
}

#[test]
#[rustfmt::skip]
fn each_step_of_a_task_that_is_over_is_logged_with_its_cause() {
    let done = |changes| Situation::of(ended(JobProgress::Complete(at(50)), changes));
    let failed = || left(Situation::of(ended(JobProgress::Failed(at(50), false), json!({}))));
    let gone = || fresh().with(|s| s.task.deleting = true);
    check_causes(vec![
        (done(json!({})), "Rest", "Nothing"),
        (left(done(json!({}))), "DeleteSecret", "Succeeded"),
        (done(json!({"ttlSecondsAfterFinished": 600})), "Rest", "NotYet"),
        (done(json!({"ttlSecondsAfterFinished": 0})), "DeleteTask", "TtlExpired"),
        (done(json!({})).with(|s| s.removal = RemovalState::Surplus), "DeleteTask", "TooManyFinished"),
        (failed().with(|s| s.now = at(90_000)), "DeleteSecret", "FailureExpired"),
        (failed().with(|s| s.removal = RemovalState::Crowded), "DeleteSecret", "FailuresCrowded"),
        (left(gone()), "DeleteSecret", "Deleted"),
        (gone(), "RemoveFinalizer", "Deleted"),
    ]);
}
