//! What the controller makes of late events and of current lists.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll};

use futures::future::BoxFuture;
use http_body_util::BodyExt;
use k8s_openapi::api::core::v1::Namespace;
use kube::Client;
use kube::api::DynamicObject;
use kube::client::Body;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use serde_json::{Value, json};
use tokio::sync::watch;
use tower_service::Service;

use super::controller::PlatformWatchEvent;
use super::kind_store::{KindStore, StoreChange};
use super::kinds::KINDS;
use super::*;
use crate::api::names::HubId;
use crate::api::{ClusterRegistry, QueuePolicy, RendererClassSpec};
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::{CallError, HubClient};
use crate::kubernetes::tests::client_to_nowhere;
use crate::plan::platform::catalog::Catalog;

mod pull_secrets;

fn catalog_loop(watched: &[&str]) -> CatalogController {
    let client = client_to_nowhere();
    let hub_id = HubId::new("test", "00000000-0000").unwrap();
    let hub_client = HubClient::new(client, Metrics::new().0, "rendering".to_owned(), hub_id);
    let watched: Vec<String> = watched.iter().map(ToString::to_string).collect();
    CatalogController::new(
        hub_client,
        RendererClassSpec::default(),
        &watched,
        watch::channel(None).0,
    )
}

/// A registry of this generation and version, with this record of namespaces.
fn registry(uid: &str, (generation, version): (u64, u64), record: &[(&str, &str)]) -> Event<DynamicObject> {
    let object = json!({
        "metadata": {"name": "main", "uid": uid, "generation": generation, "resourceVersion": version.to_string()},
        "spec": {"hostname": "registry.test", "allowedNamespaces": ["team-a"]},
        "status": {"namespaces": record.iter().copied().collect::<BTreeMap<_, _>>()},
    });
    Event::Apply(serde_json::from_value(object).unwrap())
}

fn store() -> KindStore<ClusterRegistry> {
    KindStore::default()
}

#[test]
fn a_late_event_does_not_hide_what_was_written() {
    let mut store = store();
    let new_spec = StoreChange::NewSpec("main".to_owned());
    assert_eq!(store.take(registry("1", (1, 5), &[("team-a", "1")])), new_spec);
    let mut status = store.get("main").unwrap().status.clone();
    status.namespaces.clear();
    store.wrote("main", status, Some(7));
    // The spec is new, the status in the event is older than what was written.
    assert_eq!(store.take(registry("1", (2, 6), &[("team-a", "1")])), new_spec);
    let known = store.get("main").unwrap();
    assert_eq!((known.generation, known.version), (2, 7));
    assert!(known.status.namespaces.is_empty());
    assert_eq!(store.take(registry("1", (2, 7), &[])), StoreChange::Nothing);
    let new_record = StoreChange::NewRecord("main".to_owned());
    assert_eq!(store.take(registry("1", (2, 8), &[("team-b", "1")])), new_record);
}

#[test]
fn who_was_slower_than_another_hub_writes_again_once_it_has_seen_what_that_one_wrote() {
    let mut store = store();
    let check = |store: &KindStore<ClusterRegistry>| store.get("main").unwrap().check();
    store.take(registry("1", (1, 5), &[]));
    store.failed("main", CallError::Timeout);
    assert_eq!(check(&store), Ok(()), "no other client wrote, as far as is known");
    store.failed("main", CallError::Conflict);
    store.take(registry("1", (1, 4), &[]));
    assert_eq!(
        check(&store),
        Err(CallError::Conflict),
        "that is what was known before"
    );
    store.take(registry("1", (1, 6), &[]));
    assert_eq!(check(&store), Ok(()));
}

#[test]
fn another_object_of_the_same_name_inherits_nothing() {
    let mut store = store();
    store.take(registry("1", (1, 9), &[("team-a", "1")]));
    let change = store.take(registry("2", (1, 8), &[]));
    assert_eq!(change, StoreChange::NewSpec("main".to_owned()));
    assert!(store.get("main").unwrap().status.namespaces.is_empty());
}

