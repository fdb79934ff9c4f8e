//! The loop's part about versions whose charts are to be deleted.

use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;
use tokio::task::JoinError;

use crate::kubernetes::apply::{CallError, TransportStage};
use crate::plan::pipeline::decide::VersionRecord;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::prune::{PruneInput, PruneStep, next_step, records};

use super::controller::PipelineController;
use super::prune_work::PruneWork;

/// Wait for tasks of the namespace that are being made at the moment.
const BUSY: Duration = Duration::from_secs(1);

impl PipelineController {
    /// Puts the versions of a namespace that wait for the deletion of their charts in line.
    pub(super) fn queue_prunes(&mut self, namespace: &str, now: Instant) {
        let (waiting, surplus) = records(namespace, &self.store.objects);
        for (place, record) in waiting.into_iter().enumerate() {
            let due = record.progress.next_attempt.as_ref();
            let due = due.filter(|_| place >= surplus).map(|at| instant(at.0, now));
            self.prunes.add(record.key, due);
        }
    }

    /// Gives versions that are due to free workers.
    pub(super) fn start_prunes(&mut self, now: Instant) {
        if !self.is_synced() {
            return;
        }
        while let Some(key) = self.prunes.take(now) {
            if !self.start_prune(&key, now) {
                self.prunes.done(&key);
            }
        }
    }

    /// Decides about a version; returns whether a worker has it.
    fn start_prune(&mut self, key: &ObjectKey, now: Instant) -> bool {
        if self.in_flight.iter().any(|task| task.namespace == key.namespace) {
            self.prunes.add(key, Some(now + BUSY));
            return false;
        }
        let Some(work) = self.prune_work(key) else {
            self.prunes.backoff.clear(key);
            return false;
        };
        if let PruneStep::Wait(until) = work.step {
            self.prunes.add(key, Some(instant(until, now)));
            return false;
        }
        if let PruneStep::Ask(request) = &work.step {
            self.prunes.deletions.begin(key, &request.charts);
        }
        self.prunes.workers.spawn(key.clone(), work.run());
        true
    }

    fn prune_work(&self, key: &ObjectKey) -> Option<PruneWork> {
        let catalog = self.catalog.borrow().clone()?;
        let version = self.store.objects.hydrated_targets.get(key)?;
        let step = next_step(PruneInput {
            key,
            version,
            objects: &self.store.objects,
            rules: &self.settings.rules,
            catalog: &catalog,
            tenancy: &self.prunes.needs.tenancy,
            now: Timestamp::now(),
        })?;
        let spec = version.spec.as_ref();
        Some(PruneWork {
            record: VersionRecord::of(key, version, version.status.clone()),
            target: spec.map(|spec| spec.target_name.clone()).unwrap_or_default(),
            version: spec.map(|spec| spec.version).unwrap_or_default(),
            step,
            writer: self.writer.clone(),
            pruner: self.prunes.needs.pruner.clone(),
        })
    }

    /// Ends the work for a version.
    pub(super) fn finish_prune(&mut self, key: &ObjectKey, ended: Result<Result<(), CallError>, JoinError>) {
        self.take_in_writes();
        let panicked = CallError::Transport(TransportStage::Internal);
        let result = ended.unwrap_or(Err(panicked));
        if self.prunes.deletions.end(key) {
            self.wake_targets(&key.namespace);
        }
        match result {
            Ok(()) => {
                self.prunes.backoff.clear(key);
                self.queue_next_attempt(key);
            }
            Err(error) => {
                let wait = self.prunes.backoff.failed(key);
                self.prunes.add(key, Some(Instant::now() + wait));
                self.count_failure(&key.namespace, &key.name, error);
            }
        }
        self.prunes.done(key);
    }

    /// Puts a version in line for its next attempt, where there is one.
    fn queue_next_attempt(&mut self, key: &ObjectKey) {
        let version = self.store.objects.hydrated_targets.get(key);
        let progress = version.and_then(|version| version.status.prune.as_ref());
        if let Some(at) = progress.and_then(|progress| progress.next_attempt.as_ref()) {
            let due = instant(at.0, Instant::now());
            self.prunes.add(key, Some(due));
        }
    }
}

/// A time of the world as one of this process.
fn instant(at: Timestamp, now: Instant) -> Instant {
    let wait = at.duration_since(Timestamp::now());
    now + wait.try_into().unwrap_or(Duration::ZERO)
}
