//! What the controller does when events, requests and reports arrive, without a network.

use serde_json::{Value, json};

use super::connection_bindings::tests::config;
use super::kubeconfig_validator::{KubeconfigHash, KubeconfigVerdict, ValidKubeconfig};
use super::*;
use crate::api::names::HubId;
use crate::base::metrics::clusters::label;
use crate::kubernetes::tests::client_to_nowhere;
use crate::kubernetes::write_fence;
use crate::plan::platform::identity_method::IdentityMethod;
use crate::plan::remote::health::{ConnectionHealth, ConnectionPhase};
use crate::plan::remote::site::{ClusterName, TenantKubeconfig};
use crate::plan::task::tenant::ReadIdentity;
use crate::remote::connection_registry::tests::settings;

/// A controller whose calls go nowhere, and the sender of requests to it.
fn controller() -> (ClusterController, mpsc::UnboundedSender<SiteRequest>) {
    let client = client_to_nowhere();
    let hub_id = HubId::new("test", "00000000-0000").unwrap();
    let (metrics, _) = Metrics::new();
    let calls = HubClient::new(
        client.clone(),
        metrics.clone(),
        "rendering".to_owned(),
        hub_id.clone(),
    );
    let (hub, anonymous) = (client.clone(), client.clone());
    let sessions = TenantSessions::new(hub, anonymous, IdentityMethod::Token, false, metrics.clone());
    let fence = write_fence::tests::open();
    let (events, _) = EventRecorder::new(client.clone(), fence, hub_id.to_string(), metrics.clone());
    let (report, reports) = mpsc::channel(1);
    let (request, site_requests) = mpsc::unbounded_channel();
    let registry = ConnectionRegistry::new(settings(hub_id), metrics.clone(), mpsc::channel(1).0, report);
    let controller = ClusterController::new(ClusterControllerParts {
        client,
        hub_client: calls,
        namespace: "rendering".to_owned(),
        sessions: Arc::new(sessions),
        registry,
        metrics,
        events,
        limits: ClusterControllerLimits::default(),
        catalog: watch::channel(None).1,
        active: watch::channel(Arc::default()).1,
        site_requests,
        reports,
    });
    (controller, request)
}

fn east() -> DynamicObject {
    let object = json!({
        "metadata": {"name": "east", "uid": "1", "generation": 1, "resourceVersion": "1"},
        "spec": {"kubeConfig": {"secretRef": {"name": "east"}}, "renderNamespace": "jobs"},
    });
    serde_json::from_value(object).unwrap()
}

fn site() -> Arc<Site> {
    Arc::new(Site {
        cluster: ClusterName::Platform("east".to_owned()),
        namespace: "jobs".to_owned(),
    })
}

#[tokio::test]
async fn a_request_that_was_sent_before_its_cluster_was_deleted_counts() {
    for is_requested in [true, false] {
        let (mut controller, requests) = controller();
        controller.handle_cluster_event(Event::Apply(east()));
        assert!(controller.bindings.kubeconfig_of(&site()).is_some());
        if is_requested {
            requests.send(SiteRequest::Open(site())).unwrap();
        }
        controller.handle_cluster_event(Event::Delete(east()));
        let is_bound = controller.bindings.kubeconfig_of(&site()).is_some();
        assert_eq!(is_bound, is_requested);
    }
}

#[tokio::test]
async fn a_report_on_a_deleted_cluster_shows_no_metrics_of_it() {
    let (mut controller, requests) = controller();
    controller.handle_cluster_event(Event::Apply(east()));
    requests.send(SiteRequest::Open(site())).unwrap();
    let key = apply_valid(&mut controller, "east");
    let report = ConnectionReport {
        key,
        health: ConnectionHealth {
            phase: ConnectionPhase::Up,
            fault: None,
            unanswered_since: None,
            version: None,
            last_probe: Some(Timestamp::UNIX_EPOCH),
            attempts: 0,
            next_attempt: None,
            wants_reread: false,
        },
        refused: Vec::new(),
        failure: None,
    };
    let last_probe = controller.parts.metrics.clusters.last_probe.clone();
    controller.handle_connection_report(report.clone());
    assert!(last_probe.get(&label("east")).is_some());
    controller.handle_cluster_event(Event::Delete(east()));
    controller.handle_connection_report(report);
    assert!(last_probe.get(&label("east")).is_none());
}

