//! Takes in what ran beside the engine, and has it done again where it panicked.

use std::time::Instant;

use super::running::{Ended, Errand, Finished, Panicked};
use super::{Engine, SWEEP_RETRY};
use crate::api::names::TaskUid;
use crate::kubernetes::apply::{CallError, Stage};

impl Engine {
    pub(super) fn finish(&mut self, (errand, ended): Ended) {
        match ended {
            Ok(finished) => self.take_finished(finished),
            Err(Panicked) => self.retry(errand),
        }
    }

    fn take_finished(&mut self, finished: Finished) {
        match finished {
            Finished::Pass(uid, passed) => {
                let took = passed.started.elapsed();
                self.metrics.pass(took);
                if let Some(ended) = passed.outcome.ended(took) {
                    self.queue.learn(&uid, ended);
                }
                self.end_journey(&uid, *passed);
            }
            Finished::Sweep(listed) => self.take_list(listed),
            Finished::Removal => {}
            Finished::SiteList(site, walk, stride) => self.take_stride(&site, walk, stride),
            Finished::SiteCleared(site, walk, settled) => self.take_cleared(&site, walk, settled),
            Finished::SiteRemoval(site, settled) => self.settle(&site, settled),
            Finished::Ledger(read) => self.take_ledger(read),
            Finished::LedgerWrite(changes, written) => self.wrote_ledger(changes, written),
        }
    }

    /// Does what each kind of work needs after a panic, so that it is done again and holds up nothing for ever.
    fn retry(&mut self, errand: Errand) {
        let soon = Instant::now() + SWEEP_RETRY;
        match errand {
            Errand::Pass(uid) => {
                self.fail(&uid, "Panic", None);
                self.end_pass(&uid);
                return;
            }
            Errand::Sweep => {
                self.is_sweeping = false;
                self.sweep_due = soon;
            }
            // What was to be removed is found by the next list.
            Errand::Removal => self.sweep_due = self.sweep_due.min(soon),
            Errand::SiteList(site) => self.end_walk(&site, SWEEP_RETRY),
            Errand::SiteRemoval(site) => {
                if self.sites.state(&site).is_some() {
                    self.lists.add_at(&site, soon);
                }
            }
            Errand::LedgerRead => self.take_ledger(Err(CallError::Transport(Stage::Internal))),
            Errand::LedgerWrite(changes) => self.write_ledger_later(changes),
        }
        tracing::warn!("a piece of work broke; it is repeated");
    }

    /// A worker gives a task back.
    pub(super) fn end_pass(&mut self, uid: &TaskUid) {
        self.take_parked(uid);
        self.journeys.pass_ended(uid, Instant::now());
        self.queue.done(uid);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::sources::Source;
    use super::super::tests::engine;
    use super::*;
    use crate::plan::queue::workqueue::WorkQueue;
    use crate::plan::remote::ledger::Changes;
    use crate::plan::remote::site::{ClusterName, Site, SiteState};

    /// Every kind there is; a further one does not compile here without a case in [`is_tried_again`].
    fn kinds() -> Vec<Errand> {
        let (task, site) = (TaskUid::new("task"), site());
        let changes = Changes::from([("entry".to_owned(), Some("value".to_owned()))]);
        vec![
            Errand::Pass(task),
            Errand::Sweep,
            Errand::Removal,
            Errand::SiteList(Arc::clone(&site)),
            Errand::SiteRemoval(site),
            Errand::LedgerRead,
            Errand::LedgerWrite(changes),
        ]
    }

    fn site() -> Arc<Site> {
        Arc::new(Site {
            cluster: ClusterName::Platform("west".to_owned()),
            namespace: "jobs".to_owned(),
        })
    }

    /// An engine that does this now and nothing else.
    fn busy_with(errand: &Errand) -> Engine {
        let mut engine = engine();
        let now = Instant::now();
        engine.unseen.clear();
        engine.sweep_due = now + Duration::from_secs(3600);
        let site = engine
            .sites
            .intern(Site::clone(&site()), k8s_openapi::jiff::Timestamp::now());
        engine.sites.ask(&site);
        engine
            .sites
            .turn(&site, SiteState::Up, k8s_openapi::jiff::Timestamp::now());
        match errand {
            Errand::Pass(uid) => {
                engine.queue.add(uid);
                engine.queue.take(now);
            }
            Errand::Sweep => engine.is_sweeping = true,
            Errand::Removal | Errand::SiteRemoval(_) => {}
            Errand::SiteList(site) => {
                engine.lists.add(site);
                engine.lists.take(now);
                engine.listing.insert(Arc::clone(site));
            }
            Errand::LedgerRead => _ = engine.unseen.insert(Source::Ledger),
            Errand::LedgerWrite(_) => engine.is_writing_ledger = true,
        }
        engine
    }

    fn is_due<K: std::hash::Hash + Eq + Ord + Clone>(queue: &mut WorkQueue<K>, key: &K) -> bool {
        queue.take(Instant::now() + Duration::from_secs(60)).as_ref() == Some(key)
    }

    /// Whether the owner does it again, soon.
    fn is_tried_again(engine: &mut Engine, errand: &Errand) -> bool {
        let soon = Instant::now() + Duration::from_secs(60);
        let is_under_way = engine.running.errands.values().any(|other| other == errand);
        match errand {
            Errand::Pass(uid) => is_due(&mut engine.queue, uid),
            Errand::Sweep => !engine.is_sweeping && engine.sweep_due < soon,
            Errand::Removal => engine.sweep_due < soon,
            Errand::SiteList(site) => engine.listing.is_empty() && is_due(&mut engine.lists, site),
            Errand::SiteRemoval(site) => is_due(&mut engine.lists, site),
            Errand::LedgerRead | Errand::LedgerWrite(_) => is_under_way,
        }
    }

    /// Holds: B21, D4.
    #[tokio::test]
    async fn a_panic_in_any_kind_of_work_is_a_retry() {
        for errand in kinds() {
            let mut engine = busy_with(&errand);
            assert!(
                !is_tried_again(&mut engine, &errand),
                "{errand:?}: nothing is due before"
            );
            let mut engine = busy_with(&errand);
            engine
                .running
                .spawn(errand.clone(), async { panic!("on purpose") });
            let ended = engine.running.next().await.unwrap();
            assert!(ended.1.is_err());
            engine.finish(ended);
            assert!(is_tried_again(&mut engine, &errand), "{errand:?}");
        }
    }
}
