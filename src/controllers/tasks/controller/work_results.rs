//! Handles the results of other work, and repeats work that panicked.

use std::time::Instant;

use super::ledger::LEDGER_RETRY;
use super::running_work::{EndedWork, WorkItem, WorkPanicked, WorkResult};
use super::{SWEEP_RETRY, TaskController};
use crate::api::names::TaskUid;
use crate::kubernetes::apply::{CallError, TransportStage};

impl TaskController {
    pub(super) fn finish(&mut self, (item, ended): EndedWork) {
        match ended {
            Ok(finished) => self.take_finished(finished),
            Err(WorkPanicked) => self.retry(item),
        }
    }

    fn take_finished(&mut self, finished: WorkResult) {
        match finished {
            WorkResult::Pass(uid, passed) => {
                let took = passed.started.elapsed();
                self.metrics.pass(took);
                if let Some(ended) = passed.outcome.ended(took) {
                    self.queue.keys.record_feedback(&uid, ended);
                }
                self.handle_timed_outcome(&uid, *passed);
            }
            WorkResult::Sweep(listed) => self.handle_list(listed),
            WorkResult::Removal => {}
            WorkResult::SiteList(site, sweep, page) => self.handle_page(&site, sweep, page),
            WorkResult::SiteCleared(site, sweep, settled) => {
                self.sites.remove_orphans(&site, &settled);
                self.finish_list(&site, sweep);
            }
            WorkResult::SiteRemoval(site, settled) => self.sites.remove_orphans(&site, &settled),
            WorkResult::Ledger(read) => self.handle_ledger(read),
            WorkResult::LedgerWrite(changes, written) => self.handle_ledger_written(changes, written),
        }
    }

    /// Does what each kind of work needs after a panic, so that it is done again and holds up nothing for ever.
    fn retry(&mut self, item: WorkItem) {
        let soon = Instant::now() + SWEEP_RETRY;
        match item {
            WorkItem::Pass(uid) => {
                self.fail(&uid, "Panic", None);
                self.end_pass(&uid);
                return;
            }
            WorkItem::Sweep => self.sweeps.due = Some(soon),
            // What was to be removed is found by the next list.
            WorkItem::Removal => self.sweeps.hasten(soon),
            WorkItem::SiteList(site) => self.end_list(&site, SWEEP_RETRY),
            WorkItem::SiteRemoval(site) => {
                if self.sites.known(&site).is_some() {
                    self.sweeps.sites.add_at(&site, soon);
                }
            }
            WorkItem::LedgerRead => self.handle_ledger(Err(CallError::Transport(TransportStage::Internal))),
            WorkItem::LedgerWrite(changes) => self.write_ledger(LEDGER_RETRY, changes),
        }
        tracing::warn!("a piece of work broke; it is repeated");
    }

    /// A worker gives a task back.
    pub(super) fn end_pass(&mut self, uid: &TaskUid) {
        self.handle_deferred_event(uid);
        self.latencies.pass_ended(uid, Instant::now());
        self.queue.keys.done(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::cache_sync::SyncSource;
    use super::super::tests::controller;
    use super::*;
    use crate::plan::queue::workqueue::WorkQueue;
    use crate::plan::remote::ledger::LedgerChanges;
    use crate::plan::remote::site::{ClusterName, Site, SiteState};

    /// Every kind there is; a further one does not compile here without a case in [`is_tried_again`].
    fn kinds() -> Vec<WorkItem> {
        let (task, site) = (TaskUid::new("task"), site());
        let changes = LedgerChanges::from([("entry".to_owned(), Some("value".to_owned()))]);
        vec![
            WorkItem::Pass(task),
            WorkItem::Sweep,
            WorkItem::Removal,
            WorkItem::SiteList(Arc::clone(&site)),
            WorkItem::SiteRemoval(site),
            WorkItem::LedgerRead,
            WorkItem::LedgerWrite(changes),
        ]
    }

    fn site() -> Arc<Site> {
        Arc::new(Site {
            cluster: ClusterName::Platform("west".to_owned()),
            namespace: "jobs".to_owned(),
        })
    }

    /// A controller that does this now and nothing else.
    fn busy_with(item: &WorkItem) -> TaskController {
        let mut controller = controller();
        let now = Instant::now();
        controller.sync.unsynced.clear();
        controller.sweeps.due = Some(now + Duration::from_secs(3600));
        let site = controller
            .sites
            .intern(Site::clone(&site()), k8s_openapi::jiff::Timestamp::now());
        controller.sites.request(&site);
        controller
            .sites
            .transition(&site, SiteState::Up, k8s_openapi::jiff::Timestamp::now());
        match item {
            WorkItem::Pass(uid) => {
                controller.queue.keys.add(uid);
                controller.queue.keys.take(now);
            }
            WorkItem::Sweep => assert!(controller.sweeps.start(now + Duration::from_secs(3600))),
            WorkItem::Removal | WorkItem::SiteRemoval(_) => {}
            WorkItem::SiteList(site) => {
                controller.sweeps.sites.add_at(site, now);
                controller.sweeps.start_site(now);
            }
            WorkItem::LedgerRead => _ = controller.sync.unsynced.insert(SyncSource::Ledger),
            WorkItem::LedgerWrite(changes) => {
                controller.sites.ledger.add(changes.clone());
                controller.sites.ledger.take();
            }
        }
        controller
    }

    fn is_due<K: std::hash::Hash + Eq + Ord + Clone>(queue: &mut WorkQueue<K>, key: &K) -> bool {
        queue.take(Instant::now() + Duration::from_secs(60)).as_ref() == Some(key)
    }

    /// Whether the owner does it again, soon.
    fn is_tried_again(controller: &mut TaskController, item: &WorkItem) -> bool {
        let soon = Instant::now() + Duration::from_secs(60);
        let is_under_way = controller.running.items.values().any(|other| other == item);
        match item {
            WorkItem::Pass(uid) => is_due(&mut controller.queue.keys, uid),
            WorkItem::Sweep | WorkItem::Removal => controller.sweeps.start(soon),
            WorkItem::SiteList(site) | WorkItem::SiteRemoval(site) => {
                controller.sweeps.start_site(soon).as_ref() == Some(site)
            }
            WorkItem::LedgerRead | WorkItem::LedgerWrite(_) => is_under_way,
        }
    }

    /// Holds: B21, D4.
    #[tokio::test]
    async fn a_panic_in_any_kind_of_work_is_a_retry() {
        for item in kinds() {
            let mut controller = busy_with(&item);
            assert!(
                !is_tried_again(&mut controller, &item),
                "{item:?}: nothing is due before"
            );
            let mut controller = busy_with(&item);
            controller
                .running
                .spawn(item.clone(), async { panic!("on purpose") });
            let ended = controller.running.next().await.unwrap();
            assert!(ended.1.is_err());
            controller.finish(ended);
            assert!(is_tried_again(&mut controller, &item), "{item:?}");
        }
    }
}
