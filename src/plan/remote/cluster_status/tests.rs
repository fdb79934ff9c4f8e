//! The status of a cluster, and when it is written.

use super::*;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).unwrap()
}

fn facts(state: ClusterState) -> ClusterFacts<'static> {
    ClusterFacts {
        generation: 1,
        state,
        is_suspended: false,
        recreated: &[],
        active_jobs: 0,
    }
}

fn connection(phase: ConnectionPhase, fault: Option<health::ConnectionFault>) -> ClusterState {
    let health = ConnectionHealth {
        phase,
        fault,
        unanswered_since: None,
        version: None,
        last_probe: None,
        attempts: 0,
        next_attempt: None,
        wants_reread: false,
    };
    ClusterState::Connection { health, fault }
}

fn up() -> ClusterState {
    connection(ConnectionPhase::Up, None)
}

fn connecting() -> ClusterState {
    connection(
        ConnectionPhase::Connecting,
        Some(health::ConnectionFault::Connecting),
    )
}

fn down(attempts: u32, next: impl Into<Option<i64>>) -> ClusterState {
    let next = next.into();
    changed(
        connection(ConnectionPhase::Lost, Some(health::ConnectionFault::Unreachable)),
        |health| {
            health.attempts = attempts;
            health.next_attempt = next.map(at);
        },
    )
}

fn changed(mut state: ClusterState, change: impl FnOnce(&mut ConnectionHealth)) -> ClusterState {
    if let ClusterState::Connection { health, .. } = &mut state {
        change(health);
    }
    state
}

/// A state with a probe that was answered at this second.
fn probed(state: ClusterState, second: i64) -> ClusterState {
    changed(state, |health| {
        health.last_probe = Some(at(second));
        health.version = health::KubernetesVersion::parse("1", "36+");
    })
}

