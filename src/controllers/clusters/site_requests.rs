//! What the controller wants: sites of the platform's, and of tenants' own clusters, which have a limited number of places.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};

use super::connection_bindings::{KubeconfigRef, refuse};
use super::kubeconfig_validator::KubeconfigVerdict;
use super::kubeconfig_watcher::{KubeconfigReport, KubeconfigWatcher};
use super::{ClusterController, SiteRequest, WatcherHandle};
use crate::plan::remote::cluster_quota::QuotaHandover;
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::{ClusterName, Site, TenantKubeconfig};
use crate::plan::task::tenant::ReadIdentity;

/// The namespace whose place a tenant's cluster takes: that of the task, wherever the Secret is.
fn host(own: &TenantKubeconfig) -> &str {
    match &own.reader {
        ReadIdentity::ServiceAccount(account) => account.namespace(),
        ReadIdentity::Hub => &own.namespace,
    }
}

impl ClusterController {
    pub(super) fn take_want(&mut self, want: SiteRequest) {
        match want {
            SiteRequest::Open(site) => self.open(&site),
            SiteRequest::Close(site) => self.close(&site),
        }
    }

    /// Says of a platform's site that no `RenderCluster` leads there.
    pub(super) fn no_cluster(&mut self, site: &Arc<Site>) {
        self.act(vec![refuse(site, KubeconfigFault::NoCluster, Timestamp::now())]);
    }

