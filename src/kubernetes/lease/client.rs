//! Calls for the Leases of a namespace, and which of their holders are alive.

use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};

use crate::api::labels::{FIELD_MANAGER, PART_OF, PART_OF_VALUE};
use crate::base::metrics::Metrics;
use crate::plan::lease::{
    HolderIdentity, HolderLiveness, HubConflict, HubConflictKind, LOOK_AGAIN, LeaseExit, LeaseRecord,
    LeaseRequest, LeaseRequestError, LeaseResponse, PeerMonitor,
};

/// Longest a call may take: a renewal that is answered later than this comes too late to be of use.
const DEADLINE: Duration = Duration::from_secs(4);

/// The other live hubs.
#[derive(Debug, Default)]
pub struct PeerHubs {
    /// Hubs in the way.
    pub conflicts: Vec<HubConflict>,
    /// Whether instances of this very hub run.
    pub is_running: bool,
}

/// Leases of a namespace.
#[derive(Clone)]
pub struct LeaseClient {
    api: Api<Lease>,
    metrics: Metrics,
}

impl LeaseClient {
    /// Leases of this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, metrics }
    }

    /// Makes a call, and returns its result.
    pub(super) async fn perform(&self, call: LeaseRequest) -> LeaseResponse {
        let written = |lease| LeaseResponse::Lease(Box::new(lease));
        let answer = match call {
            LeaseRequest::List => self.list().await.map(LeaseResponse::Listed),
            LeaseRequest::Get(name) => self.counted("get", self.api.get(&name)).await.map(written),
            LeaseRequest::Create(lease) => {
                let manager = manager();
                let created = self.api.create(&manager, &lease);
                self.counted("create", created).await.map(written)
            }
            LeaseRequest::Replace(lease) => {
                let (name, manager) = (lease.name_any(), manager());
                let replaced = self.api.replace(&name, &manager, &lease);
                self.counted("update", replaced).await.map(written)
            }
        };
        answer.unwrap_or_else(LeaseResponse::Failed)
    }

    /// The records of all hubs.
    ///
    /// # Errors
    /// The hub may not list them, or the API server does not answer.
    pub async fn records(&self) -> Result<Vec<LeaseRecord>, LeaseExit> {
        match self.list().await {
            Ok(leases) => Ok(leases.iter().filter_map(LeaseRecord::of).collect()),
            Err(_) => Err(LeaseExit::Forbidden("listed")),
        }
    }

    async fn list(&self) -> Result<Vec<Lease>, LeaseRequestError> {
        let hubs = ListParams::default().labels(&format!("{PART_OF}={PART_OF_VALUE}"));
        let listed = self.counted("list", self.api.list(&hubs)).await?;
        Ok(listed.items)
    }

    async fn counted<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, LeaseRequestError> {
        let answer = tokio::time::timeout(DEADLINE, call).await;
        let (code, answer) = match answer {
            Ok(Ok(done)) => (200, Ok(done)),
            Ok(Err(kube::Error::Api(status))) => (status.code, Err(failure(status.code))),
            _ => (0, Err(LeaseRequestError::Unanswered)),
        };
        self.metrics.call(verb, "leases", code);
        answer
    }

    /// Hubs that are alive, found by watching only: nothing is written.
    ///
    /// # Errors
    /// The hub may not list them.
    pub async fn peers(&self, claim: &HolderIdentity) -> Result<PeerHubs, LeaseExit> {
        let mut monitor = PeerMonitor::default();
        loop {
            let asked = Instant::now();
            let leases = match self.list().await {
                Ok(leases) => leases,
                Err(LeaseRequestError::Forbidden) => return Err(LeaseExit::Forbidden("listed")),
                Err(_) => {
                    tokio::time::sleep(LOOK_AGAIN).await;
                    continue;
                }
            };
            let records: Vec<LeaseRecord> = leases.iter().filter_map(LeaseRecord::of).collect();
            monitor.see(&records, Instant::now());
            let (peers, is_sure) = judge(claim, &monitor, &records, asked);
            if is_sure || !peers.conflicts.is_empty() {
                return Ok(peers);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }
}

/// The other hubs in a list, and whether all of it is certain.
fn judge(
    claim: &HolderIdentity,
    monitor: &PeerMonitor,
    records: &[LeaseRecord],
    asked: Instant,
) -> (PeerHubs, bool) {
    let (mut peers, mut is_sure) = (PeerHubs::default(), true);
    for record in records.iter().filter(|record| record.holder.is_some()) {
        let conflict = claim.conflict(record);
        let is_other = record.holder.as_ref() != Some(&claim.holder);
        let is_sibling = record.hub == claim.hub_id.as_str() && is_other && !record.is_standby();
        if conflict.is_none() && !is_sibling {
            continue;
        }
        match (monitor.life(record, asked), conflict) {
            (HolderLiveness::Alive, Some(conflict)) if conflict.kind != HubConflictKind::Divides => {
                peers.conflicts.push(conflict);
            }
            (HolderLiveness::Alive, _) => peers.is_running = true,
            (HolderLiveness::Unsure, _) => is_sure = false,
            (HolderLiveness::Gone, _) => {}
        }
    }
    (peers, is_sure)
}

fn manager() -> PostParams {
    PostParams {
        dry_run: false,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}

const fn failure(code: u16) -> LeaseRequestError {
    match code {
        409 => LeaseRequestError::Conflict,
        404 => LeaseRequestError::NotFound,
        401 | 403 => LeaseRequestError::Forbidden,
        _ => LeaseRequestError::Unanswered,
    }
}
