//! An instance that ends leaves no record held, whatever becomes of its requests.

use super::*;

#[test]
fn an_instance_that_ends_takes_nothing_before_it_releases_and_leaves_no_record_held() {
    let begin = Instant::now();
    let mut server = Server::default();
    let mut machine = LeaseStateMachine::new(claim("a", "one", &["a"]), begin);
    settle(&mut machine, &mut server, begin);
    assert!(machine.until() > Some(begin));
    machine.stop();
    assert_eq!(machine.until(), None, "before anything is released");
    let (calls, end) = settle(&mut machine, &mut server, begin);
    assert!(matches!(&calls[..], [LeaseRequest::Replace(_)]), "{calls:?}");
    assert_eq!(end, Some(LeaseExit::Stopped));
    assert_eq!(holder(&server, "renderhub-a-0123abcd"), None);
}

/// Its answer never came, and it may have been done.
#[test]
fn an_instance_that_ends_looks_for_a_record_that_it_may_have_taken() {
    let begin = Instant::now();
    let mut server = Server::default();
    let mut machine = LeaseStateMachine::new(claim("a", "one", &["a"]), begin);
    for _ in 0..2 {
        let LeaseAction::Call(call) = machine.next(begin, Timestamp::UNIX_EPOCH) else {
            panic!("it waits")
        };
        let answer = server.answer(call.clone());
        machine.answer(
            if call == LeaseRequest::List {
                answer
            } else {
                LeaseResponse::Failed(LeaseRequestError::Unanswered)
            },
            begin,
        );
    }
    assert_eq!(holder(&server, "renderhub-a-0123abcd").as_deref(), Some("one"));
    machine.stop();
    settle(&mut machine, &mut server, begin);
    assert_eq!(holder(&server, "renderhub-a-0123abcd"), None);
}

/// Another client edited it in that moment.
#[test]
fn a_release_that_was_refused_is_tried_over_what_is_there() {
    let mut server = Server::default();
    let calls = after(LeaseRequestError::Conflict, &mut server, |machine, _| {
        machine.stop();
    });
    assert!(
        matches!(&calls[..], [LeaseRequest::Get(_), LeaseRequest::Replace(_)]),
        "{calls:#?}"
    );
    assert_eq!(holder(&server, "renderhub-a-0123abcd"), None);
}

#[test]
fn a_release_that_is_not_answered_is_tried_a_few_times_and_then_left_until_it_is_over() {
    let begin = Instant::now();
    for (unanswered, writes, held) in [
        (0, 1, None),
        (RELEASES - 1, RELEASES, None),
        (RELEASES, RELEASES, Some("one")),
        (u8::MAX, RELEASES, Some("one")),
    ] {
        let mut server = Server::default();
        let mut machine = LeaseStateMachine::new(claim("a", "one", &["a"]), begin);
        settle(&mut machine, &mut server, begin);
        machine.stop();
        let mut calls = 0;
        let end = loop {
            match machine.next(begin, Timestamp::UNIX_EPOCH) {
                LeaseAction::Call(call) if calls < unanswered => {
                    assert!(matches!(call, LeaseRequest::Replace(_)), "{call:?}");
                    machine.answer(LeaseResponse::Failed(LeaseRequestError::Unanswered), begin);
                }
                LeaseAction::Call(call) => machine.answer(server.answer(call), begin),
                LeaseAction::Wait(at) => panic!("it waits until {at:?}"),
                LeaseAction::End(end) => break end,
            }
            calls += 1;
        };
        assert_eq!(
            (end, calls),
            (LeaseExit::Stopped, writes),
            "{unanswered} unanswered"
        );
        assert_eq!(holder(&server, "renderhub-a-0123abcd").as_deref(), held);
    }
}
