//! Which tasks are worked on, and at whose expense: what runs elsewhere never uses up what the hub has for its own cluster.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tracing::{Instrument as _, Span};

use crate::api::names::TaskUid;
use crate::base::metrics::event_latency::{TaskLocation, measure};
use crate::plan::queue::workqueue::{ConcurrencyPool, KeyOwner};
use crate::plan::remote::site::RemoteTarget;

use super::super::index::TaskView;
use super::super::reconciler::reconcile;
use super::super::task_record::{ReconcileSize, TaskRecord};
use super::enqueue::EnqueueReason;
use super::running_work::{TimedOutcome, WorkItem, WorkResult};
use super::{TaskController, TaskControllerLimits, instant};

impl TaskController {
    /// Starts the work that is due, as far as workers are free; namespaces take turns, so that many tasks of one do not delay
    /// another's.
    pub(super) fn start_passes(&mut self, now: Instant) {
        loop {
            let (index, limits) = (&self.index, &self.limits);
            let owner = |uid: &TaskUid| {
                index
                    .task(uid)
                    .map_or(KeyOwner::UNKNOWN, |record| limits.owner(record))
            };
            let Some((uid, waited_for)) = self.queue.keys.take_fair(now, owner) else {
                return;
            };
            self.start_pass(uid, waited_for.as_ref(), now);
        }
    }

    fn start_pass(&mut self, uid: TaskUid, waited_for: Option<&ConcurrencyPool>, now: Instant) {
        let site = self.known_site(&uid);
        let (view, due) = if self.finished.awaits_removal(&self.index, &uid) {
            (None, None)
        } else {
            self.index.view(&uid, Timestamp::now(), now)
        };
        let Some(mut view) = view else {
            self.requeue_at(&uid, due);
            return;
        };
        // Waited for before the task has a worker.
        let way = match self.context.transport_for(site.as_ref()) {
            Ok(way) => way,
            Err(not_before) => {
                self.latencies.wait_for_cluster(&uid, waited_for, now);
                self.queue.put_back(&uid, not_before);
                return;
            }
        };
        (view.remote.site, view.remote.way) = (site, way);
        view.verification_reply = self.verification_reply(&uid);
        let has_slot = self.slots.queue.is_running(&view.id.namespace, &uid);
        let span = span_of(&view);
        let waited = waited_for.map(ConcurrencyPool::as_str);
        span.in_scope(|| tracing::debug!(has_slot, waited_for = waited, "a pass over a task begins"));
        let record = self.index.task(&uid);
        let location = record.map_or(TaskLocation::Here, TaskRecord::location);
        let latency = self.latencies.started(&uid, waited_for, location, Instant::now());
        let (context, latencies) = (Arc::clone(&self.context), self.metrics.event_latency.clone());
        let offers = self.offers.view();
        self.running.spawn(WorkItem::Pass(uid.clone()), async move {
            let pass = reconcile(context, offers, view, has_slot).instrument(span);
            let (outcome, latency) = measure(&latencies, latency, pass).await;
            let passed = TimedOutcome {
                started: now,
                outcome,
                latency,
            };
            WorkResult::Pass(uid, Box::new(passed))
        });
    }

    /// Nothing is to be done for a task before then.
    fn requeue_at(&mut self, uid: &TaskUid, due: Option<Timestamp>) {
        self.latencies.forget(uid);
        self.queue.keys.done(uid);
        self.give_slot_back(uid);
        if let Some(due) = due {
            self.queue.later(uid, instant(due), EnqueueReason::Due);
        }
        self.await_restore(uid);
        self.finished.retain(&mut self.index, &self.sites, uid);
    }
}

/// What each line of a reconcile says: which task it is, and where its Job runs.
fn span_of(view: &TaskView) -> Span {
    let site = view.remote.site.as_ref();
    tracing::debug_span!(
        "pass",
        task = %view.id.uid,
        kind = view.id.kind.as_str(),
        namespace = view.id.namespace,
        task_name = view.id.name,
        cluster = site.map(|known| tracing::field::display(&known.site.cluster)),
    )
}

