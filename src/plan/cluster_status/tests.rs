//! What is said of a cluster, and when.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn facts(standing: Standing) -> Facts<'static> {
    Facts {
        generation: 1,
        standing,
        is_suspended: false,
        recreated: &[],
        version: None,
        last_probe: None,
        active_jobs: 0,
    }
}

fn down(attempts: u32, next: i64) -> Standing {
    Standing::Down {
        reason: Reason::Unreachable,
        attempts,
        next: at(next),
    }
}

/// The status after these facts, one after the other at these seconds.
fn after(steps: &[(i64, Facts<'_>)]) -> RenderClusterStatus {
    let mut status = RenderClusterStatus::default();
    for (second, facts) in steps {
        status = next(&status, facts, at(*second));
    }
    status
}

fn told(status: &RenderClusterStatus) -> (String, String, String) {
    let found = connected(status).unwrap().clone();
    (found.status, found.reason, found.message)
}

#[test]
fn each_standing_has_its_words() {
    let flaw = Fault::Flaw(Flaw {
        reason: Reason::InsecureKubeconfig,
        message: "it names a command",
    });
    let table = [
        (Standing::Up, "True", "Connected"),
        (Standing::Connecting, "False", "Connecting"),
        (Standing::Nowhere(Fault::Missing), "False", "KubeconfigNotFound"),
        (Standing::Nowhere(flaw), "False", "InsecureKubeconfig"),
        (Standing::Nowhere(undecodable()), "False", "InvalidSpec"),
        (down(1, 5), "False", "Unreachable"),
    ];
    for (standing, status, reason) in table {
        let (found, why, message) = told(&after(&[(0, facts(standing.clone()))]));
        assert_eq!((found.as_str(), why.as_str()), (status, reason), "{standing:?}");
        assert_eq!(
            message.contains("connection attempts"),
            reason == "Unreachable",
            "{message}"
        );
    }
    let mut words: Vec<_> = Reason::ALL.iter().map(|reason| why(*reason)).collect();
    words.sort_unstable();
    words.dedup();
    assert_eq!(
        words.len(),
        7,
        "each reason that a connection fails for has its own"
    );
}

#[test]
fn while_down_the_next_attempt_is_the_last_thing_said() {
    let status = after(&[(0, facts(down(4, 125)))]);
    let (_, _, message) = told(&status);
    let ending = "; connection attempts: 4, next connection attempt: 2023-11-14T22:15:25Z";
    assert!(message.ends_with(ending), "{message}");
    assert!(message.contains("docs/reasons/Unreachable.md;"), "{message}");
    assert_eq!(status.connection_attempts, Some(4));
    assert_eq!(status.next_connection_attempt, Some(Time(at(125))));
    let up = next(&status, &facts(Standing::Up), at(130));
    assert_eq!((up.connection_attempts, up.next_connection_attempt), (None, None));
}

#[test]
fn a_hub_that_starts_again_has_nothing_to_say_until_it_knows() {
    for before in [Standing::Up, down(7, 300), Standing::Nowhere(Fault::Missing)] {
        let known = Facts {
            version: Some("1.36"),
            last_probe: Some(at(0)),
            ..facts(before)
        };
        let status = after(&[(0, known.clone())]);
        assert_eq!(next(&status, &facts(Standing::Connecting), at(60)), status);
        // It finds what was so before.
        let again = Facts {
            last_probe: known.last_probe.map(|_| at(60)),
            ..known
        };
        let found = next(&status, &again, at(60));
        assert_eq!((&found, due(&status, &found, None, at(60))), (&status, None));
    }
    let changed = Facts {
        generation: 2,
        ..facts(Standing::Connecting)
    };
    let status = after(&[(0, facts(Standing::Up)), (60, changed)]);
    assert_eq!(told(&status).1, "Connecting", "it may be another cluster now");
}

#[test]
fn the_last_answer_is_told_with_something_else_or_when_it_is_old() {
    let probed = |second: i64, active_jobs: usize| Facts {
        last_probe: Some(at(second)),
        active_jobs,
        ..facts(Standing::Up)
    };
    let seen = |steps: &[(i64, Facts<'_>)]| after(steps).last_probe_time.unwrap().0;
    assert_eq!(seen(&[(0, probed(0, 0))]), at(0));
    assert_eq!(seen(&[(0, probed(0, 0)), (599, probed(599, 0))]), at(0));
    assert_eq!(seen(&[(0, probed(0, 0)), (600, probed(600, 0))]), at(600));
    assert_eq!(seen(&[(0, probed(0, 0)), (9, probed(9, 1))]), at(9));
    // The hub started again and has heard nothing yet.
    assert_eq!(seen(&[(0, probed(0, 0)), (9, facts(down(1, 5)))]), at(0));
}

#[test]
fn a_change_of_the_condition_is_written_at_once_and_another_may_wait() {
    let up = after(&[(0, facts(Standing::Up))]);
    let busy = next(
        &up,
        &Facts {
            active_jobs: 3,
            ..facts(Standing::Up)
        },
        at(20),
    );
    let first = after(&[(0, facts(down(1, 5)))]);
    let second = next(&first, &facts(down(2, 15)), at(20));
    let lost = next(&up, &facts(down(1, 5)), at(20));
    let newer = next(
        &up,
        &Facts {
            generation: 2,
            ..facts(Standing::Up)
        },
        at(20),
    );
    let table = [
        ("nothing", &up, &up, None, None),
        ("jobs", &up, &busy, Some(18), Some(28)),
        ("jobs, quiet before", &up, &busy, Some(3), Some(20)),
        ("jobs, first write", &up, &busy, None, Some(20)),
        ("attempts", &first, &second, Some(18), Some(28)),
        ("lost", &up, &lost, Some(18), Some(20)),
        ("generation", &up, &newer, Some(18), Some(20)),
    ];
    for (name, old, next, written, expected) in table {
        let found = due(old, next, written.map(at), at(20));
        assert_eq!(found, expected.map(at), "{name}");
    }
}

#[test]
fn the_condition_mentions_what_keeps_tasks_from_it() {
    let recreated = ["team-a".to_owned()];
    let status = after(&[(
        0,
        Facts {
            is_suspended: true,
            recreated: &recreated,
            ..facts(down(2, 30))
        },
    )]);
    let (_, _, message) = told(&status);
    assert!(
        message.contains("suspended") && message.contains("recreated: team-a;"),
        "{message}"
    );
    assert!(message.ends_with("Z"), "{message}");
}

#[test]
fn times_are_what_the_api_server_keeps() {
    let precise = at(3) + Duration::from_millis(250);
    let status = after(&[(
        0,
        Facts {
            last_probe: Some(precise),
            ..facts(Standing::Up)
        },
    )]);
    assert_eq!(status.last_probe_time, Some(Time(at(3))));
    let counts = |active_jobs| {
        after(&[(
            0,
            Facts {
                active_jobs,
                ..facts(Standing::Up)
            },
        )])
        .active_jobs
    };
    assert_eq!((counts(0), counts(usize::MAX)), (Some(0), Some(i32::MAX)));
}
