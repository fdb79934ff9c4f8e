//! What the controller does when events, requests and reports arrive, without a network.

use std::net::{Ipv4Addr, SocketAddr};

use serde_json::json;

use super::connection_bindings::tests::config;
use super::kubeconfig_validator::{KubeconfigHash, KubeconfigVerdict, ValidKubeconfig};
use super::*;
use crate::api::names::HubId;
use crate::base::metrics::clusters::label;
use crate::kubernetes::tests::client_to_nowhere;
use crate::kubernetes::write_fence;
use crate::plan::platform::identity_method::IdentityMethod;
use crate::plan::remote::address::AddressPolicy;
use crate::plan::remote::health::{ConnectionHealth, ConnectionPhase, ConnectionTiming};
use crate::plan::remote::site::ClusterName;
use crate::remote::client::RemoteClientSettings;
use crate::remote::connection_registry::ConnectionSettings;
use crate::remote::limits::RemoteClientLimits;
use crate::remote::memory_budget::MemoryBudget;
use crate::remote::resolve::Resolver;

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

fn settings(hub_id: HubId) -> ConnectionSettings {
    let nowhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 9));
    ConnectionSettings {
        hub_id,
        client: RemoteClientSettings {
            guard: Arc::new(AddressPolicy::default()),
            resolver: Resolver::with_servers(&[nowhere]).unwrap(),
            limits: Arc::new(RemoteClientLimits::default()),
            memory_budget: MemoryBudget::default(),
            fence: write_fence::tests::open(),
        },
        own_namespaces: Arc::new(|_| None),
        timing: ConnectionTiming::since(Instant::now()),
    }
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
    let key = ConnectionKey {
        secret_uid: "1".into(),
        key: "value".into(),
    };
    let valid = KubeconfigVerdict::Valid(Box::new(ValidKubeconfig {
        key: key.clone(),
        config: config(),
        content: KubeconfigHash::of(b"1"),
    }));
    let kubeconfig = controller.bindings.kubeconfig_of(&site()).cloned().unwrap();
    controller.bindings.apply_verdict(&kubeconfig, valid);
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
