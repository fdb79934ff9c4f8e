//! Ends a hub before its rights are taken away: what `helm uninstall` starts first, from the hub's own image.
//!
//! It lets no instance be started again and waits until those that run have ended. Each releases its Lease itself when it ends, as
//! at any other end; nothing here writes one. So what is not released in time is waited for as that of a hub that is gone.

use std::fmt::{self, Display};
use std::time::{Duration, Instant};

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use kube::Client;
use kube::api::{Api, ListParams, Patch, PatchParams};
use serde_json::json;
use tokio::time::{sleep, timeout};

/// Longest that a call may take.
const CALL: Duration = Duration::from_secs(10);
/// Pause between two looks, and before a call is made again that was not answered.
const PAUSE: Duration = Duration::from_millis(500);
/// Longest that an API server may take to know of rights that were given a moment ago.
const KNOWN: Duration = Duration::from_secs(5);
/// Pods with a process: one that was evicted stays, and has none.
const WITH_A_PROCESS: &str = "status.phase!=Succeeded,status.phase!=Failed";

/// The hub that is to end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubDeployment {
    /// Its namespace.
    pub namespace: String,
    /// Name of its Deployment.
    pub deployment: String,
    /// Labels that select its pods.
    pub selector: String,
}

/// The result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StopOutcome {
    /// No instance runs any more.
    Ended,
    /// An instance may still run, and time is up.
    Late,
    /// The Deployment may not be scaled, or its pods not be seen.
    Refused,
}

impl Display for StopOutcome {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Ended => "no instance of the hub runs any more",
            Self::Late => {
                "it is not known in time whether every instance of the hub has ended; \
                 another hub that takes its namespaces over starts when its Lease is over"
            }
            Self::Refused => {
                "the API server does not let this pod scale the hub's Deployment or list its pods, so it may still run; \
                 another hub that takes its namespaces over starts when its Lease is over"
            }
        })
    }
}

/// Ends the hub, and waits at most so long for it.
pub async fn run(client: &Client, hub: &HubDeployment, limit: Duration) -> StopOutcome {
    timeout(limit, end(client, hub))
        .await
        .unwrap_or(StopOutcome::Late)
}

async fn end(client: &Client, hub: &HubDeployment) -> StopOutcome {
    let deployments: Api<Deployment> = Api::namespaced(client.clone(), &hub.namespace);
    let none = Patch::Merge(json!({"spec": {"replicas": 0}}));
    let params = PatchParams::default();
    if insist(async || deployments.patch_scale(&hub.deployment, &params, &none).await)
        .await
        .is_err()
    {
        return StopOutcome::Refused;
    }
    let pods: Api<Pod> = Api::namespaced(client.clone(), &hub.namespace);
    let running = ListParams::default().labels(&hub.selector).fields(WITH_A_PROCESS);
    loop {
        match insist(async || pods.list_metadata(&running).await).await {
            Ok(Some(left)) if !left.items.is_empty() => sleep(PAUSE).await,
            Ok(_) => return StopOutcome::Ended,
            Err(()) => return StopOutcome::Refused,
        }
    }
}

/// Makes a call until it is answered; nothing where there is no such object, and an error where it goes on being refused.
async fn insist<T>(call: impl AsyncFn() -> kube::Result<T>) -> Result<Option<T>, ()> {
    let begin = Instant::now();
    loop {
        match timeout(CALL, call()).await {
            Ok(Ok(done)) => return Ok(Some(done)),
            Ok(Err(kube::Error::Api(status))) if status.code == 404 => return Ok(None),
            Ok(Err(kube::Error::Api(status)))
                if status.code < 500 && status.code != 429 && begin.elapsed() >= KNOWN =>
            {
                return Err(());
            }
            _ => sleep(PAUSE).await,
        }
    }
}
