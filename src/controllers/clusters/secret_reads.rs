//! Reads the Secrets that `RenderClusters` name, each by itself and few at once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::Event;

use super::ClusterController;
use super::connection_bindings::KubeconfigRef;
use super::kubeconfig_validator::KubeconfigVerdict;
use super::read_results::SecretReadResult;
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;

/// Time after which a kubeconfig is decoded again that took too long.
const LATE: Duration = Duration::from_secs(300);

impl ClusterController {
    pub(super) fn take_secret(&mut self, event: Event<PartialObjectMeta<Secret>>) {
        match event {
            Event::Apply(secret) | Event::InitApply(secret) => self.saw_secret(&secret.metadata),
            Event::Delete(secret) => self.lost_secret(&secret.metadata),
            Event::Init => self.secrets.values_mut().for_each(|known| known.is_shown = false),
            Event::InitDone => {
                for (name, known) in self.secrets.iter_mut().filter(|(_, known)| !known.is_shown) {
                    known.seen = None;
                    self.to_read.add(name);
                }
            }
        }
    }

    fn saw_secret(&mut self, metadata: &ObjectMeta) {
        // One that nobody named yet is read when somebody does.
        let Some((name, known)) = metadata
            .name
            .as_ref()
            .and_then(|name| Some((name, self.secrets.get_mut(name)?)))
        else {
            return;
        };
        known.is_shown = true;
        known.seen = metadata.uid.clone().zip(metadata.resource_version.clone());
        if known.seen != known.read {
            self.to_read.add(name);
        }
    }

    /// Ends at once what a Secret led to; another one of its name may be there already.
    fn lost_secret(&mut self, metadata: &ObjectMeta) {
        let (Some(name), Some(uid)) = (&metadata.name, &metadata.uid) else {
            return;
        };
        let Some(known) = self.secrets.get_mut(name) else {
            return;
        };
        known.deleted.insert(uid.clone());
        known.seen = None;
        for lead in self.bindings.leads_into(name) {
            let is_of_it = |key: &crate::remote::ConnectionKey| *key.secret_uid == **uid;
            if self.bindings.key_of(&lead).is_some_and(is_of_it) {
                self.settle(&lead, KubeconfigVerdict::Nowhere(KubeconfigFault::Missing));
            }
        }
        self.to_read.add(name);
    }

    /// Starts the readings that are due, as many as may be under way.
    pub(super) fn start_reads(&mut self) {
        while self.reading.len() < self.parts.limits.reads {
            let Some(secret) = self.to_read.take(Instant::now()) else {
                return;
            };
            let leads = self.bindings.leads_into(&secret);
            if leads.is_empty() {
                self.secrets.remove(&secret);
                self.retries.clear(&secret);
                self.to_read.done(&secret);
                continue;
            }
            let known = self.secrets.entry(secret.clone()).or_default();
            let is_told_anyway = std::mem::take(&mut known.is_told_anyway);
            // It was read while the watch was about to show it.
            let is_read = known.read.is_some() && known.read == known.seen;
            if is_read && !is_told_anyway && leads.iter().all(|lead| self.bindings.is_settled(lead)) {
                self.to_read.done(&secret);
                continue;
            }
            let asked = leads.iter().map(|lead| self.bindings.query(lead, is_told_anyway));
            let asked: Vec<_> = asked.collect();
            let (calls, namespace) = (self.parts.calls.clone(), self.parts.namespace.clone());
            let judge = Arc::clone(&self.judge);
            self.reading.spawn(async move {
                let outcome = match calls.get_secret_body(&namespace, &secret).await {
                    Ok(Some(body)) => match judge.judge(body, &asked).await {
                        Some(judged) => Ok(Some(judged)),
                        None => Err(CallError::Transport(TransportStage::Decode)),
                    },
                    Ok(None) => Ok(None),
                    Err(error) => Err(error),
                };
                SecretReadResult {
                    secret,
                    leads,
                    outcome,
                }
            });
        }
    }

    pub(super) fn take_read(&mut self, read: SecretReadResult) {
        let secret = read.secret;
        self.to_read.done(&secret);
        let known = self.secrets.entry(secret.clone()).or_default();
        match read.outcome {
            Ok(judged) => {
                self.retries.clear(&secret);
                let judged = judged.filter(|judged| !known.deleted.contains(&judged.uid));
                known.read = judged
                    .as_ref()
                    .map(|judged| (judged.uid.clone(), judged.version.clone()));
                if judged.as_ref().is_some_and(|judged| judged.is_late) {
                    known.is_told_anyway = true;
                    self.to_read.add_at(&secret, Instant::now() + LATE);
                }
                let verdicts = judged.map(|judged| judged.verdicts);
                let missing =
                    || std::iter::repeat_with(|| KubeconfigVerdict::Nowhere(KubeconfigFault::Missing));
                let verdicts = verdicts.into_iter().flatten().chain(missing());
                for (lead, verdict) in read.leads.iter().zip(verdicts) {
                    self.settle(lead, verdict);
                }
            }
            Err(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(secret, kind, stage, "a kubeconfig was not read; it is repeated");
                let wait = self.retries.failed(&secret);
                self.to_read.add_at(&secret, Instant::now() + wait);
                // What was read before the right was taken away is as good as it was.
                let unread = read
                    .leads
                    .iter()
                    .filter(|lead| self.bindings.key_of(lead).is_none());
                let unread: Vec<KubeconfigRef> = unread.cloned().collect();
                if error == CallError::Forbidden {
                    for lead in &unread {
                        self.settle(lead, KubeconfigVerdict::Nowhere(KubeconfigFault::Right));
                    }
                }
            }
        }
    }

    /// Takes in what a lead came to, and says it of its clusters.
    pub(super) fn settle(&mut self, lead: &KubeconfigRef, verdict: KubeconfigVerdict) {
        // Who was lost before is lost since then.
        let report = self.bindings.key_of(lead).and_then(|key| self.reports.get(key));
        let since = report.and_then(|report| report.health.since);
        let acts = self
            .bindings
            .resolve(lead, verdict, since.unwrap_or_else(Timestamp::now));
        self.act(acts);
        for name in self.bindings.names_by(lead) {
            self.to_tell.add(&name);
        }
    }
}
