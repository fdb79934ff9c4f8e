//! Reads the Secrets that `RenderClusters` name, a few at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;
use tokio::task::JoinError;

use super::ClusterController;
use super::connection_bindings::KubeconfigRef;
use super::kubeconfig_validator::KubeconfigVerdict;
use super::read_results::SecretReadResult;
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;

/// Time after which a kubeconfig that took too long is decoded again.
const DECODE_RETRY: Duration = Duration::from_secs(300);

impl ClusterController {
    pub(super) fn handle_secret_event(&mut self, event: Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) => self.handle_applied_secret(&secret.metadata),
            Event::Delete(secret) => self.handle_deleted_secret(&secret.metadata),
            Event::Init => self.shown_secrets.begin(()),
            Event::InitDone => {
                let is_gone = self.shown_secrets.finish(&());
                for (name, known) in self.secrets.iter_mut().filter(|(name, _)| is_gone(name)) {
                    known.seen = None;
                    self.read_queue.add(name);
                }
            }
        }
    }

    fn handle_applied_secret(&mut self, metadata: &ObjectMeta) {
        // A Secret that no RenderCluster names yet is read when one does.
        let Some((name, known)) = metadata
            .name
            .as_ref()
            .and_then(|name| Some((name, self.secrets.get_mut(name)?)))
        else {
            return;
        };
        self.shown_secrets.add(&(), name);
        known.seen = metadata.uid.clone().zip(metadata.resource_version.clone());
        if known.seen != known.read {
            self.read_queue.add(name);
        }
    }

    /// Ends the connections of a deleted Secret at once; another Secret of its name may exist already.
    fn handle_deleted_secret(&mut self, metadata: &ObjectMeta) {
        let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else {
            return;
        };
        let Some(known) = self.secrets.get_mut(name) else {
            return;
        };
        known.deleted.insert(uid.clone());
        known.seen = None;
        for kubeconfig in self.bindings.kubeconfigs_in(name) {
            let is_of_it = |key: &crate::remote::ConnectionKey| *key.secret_uid == **uid;
            if self.bindings.key_of(&kubeconfig).is_some_and(is_of_it) {
                self.apply_verdict(&kubeconfig, KubeconfigVerdict::Invalid(KubeconfigFault::Missing));
            }
        }
        self.read_queue.add(name);
    }

    /// Starts the reads that are due, up to the limit.
    pub(super) fn start_reads(&mut self) {
        while self.reading.len() < self.parts.limits.reads {
            let Some(secret) = self.read_queue.take(Instant::now()) else {
                return;
            };
            let kubeconfigs = self.bindings.kubeconfigs_in(&secret);
            if kubeconfigs.is_empty() {
                self.secrets.remove(&secret);
                self.retries.clear(&secret);
                self.read_queue.done(&secret);
                continue;
            }
            let known = self.secrets.entry(secret.clone()).or_default();
            let must_report = std::mem::take(&mut known.must_report);
            // The version that the watch shows was read already.
            let is_read = known.read.is_some() && known.read == known.seen;
            if is_read
                && !must_report
                && kubeconfigs
                    .iter()
                    .all(|kubeconfig| self.bindings.is_settled(kubeconfig))
            {
                self.read_queue.done(&secret);
                continue;
            }
            self.start_read(secret, kubeconfigs, must_report);
        }
    }

    fn start_read(&mut self, secret: String, kubeconfigs: Vec<KubeconfigRef>, must_report: bool) {
        let queries = kubeconfigs
            .iter()
            .map(|kubeconfig| self.bindings.query(kubeconfig, must_report));
        let queries: Vec<_> = queries.collect();
        let (calls, namespace) = (self.parts.hub_client.clone(), self.parts.namespace.clone());
        let validator = Arc::clone(&self.validator);
        let name = secret.clone();
        self.reading.spawn(secret, async move {
            let outcome = match calls.get_secret_body(&namespace, &name).await {
                Ok(Some(body)) => match validator.validate(body, &queries).await {
                    Some(validated) => Ok(Some(validated)),
                    None => Err(CallError::Transport(TransportStage::Decode)),
                },
                Ok(None) => Ok(None),
                Err(error) => Err(error),
            };
            SecretReadResult {
                kubeconfigs,
                must_report,
                outcome,
            }
        });
    }

    pub(super) fn handle_read_result(&mut self, secret: &String, ended: Result<SecretReadResult, JoinError>) {
        let read = ended.unwrap_or_else(|_| SecretReadResult::panicked());
        self.read_queue.done(secret);
        let known = self.secrets.entry(secret.clone()).or_default();
        match read.outcome {
            Ok(validated) => {
                self.retries.clear(secret);
                let validated = validated.filter(|validated| !known.deleted.contains(&validated.uid));
                known.read = validated
                    .as_ref()
                    .map(|validated| (validated.uid.clone(), validated.version.clone()));
                if validated.as_ref().is_some_and(|validated| validated.is_late) {
                    known.must_report = true;
                    self.read_queue.add_at(secret, Instant::now() + DECODE_RETRY);
                }
                let verdicts = validated.map(|validated| validated.verdicts);
                let missing =
                    || std::iter::repeat_with(|| KubeconfigVerdict::Invalid(KubeconfigFault::Missing));
                let verdicts = verdicts.into_iter().flatten().chain(missing());
                for (kubeconfig, verdict) in read.kubeconfigs.iter().zip(verdicts) {
                    self.apply_verdict(kubeconfig, verdict);
                }
            }
            Err(error) => {
                known.must_report |= read.must_report;
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(secret, kind, stage, "a kubeconfig was not read; it is repeated");
                let wait = self.retries.failed(secret);
                self.read_queue.add_at(secret, Instant::now() + wait);
                for kubeconfig in read.kubeconfigs {
                    // A kubeconfig that was read before the right was revoked stays valid.
                    if error == CallError::Forbidden && self.bindings.key_of(&kubeconfig).is_none() {
                        self.apply_verdict(&kubeconfig, KubeconfigVerdict::Invalid(KubeconfigFault::Right));
                    }
                }
            }
        }
    }

    /// Applies the verdict on a kubeconfig, and updates the status of its clusters.
    pub(super) fn apply_verdict(&mut self, kubeconfig: &KubeconfigRef, verdict: KubeconfigVerdict) {
        let actions = self.bindings.apply_verdict(kubeconfig, verdict);
        self.apply_actions(actions);
        for name in self.bindings.names_by(kubeconfig) {
            self.status_queue.add(&name);
        }
    }
}
