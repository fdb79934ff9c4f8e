//! When a task whose cluster is not reached is given up, and when a process that has just started may do so.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::remote::{lose, running, to_east, to_own};
use super::*;

/// As after `--single-tenant` was taken away: the task named no ServiceAccount, and needs one now.
#[test]
fn a_task_that_runs_where_the_hub_may_not_look_any_more_does_not_wait_for_ever() {
    let denied = |started: i64| {
        let spec = spec_with(json!({
            "kubeConfig": {"secretRef": {"name": "edge"}}, "deploymentNamespace": "renders",
        }));
        running(to_own()).with(|s| {
            let status = s.task.status.clone();
            (s.task, s.site) = (task_of(spec), None);
            s.task.status = status;
            s.task.status.start_time = Some(Time(at(started)));
        })
    };
    let target = denied(10).ask(|o| o.target.cloned());
    assert!(matches!(target, Some(Err(_))), "{target:?}");
    assert_eq!(denied(10).label(), "rest until 910 for its cluster");
    assert_eq!(denied(-900).label(), "write Failed JobLost");
}

/// As after a hub was away for long: the ledger has an old loss, and the cluster may be back.
#[test]
fn nothing_is_given_up_before_a_process_could_try_the_cluster() {
    let known = |since, reason, known| {
        running(to_east()).with(|s| {
            lose(s, since, reason);
            s.times.known_since = at(known);
        })
    };
    let deleted = |situation: Situation| {
        situation.with(|s| {
            (s.task.deleting, s.task.deleted_at) = (true, Some(at(-700)));
            s.leftovers = RemoteLeftovers::Possible;
        })
    };
    let table = vec![
        (
            known(-900, Reason::Connecting, 95),
            "rest until 155 for its cluster",
        ),
        (known(-900, Reason::Connecting, 40), "write Failed JobLost"),
        (known(-900, Reason::Unreachable, 95), "write Failed JobLost"),
        (
            known(90, Reason::Connecting, 90),
            "rest until 990 for its cluster",
        ),
        (
            deleted(known(-900, Reason::Connecting, 95)),
            "rest until 155 for its cluster",
        ),
        (deleted(known(-900, Reason::Connecting, 40)), "abandon"),
        (deleted(known(-900, Reason::Unreachable, 95)), "abandon"),
        (
            deleted(known(-900, Reason::Connecting, 95))
                .with(|s| s.timeouts.orphan_grace = k8s_openapi::jiff::SignedDuration::ZERO),
            "abandon",
        ),
    ];
    for (n, (situation, expected)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), expected, "{n}");
    }
}
