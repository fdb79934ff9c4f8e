//! What registries said, and which Targets rest on it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::question::{ChartQuestion, LookupFailure};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::queue::backoff::BackoffPolicy;

/// Most questions that are open or answered at once.
pub const QUESTIONS: usize = 1024;
/// Most of them for the Targets of one namespace, so that no tenant takes them all.
pub const QUESTIONS_OF_NAMESPACE: usize = QUESTIONS / 2;
/// Most bytes of what charts are made of that are held at once, for those that are rendered again.
pub const CONTENTS: usize = 4 * 1024 * 1024;
/// Most of them of one namespace.
pub const CONTENTS_OF_NAMESPACE: usize = CONTENTS / 2;
/// Wait before a registry that gave no clear answer is asked again.
const UNCLEAR: BackoffPolicy = BackoffPolicy {
    base: Duration::from_secs(5),
    cap: Duration::from_secs(300),
};
/// Wait of a Target whose questions are too many now.
const FULL: SignedDuration = SignedDuration::from_secs(5);

/// What came of a question.
#[derive(Clone, Debug)]
pub enum ChartAnswer {
    /// The registry said what it has.
    Found(FoundChart),
    /// It is not known; it is asked again.
    Unknown(LookupFailure),
}

/// What a registry has in the place of a chart.
#[derive(Clone, Debug, Default)]
pub struct FoundChart {
    /// Digest of what is under the tag.
    pub digest: Option<String>,
    /// What the chart was made of, as the task has it; looked for only where the digest is not the one that was recorded.
    pub made_of: Option<Arc<str>>,
    /// Names of the tasks that had pushed the chart before the registry was asked.
    pub pushed: Vec<String>,
}

impl FoundChart {
    /// Whether it is the chart that was asked for. Where no digest was recorded, whatever is under its tag is.
    #[must_use]
    pub fn is_what_was_recorded(&self, question: &ChartQuestion) -> bool {
        self.digest.is_some() && (question.digest.is_none() || self.digest == question.digest)
    }

    fn content_bytes(&self) -> usize {
        self.made_of.as_ref().map_or(0, |made_of| made_of.len())
    }
}

impl KnownQuestion {
    fn content_bytes(&self) -> usize {
        match &self.answer {
            Some(ChartAnswer::Found(found)) => found.content_bytes(),
            Some(ChartAnswer::Unknown(_)) | None => 0,
        }
    }
}

/// A question that a Target rests on.
#[derive(Clone, Debug, Default)]
struct KnownQuestion {
    answer: Option<ChartAnswer>,
    /// Answers in a row that brought no Target on its way.
    failures: u32,
    is_asked: bool,
    /// When it is asked again.
    due: Option<Timestamp>,
    targets: BTreeSet<ObjectKey>,
}

/// What a Target has to ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextQuestions {
    /// What is asked now.
    pub ask: Vec<ChartQuestion>,
    /// When others are asked, because there are too many now.
    pub look_again: Option<Timestamp>,
}

/// The questions that Targets rest on, and what came of them.
#[derive(Clone, Debug, Default)]
pub struct ChartAnswers {
    known: BTreeMap<ChartQuestion, KnownQuestion>,
    /// The generation of each Target that rests on one.
    pins: HashMap<ObjectKey, i64>,
}

impl ChartAnswers {
    /// A Target is decided about, which is pinned in this generation or is not pinned. What it rested on in another generation is not
    /// believed any more.
    pub fn begin(&mut self, target: &ObjectKey, pinned: Option<i64>) {
        if let Some(known) = self.pins.get(target)
            && Some(*known) != pinned
        {
            self.forget(target);
        }
    }

    fn forget(&mut self, target: &ObjectKey) {
        self.pins.remove(target);
        self.known.retain(|_, known| {
            known.targets.remove(target);
            !known.targets.is_empty()
        });
    }

    /// A Target rests on these questions, and on no others any more; what of them is to be asked now.
    pub fn rest_on(
        &mut self,
        target: &ObjectKey,
        generation: i64,
        questions: Vec<ChartQuestion>,
        now: Timestamp,
    ) -> NextQuestions {
        let mut next = NextQuestions::default();
        if questions.is_empty() {
            if self.pins.contains_key(target) {
                self.forget(target);
            }
            return next;
        }
        let wanted: BTreeSet<&ChartQuestion> = questions.iter().collect();
        self.known.retain(|question, known| {
            if !wanted.contains(question) {
                known.targets.remove(target);
            }
            !known.targets.is_empty()
        });
        self.pins.insert(target.clone(), generation);
        let own = self
            .known
            .keys()
            .filter(|known| known.namespace == target.namespace);
        let mut own = own.count();
        for question in questions {
            let is_new = !self.known.contains_key(&question);
            if is_new && (self.known.len() >= QUESTIONS || own >= QUESTIONS_OF_NAMESPACE) {
                next.look_again = now.checked_add(FULL).ok();
                continue;
            }
            own += usize::from(is_new);
            let known = self.known.entry(question.clone()).or_default();
            known.targets.insert(target.clone());
            if !known.is_asked && known.due.map_or(known.answer.is_none(), |due| due <= now) {
                known.is_asked = true;
                next.ask.push(question);
            }
        }
        next
    }

    /// Whether a Target still rests on a question.
    #[must_use]
    pub fn is_wanted(&self, question: &ChartQuestion) -> bool {
        self.known.contains_key(question)
    }

    /// What came of a question.
    #[must_use]
    pub fn of(&self, question: &ChartQuestion) -> Option<&ChartAnswer> {
        self.known.get(question)?.answer.as_ref()
    }

    /// When a question is asked again.
    #[must_use]
    pub fn due(&self, question: &ChartQuestion) -> Option<Timestamp> {
        self.known.get(question)?.due
    }

    /// Takes in what came of a question; the Targets that rest on it. One that brings no Target on its way is asked again after a
    /// growing pause.
    pub fn answered(
        &mut self,
        question: &ChartQuestion,
        answer: ChartAnswer,
        now: Timestamp,
    ) -> Vec<ObjectKey> {
        let (mut held, mut held_of_namespace) = (0, 0);
        for (other, known) in self.known.iter().filter(|(known, _)| *known != question) {
            held += known.content_bytes();
            if other.namespace == question.namespace {
                held_of_namespace += known.content_bytes();
            }
        }
        let has_room =
            |bytes: usize| held + bytes <= CONTENTS && held_of_namespace + bytes <= CONTENTS_OF_NAMESPACE;
        let Some(known) = self.known.get_mut(question) else {
            return Vec::new();
        };
        let answer = match answer {
            ChartAnswer::Found(found) if !has_room(found.content_bytes()) => {
                ChartAnswer::Unknown(LookupFailure::Full)
            }
            answer => answer,
        };
        let helps = match &answer {
            ChartAnswer::Found(found) => {
                let is_gone = found.digest.is_none() && found.made_of.is_some();
                is_gone || found.is_what_was_recorded(question)
            }
            ChartAnswer::Unknown(_) => false,
        };
        known.is_asked = false;
        known.answer = Some(answer);
        known.due = None;
        if !helps {
            known.failures = known.failures.saturating_add(1);
            known.due = now.checked_add(UNCLEAR.longest_wait(known.failures)).ok();
        }
        known.targets.iter().cloned().collect()
    }

    /// How many questions Targets rest on.
    #[must_use]
    pub fn len(&self) -> usize {
        self.known.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}
