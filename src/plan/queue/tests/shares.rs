//! How slots are shared: by weight, within one slot, with no credit for idle namespaces.

use std::collections::BTreeMap;

use crate::api::QueuePolicySpec;

use super::*;

/// So many that no cap binds.
const ROOMY: ConcurrencyLimits = ConcurrencyLimits {
    total: 1_000_000,
    per_namespace: 1_000_000,
};

fn name(n: usize) -> String {
    format!("ns{n}")
}

pub fn weights(of: &[u32]) -> Arc<NamespaceWeights> {
    let policies: Vec<_> = of
        .iter()
        .enumerate()
        .map(|(n, weight)| QueuePolicySpec {
            namespaces: vec![name(n)],
            weight: i32::try_from(*weight).unwrap(),
        })
        .collect();
    Arc::new(NamespaceWeights::new(&policies))
}

/// The namespace of a task made by [`fill`].
fn owner(task: &TaskUid) -> usize {
    task.as_str()[1..].parse::<usize>().unwrap() / 10_000
}

/// Puts so many tasks of a namespace in line.
fn fill(queue: &mut FairQueue, namespace: usize, tasks: usize) {
    for n in 0..tasks {
        queue.wait(ticket(&name(namespace), 0, &uid(namespace * 10_000 + n)));
    }
}

#[test]
fn three_namespaces_share_as_their_weights_say() {
    let mut queue = FairQueue::new(ROOMY);
    queue.set_weights(weights(&[3, 1, 1]));
    for n in 0..3 {
        fill(&mut queue, n, 100);
    }
    let turns: Vec<usize> = (0..10).map(|_| owner(&queue.grant().unwrap())).collect();
    assert_eq!(
        turns,
        [0, 1, 2, 0, 0, 0, 1, 2, 0, 0],
        "as the page about the queue has it"
    );
}

#[test]
fn who_was_away_collects_no_credit_and_who_comes_and_goes_wins_none() {
    let mut queue = FairQueue::new(ROOMY);
    fill(&mut queue, 0, 200);
    fill(&mut queue, 1, 1);
    for _ in 0..100 {
        queue.grant();
    }
    // It had one slot of a hundred, and is back with many tasks.
    fill(&mut queue, 1, 50);
    let turns: Vec<usize> = (0..20).map(|_| owner(&queue.grant().unwrap())).collect();
    let back = turns.iter().filter(|owner| **owner == 1).count();
    assert!(
        (10..=11).contains(&back),
        "half of the turns, not all of them: {turns:?}"
    );
    // A third one asks for one task at a time, and is gone in between.
    let (mut turns, mut is_there, mut asked) = (Vec::new(), false, 0);
    while turns.len() < 30 {
        if !is_there {
            queue.wait(ticket("ns2", 0, &uid(2 * 10_000 + asked)));
            (is_there, asked) = (true, asked + 1);
        }
        let next = queue.grant().unwrap();
        if owner(&next) == 2 {
            queue.remove("ns2", at(0), &next);
            is_there = false;
        }
        turns.push(owner(&next));
    }
    let third = turns.iter().filter(|owner| **owner == 2).count();
    assert!((9..=11).contains(&third), "a third of the turns: {turns:?}");
}

/// Gives the first namespace so many slots, each when one of its tasks leaves.
fn turns_of_first(queue: &mut FairQueue, running: &mut VecDeque<TaskUid>, turns: usize) {
    for _ in 0..turns {
        queue.remove(&name(0), at(0), &running.pop_front().unwrap());
        let next = queue.grant().unwrap();
        assert_eq!(owner(&next), 0, "the others are full or away");
        running.push_back(next);
    }
}

