//! Handles watch events.

use std::time::Instant;

use tokio::sync::mpsc;

use crate::api::names::TaskUid;
use crate::kubernetes::watch::{JobMetadata, ReceivedEvent, TaskWatchEvent, TaskWatchScope, WatchChange};
use crate::plan::task::model::Task;

use super::super::index::TaskEventKind;
use super::super::task_record::{JobLocation, StartBlocker};
use super::TaskController;
use super::cache_sync::SyncSource;
use super::enqueue::EnqueueReason;

/// Inputs that are taken in before work is started again: a flood of them costs what they themselves do.
const AT_ONCE: usize = 64;

impl TaskController {
    /// Handles a watch event, and some of those that already wait.
    pub(super) fn handle_events(&mut self, first: ReceivedEvent, others: &mut mpsc::Receiver<ReceivedEvent>) {
        self.handle_event(first);
        for _ in 1..AT_ONCE {
            let Ok(input) = others.try_recv() else { break };
            self.handle_event(input);
        }
    }

    pub(super) fn handle_event(&mut self, ReceivedEvent { at, input }: ReceivedEvent) {
        match input {
            TaskWatchEvent::Task(scope, change) => self.handle_task_event(&scope, change, at),
            TaskWatchEvent::Job(origin, change) => self.handle_job_event(&origin, change, at),
            TaskWatchEvent::Site(site, state) => self.handle_site_event(&site, state),
            TaskWatchEvent::PodsSeen => self.mark_synced(&SyncSource::Pods),
            TaskWatchEvent::Grant(scope, change) => {
                if let Some(source) = self.offers.handle_grant_event(scope, change) {
                    self.mark_synced(&source);
                }
            }
            TaskWatchEvent::Registry(namespace) => self.offers.mark_dirty(namespace),
            TaskWatchEvent::Refused(scope) => self.skip_forbidden_scope(&scope),
        }
    }

    fn handle_task_event(
        &mut self,
        scope: &TaskWatchScope,
        change: WatchChange<Box<Task>>,
        arrived: Instant,
    ) {
        match change {
            WatchChange::Restart => self.index.restart(scope),
            WatchChange::Seen(task)
                if self.running.has(&task.id.uid) && self.index.touch_task(scope, &task.id.uid) =>
            {
                let changes = self.in_flight.entry(task.id.uid.clone()).or_default();
                changes.event = Some((scope.clone(), task, arrived));
            }
            WatchChange::Seen(task) => self.see(scope, *task, arrived),
            WatchChange::Gone(uid) => self.forget(&uid),
            WatchChange::Synced => {
                for uid in self.index.vanished_tasks(scope) {
                    self.forget(&uid);
                }
                self.sync.allow(scope);
                self.mark_synced(&SyncSource::Tasks(scope.clone()));
            }
        }
    }

    /// Handles the event that arrived while a worker had the task.
    pub(super) fn handle_deferred_event(&mut self, uid: &TaskUid) {
        let changes = self.in_flight.remove(uid);
        if let Some((scope, task, arrived)) = changes.and_then(|changes| changes.event) {
            self.see(&scope, *task, arrived);
        }
    }

    fn see(&mut self, scope: &TaskWatchScope, task: Task, arrived: Instant) {
        let uid = task.id.uid.clone();
        let sight = self.index.see_task(scope, task, &self.context.key);
        if sight == TaskEventKind::Late {
            return;
        }
        self.suspect(&uid);
        self.track_latency(&uid, arrived);
        self.queue.ready(&uid, EnqueueReason::TaskSeen);
        if sight == TaskEventKind::Forged {
            self.metrics.forged_statuses.inc();
        }
    }

    /// An event arrived for which something may be to be done. While not everything was seen, it says nothing of the hub.
    fn track_latency(&mut self, uid: &TaskUid, arrived: Instant) {
        if self.sync.is_complete() {
            self.latencies.begin(uid, arrived);
        }
    }

    /// Requeues a task for when its forged status may be restored.
    pub(super) fn await_restore(&mut self, uid: &TaskUid) {
        if let Some(due) = self.index.restore_due(uid, Instant::now()) {
            self.queue.later(uid, due, EnqueueReason::Forged);
        }
    }

