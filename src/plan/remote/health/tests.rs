//! Tests of the state machines of connections and site watches.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::*;
use crate::api::conditions::Reason;
use crate::plan::remote::site::SiteState;

mod always;
mod credentials;
mod ticks;
mod watching;

const V: KubernetesVersion = KubernetesVersion { major: 1, minor: 36 };
const SEED: u64 = 7;

/// A clock that a test moves.
struct Clock {
    begin: Instant,
    millis: u64,
}

impl Clock {
    fn new() -> Self {
        Self {
            begin: Instant::now(),
            millis: 0,
        }
    }

    fn now(&self) -> ClockReading {
        ClockReading {
            at: self.begin + Duration::from_millis(self.millis),
            wall: Timestamp::from_millisecond(i64::try_from(self.millis).unwrap()).unwrap(),
        }
    }

    fn pass(&mut self, wait: Duration) -> ClockReading {
        self.millis += u64::try_from(wait.as_millis()).unwrap();
        self.now()
    }

    /// Moves to the time at which the connection is due; it must not be before now.
    fn to(&mut self, connection: &ConnectionStateMachine) -> ClockReading {
        let due = connection.due(self.now()).expect("something is due");
        let wait = due.saturating_duration_since(self.now().at);
        // One millisecond more, so that the time is reached.
        self.pass(wait + Duration::from_millis(1))
    }

    fn seconds(&self) -> u64 {
        self.millis / 1000
    }
}

/// The timing of a hub, but with probes at any time.
fn timing() -> ConnectionTiming {
    ConnectionTiming {
        tick: Duration::ZERO,
        ..ConnectionTiming::since(Instant::now())
    }
}

fn new(clock: &Clock) -> ConnectionStateMachine {
    ConnectionStateMachine::new(timing(), SEED, clock.now())
}

/// A connection that is up.
fn up(clock: &mut Clock) -> ConnectionStateMachine {
    let mut connection = new(clock);
    assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Connect));
    connection.handle(ConnectionEvent::Connected(V), clock.now());
    assert!(connection.is_up());
    connection
}

/// Ends the next probe with this event.
fn probe(connection: &mut ConnectionStateMachine, clock: &mut Clock, outcome: ConnectionEvent) {
    let now = clock.to(connection);
    assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
    connection.handle(outcome, clock.now());
}

/// Ends the next attempt with this event.
fn attempt(connection: &mut ConnectionStateMachine, clock: &mut Clock, outcome: ConnectionEvent) {
    let now = clock.to(connection);
    assert_eq!(connection.wake(now), Some(ConnectionAction::Connect));
    connection.handle(outcome, clock.now());
}

#[test]
fn a_new_connection_is_tried_at_once() {
    let mut clock = Clock::new();
    let mut connection = new(&clock);
    let health = connection.health();
    assert_eq!(
        (health.phase, health.reason()),
        (ConnectionPhase::Connecting, Reason::Connecting)
    );
    assert_eq!((health.unanswered_since, health.attempts), (None, 0));
    assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Connect));
    clock.pass(Duration::from_secs(5));
    connection.handle(ConnectionEvent::Failed(ConnectionFault::Unreachable), clock.now());
    let health = connection.health();
    assert_eq!(
        (health.phase, health.reason()),
        (ConnectionPhase::Lost, Reason::Unreachable)
    );
    assert_eq!((health.unanswered_since, health.attempts), (None, 1));
    assert!(health.next_attempt.unwrap() > clock.now().wall);
}

#[test]
fn each_state_of_a_connection_has_a_name_for_the_log() {
    let mut clock = Clock::new();
    let mut connection = new(&clock);
    let mut states = vec![connection.state()];
    connection.wake(clock.now());
    states.push(connection.state());
    for event in [ConnectionEvent::Connected(V), ConnectionEvent::SuspectedLoss] {
        connection.handle(event, clock.now());
        states.push(connection.state());
    }
    probe(
        &mut connection,
        &mut clock,
        ConnectionEvent::Missed(ConnectionFault::Unreachable),
    );
    states.push(connection.state());
    attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
    connection.handle(ConnectionEvent::KubeconfigReplaced, clock.now());
    states.push(connection.state());
    let expected = ["new", "connecting", "connected", "suspected", "lost", "replacing"];
    assert_eq!(states, expected);
}

