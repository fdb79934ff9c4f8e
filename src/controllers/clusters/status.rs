//! Says of each `RenderCluster` how it stands: in its status, and in metrics.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use sha2::{Digest, Sha256};

use super::ClusterController;
use super::connection_bindings::KubeconfigRef;
use super::read_results::ClusterStatusWrite;
use crate::api::RenderClusterStatus;
use crate::api::conditions::Reason;
use crate::api::names::hex;
use crate::base::metrics::clusters::label;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::platform::namespaces;
use crate::plan::remote::cluster_status;
use crate::plan::remote::cluster_status::{ClusterFacts, ClusterState};
use crate::remote::ConnectionKey;
use crate::remote::connection::ConnectionReport;
use crate::remote::connection_registry::RateLimit;

/// Pause before a status is written again that could not be.
const RETRY: Duration = Duration::from_secs(2);

/// Tells people of a cluster that was connected, lost or refused, once for each turn.
fn tell(
    events: &EventRecorder,
    (cluster, uid): (&str, &str),
    (old, new): (&RenderClusterStatus, &RenderClusterStatus),
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
        subject: EventSubject::Cluster(cluster.to_owned(), uid.to_owned()),
        is_warning,
        reason,
        note: note.to_owned(),
    });
}

impl ClusterController {
    /// Starts the writes that are due, as many as may be under way.
    pub(super) fn start_writes(&mut self) {
        while self.writing.len() < self.parts.limits.writes {
            let Some(name) = self.to_tell.take(Instant::now()) else {
                return;
            };
            let now = Timestamp::now();
            let Some((uid, status, due)) = self.to_write(&name, now) else {
                self.to_tell.done(&name);
                continue;
            };
            if let Ok(wait) = Duration::try_from(due.duration_since(now))
                && !wait.is_zero()
            {
                self.to_tell.done(&name);
                self.to_tell.add_at(&name, Instant::now() + wait);
                continue;
            }
            let (calls, seen) = (self.parts.calls.clone(), self.store.get(&name));
            let before = seen.map(|seen| seen.status.clone()).unwrap_or_default();
            self.writing.spawn(async move {
                let outcome = calls.write_cluster_status(&name, &uid, &status).await;
                ClusterStatusWrite {
                    name,
                    uid,
                    status,
                    before,
                    outcome,
                }
            });
        }
    }

    /// Somebody wrote a status. Hubs that keep kubeconfigs in other namespaces see the same clusters: of all of them only one
    /// that has a connection speaks against what another one said, and not at once, so that no two of them quarrel.
    pub(super) fn heard(&mut self, name: &str) {
        let is_connection = matches!(self.standing(name), Some(ClusterState::Connection { .. }));
        let written = self.to_write(name, Timestamp::now());
        let seen = self.store.get(name).map(|seen| &seen.status);
        let contradicts = |(_, next, _): &(_, RenderClusterStatus, _)| {
            seen.is_some_and(|seen| cluster_status::contradicts(seen, next))
        };
        if is_connection && written.as_ref().is_some_and(contradicts) {
            self.to_tell
                .add_at(&name.to_owned(), Instant::now() + cluster_status::PAUSE);
        }
    }

    /// What is to be written of a cluster, and when.
    fn to_write(&self, name: &str, now: Timestamp) -> Option<(String, RenderClusterStatus, Timestamp)> {
        let seen = self.store.get(name)?;
        let facts = ClusterFacts {
            generation: seen.generation,
            state: self.standing(name)?,
            is_suspended: seen.spec.as_ref().is_some_and(|spec| spec.suspend),
            recreated: self.recreated.get(name).map_or(&[], Vec::as_slice),
            active_jobs: self.active.get(name).copied().unwrap_or_default(),
        };
        let next = cluster_status::next(&seen.status, &facts, now);
        let written = self.told_at.get(name).copied();
        let due = cluster_status::due(&seen.status, &next, written, now)?;
        Some((seen.uid.clone(), next, due))
    }

    /// How a cluster stands; `None` where that is not known yet.
    fn standing(&self, name: &str) -> Option<ClusterState> {
        let Some((site, _)) = self.store.get(name)?.site_and_kubeconfig(name) else {
            return Some(ClusterState::Nowhere(cluster_status::undecodable()));
        };
        match self.bindings.way_to(&site)? {
            Err(fault) => Some(ClusterState::Nowhere(fault)),
            Ok(key) => Some(self.reports.get(key).map_or_else(ClusterState::first, |report| {
                ClusterState::Connection {
                    health: report.health,
                    fault: report.fault(&site),
                }
            })),
        }
    }

