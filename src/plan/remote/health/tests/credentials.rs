//! A credential that a cluster refuses is read again once, and a replaced kubeconfig replaces the connection.

use super::*;

/// A probe that the cluster refuses.
fn refuse(connection: &mut ConnectionStateMachine, clock: &mut Clock) {
    probe(
        connection,
        clock,
        ConnectionEvent::Missed(ConnectionFault::Unauthorized),
    );
}

/// Each row: the events after a refused credential, whether the connection is up, and whether the Secret is to be read.
#[test]
fn a_refused_credential_is_read_again_once() {
    type After = &'static [ConnectionEvent];
    let refused = ConnectionEvent::Missed(ConnectionFault::Unauthorized);
    let table: [(After, bool, bool); 4] = [
        (&[], true, true),
        (&[ConnectionEvent::KubeconfigUnchanged], false, false),
        (&[ConnectionEvent::TokenRotated], true, false),
        (&[ConnectionEvent::KubeconfigReplaced], true, false),
    ];
    for (after, is_up, asks) in table {
        let mut clock = Clock::new();
        let mut connection = up(&mut clock);
        probe(&mut connection, &mut clock, refused);
        assert!(connection.health().wants_reread);
        for event in after {
            connection.handle(*event, clock.now());
        }
        let health = connection.health();
        assert_eq!(
            (connection.is_up(), health.wants_reread),
            (is_up, asks),
            "{after:?}"
        );
        if !is_up {
            assert_eq!(health.reason(), Reason::Unauthorized);
        }
    }
}

#[test]
fn a_credential_that_is_refused_again_is_not_read_again() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    let refused = ConnectionEvent::Missed(ConnectionFault::Unauthorized);
    probe(&mut connection, &mut clock, refused);
    connection.handle(ConnectionEvent::TokenRotated, clock.now());
    assert_eq!(
        connection.wake(clock.now()),
        Some(ConnectionAction::Probe),
        "at once"
    );
    connection.handle(refused, clock.now());
    let health = connection.health();
    assert_eq!(
        (health.reason(), health.wants_reread),
        (Reason::Unauthorized, false)
    );
    for _ in 0..3 {
        attempt(
            &mut connection,
            &mut clock,
            ConnectionEvent::Failed(ConnectionFault::Unauthorized),
        );
        assert!(!connection.health().wants_reread, "once");
    }
    // Another token is tried at once.
    connection.handle(ConnectionEvent::TokenRotated, clock.now());
    assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Connect));
    connection.handle(ConnectionEvent::Connected(V), clock.now());
    // After a success, the next refusal is a new one.
    probe(&mut connection, &mut clock, refused);
    assert!(connection.health().wants_reread);
}

#[test]
fn the_wait_for_a_secret_that_is_not_read_has_a_deadline() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    refuse(&mut connection, &mut clock);
    let now = clock.pass(timing().reread);
    connection.wake(now);
    let health = connection.health();
    assert_eq!(
        (health.reason(), health.wants_reread),
        (Reason::Unauthorized, false)
    );
    assert!(connection.due(now).is_some());
}

#[test]
fn a_refusal_while_the_secret_is_read_changes_nothing() {
    let mut clock = Clock::new();
    let slow = ConnectionTiming {
        reread: Duration::from_secs(60),
        ..timing()
    };
    let mut connection = ConnectionStateMachine::new(slow, SEED, clock.now());
    attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
    for _ in 0..3 {
        refuse(&mut connection, &mut clock);
        assert!(connection.is_up() && connection.health().wants_reread);
    }
    connection.handle(ConnectionEvent::KubeconfigUnchanged, clock.now());
    assert_eq!(connection.health().reason(), Reason::Unauthorized);
}

#[test]
fn a_suspected_loss_does_not_probe_while_the_secret_is_read() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    refuse(&mut connection, &mut clock);
    connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
    assert_eq!(connection.wake(clock.now()), None);
    assert!(connection.is_up());
}

#[test]
fn a_replaced_kubeconfig_replaces_the_connection_or_ends_both() {
    for (outcome, is_up) in [
        (ConnectionEvent::Connected(V), true),
        (ConnectionEvent::Failed(ConnectionFault::Unreachable), false),
    ] {
        let mut clock = Clock::new();
        let mut connection = up(&mut clock);
        connection.handle(ConnectionEvent::KubeconfigReplaced, clock.now());
        assert!(connection.is_up(), "the old one goes on");
        assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Connect));
        assert!(connection.is_up() && connection.is_busy());
        connection.handle(outcome, clock.now());
        assert_eq!(connection.is_up(), is_up);
    }
}

/// The result of an action for a former kubeconfig is ignored.
#[test]
fn a_result_of_an_action_that_is_not_in_flight_changes_nothing() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    connection.handle(
        ConnectionEvent::Missed(ConnectionFault::Unauthorized),
        clock.now(),
    );
    connection.handle(ConnectionEvent::Failed(ConnectionFault::Unreachable), clock.now());
    assert!(connection.is_up() && !connection.health().wants_reread);
    let now = clock.to(&connection);
    assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
    connection.handle(ConnectionEvent::KubeconfigReplaced, clock.now());
    connection.handle(ConnectionEvent::Missed(ConnectionFault::Unreachable), clock.now());
    assert!(connection.is_up());
}

/// A probe that began with the old token is awaited, and repeated with the new one, whatever its result.
#[test]
fn the_refusal_of_an_old_token_does_not_count_for_the_new_one() {
    for outcome in [
        ConnectionEvent::Missed(ConnectionFault::Unauthorized),
        ConnectionEvent::Answered,
    ] {
        let mut clock = Clock::new();
        let mut connection = up(&mut clock);
        let now = clock.to(&connection);
        assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
        connection.handle(ConnectionEvent::TokenRotated, clock.now());
        assert!(connection.is_probing());
        assert_eq!(connection.wake(clock.now()), None, "one at a time");
        connection.handle(outcome, clock.now());
        assert!(connection.is_up() && !connection.health().wants_reread);
        assert_eq!(
            connection.wake(clock.now()),
            Some(ConnectionAction::Probe),
            "with the new token"
        );
        connection.handle(
            ConnectionEvent::Missed(ConnectionFault::Unauthorized),
            clock.now(),
        );
        assert!(connection.health().wants_reread);
    }
}
