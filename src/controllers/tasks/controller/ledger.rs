//! What the controller writes down, because no object of its tasks says it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;

use crate::kubernetes::apply::CallError;
use crate::plan::remote::ledger;
use crate::plan::remote::ledger::{Ledger, LedgerChanges, OrphanRecord};

use super::super::outcome::RemoteUpdate;
use super::TaskController;
use super::cache_sync::SyncSource;
use super::running_work::{WorkItem, WorkResult};

/// Pause before the ledger is read or written again after a failure.
const LEDGER_RETRY: Duration = Duration::from_secs(5);

impl TaskController {
    /// Reads what an earlier process wrote down.
    pub(super) fn read_ledger(&mut self) {
        let context = Arc::clone(&self.context);
        self.running.spawn(WorkItem::LedgerRead, async move {
            WorkResult::Ledger(context.hub_client.read_ledger().await)
        });
    }

    pub(super) fn handle_ledger(&mut self, read: Result<BTreeMap<String, String>, CallError>) {
        match read {
            Ok(data) => {
                for site in self.sites.load_ledger(Ledger::read(&data), Timestamp::now()) {
                    self.request_site(&site);
                }
                self.mark_synced(&SyncSource::Ledger);
            }
            Err(error) => {
                tracing::warn!(
                    kind = error.kind(),
                    stage = error.stage(),
                    "the ledger cannot be read yet; it is tried again"
                );
                let context = Arc::clone(&self.context);
                self.running.spawn(WorkItem::LedgerRead, async move {
                    tokio::time::sleep(LEDGER_RETRY).await;
                    WorkResult::Ledger(context.hub_client.read_ledger().await)
                });
            }
        }
    }

    /// Adds the orphans that a reconcile recorded in the ledger, and removes those that it displaced.
    pub(super) fn handle_leftovers(&mut self, news: &RemoteUpdate) {
        if let Some(orphan) = &news.orphan {
            self.add_orphan(orphan);
        }
        if !news.forgotten.is_empty() {
            tracing::warn!(
                count = news.forgotten.len(),
                "the ledger is full; the oldest of the namespace with the most is forgotten"
            );
        }
        for task in &news.forgotten {
            if let Some((site, unused)) = self.sites.forget_orphan(task) {
                self.release_site(&site, &unused);
            }
        }
    }

    /// Something was left at a site, which is asked for on its own from now on: its task is gone.
    fn add_orphan(&mut self, orphan: &OrphanRecord) {
        if let Some(forgotten) = self.sites.add_orphan(orphan.clone(), Timestamp::now()) {
            tracing::warn!("too much was left on clusters; the oldest is forgotten");
            self.change_ledger(ledger::forget_orphan(&forgotten));
        }
        if let Some(site) = self.sites.known(&orphan.site).cloned() {
            self.request_site(&site);
        }
    }

    /// Changes the ledger, sooner or later.
    pub(super) fn change_ledger(&mut self, changes: LedgerChanges) {
        self.unwritten.extend(changes);
        self.write_ledger();
    }

    fn write_ledger(&mut self) {
        if self.unwritten.is_empty() || self.is_writing_ledger {
            return;
        }
        let changes = std::mem::take(&mut self.unwritten);
        self.write_ledger_after(Duration::ZERO, changes);
    }

    /// Writes these changes again later, together with newer ones.
    pub(super) fn write_ledger_later(&mut self, changes: LedgerChanges) {
        self.write_ledger_after(LEDGER_RETRY, changes);
    }

    fn write_ledger_after(&mut self, pause: Duration, changes: LedgerChanges) {
        self.is_writing_ledger = true;
        let context = Arc::clone(&self.context);
        self.running
            .spawn(WorkItem::LedgerWrite(changes.clone()), async move {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
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
        self.is_writing_ledger = false;
        if let Err(error) = written {
            tracing::warn!(
                kind = error.kind(),
                stage = error.stage(),
                "the ledger cannot be written yet; it is tried again"
            );
            // A newer change replaces an older one of the same key.
            let newer = std::mem::replace(&mut self.unwritten, changes);
            self.unwritten.extend(newer);
        }
        self.write_ledger();
    }
}
