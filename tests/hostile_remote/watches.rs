//! Watches of Jobs: what is true is sent on, what is forged is not, and no server makes the hub work without end.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::{StreamExt as _, stream};
use renderhub::kubernetes::apply::CallError;
use renderhub::remote::client::WatchEnd;
use renderhub_harness::Hostile;
use renderhub_harness::hostile::{Http, Reply};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::support::{
    BOTH, CANARY, NAMESPACE, changes_seen, cluster, ended, event, job, link, link_with, list, short, uid,
    while_others_work,
};

/// Makes a reply.
type Says = fn() -> Reply;

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
        let (all, _) = changes_seen(&link(&server), |all| {
            let has = |end: &str| all.iter().any(|line| line.ends_with(end));
            has("gone") && has("Soon")
        })
        .await;
        let before = ["restart", "t1 is j1 No", "synced"];
        assert_eq!(all[..3], before);
        // One Job's changes may be merged.
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

/// Holds: H4, H5.
#[tokio::test]
async fn what_is_foreign_or_cannot_be_true_is_not_sent_on() {
    type Forge = fn(&mut Value);
    let forged: [Forge; 12] = [
        |job| job["metadata"]["labels"]["renderhub.dev/hub-id"] = json!("other-0f5a4e0c"),
        |job| job["metadata"]["labels"]["app.kubernetes.io/managed-by"] = json!("somebody"),
        |job| job["metadata"]["labels"]["renderhub.dev/task-uid"] = json!(uid("t2")),
        |job| job["metadata"]["labels"]["renderhub.dev/task-uid"] = json!("t".repeat(70_000)),
        |job| job["metadata"]["labels"] = Value::Null,
        |job| job["metadata"]["namespace"] = json!("kube-system"),
        |job| job["metadata"]["name"] = json!("render-shop-canary"),
        |job| job["metadata"]["uid"] = json!(CANARY),
        |job| job["metadata"]["uid"] = json!("u".repeat(65)),
        |job| job["metadata"]["uid"] = json!(""),
        |job| job["metadata"]["uid"] = Value::Null,
        |job| job["metadata"] = json!({}),
    ];
    let forge = |change: &Forge| {
        let mut object = job("t1", "j1", 101);
        change(&mut object);
        object
    };
    let all: Vec<Value> = forged.iter().map(forge).collect();
    let mut lines: Vec<Bytes> = all
        .iter()
        .flat_map(|object| [event("ADDED", object), event("DELETED", object)])
        .collect();
    // One that was never there, and one that is there under another UID.
    lines.extend([
        event("DELETED", &job("t7", "j7", 102)),
        event("DELETED", &job("t9", "other", 102)),
    ]);
    lines.push(event("ADDED", &job("t8", "j8", 103)));
    let items = [all, vec![job("t9", "j9", 99)]].concat();
    let server = cluster(Http::Two, items, move |_| then_quiet(lines.clone())).await;
    let (changes, _) = changes_seen(&link(&server), |all| {
        all.iter().any(|line| line.starts_with("t8"))
    })
    .await;
    assert_eq!(changes, ["restart", "t9 is j9 No", "synced", "t8 is j8 No"]);
}

/// Holds: H4.
#[tokio::test]
async fn a_version_that_is_always_too_old_ends_the_watch() {
    let gone = || Reply::whole(410, CANARY);
    let says = || {
        then_quiet(vec![event(
            "ERROR",
            &json!({"kind": "Status", "code": 410, "message": CANARY}),
        )])
    };
    // What the list and the watch say, and how often they are asked.
    let table: [(Says, Says, usize, usize); 3] = [
        (gone, gone, 5, 0),
        (|| Reply::whole(200, list(&[])), gone, 5, 5),
        (|| Reply::whole(200, list(&[])), says, 5, 5),
    ];
    for http in BOTH {
        for (list, watch, lists, watches) in table {
            let server = Hostile::start(http, move |asked| {
                if asked.target.contains("watch=true") {
                    watch()
                } else {
                    list()
                }
            })
            .await
            .unwrap();
            let (_, end) = while_others_work(ended(&link(&server))).await;
            assert_eq!(end, WatchEnd::Expired);
            let asked = server.asked();
            let watched = asked
                .iter()
                .filter(|asked| asked.target.contains("watch=true"))
                .count();
            assert_eq!((asked.len() - watched, watched), (lists, watches), "{http:?}");
        }
    }
}