/// Holds: B12.
#[test]
fn a_record_that_no_hub_changed_is_not_believed_and_put_right_so_often() {
    let mut store = store();
    let new_record = StoreChange::NewRecord("main".to_owned());
    let believed = |store: &KindStore<ClusterRegistry>| {
        let watched = store.get("main").unwrap();
        (
            watched.status.namespaces.get("team-a").cloned(),
            watched.corrections().count(),
        )
    };
    let one = || Some("1".to_owned());
    store.take(registry("1", (1, 1), &[("team-a", "1")]));
    for (version, forged) in [(2, &[("team-a", "2")][..]), (3, &[])] {
        assert_eq!(store.take(registry("1", (1, version), forged)), new_record);
        assert_eq!(believed(&store), (one(), 1));
    }
    // A late event changes nothing of it.
    store.take(registry("1", (1, 2), &[("team-a", "2")]));
    assert_eq!(believed(&store), (one(), 1));
    let patch = [("team-a".to_owned(), one())].into();
    store.corrected("main", &patch);
    assert_eq!(believed(&store), (one(), 0));
    // A writer that goes on causes no endless fight, and gets no grant either.
    for version in 4..100 {
        store.take(registry("1", (1, version), &[("team-a", "2")]));
        assert_eq!(believed(&store).0, one());
        store.corrected("main", &patch);
    }
    assert_eq!(believed(&store), (one(), 0));
    // The platform removes the name and puts it back: the record that hubs write then counts.
    store.take(registry("1", (3, 100), &[("team-a", "2")]));
    assert_eq!(believed(&store), (Some("2".to_owned()), 0));
}

/// Holds: T6, T8.
#[test]
fn a_record_that_cannot_be_read_grants_nothing() {
    let mut store = store();
    let Event::Apply(mut object) = registry("1", (1, 1), &[]) else {
        unreachable!("it is one that is there");
    };
    object.data["status"]["namespaces"] = json!({"team-a": ["1"]});
    store.take(Event::Apply(object));
    assert!(
        store.get("main").unwrap().spec.is_none(),
        "an empty record would be filled anew"
    );
}

/// Holds: T8.
#[test]
fn a_first_use_is_recorded_over_the_version_it_was_decided_on_and_forgotten_over_any() {
    let mut store = store();
    store.take(registry("1", (1, 5), &[]));
    let watched = store.get("main").unwrap();
    let version = |uid: Option<&str>| {
        let record = [("team-a".to_owned(), uid.map(str::to_owned))].into();
        reconcile::record_write(watched, &record).version
    };
    assert_eq!(version(Some("1")), Some(5));
    assert_eq!(version(None), None);
}

#[tokio::test]
async fn a_list_under_way_keeps_verdicts_and_its_end_drops_what_it_did_not_show() {
    let mut catalog = catalog_loop(&[]);
    catalog.handle_object_event::<ClusterRegistry>(registry("1", (1, 5), &[]));
    let anonymous = crate::plan::platform::registry::judge_credential(None, "registry.test", None);
    catalog.credentials.insert("main".to_owned(), anonymous);
    catalog.handle_object_event::<ClusterRegistry>(Event::Init);
    catalog.handle_object_event::<ClusterRegistry>(registry("1", (1, 5), &[]));
    catalog.handle_object_event::<ClusterRegistry>(Event::InitDone);
    assert_eq!(catalog.credentials.len(), 1);
    catalog.handle_object_event::<ClusterRegistry>(Event::Init);
    catalog.handle_object_event::<ClusterRegistry>(Event::InitDone);
    assert!(catalog.credentials.is_empty() && catalog.stores.registries.get("main").is_none());
}