#[test]
fn a_namespace_that_comes_back_goes_by_the_age_of_its_task() {
    let mut queue = FairQueue::new(ConcurrencyLimits {
        total: 100,
        per_namespace: 2,
    });
    // After its slots the last one is much further behind than the other, in virtual time.
    queue.set_weights(weights(&[1, 1, 100]));
    fill(&mut queue, 0, 200);
    fill(&mut queue, 1, 2);
    fill(&mut queue, 2, 2);
    let (younger, older) = (uid(20_008), uid(10_009));
    queue.wait(ticket(&name(2), 9, &younger));
    queue.wait(ticket(&name(1), 3, &older));
    let granted: Vec<TaskUid> = (0..6).map(|_| queue.grant().unwrap()).collect();
    let mut running = granted.into_iter().filter(|uid| owner(uid) == 0).collect();
    // Both were full.
    turns_of_first(&mut queue, &mut running, 50);
    for n in [2, 1] {
        queue.remove(&name(n), at(0), &uid(n * 10_000));
    }
    assert_eq!([queue.grant(), queue.grant()], [Some(older), Some(younger)]);
    // Both had nothing to ask for.
    for n in [2, 1] {
        queue.remove(&name(n), at(0), &uid(n * 10_000 + 1));
    }
    turns_of_first(&mut queue, &mut running, 50);
    let (younger, older) = (uid(20_003), uid(10_004));
    queue.wait(ticket(&name(2), 9, &younger));
    queue.wait(ticket(&name(1), 3, &older));
    assert_eq!([queue.grant(), queue.grant()], [Some(older), Some(younger)]);
}

#[test]
fn a_cluster_that_was_full_is_no_credit_elsewhere() {
    let mut queue = FairQueue::new(ROOMY);
    queue.set_cap("east", Some(0));
    let east = uid(99);
    let waits = QueuedTask {
        cluster: Some("east"),
        ..ticket("ns0", 0, &east)
    };
    queue.wait(waits);
    fill(&mut queue, 1, 200);
    for _ in 0..100 {
        queue.grant();
    }
    fill(&mut queue, 0, 50);
    queue.set_cap("east", None);
    let turns: Vec<usize> = (0..20).map(|_| owner(&queue.grant().unwrap())).collect();
    let late = turns.iter().filter(|owner| **owner == 0).count();
    assert!((10..=11).contains(&late), "{turns:?}");
}

#[test]
fn weights_change_while_tasks_wait() {
    let mut queue = FairQueue::new(ROOMY);
    for n in 0..2 {
        fill(&mut queue, n, 500);
    }
    let share = |queue: &mut FairQueue| (0..100).filter(|_| owner(&queue.grant().unwrap()) == 0).count();
    assert_eq!(share(&mut queue), 50);
    queue.set_weights(weights(&[4, 1]));
    assert!((79..=81).contains(&share(&mut queue)));
    queue.set_weights(weights(&[1, 100]));
    assert!((0..=2).contains(&share(&mut queue)));
}

#[test]
fn nothing_is_remembered_of_namespaces_that_are_done() {
    let mut queue = FairQueue::new(CAPS);
    for n in 0..100 {
        fill(&mut queue, n, 2);
    }
    while let Some(next) = queue.grant() {
        queue.remove(&name(owner(&next)), at(0), &next);
    }
    assert_eq!(
        (queue.lanes.len(), queue.ahead.len(), queue.len()),
        (0, 0, (0, 0))
    );
    assert_eq!(queue.running_on().count(), 0);
}

#[test]
fn the_depth_of_a_namespace_is_what_waits_in_it() {
    let mut queue = FairQueue::new(CAPS);
    queue.set_cap("east", Some(0));
    let tasks = [uid(1), uid(2), uid(3)];
    queue.wait(ticket("a", 30, &tasks[0]));
    queue.wait(QueuedTask {
        cluster: Some("east"),
        ..ticket("a", 20, &tasks[1])
    });
    queue.wait(ticket("b", 10, &tasks[2]));
    let depths = |queue: &FairQueue| -> BTreeMap<String, (usize, Timestamp)> {
        let all = queue.depths();
        all.map(|(name, depth)| (name.to_string(), (depth.tasks, depth.oldest)))
            .collect()
    };
    let expected = [("a".to_owned(), (2, at(20))), ("b".to_owned(), (1, at(10)))];
    assert_eq!(depths(&queue), BTreeMap::from(expected));
    while queue.grant().is_some() {}
    assert_eq!(depths(&queue), BTreeMap::from([("a".to_owned(), (1, at(20)))]));
}

