//! Gives workers what is due.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use super::controller::{OlmController, RECHECK, WORKERS, WorkKey};
use super::reports::CONDITIONS;
use super::work::{CopyWork, OlmOutcome, evict, recheck};

/// Namespaces of one look at those that were made again.
const RECHECKED: usize = 64;

impl OlmController {
    /// Whether a worker may begin with this.
    fn is_free(&self, key: &WorkKey, now: Instant) -> bool {
        self.workers.len() < WORKERS
            && !self.workers.contains_key(key)
            && self.retries.get(key).is_none_or(|(_, due)| *due <= now)
    }

    /// Gives workers what is due.
    pub(super) fn dispatch(&mut self, now: Instant) {
        if !self.was_settled {
            return;
        }
        self.dispatch_reads(now);
        self.dispatch_writes(now);
        self.dispatch_pods(now);
        self.dispatch_reports(now);
    }

    fn dispatch_reads(&mut self, now: Instant) {
        let mut due = std::mem::take(&mut self.found.unread);
        if self.foreign_due <= now {
            self.foreign_due = now + RECHECK;
            due.extend(self.found.foreign.iter().cloned());
        }
        for secret in due {
            let key = WorkKey::Secret(secret.clone());
            // What a worker is writing is known once it has ended.
            let is_written = self
                .workers
                .contains_key(&WorkKey::Namespace(secret.namespace.clone()));
            if is_written || !self.is_free(&key, now) {
                self.found.unread.push(secret);
                continue;
            }
            let calls = self.calls.clone();
            self.workers.spawn(key, async move {
                let read = calls.read_secret(&secret).await;
                OlmOutcome::Read(secret, read)
            });
        }
    }

    fn dispatch_writes(&mut self, now: Instant) {
        let room = WORKERS.saturating_sub(self.workers.len());
        let keys = self
            .pending
            .keys()
            .map(|namespace| WorkKey::Namespace(namespace.clone()));
        let free: Vec<WorkKey> = keys.filter(|key| self.is_free(key, now)).take(room).collect();
        for key in free {
            let WorkKey::Namespace(namespace) = key.clone() else {
                continue;
            };
            let Some(changes) = self.pending.remove(&namespace) else {
                continue;
            };
            let mut values = BTreeMap::new();
            for write in &changes.copies {
                let source = &write.wanted.marks.source;
                let kept = self.values.get(source, write.wanted.content);
                values.extend(kept.map(|value| (source.clone(), value)));
            }
            let work = CopyWork {
                calls: self.calls.clone(),
                recorder: Arc::clone(&self.recorder),
                namespace,
                changes,
                values,
            };
            self.workers.spawn(
                key,
                async move { OlmOutcome::Written(Box::new(work.perform().await)) },
            );
        }
    }

    fn dispatch_pods(&mut self, now: Instant) {
        for namespace in self.looks.due(now) {
            let key = WorkKey::Pods(namespace.clone());
            if self.is_free(&key, now) {
                let calls = self.calls.clone();
                self.workers.spawn(key, async move {
                    let pods = calls.pending_pods(&namespace).await;
                    OlmOutcome::Looked(namespace, pods)
                });
            }
        }
        for eviction in self.evictions.in_turn(self.plan.evictions.clone()) {
            let key = WorkKey::ReplicaSet(eviction.replica_set.1.clone());
            let is_due = self.evictions.due(&eviction, now).is_some_and(|due| due <= now);
            if is_due && self.is_free(&key, now) {
                let calls = self.calls.clone();
                self.workers.spawn(key, async move {
                    let done = evict(&calls, &eviction).await;
                    OlmOutcome::Evicted(Box::new(eviction), done)
                });
            }
        }
    }

    fn dispatch_reports(&mut self, now: Instant) {
        if let Some(text) = self.reports.due().filter(|_| self.is_free(&WorkKey::Report, now)) {
            let recorder = Arc::clone(&self.recorder);
            self.workers.spawn(WorkKey::Report, async move {
                let written = recorder.write(CONDITIONS, text.clone()).await;
                OlmOutcome::Reported(text, written)
            });
        }
        let mut recreated = self.found.recreated.clone();
        if !recreated.is_empty() && self.recheck_due <= now && self.is_free(&WorkKey::Recheck, now) {
            self.recheck_due = now + RECHECK;
            recreated.truncate(RECHECKED);
            let recorder = Arc::clone(&self.recorder);
            self.workers.spawn(WorkKey::Recheck, async move {
                OlmOutcome::Rechecked(recheck(recorder, recreated).await)
            });
        }
    }
}
