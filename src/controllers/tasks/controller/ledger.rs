//! What the controller writes down, because no object of its tasks says it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::apply::CallError;
use crate::plan::remote::ledger::{Ledger, LedgerChanges, OrphanRecord};

use super::super::outcome::RemoteUpdate;
use super::TaskController;
use super::cache_sync::SyncSource;
use super::running_work::{WorkItem, WorkResult};

/// Pause before the ledger is read or written again after a failure.
pub(super) const LEDGER_RETRY: Duration = Duration::from_secs(5);

impl TaskController {
    /// Reads what an earlier process wrote down.
    pub(super) fn read_ledger(&mut self, pause: Duration) {
        let context = Arc::clone(&self.context);
        self.running.spawn(WorkItem::LedgerRead, async move {
            tokio::time::sleep(pause).await;
            WorkResult::Ledger(context.hub_client.read_ledger().await)
        });
    }

    pub(super) fn handle_ledger(&mut self, read: Result<BTreeMap<String, String>, CallError>) {
        match read {
            Ok(data) => {
                for site in self.sites.load_ledger(Ledger::read(&data), Timestamp::now()) {
                    self.sites.request(&site);
                }
                self.mark_synced(&SyncSource::Ledger);
            }
            Err(error) => {
                tracing::warn!(
                    kind = error.kind(),
                    stage = error.stage(),
                    "the ledger cannot be read yet; it is tried again"
                );
                self.read_ledger(LEDGER_RETRY);
            }
        }
    }

    /// Adds the orphans that a reconcile recorded in the ledger, and removes those that it displaced.
    pub(super) fn handle_leftovers(&mut self, news: &RemoteUpdate) {
        if let Some(orphan) = &news.orphan {
            self.sites
                .add_orphan(OrphanRecord::clone(orphan), Timestamp::now());
        }
        if !news.forgotten.is_empty() {
            tracing::warn!(
                count = news.forgotten.len(),
                "the ledger is full; the oldest of the namespace with the most is forgotten"
            );
        }
        for task in &news.forgotten {
            self.sites.forget_orphan(task);
        }
    }

    /// Writes these changes, after a pause.
    pub(super) fn write_ledger(&mut self, pause: Duration, changes: LedgerChanges) {
        let context = Arc::clone(&self.context);
        self.running
            .spawn(WorkItem::LedgerWrite(changes.clone()), async move {
                tokio::time::sleep(pause).await;
                let written = context.hub_client.write_ledger(&changes).await;
                match &written {
                    Ok(admitted) if admitted.refused > 0 => {
                        tracing::warn!(
                            "the ledger has no room; the loss of a cluster counts anew after a restart"
                        );
                    }
                    Ok(_) => {}
                    Err(_) => tokio::time::sleep(LEDGER_RETRY).await,
                }
                WorkResult::LedgerWrite(changes, written.map(|_| ()))
            });
    }

    pub(super) fn handle_ledger_written(&mut self, changes: LedgerChanges, written: Result<(), CallError>) {
        if let Err(error) = written {
            tracing::warn!(
                kind = error.kind(),
                stage = error.stage(),
                "the ledger cannot be written yet; it is tried again"
            );
        }
        self.sites.ledger.end(written.is_err().then_some(changes));
    }
}
