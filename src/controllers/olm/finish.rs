//! What a worker brought back, and what is to be done about it.

use std::time::{Duration, Instant};

use tokio::task::JoinError;

use super::controller::{FAILED, OlmController, STALE, WorkKey};
use super::pod_looks::has_all_linked;
use super::work::{Eviction, OlmOutcome, WorkFailure, WrittenNamespace};
use crate::kubernetes::apply::CallError;
use crate::kubernetes::pull_secrets::ReadPullSecret;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{NamespaceGrant, PendingPods, PullSecretState, WantedEviction};

/// How long writes are refused before the API server counts as refusing: a race with another writer, or a watch that is behind, is
/// over by then.
const REFUSED: Duration = Duration::from_secs(5);

impl OlmController {
    /// Takes in what a worker brought back.
    pub(super) fn finish(&mut self, key: WorkKey, ended: Result<OlmOutcome, JoinError>) {
        let Ok(outcome) = ended else {
            // A panic is logged where it happens; what was written is not known, so the process ends and starts anew.
            tracing::error!("a worker ended with a panic");
            std::process::abort();
        };
        match outcome {
            OlmOutcome::Read(secret, read) => self.finish_read(key, &secret, read),
            OlmOutcome::Written(written) => self.finish_written(key, *written),
            OlmOutcome::Looked(namespace, pods) => self.finish_look(&namespace, pods),
            OlmOutcome::Evicted(eviction, done) => self.finish_eviction(&eviction, done),
            OlmOutcome::Reported(text, written) => match written {
                Ok(()) => {
                    self.retries.remove(&key);
                    self.reports.written = Some(text);
                }
                Err(error) => self.log_failure(key, error),
            },
            OlmOutcome::Rechecked(looked) => {
                for (namespace, is_granted) in looked {
                    if is_granted {
                        tracing::info!(namespace, "this namespace is granted anew");
                        self.store.set_grant(&namespace, NamespaceGrant::Granted);
                        self.change();
                    }
                }
            }
        }
    }

    fn log_failure(&mut self, key: WorkKey, error: CallError) {
        let (kind, stage) = (error.kind(), error.stage());
        tracing::warn!(work = ?key, kind, stage, "a call about pull Secrets failed; it is made again");
        self.fail(key, FAILED);
    }

    fn finish_read(
        &mut self,
        key: WorkKey,
        secret: &ObjectKey,
        read: Result<Option<ReadPullSecret>, CallError>,
    ) {
        match read {
            Ok(Some(read)) => {
                self.retries.remove(&key);
                self.store.take_read(secret, &read);
                if let (PullSecretState::Usable(content), Some(value)) = (read.state, read.value)
                    && self.store.observed.sources.contains_key(secret)
                {
                    self.values.keep(secret, content, value);
                }
                self.change();
            }
            Ok(None) => {
                self.retries.remove(&key);
                self.store.drop_copy(secret, None);
                self.change();
            }
            Err(error) => self.log_failure(key, error),
        }
    }

    fn finish_written(&mut self, key: WorkKey, written: WrittenNamespace) {
        let namespace = written.namespace;
        // What was decided while it was written rests on what was there before.
        self.pending.remove(&namespace);
        for (name, copy) in written.copies {
            let copy_key = ObjectKey::new(&namespace, &name);
            match copy {
                Ok(copy) => self.store.take_copy(&copy_key, copy),
                Err(uid) => self.store.drop_copy(&copy_key, Some(&uid)),
            }
        }
        for (name, account) in written.accounts {
            self.store
                .take_account(&ObjectKey::new(&namespace, &name), account);
        }
        if written.has_linked {
            // What waited at an earlier look may run by now, and was made before the new link.
            self.forget_pods(&namespace);
            self.looks.start(&namespace, Instant::now());
        }
        match written.failure {
            None => {
                self.retries.remove(&key);
                self.refusals.remove(&namespace);
                self.store.set_refused(&namespace, false);
                self.change();
            }
            Some(WorkFailure::Stale) => self.fail(key, STALE),
            Some(WorkFailure::PatchRefused(version)) => {
                let is_refused = self.is_refused(&namespace, Some(version));
                self.fail(key, if is_refused { FAILED } else { STALE });
            }
            Some(WorkFailure::Refused(error)) => {
                self.is_refused(&namespace, None);
                self.log_failure(key, error);
            }
            Some(WorkFailure::Call(error)) => self.log_failure(key, error),
            Some(WorkFailure::Recreated) => {
                self.store.set_grant(&namespace, NamespaceGrant::Recreated);
                self.change();
            }
        }
    }

    /// Notes a refused write, of a ServiceAccount in this version; whether the API server counts as refusing by now.
    fn is_refused(&mut self, namespace: &str, version: Option<u64>) -> bool {
        let now = Instant::now();
        let (before, since) = self
            .refusals
            .entry(namespace.to_owned())
            .or_insert((version, now));
        if *before != version {
            (*before, *since) = (version, now);
        }
        let is_refused = now.duration_since(*since) >= REFUSED;
        if is_refused && self.store.set_refused(namespace, true) {
            tracing::warn!(
                namespace,
                "the API server refuses what is to be written in this namespace; look for a quota, an admission policy or a missing right"
            );
        }
        is_refused
    }

    fn forget_pods(&mut self, namespace: &str) {
        if let Some(seen) = self.store.observed.namespaces.get_mut(namespace) {
            seen.pods.clear();
        }
    }

    fn finish_look(&mut self, namespace: &str, pods: Result<PendingPods, CallError>) {
        let now = Instant::now();
        let Ok(pods) = pods else {
            return self.looks.end(namespace, false, now);
        };
        let is_over = has_all_linked(namespace, &pods, &self.plan);
        self.looks.end(namespace, is_over, now);
        if let Some(seen) = self.store.observed.namespaces.get_mut(namespace) {
            seen.pods = pods.waiting;
        }
        self.change();
    }

    fn finish_eviction(&mut self, eviction: &WantedEviction, done: Eviction) {
        let now = Instant::now();
        match done {
            Eviction::Done => {
                self.evictions.note(eviction, true, now);
                self.reports.evicted(eviction);
                self.looks.start(&eviction.pod.namespace, now);
            }
            Eviction::Gone => self.evictions.note(eviction, true, now),
            Eviction::NotOurs => self.evictions.never(eviction, now),
            Eviction::Failed(error) => {
                let (namespace, pod) = (&eviction.pod.namespace, &eviction.pod.name);
                tracing::warn!(
                    namespace,
                    pod,
                    kind = error.kind(),
                    stage = error.stage(),
                    "a pod is not evicted; it is tried again"
                );
                self.evictions.note(eviction, false, now);
            }
        }
        self.change();
    }
}