/// The status after these facts, in order, at these seconds.
fn after(steps: &[(i64, ClusterFacts<'_>)]) -> RenderClusterStatus {
    let mut status = RenderClusterStatus::default();
    for (second, facts) in steps {
        status = next(&status, facts, at(*second));
    }
    status
}

fn health_of(state: &ClusterState) -> ConnectionHealth {
    match state {
        ClusterState::Connection { health, .. } => *health,
        ClusterState::NoConnection(_) => unreachable!("there is no connection"),
    }
}

fn condition_of(status: &RenderClusterStatus) -> (String, String, String) {
    let found = connected(status).unwrap().clone();
    (found.status, found.reason, found.message)
}

#[test]
fn each_state_has_its_reason() {
    let flaw = KubeconfigFault::Flaw(KubeconfigFlaw {
        reason: Reason::InsecureKubeconfig,
        message: "it names a command",
    });
    let table = [
        (up(), "True", "Connected"),
        (connecting(), "False", "Connecting"),
        (
            ClusterState::NoConnection(KubeconfigFault::Missing),
            "False",
            "KubeconfigNotFound",
        ),
        (ClusterState::NoConnection(flaw), "False", "InsecureKubeconfig"),
        (
            ClusterState::NoConnection(KubeconfigFault::Disconnected),
            "False",
            "Disconnected",
        ),
        (ClusterState::NoConnection(undecodable()), "False", "InvalidSpec"),
        (down(1, 5), "False", "Unreachable"),
    ];
    for (state, status, reason) in table {
        let (found, why, message) = condition_of(&after(&[(0, facts(state.clone()))]));
        assert_eq!((found.as_str(), why.as_str()), (status, reason), "{state:?}");
        assert_eq!(
            message.contains("connection attempts"),
            reason == "Unreachable",
            "{message}"
        );
    }
    let refused = ClusterState::Connection {
        health: ConnectionHealth {
            phase: ConnectionPhase::Up,
            ..health_of(&up())
        },
        fault: Some(health::ConnectionFault::Forbidden),
    };
    let (found, why, message) = condition_of(&after(&[(0, facts(refused))]));
    assert_eq!((found.as_str(), why.as_str()), ("False", "Forbidden"));
    assert!(!message.contains("attempts"), "the connection is up: {message}");
}

#[test]
fn while_down_the_message_ends_with_the_next_attempt() {
    let status = after(&[(0, facts(down(4, 125)))]);
    let (_, _, message) = condition_of(&status);
    let ending = "; connection attempts: 4, next connection attempt: 2023-11-14T22:15:25Z";
    assert!(message.ends_with(ending), "{message}");
    assert_eq!(
        message.trim_end_matches(ending),
        health::ConnectionFault::Unreachable.message(),
        "what happened comes first"
    );
    assert!(!message.contains("http"), "{message}");
    assert_eq!(status.connection_attempts, Some(4));
    assert_eq!(status.next_connection_attempt, Some(Time(at(125))));
    let trying = next(&status, &facts(down(4, None)), at(126));
    assert_eq!(trying, status, "the attempt that was announced is in flight");
    let trying = next(&status, &facts(down(5, None)), at(126));
    assert_eq!(trying, status, "also where it is counted already");
    // The next attempt in a written status never lies in the past.
    let busy = ClusterFacts {
        active_jobs: 3,
        ..facts(down(5, None))
    };
    let written = next(&status, &busy, at(126));
    assert_eq!(written.active_jobs, Some(3));
    assert_eq!(
        (written.connection_attempts, written.next_connection_attempt),
        (Some(5), Some(Time(at(126))))
    );
    let late = next(&status, &facts(down(5, 120)), at(128));
    assert_eq!(late.next_connection_attempt, Some(Time(at(128))));
    let up = next(&status, &facts(up()), at(130));
    assert_eq!((up.connection_attempts, up.next_connection_attempt), (None, None));
}

#[test]
fn a_restarted_hub_keeps_the_condition_until_the_first_attempt_has_ended() {
    for before in [
        probed(up(), 0),
        down(7, 300),
        ClusterState::NoConnection(KubeconfigFault::Missing),
    ] {
        let status = after(&[(0, facts(before.clone()))]);
        assert_eq!(next(&status, &facts(connecting()), at(60)), status);
        // It finds the state of before the restart.
        let again = changed(before, |health| {
            health.last_probe = health.last_probe.map(|_| at(60));
        });
        let found = next(&status, &facts(again), at(60));
        assert_eq!((&found, due(&status, &found, None, at(60))), (&status, None));
    }
    let other = ClusterFacts {
        generation: 2,
        ..facts(connecting())
    };
    let status = after(&[(0, facts(up())), (60, other)]);
    assert_eq!(
        condition_of(&status).1,
        "Connecting",
        "it may be another cluster now"
    );
}

#[test]
fn the_last_answer_is_written_with_another_change_or_when_it_is_old() {
    let probed = |second: i64, active_jobs: usize| ClusterFacts {
        active_jobs,
        ..facts(probed(up(), second))
    };

    let seen = |steps: &[(i64, ClusterFacts<'_>)]| after(steps).last_probe_time.unwrap().0;
    assert_eq!(seen(&[(0, probed(0, 0))]), at(0));
    assert_eq!(seen(&[(0, probed(0, 0)), (599, probed(599, 0))]), at(0));
    assert_eq!(seen(&[(0, probed(0, 0)), (600, probed(600, 0))]), at(600));
    assert_eq!(seen(&[(0, probed(0, 0)), (9, probed(9, 1))]), at(9));
    // The hub was restarted and has no report yet.
    assert_eq!(seen(&[(0, probed(0, 0)), (9, facts(down(1, 5)))]), at(0));
}

#[test]
fn a_change_of_the_condition_is_written_at_once_and_another_may_wait() {
    let steady = after(&[(0, facts(up()))]);
    let busy = next(
        &steady,
        &ClusterFacts {
            active_jobs: 3,
            ..facts(up())
        },
        at(20),
    );
    let first = after(&[(0, facts(down(1, 5)))]);
    let second = next(&first, &facts(down(2, 15)), at(20));
    let lost = next(&steady, &facts(down(1, 5)), at(20));
    let newer = next(
        &steady,
        &ClusterFacts {
            generation: 2,
            ..facts(up())
        },
        at(20),
    );
    let table = [
        ("nothing", &steady, &steady, None, None),
        ("jobs", &steady, &busy, Some(18), Some(28)),
        ("jobs, quiet before", &steady, &busy, Some(3), Some(20)),
        ("jobs, first write", &steady, &busy, None, Some(20)),
        ("attempts", &first, &second, Some(18), Some(28)),
        ("lost", &steady, &lost, Some(18), Some(20)),
        ("generation", &steady, &newer, Some(18), Some(20)),
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
        ClusterFacts {
            is_suspended: true,
            recreated: &recreated,
            ..facts(down(2, 30))
        },
    )]);
    let (_, _, message) = condition_of(&status);
    assert!(
        message.contains("suspended") && message.contains("recreated: team-a;"),
        "{message}"
    );
    assert!(message.ends_with('Z'), "{message}");
}

#[test]
fn times_are_what_the_api_server_keeps() {
    let precise = changed(up(), |health| {
        health.last_probe = Some(at(3) + Duration::from_millis(250));
    });
    let status = after(&[(0, facts(precise))]);
    assert_eq!(status.last_probe_time, Some(Time(at(3))));

    let counts = |active_jobs| {
        after(&[(
            0,
            ClusterFacts {
                active_jobs,
                ..facts(up())
            },
        )])
        .active_jobs
    };
    assert_eq!((counts(0), counts(usize::MAX)), (Some(0), Some(i32::MAX)));
}

#[test]
fn each_transition_of_a_cluster_has_one_event() {
    let steps = [
        (up(), Some(Reason::Connected)),
        (probed(up(), 9), None),
        (down(0, 20), Some(Reason::Unreachable)),
        (down(1, 40), None),
        (up(), Some(Reason::Connected)),
        (
            ClusterState::NoConnection(KubeconfigFault::Disconnected),
            Some(Reason::Disconnected),
        ),
        (connecting(), None),
        (
            ClusterState::NoConnection(KubeconfigFault::Missing),
            Some(Reason::KubeconfigNotFound),
        ),
    ];
    let mut status = RenderClusterStatus::default();
    for (second, (state, expected)) in (0..).zip(steps) {
        let next = next(&status, &facts(state.clone()), at(second));
        let reason = transition(&status, &next).map(|(reason, _)| reason);
        assert_eq!(reason, expected, "{state:?}");
        status = next;
    }
}
