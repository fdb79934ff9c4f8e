//! What the engine wants: sites of the platform's, and of tenants' own clusters, which have a limited number of places.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::{Notify, Semaphore};

use super::leads::{Lead, refuse};
use super::secrets::Verdict;
use super::tenants::{Follower, Told};
use super::{ClusterLoop, Follows};
use crate::plan::lead::Fault;
use crate::plan::site::{ClusterName, OwnKubeconfig, Site};
use crate::plan::tenant::Reader;

/// The namespace whose place a tenant's cluster takes: that of the task, wherever the Secret is.
fn host(own: &OwnKubeconfig) -> &str {
    match &own.reader {
        Reader::ServiceAccount(account) => account.namespace(),
        Reader::Hub => &own.namespace,
    }
}

impl ClusterLoop {
    pub(super) fn open(&mut self, site: &Arc<Site>) {
        self.wanted.insert(Arc::clone(site));
        match &site.cluster {
            ClusterName::Platform(name) => self.open_platform(site, name),
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                if self.places.ask(host(&own), &own) {
                    self.follow(site, &own);
                } else {
                    self.act(vec![refuse(site, Fault::Full, Timestamp::now())]);
                }
            }
        }
    }

    fn open_platform(&mut self, site: &Arc<Site>, name: &str) {
        // One that is drained is reached as it was.
        let before = self.leads.lead_of(site).cloned();
        let place = self.shelf.get(name).and_then(|seen| seen.place(name));
        // Away from a cluster is away from all its namespaces.
        let is_meant = |(meant, lead): &(Arc<Site>, Lead)| meant == site || *lead == Lead::Away;
        let meant = place.filter(is_meant).map(|(_, lead)| lead);
        match before.or(meant) {
            Some(lead) => self.seat(site, &lead),
            None => self.no_cluster(site),
        }
    }

    fn follow(&mut self, site: &Arc<Site>, own: &Arc<OwnKubeconfig>) {
        let lead = Lead::Own(Arc::clone(own));
        let acts = self.leads.seat(site, &lead, Timestamp::now());
        self.act(acts);
        if let Some(follows) = self.follows.get_mut(own) {
            follows.idle = None;
            return;
        }
        let turns = self.turns.entry(host(own).to_owned());
        let turns = turns.or_insert_with(|| Arc::new(Semaphore::new(self.parts.limits.turns)));
        let again = Arc::new(Notify::new());
        let follower = Follower {
            own: Arc::clone(own),
            identities: Arc::clone(&self.parts.identities),
            judge: Arc::clone(&self.judge),
            turns: Arc::clone(turns),
            again: Arc::clone(&again),
            limits: self.parts.limits,
            out: self.tell.clone(),
        };
        let follows = Follows {
            task: self.following.spawn(follower.run()),
            again,
            idle: None,
        };
        self.follows.insert(Arc::clone(own), follows);
    }

    pub(super) fn take_told(&mut self, told: Told) {
        let lead = Lead::Own(told.own);
        if !self.leads.is_followed(&lead) {
            return;
        }
        // A connection that stands already needs no turn.
        if let (Verdict::Leads(found), Some(turn)) = (&told.verdict, told.turn)
            && !self.leads.is_held(&found.key)
        {
            self.taken.insert(found.key.clone(), turn);
        }
        self.settle(&lead, told.verdict);
    }

    pub(super) fn close(&mut self, site: &Arc<Site>) {
        self.wanted.remove(site);
        match &site.cluster {
            ClusterName::Platform(name) => {
                let place = self.shelf.get(name).and_then(|seen| seen.place(name));
                if place.is_none_or(|(meant, _)| meant != *site) {
                    let acts = self.leads.unseat(site);
                    self.act(acts);
                }
            }
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                let acts = self.leads.unseat(site);
                self.act(acts);
                if let Some(follows) = self.follows.get_mut(&own) {
                    if self.leads.is_idle(&Lead::Own(Arc::clone(&own))) {
                        let now = Instant::now();
                        follows.idle = Some(now);
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

    fn unfollow(&mut self, own: &Arc<OwnKubeconfig>) {
        if let Some(follows) = self.follows.remove(own) {
            follows.task.abort();
        }
        let acts = self.leads.forget(&Lead::Own(Arc::clone(own)));
        self.act(acts);
        self.leave(own);
        // Who waits for a turn has its own hold of it.
        let is_last = !self.follows.keys().any(|other| host(other) == host(own));
        if is_last {
            self.turns.remove(host(own));
        }
    }

    /// Gives a place up to whoever waits for one.
    fn leave(&mut self, own: &Arc<OwnKubeconfig>) {
        let Some(next) = self.places.leave(host(own), own) else {
            return;
        };
        let sites: Vec<Arc<Site>> = self.wanted_by(&next).cloned().collect();
        for site in sites {
            self.follow(&site, &next);
        }
    }

    fn wanted_by<'a>(&'a self, own: &'a OwnKubeconfig) -> impl Iterator<Item = &'a Arc<Site>> {
        let is_of = move |site: &&Arc<Site>| matches!(&site.cluster, ClusterName::Own(other) if other == own);
        self.wanted.iter().filter(is_of)
    }
}
