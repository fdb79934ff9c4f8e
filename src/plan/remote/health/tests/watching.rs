//! One site on a connection.

use super::*;

fn lost(clock: &Clock, fault: ConnectionFault) -> ConnectionHealth {
    ConnectionHealth {
        fault: Some(fault),
        ..new(clock).health()
    }
}

/// A site whose initial list is complete.
fn synced(clock: &Clock) -> SiteWatchStateMachine {
    let mut watching = SiteWatchStateMachine::default();
    watching.open(&timing(), clock.now());
    watching.synced();
    assert_eq!(watching.site_state(), SiteState::Up);
    watching
}

#[test]
fn a_site_is_up_once_every_job_was_seen_and_not_before() {
    let clock = Clock::new();
    let mut watching = SiteWatchStateMachine::default();
    watching.synced();
    assert_eq!(
        watching.site_state(),
        SiteState::down(Reason::Connecting),
        "without a connection"
    );
    watching.open(&timing(), clock.now());
    assert!(!watching.is_settled());
    assert_eq!(watching.site_state(), SiteState::down(Reason::Connecting));
    watching.synced();
    assert!(watching.is_settled() && watching.is_synced());
    assert_eq!(watching.site_state(), SiteState::Up);
}

#[test]
fn a_watch_that_breaks_has_some_seconds_to_come_back() {
    let mut clock = Clock::new();
    let mut watching = synced(&clock);
    watching.ended(ConnectionFault::Unreachable, &timing(), clock.now());
    watching.ended(ConnectionFault::Unauthorized, &timing(), clock.now());
    assert_eq!(watching.site_state(), SiteState::Up);
    clock.pass(Duration::from_secs(4));
    watching.wake(clock.now());
    assert_eq!(watching.site_state(), SiteState::Up);
    let mut came_back = watching.clone();
    came_back.synced();
    assert_eq!((came_back.due(), came_back.is_synced()), (None, true));
    watching.wake(clock.pass(Duration::from_secs(1)));
    assert_eq!(watching.site_state(), SiteState::down(Reason::Unreachable));
    watching.ended(ConnectionFault::Forbidden, &timing(), clock.now());
    assert_eq!(watching.site_state(), SiteState::down(Reason::Forbidden));
}

#[test]
fn a_refused_watch_takes_the_site_down_at_once() {
    let clock = Clock::new();
    for fault in ConnectionFault::ALL
        .into_iter()
        .filter(|fault| !fault.is_passing())
    {
        let mut watching = synced(&clock);
        watching.ended(fault, &timing(), clock.now());
        assert_eq!(watching.site_state(), SiteState::down(fault.reason()));
        assert!(watching.is_settled(), "no site waits for it: {fault:?}");
    }
}

#[test]
fn other_sites_wait_for_a_site_only_for_the_settle_time() {
    let mut clock = Clock::new();
    let mut watching = SiteWatchStateMachine::default();
    watching.open(&timing(), clock.now());
    let due = watching.due().unwrap();
    assert_eq!(due - clock.now().at, timing().settle);
    watching.wake(clock.pass(timing().settle));
    assert!(watching.is_settled());
    assert_eq!(watching.fault(), Some(ConnectionFault::Unreachable));
}

#[test]
fn on_another_connection_a_site_stays_up_for_some_seconds() {
    let clock = Clock::new();
    let mut watching = synced(&clock);
    watching.open(&timing(), clock.now());
    assert_eq!(watching.site_state(), SiteState::Up);
    assert!(!watching.is_synced(), "but the list there is not complete");
    assert!(watching.due().is_some());
}

#[test]
fn that_calls_are_not_answered_is_said_of_the_loss_that_they_caused_alone() {
    let clock = Clock::new();
    let since = Some(clock.now().wall);
    let mut watching = synced(&clock);
    let unanswered = ConnectionHealth {
        unanswered_since: since,
        ..lost(&clock, ConnectionFault::Unreachable)
    };
    watching.lost(&unanswered);
    assert_eq!(watching.site_state().unanswered_since(), since);
    watching.open(&timing(), clock.now());
    assert_eq!(
        watching.site_state().unanswered_since(),
        since,
        "nothing is listed yet"
    );
    watching.ended(ConnectionFault::Forbidden, &timing(), clock.now());
    assert_eq!(watching.site_state(), SiteState::down(Reason::Forbidden));
    watching.lost(&unanswered);
    watching.lost(&lost(&clock, ConnectionFault::Unreachable));
    assert_eq!(watching.site_state(), SiteState::down(Reason::Unreachable));
}
