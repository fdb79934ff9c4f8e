//! What an instance makes of calls that fail, and of those that get no answer in time.

use super::*;

/// A hub that works.
fn active(server: &mut Server) -> (LeaseStateMachine, Instant) {
    let begin = Instant::now();
    let mut machine = LeaseStateMachine::new(claim("a", "one", &[]), begin);
    let now = run(&mut machine, server, &[], begin);
    assert_eq!(machine.state(), InstanceState::Active);
    (machine, now)
}

/// Asks until the machine renews, and returns when; what else it asks is answered.
fn until_renewal(machine: &mut LeaseStateMachine, server: &mut Server, mut now: Instant) -> Instant {
    loop {
        match machine.next(now, Timestamp::UNIX_EPOCH) {
            LeaseAction::Call(LeaseRequest::Replace(_)) => return now,
            LeaseAction::Call(call) => machine.answer(server.answer(call), now),
            LeaseAction::Wait(at) => now = at.max(now + Duration::from_millis(1)),
            LeaseAction::End(end) => panic!("{end:?}"),
        }
    }
}

/// A connection that is dead costs one call its whole time.
#[test]
fn one_renewal_without_an_answer_costs_no_claim() {
    let mut server = Server::default();
    let (mut machine, now) = active(&mut server);
    let asked = until_renewal(&mut machine, &mut server, now);
    let until = machine.until().unwrap();
    let late = asked + Duration::from_secs(4);
    machine.answer(LeaseResponse::Failed(LeaseRequestError::Unanswered), late);
    // It may have been done, so the record is read before it is written again; both are asked for at once.
    let again = until_renewal(&mut machine, &mut server, late);
    assert!(
        again < until,
        "{:?} before the end",
        until.checked_duration_since(again)
    );
    assert!(again - late < LOOK_AGAIN, "{:?}", again - late);
}

/// An API server that was just started refuses what it does not know to be allowed yet.
#[test]
fn a_standby_ends_only_once_it_was_refused_for_a_while() {
    let (sibling, mut server) = (claim("a", "one", &[]), Server::default());
    let begin = Instant::now();
    for (lasts, ends) in [(Duration::ZERO, false), (REFUSED / 2, false), (2 * REFUSED, true)] {
        let mut machine = LeaseStateMachine::new(claim("a", "two", &[]), begin);
        let refused = run(&mut machine, &mut server, &[&sibling], begin);
        assert_eq!(machine.state(), InstanceState::Standby);
        let (mut now, mut ended) = (refused, None);
        while ended.is_none() && now < refused + 3 * REFUSED {
            match machine.next(now, Timestamp::UNIX_EPOCH) {
                LeaseAction::Call(_) if now <= refused + lasts => {
                    machine.answer(LeaseResponse::Failed(LeaseRequestError::Forbidden), now);
                }
                LeaseAction::Call(call) => machine.answer(server.answer(call), now),
                LeaseAction::Wait(at) => now = at.max(now + Duration::from_millis(1)),
                LeaseAction::End(end) => ended = Some(end),
            }
        }
        let is_refused = matches!(ended, Some(LeaseExit::Forbidden(_)));
        assert_eq!(
            (is_refused, ended.is_some()),
            (ends, ends),
            "{lasts:?}: {ended:?}"
        );
    }
}

/// A hub that was never let do anything says so at once.
#[test]
fn a_hub_without_the_right_ends_at_its_first_call() {
    let begin = Instant::now();
    let mut machine = LeaseStateMachine::new(claim("a", "one", &[]), begin);
    assert!(matches!(
        machine.next(begin, Timestamp::UNIX_EPOCH),
        LeaseAction::Call(LeaseRequest::List)
    ));
    machine.answer(LeaseResponse::Failed(LeaseRequestError::Forbidden), begin);
    let end = machine.next(begin, Timestamp::UNIX_EPOCH);
    assert_eq!(end, LeaseAction::End(LeaseExit::Forbidden("listed")));
}
