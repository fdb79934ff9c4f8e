//! What is wrong, for people: an event when it begins, and the whole of it in the program's ConfigMap.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::api::conditions::Reason;
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pull_secrets::olm::{ComplaintSubject, PullSecretComplaint, WantedEviction};

/// Key of the ConfigMap.
pub(super) const CONDITIONS: &str = "conditions.json";
/// Conditions that are written down; a ConfigMap has 1 MiB.
const WRITTEN: usize = 64;

/// A condition as it is written down.
#[derive(Debug, Serialize, Deserialize)]
struct WrittenCondition {
    kind: String,
    namespace: String,
    name: String,
    reason: String,
    message: String,
}

impl WrittenCondition {
    fn of(complaint: &PullSecretComplaint) -> Self {
        let key = complaint.subject.key();
        Self {
            kind: complaint.subject.kind().to_owned(),
            namespace: key.namespace.clone(),
            name: key.name.clone(),
            reason: complaint.reason.as_str().to_owned(),
            message: complaint.note.clone(),
        }
    }
}

/// What is wrong, and what of it was said.
pub(super) struct OlmReports {
    events: EventRecorder,
    /// What was wrong at the last decision.
    known: BTreeSet<PullSecretComplaint>,
    /// What is written down; `None` before it was read.
    pub written: Option<String>,
    /// What should be.
    wanted: String,
}

impl OlmReports {
    /// Says things by these events.
    pub fn new(events: EventRecorder) -> Self {
        Self {
            events,
            known: BTreeSet::new(),
            written: None,
            wanted: text(&BTreeSet::new()),
        }
    }

    /// Takes in what is wrong now. What was written down before a restart is not said again.
    pub fn take(&mut self, now: BTreeSet<PullSecretComplaint>) {
        if now == self.known {
            return;
        }
        self.wanted = text(&now);
        let written = self.written.as_deref().unwrap_or_default();
        let written: Vec<WrittenCondition> = serde_json::from_str(written).unwrap_or_default();
        for complaint in now.difference(&self.known) {
            let new = WrittenCondition::of(complaint);
            let is_same = |old: &WrittenCondition| {
                (&old.kind, &old.namespace, &old.name, &old.message)
                    == (&new.kind, &new.namespace, &new.name, &new.message)
            };
            if written.iter().any(is_same) {
                continue;
            }
            let (key, reason, note) = (complaint.subject.key(), complaint.reason, &complaint.note);
            tracing::warn!(
                kind = complaint.subject.kind(),
                namespace = key.namespace,
                name = key.name,
                %reason,
                "a pull Secret is not where it should be: {note}"
            );
            self.record(&complaint.subject, complaint.reason, true, complaint.note.clone());
        }
        self.known = now;
    }

    /// What is to be written down, if anything.
    pub fn due(&self) -> Option<String> {
        let written = self.written.as_ref()?;
        (*written != self.wanted).then(|| self.wanted.clone())
    }

    /// Says that a pod was evicted.
    pub fn evicted(&self, eviction: &WantedEviction) {
        let pod = &eviction.pod;
        tracing::info!(
            namespace = pod.namespace,
            pod = pod.name,
            "a pod is evicted: it was made before its ServiceAccount had its pull Secrets"
        );
        let name = &pod.name;
        let note = format!(
            "pod {name} was made before its ServiceAccount had the pull Secrets of the catalog; it is evicted, and its successor has them"
        );
        if let Some(subscription) = &eviction.subscription {
            self.record(subscription, Reason::PodEvicted, false, note);
        }
    }

    fn record(&self, subject: &ComplaintSubject, reason: Reason, is_warning: bool, note: String) {
        let Some(uid) = subject.uid() else { return };
        let subject = EventSubject::Olm(subject.kind(), subject.key().clone(), uid.to_owned());
        self.events.record(EventMessage {
            subject,
            is_warning,
            reason,
            note,
        });
    }
}

fn text(complaints: &BTreeSet<PullSecretComplaint>) -> String {
    let all: Vec<_> = complaints
        .iter()
        .take(WRITTEN)
        .map(WrittenCondition::of)
        .collect();
    serde_json::to_string_pretty(&all).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pipeline::object::ObjectKey;

    #[test]
    fn of_what_is_wrong_so_much_is_written_down() {
        let complaint = |number: usize| PullSecretComplaint {
            subject: ComplaintSubject::Catalog(
                ObjectKey::new("olm", &format!("c{number:03}")),
                "u".to_owned(),
            ),
            reason: Reason::PullSecretNotFound,
            note: "Secret pull, which it names, is not there".to_owned(),
        };
        for (count, written) in [(0, 0), (WRITTEN, WRITTEN), (WRITTEN + 1, WRITTEN)] {
            let text = text(&(0..count).map(complaint).collect());
            let read: Vec<WrittenCondition> = serde_json::from_str(&text).unwrap();
            assert_eq!(read.len(), written);
        }
    }
}
