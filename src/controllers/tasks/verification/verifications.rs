//! Verifications: requests to registries that run outside of the reconciles, so that no worker waits for a registry.

use std::collections::HashMap;
use std::sync::Arc;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::task::JoinError;
use tokio_util::task::JoinMap;

use super::pending::{PendingVerification, VerificationReply};
use crate::api::names::TaskUid;
use crate::controllers::verify::Verifier;
use crate::plan::task::verification::{VerificationState, VerifyResult};

/// Pause after a request whose worker broke.
const BROKEN: SignedDuration = SignedDuration::from_secs(5);

/// Tasks of one namespace that wait for a registry and hold no Job slot; their Jobs and config Secrets stay until it answers, so the others
/// keep theirs.
pub(in crate::controllers::tasks) const WITHOUT_SLOT: usize = 64;

/// What is asked and was answered, by task.
#[derive(Debug, Default)]
pub struct Verifications {
    running: JoinMap<TaskUid, (Box<PendingVerification>, VerifyResult)>,
    of: HashMap<TaskUid, VerificationEntry>,
    /// How many tasks of each namespace hold no slot.
    without_slot: HashMap<Arc<str>, usize>,
}

#[derive(Debug)]
struct VerificationEntry {
    is_required: bool,
    since: Timestamp,
    next: Timestamp,
    progress: VerificationProgress,
    /// The namespace of the task, where it holds no slot.
    without_slot: Option<Arc<str>>,
}

#[derive(Debug)]
enum VerificationProgress {
    Asking,
    Answered(Box<PendingVerification>, VerifyResult),
    Waiting,
}

/// A request that ended, or whose worker broke.
pub type VerificationJoinResult = (
    TaskUid,
    Result<(Box<PendingVerification>, VerifyResult), JoinError>,
);

impl Verifications {
    /// The next one that ends; never, while there is none.
    pub async fn next(&mut self) -> VerificationJoinResult {
        match self.running.join_next().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Asks a registry about a task, unless it is being asked already.
    pub fn verify(&mut self, uid: &TaskUid, pending: Box<PendingVerification>, verifier: Verifier) {
        let now = Timestamp::now();
        let entry = self.of.entry(uid.clone()).or_insert(VerificationEntry {
            is_required: false,
            since: now,
            next: now,
            progress: VerificationProgress::Waiting,
            without_slot: None,
        });
        if matches!(entry.progress, VerificationProgress::Asking) {
            return;
        }
        entry.is_required = pending.request.is_required;
        entry.progress = VerificationProgress::Asking;
        self.running.spawn(uid.clone(), async move {
            let result = verifier.verify(&pending.request).await;
            (pending, result)
        });
    }

    /// Puts off the next request about a task; whether there is one to be put off.
    pub fn wait_until(&mut self, uid: &TaskUid, next: Timestamp) -> bool {
        let entry = self.of.get_mut(uid);
        let waiting = entry.filter(|entry| matches!(entry.progress, VerificationProgress::Waiting));
        waiting.map(|entry| entry.next = next).is_some()
    }

    /// Handles a registry's answer: returns the task, and when to ask again if the request failed.
    pub fn handle_result(
        &mut self,
        (uid, answered): VerificationJoinResult,
    ) -> Option<(TaskUid, Option<Timestamp>)> {
        let entry = self.of.get_mut(&uid)?;
        if let Ok((pending, result)) = answered {
            entry.progress = VerificationProgress::Answered(pending, result);
            return Some((uid, None));
        }
        entry.progress = VerificationProgress::Waiting;
        entry.next = Timestamp::now().checked_add(BROKEN).unwrap_or(Timestamp::MAX);
        Some((uid, Some(entry.next)))
    }

    /// The answer for a reconcile of the task; given once.
    pub fn reply(&mut self, uid: &TaskUid) -> Option<VerificationReply> {
        let entry = self.of.get_mut(uid)?;
        let mut reply = VerificationReply {
            verification: VerificationState {
                since: entry.since,
                next: entry.next,
                answer: None,
            },
            pending: None,
        };
        if matches!(entry.progress, VerificationProgress::Answered(..))
            && let VerificationProgress::Answered(pending, result) =
                std::mem::replace(&mut entry.progress, VerificationProgress::Waiting)
        {
            reply.verification.answer = Some((pending.request.clone(), result));
            reply.pending = Some(pending);
        }
        Some(reply)
    }

    /// Whether the task's Job has ended and only the verification is missing, so that it needs no Job slot, and not too many of its namespace
    /// have none.
    pub fn frees_slot(&mut self, uid: &TaskUid, namespace: &Arc<str>) -> bool {
        let Some(entry) = self.of.get_mut(uid).filter(|entry| entry.is_required) else {
            return false;
        };
        if entry.without_slot.is_some() {
            return true;
        }
        let count = self.without_slot.entry(Arc::clone(namespace)).or_default();
        if *count >= WITHOUT_SLOT {
            return false;
        }
        *count += 1;
        entry.without_slot = Some(Arc::clone(namespace));
        true
    }

    /// A task that is gone, or finished, has no entry.
    pub fn forget(&mut self, uid: &TaskUid) {
        let entry = self.of.remove(uid);
        if let Some(namespace) = entry.and_then(|entry| entry.without_slot)
            && let Some(count) = self.without_slot.get_mut(&namespace)
        {
            *count -= 1;
            if *count == 0 {
                self.without_slot.remove(&namespace);
            }
        }
        self.running.abort(uid);
    }
}
