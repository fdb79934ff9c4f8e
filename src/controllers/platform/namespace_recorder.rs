//! Records to which namespaces the platform's objects are granted, before anybody works by it.

use std::collections::BTreeSet;

use crate::api::{ClusterRegistrySpec, RenderClusterSpec, RendererClassSpec};
use crate::kubernetes::apply::{CallError, HubClient, PlatformStatusPatch};
use crate::plan::platform::namespaces;
use crate::plan::platform::namespaces::NamespaceUidPatch;

use super::lists::AllowsNamespaces;
use super::namespace_store::NamespaceStore;
use super::store::{PlatformStore, StoredObject};

/// What is granted to namespaces by name, with a record of them.
pub(super) trait RecordsNamespaces: AllowsNamespaces {
    /// Writes to the status of the object of this name; its new resource version.
    fn write(
        calls: &HubClient,
        name: &str,
        write: &PlatformStatusPatch<'_>,
    ) -> impl Future<Output = RecordWriteResult> + Send;
}

type RecordWriteResult = Result<Option<String>, CallError>;

impl RecordsNamespaces for ClusterRegistrySpec {
    async fn write(calls: &HubClient, name: &str, write: &PlatformStatusPatch<'_>) -> RecordWriteResult {
        calls.write_registry_status(name, write).await
    }
}

impl RecordsNamespaces for RendererClassSpec {
    async fn write(calls: &HubClient, name: &str, write: &PlatformStatusPatch<'_>) -> RecordWriteResult {
        calls.write_class_status(name, write).await
    }
}

impl RecordsNamespaces for RenderClusterSpec {
    async fn write(calls: &HubClient, name: &str, write: &PlatformStatusPatch<'_>) -> RecordWriteResult {
        calls.write_cluster_record(name, write).await
    }
}

/// Writes records.
pub(super) struct NamespaceRecorder<'a> {
    pub calls: &'a HubClient,
    pub land: &'a NamespaceStore,
    /// Whether a record changed.
    pub has_changed: bool,
}

impl NamespaceRecorder<'_> {
    /// Brings the records of these objects up to what is listed and exists. Returns those of which that is so now; others stay
    /// among the names and are tried again.
    pub async fn record<S: RecordsNamespaces>(
        &mut self,
        known: &mut PlatformStore<S>,
        names: &mut BTreeSet<String>,
    ) -> Vec<String> {
        let mut recorded = Vec::new();
        for name in std::mem::take(names) {
            match self.record_one(known, &name).await {
                Ok(()) => recorded.push(name),
                Err(error) => {
                    known.failed(&name, error);
                    names.insert(name);
                }
            }
        }
        recorded
    }

    async fn record_one<S: RecordsNamespaces>(
        &mut self,
        known: &mut PlatformStore<S>,
        name: &str,
    ) -> Result<(), CallError> {
        // Once nothing is to leave the record any more, what it lacks is written.
        while let Some((watched, patch)) = known.get(name).and_then(|watched| self.due(watched)) {
            watched.check()?;
            let mut next = watched.status.clone();
            namespaces::apply(&mut next.namespaces, &patch);
            let version = S::write(self.calls, name, &record_write(watched, &patch)).await?;
            self.has_changed = true;
            known.wrote(name, next, version.as_deref());
            known.amended(name, &patch);
        }
        Ok(())
    }

    fn due<'w, S: RecordsNamespaces>(
        &self,
        watched: &'w StoredObject<S>,
    ) -> Option<(&'w StoredObject<S>, NamespaceUidPatch)> {
        let allowed = watched.spec.as_ref()?.allowed();
        let (recorded, land) = (&watched.status.namespaces, self.land);
        // Before anything else is recorded, and only where this hub answers for the namespace.
        let amends = watched.amends().filter(|(name, _)| land.is_own(name));
        let amends: NamespaceUidPatch = amends.map(|(name, uid)| (name.clone(), uid.clone())).collect();
        if !amends.is_empty() {
            return Some((watched, amends));
        }
        let patch = namespaces::record(allowed, recorded, land.existing(), |name| land.is_own(name));
        (!patch.is_empty()).then_some((watched, patch))
    }
}

/// Writes of the record only what changes: other hubs keep their namespaces in it. A first use that somebody has recorded
/// since is not recorded over.
pub(super) fn record_write<'a, S>(
    watched: &'a StoredObject<S>,
    patch: &'a NamespaceUidPatch,
) -> PlatformStatusPatch<'a> {
    PlatformStatusPatch {
        uid: &watched.uid,
        version: patch.values().any(Option::is_some).then_some(watched.version),
        conditions: &[],
        observed_generation: None,
        namespaces: patch,
    }
}
