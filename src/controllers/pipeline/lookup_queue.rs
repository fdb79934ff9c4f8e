//! Charts of earlier versions that registries are asked for: which is next, and what came of the others.

use std::time::Instant;

use tokio_util::task::JoinMap;

use crate::plan::pipeline::lookups::{ChartAnswer, ChartAnswers, ChartQuestion};
use crate::plan::queue::workqueue::{KeyOwner, WorkQueue};

/// Questions at once, each of another namespace.
const LOOKUPS: usize = 4;

/// Charts that registries are asked for.
#[derive(Default)]
pub(super) struct ChartLookups {
    pub answers: ChartAnswers,
    pub queue: WorkQueue<ChartQuestion>,
    pub workers: JoinMap<ChartQuestion, ChartAnswer>,
}

impl ChartLookups {
    /// The next question, for a free worker.
    pub fn take(&mut self) -> Option<ChartQuestion> {
        if self.workers.len() >= LOOKUPS {
            return None;
        }
        let of_namespace = |question: &ChartQuestion| KeyOwner::one_at_a_time(&question.namespace);
        let taken = self.queue.take_fair(Instant::now(), of_namespace);
        taken.map(|(question, _)| question)
    }
}
