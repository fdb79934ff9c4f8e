//! The ConfigMap in which the hub keeps what no object of its tasks shows.
//!
//! Its limits are checked here, before each write and against its current content: the write is refused where another instance,
//! or an administrator, changed it since, and then it is read again.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{GetParams, ObjectMeta, Patch};
use serde_json::json;

use crate::api::labels::{MANAGED_BY, MANAGED_BY_VALUE};
use crate::plan::remote::ledger::{AdmittedChanges, LedgerBudget, LedgerChanges};

use super::client::{CachedLedger, HubClient};
use super::error::{CallError, found};
use super::response::{WriteResponse, create, manager};
use super::transport_stage::TransportStage;

/// Writes that are tried where others write at the same time.
const ATTEMPTS: usize = 4;

impl HubClient {
    /// All entries; none where there is no ledger yet.
    ///
    /// # Errors
    /// They cannot be read.
    pub async fn read_ledger(&self) -> Result<BTreeMap<String, String>, CallError> {
        let mut known = self.ledger.lock().await;
        let (ledger, data) = self.get_ledger().await?;
        *known = Some(ledger);
        Ok(data)
    }

    /// Writes and removes entries as far as there is space, and changes no other entry but those that a new one displaces.
    ///
    /// # Errors
    /// The write failed.
    pub async fn write_ledger(&self, changes: &LedgerChanges) -> Result<AdmittedChanges, CallError> {
        let mut known = self.ledger.lock().await;
        for _ in 0..ATTEMPTS {
            // What is known is put back only after a write that came through.
            let mut ledger = match known.take() {
                Some(ledger) => ledger,
                None => self.get_ledger().await?.0,
            };
            let admitted = ledger.ledger_budget.admit(changes);
            let version = match &ledger.version {
                version if admitted.changes.is_empty() => Ok(version.clone()),
                Some(version) => self.change_ledger(version, &admitted.changes).await.map(Some),
                None if admitted.changes.values().all(Option::is_none) => Ok(None),
                None => self.create_ledger(&admitted.changes).await.map(Some),
            };
            match version {
                Ok(version) => {
                    ledger.version = version;
                    *known = Some(ledger);
                    return Ok(admitted);
                }
                Err(CallError::Conflict | CallError::AlreadyExists | CallError::NotFound) => {}
                // The API server decides how much it can store.
                Err(CallError::Invalid) => return Ok(AdmittedChanges::nothing(changes)),
                Err(error) => return Err(error),
            }
        }
        Err(CallError::Conflict)
    }

    async fn get_ledger(&self) -> Result<(CachedLedger, BTreeMap<String, String>), CallError> {
        let request = self
            .objects
            .own::<ConfigMap>()
            .get(&self.ledger_name(), &GetParams::default());
        let read: Option<ConfigMap> = found(self.objects.send("get", "configmaps", request).await)?;
        let (version, data) = read.map_or((None, None), |map| (map.metadata.resource_version, map.data));
        let data = data.unwrap_or_default();
        let room = LedgerBudget::of(&data);
        Ok((
            CachedLedger {
                version,
                ledger_budget: room,
            },
            data,
        ))
    }

    async fn change_ledger(&self, version: &str, changes: &LedgerChanges) -> Result<String, CallError> {
        let body = Patch::Merge(json!({"metadata": {"resourceVersion": version}, "data": changes}));
        let request = self
            .objects
            .own::<ConfigMap>()
            .patch_metadata(&self.ledger_name(), &manager(), &body);
        let answer: WriteResponse = self.objects.write("patch", "configmaps", request).await?;
        Ok(answer.metadata.resource_version)
    }

    async fn create_ledger(&self, changes: &LedgerChanges) -> Result<String, CallError> {
        let kept = changes
            .iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.ledger_name()),
                labels: Some([(MANAGED_BY.to_owned(), MANAGED_BY_VALUE.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(kept.map(|(key, value)| (key.clone(), value.clone())).collect()),
            ..ConfigMap::default()
        };
        let body = serde_json::to_vec(&map).map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let request = self.objects.own::<ConfigMap>().create(&create(false), body);
        let answer: WriteResponse = self.objects.write("create", "configmaps", request).await?;
        Ok(answer.metadata.resource_version)
    }

    fn ledger_name(&self) -> String {
        format!("renderhub-ledger-{}", self.hub_id())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use http::Method;
    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::api::names::HubId;
    use crate::base::metrics::Metrics;
    use crate::kubernetes::apply::{ApiTransport, ResponseLimit, TaskObjectClient};
    use crate::plan::remote::ledger::record_loss;
    use crate::plan::remote::site::{ClusterName, Site};

    /// An API server with a ledger that others change before so many of the writes; how often it was read and written.
    #[derive(Debug, Default)]
    struct Contended {
        changes: AtomicUsize,
        reads: AtomicUsize,
        writes: AtomicUsize,
    }

    impl ApiTransport for Contended {
        fn send(
            &self,
            request: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            let version = self.reads.load(Ordering::Relaxed).to_string();
            let map =
                json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"resourceVersion": version}});
            let map = Bytes::from(map.to_string());
            let answer = if *request.method() == Method::GET {
                self.reads.fetch_add(1, Ordering::Relaxed);
                Ok(map)
            } else {
                self.writes.fetch_add(1, Ordering::Relaxed);
                let left = self
                    .changes
                    .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
                left.map_or(Ok(map), |_| Err(CallError::Conflict))
            };
            Box::pin(async move { answer })
        }
    }

    #[tokio::test]
    async fn a_ledger_that_others_write_at_the_same_time_is_written_a_few_times_and_then_later() {
        const N: usize = ATTEMPTS;
        let site = Site {
            cluster: ClusterName::Platform("west".to_owned()),
            namespace: "jobs".to_owned(),
        };
        let changes = record_loss(&site, Timestamp::UNIX_EPOCH);
        // How often others write, and the results of the first call and of the next one, with all reads and writes until then.
        for (others, first, next) in [
            (0, (true, 1, 1), (true, 1, 2)),
            (N - 1, (true, N, N), (true, N, N + 1)),
            (N, (false, N, N), (true, N + 1, N + 1)),
        ] {
            let transport = Arc::new(Contended {
                changes: AtomicUsize::new(others),
                ..Contended::default()
            });
            let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
            let metrics = Some(Metrics::new().0);
            let calls = HubClient::over(TaskObjectClient::new(
                transport.clone(),
                metrics,
                "rendering".to_owned(),
                hub,
            ));
            for expected in [first, next] {
                let written = calls.write_ledger(&changes).await;
                let is_written = match written {
                    Ok(admitted) => admitted.changes == changes,
                    Err(error) => {
                        assert_eq!(error, CallError::Conflict);
                        false
                    }
                };
                let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
                let found = (is_written, count(&transport.reads), count(&transport.writes));
                assert_eq!(found, expected, "others write {others} times");
            }
        }
    }
}
