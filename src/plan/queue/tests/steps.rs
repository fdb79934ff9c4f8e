//! How much work a step is, counted and not timed.

use super::cluster_queues::comparisons;
use super::*;

/// The dearest of every kind of step in a queue in which tasks of so many namespaces wait for two full clusters and for none.
fn dearest_step(namespaces: usize, tasks: usize) -> usize {
    let mut queue = FairQueue::new(ConcurrencyLimits {
        total: namespaces * tasks,
        per_namespace: tasks.div_ceil(3),
    });
    for (cluster, _) in CLUSTER_CAPS {
        queue.set_cap(cluster, Some(1));
    }
    let uids: Vec<TaskUid> = (0..namespaces * tasks).map(uid).collect();
    let names: Vec<String> = (0..namespaces).map(|n| format!("ns{n}")).collect();
    let mut dearest = 0;
    let mut step = |cost: usize| dearest = dearest.max(cost);
    for (n, uid) in uids.iter().enumerate() {
        let ticket = on_cluster(&names[n % namespaces], n / namespaces, uid);
        step(comparisons::of(|| queue.wait(ticket)));
    }
    // All slots, so that tasks of all namespaces are left before the full clusters.
    let mut goes_on = true;
    while goes_on {
        step(comparisons::of(|| goes_on = queue.grant().is_some()));
    }
    assert!(queue.len().0 > namespaces, "a key waits in every namespace");
    // A cluster that gets room, loses it, and whose tasks leave one by one.
    step(comparisons::of(|| queue.set_cap("east", Some(3))));
    step(comparisons::of(|| queue.set_cap("west", None)));
    step(comparisons::of(|| queue.set_cap("west", Some(0))));
    for (n, uid) in uids.iter().enumerate() {
        step(comparisons::of(|| {
            queue.remove(&names[n % namespaces], at(0), uid);
        }));
        step(comparisons::of(|| queue.grant()));
    }
    dearest
}

/// Holds: D1.
#[test]
fn a_step_grows_with_the_logarithm_of_namespaces_and_tasks() {
    let (few, many) = (dearest_step(20, 6), dearest_step(5_000, 6));
    assert!(
        few > 0 && many < 4 * few,
        "250 times the namespaces: {few} and {many}"
    );
    let long = dearest_step(20, 1_500);
    assert!(long < 4 * few, "250 times the tasks: {few} and {long}");
}
