//! What the engine takes in from its watches.

use std::time::Instant;

use crate::names::TaskUid;
use crate::plan::task::Task;
use crate::watch::{Change, Input, JobMark, Scope};

use super::super::index::Sight;
use super::{Engine, Record, Source};

impl Engine {
    pub(super) fn take_in(&mut self, input: Input) {
        match input {
            Input::Task(scope, change) => self.take_in_task(&scope, change),
            Input::Job(change) => self.take_in_job(change),
            Input::PodsSeen => self.saw(&Source::Pods),
        }
    }

    fn take_in_task(&mut self, scope: &Scope, change: Change<Box<Task>>) {
        match change {
            Change::Restart => self.index.restart(Some(scope)),
            Change::Seen(task) if self.is_with_a_worker(scope, &task.id.uid) => {
                self.parked.insert(task.id.uid.clone(), (scope.clone(), task));
            }
            Change::Seen(task) => self.see(scope, *task),
            Change::Gone(uid) => self.forget(&uid),
            Change::Synced => {
                for uid in self.index.vanished_tasks(scope) {
                    self.forget(&uid);
                }
                self.saw(&Source::Tasks(scope.clone()));
            }
        }
    }

    /// Whether a worker has the task, which counts as seen then.
    fn is_with_a_worker(&mut self, scope: &Scope, uid: &TaskUid) -> bool {
        self.passes.values().any(|busy| busy == uid) && self.index.touch_task(scope, uid)
    }

    /// Takes in what the watch showed while a worker had the task.
    pub(super) fn take_parked(&mut self, uid: &TaskUid) {
        if let Some((scope, task)) = self.parked.remove(uid) {
            self.see(&scope, *task);
        }
    }

    fn see(&mut self, scope: &Scope, task: Task) {
        let uid = task.id.uid.clone();
        let sight = self.index.see_task(scope, task, &self.context.key);
        if sight == Sight::Late {
            return;
        }
        self.queue.add(&uid);
        if sight == Sight::Forged {
            self.metrics.forged_statuses.inc();
        }
    }

    /// Looks at a task again when its forged status may be put right.
    pub(super) fn await_restore(&mut self, uid: &TaskUid) {
        if let Some(due) = self.index.restore_due(uid, Instant::now()) {
            self.queue.add_at(uid, due);
        }
    }

    fn take_in_job(&mut self, change: Change<JobMark>) {
        match change {
            Change::Restart => self.index.restart(None),
            Change::Seen(mark) => {
                let (task, now) = (mark.task.clone(), Instant::now());
                if let Some(look) = self.index.see_job(mark, now) {
                    self.queue.add_at(&task, look);
                }
            }
            Change::Gone(task) => self.lose_job(&task),
            Change::Synced => {
                for task in self.index.vanished_jobs() {
                    self.lose_job(&task);
                }
                self.saw(&Source::Jobs);
            }
        }
    }

    fn lose_job(&mut self, task: &TaskUid) {
        self.index.forget_job(task);
        if self.passes.values().any(|busy| busy == task) {
            self.jobs_gone.insert(task.clone());
        }
        self.queue.add(task);
    }

    /// Counts a source as seen; with the last one the hub is ready, and Jobs that run already take their slots.
    pub(super) fn saw(&mut self, source: &Source) {
        let is_last = self.unseen.remove(source) && self.unseen.is_empty();
        if !is_last {
            return;
        }
        self.index.prune_secrets();
        for (task, _) in self.index.jobs() {
            if let Some(record) = self.index.task(task).filter(|r| !r.phase.is_finished()) {
                self.fair.adopt(record.namespace(), record.created, task);
            }
        }
        self.ready.send_replace(true);
        tracing::info!(tasks = self.index.tasks().count(), "ready");
    }

    pub(super) fn forget(&mut self, uid: &TaskUid) {
        if let Some((namespace, created)) = self.index.forget_task(uid) {
            self.fair.leave(&namespace, created, uid);
        }
        self.backoff.clear(uid);
        self.queue.forget(uid);
        self.jobs_gone.remove(uid);
        self.parked.remove(uid);
    }

    /// What the platform offers changed: tasks that waited for it look again.
    pub(super) fn wake_blocked(&mut self) {
        let blocked = |r: &Record| r.blocked || r.held.is_some();
        let uids: Vec<_> = self
            .index
            .tasks()
            .filter(|(_, r)| blocked(r))
            .map(|(uid, _)| uid.clone())
            .collect();
        for uid in uids {
            self.index.hold(&uid, None, Instant::now());
            self.queue.add(&uid);
        }
        // A pass under way looks at what was offered when it began, so its task is looked at once more.
        for uid in self.passes.values() {
            self.outdated.insert(uid.clone());
            self.queue.add(uid);
        }
    }
}
