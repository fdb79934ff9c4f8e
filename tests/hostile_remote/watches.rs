//! Watches of Jobs: what is true is told, what is forged is not, and no server makes the hub work without end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use renderhub::apply::CallError;
use renderhub::cluster::WatchEnd;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    BOTH, CANARY, NAMESPACE, cluster, event, job, link, link_with, list, short, told, while_others_work,
};

/// Parts that come, and then none for ever.
fn then_quiet(parts: Vec<Bytes>) -> Reply {
    Reply::parts(stream::iter(parts).chain(stream::pending()))
}

#[tokio::test]
async fn jobs_are_listed_and_then_watched_from_there() {
    for http in BOTH {
        let mut ended = job("t1", "j1", 102);
        ended["metadata"]["managedFields"] =
            json!([{"fieldsV1": {"f:status": {"f:conditions": {}, "f:completionTime": {}}}}]);
        let mut failing = job("t2", "j2", 104);
        failing["metadata"]["managedFields"] =
            json!([{"fieldsV1": {"f:spec": {}}}, {"fieldsV1": {"f:status": {"f:conditions": {}}}}]);
        let parts = vec![
            event("ADDED", &job("t2", "j2", 101)),
            event("BOOKMARK", &json!({"metadata": {"resourceVersion": "101"}})),
            event("MODIFIED", &ended),
        ];
        let server = cluster(http, vec![job("t1", "j1", 99)], move |target| {
            assert!(
                target.contains("resourceVersion=100") && target.contains("allowWatchBookmarks=true"),
                "{target}"
            );
            assert_eq!(
                target.contains("timeoutSeconds=45"),
                http == Http::One,
                "{target}"
            );
            then_quiet(
                [
                    parts.clone(),
                    vec![event("MODIFIED", &failing), event("DELETED", &ended)],
                ]
                .concat(),
            )
        })
        .await;
        let (all, _) = told(&link(&server), 6).await;
        let before = ["restart", "t1 is j1 No", "synced"];
        assert_eq!(all[..3], before);
        // One Job's changes may be told as one.
        assert!(
            all.contains(&"t2 is j2 Soon".to_owned()) && all.contains(&"t1 is gone".to_owned()),
            "{all:?}"
        );
        let target = &server.asked()[0].target;
        assert!(
            target.starts_with(&format!(
                "/apis/batch/v1/namespaces/{NAMESPACE}/jobs?labelSelector="
            )),
            "{target}"
        );
        assert!(
            target.contains("hub-id%3Dmain-0f5a4e0c") && target.contains("limit=500"),
            "{target}"
        );
    }
}
