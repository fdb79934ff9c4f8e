//! Who is looked at again, and when.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::plan::pipeline::concerned::{Concerned, StatusObject};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::prune::orphaned;
use crate::plan::pipeline::version_bytes::early;

use super::controller::{PipelineController, SETTLE};
use super::namespace_status::{Leftovers, unneeded};
use super::work::{PipelineKey, TargetWork};

impl PipelineController {
    /// Takes in what workers wrote until now.
    pub(super) fn take_in_writes(&mut self) {
        while let Ok(written) = self.written.try_recv() {
            let namespace = written.namespace().to_owned();
            let found = self.store.take_in(written);
            self.look_at_namespace(&namespace);
            self.wake(found);
        }
    }

    /// Makes due what a change concerns: the Target that it belongs to at once, all else with what follows shortly.
    pub(super) fn wake(&mut self, mut found: Concerned) {
        if let Some(pushed) = found.pushed.take().filter(|_| !found.targets.is_empty()) {
            self.leave_waiting(&pushed, &mut found);
        }
        let soon = Instant::now() + SETTLE;
        if let Some(own) = found.own {
            self.look_at_leftovers(&own.namespace, SETTLE);
            self.queue.add(&PipelineKey::Target(own));
        }
        for target in found.targets {
            self.queue.add_at(&PipelineKey::Target(target), soon);
        }
        for object in found.statuses {
            self.refresh_status(object);
        }
        if let Some(namespace) = found.leftovers {
            self.look_at_leftovers(&namespace, SETTLE);
        }
    }

    /// Leaves alone the Targets that a pushed chart lets wait for another one as before: a fleet is decided about once its last chart
    /// is pushed, and not for each.
    fn leave_waiting(&self, pushed: &ObjectKey, found: &mut Concerned) {
        let tasks = within(&self.store.objects.tasks, &pushed.namespace);
        let running = tasks.filter(|(_, task)| task.is_shared_and_runs());
        let running: BTreeSet<&str> = running.map(|(key, _)| key.name.as_str()).collect();
        let (needed, awaiting) = (&self.needed, &self.awaiting);
        let waits = |target: &ObjectKey| {
            let needed = needed.get(target).filter(|_| awaiting.contains(target));
            needed.is_some_and(|needed| needed.has_another(&pushed.name, &running))
        };
        found
            .targets
            .retain(|target| target.namespace != pushed.namespace || !waits(target));
    }

    /// Looks at the status of an object shortly.
    pub(super) fn refresh_status(&mut self, object: StatusObject) {
        let namespace = PipelineKey::Namespace(object.key.namespace.clone());
        self.backlog.add_status(object);
        self.queue.add_at(&namespace, Instant::now() + SETTLE);
    }

    /// Looks after a while for what is left in a namespace.
    pub(super) fn look_at_leftovers(&mut self, namespace: &str, wait: Duration) {
        self.backlog.look_at_leftovers(namespace);
        let key = PipelineKey::Namespace(namespace.to_owned());
        self.queue.add_at(&key, Instant::now() + wait);
    }

    /// Leaves the status of a Target for another pass where it may wait, and looks at the Target again when it is due.
    pub(super) fn leave_progress(&mut self, key: &ObjectKey, work: &mut TargetWork) {
        let left = &mut self.left_statuses;
        if let Some(due) = left.leave(key, work.has_progress(), self.queue.len(), Instant::now()) {
            work.leave_status();
            self.queue.add_at(&PipelineKey::Target(key.clone()), due);
        }
    }

    /// Makes everything due.
    pub(super) fn wake_all(&mut self) {
        let objects = &self.store.objects;
        let (namespaces, soon) = (objects.namespaces(), Instant::now() + SETTLE);
        for target in objects.targets.keys() {
            self.queue.add_at(&PipelineKey::Target(target.clone()), soon);
        }
        self.rollouts.mark_all(&namespaces);
        for namespace in namespaces {
            self.backlog.look_at_all(&namespace, objects);
            self.queue.add_at(&PipelineKey::Namespace(namespace), soon);
        }
        self.settle();
    }

    /// Lets others make the shared tasks that a worker did not make.
    pub(super) fn wake_sharers(&mut self, unmade: &[ObjectKey]) {
        let namespaces: BTreeSet<&String> = unmade.iter().map(|task| &task.namespace).collect();
        for namespace in namespaces {
            self.wake_targets(namespace);
        }
    }

    /// Looks at all Targets of a namespace shortly.
    pub(super) fn wake_targets(&mut self, namespace: &str) {
        let soon = Instant::now() + SETTLE;
        for (target, _) in within(&self.store.objects.targets, namespace) {
            self.queue.add_at(&PipelineKey::Target(target.clone()), soon);
        }
    }

    /// What may be left in a namespace.
    pub(super) fn leftovers<'c>(&'c self, namespace: &'c str, now: Timestamp) -> Leftovers<'c> {
        let objects = &self.store.objects;
        let mut orphans = orphaned(namespace, objects, now);
        orphans.versions.extend(early(namespace, objects));
        let targets = within(&objects.targets, namespace);
        let needs = targets.map(|(key, _)| self.needed.get(key));
        Leftovers {
            unneeded: unneeded(namespace, objects, needs),
            orphans,
        }
    }
}
