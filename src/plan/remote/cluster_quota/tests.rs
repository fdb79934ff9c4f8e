//! Places of tenants' clusters, who waits for one, and that no step looks at all that wait.

use std::cell::Cell;
use std::collections::VecDeque;
use std::hash::Hasher;
use std::time::Duration;

use proptest::prelude::*;

use super::*;

/// Holds: K13.
#[test]
fn a_namespace_takes_no_place_of_another() {
    let (mut quota, now) = (ClusterQuota::new(5, 8), Instant::now());
    let mut request = |namespace: &str, key: &i32| quota.request(namespace, key, now);
    let flood: Vec<bool> = (0..5_000).map(|n| request("flood", &n)).collect();
    assert!(flood[..5].iter().all(|given| *given) && !flood[5..].iter().any(|given| *given));
    assert!(request("quiet", &9_001) && request("quiet", &9_002));
    assert!(request("late", &9_003));
    assert!(!request("later", &9_004), "all are taken");
    assert!(
        request("quiet", &9_001) && request("flood", &0),
        "a holder keeps its place"
    );
    assert!(!request("flood", &17), "asking again does not help");
}

#[test]
fn a_free_place_goes_to_the_first_waiter_within_its_quota() {
    let (mut quota, now) = (ClusterQuota::new(2, 3), Instant::now());
    for (namespace, key) in [("a", 1), ("a", 2), ("b", 3), ("a", 4), ("c", 5), ("b", 6)] {
        quota.request(namespace, &key, now);
    }
    assert_eq!(quota.release(&3), Some(5), "a has its two");
    assert_eq!(quota.release(&1), Some(4));
    assert_eq!(quota.release(&6), None, "it only waited");
    assert_eq!(quota.release(&5), None);
    assert_eq!(quota.release(&5), None, "once is enough");
    assert!(quota.request("d", &7, now) && !quota.request("d", &8, now));
}

/// Holds: K13, B34.
#[test]
fn a_spare_place_is_handed_over_and_one_in_use_is_not() {
    let (mut quota, now) = (ClusterQuota::new(2, 3), Instant::now());
    let later = now + Duration::from_secs(300);
    for (namespace, key) in [("a", 1), ("a", 2), ("b", 3)] {
        assert!(quota.request(namespace, &key, now));
    }
    assert!(!quota.request("a", &4, now) && quota.due(now).is_none());
    quota.set_spare(&3, true, now);
    assert_eq!(
        quota.hand_over(now),
        None,
        "a place of another namespace does not raise its own limit"
    );
    assert!(!quota.request("c", &5, now));
    assert_eq!(
        quota.hand_over(now),
        Some(QuotaHandover { gone: 3, next: 5 }),
        "but it can be taken over where all are taken"
    );
    // A former holder queues again, and waits longer than a key that had no place yet.
    quota.set_spare(&2, true, now);
    assert_eq!(quota.hand_over(now), Some(QuotaHandover { gone: 2, next: 4 }));
    quota.enqueue("a", &2, later);
    quota.set_spare(&4, true, now);
    assert_eq!((quota.hand_over(now), quota.due(now)), (None, Some(later)));
    assert_eq!(quota.hand_over(later), Some(QuotaHandover { gone: 4, next: 2 }));
    // A place that is in use again is not handed over.
    quota.set_spare(&2, true, later);
    quota.set_spare(&2, false, later);
    assert!(!quota.request("a", &6, later));
    assert_eq!(quota.hand_over(later), None);
    // A free place is given at once.
    quota.enqueue("b", &7, later + Duration::from_secs(9));
    assert_eq!(quota.release(&5), Some(7));
}

/// A spare place is due to the first that waits, and a request that comes later does not count as having it.
#[test]
fn a_request_takes_no_spare_place_before_one_that_waits() {
    let (mut quota, now) = (ClusterQuota::new(2, 2), Instant::now());
    for (key, has_place) in [(1, true), (2, true), (3, false)] {
        assert_eq!(quota.request("a", &key, now), has_place);
    }
    quota.set_spare(&1, true, now);
    assert!(!quota.request("a", &4, now));
    assert_eq!(quota.hand_over(now), Some(QuotaHandover { gone: 1, next: 3 }));
    assert!(quota.has_place(&3) && !quota.has_place(&4));
}

thread_local! {
    static COMPARISONS: Cell<usize> = const { Cell::new(0) };
}

/// A key that counts how often it is compared.
#[derive(Clone, Debug, Eq)]
struct CountedKey(usize);

impl PartialEq for CountedKey {
    fn eq(&self, other: &Self) -> bool {
        COMPARISONS.set(COMPARISONS.get() + 1);
        self.0 == other.0
    }
}

impl Hash for CountedKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

/// The most comparisons of keys that a step takes where so many kubeconfigs of a namespace wait.
fn dearest_step(waiters: usize) -> usize {
    let (mut quota, now) = (ClusterQuota::new(5, 8), Instant::now());
    let mut dearest = 0;
    let mut step = |act: &mut dyn FnMut()| {
        COMPARISONS.set(0);
        act();
        dearest = dearest.max(COMPARISONS.get());
    };
    for n in 0..waiters {
        step(&mut || {
            quota.request("flood", &CountedKey(n), now);
        });
        step(&mut || assert_eq!(quota.hand_over(now), None));
    }
    for n in 0..5 {
        step(&mut || quota.set_spare(&CountedKey(n), true, now));
        step(&mut || assert!(quota.hand_over(now).is_some()));
        step(&mut || quota.enqueue("flood", &CountedKey(n), now + Duration::from_secs(300)));
    }
    for n in (0..waiters).rev() {
        step(&mut || {
            quota.release(&CountedKey(n));
        });
    }
    dearest
}