#[tokio::test]
async fn only_a_namespace_that_is_listed_and_another_one_changes_anything() {
    let mut catalog = catalog_loop(&["team-a", "team-b"]);
    catalog.handle_object_event::<ClusterRegistry>(registry("1", (1, 5), &[]));
    let mut see = |name: &str, uid: &str| {
        (catalog.has_changed, catalog.stores.registries.due) = (false, BTreeSet::new());
        let metadata = json!({"metadata": {"name": name, "uid": uid, "labels": {"tier": "gold"}}});
        let seen: PartialObjectMeta<Namespace> = serde_json::from_value(metadata).unwrap();
        catalog.handle_watch_event(PlatformWatchEvent::Namespace(
            Some(name.into()),
            Event::Apply(seen),
        ));
        (catalog.has_changed, catalog.stores.registries.due.len())
    };
    assert_eq!(see("team-a", "1"), (true, 1));
    assert_eq!(see("team-a", "1"), (false, 0), "it was only relabelled");
    assert_eq!(see("team-b", "1"), (false, 0), "no registry names it");
    assert_eq!(see("team-a", "2"), (true, 1));
}

#[tokio::test]
async fn nothing_is_decided_while_a_namespace_was_not_looked_for() {
    let mut catalog = catalog_loop(&["team-a", "team-b"]);
    for kind in &KINDS {
        (kind.handle_event)(&mut catalog, Event::InitDone);
    }
    catalog.handle_watch_event(PlatformWatchEvent::Secret(Event::InitDone));
    catalog.handle_watch_event(PlatformWatchEvent::Namespace(
        Some("team-a".into()),
        Event::InitDone,
    ));
    assert!(!catalog.unlisted.is_empty());
    catalog.handle_watch_event(PlatformWatchEvent::Namespace(
        Some("team-b".into()),
        Event::InitDone,
    ));
    assert!(catalog.unlisted.is_empty());
}

/// Holds: T6.
#[tokio::test]
async fn a_policy_counts_from_the_next_catalog_on_and_one_that_cannot_be_decoded_never() {
    let mut catalog = catalog_loop(&[]);
    let policy = |name: &str, spec: Value| {
        let object = json!({"metadata": {"name": name, "uid": name, "resourceVersion": "1"}, "spec": spec});
        serde_json::from_value::<DynamicObject>(object).unwrap()
    };
    let gold = policy("gold", json!({"namespaces": ["team-a"], "weight": 3}));
    let broken = policy(
        "broken",
        json!({"namespaces": ["team-a", "team-b"], "weight": "many"}),
    );
    let mut weights = |event| {
        catalog.handle_object_event::<QueuePolicy>(event);
        catalog.publish();
        let published = catalog.out.borrow().clone().unwrap_or_default();
        (published.weights.of("team-a"), published.weights.of("team-b"))
    };
    assert_eq!(weights(Event::Apply(gold.clone())), (3, 1));
    assert_eq!(weights(Event::Apply(broken)), (3, 1));
    assert_eq!(weights(Event::Delete(gold)), (1, 1));
}

/// A written status with the version that it was written over, and the catalog at that time.
type ReportedCatalog = (Value, Option<Arc<Catalog>>);

/// An API server that answers every write, and records the catalog at that time.
#[derive(Clone)]
struct Server {
    published: watch::Receiver<PublishedCatalog>,
    reported: mpsc::Sender<ReportedCatalog>,
    refuses: Arc<AtomicBool>,
}

impl Service<http::Request<Body>> for Server {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let server = self.clone();
        Box::pin(async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let mut object = serde_json::from_slice::<Value>(&body).unwrap();
            let mut status = object["status"].take();
            status["over"] = object["metadata"]["resourceVersion"].take();
            let published = server.published.borrow().clone();
            server.reported.send((status, published)).unwrap();
            let answer = json!({"metadata": {"resourceVersion": "9"}}).to_string();
            let mut answer = http::Response::new(Body::from(answer.into_bytes()));
            if server.refuses.load(Ordering::Relaxed) {
                *answer.status_mut() = http::StatusCode::SERVICE_UNAVAILABLE;
            }
            Ok(answer)
        })
    }
}

