//! Questions to registries: asked beside the passes, so that a registry that takes its time holds up nothing but the tasks
//! that wait for its word.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use tokio::task::{AbortHandle, Id, JoinError, JoinSet};

use crate::api::names::TaskUid;
use crate::plan::task::outcome::{JobReport, PodNote};
use crate::plan::task::proof::{Finding, Inquiry, Proof};

use super::super::outcome::Outcome;
use super::wakes::{Wake, later, ready};
use super::{Engine, instant};

/// Pause after a question that broke.
const BROKEN: SignedDuration = SignedDuration::from_secs(5);
/// Time after which a task looks for itself what became of its question; longer than an answer takes.
const ASKED: Duration = Duration::from_secs(600);

/// A success that waits for the word of a registry.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The Job as it was read.
    pub report: JobReport,
    /// The last word of its pods.
    pub note: Option<PodNote>,
    /// What is asked.
    pub inquiry: Inquiry,
}

/// What a pass is told of a question.
#[derive(Debug)]
pub struct Answer {
    /// When it was first asked, and what came of it.
    pub proof: Proof,
    /// What was known when it was asked, where there is an answer.
    pub claim: Option<Box<Claim>>,
}

/// What is asked and was answered, by task.
#[derive(Debug, Default)]
pub(super) struct Questions {
    running: JoinSet<(Box<Claim>, Finding)>,
    ids: HashMap<Id, TaskUid>,
    of: HashMap<TaskUid, Question>,
}

#[derive(Debug)]
struct Question {
    is_required: bool,
    since: Timestamp,
    next: Timestamp,
    state: State,
}

#[derive(Debug)]
enum State {
    Asking(AbortHandle),
    Answered(Box<Claim>, Finding),
    Waiting,
}

/// A question that ended, or broke.
pub(super) type Ended = Result<(Id, (Box<Claim>, Finding)), JoinError>;

impl Questions {
    /// The next one that ends; never, while there is none.
    pub(super) async fn next(&mut self) -> Ended {
        match self.running.join_next_with_id().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        }
    }

    /// What a pass over the task is told; an answer is told once.
    fn tell(&mut self, uid: &TaskUid) -> Option<Answer> {
        let question = self.of.get_mut(uid)?;
        let mut answer = Answer {
            proof: Proof {
                since: question.since,
                next: question.next,
                answer: None,
            },
            claim: None,
        };
        if matches!(question.state, State::Answered(..))
            && let State::Answered(claim, finding) = std::mem::replace(&mut question.state, State::Waiting)
        {
            answer.proof.answer = Some((claim.inquiry.clone(), finding));
            answer.claim = Some(claim);
        }
        Some(answer)
    }

    fn forget(&mut self, uid: &TaskUid) {
        if let Some(Question {
            state: State::Asking(handle),
            ..
        }) = self.of.remove(uid)
        {
            handle.abort();
        }
    }
}

impl Engine {
    /// What a pass over the task is told of its question. Where the pass fails, the Job is read anew and the registry asked
    /// anew.
    pub(super) fn answer(&mut self, uid: &TaskUid) -> Option<Answer> {
        let answer = self.questions.tell(uid)?;
        if answer.claim.is_some() {
            self.index.read_job_at(uid, Instant::now());
        }
        Some(answer)
    }

    /// Takes in that a pass wants to know something of a registry, or waits before it asks again.
    pub(super) fn take_question(&mut self, uid: &TaskUid, outcome: &Outcome) {
        if self
            .index
            .task(uid)
            .is_none_or(|record| record.phase.is_finished())
        {
            self.questions.forget(uid);
            return;
        }
        if let Some(claim) = &outcome.claim {
            self.question(uid, claim.clone());
            self.index.read_job_at(uid, Instant::now() + ASKED);
        } else if let (Some(question), Some(wake), None) =
            (self.questions.of.get_mut(uid), outcome.wake, outcome.error)
            && matches!(question.state, State::Waiting)
        {
            question.next = wake;
            self.index.read_job_at(uid, instant(wake));
        }
    }

    fn question(&mut self, uid: &TaskUid, claim: Box<Claim>) {
        let now = Timestamp::now();
        let question = self.questions.of.entry(uid.clone()).or_insert(Question {
            is_required: false,
            since: now,
            next: now,
            state: State::Waiting,
        });
        if matches!(question.state, State::Asking(_)) {
            return;
        }
        question.is_required = claim.inquiry.is_required;
        let verifier = self.context.verifier.clone();
        let handle = self.questions.running.spawn(async move {
            let finding = verifier.ask(&claim.inquiry).await;
            (claim, finding)
        });
        self.questions.ids.insert(handle.id(), uid.clone());
        question.state = State::Asking(handle);
    }

    /// Takes in what a registry said, and lets its task go on.
    pub(super) fn take_answer(&mut self, ended: Ended) {
        let (id, answered) = match ended {
            Ok((id, answered)) => (id, Some(answered)),
            Err(error) => (error.id(), None),
        };
        let Some(uid) = self.questions.ids.remove(&id) else {
            return;
        };
        let Some(question) = self.questions.of.get_mut(&uid) else {
            return;
        };
        // One that was given up may end after another of the same task began.
        if !matches!(&question.state, State::Asking(handle) if handle.id() == id) {
            return;
        }
        if let Some((claim, finding)) = answered {
            question.state = State::Answered(claim, finding);
        } else {
            question.state = State::Waiting;
            question.next = Timestamp::now().checked_add(BROKEN).unwrap_or(Timestamp::MAX);
            self.index.read_job_at(&uid, instant(question.next));
            later(
                &mut self.queue,
                &uid,
                instant(question.next),
                Wake::RegistryNotAsked,
            );
            return;
        }
        ready(&mut self.queue, &uid, Wake::RegistryAnswered);
    }

    /// A task that is gone has no question.
    pub(super) fn drop_question(&mut self, uid: &TaskUid) {
        self.questions.forget(uid);
    }

    /// Whether the task's Job has ended, and only the word of a registry is missing that nothing can do without: it takes the
    /// place of no Job that could run.
    pub(super) fn is_only_asked_for(&self, uid: &TaskUid) -> bool {
        let question = self.questions.of.get(uid);
        question.is_some_and(|question| question.is_required)
    }
}
