//! Writes the status of each `RenderCluster`, its events and its metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use sha2::{Digest, Sha256};
use tokio::task::JoinError;

use super::ClusterController;
use super::connection_bindings::KubeconfigRef;
use super::read_results::ClusterStatusWrite;
use crate::api::RenderClusterStatus;
use crate::api::conditions::Reason;
use crate::api::names::hex;
use crate::base::metrics::clusters::label;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::platform::namespaces;
use crate::plan::remote::cluster_status;
use crate::plan::remote::cluster_status::{ClusterFacts, ClusterState};
use crate::remote::ConnectionKey;
use crate::remote::connection::ConnectionReport;
use crate::remote::connection_registry::RateLimit;

/// Pause before a failed status write is retried.
const RETRY: Duration = Duration::from_secs(2);

/// Logs and records an event for a cluster that was connected, lost or refused, once for each transition.
fn report_transition(
    events: &EventRecorder,
    cluster: &str,
    uid: &str,
    old: &RenderClusterStatus,
    new: &RenderClusterStatus,
    failure: Option<CallError>,
) {
    let Some((reason, note)) = cluster_status::transition(old, new) else {
        return;
    };
    let is_warning = reason != Reason::Connected;
    if is_warning {
        let (kind, stage) = (failure.map(CallError::kind), failure.and_then(CallError::stage));
        tracing::warn!(cluster, %reason, kind, stage, note, "a cluster is not connected");
    } else {
        tracing::info!(cluster, "a cluster is connected");
    }
    events.record(EventMessage {
        subject: EventSubject::Object("RenderCluster", ObjectKey::new("", cluster), uid.to_owned()),
        is_warning,
        reason,
        note: note.to_owned(),
    });
}

impl ClusterController {
    /// Starts the writes that are due, up to the limit.
    pub(super) fn start_writes(&mut self) {
        while self.writing.len() < self.parts.limits.writes {
            let Some(name) = self.status_queue.take(Instant::now()) else {
                return;
            };
            let now = Timestamp::now();
            let Some((uid, status, due)) = self.pending_write(&name, now) else {
                self.status_queue.done(&name);
                continue;
            };
            if let Ok(wait) = Duration::try_from(due.duration_since(now))
                && !wait.is_zero()
            {
                self.status_queue.done(&name);
                self.status_queue.add_at(&name, Instant::now() + wait);
                continue;
            }
            let (calls, seen) = (self.parts.hub_client.clone(), self.store.get(&name));
            let before = seen.map(|seen| seen.status.clone()).unwrap_or_default();
            let written = name.clone();
            self.writing.spawn(name, async move {
                let outcome = calls.write_cluster_status(&written, &uid, &status).await;
                ClusterStatusWrite {
                    uid,
                    status,
                    before,
                    outcome,
                }
            });
        }
    }

    /// Handles a status that any hub wrote. Hubs with kubeconfigs in other namespaces see the same clusters: only a hub with a
    /// connection overwrites a different status, and only after a pause, so that two hubs do not overwrite each other in a loop.
    pub(super) fn handle_written_status(&mut self, name: &str) {
        let is_connection = matches!(self.cluster_state(name), Some(ClusterState::Connection { .. }));
        let written = self.pending_write(name, Timestamp::now());
        let seen = self.store.get(name).map(|seen| &seen.status);
        let contradicts = |(_, next, _): &(_, RenderClusterStatus, _)| {
            seen.is_some_and(|seen| cluster_status::contradicts(seen, next))
        };
        if is_connection && written.as_ref().is_some_and(contradicts) {
            self.status_queue
                .add_at(&name.to_owned(), Instant::now() + cluster_status::PAUSE);
        }
    }

    /// The status to write, with the UID of the cluster and the time of the write.
    fn pending_write(&self, name: &str, now: Timestamp) -> Option<(String, RenderClusterStatus, Timestamp)> {
        let seen = self.store.get(name)?;
        let facts = ClusterFacts {
            generation: seen.generation,
            state: self.cluster_state(name)?,
            is_suspended: seen.spec.as_ref().is_some_and(|spec| spec.suspend),
            recreated: self.recreated.get(name).map_or(&[], Vec::as_slice),
            active_jobs: self.active.get(name).copied().unwrap_or_default(),
        };
        let next = cluster_status::next(&seen.status, &facts, now);
        let written = self.written_at.get(name).copied();
        let due = cluster_status::due(&seen.status, &next, written, now)?;
        Some((seen.uid.clone(), next, due))
    }

    /// State of a cluster; `None` where it is not known yet.
    fn cluster_state(&self, name: &str) -> Option<ClusterState> {
        let Some((site, _)) = self.store.get(name)?.site_and_kubeconfig(name) else {
            return Some(ClusterState::NoConnection(cluster_status::undecodable()));
        };
        match self.bindings.connection_of(&site)? {
            Err(fault) => Some(ClusterState::NoConnection(fault)),
            Ok(key) => Some(self.reports.get(key).map_or_else(ClusterState::first, |report| {
                ClusterState::Connection {
                    health: report.health,
                    fault: report.fault(&site),
                }
            })),
        }
    }

