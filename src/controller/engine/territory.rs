//! What of the hub's namespaces this instance works on, where several divide them.
//!
//! What it loses it lets go of: at once where no worker has the task, else when that one is done. Only then it says that it
//! has settled, and another one may begin. What it gains is listed like at a start, before anything is decided.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::names::TaskUid;
use crate::plan::queue::Caps;
use crate::plan::shards::Owned;
use crate::plan::site::ClusterName;
use crate::watch::Scope;

use super::{Engine, Source};

/// Time between two counts of what other instances run.
const COUNT_AGAIN: Duration = Duration::from_secs(1);

/// What the engine works on.
pub(super) struct Territory {
    pub(super) told: watch::Receiver<Arc<Owned>>,
    settled: watch::Sender<Arc<Owned>>,
    owned: Arc<Owned>,
    known: HashMap<String, bool>,
    /// Tasks that are lost, and that a worker still has.
    leaving: HashSet<TaskUid>,
    /// Jobs of other instances on each cluster of the platform's, and when they were counted.
    others: (BTreeMap<String, usize>, Option<Instant>),
}

impl Territory {
    pub(super) fn new(mut told: watch::Receiver<Arc<Owned>>, settled: watch::Sender<Arc<Owned>>) -> Self {
        let owned = Arc::clone(&told.borrow_and_update());
        settled.send_replace(Arc::clone(&owned));
        Self {
            told,
            settled,
            owned,
            known: HashMap::new(),
            leaving: HashSet::new(),
            others: (BTreeMap::new(), None),
        }
    }

    /// What it is.
    pub(super) fn owned(&self) -> Arc<Owned> {
        Arc::clone(&self.owned)
    }

    /// Whether tasks of a namespace are worked on.
    pub(super) fn owns(&mut self, namespace: &str) -> bool {
        if *self.owned == Owned::All {
            return true;
        }
        if let Some(is_owned) = self.known.get(namespace) {
            return *is_owned;
        }
        let is_owned = self.owned.owns(namespace);
        self.known.insert(namespace.to_owned(), is_owned);
        is_owned
    }

    /// The part of a cap that is this instance's; a cap that is smaller than the number of instances gives each one.
    pub(super) fn share(&self, cap: usize) -> usize {
        (cap / self.owned.members()).max(cap.min(1))
    }
}

impl Engine {
    /// Takes in what this instance may work on from now on.
    pub(super) fn take_territory(&mut self) {
        self.territory.owned = Arc::clone(&self.territory.told.borrow_and_update());
        self.territory.known.clear();
        self.territory.others = (BTreeMap::new(), None);
        let known: Vec<_> = self
            .index
            .tasks()
            .map(|(uid, record)| (uid.clone(), Arc::clone(record.namespace())))
            .collect();
        for (uid, namespace) in known {
            if self.territory.owns(&namespace) {
                self.territory.leaving.remove(&uid);
            } else if self.running.has(&uid) {
                self.territory.leaving.insert(uid);
            } else {
                self.let_go(&uid);
            }
        }
        self.share_caps();
        self.settle_territory();
    }

    pub(super) fn share_caps(&mut self) {
        let Caps { total, .. } = self.limits.caps;
        self.fair.set_total(self.territory.share(total));
        let kept = self.territory.share(self.limits.keep_failed.total);
        self.retention.set_kept_failures(kept);
        self.take_caps();
    }

    /// A worker is done with a task; it is let go of if it is not this instance's any more.
    pub(super) fn leave_territory(&mut self, uid: &TaskUid) {
        if self.territory.leaving.remove(uid) {
            self.let_go(uid);
            self.settle_territory();
        }
    }

    /// Forgets a task that another instance has from now on; nothing of it is touched.
    fn let_go(&mut self, uid: &TaskUid) {
        self.forget(uid);
        self.index.forget_secret(uid);
    }

    /// Says that nothing is in work any more that was lost.
    fn settle_territory(&self) {
        if self.territory.leaving.is_empty() {
            self.territory.settled.send_if_modified(|settled| {
                let is_new = *settled != self.territory.owned;
                settled.clone_from(&self.territory.owned);
                is_new
            });
        }
    }

    /// Counts what other instances of the hub run on each cluster, now and then: one of them tells it for all.
    pub(super) fn count_others(&mut self, now: Instant) -> &BTreeMap<String, usize> {
        let (known, counted) = &mut self.territory.others;
        let is_fresh = counted.is_some_and(|at| now < at + COUNT_AGAIN);
        if !is_fresh && self.territory.owned.members() > 1 {
            *counted = Some(now);
            known.clear();
            for site in self.index.unfinished_strays() {
                if let ClusterName::Platform(name) = &site.cluster {
                    *known.entry(name.clone()).or_default() += 1;
                }
            }
        }
        known
    }