fn named(name: &str, spec: &Value) -> DynamicObject {
    let object = json!({
        "metadata": {"name": name, "uid": name, "generation": 1, "resourceVersion": "1"},
        "spec": spec,
    });
    serde_json::from_value(object).unwrap()
}

/// A valid kubeconfig of the platform, for the clusters that name its Secret.
fn apply_valid(controller: &mut ClusterController, secret: &str) -> ConnectionKey {
    let key = ConnectionKey {
        secret_uid: secret.into(),
        key: "value".into(),
    };
    for kubeconfig in controller.bindings.kubeconfigs_in(secret) {
        let valid = KubeconfigVerdict::Valid(Box::new(ValidKubeconfig {
            key: key.clone(),
            config: config(),
            content: KubeconfigHash::of(b"1"),
        }));
        controller.apply_verdict(&kubeconfig, valid);
    }
    key
}

#[tokio::test]
async fn a_read_that_was_asked_for_is_still_asked_for_after_it_failed() {
    let (mut controller, _requests) = controller();
    controller.handle_cluster_event(Event::Apply(east()));
    let key = apply_valid(&mut controller, "east");
    let known = controller.secrets.entry("east".to_owned()).or_default();
    known.read = Some(("1".to_owned(), "7".to_owned()));
    known.seen = known.read.clone();
    controller.reread(&key);
    controller.start_reads();
    let (secret, read) = controller.reading.join_next().await.unwrap();
    assert!(!controller.secrets["east"].must_report);
    controller.handle_read_result(&secret, read);
    assert!(controller.secrets["east"].must_report);
}

#[tokio::test]
async fn a_shared_connection_is_free_of_the_limit_of_a_cluster_that_is_deleted() {
    let (mut controller, _requests) = controller();
    let spec = json!({"kubeConfig": {"secretRef": {"name": "shared"}}, "renderNamespace": "jobs"});
    let mut slow = spec.clone();
    slow["qps"] = json!(1);
    let (slow, other) = (named("slow", &slow), named("other", &spec));
    controller.handle_cluster_event(Event::Apply(slow.clone()));
    controller.handle_cluster_event(Event::Apply(other));
    let key = apply_valid(&mut controller, "shared");
    assert_eq!(controller.rate_limits[&key].qps, 1);
    let asked = |controller: &ClusterController| {
        let known = controller.secrets.get("shared");
        known.is_some_and(|known| known.must_report)
    };
    assert!(!asked(&controller));
    controller.handle_cluster_event(Event::Delete(slow));
    assert!(
        asked(&controller),
        "the kubeconfig is read again, and applied with the limit of now"
    );
}

/// The site of a tenant's own cluster.
fn own(name: &str) -> Arc<Site> {
    Arc::new(Site {
        cluster: ClusterName::Own(TenantKubeconfig {
            identity: ReadIdentity::Hub,
            namespace: "team".to_owned(),
            name: name.to_owned(),
            key: None,
            crosses: false,
        }),
        namespace: "jobs".to_owned(),
    })
}

/// Holds: K13.
#[tokio::test]
async fn a_place_that_is_spare_goes_to_the_kubeconfig_that_waited_longest_and_that_one_is_read() {
    let (mut controller, _requests) = controller();
    let each = controller.parts.limits.own_each;
    for n in 0..each {
        controller.open(&own(&format!("holder-{n}")));
    }
    controller.open(&own("waits"));
    controller.close(&own("holder-0"));
    // Before the loop hands places over.
    controller.open(&own("late"));
    let has_watcher = |controller: &ClusterController, name: &str| {
        let mut watchers = controller.watchers.keys();
        watchers.any(|watched| watched.name == name)
    };
    let found = ["waits", "late"].map(|name| has_watcher(&controller, name));
    assert_eq!((found, controller.watchers.len()), ([true, false], each));
}
