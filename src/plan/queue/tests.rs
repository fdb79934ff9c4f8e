//! The rules of the queue: caps, order, and no starvation.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;

mod model;
mod shares;
mod steps;

const CAPS: ConcurrencyLimits = ConcurrencyLimits {
    total: 5,
    per_namespace: 3,
};

fn uid(n: usize) -> TaskUid {
    TaskUid::new(&format!("u{n:04}"))
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn ticket<'a>(namespace: &'a str, second: i64, uid: &'a TaskUid) -> QueuedTask<'a> {
    QueuedTask {
        namespace,
        created: at(second),
        uid,
        cluster: None,
    }
}

/// Holds: D1.
#[test]
fn a_flood_in_one_namespace_does_not_delay_another() {
    let mut queue = FairQueue::new(CAPS);
    for n in 0..1000 {
        queue.wait(ticket("a", 0, &uid(n)));
    }
    queue.wait(ticket("b", 9, &uid(5000)));
    let first_two = [queue.grant(), queue.grant()];
    assert!(first_two.contains(&Some(uid(5000))), "{first_two:?}");
}

/// The flood comes so slowly at first that no task waits in between, which makes all times equal.
#[test]
fn where_times_are_equal_who_has_less_at_work_goes_first() {
    let mut queue = FairQueue::new(ConcurrencyLimits { total: 2, ..CAPS });
    for n in 0..2 {
        queue.wait(ticket("flood", 1, &uid(n)));
        assert_eq!(queue.grant(), Some(uid(n)));
    }
    for n in 2..9 {
        queue.wait(ticket("flood", 2, &uid(n)));
    }
    queue.wait(ticket("calm", 9, &uid(9)));
    queue.remove("flood", at(0), &uid(0));
    assert_eq!(queue.grant(), Some(uid(9)));
    // As after a restart, when the last slot is unknown.
    let mut queue = FairQueue::new(ConcurrencyLimits { total: 3, ..CAPS });
    for n in 0..2 {
        queue.adopt(ticket("flood", 1, &uid(n)));
    }
    queue.wait(ticket("flood", 2, &uid(2)));
    queue.wait(ticket("calm", 9, &uid(9)));
    assert_eq!(queue.grant(), Some(uid(9)));
}

#[test]
fn inside_a_namespace_the_oldest_goes_first() {
    let mut queue = FairQueue::new(CAPS);
    for (n, second) in [(1, 30), (2, 10), (3, 20)] {
        queue.wait(ticket("a", second, &uid(n)));
    }
    assert_eq!(
        [queue.grant(), queue.grant(), queue.grant()],
        [Some(uid(2)), Some(uid(3)), Some(uid(1))]
    );
}

#[test]
fn a_full_namespace_gets_its_turn_back_when_a_task_leaves() {
    let mut queue = FairQueue::new(ConcurrencyLimits {
        total: 9,
        per_namespace: 1,
    });
    queue.wait(ticket("a", 0, &uid(1)));
    queue.wait(ticket("a", 1, &uid(2)));
    assert_eq!(queue.grant(), Some(uid(1)));
    assert_eq!(queue.grant(), None);
    queue.remove("a", at(0), &uid(1));
    assert_eq!(queue.grant(), Some(uid(2)));
}

const CLUSTER_CAPS: [(&str, usize); 2] = [("east", 2), ("west", 1)];

/// A third of the tasks goes to each cluster, a third to none.
fn on_cluster<'a>(namespace: &'a str, task: usize, uid: &'a TaskUid) -> QueuedTask<'a> {
    QueuedTask {
        cluster: [None, Some("east"), Some("west")][task % 3],
        ..ticket(namespace, 0, uid)
    }
}

fn running_on(queue: &FairQueue, cluster: &str) -> usize {
    let found = queue.running_on().find(|(name, _)| &***name == cluster);
    found.map_or(0, |(_, running)| running)
}

#[test]
fn a_full_cluster_holds_up_only_those_who_go_there() {
    let mut queue = FairQueue::new(ConcurrencyLimits {
        total: 9,
        per_namespace: 5,
    });
    queue.set_cap("east", Some(1));
    let uids: Vec<_> = (0..4).map(uid).collect();
    let east = |n: usize| QueuedTask {
        cluster: Some("east"),
        ..ticket("a", i64::try_from(n).unwrap(), &uids[n])
    };
    for n in 0..3 {
        queue.wait(east(n));
    }
    queue.wait(ticket("a", 3, &uids[3]));
    assert_eq!(
        [queue.grant(), queue.grant(), queue.grant()],
        [Some(uid(0)), Some(uid(3)), None]
    );
    assert_eq!((queue.len(), running_on(&queue, "east")), ((2, 2), 1));
    queue.wait(east(1));
    assert_eq!(queue.len(), (2, 2), "who is parked is in line already");
    queue.remove("a", at(0), &uid(0));
    assert_eq!([queue.grant(), queue.grant()], [Some(uid(1)), None]);
    queue.set_cap("east", None);
    assert_eq!(
        queue.grant(),
        Some(uid(2)),
        "a cap that is lifted lets them go on"
    );
    for n in [1, 2, 3] {
        queue.remove("a", at(i64::try_from(n).unwrap()), &uid(n));
    }
    assert_eq!((queue.len(), queue.running_on().count()), ((0, 0), 0));
}