#[test]
fn waits_double_to_the_cap_and_only_success_starts_them_over() {
    let mut clock = Clock::new();
    let mut connection = new(&clock);
    for failure in 0..12_u32 {
        attempt(
            &mut connection,
            &mut clock,
            ConnectionEvent::Failed(ConnectionFault::Unreachable),
        );
        let full = Duration::from_secs(5 * (1 << failure.min(6))).min(Duration::from_secs(320));
        let wait = connection.due(clock.now()).unwrap() - clock.now().at;
        assert!(wait >= full / 2 && wait <= full, "{failure}: {wait:?}");
        let health = connection.health();
        assert_eq!(health.attempts, failure + 1);
        let until = health.next_attempt.unwrap().duration_since(clock.now().wall);
        assert_eq!(until.unsigned_abs().as_millis(), wait.as_millis());
    }
    // Another kubeconfig is tried at once, and its failure does not reset the back-off.
    connection.handle(ConnectionEvent::KubeconfigReplaced, clock.now());
    attempt(
        &mut connection,
        &mut clock,
        ConnectionEvent::Failed(ConnectionFault::Unreachable),
    );
    let wait = connection.due(clock.now()).unwrap() - clock.now().at;
    assert!(wait >= Duration::from_secs(160), "{wait:?}");
    attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
    let health = connection.health();
    assert_eq!((health.attempts, health.next_attempt), (0, None));
    connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
    probe(
        &mut connection,
        &mut clock,
        ConnectionEvent::Missed(ConnectionFault::Unreachable),
    );
    let wait = connection.due(clock.now()).unwrap() - clock.now().at;
    assert!(wait <= Duration::from_secs(5), "{wait:?}");
}

#[test]
fn five_probes_without_an_answer_are_a_loss_and_four_are_not() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    for _ in 0..4 {
        probe(
            &mut connection,
            &mut clock,
            ConnectionEvent::Missed(ConnectionFault::Unreachable),
        );
        assert!(connection.is_up());
    }
    probe(&mut connection, &mut clock, ConnectionEvent::Answered);
    let begin = clock.seconds();
    for left in (0..5).rev() {
        let now = clock.to(&connection);
        assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
        clock.pass(Duration::from_secs(5));
        connection.handle(ConnectionEvent::Missed(ConnectionFault::Unreachable), clock.now());
        assert_eq!(connection.is_up(), left > 0);
    }
    assert!(clock.seconds() - begin <= 60, "{}", clock.seconds() - begin);
    assert_eq!(connection.health().unanswered_since, None, "it answers nothing");
}

#[test]
fn probes_come_every_ten_seconds_from_start_to_start() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    let mut starts = Vec::new();
    for _ in 0..3 {
        let now = clock.to(&connection);
        assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
        starts.push(clock.seconds());
        clock.pass(Duration::from_secs(2));
        connection.handle(ConnectionEvent::Answered, clock.now());
    }
    assert_eq!([starts[1] - starts[0], starts[2] - starts[1]], [10, 10]);
}

#[test]
fn on_a_connection_whose_loss_is_suspected_one_missed_probe_is_enough() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
    assert_eq!(
        connection.wake(clock.now()),
        Some(ConnectionAction::Probe),
        "at once"
    );
    connection.handle(ConnectionEvent::Missed(ConnectionFault::Unreachable), clock.now());
    assert!(!connection.is_up());
    // An answered probe ends the suspicion.
    let mut connection = up(&mut clock);
    connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
    assert_eq!(connection.wake(clock.now()), Some(ConnectionAction::Probe));
    connection.handle(ConnectionEvent::Answered, clock.now());
    probe(
        &mut connection,
        &mut clock,
        ConnectionEvent::Missed(ConnectionFault::Unreachable),
    );
    assert!(connection.is_up());
    // A suspicion during a probe applies to that probe.
    let now = clock.to(&connection);
    assert_eq!(connection.wake(now), Some(ConnectionAction::Probe));
    connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
    connection.handle(ConnectionEvent::Missed(ConnectionFault::Unreachable), clock.now());
    assert!(!connection.is_up());
}

#[test]
fn a_cluster_that_answers_forbidden_is_not_lost() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    for _ in 0..20 {
        connection.handle(ConnectionEvent::SuspectedLoss, clock.now());
        probe(
            &mut connection,
            &mut clock,
            ConnectionEvent::Missed(ConnectionFault::Forbidden),
        );
    }
    assert!(connection.is_up());
}

