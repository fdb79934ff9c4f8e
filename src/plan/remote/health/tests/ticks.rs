//! Many connections: their probes start together, their attempts do not.

use std::time::Duration;

use super::*;

#[test]
fn probes_of_many_connections_start_on_the_same_ticks_and_keep_their_pace() {
    let mut clock = Clock::new();
    let timing = ConnectionTiming {
        origin: clock.begin,
        ..ConnectionTiming::since(Instant::now())
    };
    let tick = u64::try_from(timing.tick.as_millis()).unwrap();
    for phase in [0, 1, 130, 499] {
        clock.pass(Duration::from_millis(phase));
        let mut connection = ConnectionStateMachine::new(timing, SEED, clock.now());
        attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
        let connected = clock.millis;
        let first = clock.to(&connection).at.duration_since(clock.begin);
        assert!(clock.millis - connected <= 10_001 && clock.millis - connected > 10_000 - tick);
        for n in 0..3 {
            let due = connection.due(clock.now()).unwrap().duration_since(clock.begin);
            assert_eq!(due.as_millis() % u128::from(tick), 0, "{phase} {n}");
            assert_eq!(
                due + Duration::from_millis(1),
                first + Duration::from_secs(10 * n)
            );
            // It wakes a little late, and the answer takes a while.
            assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Probe));
            clock.pass(Duration::from_millis(40));
            connection.handle(ConnectionEvent::Answered, clock.now());
            clock.to(&connection);
        }
    }
}

#[test]
fn many_that_are_lost_together_do_not_come_back_together() {
    let timing = timing();
    let waits: Vec<_> = (0..8).map(|seed| timing.backoff.wait(1, &seed)).collect();
    assert!(waits.iter().any(|wait| *wait != waits[0]), "{waits:?}");
}