impl TaskControllerLimits {
    /// The concurrency pools of a task. Namespaces share the workers fairly, for all clusters. Large tasks have pools of their
    /// own, so that their memory is bounded and small tasks never wait for them.
    fn owner(&self, record: &TaskRecord) -> KeyOwner {
        let namespace = record.namespace();
        let elsewhere = [
            self.passes_of_cluster,
            self.passes_elsewhere,
            self.large_passes_elsewhere,
        ];
        let (own, all, [of_own, of_all, large]) = match record.remote.target.as_deref() {
            None => (
                ConcurrencyPool::Namespace(Arc::clone(namespace)),
                ConcurrencyPool::Here,
                [self.workers_of_namespace, self.workers, self.large_passes],
            ),
            Some(RemoteTarget::Platform(name)) => (
                ConcurrencyPool::Cluster(name.as_str().into()),
                ConcurrencyPool::Elsewhere,
                elsewhere,
            ),
            // However many clusters a tenant names.
            Some(RemoteTarget::Own(_)) => (
                ConcurrencyPool::OwnClusters(Arc::clone(namespace)),
                ConcurrencyPool::Elsewhere,
                elsewhere,
            ),
        };
        let (second, third) = if record.size == ReconcileSize::Large {
            let [large_own, large_all] =
                [own.clone(), all].map(|pool| ConcurrencyPool::Large(Box::new(pool)));
            ((large_own, self.large_passes_of_one), Some((large_all, large)))
        } else {
            ((all, of_all), None)
        };
        KeyOwner {
            name: Some(Arc::clone(namespace)),
            pools: [Some((own, of_own)), Some(second), third],
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::sync::Mutex;
    use std::time::Duration;

    use k8s_openapi::jiff::SignedDuration;
    use kube::api::ObjectMeta;
    use serde_json::{Value, json};
    use tokio::sync::mpsc;

    use super::super::super::outcome::{ReconcileError, ReconcileOutcome, RemoteUpdate};
    use super::super::super::reconciler::ReconcileContext;
    use super::super::super::task_record::LARGE;
    use super::super::tests::{controller, mark, scopes};
    use super::*;
    use crate::api::conditions::Reason;
    use crate::api::names::TaskKind;
    use crate::base::metrics::ErrorLabels;
    use crate::kubernetes::apply::{ApiTransport, CallError};
    use crate::kubernetes::watch::{TaskWatchEvent, WatchChange};
    use crate::plan::remote::site::{ClusterName, Site, SiteState};
    use crate::plan::task::job_state::CompletionHint;
    use crate::plan::task::model::Task;
    use crate::remote::{SiteClients, SiteRequest};

    /// Clusters of which each may be asked so often, and when others may be asked again.
    #[derive(Debug)]
    struct Paced(Mutex<usize>, Instant);

    impl SiteClients for Paced {
        fn client(&self, _: &Site) -> Option<Arc<dyn ApiTransport>> {
            None
        }

        fn reserve(&self, site: &Site) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
            if site.cluster != ClusterName::Platform("slow".to_owned()) {
                return Ok(None);
            }
            let mut left = self.0.lock().unwrap();
            *left = left.checked_sub(1).ok_or(self.1)?;
            Ok(None)
        }
    }

    /// A task whose spec says where its Job runs.
    fn see_as(controller: &mut TaskController, uid: &str, place: &Value) -> TaskUid {
        let meta = json!({
            "name": uid, "namespace": "team-a", "uid": uid, "resourceVersion": "1", "generation": 1,
        });
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let mut spec = json!({
            "config": {"type": "slides"}, "repository": "team-a/shop", "tag": "1", "registryRef": {"name": "main"},
        });
        for (field, value) in place.as_object().unwrap() {
            spec[field] = value.clone();
        }
        let task = Task::new(TaskKind::RenderTask, &meta, spec, json!({})).unwrap();
        controller
            .handle_event(TaskWatchEvent::Task(scopes().remove(0), WatchChange::Seen(Box::new(task))).into());
        TaskUid::new(uid)
    }

    fn see_on(controller: &mut TaskController, cluster: &str, uid: &str) -> TaskUid {
        let uid = see_as(controller, uid, &json!({"clusterName": cluster}));
        let site = Site {
            cluster: ClusterName::Platform(cluster.to_owned()),
            namespace: "jobs".to_owned(),
        };
        let site = controller.sites.intern(site, Timestamp::now());
        controller
            .sites
            .transition(&site, SiteState::Up, Timestamp::now());
        controller.sites.listed(&site);
        controller.index.set_site(&uid, &site);
        uid
    }

    #[tokio::test]
    async fn a_reconcile_that_failed_takes_no_slot_from_a_job_on_a_cluster_that_is_reached() {
        for is_lost in [false, true] {
            let mut controller = controller();
            let uid = see_on(&mut controller, "east", "task");
            let job = mark(&uid, CompletionHint::No);
            controller.index.keep_job(job, Instant::now());
            let queued = controller.index.task(&uid).unwrap().queued(&uid);
            controller.slots.queue.adopt(queued);
            let site = controller.index.task(&uid).unwrap().remote.site.clone().unwrap();
            if is_lost {
                let state = SiteState::down(Reason::Unreachable);
                controller.sites.transition(&site, state, Timestamp::now());
            }
            let outcome = ReconcileOutcome {
                error: Some(ReconcileError::Call(CallError::Timeout)),
                ..ReconcileOutcome::default()
            };
            controller.handle_outcome(&uid, &outcome);
            assert_eq!(controller.slots.queue.is_running("team-a", &uid), !is_lost);
        }
    }

    /// Holds: D1.
    #[tokio::test]
    async fn a_job_that_its_cluster_does_not_end_takes_no_slot_from_others_and_counts_there() {
        let mut controller = controller();
        let uid = see_on(&mut controller, "east", "task");
        controller
            .index
            .keep_job(mark(&uid, CompletionHint::No), Instant::now());
        for is_overdue in [false, true, true, false] {
            let overdue = Timestamp::now() + SignedDuration::from_secs(if is_overdue { -1 } else { 900 });
            let outcome = ReconcileOutcome {
                overdue_at: Some(overdue),
                error: Some(ReconcileError::Call(CallError::Timeout)),
                ..ReconcileOutcome::default()
            };
            controller.handle_outcome(&uid, &outcome);
            let queue = &controller.slots.queue;
            assert_eq!(queue.len(), (0, usize::from(!is_overdue)));
            let there: Vec<_> = queue.running_on().map(|(name, jobs)| (&**name, jobs)).collect();
            assert_eq!(there, [("east", 1)]);
        }
        controller.forget(&uid);
        assert_eq!(controller.slots.queue.running_on().count(), 0);
    }

    /// Holds: D1.
    #[tokio::test]
    async fn a_task_that_waits_for_nothing_is_looked_at_once_its_job_is_overdue() {
        let mut controller = controller();
        let uid = see_on(&mut controller, "east", "task");
        controller
            .index
            .keep_job(mark(&uid, CompletionHint::No), Instant::now());
        while let Some(taken) = controller.queue.keys.take(Instant::now()) {
            controller.queue.keys.done(&taken);
        }
        let soon = Duration::from_secs(60);
        let outcome = ReconcileOutcome {
            overdue_at: Some(Timestamp::now() + soon),
            remote: RemoteUpdate {
                was_reached: true,
                ..RemoteUpdate::default()
            },
            ..ReconcileOutcome::default()
        };
        controller.handle_outcome(&uid, &outcome);
        let wake = controller.queue.keys.next_wake();
        assert!(wake.is_some_and(|at| at <= Instant::now() + soon), "{wake:?}");
    }

    /// A task whose configuration is so long, for this cluster or for the hub's own.
    fn see_long(
        controller: &mut TaskController,
        namespace: &str,
        cluster: Option<&str>,
        uid: &str,
        bytes: usize,
    ) -> TaskUid {
        let meta = json!({
            "name": uid, "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": 1,
        });
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let spec = json!({
            "config": {"type": "slides", "text": "x".repeat(bytes)}, "repository": "team-a/shop", "tag": "1",
            "registryRef": {"name": "main"}, "clusterName": cluster,
        });
        let task = Task::new(TaskKind::RenderTask, &meta, spec, json!({})).unwrap();
        controller
            .handle_event(TaskWatchEvent::Task(scopes().remove(0), WatchChange::Seen(Box::new(task))).into());
        TaskUid::new(uid)
    }

    /// Whether a task is for the hub's own cluster, and takes the next that may be worked on.
    fn take(controller: &mut TaskController) -> Option<(TaskUid, bool)> {
        let (index, limits) = (&controller.index, &controller.limits);
        let owner = |uid: &TaskUid| limits.owner(index.task(uid).unwrap());
        let (uid, _) = controller.queue.keys.take_fair(Instant::now(), owner)?;
        let is_here = index.task(&uid).unwrap().remote.target.is_none();
        Some((uid, is_here))
    }

    #[tokio::test]
    async fn of_many_large_tasks_few_are_worked_on_at_once_and_small_ones_do_not_wait_for_them() {
        let mut controller = controller();
        for n in 0..200 {
            let (team, west) = (format!("team-{}", n % 10), format!("west-{}", n % 9));
            let cluster = (n % 2 == 0).then_some(&*west);
            see_long(
                &mut controller,
                &team,
                cluster,
                format!("large-{n}").as_str(),
                LARGE,
            );
        }
        let (mut held, mut ended) = (VecDeque::new(), 0);
        while ended < 200 {
            held.extend(std::iter::from_fn(|| take(&mut controller)));
            let here = held.iter().filter(|(_, is_here)| *is_here).count();
            let elsewhere = held.len() - here;
            let limits = controller.limits;
            assert!(here <= limits.large_passes && elsewhere <= limits.large_passes_elsewhere);
            assert!(ended > 0 || held.len() == limits.large_passes + limits.large_passes_elsewhere);
            for cluster in [None, Some("west-0"), Some("east")] {
                let name = format!("small-{ended}-{}", cluster.unwrap_or("here"));
                let small = see_long(&mut controller, "team-0", cluster, name.as_str(), 10);
                assert_eq!(take(&mut controller), Some((small.clone(), cluster.is_none())));
                controller.queue.keys.done(&small);
            }
            let (uid, _) = held.pop_front().unwrap();
            controller.queue.keys.done(&uid);
            ended += 1;
        }
        assert!(controller.queue.keys.is_empty());
    }

    #[tokio::test]
    async fn how_far_a_call_came_is_counted_but_for_clusters_that_tenants_name() {
        let mut controller = controller();
        let own = json!({"kubeConfig": {"secretRef": {"name": "edge"}}, "serviceAccountName": "builder"});
        let tasks = [
            see_as(&mut controller, "here", &json!({})),
            see_on(&mut controller, "east", "east"),
            see_as(&mut controller, "own", &own),
        ];
        for uid in &tasks {
            controller.fail(uid, "Transport", Some("connect"));
        }
        let count = |stage| {
            let kind = "Transport";
            let labels = ErrorLabels { kind, stage };
            controller.metrics.reconcile_errors.get_or_create(&labels).get()
        };
        assert_eq!((count("connect"), count("")), (2, 1));
    }

    #[tokio::test]
    async fn a_site_is_requested_before_a_job_can_be_created_there() {
        for has_slot in [false, true] {
            let mut controller = controller();
            let (request, mut requests) = mpsc::unbounded_channel();
            controller.site_requests = request;
            // Before everything was seen, each task may have a Job already.
            controller.sync.unsynced.clear();
            let uid = see_on(&mut controller, "east", "first");
            if has_slot {
                let record = controller.index.task(&uid).unwrap();
                controller.slots.queue.adopt(record.queued(&uid));
            }
            controller.start_passes(Instant::now());
            assert!(controller.running.has(&uid));
            let is_requested = matches!(requests.try_recv(), Ok(SiteRequest::Open(_)));
            assert_eq!(is_requested, has_slot);
        }
    }

    /// Holds: B2.
    #[tokio::test]
    async fn a_pass_for_a_cluster_that_may_not_be_asked_yet_is_not_begun_and_keeps_its_turn() {
        let mut controller = controller();
        let again = Instant::now() + Duration::from_secs(30);
        if let Some(context) = Arc::<ReconcileContext>::get_mut(&mut controller.context) {
            context.site_clients = Arc::new(Paced(Mutex::new(1), again));
        }
        let first = see_on(&mut controller, "slow", "first");
        for n in 0..100 {
            see_on(&mut controller, "slow", &format!("slow-{n}"));
        }
        let other = see_on(&mut controller, "other", "other");
        controller.sync.unsynced.clear();
        let now = Instant::now();
        controller.start_passes(now);
        let at_work: Vec<_> = controller.running.passes().collect();
        assert_eq!(at_work.len(), 2, "{at_work:?}");
        assert!(controller.running.has(&first) && controller.running.has(&other));
        assert_eq!(controller.queue.keys.len(), 100);
        assert_eq!(controller.queue.keys.next_wake(), Some(again));
    }
}
