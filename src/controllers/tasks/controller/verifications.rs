//! Verifications: requests to registries that run outside of the reconciles, so that a slow registry delays only the tasks that
//! wait for it.

use std::collections::HashMap;

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use super::super::verification::{PendingVerification, VerificationReply};
use crate::api::names::TaskUid;
use crate::controllers::verify::Verifier;
use crate::plan::task::verification::{VerificationState, VerifyResult};

/// Pause after a question that broke.
const BROKEN: SignedDuration = SignedDuration::from_secs(5);

/// What is asked and was answered, by task.
#[derive(Debug, Default)]
pub(super) struct Verifications {
    running: JoinSet<(Box<PendingVerification>, VerifyResult)>,
    ids: HashMap<Id, TaskUid>,
    of: HashMap<TaskUid, VerificationEntry>,
}

#[derive(Debug)]
struct VerificationEntry {
    is_required: bool,
    since: Timestamp,
    next: Timestamp,
    state: VerificationProgress,
}

#[derive(Debug)]
enum VerificationProgress {
    Asking(AbortHandle),
    Answered(Box<PendingVerification>, VerifyResult),
    Waiting,
}

/// A question that ended, or broke.
pub(super) type VerificationJoinResult = Result<(Id, (Box<PendingVerification>, VerifyResult)), JoinError>;

impl Verifications {
    /// The next one that ends; never, while there is none.
    pub(super) async fn next(&mut self) -> VerificationJoinResult {
        match self.running.join_next_with_id().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// Asks a registry about a task, unless it is being asked already.
    pub(super) fn verify(&mut self, uid: &TaskUid, claim: Box<PendingVerification>, verifier: Verifier) {
        let now = Timestamp::now();
        let question = self.of.entry(uid.clone()).or_insert(VerificationEntry {
            is_required: false,
            since: now,
            next: now,
            state: VerificationProgress::Waiting,
        });
        if matches!(question.state, VerificationProgress::Asking(_)) {
            return;
        }
        question.is_required = claim.request.is_required;
        let handle = self.running.spawn(async move {
            let finding = verifier.verify(&claim.request).await;
            (claim, finding)
        });
        self.ids.insert(handle.id(), uid.clone());
        question.state = VerificationProgress::Asking(handle);
    }

    /// Puts off the next question about a task; whether there is one to be put off.
    pub(super) fn wait_until(&mut self, uid: &TaskUid, next: Timestamp) -> bool {
        let question = self.of.get_mut(uid);
        let waiting = question.filter(|question| matches!(question.state, VerificationProgress::Waiting));
        waiting.map(|question| question.next = next).is_some()
    }

    /// Handles a registry's answer: returns the task, and when to ask again if the request failed.
    pub(super) fn handle_result(
        &mut self,
        ended: VerificationJoinResult,
    ) -> Option<(TaskUid, Option<Timestamp>)> {
        let (id, answered) = match ended {
            Ok((id, answered)) => (id, Some(answered)),
            Err(error) => (error.id(), None),
        };
        let uid = self.ids.remove(&id)?;
        let question = self.of.get_mut(&uid)?;
        // One that was given up may end after another of the same task began.
        if !matches!(&question.state, VerificationProgress::Asking(handle) if handle.id() == id) {
            return None;
        }
        if let Some((claim, finding)) = answered {
            question.state = VerificationProgress::Answered(claim, finding);
            return Some((uid, None));
        }
        question.state = VerificationProgress::Waiting;
        question.next = Timestamp::now().checked_add(BROKEN).unwrap_or(Timestamp::MAX);
        Some((uid, Some(question.next)))
    }

    /// The answer for a reconcile of the task; given once.
    pub(super) fn reply(&mut self, uid: &TaskUid) -> Option<VerificationReply> {
        let question = self.of.get_mut(uid)?;
        let mut answer = VerificationReply {
            proof: VerificationState {
                since: question.since,
                next: question.next,
                answer: None,
            },
            pending: None,
        };
        if matches!(question.state, VerificationProgress::Answered(..))
            && let VerificationProgress::Answered(claim, finding) =
                std::mem::replace(&mut question.state, VerificationProgress::Waiting)
        {
            answer.proof.answer = Some((claim.request.clone(), finding));
            answer.pending = Some(claim);
        }
        Some(answer)
    }

    /// Whether the task's Job has ended and only the verification is missing, so that it needs no Job slot.
    pub(super) fn is_required(&self, uid: &TaskUid) -> bool {
        self.of.get(uid).is_some_and(|question| question.is_required)
    }

    /// A task that is gone, or finished, has no question.
    pub(super) fn forget(&mut self, uid: &TaskUid) {
        if let Some(VerificationEntry {
            state: VerificationProgress::Asking(handle),
            ..
        }) = self.of.remove(uid)
        {
            handle.abort();
        }
    }
}
