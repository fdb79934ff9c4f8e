//! Properties that hold for all events in any order.

use proptest::prelude::*;

use super::*;

/// One thing that happens to a connection.
#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Time passes.
    Pass(u64),
    /// It handles an event, whether it waits for it or not.
    Handled(ConnectionEvent),
    /// Time passes until something is due.
    Due,
}

fn events() -> impl Strategy<Value = ConnectionEvent> {
    let fault = || prop::sample::select(ConnectionFault::ALL.to_vec());
    prop_oneof![
        Just(ConnectionEvent::Connected(V)),
        fault().prop_map(ConnectionEvent::Failed),
        Just(ConnectionEvent::Answered),
        fault().prop_map(ConnectionEvent::Missed),
        Just(ConnectionEvent::SuspectedLoss),
        (0..8_u32).prop_map(ConnectionEvent::Unanswered),
        Just(ConnectionEvent::TokenRotated),
        Just(ConnectionEvent::KubeconfigReplaced),
        Just(ConnectionEvent::KubeconfigUnchanged),
    ]
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        (0..400_000_u64).prop_map(Happens::Pass),
        events().prop_map(Happens::Handled),
        events().prop_map(Happens::Handled),
        Just(Happens::Due),
    ]
}

proptest! {
    /// An action is always due or in flight. While the connection is down, the attempts with one kubeconfig only grow, and the
    /// loss keeps its time.
    #[test]
    fn a_connection_is_never_stuck_and_never_forgets_a_loss(
        story in prop::collection::vec(happens(), 1..120),
        seed in any::<u64>(),
    ) {
        let mut clock = Clock::new();
        let mut connection = ConnectionStateMachine::new(timing(), seed, clock.now());
        let mut before = connection.health();
        for happens in story {
            let is_renewed = matches!(happens, Happens::Handled(ConnectionEvent::TokenRotated | ConnectionEvent::KubeconfigReplaced));
            match happens {
                Happens::Pass(millis) => _ = clock.pass(Duration::from_millis(millis)),
                Happens::Handled(event) => connection.handle(event, clock.now()),
                Happens::Due => if connection.due(clock.now()).is_some() {
                    clock.to(&connection);
                },
            }
            let now = clock.now();
            _ = connection.wake(now);
            prop_assert!(connection.due(now).is_some() || connection.is_busy());
            let health = connection.health();
            prop_assert_eq!(connection.is_up(), health.phase == ConnectionPhase::Up);
            prop_assert!(!connection.is_up() || health.unanswered_since.is_none());
            prop_assert_eq!(connection.is_up(), health.fault.is_none());
            if let Some((before, after)) = before.unanswered_since.zip(health.unanswered_since) {
                prop_assert!(after <= before, "a loss is dated by its beginning");
            }
            if before.fault.is_some() && health.fault.is_some() {
                prop_assert!(is_renewed || health.attempts >= before.attempts);
            }
            if connection.is_up() {
                prop_assert_eq!(health.attempts, 0);
                prop_assert_eq!(health.next_attempt, None);
            }
            if let Some(due) = connection.due(now) {
                prop_assert!(due.saturating_duration_since(now.at) <= timing().backoff.cap);
            }
            before = health;
        }
    }

    /// After any events, a cluster that answers is up again after its next attempt.
    #[test]
    fn a_cluster_that_answers_again_is_up_again(story in prop::collection::vec(happens(), 0..60)) {
        let mut clock = Clock::new();
        let mut connection = new(&clock);
        for happens in story {
            match happens {
                Happens::Pass(millis) => _ = clock.pass(Duration::from_millis(millis)),
                Happens::Handled(event) => connection.handle(event, clock.now()),
                Happens::Due => {}
            }
            _ = connection.wake(clock.now());
        }
        for _ in 0..3 {
            if connection.is_busy() {
                connection.handle(ConnectionEvent::Connected(V), clock.now());
                connection.handle(ConnectionEvent::Answered, clock.now());
            } else {
                let now = clock.to(&connection);
                _ = connection.wake(now);
            }
        }
        prop_assert!(connection.is_up());
    }
}
