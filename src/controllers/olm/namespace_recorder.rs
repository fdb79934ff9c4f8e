//! Writes down which namespace each name meant when it was used first, before a copy is made there.

use std::collections::BTreeMap;
use std::sync::{Mutex as StdMutex, PoisonError};

use tokio::sync::Mutex;

use crate::kubernetes::apply::CallError;
use crate::kubernetes::pull_secrets::PullSecretClient;
use crate::plan::pull_secrets::olm::{NamespaceRecord, RecordedNamespace};

/// The record of namespaces, kept in a ConfigMap.
pub struct NamespaceRecorder {
    calls: PullSecretClient,
    /// Namespace of the ConfigMap.
    namespace: String,
    record: Mutex<NamespaceRecord>,
    /// What is to be written next: one write serves all that wait for one.
    waiting: StdMutex<BTreeMap<String, String>>,
}

impl NamespaceRecorder {
    /// A recorder that knows nothing yet.
    #[must_use]
    pub fn new(calls: PullSecretClient, namespace: String) -> Self {
        Self {
            calls,
            namespace,
            record: Mutex::default(),
            waiting: StdMutex::default(),
        }
    }

    /// Reads the ConfigMap; the whole of its data.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) async fn load(&self) -> Result<BTreeMap<String, String>, CallError> {
        let mut record = self.record.lock().await;
        let data = self.calls.read_record(&self.namespace).await?;
        *record = NamespaceRecord::of(data.clone());
        Ok(data)
    }

    /// Writes a key that is no name of a namespace.
    ///
    /// # Errors
    /// It is not written.
    pub(super) async fn write(&self, key: &str, value: String) -> Result<(), CallError> {
        let data = BTreeMap::from([(key.to_owned(), value)]);
        self.calls.write_record(&self.namespace, &data).await
    }

    /// Whether this namespace is the one that was used first. Where it is used now for the first time, that is written down before.
    ///
    /// # Errors
    /// It cannot be read, or not be written down.
    pub(super) async fn is_granted(&self, namespace: &str) -> Result<bool, CallError> {
        let uid = self.calls.namespace_uid(namespace).await?;
        let known = self.record.lock().await.check(namespace, &uid);
        if known != RecordedNamespace::Unrecorded {
            return Ok(known == RecordedNamespace::Same);
        }
        self.waiting().insert(namespace.to_owned(), uid.clone());
        let mut record = self.record.lock().await;
        let known = record.check(namespace, &uid);
        if known != RecordedNamespace::Unrecorded {
            return Ok(known == RecordedNamespace::Same);
        }
        let due = self.due(namespace, &uid);
        self.calls.write_record(&self.namespace, &due).await?;
        record.note(due);
        Ok(record.check(namespace, &uid) == RecordedNamespace::Same)
    }

    /// What is to be written now, with this namespace, whose entry may have gone with a write that failed.
    fn due(&self, namespace: &str, uid: &str) -> BTreeMap<String, String> {
        let mut due = std::mem::take(&mut *self.waiting());
        due.insert(namespace.to_owned(), uid.to_owned());
        due
    }

    fn waiting(&self) -> std::sync::MutexGuard<'_, BTreeMap<String, String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::base::metrics::Metrics;
    use crate::kubernetes::tests::client_to_nowhere;

    #[tokio::test]
    async fn a_namespace_is_written_down_although_a_write_of_another_took_it_along_and_failed() {
        let calls = PullSecretClient::new(client_to_nowhere(), Metrics::new().0);
        let recorder = NamespaceRecorder::new(calls, "record".to_owned());
        for (namespace, uid) in [("a", "1"), ("b", "2")] {
            recorder.waiting().insert(namespace.to_owned(), uid.to_owned());
        }
        let entry = |namespace: &str, uid: &str| (namespace.to_owned(), uid.to_owned());
        assert_eq!(recorder.due("a", "1"), [entry("a", "1"), entry("b", "2")].into());
        assert_eq!(recorder.due("b", "2"), [entry("b", "2")].into());
    }
}
