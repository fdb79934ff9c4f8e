//! Whether the holder of a record is alive, by what was seen of it.

use super::*;

/// What is known at each second of a watch: the records are written at these seconds by the peer's clock.
fn watched(seconds_and_renewals: &[(u64, i64)]) -> Vec<HolderLiveness> {
    let begin = Instant::now();
    let theirs = claim("east", "hub-1", &[]);
    let mut lookout = PeerMonitor::default();
    let look = |(second, renewal): &(u64, i64)| {
        let now = begin + Duration::from_secs(*second);
        let record = record(&theirs, *renewal);
        lookout.see(std::slice::from_ref(&record), now);
        lookout.life(&record, now)
    };
    seconds_and_renewals.iter().map(look).collect()
}

#[test]
fn who_renews_is_alive_and_who_is_silent_for_the_whole_duration_is_gone() {
    use HolderLiveness::{Alive, Gone, Unsure};
    // The peer's clock is far off both times; only whether it moves counts.
    assert_eq!(watched(&[(0, 7), (5, 7), (6, 12)]), [Unsure, Unsure, Alive]);
    assert_eq!(
        watched(&[(0, 7), (14, 7), (15, 7), (16, 7)]),
        [Unsure, Unsure, Gone, Gone]
    );
    // A change is life even when it comes late, and life ends as it began.
    assert_eq!(
        watched(&[(0, 7), (15, 8), (29, 8), (30, 8), (31, 9)]),
        [Unsure, Alive, Alive, Gone, Alive]
    );
}

#[test]
fn a_record_that_is_released_and_taken_again_is_alive() {
    let begin = Instant::now();
    let theirs = claim("west", "hub-1", &[]);
    let taken = active(&theirs, None, at(1));
    let (taken, released) = (
        LeaseRecord::of(&taken).unwrap(),
        LeaseRecord::of(&HolderIdentity::released(&taken, at(2))).unwrap(),
    );
    let mut lookout = PeerMonitor::default();
    lookout.see(std::slice::from_ref(&taken), begin);
    assert_eq!(lookout.life(&taken, begin), HolderLiveness::Unsure);
    assert_eq!(lookout.next_gone(begin), Some(begin + DURATION));
    lookout.see(&[released], begin);
    assert_eq!(lookout.next_gone(begin), None);
    // The holder of a record that was free a moment ago is alive.
    let again = record(&theirs, 30);
    let late = begin + Duration::from_secs(60);
    lookout.see(std::slice::from_ref(&again), late);
    assert_eq!(lookout.life(&again, late), HolderLiveness::Alive);
    // A record that was not seen in this form is not judged.
    assert_eq!(lookout.life(&taken, late), HolderLiveness::Unsure);
}

#[test]
fn a_list_that_was_requested_too_early_expires_no_record() {
    let begin = Instant::now();
    let theirs = record(&claim("west", "hub-1", &[]), 1);
    let mut lookout = PeerMonitor::default();
    // The answer took its time: the record may have been written just before it came.
    lookout.see(std::slice::from_ref(&theirs), begin + Duration::from_secs(4));
    let life = |second| lookout.life(&theirs, begin + Duration::from_secs(second));
    assert_eq!(
        (life(15), life(18), life(19)),
        (
            HolderLiveness::Unsure,
            HolderLiveness::Unsure,
            HolderLiveness::Gone
        )
    );
}

#[test]
fn nonsense_in_a_record_delays_no_hub_for_long() {
    for (seconds, expected) in [(None, 15), (Some(-1), 15), (Some(1), 15), (Some(i32::MAX), 60)] {
        let mut lease = active(&claim("west", "hub-1", &[]), None, at(1));
        lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
        assert_eq!(
            LeaseRecord::of(&lease).unwrap().duration,
            Duration::from_secs(expected)
        );
    }
}