/// Holds: K13.
#[test]
fn no_step_looks_at_all_that_wait() {
    let (few, many) = (dearest_step(20), dearest_step(20_000));
    assert!(
        few > 0 && many < few + 16,
        "a thousand times the waiters: {few} and {many}"
    );
}

/// The same quota, written so that it is plain: each step looks at all that wait.
#[derive(Debug)]
struct PlainQuota {
    each: usize,
    all: usize,
    /// Key, namespace, and since when the place is spare.
    holders: Vec<(u8, String, Option<Instant>)>,
    /// Key, namespace, and before when no spare place is handed over.
    waiting: VecDeque<(u8, String, Instant)>,
}

impl PlainQuota {
    fn taken_by(&self, namespace: &str) -> usize {
        let of_namespace = |holder: &&(u8, String, Option<Instant>)| holder.1 == namespace;
        self.holders.iter().filter(of_namespace).count()
    }

    fn is_free(&self, namespace: &str) -> bool {
        self.taken_by(namespace) < self.each && self.holders.len() < self.all
    }

    fn request(&mut self, namespace: &str, key: u8, now: Instant) -> bool {
        if self.holders.iter().any(|holder| holder.0 == key) {
            return true;
        }
        if self.waiting.iter().any(|waiter| waiter.0 == key) {
            return false;
        }
        let is_free = self.is_free(namespace);
        if is_free {
            self.holders.push((key, namespace.to_owned(), None));
        } else {
            self.waiting.push_back((key, namespace.to_owned(), now));
        }
        is_free
    }

    fn hand_over(&mut self, now: Instant) -> Option<QuotaHandover<u8>> {
        let (at, gone) = self.waiting.iter().enumerate().find_map(|(at, waiter)| {
            let is_full = self.taken_by(&waiter.1) >= self.each;
            let spare = self
                .holders
                .iter()
                .filter(|holder| !is_full || holder.1 == waiter.1);
            let spare = spare.filter_map(|holder| Some((holder.2?, holder.0)));
            let gone = spare.min().filter(|_| waiter.2 <= now)?;
            Some((at, gone.1))
        })?;
        let (next, namespace, _) = self.waiting.remove(at)?;
        self.holders.retain(|holder| holder.0 != gone);
        self.holders.push((next, namespace, None));
        Some(QuotaHandover { gone, next })
    }

    fn release(&mut self, key: u8) -> Option<u8> {
        self.waiting.retain(|waiter| waiter.0 != key);
        let before = self.holders.len();
        self.holders.retain(|holder| holder.0 != key);
        if self.holders.len() == before {
            return None;
        }
        let at = self.waiting.iter().position(|waiter| self.is_free(&waiter.1))?;
        let (next, namespace, _) = self.waiting.remove(at)?;
        self.holders.push((next, namespace, None));
        Some(next)
    }
}

/// A step; keys are of the namespace of their last digit but one.
#[derive(Clone, Debug)]
enum Step {
    Request(u8),
    Spare(u8, bool),
    HandOver,
    /// A handover whose former holder queues again and waits so long.
    HandOverAgain(u64),
    Release(u8),
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..40_u8).prop_map(Step::Request),
        3 => ((0..40_u8), any::<bool>()).prop_map(|(key, is_spare)| Step::Spare(key, is_spare)),
        1 => Just(Step::HandOver),
        2 => (0..20_u64).prop_map(Step::HandOverAgain),
        1 => (0..40_u8).prop_map(Step::Release),
        1 => (0..20_u64).prop_map(Step::Pass),
    ]
}

fn namespace(key: u8) -> String {
    format!("team-{}", key / 10)
}

proptest! {
    #[test]
    fn places_go_to_whom_a_look_at_all_that_wait_finds(story in prop::collection::vec(steps(), 1..200)) {
        let (mut quota, mut now) = (ClusterQuota::new(3, 6), Instant::now());
        let mut plain = PlainQuota { each: 3, all: 6, holders: Vec::new(), waiting: VecDeque::new() };
        for step in story {
            // No two places are spare since the same time.
            now += Duration::from_nanos(1);
            match step {
                Step::Request(key) => {
                    let of = namespace(key);
                    prop_assert_eq!(quota.request(&of, &key, now), plain.request(&of, key, now));
                }
                Step::Spare(key, is_spare) => {
                    quota.set_spare(&key, is_spare, now);
                    for holder in plain.holders.iter_mut().filter(|holder| holder.0 == key) {
                        holder.2 = is_spare.then(|| holder.2.unwrap_or(now));
                    }
                }
                Step::HandOver => prop_assert_eq!(quota.hand_over(now), plain.hand_over(now)),
                Step::HandOverAgain(seconds) => {
                    let handover = quota.hand_over(now);
                    prop_assert_eq!(&handover, &plain.hand_over(now));
                    if let Some(QuotaHandover { gone, .. }) = handover {
                        let again = now + Duration::from_secs(seconds);
                        quota.enqueue(&namespace(gone), &gone, again);
                        plain.waiting.push_back((gone, namespace(gone), again));
                    }
                }
                Step::Release(key) => prop_assert_eq!(quota.release(&key), plain.release(key)),
                Step::Pass(seconds) => now += Duration::from_secs(seconds),
            }
            for key in 0..40_u8 {
                prop_assert_eq!(quota.has_place(&key), plain.holders.iter().any(|holder| holder.0 == key));
            }
            let due = plain.waiting.iter().map(|waiter| waiter.2).filter(|time| *time > now).min();
            prop_assert_eq!(quota.due(now), due);
        }
    }
}