    /// The call that told last that a cluster is not connected, where one did.
    fn failure(&self, name: &str) -> Option<CallError> {
        let (site, _) = self.store.get(name)?.site_and_kubeconfig(name)?;
        let key = self.bindings.way_to(&site)?.ok()?;
        let report = self.reports.get(key)?;
        report.failure.filter(|_| report.health.fault.is_some())
    }

    pub(super) fn take_written(&mut self, written: ClusterStatusWrite) {
        let name = written.name;
        self.to_tell.done(&name);
        match written.outcome {
            Ok(version) => {
                let failure = self.failure(&name);
                if let Some(seen) = self.store.get_mut(&name, &written.uid) {
                    tell(
                        &self.parts.events,
                        (&name, &written.uid),
                        (&written.before, &written.status),
                        failure,
                    );
                    seen.wrote(written.status, version.as_deref());
                    self.told_at.insert(name, Timestamp::now());
                }
            }
            // Another one has its name; that one is told of when it is seen.
            Err(CallError::Conflict) => {}
            Err(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                if error != CallError::NoClaim {
                    tracing::warn!(cluster = name, kind, stage, "status not written; it is repeated");
                }
                self.to_tell.add_at(&name, Instant::now() + RETRY);
            }
        }
    }

    /// Takes in which namespaces are refused because they were recreated.
    pub(super) fn take_catalog(&mut self) {
        let Some(catalog) = self.parts.catalog.borrow_and_update().clone() else {
            return;
        };
        for (name, cluster) in &catalog.clusters {
            let allowed = &cluster.spec.allowed_namespaces;
            let refused = namespaces::recreated(allowed, &cluster.recorded, &catalog.namespaces, &[]);
            if self.recreated.get(name).map_or(&[][..], Vec::as_slice) != refused {
                self.recreated.insert(name.clone(), refused);
                self.to_tell.add(name);
            }
        }
    }

    /// Takes in how many Jobs run where.
    pub(super) fn take_active(&mut self) {
        let active = Arc::clone(&self.parts.active.borrow_and_update());
        let before = std::mem::replace(&mut self.active, Arc::clone(&active));
        let differs = |here: &BTreeMap<String, usize>, there: &BTreeMap<String, usize>, name: &String| {
            here.get(name) != there.get(name)
        };
        for name in before.keys().chain(active.keys()) {
            if differs(&before, &active, name) {
                self.to_tell.add(name);
            }
        }
    }

    /// Shows of a cluster what is not shown by its connection.
    pub(super) fn count(&self, name: &str, report: &ConnectionReport) {
        if let Some(probe) = report.health.last_probe {
            let clusters = &self.parts.metrics.clusters;
            let shown = clusters.last_probe.get_or_create(&label(name));
            shown.set(probe.as_second());
        }
    }

    /// Forgets everything of a cluster that is gone.
    pub(super) fn forget_name(&mut self, name: &str) {
        self.parts.metrics.clusters.last_probe.remove(&label(name));
        self.told_at.remove(name);
        self.recreated.remove(name);
        self.to_tell.forget(&name.to_owned());
    }

    /// The name that a connection is counted by: the first of its clusters, and for a tenant's nothing that the tenant chose.
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

    /// How many requests a connection gets: what the most modest of its clusters asks for.
    pub(super) fn rate_limit(&self, key: &ConnectionKey) -> RateLimit {
        let names = self.bindings.names_at(key);
        let paces = names.iter().filter_map(|name| self.store.get(name));
        let modest = paces
            .map(super::store::ObservedCluster::rate_limit)
            .reduce(|one, other| RateLimit {
                qps: one.qps.min(other.qps),
                burst: one.burst.min(other.burst),
            });
        modest.unwrap_or_default()
    }

    /// Lets a connection have the pace that its clusters ask for now.
    pub(super) fn repace(&mut self, lead: &KubeconfigRef) {
        let Some(key) = self.bindings.key_of(lead).cloned() else {
            return;
        };
        if self
            .paces
            .get(&key)
            .is_some_and(|pace| *pace != self.rate_limit(&key))
        {
            self.read_again(&key);
        }
    }
}
