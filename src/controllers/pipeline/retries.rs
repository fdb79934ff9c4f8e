//! When a key is looked at again after its worker ended.

use std::time::Instant;

use crate::base::metrics::ErrorLabels;
use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::decide::{CreateRefusal, FollowUp};
use crate::plan::pipeline::object::ObjectKey;

use super::controller::PipelineController;
use super::work::PipelineKey;
use super::work_rounds::WorkRounds;

/// Passes in a row in which a key may be worked on without a pause; what is made for a Target takes five.
const ROUNDS: u32 = 16;
impl PipelineController {
    /// Looks once more, unless nothing follows from what was written. Each pass brings its key nearer to rest, so one that is
    /// worked on over and over has found another writer against it, and is slowed down.
    pub(super) fn follow_up(&mut self, key: &PipelineKey, at: FollowUp) {
        let now = Instant::now();
        let rounds = WorkRounds::count(self.rounds.get(key).copied(), now);
        self.rounds.insert(key.clone(), rounds);
        if rounds.count > ROUNDS {
            let wait = self.backoff.failed(key);
            self.queue.add_at(key, now + wait);
        } else if at == FollowUp::OnChange {
            self.backoff.clear(key);
        } else {
            self.queue.add(key);
        }
    }

    /// Counts what the API server does not let the hub make. Once may be a creation whose answer was lost.
    pub(super) fn remember_refusal(&mut self, target: &ObjectKey, refusal: Option<CreateRefusal>) {
        match refusal {
            Some(refusal) => {
                let count = self.refusals.get(target).map_or(0, |(_, count)| *count);
                self.refusals.insert(target.clone(), (refusal, count + 1));
            }
            None => _ = self.refusals.remove(target),
        }
    }

    /// Why what was decided before could not be made, more than once in a row.
    pub(super) fn refusal(&self, target: &ObjectKey) -> Option<CreateRefusal> {
        let known = self.refusals.get(target);
        known.filter(|(_, count)| *count > 1).map(|(refusal, _)| *refusal)
    }

    /// Tries again after a growing pause.
    pub(super) fn retry(&mut self, key: &PipelineKey, error: CallError) {
        let wait = self.backoff.failed(key);
        self.queue.add_at(key, Instant::now() + wait);
        match key {
            PipelineKey::Target(key) => self.count_failure(&key.namespace, &key.name, error),
            PipelineKey::Namespace(namespace) => {
                self.backlog.look_at_all(namespace, &self.store.objects);
                self.count_failure(namespace, "", error);
            }
        }
    }

    pub(super) fn count_failure(&self, namespace: &str, name: &str, error: CallError) {
        let (kind, stage) = (error.kind(), error.stage());
        let labels = ErrorLabels {
            kind,
            stage: stage.unwrap_or_default(),
        };
        self.metrics.reconcile_errors.get_or_create(&labels).inc();
        tracing::warn!(
            namespace,
            name,
            kind,
            stage,
            "a write of the pipeline failed; it is tried again"
        );
    }
}