    fn handle_job_event(&mut self, origin: &JobLocation, change: WatchChange<JobMetadata>, arrived: Instant) {
        match change {
            WatchChange::Restart => self.index.restart_jobs(origin),
            WatchChange::Seen(mark) => {
                let (task, now) = (mark.task.clone(), Instant::now());
                if let Some(look) = self.index.see_job(origin, mark, now) {
                    if look <= now {
                        self.track_latency(&task, arrived);
                    }
                    self.queue.later(&task, look, EnqueueReason::JobSeen);
                }
            }
            WatchChange::Gone(task) => self.handle_deleted_job(origin, &task),
            WatchChange::Synced => {
                for task in self.index.vanished_jobs(origin) {
                    self.handle_deleted_job(origin, &task);
                }
                if origin.is_none() {
                    self.mark_synced(&SyncSource::Jobs);
                }
            }
        }
    }

    fn handle_deleted_job(&mut self, origin: &JobLocation, task: &TaskUid) {
        if !self.index.remove_job(origin, task) {
            return;
        }
        if self.running.has(task) {
            self.in_flight.entry(task.clone()).or_default().is_job_gone = true;
        }
        self.queue.ready(task, EnqueueReason::JobGone);
    }

    fn skip_forbidden_scope(&mut self, scope: &TaskWatchScope) {
        if self.sync.refuse(scope) {
            tracing::warn!(
                namespace = scope.namespace.as_deref(),
                "the hub has no rights on tasks there; it serves the other namespaces"
            );
            self.mark_synced(&SyncSource::Grants(scope.namespace.clone()));
            self.mark_synced(&SyncSource::Tasks(scope.clone()));
        }
    }

    /// Counts a source as seen; with the last one the hub is ready, and Jobs that run already take their slots.
    pub(super) fn mark_synced(&mut self, source: &SyncSource) {
        if !self.sync.mark(source) {
            return;
        }
        self.index.prune_secrets();
        for (task, _) in self.index.jobs() {
            if let Some(record) = self.index.task(task).filter(|r| !r.phase.is_finished()) {
                self.slots.queue.adopt(record.queued(task));
            }
        }
        self.sync.ready.send_replace(true);
        tracing::info!(tasks = self.index.tasks().count(), "ready");
    }

    pub(super) fn forget(&mut self, uid: &TaskUid) {
        if let Some(site) = self.index.task(uid).and_then(|record| record.remote.site.clone()) {
            self.sites.remove_task(&site, uid);
        }
        self.finished.forget(&self.index, uid);
        if let Some((namespace, created)) = self.index.forget_task(uid) {
            self.slots.queue.remove(&namespace, created, uid);
        }
        self.verifications.forget(uid);
        self.queue.forget(uid);
        self.in_flight.remove(uid);
        self.latencies.forget(uid);
    }

    /// What the platform offers changed: tasks that waited for it look again.
    pub(super) fn requeue_blocked(&mut self) {
        for uid in self
            .index
            .tasks_where(|r| r.blocked == StartBlocker::ByPlatform || r.create_blocked.is_some())
        {
            self.index.set_create_blocked(&uid, None, None, Instant::now());
            self.queue.ready(&uid, EnqueueReason::PlatformChanged);
        }
        // A running reconcile uses the catalog from its start, so its task is reconciled once more.
        for uid in self.running.passes() {
            self.in_flight.entry(uid.clone()).or_default().is_outdated = true;
            self.queue.ready(uid, EnqueueReason::PlatformChanged);
        }
    }

    /// Wakes the tasks that wait for the tenants of the namespaces in which something changed.
    pub(super) fn flush(&mut self, now: Instant) {
        let Some(namespaces) = self.offers.take_dirty(now) else {
            return;
        };
        for uid in self
            .index
            .tasks_where(|r| matches!(&r.blocked, StartBlocker::ByTenant(ns) if namespaces.contains(&**ns)))
        {
            self.queue.ready(&uid, EnqueueReason::TenantChanged);
        }
        // A running reconcile may have read the state of before.
        let uids: Vec<_> = self.running.passes().cloned().collect();
        for uid in uids {
            self.queue.ready(&uid, EnqueueReason::TenantChanged);
        }
    }
}