#[tokio::test]
async fn a_version_that_is_too_old_once_is_listed_again() {
    let watches = Arc::new(AtomicUsize::new(0));
    let server = cluster(Http::Two, vec![job("t1", "j1", 99)], move |_| {
        if watches.fetch_add(1, Ordering::Relaxed) == 0 {
            then_quiet(vec![event("ERROR", &json!({"code": 410}))])
        } else {
            then_quiet(vec![event("ADDED", &job("t2", "j2", 101))])
        }
    })
    .await;
    let (all, _) = changes_seen(&link(&server), |all| {
        all.iter().any(|line| line.starts_with("t2"))
    })
    .await;
    let again = ["restart", "t1 is j1 No", "synced"];
    assert_eq!(all, [&again[..], &again[..], &["t2 is j2 No"]].concat());
}

#[tokio::test]
async fn a_watch_that_ends_goes_on_where_it_was_without_a_list() {
    let targets = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&targets);
    let server = cluster(Http::Two, Vec::new(), move |target| {
        let mut seen = seen.lock().unwrap();
        seen.push(target.split_once("resourceVersion=").unwrap().1.to_owned());
        match seen.len() {
            1 => Reply::whole(200, event("ADDED", &job("t1", "j1", 105))),
            2 => Reply::whole(
                200,
                event("BOOKMARK", &json!({"metadata": {"resourceVersion": "107"}})),
            ),
            _ => then_quiet(vec![event("ADDED", &job("t2", "j2", 108))]),
        }
    })
    .await;
    let (all, _) = changes_seen(&link(&server), |all| {
        all.iter().any(|line| line.starts_with("t2"))
    })
    .await;
    assert_eq!(all, ["restart", "synced", "t1 is j1 No", "t2 is j2 No"]);
    assert_eq!(*targets.lock().unwrap(), ["100", "105", "107"]);
}

/// Holds: H4.
#[tokio::test]
async fn a_watch_that_ends_as_soon_as_it_begins_is_given_up() {
    for http in BOTH {
        let server = cluster(http, Vec::new(), |_| {
            Reply::whole(
                200,
                event("BOOKMARK", &json!({"metadata": {"resourceVersion": "1"}})),
            )
        })
        .await;
        let (all, end) = ended(&link(&server)).await;
        assert_eq!((all.len(), end), (2, WatchEnd::Lost));
        assert_eq!(server.asked().len(), 1 + 5, "{http:?}");
    }
}

/// Holds: H1, H4.
#[tokio::test]
async fn what_is_no_event_ends_the_watch_with_its_reason() {
    let long = || then_quiet(vec![Bytes::from(vec![b'x'; 2 << 20])]);
    let table: [(&str, Says, WatchEnd); 7] = [
        ("a line without end", long, WatchEnd::TooLong),
        (
            "no JSON",
            || then_quiet(vec![CANARY.into(), "\n".into()]),
            WatchEnd::Unreadable,
        ),
        (
            "no event",
            || then_quiet(vec!["{}\n".into()]),
            WatchEnd::Unreadable,
        ),
        (
            "too deep",
            || then_quiet(vec![["[".repeat(9_999).as_str(), "\n"].concat().into()]),
            WatchEnd::Unreadable,
        ),
        (
            "of an unknown type",
            || then_quiet(vec![event(CANARY, &job("t1", "j1", 1))]),
            WatchEnd::Unreadable,
        ),
        (
            "a code that is none",
            || Reply::whole(200, event("ERROR", &json!({"code": -2_147_483_648_i64}))),
            WatchEnd::Lost,
        ),
        (
            "refused",
            || Reply::whole(403, CANARY),
            WatchEnd::Call(CallError::Forbidden),
        ),
    ];
    for http in BOTH {
        for (what, watch, expected) in table {
            let server = cluster(http, Vec::new(), move |_| watch()).await;
            assert_eq!(ended(&link(&server)).await.1, expected, "{http:?} {what}");
        }
    }
}

