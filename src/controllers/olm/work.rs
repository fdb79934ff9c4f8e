//! What workers do: read a Secret, write what differs in a namespace, look at its pods, evict one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::decoded::copy_as_read;
use super::namespace_recorder::NamespaceRecorder;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::pull_secrets::{PullSecretClient, PullSecretValue, ReadPullSecret};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{
    CopyDeletion, CopyWrite, LinkChange, NamespaceChanges, ObservedAccount, ObservedCopy, PendingPods,
    WantedEviction,
};

/// What a worker was asked for, and what came of it.
pub(super) enum OlmOutcome {
    /// A Secret was read; `None` where there is none.
    Read(ObjectKey, Result<Option<ReadPullSecret>, CallError>),
    /// Changes were written.
    Written(Box<WrittenNamespace>),
    /// Pods were looked at.
    Looked(String, Result<PendingPods, CallError>),
    /// A pod was evicted, or why not.
    Evicted(Box<WantedEviction>, Eviction),
    /// What is wrong was written down.
    Reported(String, Result<(), CallError>),
    /// Namespaces that were made again were looked at; true for those that are granted by now.
    Rechecked(Vec<(String, bool)>),
}

/// What came of an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Eviction {
    /// The pod is gone by it.
    Done,
    /// It was gone before.
    Gone,
    /// It is no pod of an operator.
    NotOurs,
    /// It stays for now.
    Failed(CallError),
}

/// Why a namespace is not as it should be after a worker was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WorkFailure {
    /// A call failed.
    Call(CallError),
    /// The API server refuses a copy or a link: a right is missing, a quota is used up, or an admission policy denies it.
    Refused(CallError),
    /// It is not the namespace that was recorded.
    Recreated,
    /// Something is there that was not known: the next decision knows it.
    Stale,
    /// The patch of a ServiceAccount of this version was refused: it has another version by now, or a rule refuses the patch.
    PatchRefused(u64),
}

impl From<CallError> for WorkFailure {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Conflict | CallError::NotFound => Self::Stale,
            error => Self::Call(error),
        }
    }
}

/// Why a copy or a link was not written.
fn refused(error: CallError) -> WorkFailure {
    match error {
        CallError::Forbidden | CallError::Invalid => WorkFailure::Refused(error),
        error => error.into(),
    }
}

/// What a worker left in a namespace.
pub(super) struct WrittenNamespace {
    pub namespace: String,
    /// Copies as they are now; `None` where one is gone, with its UID.
    pub copies: Vec<(String, Result<ObservedCopy, String>)>,
    /// `ServiceAccounts` as they are now.
    pub accounts: Vec<(String, ObservedAccount)>,
    /// Whether one of them got a link.
    pub has_linked: bool,
    /// What kept it from the rest.
    pub failure: Option<WorkFailure>,
}

/// Changes of a namespace to be written.
pub(super) struct CopyWork {
    pub calls: PullSecretClient,
    pub recorder: Arc<NamespaceRecorder>,
    pub namespace: String,
    pub changes: NamespaceChanges,
    /// Values that are kept, by their source.
    pub values: BTreeMap<ObjectKey, PullSecretValue>,
}

impl CopyWork {
    /// Writes the changes: copies, links, deletions.
    pub async fn perform(mut self) -> WrittenNamespace {
        let mut done = WrittenNamespace {
            namespace: self.namespace.clone(),
            copies: Vec::new(),
            accounts: Vec::new(),
            has_linked: false,
            failure: None,
        };
        done.failure = self.write_all(&mut done).await.err();
        done
    }

