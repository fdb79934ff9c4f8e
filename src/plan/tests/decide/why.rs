//! What a log says of each step: its name, and why it is the next one.

use super::abroad::to_east;
use super::*;
use crate::plan::Why;

fn told(situation: &Situation) -> (&'static str, &'static str) {
    situation.ask(|o| {
        let step = decide(o);
        (step.as_str(), Why::of(o, &step).as_str())
    })
}

#[test]
fn each_step_is_told_with_its_cause() {
    let runs = |job: JobState| Situation::of(running()).with(|s| s.job = job);
    let done = |changes| Situation::of(ended(Verdict::Complete(at(50)), changes));
    let failed = || Situation::of(ended(Verdict::Failed(at(50), false), json!({})));
    let left = |situation: Situation| situation.with(|s| s.secret = Some("s1"));
    let gone = |situation: Situation| situation.with(|s| s.task.deleting = true);
    let refused = || {
        let wrong = Situation::of(task_of(spec_with(json!({"repository": "team-b/shop"}))));
        (written(&wrong), wrong)
    };
    let down = SiteState::Down {
        since: at(0),
        reason: Reason::Unreachable,
    };
    let table = [
        (
            fresh().with(|s| s.task.finalizers = Finalizers::default()),
            ("AddFinalizer", "Start"),
        ),
        (fresh(), ("Create", "Start")),
        (fresh().with(|s| s.has_slot = false), ("Rest", "NoSlot")),
        (refused().1, ("WriteStatus", "RepositoryNotAllowed")),
        (Situation::of(refused().0), ("Rest", "Nothing")),
        (left(Situation::of(refused().0)), ("DeleteSecret", "Refused")),
        (to_east().with(|s| s.site = None), ("Rest", "WaitsForCluster")),
        (
            to_east().with(|s| s.site = Some(down)),
            ("WriteStatus", "WaitingForCluster"),
        ),
        (runs(JobState::Absent), ("ReadJob", "JobNotSeen")),
        (runs(seen(&running(), true)), ("ReadJob", "JobMayHaveEnded")),
        (runs(seen(&running(), false)), ("Rest", "Nothing")),
        (runs(JobState::Gone), ("WriteStatus", "JobLost")),
        (done(json!({})), ("Rest", "Nothing")),
        (left(done(json!({}))), ("DeleteSecret", "Succeeded")),
        (done(json!({"ttlSecondsAfterFinished": 600})), ("Rest", "NotYet")),
        (
            done(json!({"ttlSecondsAfterFinished": 0})),
            ("DeleteTask", "TtlExpired"),
        ),
        (
            done(json!({})).with(|s| s.removal = Removal::Surplus),
            ("DeleteTask", "TooManyFinished"),
        ),
        (
            left(failed()).with(|s| s.now = at(90_000)),
            ("DeleteSecret", "FailureExpired"),
        ),
        (
            left(failed()).with(|s| s.removal = Removal::Crowded),
            ("DeleteSecret", "FailuresCrowded"),
        ),
        (left(gone(fresh())), ("DeleteSecret", "Deleted")),
        (gone(fresh()), ("RemoveFinalizer", "Deleted")),
        (
            fresh().with(|s| s.is_forged = true),
            ("RestoreStatus", "StatusForged"),
        ),
    ];
    for (line, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(told(&situation), expected, "line {line}");
    }
}