/// Holds: H4.
#[tokio::test]
async fn more_jobs_than_are_remembered_end_the_watch() {
    let mut limits = short();
    limits.jobs = 100;
    let jobs = |range: std::ops::Range<u64>| {
        range
            .map(|i| job(&format!("t{i}"), &format!("j{i}"), i))
            .collect::<Vec<_>>()
    };
    let listed = cluster(Http::Two, jobs(0..101), |_| Reply::Never).await;
    let lines: Vec<Bytes> = jobs(0..101).iter().map(|job| event("ADDED", job)).collect();
    let watched = cluster(Http::Two, Vec::new(), move |_| then_quiet(lines.clone())).await;
    let page = cluster(Http::Two, vec![json!({}); 501], |_| Reply::Never).await;
    let endless = Hostile::start(Http::Two, |_| {
        Reply::whole(
            200,
            r#"{"metadata": {"resourceVersion": "1", "continue": "a&b=c d"}, "items": []}"#,
        )
    })
    .await
    .unwrap();
    for server in [&listed, &watched, &page, &endless] {
        assert_eq!(
            ended(&link_with(server, limits.clone())).await.1,
            WatchEnd::TooMuch,
            "{server:?}"
        );
    }
    let asked = endless.asked();
    assert_eq!(asked.len(), 100, "as many pages as a list can have");
    assert!(
        asked[1].target.ends_with("&continue=a%26b%3Dc%20d"),
        "{}",
        asked[1].target
    );
}

/// Endless events, each of a Job that `of` names.
fn flood(of: fn(u64) -> String, events: u64) -> Reply {
    let lines = (0..events).map(move |i| event("MODIFIED", &job(&of(i), &format!("j{i}"), i)));
    Reply::parts(stream::iter(lines).chain(stream::pending()))
}

/// Holds: H4.
#[tokio::test]
async fn a_flood_is_read_at_a_bounded_pace() {
    for http in BOTH {
        let server = cluster(http, Vec::new(), |_| flood(|i| format!("t{i}"), 100_000)).await;
        let mut limits = short();
        (limits.event_rate, limits.event_burst) = (1_000, 1_000);
        let link = link_with(&server, limits);
        let begin = Instant::now();
        let (all, end) = while_others_work(changes_seen(&link, |all| all.len() >= 3_500)).await;
        assert_eq!(end, None, "it goes on");
        // A thousand at once and a thousand a second: a slow machine takes longer, and none is quicker.
        let (count, took) = (all.len(), begin.elapsed());
        let most = 1_010 + usize::try_from(took.as_millis()).unwrap();
        assert!(count < most, "{http:?} {count} in {took:?}");
    }
}

/// Holds: H4.
#[tokio::test]
async fn of_a_flood_of_events_of_a_job_the_last_one_counts() {
    const EVENTS: u64 = 1_000;
    for http in BOTH {
        let server = cluster(http, Vec::new(), |_| flood(|i| format!("t{}", i % 2), EVENTS)).await;
        let mut limits = short();
        // Slower than any machine, so that it is a flood.
        (limits.event_rate, limits.event_burst) = (400, 100);
        let last: BTreeSet<String> = (EVENTS - 2..EVENTS)
            .map(|i| format!("t{} is j{i} ", i % 2))
            .collect();
        // Of each Job the last line, wherever a batch ended.
        let is_last = |all: &[String]| {
            last.iter().all(|last| {
                let task = &last[..3];
                let told = all.iter().rev().find(|line| line.starts_with(task));
                told.is_some_and(|line| line.starts_with(last.as_str()))
            })
        };
        let (all, _) = changes_seen(&link_with(&server, limits), is_last).await;
        assert!(
            all.len() < usize::try_from(EVENTS / 2).unwrap(),
            "{http:?} told {} times",
            all.len()
        );
    }
}

/// Holds: B2.
#[tokio::test]
async fn a_list_whose_pages_come_slowly_ends_with_its_deadline() {
    const PAGE: &str = r#"{"metadata":{"resourceVersion":"5","continue":"more"},"items":[]}"#;
    for http in BOTH {
        let server = Hostile::start(http, |_| {
            Reply::parts(stream::once(async {
                tokio::time::sleep(Duration::from_millis(100)).await;
                Bytes::from_static(PAGE.as_bytes())
            }))
        })
        .await
        .unwrap();
        let mut limits = short();
        limits.list = Duration::from_millis(350);
        let (_, end) = ended(&link_with(&server, limits)).await;
        assert_eq!(end, WatchEnd::Call(CallError::Timeout), "{http:?}");
        let pages = server.asked().len();
        assert!(pages <= 4, "{pages} pages");
    }
}