    async fn write_all(&mut self, done: &mut WrittenNamespace) -> Result<(), WorkFailure> {
        let changes = std::mem::take(&mut self.changes);
        // Also where a copy is there: the owner of another namespace of the name can make what looks like one.
        let gives_any =
            !changes.copies.is_empty() || changes.links.iter().any(|(_, change)| !change.added.is_empty());
        if gives_any && !self.recorder.is_granted(&self.namespace).await? {
            return Err(WorkFailure::Recreated);
        }
        let mut failed = None;
        let mut unwritten = BTreeSet::new();
        for write in &changes.copies {
            if let Err(error) = self.write_copy(write, done).await {
                failed = Some(error);
                unwritten.insert(write.name.as_str());
            }
        }
        let mut has_links = true;
        for (account, change) in &changes.links {
            // A link leads to a copy that is there.
            let Some(change) = change.without(&unwritten) else {
                continue;
            };
            if let Err(error) = self.link(account, &change, done).await {
                (failed, has_links) = (Some(error), false);
            }
        }
        if has_links {
            for deletion in &changes.deletions {
                self.delete(deletion, done).await?;
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn delete(&self, deletion: &CopyDeletion, done: &mut WrittenNamespace) -> Result<(), WorkFailure> {
        self.calls
            .delete_copy(&self.key(&deletion.name), &deletion.uid)
            .await?;
        tracing::info!(
            namespace = self.namespace,
            copy = deletion.name,
            "the copy of a pull Secret is deleted"
        );
        done.copies
            .push((deletion.name.clone(), Err(deletion.uid.clone())));
        Ok(())
    }

    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(&self.namespace, name)
    }

    async fn write_copy(
        &mut self,
        write: &CopyWrite,
        done: &mut WrittenNamespace,
    ) -> Result<(), WorkFailure> {
        let (key, value) = (self.key(&write.name), self.value(write).await?);
        let existing = match &write.existing {
            Some(uid) if write.replaces => {
                self.calls.delete_copy(&key, uid).await?;
                done.copies.push((write.name.clone(), Err(uid.clone())));
                None
            }
            existing => existing.as_deref(),
        };
        let copy = match existing {
            Some(uid) => self.calls.change_copy(&key, uid, &write.wanted, &value).await,
            None => self.calls.create_copy(&key, &write.wanted, &value).await,
        };
        match copy {
            Ok(copy) => {
                let (namespace, source) = (&self.namespace, &write.wanted.marks.source);
                tracing::info!(
                    namespace,
                    copy = write.name,
                    source = source.name,
                    "a pull Secret is copied"
                );
                done.copies.push((write.name.clone(), Ok(copy)));
                Ok(())
            }
            Err(CallError::AlreadyExists) => {
                if let Some(there) = self.calls.read_secret(&key).await? {
                    done.copies.push((write.name.clone(), Ok(copy_as_read(&there))));
                }
                Err(WorkFailure::Stale)
            }
            Err(error) => Err(refused(error)),
        }
    }

    /// The value that this copy should have: kept, or read again.
    async fn value(&self, write: &CopyWrite) -> Result<PullSecretValue, WorkFailure> {
        let source = &write.wanted.marks.source;
        if let Some(value) = self.values.get(source) {
            return Ok(value.clone());
        }
        let read = self.calls.read_secret(source).await?;
        let read = read.filter(|read| read.is(write.wanted.content));
        read.and_then(|read| read.value).ok_or(WorkFailure::Stale)
    }

    async fn link(
        &self,
        account: &str,
        change: &LinkChange,
        done: &mut WrittenNamespace,
    ) -> Result<(), WorkFailure> {
        let linked = match self.calls.link(&self.namespace, account, change).await {
            // A test of the patch failed, or an admission policy refuses it: the answers are the same.
            Err(CallError::Invalid) => return Err(WorkFailure::PatchRefused(change.version)),
            answer => answer.map_err(refused)?,
        };
        let (added, removed) = (change.added.len(), change.removed.len());
        tracing::info!(
            namespace = self.namespace,
            account,
            added,
            removed,
            "a ServiceAccount is linked to its copies"
        );
        done.has_linked |= added > 0;
        done.accounts.push((account.to_owned(), linked));
        Ok(())
    }
}

/// Evicts a pod, if it is of an operator.
pub(super) async fn evict(calls: &PullSecretClient, eviction: &WantedEviction) -> Eviction {
    match calls.is_of_operator(eviction).await {
        Ok(true) => {}
        Ok(false) => return Eviction::NotOurs,
        Err(error) => return Eviction::Failed(error),
    }
    match calls.evict(eviction).await {
        Ok(()) => Eviction::Done,
        Err(CallError::NotFound | CallError::Conflict) => Eviction::Gone,
        Err(error) => Eviction::Failed(error),
    }
}

/// Looks whether namespaces that were made again are granted by now.
pub(super) async fn recheck(
    recorder: Arc<NamespaceRecorder>,
    namespaces: Vec<String>,
) -> Vec<(String, bool)> {
    let mut all = Vec::new();
    if recorder.load().await.is_err() {
        return all;
    }
    for namespace in namespaces {
        if let Ok(is_granted) = recorder.is_granted(&namespace).await {
            all.push((namespace, is_granted));
        }
    }
    all
}