/// Tasks of namespaces: which, when made, and whether its Job runs already.
fn tasks() -> impl Strategy<Value = Vec<(usize, i64, bool)>> {
    prop::collection::vec((0..5_usize, 0..20_i64, prop::bool::weighted(0.1)), 1..60)
}

/// The order of all slots when the tasks are added in this order; the oldest running task leaves when none may run.
fn turns(tasks: &[(usize, i64, bool)], order: &[usize]) -> Vec<TaskUid> {
    let mut queue = FairQueue::new(CAPS);
    queue.set_weights(weights(&[1, 2, 3, 50, 100]));
    for (cluster, cap) in CLUSTER_CAPS {
        queue.set_cap(cluster, Some(cap));
    }
    let mut running = VecDeque::new();
    for n in order {
        let (namespace, second, runs) = tasks[*n];
        let (uid, namespace) = (uid(*n), name(namespace));
        let ticket = QueuedTask {
            created: at(second),
            ..on_cluster(&namespace, *n, &uid)
        };
        if runs {
            queue.adopt(ticket);
        } else {
            queue.wait(ticket);
        }
    }
    running.extend((0..tasks.len()).filter(|n| tasks[*n].2));
    let mut turns = Vec::new();
    loop {
        if let Some(next) = queue.grant() {
            running.push_back(next.as_str()[1..].parse().unwrap());
            turns.push(next);
        } else if let Some(n) = running.pop_front() {
            queue.remove(&name(tasks[n].0), at(tasks[n].1), &uid(n));
        } else {
            assert_eq!(queue.len(), (0, 0));
            return turns;
        }
    }
}

proptest! {
    /// With tasks waiting in all of them, no two namespaces differ by more than one slot, and each task has its slot before the
    /// others had more than their share, and one.
    ///
    /// Holds: D1.
    #[test]
    fn slots_are_shared_by_weight_within_one_and_none_waits_longer(
        of in prop::collection::vec(1..=HEAVIEST, 2..8),
        rounds in 1..150_usize,
    ) {
        let mut queue = FairQueue::new(ROOMY);
        queue.set_weights(weights(&of));
        for n in 0..of.len() {
            fill(&mut queue, n, rounds);
        }
        let mut had = vec![0_u64; of.len()];
        for _ in 0..rounds {
            let next = owner(&queue.grant().unwrap());
            for other in 0..of.len() {
                // In slots of the other, times both weights: how far this one is before it takes its slot.
                let (mine, theirs) = (had[next] * u64::from(of[other]), had[other] * u64::from(of[next]));
                prop_assert!(mine <= theirs, "the one that is behind goes first");
            }
            had[next] += 1;
            for (a, b) in (0..of.len()).flat_map(|a| (0..of.len()).map(move |b| (a, b))) {
                let share = had[a] * u64::from(of[b]);
                let others = had[b] * u64::from(of[a]);
                prop_assert!(share <= others + u64::from(of[a].max(of[b])), "{had:?} of {of:?}");
            }
        }
    }

    #[test]
    fn the_order_after_a_restart_does_not_depend_on_the_order_of_arrival(
        (tasks, order) in tasks().prop_flat_map(|tasks| {
            let order: Vec<usize> = (0..tasks.len()).collect();
            (Just(tasks), Just(order).prop_shuffle())
        }),
    ) {
        let in_order: Vec<usize> = (0..tasks.len()).collect();
        prop_assert_eq!(turns(&tasks, &order), turns(&tasks, &in_order));
    }
}
