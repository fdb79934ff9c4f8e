//! In which order the states of a site are announced, without a network.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::*;
use crate::api::names::HubId;
use crate::kubernetes::write_fence;
use crate::plan::remote::address::AddressPolicy;
use crate::plan::remote::health::ConnectionTiming;
use crate::plan::remote::site::ClusterName;
use crate::remote::client::RemoteClientSettings;
use crate::remote::limits::RemoteClientLimits;
use crate::remote::memory_budget::MemoryBudget;
use crate::remote::resolve::Resolver;

/// Settings of connections that lead nowhere.
pub(crate) fn settings(hub_id: HubId) -> ConnectionSettings {
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

fn site(name: &str) -> Arc<Site> {
    Arc::new(Site {
        cluster: ClusterName::Platform(name.to_owned()),
        namespace: "jobs".to_owned(),
    })
}

/// A registry whose announcements wait until the first event is taken.
async fn registry() -> (ConnectionRegistry, mpsc::Receiver<ReceivedEvent>) {
    let hub_id = HubId::new("test", "00000000-0000").unwrap();
    let (inputs, events) = mpsc::channel(1);
    inputs.send(TaskWatchEvent::PodsSeen.into()).await.unwrap();
    let (metrics, reports) = (Metrics::new().0, mpsc::channel(1).0);
    let registry = ConnectionRegistry::new(settings(hub_id), metrics, inputs, reports);
    (registry, events)
}

#[tokio::test]
async fn what_comes_after_a_refusal_waits_until_that_is_announced() {
    let (registry, mut events) = registry().await;
    registry.refuse(site("east"), SiteState::down(Reason::Forbidden));
    let announcers = registry.control().bindings[&site("east")].announcers.clone();
    assert!(!announcers.are_done());
    events.recv().await.unwrap();
    let announced = events.recv().await.unwrap().input;
    assert!(matches!(announced, TaskWatchEvent::Site(..)), "{announced:?}");
    let done = tokio::time::timeout(Duration::from_secs(60), announcers.done());
    done.await.unwrap();
}
