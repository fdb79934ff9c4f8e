//! When what the watches do not show is listed: the rendering namespace, and each site.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use kube::api::ObjectMeta;
use tokio::sync::watch;

use crate::api::labels::TASK_NAMESPACE;
use crate::plan::queue::workqueue::WorkQueue;
use crate::plan::remote::site::Site;

/// Sites that are listed at once: a thousand that connect together do not make a thousand lists at once.
pub(super) const LISTS: usize = 8;

/// The lists that are due, and those that are made.
pub(super) struct SweepSchedule {
    /// When the rendering namespace is listed next; `None` while it is being listed.
    pub(super) due: Option<Instant>,
    /// Sites where what is there is to be listed.
    pub(super) sites: WorkQueue<Arc<Site>>,
    /// Namespaces of the tasks that left objects in the rendering namespace.
    leftover_namespaces: watch::Sender<Arc<BTreeSet<String>>>,
}

impl SweepSchedule {
    /// The first list of the rendering namespace is due.
    pub(super) fn new(due: Instant, leftover_namespaces: watch::Sender<Arc<BTreeSet<String>>>) -> Self {
        Self {
            due: Some(due),
            sites: WorkQueue::default(),
            leftover_namespaces,
        }
    }

    /// Whether the rendering namespace is to be listed now, which counts as begun then.
    pub(super) fn start(&mut self, now: Instant) -> bool {
        self.due.take_if(|due| *due <= now).is_some()
    }

    /// Publishes the namespaces of the tasks that these objects were made for, as they say.
    pub(super) fn publish_leftovers(&self, secrets: &[ObjectMeta]) {
        let namespace = |meta: &ObjectMeta| meta.annotations.as_ref()?.get(TASK_NAMESPACE).cloned();
        self.leftover_namespaces
            .send_replace(Arc::new(secrets.iter().filter_map(namespace).collect()));
    }

    /// The next list is due then at the latest, unless one is being made.
    pub(super) fn hasten(&mut self, at: Instant) {
        self.due = self.due.map(|due| due.min(at));
    }

    /// The next site that is to be listed, while there is room for a list.
    pub(super) fn start_site(&mut self, now: Instant) -> Option<Arc<Site>> {
        (self.sites.busy() < LISTS).then(|| self.sites.take(now))?
    }

    /// When a list can begin next, where none can now.
    pub(super) fn next_wake(&self) -> Option<Instant> {
        let site = (self.sites.busy() < LISTS).then(|| self.sites.next_wake());
        site.flatten().into_iter().chain(self.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::plan::remote::site::ClusterName;

    fn schedule(due: Instant) -> SweepSchedule {
        SweepSchedule::new(due, watch::channel(Arc::default()).0)
    }

    fn site(number: usize) -> Arc<Site> {
        Arc::new(Site {
            cluster: ClusterName::Platform(format!("cluster-{number}")),
            namespace: "jobs".to_owned(),
        })
    }

    #[test]
    fn one_list_of_the_rendering_namespace_is_made_at_a_time() {
        let (now, hour) = (Instant::now(), Duration::from_secs(3600));
        let mut sweeps = schedule(now);
        assert!(sweeps.start(now) && !sweeps.start(now + hour));
        sweeps.hasten(now);
        assert_eq!(sweeps.next_wake(), None, "one is being made");
        sweeps.due = Some(now + hour);
        assert!(!sweeps.start(now));
        sweeps.hasten(now + hour / 2);
        sweeps.hasten(now + 2 * hour);
        assert_eq!(sweeps.next_wake(), Some(now + hour / 2));
    }

    #[test]
    fn a_site_that_is_slow_to_list_delays_the_list_of_no_other() {
        let (now, soon) = (Instant::now(), Instant::now() + Duration::from_secs(5));
        let mut sweeps = schedule(now);
        sweeps.start(now);
        for number in 0..LISTS {
            assert_eq!(sweeps.next_wake(), (number > 0).then_some(soon));
            sweeps.sites.add_at(&site(number), now);
            assert_eq!(sweeps.start_site(now), Some(site(number)));
            sweeps.sites.add_at(&site(LISTS), soon);
        }
        assert_eq!(
            (sweeps.next_wake(), sweeps.start_site(soon)),
            (None, None),
            "there is no room"
        );
        sweeps.sites.done(&site(0));
        assert_eq!(
            (sweeps.next_wake(), sweeps.start_site(soon)),
            (Some(soon), Some(site(LISTS)))
        );
    }
}
