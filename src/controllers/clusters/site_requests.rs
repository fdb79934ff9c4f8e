//! Requests for sites of the platform's clusters and of tenants' own clusters; the quota limits the latter.

use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{Notify, Semaphore};

use super::connection_bindings::{KubeconfigRef, refuse};
use super::kubeconfig_validator::KubeconfigVerdict;
use super::kubeconfig_watcher::{KubeconfigReport, KubeconfigWatcher};
use super::{ClusterController, SiteRequest, WatcherHandle};
use crate::plan::remote::cluster_quota::QuotaHandover;
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::{ClusterName, Site, TenantKubeconfig};

impl ClusterController {
    pub(super) fn handle_site_request(&mut self, request: SiteRequest) {
        match request {
            SiteRequest::Open(site) => self.open(&site),
            SiteRequest::Close(site) => self.close(&site),
        }
    }

    /// Refuses a site of the platform because its `RenderCluster` does not exist.
    pub(super) fn refuse_without_cluster(&mut self, site: &Arc<Site>) {
        self.apply_actions(vec![refuse(site, KubeconfigFault::NoCluster)]);
    }

    pub(super) fn open(&mut self, site: &Arc<Site>) {
        self.requested.insert(site);
        match &site.cluster {
            ClusterName::Platform(name) => self.open_platform(site, name),
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                if self.quota.request(own.tenant(), &own, Instant::now()) {
                    self.start_watcher(site, &own);
                    return;
                }
                self.hand_over_places();
                if !self.quota.has_place(&own) {
                    self.apply_actions(vec![refuse(site, KubeconfigFault::Full)]);
                }
            }
        }
    }

    fn open_platform(&mut self, site: &Arc<Site>, name: &str) {
        // A site that only finishes its tasks keeps its kubeconfig.
        let before = self.bindings.kubeconfig_of(site).cloned();
        let target = self.store.site_and_kubeconfig(name);
        // A disconnected cluster is disconnected for all its namespaces.
        let is_meant = |(meant, kubeconfig): &(Arc<Site>, KubeconfigRef)| {
            meant == site || *kubeconfig == KubeconfigRef::Away
        };
        let meant = target.filter(is_meant).map(|(_, kubeconfig)| kubeconfig);
        match before.or(meant) {
            Some(kubeconfig) => self.bind_site(site, &kubeconfig),
            None => self.refuse_without_cluster(site),
        }
    }

    fn start_watcher(&mut self, site: &Arc<Site>, own: &Arc<TenantKubeconfig>) {
        let kubeconfig = KubeconfigRef::Own(Arc::clone(own));
        let actions = self.bindings.bind(site, &kubeconfig);
        self.apply_actions(actions);
        if let Some(handle) = self.watchers.get_mut(own) {
            handle.idle = None;
            let is_refused = self
                .bindings
                .connection_of(site)
                .is_some_and(|result| result.is_err());
            self.quota.set_spare(own, is_refused, Instant::now());
            return;
        }
        let permits = self.connect_permits.entry(own.tenant().to_owned());
        let permits = permits.or_insert_with(|| Arc::new(Semaphore::new(self.parts.limits.connecting)));
        let reread = Arc::new(Notify::new());
        let task = KubeconfigWatcher {
            kubeconfig: Arc::clone(own),
            sessions: Arc::clone(&self.parts.sessions),
            validator: Arc::clone(&self.validator),
            connect_permits: Arc::clone(permits),
            reread: Arc::clone(&reread),
            limits: self.parts.limits,
            out: self.report_sender.clone(),
        };
        self.watcher_tasks.spawn(Arc::clone(own), task.run());
        let handle = WatcherHandle { reread, idle: None };
        self.watchers.insert(Arc::clone(own), handle);
    }

    pub(super) fn handle_kubeconfig_report(&mut self, report: KubeconfigReport) {
        let kubeconfig = KubeconfigRef::Own(report.kubeconfig);
        if !self.bindings.is_known(&kubeconfig) {
            return;
        }
        // An existing connection needs no connect permit.
        if let (KubeconfigVerdict::Valid(found), Some(permit)) = (&report.verdict, report.connect_permit)
            && !self.bindings.is_held(&found.key)
        {
            self.held_permits.insert(found.key.clone(), permit);
        }
        self.mark_place(&kubeconfig, &report.verdict);
        self.apply_verdict(&kubeconfig, report.verdict);
    }

    /// Marks the place of a kubeconfig as spare if the kubeconfig is invalid or unused.
    fn mark_place(&mut self, kubeconfig: &KubeconfigRef, verdict: &KubeconfigVerdict) {
        let KubeconfigRef::Own(own) = kubeconfig else {
            return;
        };
        let is_refused = match verdict {
            KubeconfigVerdict::Unchanged => return,
            KubeconfigVerdict::Valid(_) => false,
            KubeconfigVerdict::Invalid(_) => true,
        };
        let is_idle = self.watchers.get(own).is_some_and(|handle| handle.idle.is_some());
        self.quota.set_spare(own, is_refused || is_idle, Instant::now());
    }

    /// Hands spare places over to waiting kubeconfigs.
    pub(super) fn hand_over_places(&mut self) {
        while let Some(QuotaHandover { gone, next }) = self.quota.hand_over(Instant::now()) {
            self.queue_again(&gone);
            self.use_place(&next);
        }
    }

    /// Stops a kubeconfig whose place another has now; if tasks still use it, it queues for a place, and their conditions keep
    /// its refusal.
    fn queue_again(&mut self, own: &Arc<TenantKubeconfig>) {
        self.stop_watcher(own);
        if self.requested.has_sites_of(own) {
            let again = Instant::now() + self.parts.limits.read_retry.cap;
            self.quota.enqueue(own.tenant(), own, again);
        }
    }

    pub(super) fn close(&mut self, site: &Arc<Site>) {
        self.requested.remove(site);
        match &site.cluster {
            ClusterName::Platform(name) => {
                let target = self.store.site_and_kubeconfig(name);
                if target.is_none_or(|(meant, _)| meant != *site) {
                    let actions = self.bindings.unbind(site);
                    self.apply_actions(actions);
                }
            }
            ClusterName::Own(own) => {
                let own = Arc::new(own.clone());
                let actions = self.bindings.unbind(site);
                self.apply_actions(actions);
                if let Some(handle) = self.watchers.get_mut(&own) {
                    if self.bindings.is_idle(&KubeconfigRef::Own(Arc::clone(&own))) {
                        let now = Instant::now();
                        handle.idle = Some(now);
                        self.quota.set_spare(&own, true, now);
                        self.idle.push_back((now, own));
                    }
                } else if !self.requested.has_sites_of(&own) {
                    self.release_place(&own);
                }
            }
        }
    }

    /// Removes tenants' kubeconfigs that no task has used for the idle time.
    pub(super) fn remove_idle_kubeconfigs(&mut self) {
        while let Some((since, _)) = self.idle.front() {
            if since.elapsed() < self.parts.limits.idle {
                return;
            }
            let Some((since, own)) = self.idle.pop_front() else {
                return;
            };
            // It may be in use again, or idle since a later time.
            let is_over = self.watchers.get(&own).is_some_and(|f| f.idle == Some(since));
            if is_over {
                self.remove_kubeconfig(&own);
            }
        }
    }

    fn remove_kubeconfig(&mut self, own: &Arc<TenantKubeconfig>) {
        self.stop_watcher(own);
        self.release_place(own);
    }

    fn stop_watcher(&mut self, own: &Arc<TenantKubeconfig>) {
        self.watchers.remove(own);
        self.watcher_tasks.abort(own);
        let actions = self.bindings.forget(&KubeconfigRef::Own(Arc::clone(own)));
        self.apply_actions(actions);
        // A watcher that waits for a permit holds its own reference.
        let is_last = !self.watchers.keys().any(|other| other.tenant() == own.tenant());
        if is_last {
            self.connect_permits.remove(own.tenant());
        }
    }

    /// Releases a place, and hands it to the next waiting kubeconfig.
    fn release_place(&mut self, own: &Arc<TenantKubeconfig>) {
        if let Some(next) = self.quota.release(own) {
            self.use_place(&next);
        }
    }

    fn use_place(&mut self, own: &Arc<TenantKubeconfig>) {
        for site in self.requested.sites_of(own) {
            self.start_watcher(&site, own);
        }
    }
}
