//! What a tenant names in a task is forgotten with the task, however many names there were.

use allocation_counter::measure;

use super::super::super::task_record::StartBlocker;
use super::*;

/// Tasks that come and go, each with names of its own.
const TASKS: usize = 200_000;
/// Tasks of which the memory is compared.
const BATCH: usize = 10_000;

/// A spec that names a cluster, a namespace of a registry and a ServiceAccount that no other does.
fn naming(n: usize) -> Value {
    let mut spec = json!({
        "config": {"type": "slides"}, "repository": "a", "tag": "1", "serviceAccountName": format!("account-{n}"),
        "registryRef": {"kind": "Registry", "name": "main", "namespace": format!("registries-{n}")},
    });
    if n.is_multiple_of(2) {
        spec["clusterName"] = json!(format!("cluster-{n}"));
    } else {
        spec["kubeConfig"] =
            json!({"secretRef": {"name": format!("cluster-{n}"), "namespace": format!("secrets-{n}")}});
        spec["deploymentNamespace"] = json!(format!("there-{n}"));
    }
    spec
}

/// A task with these names, made from one that has others: reading each from JSON would take most of the test's time.
fn renamed(like: &[Task; 2], n: usize) -> Task {
    let mut task = like[n % 2].clone();
    task.id.uid = TaskUid::new(&format!("t{n}"));
    let spec = Arc::make_mut(&mut task.decoded).spec.as_mut().expect("a spec");
    spec.service_account_name = Some(format!("account-{n}"));
    spec.cluster_name = spec.cluster_name.as_ref().map(|_| format!("cluster-{n}"));
    spec.deployment_namespace = spec.deployment_namespace.as_ref().map(|_| format!("there-{n}"));
    if let Some(config) = &mut spec.kube_config {
        config.secret_ref.name = format!("cluster-{n}");
        config.secret_ref.namespace = Some(format!("secrets-{n}"));
    }
    task
}

/// A task comes, waits for the tenant of another namespace, and goes.
fn come_and_go(index: &mut TaskIndex, task: Task, n: usize) {
    let uid = task.id.uid.clone();
    _ = index.see_task(&all(), task, &key());
    let namespace = index.intern(&format!("registries-{n}"));
    index.block(&uid, StartBlocker::ByTenant(namespace));
    assert!(
        index
            .task(&uid)
            .is_some_and(|record| record.remote.target.is_some())
    );
    index.forget_task(&uid);
}

/// Holds: B6.
#[test]
fn names_go_with_their_last_task() {
    let mut index = TaskIndex::default();
    let like = [0, 1].map(|n| task("t", 7, naming(n), Value::Null));
    let mut next = 0;
    let mut batch = || {
        let info =
            measure(|| (0..BATCH).for_each(|n| come_and_go(&mut index, renamed(&like, next + n), next + n)));
        next += BATCH;
        info.bytes_current
    };
    // The first has the tables grow to their size.
    batch();
    let slopes: Vec<_> = (1..TASKS / BATCH).map(|_| batch()).collect();
    let most = slopes.iter().max().copied().unwrap();
    println!("{most} bytes more after {BATCH} tasks, at the most");
    assert!(most < 1 << 20, "{slopes:?}");
    assert_eq!((index.targets.len(), index.namespaces.len()), (0, 0));
    assert_eq!((index.tasks.len(), index.kept_bytes), (0, 0));
}

/// Holds: B6.
#[test]
fn a_name_stays_while_another_task_has_it_and_goes_when_the_task_names_another() {
    let mut index = TaskIndex::default();
    for uid in ["a", "b"] {
        assert!(see(&mut index, task(uid, 7, naming(0), Value::Null)));
    }
    assert_eq!((index.targets.len(), index.namespaces.len()), (1, 1));
    index.forget_task(&TaskUid::new("a"));
    assert_eq!((index.targets.len(), index.namespaces.len()), (1, 1));
    assert!(see(&mut index, task("b", 8, naming(1), Value::Null)));
    assert_eq!(index.targets.len(), 1, "the spec names another");
    index.forget_task(&TaskUid::new("b"));
    assert_eq!((index.targets.len(), index.namespaces.len()), (0, 0));
}
