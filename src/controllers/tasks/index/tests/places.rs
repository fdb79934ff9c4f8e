//! Whose a Job is, by where it was seen.

use std::sync::Arc;

use super::*;
use crate::plan::remote::site::{ClusterName, Site};

fn site(cluster: &str) -> JobLocation {
    let namespace = "renders".to_owned();
    let cluster = ClusterName::Platform(cluster.to_owned());
    JobLocation::from(Arc::new(Site { cluster, namespace }))
}

fn spec_for(cluster: Option<&str>) -> Value {
    let mut spec = spec(10);
    spec["config"] = json!({"type": "slides"});
    if let Some(cluster) = cluster {
        spec["clusterName"] = json!(cluster);
    }
    spec
}

/// Holds: H5.
#[test]
fn only_where_a_task_runs_its_job_is_believed_in() {
    let now = Instant::now();
    for (cluster, origin, is_its) in [
        (Some("east"), site("east"), true),
        (Some("east"), site("west"), false),
        (Some("east"), None, false),
        (None, None, true),
        (None, site("east"), false),
    ] {
        for is_task_first in [true, false] {
            let mut index = TaskIndex::default();
            let show =
                |index: &mut TaskIndex| assert!(see(index, task(TASK, 7, spec_for(cluster), Value::Null)));
            if is_task_first {
                show(&mut index);
            }
            let look = index.see_job(&origin, job("j1", CompletionHint::No), now);
            assert_eq!(look.is_some(), is_its && is_task_first);
            if !is_task_first {
                show(&mut index);
            }
            assert_eq!(index.has_job(&uid()), is_its, "{cluster:?} {origin:?}");
            assert_eq!(index.unassigned_jobs(&origin).count(), usize::from(!is_its));
            assert_eq!(index.remove_job(&origin, &uid()), is_its, "nor is its end");
            assert_eq!(
                (index.has_job(&uid()), index.unassigned_jobs(&origin).count()),
                (false, 0)
            );
        }
    }
}

#[test]
fn a_job_whose_task_is_gone_is_unassigned_where_it_is() {
    let now = Instant::now();
    let mut index = TaskIndex::default();
    assert!(see(
        &mut index,
        task(TASK, 7, spec_for(Some("east")), Value::Null)
    ));
    index.see_job(&site("east"), job("j1", CompletionHint::No), now);
    index.forget_task(&uid());
    assert_eq!(index.unassigned_jobs(&site("east")).count(), 1);
    assert_eq!(
        (
            index.unassigned_jobs(&site("west")).count(),
            index.unassigned_jobs(&None).count()
        ),
        (0, 0)
    );
    index.restart_jobs(&site("east"));
    assert_eq!(index.vanished_jobs(&site("east")), [uid()]);
    assert_eq!(index.vanished_jobs(&site("west")), []);
    index.forget_unassigned(&site("east"));
    assert_eq!(index.unassigned_jobs(&site("east")).count(), 0);
}

#[test]
fn a_quiet_job_on_another_cluster_is_not_read_by_the_clock() {
    let now = Instant::now();
    for (cluster, origin) in [(Some("east"), site("east")), (None, None)] {
        let mut index = TaskIndex::default();
        assert!(see(&mut index, task(TASK, 7, spec_for(cluster), Value::Null)));
        index.see_job(&origin, job("j1", CompletionHint::No), now);
        assert_eq!(index.read_due(&uid()).is_some(), origin.is_none());
        index.see_job(&origin, job("j1", CompletionHint::Now), now);
        assert_eq!(index.read_due(&uid()), Some(now));
    }
}