    /// The last failed call that showed that a cluster is not connected, if there is one.
    fn failure(&self, name: &str) -> Option<CallError> {
        let (site, _) = self.store.site_and_kubeconfig(name)?;
        let key = self.bindings.connection_of(&site)?.ok()?;
        let report = self.reports.get(key)?;
        report.failure.filter(|_| report.health.fault.is_some())
    }

    pub(super) fn handle_write_result(&mut self, name: String, ended: Result<ClusterStatusWrite, JoinError>) {
        self.status_queue.done(&name);
        let Ok(written) = ended else {
            // It panicked, and the panic hook logged why.
            self.status_queue.add_at(&name, Instant::now() + RETRY);
            return;
        };
        match written.outcome {
            Ok(version) => {
                let failure = self.failure(&name);
                if let Some(seen) = self.store.get_mut(&name, &written.uid) {
                    report_transition(
                        &self.parts.events,
                        &name,
                        &written.uid,
                        &written.before,
                        &written.status,
                        failure,
                    );
                    seen.set_status(written.status, version);
                    self.written_at.insert(name, Timestamp::now());
                }
            }
            // The cluster was recreated; the new one gets its status after its watch event.
            Err(CallError::Conflict) => {}
            Err(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                if error != CallError::NoClaim {
                    tracing::warn!(cluster = name, kind, stage, "status not written; it is repeated");
                }
                self.status_queue.add_at(&name, Instant::now() + RETRY);
            }
        }
    }

    /// Updates which namespaces are refused because they were recreated.
    pub(super) fn handle_catalog(&mut self) {
        let Some(catalog) = self.parts.catalog.borrow_and_update().clone() else {
            return;
        };
        for (name, cluster) in &catalog.clusters {
            let allowed = &cluster.spec.allowed_namespaces;
            let refused = namespaces::recreated(allowed, &cluster.recorded, &catalog.namespaces, &[]);
            if self.recreated.get(name).map_or(&[][..], Vec::as_slice) != refused {
                self.recreated.insert(name.clone(), refused);
                self.status_queue.add(name);
            }
        }
    }

    /// Updates the number of active Jobs of each cluster.
    pub(super) fn handle_active_jobs(&mut self) {
        let active = Arc::clone(&self.parts.active.borrow_and_update());
        let before = std::mem::replace(&mut self.active, Arc::clone(&active));
        let differs = |one: &BTreeMap<String, usize>, other: &BTreeMap<String, usize>, name: &String| {
            one.get(name) != other.get(name)
        };
        for name in before.keys().chain(active.keys()) {
            if differs(&before, &active, name) {
                self.status_queue.add(name);
            }
        }
    }

    /// Updates the metrics of a cluster that its connection does not set. One that is deleted, and only finishes its tasks, has none.
    pub(super) fn record_probe(&self, name: &str, report: &ConnectionReport) {
        if let Some(probe) = report
            .health
            .last_probe
            .filter(|_| self.store.get(name).is_some())
        {
            let clusters = &self.parts.metrics.clusters;
            let shown = clusters.last_probe.get_or_create(&label(name));
            shown.set(probe.as_second());
        }
    }

    /// Forgets a deleted cluster.
    pub(super) fn forget_name(&mut self, name: &str) {
        self.parts.metrics.clusters.last_probe.remove(&label(name));
        self.written_at.remove(name);
        self.recreated.remove(name);
        self.status_queue.forget(&name.to_owned());
    }

    /// Metrics label of a connection: the first of its clusters, or for a tenant's a hash, as a tenant must not choose labels.
    pub(super) fn label(&self, key: &ConnectionKey) -> String {
        let names = self.bindings.names_at(key);
        let first = names.into_iter().find(|name| self.store.get(name).is_some());
        first.unwrap_or_else(|| {
            let mut hash = Sha256::new();
            hash.update(key.secret_uid.as_bytes());
            hash.update(b"/");
            hash.update(key.key.as_bytes());
            let digest = hex(&hash.finalize());
            format!("own:{}", digest.get(..12).unwrap_or_default())
        })
    }

    /// Rate limit of a connection: the lowest of its clusters.
    pub(super) fn rate_limit(&self, key: &ConnectionKey) -> RateLimit {
        let names = self.bindings.names_at(key);
        let clusters = names.iter().filter_map(|name| self.store.get(name));
        let lowest = clusters
            .map(super::store::ObservedCluster::rate_limit)
            .reduce(|one, other| RateLimit {
                qps: one.qps.min(other.qps),
                burst: one.burst.min(other.burst),
            });
        lowest.unwrap_or_default()
    }

    /// Applies a changed rate limit to a connection.
    pub(super) fn update_rate_limit(&mut self, kubeconfig: &KubeconfigRef) {
        let Some(key) = self.bindings.key_of(kubeconfig).cloned() else {
            return;
        };
        if self
            .rate_limits
            .get(&key)
            .is_some_and(|limit| *limit != self.rate_limit(&key))
        {
            self.reread(&key);
        }
    }
}