#[test]
fn a_version_is_two_numbers_whatever_a_vendor_adds() {
    let of = |major, minor| Some(KubernetesVersion { major, minor });
    let table = [
        ("1", "29", of(1, 29)),
        ("1", "29+", of(1, 29)),
        ("1", "36-eks-1", of(1, 36)),
        ("2", "0", of(2, 0)),
        ("1", "", None),
        ("", "29", None),
        ("v1", "29", None),
        ("1", "99999999", None),
        ("1", "-29", None),
    ];
    for (major, minor, expected) in table {
        assert_eq!(
            KubernetesVersion::parse(major, minor),
            expected,
            "{major}.{minor}"
        );
    }
    let versions = [(1, 9), (1, 28), (1, 29), (1, 30), (2, 0)];
    let new = versions.map(|(major, minor)| KubernetesVersion { major, minor } >= OLDEST);
    assert_eq!(new, [false, false, true, true, true]);
    assert_eq!(V.to_string(), "1.36");
}

#[test]
fn each_fault_has_a_message_of_its_own() {
    for fault in ConnectionFault::ALL {
        assert!(fault.message().split(' ').count() > 4, "{fault:?}");
        assert_ne!(fault.reason(), Reason::Connected, "{fault:?}");
    }
    let messages: std::collections::BTreeSet<_> =
        ConnectionFault::ALL.iter().map(|fault| fault.message()).collect();
    assert_eq!(messages.len(), ConnectionFault::ALL.len());
}

/// Holds: B2.
#[test]
fn a_cluster_that_answers_probes_and_no_calls_is_lost_and_its_attempts_back_off() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    let unanswered = timing().unanswered;
    clock.pass(Duration::from_secs(1));
    connection.handle(ConnectionEvent::Unanswered(unanswered), clock.now());
    let first = clock.now();
    let mut last = Duration::ZERO;
    for round in 0..5 {
        let health = connection.health();
        assert_eq!(
            (health.phase, health.reason(), health.unanswered_since),
            (ConnectionPhase::Lost, Reason::Unreachable, Some(first.wall)),
            "as one loss, until a call is answered"
        );
        let pause = connection.due(clock.now()).unwrap() - clock.now().at;
        assert!(pause > last, "{round}: {pause:?} after {last:?}");
        last = pause;
        // These calls were sent before the loss.
        connection.handle(ConnectionEvent::Unanswered(unanswered + round), clock.now());
        attempt(
            &mut connection,
            &mut clock,
            ConnectionEvent::Failed(ConnectionFault::Unreachable),
        );
        assert_eq!(
            connection.health().unanswered_since,
            Some(first.wall),
            "kept over what fails"
        );
        attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
        assert!(connection.is_up() && connection.health().unanswered_since.is_none());
        clock.pass(Duration::from_secs(30));
        connection.handle(ConnectionEvent::Unanswered(unanswered + round), clock.now());
    }
    attempt(&mut connection, &mut clock, ConnectionEvent::Connected(V));
    connection.handle(ConnectionEvent::Unanswered(0), clock.now());
    assert!(connection.is_up(), "it answered");
    let again = clock.pass(Duration::from_secs(30));
    connection.handle(ConnectionEvent::Unanswered(unanswered), clock.now());
    assert_eq!(connection.health().unanswered_since, Some(again.wall));
    assert!(connection.due(clock.now()).unwrap() - clock.now().at < last);
}

/// Holds: B2.
#[test]
fn a_call_without_an_answer_has_the_cluster_probed_at_once() {
    let mut clock = Clock::new();
    let mut connection = up(&mut clock);
    clock.pass(Duration::from_secs(1));
    connection.handle(ConnectionEvent::Unanswered(timing().unanswered - 1), clock.now());
    assert_eq!(connection.due(clock.now()), Some(clock.now().at));
    probe(&mut connection, &mut clock, ConnectionEvent::Answered);
    assert!(connection.is_up());
}

#[test]
fn for_another_kubeconfig_attempts_are_counted_from_zero_and_the_back_off_goes_on() {
    let mut clock = Clock::new();
    let mut connection = new(&clock);
    for _ in 0..5 {
        let now = clock.to(&connection);
        assert_eq!(connection.wake(now), Some(ConnectionAction::Connect));
        connection.handle(ConnectionEvent::Failed(ConnectionFault::Unreachable), now);
    }
    assert_eq!(connection.health().attempts, 5);
    connection.handle(ConnectionEvent::KubeconfigReplaced, clock.now());
    let now = clock.to(&connection);
    assert_eq!(connection.wake(now), Some(ConnectionAction::Connect), "at once");
    assert_eq!(connection.health().attempts, 1);
    connection.handle(ConnectionEvent::Failed(ConnectionFault::Unreachable), now);
    let wait = connection.due(now).unwrap() - now.at;
    assert!(wait > Duration::from_secs(70), "{wait:?}");
    assert_eq!(connection.health().attempts, 1);
}