/// A controller with such a server and a namespace that its registry lists; the recorded writes, and whether the server refuses.
fn served() -> (
    CatalogController,
    mpsc::Receiver<ReportedCatalog>,
    Arc<AtomicBool>,
) {
    let (reported, received) = mpsc::channel();
    let (out, published) = watch::channel(None);
    let refuses = Arc::new(AtomicBool::new(false));
    let mut catalog = catalog_loop(&["team-a"]);
    catalog.out = out;
    let server = Server {
        published,
        reported,
        refuses: Arc::clone(&refuses),
    };
    let hub_id = HubId::new("test", "00000000-0000").unwrap();
    let client = Client::new(server, "default");
    catalog.hub_client = HubClient::new(client, Metrics::new().0, "rendering".to_owned(), hub_id);
    let namespace = json!({"name": "team-a", "uid": "1"});
    catalog
        .namespaces
        .put(&serde_json::from_value(namespace).unwrap());
    (catalog, received, refuses)
}

#[tokio::test]
async fn a_record_that_was_not_written_is_written_later_and_the_status_after_it() {
    let (mut catalog, received, refuses) = served();
    catalog.handle_object_event::<ClusterRegistry>(registry("1", (1, 1), &[]));
    let mut writes_records = async |is_refused| {
        refuses.store(is_refused, Ordering::Relaxed);
        catalog.reconcile().await;
        let reported = received.try_iter();
        let reported: Vec<bool> = reported
            .map(|(status, _)| status["namespaces"].is_object())
            .collect();
        (reported, catalog.has_work())
    };
    assert_eq!(writes_records(true).await, (vec![true], true));
    assert_eq!(writes_records(true).await, (vec![true], true));
    assert_eq!(writes_records(false).await, (vec![true, false], false));
    assert_eq!(writes_records(false).await, (vec![], false));
}

#[tokio::test]
async fn a_status_speaks_of_a_spec_only_once_tasks_are_treated_by_it() {
    let (mut catalog, received, _) = served();
    let mut steps = Vec::new();
    for (generation, hostname) in [(1, "old.test"), (2, "new.test")] {
        let Event::Apply(mut object) = registry("1", (generation, generation), &[]) else {
            unreachable!("it is one that is there");
        };
        object.data["spec"]["hostname"] = json!(hostname);
        catalog.handle_object_event::<ClusterRegistry>(Event::Apply(object));
        catalog.reconcile().await;
        steps.extend(received.try_iter().map(|(status, worked_by)| {
            let registry = worked_by.and_then(|catalog| catalog.registries.get("main").cloned());
            let known = registry.map(|registry| (registry.spec.hostname, registry.recorded.len()));
            (
                status["namespaces"].is_object(),
                status["observedGeneration"].as_i64(),
                known,
            )
        }));
    }
    let known = |hostname: &str| Some((hostname.to_owned(), 1));
    let expected = [
        (true, None, None),
        (false, Some(1), known("old.test")),
        (false, Some(2), known("new.test")),
    ];
    assert_eq!(steps, expected);
}

/// Holds: T8.
#[tokio::test]
async fn what_another_hub_says_of_its_namespaces_stays_in_the_status() {
    let (mut catalog, received, _) = served();
    let mut others = "x".to_owned();
    crate::plan::platform::namespaces::mention(&mut others, &["team-a".to_owned(), "team-b".to_owned()]);
    let record = [("team-a", "1"), ("team-b", "0")];
    let Event::Apply(mut object) = registry("1", (2, 5), &record) else {
        unreachable!("it is one that is there");
    };
    object.data["spec"]["allowedNamespaces"] = json!(["team-a", "team-b"]);
    let ready = json!({
        "type": "Ready", "status": "True", "reason": "Ready", "message": others,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    });
    object.data["status"]["conditions"] = json!([ready]);
    catalog.handle_object_event::<ClusterRegistry>(Event::Apply(object));
    catalog.reconcile().await;
    let reported: Vec<Value> = received.try_iter().map(|(status, _)| status).collect();
    let [status] = &reported[..] else {
        panic!("{reported:?}")
    };
    assert_eq!(status["over"], "5", "a newer status is not written over");
    let message = status["conditions"][0]["message"].as_str().unwrap();
    assert!(
        message.contains("recreated: team-b;") && !message.starts_with('x'),
        "{message}"
    );
}