    /// Tasks of a scope that another instance had are listed: as at a start, nothing is decided before everything that there
    /// is of them was seen.
    pub(super) fn take_gain(&mut self, scope: Scope) {
        self.unseen.insert(Source::Tasks(scope));
        self.unseen.insert(Source::Secrets);
        self.sweep_due = Instant::now();
        self.is_sweep_late = self.is_sweeping;
        if self.unseen.insert(Source::Ledger) {
            self.read_ledger();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use kube::api::ObjectMeta;
    use serde_json::json;

    use super::super::super::outcome::Outcome;
    use super::super::tests::{engine, scopes};
    use super::super::work::Passed;
    use super::super::{Errand, Finished, Running};
    use super::*;
    use crate::names::TaskKind;
    use crate::plan::shards::{Shard, View};
    use crate::plan::task::Task;
    use crate::watch::{Change, Input};

    fn part(view: &[u16]) -> Arc<Owned> {
        let view: BTreeSet<Shard> = view.iter().copied().map(Shard).collect();
        Arc::new(Owned::Part {
            own: Shard(0),
            view: View(view),
            others: Vec::new(),
        })
    }

    /// A namespace that goes to the second of two shards, and one that stays with the first.
    fn namespaces() -> (String, String) {
        let both = part(&[0, 1]);
        let find = |is_own: bool| {
            let mut names = (0..).map(|n| format!("team-{n}"));
            names.find(|name| both.owns(name) == is_own).unwrap()
        };
        (find(false), find(true))
    }

    fn see(engine: &mut Engine, namespace: &str, uid: &str) -> TaskUid {
        let meta = json!({
            "name": uid, "namespace": namespace, "uid": uid, "resourceVersion": "1", "generation": 1,
        });
        let meta: ObjectMeta = serde_json::from_value(meta).unwrap();
        let task = Task::new(TaskKind::RenderTask, &meta, json!({}), json!({})).unwrap();
        engine.take_in(Input::Task(scopes().remove(0), Change::Seen(Box::new(task))).into());
        TaskUid::new(uid)
    }

    /// An engine that is told what it may work on, and what it says of that.
    fn told() -> (Engine, watch::Sender<Arc<Owned>>, watch::Receiver<Arc<Owned>>) {
        let (tell, told) = watch::channel(part(&[0]));
        let (settled, said) = watch::channel(Arc::new(Owned::All));
        let mut engine = engine();
        engine.territory = Territory::new(told, settled);
        engine.unseen.clear();
        (engine, tell, said)
    }

    #[tokio::test]
    async fn what_is_lost_is_let_go_and_said_so_once_no_worker_has_any_of_it() {
        let (mut engine, tell, said) = told();
        let (goes, stays) = namespaces();
        let idle = see(&mut engine, &goes, "idle");
        let busy = see(&mut engine, &goes, "busy");
        let kept = see(&mut engine, &stays, "kept");
        engine
            .running
            .spawn(Errand::Pass(busy.clone()), std::future::pending());
        tell.send(part(&[0, 1])).unwrap();
        engine.take_territory();
        assert!(engine.index.task(&idle).is_none() && engine.index.task(&kept).is_some());
        assert_eq!(*said.borrow(), part(&[0]), "a worker still has one");
        see(&mut engine, &goes, "late");
        assert!(
            engine.index.task(&TaskUid::new("late")).is_none(),
            "it is another's"
        );
        engine.running = Running::default();
        let passed = Passed {
            started: Instant::now(),
            outcome: Outcome::default(),
            journey: None,
        };
        let finished = Finished::Pass(busy.clone(), Box::new(passed));
        engine.finish((Errand::Pass(busy.clone()), Ok(finished)));
        assert!(engine.index.task(&busy).is_none());
        assert_eq!(*said.borrow(), part(&[0, 1]));
        assert_eq!(engine.index.tasks().count(), 1);
    }

    #[tokio::test]
    async fn what_is_gained_is_seen_whole_before_anything_is_decided() {
        let (mut engine, tell, said) = told();
        tell.send(part(&[0, 1])).unwrap();
        engine.take_territory();
        let (gained, _) = namespaces();
        tell.send(part(&[0])).unwrap();
        engine.take_territory();
        assert_eq!(*said.borrow(), part(&[0]), "who gains has nothing to end");
        // A sweep that began before says nothing of what is gained.
        engine.is_sweeping = true;
        engine.take_in(Input::Gaining(scopes().remove(0)).into());
        assert!(engine.is_sweep_late);
        see(&mut engine, &gained, "task");
        let sources = [Source::Ledger, Source::Tasks(scopes().remove(0)), Source::Secrets];
        assert_eq!(engine.unseen, HashSet::from(sources.clone()));
        for source in sources {
            engine.start_work();
            assert_eq!(engine.running.passes().len(), 0, "{source:?} was not seen yet");
            engine.saw(&source);
        }
        engine.start_work();
        assert_eq!(engine.running.passes().len(), 1);
    }

    #[tokio::test]
    async fn caps_are_divided_and_everybody_may_do_something() {
        let (mut engine, tell, _) = told();
        tell.send(part(&[0, 1, 2])).unwrap();
        engine.take_territory();
        let shares = [256, 3, 2, 1, 0].map(|cap| engine.territory.share(cap));
        assert_eq!(shares, [85, 1, 1, 1, 0]);
    }
}
