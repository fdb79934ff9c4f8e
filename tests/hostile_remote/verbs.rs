//! What each call makes of an answer that is as many small things as can be: next to nothing, whatever the call asks for.

use std::sync::Arc;

use allocation_counter::measure;
use bytes::Bytes;
use futures::future::BoxFuture;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use renderhub::api::names::TaskUid;
use renderhub::kubernetes::apply::{ApiTransport, CallError, ListKind, ResponseLimit, TaskObjectClient};
use renderhub::plan::task::job_state::read_pod;

use crate::support::{NAMESPACE, hub};

/// Bytes of one object, which is about what a link reads of one.
const OBJECT: usize = 240 << 10;
/// Bytes of a page of a list.
const PAGE: usize = 1 << 20;
/// Most memory that anything takes for each of its bytes, besides [`SPARE`].
const TIMES: u64 = 3;
/// What a call itself needs, and the few things that it keeps.
const SPARE: u64 = 512 << 10;

/// A server that has one answer for everything.
#[derive(Debug)]
struct Says(Bytes);

impl ApiTransport for Says {
    fn send(&self, _: http::Request<Vec<u8>>, _: ResponseLimit) -> BoxFuture<'_, Result<Bytes, CallError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// Something small, again and again, between two ends.
fn bomb(size: usize, begin: &str, part: &str, end: &str) -> Bytes {
    let parts = vec![part; (size - begin.len() - end.len()) / (part.len() + 1)];
    [begin, &parts.join(","), end].concat().into()
}

/// The places of an object, or of a Status, at which a decoder may be made to keep something for each few bytes.
const PLACES: &[(&str, &str, &str)] = &[
    (
        r#"{"metadata":{"uid":"u"},"spec":{"template":{"spec":{"containers":["#,
        r#"{"name":""}"#,
        "]}}}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"spec":{"containers":["#,
        r#"{"name":""}"#,
        "]}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"status":{"conditions":["#,
        r#"{"status":"","type":""}"#,
        "]}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"status":{"conditions":["#,
        r#"{"status":"True","type":"Complete"}"#,
        "]}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"status":{"uncountedTerminatedPods":{"failed":["#,
        r#""""#,
        "]}}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"status":{"phase":"Failed","containerStatuses":["#,
        "{}",
        "]}}",
    ),
    (
        r#"{"metadata":{"uid":"u"},"spec":{"imagePullSecrets":["#,
        r#"{"name":"p"}"#,
        "]}}",
    ),
    (r#"{"metadata":{"uid":"u","managedFields":["#, "{}", "]}}"),
    (
        r#"{"metadata":{"uid":"u","managedFields":[{"fieldsV1":{"f:x":["#,
        "{}",
        "]}}]}}",
    ),
    (
        r#"{"metadata":{"uid":"u","ownerReferences":["#,
        r#"{"apiVersion":"","kind":"","name":"","uid":""}"#,
        "]}}",
    ),
    (r#"{"metadata":{"uid":"u","finalizers":["#, r#""""#, "]}}"),
    (r#"{"metadata":{"uid":"u","labels":{"#, r#""":"""#, "}}}"),
    (r#"{"kind":"Status","details":{"causes":["#, "{}", "]}}"),
    (r#"{"a":["#, "[]", "]}"),
];

/// What a list may hold besides many items: an item of many things.
fn pages() -> Vec<Bytes> {
    let within = |(begin, part, end): &(&str, &str, &str)| {
        bomb(
            PAGE,
            &format!(r#"{{"items":[{begin}"#),
            part,
            &format!("{end}]}}"),
        )
    };
    let empty = bomb(PAGE, r#"{"metadata":{},"items":["#, "{}", "]}");
    let bare = bomb(
        PAGE,
        r#"{"items":["#,
        r#"{"metadata":{"uid":"u"},"status":{}}"#,
        "]}",
    );
    PLACES.iter().map(within).chain([empty, bare]).collect()
}

/// What a call takes of memory when it is answered with the body.
fn cost(body: &Bytes, call: impl AsyncFnOnce(TaskObjectClient)) -> u64 {
    let objects = TaskObjectClient::new(Arc::new(Says(body.clone())), None, NAMESPACE.to_owned(), hub());
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()
        .unwrap();
    measure(|| runtime.block_on(call(objects))).bytes_max
}

#[track_caller]
fn cheap(what: &str, body: &Bytes, call: impl AsyncFnOnce(TaskObjectClient)) {
    let cost = cost(body, call);
    let most = TIMES * body.len() as u64 + SPARE;
    let begin = String::from_utf8_lossy(&body[..80]);
    assert!(
        cost <= most,
        "{what} takes {cost} bytes for {} of {begin}",
        body.len()
    );
}

/// Holds: B1, H1.
#[test]
fn an_object_of_small_things_costs_no_call_more_than_its_bytes() {
    for (begin, part, end) in PLACES {
        let body = bomb(OBJECT, begin, part, end);
        cheap("get jobs", &body, async |objects| _ = objects.get_job("x").await);
        cheap("get secrets", &body, async |objects| {
            _ = objects.get_secret_metadata("x").await;
        });
        cheap("create jobs", &body, async |objects| {
            _ = objects.create_job(&Job::default()).await;
        });
        cheap("create secrets", &body, async |objects| {
            _ = objects.create_secret(&Secret::default()).await;
        });
        cheap("patch jobs", &body, async |objects| {
            _ = objects.adopt_job("x", "u", "1").await;
        });
        cheap("delete jobs", &body, async |objects| {
            _ = objects.delete_job("x", "u").await;
        });
        cheap("delete secrets", &body, async |objects| {
            _ = objects.delete_secret("x", "u").await;
        });
    }
}

/// Holds: B1, H1.
#[test]
fn a_page_of_small_things_costs_no_call_more_than_its_bytes() {
    let task = TaskUid::new("0f5a4e0c-0001-4000-8000-000000000001");
    for body in pages() {
        let task = &task;
        cheap("list pods", &body, async |objects| {
            _ = objects.list_pods(task, read_pod).await;
        });
        for listing in [ListKind::Secrets, ListKind::OthersJobs] {
            cheap("list", &body, async |objects| {
                _ = objects.list(listing, None).await;
            });
        }
    }
}
