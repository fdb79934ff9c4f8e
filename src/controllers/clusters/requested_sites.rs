//! The sites that the task controller has requested.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::plan::remote::site::{ClusterName, Site, TenantKubeconfig};

/// Sites, and those of each tenant's kubeconfig: tasks can name kubeconfigs without end, so none is looked for among all sites.
#[derive(Debug, Default)]
pub struct RequestedSites {
    all: HashSet<Arc<Site>>,
    /// No kubeconfig is without a site.
    own: HashMap<TenantKubeconfig, HashSet<Arc<Site>>>,
}

impl RequestedSites {
    /// Adds a site.
    pub fn insert(&mut self, site: &Arc<Site>) {
        self.all.insert(Arc::clone(site));
        if let ClusterName::Own(own) = &site.cluster {
            let sites = self.own.entry(own.clone()).or_default();
            sites.insert(Arc::clone(site));
        }
    }

    /// Removes a site.
    pub fn remove(&mut self, site: &Site) {
        self.all.remove(site);
        if let ClusterName::Own(own) = &site.cluster
            && let Some(sites) = self.own.get_mut(own)
        {
            sites.remove(site);
            if sites.is_empty() {
                self.own.remove(own);
            }
        }
    }

    /// Whether a site is requested.
    pub fn contains(&self, site: &Site) -> bool {
        self.all.contains(site)
    }

    /// Whether a site of a kubeconfig is requested.
    pub fn has_sites_of(&self, own: &TenantKubeconfig) -> bool {
        self.own.contains_key(own)
    }

    /// The sites of a kubeconfig.
    pub fn sites_of(&self, own: &TenantKubeconfig) -> Vec<Arc<Site>> {
        self.own.get(own).into_iter().flatten().cloned().collect()
    }
}