    pub(super) fn open(&mut self, site: &Arc<Site>) {
        self.wanted.insert(Arc::clone(site));
        match &site.cluster {
            ClusterName::Platform(name) => self.open_platform(site, name),
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                let (is_seated, gone) = self.places.ask(host(&own), &own, Instant::now());
                if let Some(gone) = gone {
                    self.give_way(&gone);
                }
                if is_seated {
                    self.follow(site, &own);
                } else {
                    self.act(vec![refuse(site, KubeconfigFault::Full, Timestamp::now())]);
                }
            }
        }
    }

    fn open_platform(&mut self, site: &Arc<Site>, name: &str) {
        // One that is drained is reached as it was.
        let before = self.bindings.kubeconfig_of(site).cloned();
        let place = self
            .store
            .get(name)
            .and_then(|seen| seen.site_and_kubeconfig(name));
        // Away from a cluster is away from all its namespaces.
        let is_meant =
            |(meant, lead): &(Arc<Site>, KubeconfigRef)| meant == site || *lead == KubeconfigRef::Away;
        let meant = place.filter(is_meant).map(|(_, lead)| lead);
        match before.or(meant) {
            Some(lead) => self.seat(site, &lead),
            None => self.no_cluster(site),
        }
    }

    fn follow(&mut self, site: &Arc<Site>, own: &Arc<TenantKubeconfig>) {
        let lead = KubeconfigRef::Own(Arc::clone(own));
        let acts = self.bindings.bind(site, &lead, Timestamp::now());
        self.act(acts);
        if let Some(follows) = self.follows.get_mut(own) {
            follows.idle = None;
            let is_refused = self.bindings.way_to(site).is_some_and(|way| way.is_err());
            self.places.mark(own, is_refused, Instant::now());
            return;
        }
        let turns = self.turns.entry(host(own).to_owned());
        let turns = turns.or_insert_with(|| Arc::new(Semaphore::new(self.parts.limits.turns)));
        let again = Arc::new(Notify::new());
        let follower = KubeconfigWatcher {
            kubeconfig: Arc::clone(own),
            identities: Arc::clone(&self.parts.identities),
            judge: Arc::clone(&self.judge),
            connect_permits: Arc::clone(turns),
            again: Arc::clone(&again),
            limits: self.parts.limits,
            out: self.report_sender.clone(),
        };
        let follows = WatcherHandle {
            task: self.following.spawn(follower.run()),
            again,
            idle: None,
        };
        self.follows.insert(Arc::clone(own), follows);
    }

    pub(super) fn take_told(&mut self, told: KubeconfigReport) {
        let lead = KubeconfigRef::Own(told.kubeconfig);
        if !self.bindings.is_followed(&lead) {
            return;
        }
        // A connection that stands already needs no turn.
        if let (KubeconfigVerdict::Leads(found), Some(turn)) = (&told.verdict, told.connect_permit)
            && !self.bindings.is_held(&found.key)
        {
            self.taken.insert(found.key.clone(), turn);
        }
        self.weigh(&lead, &told.verdict);
        self.settle(&lead, told.verdict);
    }

    /// Marks the place of a kubeconfig: one that leads nowhere is of no use.
    fn weigh(&mut self, lead: &KubeconfigRef, verdict: &KubeconfigVerdict) {
        let KubeconfigRef::Own(own) = lead else { return };
        let is_refused = match verdict {
            KubeconfigVerdict::Same => return,
            KubeconfigVerdict::Leads(_) => false,
            KubeconfigVerdict::Nowhere(_) => true,
        };
        let is_idle = self
            .follows
            .get(own)
            .is_some_and(|follows| follows.idle.is_some());
        self.places.mark(own, is_refused || is_idle, Instant::now());
    }

    /// Lets those who wait take places that are of no use.
    pub(super) fn take_turns(&mut self) {
        while let Some(QuotaHandover { gone, next }) = self.places.hand_over(Instant::now()) {
            self.give_way(&gone);
            self.take_place(&next);
        }
    }

    /// Lets go of a kubeconfig whose place another has now; one that is still wanted waits for its next turn, and its tasks go on
    /// saying what is wrong with it.
    fn give_way(&mut self, own: &Arc<TenantKubeconfig>) {
        self.let_go(own);
        if self.wanted_by(own).any(|_| true) {
            let again = Instant::now() + self.parts.limits.last_pause;
            self.places.wait(host(own), own, again);
        }
    }

    pub(super) fn close(&mut self, site: &Arc<Site>) {
        self.wanted.remove(site);
        match &site.cluster {
            ClusterName::Platform(name) => {
                let place = self
                    .store
                    .get(name)
                    .and_then(|seen| seen.site_and_kubeconfig(name));
                if place.is_none_or(|(meant, _)| meant != *site) {
                    let acts = self.bindings.unbind(site);
                    self.act(acts);
                }
            }
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                let acts = self.bindings.unbind(site);
                self.act(acts);
                if let Some(follows) = self.follows.get_mut(&own) {
                    if self.bindings.is_idle(&KubeconfigRef::Own(Arc::clone(&own))) {
                        let now = Instant::now();
                        follows.idle = Some(now);
                        self.places.mark(&own, true, now);
                        self.idle.push_back((now, own));
                    }
                } else if !self.wanted_by(&own).any(|_| true) {
                    self.leave(&own);
                }
            }
        }
    }

    /// Lets go of tenants' clusters that no task has been for long enough.
    pub(super) fn let_idle_go(&mut self) {
        while let Some((since, _)) = self.idle.front() {
            if since.elapsed() < self.parts.limits.idle {
                return;
            }
            let Some((since, own)) = self.idle.pop_front() else {
                return;
            };
            // It may be in use again, or since another moment.
            let is_over = self.follows.get(&own).is_some_and(|f| f.idle == Some(since));
            if is_over {
                self.unfollow(&own);
            }
        }
    }

    fn unfollow(&mut self, own: &Arc<TenantKubeconfig>) {
        self.let_go(own);
        self.leave(own);
    }

    fn let_go(&mut self, own: &Arc<TenantKubeconfig>) {
        if let Some(follows) = self.follows.remove(own) {
            follows.task.abort();
        }
        let acts = self.bindings.forget(&KubeconfigRef::Own(Arc::clone(own)));
        self.act(acts);
        // Who waits for a turn has its own hold of it.
        let is_last = !self.follows.keys().any(|other| host(other) == host(own));
        if is_last {
            self.turns.remove(host(own));
        }
    }

    /// Gives a place up to whoever waits for one.
    fn leave(&mut self, own: &Arc<TenantKubeconfig>) {
        if let Some(next) = self.places.leave(own) {
            self.take_place(&next);
        }
    }

    fn take_place(&mut self, own: &Arc<TenantKubeconfig>) {
        let sites: Vec<Arc<Site>> = self.wanted_by(own).cloned().collect();
        for site in sites {
            self.follow(&site, own);
        }
    }

    fn wanted_by<'a>(&'a self, own: &'a TenantKubeconfig) -> impl Iterator<Item = &'a Arc<Site>> {
        let is_of = move |site: &&Arc<Site>| matches!(&site.cluster, ClusterName::Own(other) if other == own);
        self.wanted.iter().filter(is_of)
    }
}
