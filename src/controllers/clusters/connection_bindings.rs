//! Which sites are reached through which kubeconfig, and which connection each kubeconfig leads to.
//!
//! Decides only: what is to be done with connections is returned as a list of [`BindingAction`]s, in the order to do them in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::kubeconfig_validator::{KubeconfigHash, KubeconfigQuery, KubeconfigVerdict, ValidKubeconfig};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::{ClusterName, Site, SiteState, TenantKubeconfig};
use crate::remote::ConnectionKey;
use crate::remote::kubeconfig::RemoteConfig;

/// Where a kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KubeconfigRef {
    /// In a Secret of the platform's.
    Platform {
        /// Name of the Secret.
        secret: String,
        /// Key in it; `None` for `value`, then `value.yaml`.
        key: Option<String>,
    },
    /// In a Secret of a tenant's.
    Own(Arc<TenantKubeconfig>),
    /// Nowhere: the platform operator keeps the hub away.
    Away,
}

/// What is to be done with a connection.
#[derive(Debug)]
pub enum BindingAction {
    /// Connect, or go on with another state of the kubeconfig.
    Bind(ConnectionKey, RemoteConfig),
    /// Watch a site.
    Open(ConnectionKey, Arc<Site>),
    /// Let a site be that nobody wants any more.
    Close(Arc<Site>),
    /// Close a site, and say why it is not reached.
    Refuse(Arc<Site>, SiteState),
    /// End a connection.
    Unbind(ConnectionKey, KubeconfigFault),
}

/// What a lead came to: a connection and what it was made of, or nothing.
type BindingResult = Result<(ConnectionKey, KubeconfigHash), KubeconfigFault>;

#[derive(Default)]
struct BindingState {
    sites: HashSet<Arc<Site>>,
    /// `None` until it was looked at.
    outcome: Option<BindingResult>,
    /// Since when nothing is reached by it.
    since: Option<Timestamp>,
}

impl BindingState {
    /// One that was not looked at yet; where the hub keeps away there is nothing to look at.
    fn new(lead: &KubeconfigRef) -> Self {
        let outcome = match lead {
            KubeconfigRef::Platform { .. } | KubeconfigRef::Own(_) => None,
            KubeconfigRef::Away => Some(Err(KubeconfigFault::Disconnected)),
        };
        Self {
            outcome,
            ..Self::default()
        }
    }
}

/// Leads, the sites that are reached by them, and the connections that they lead to.
#[derive(Default)]
pub struct ConnectionBindings {
    followed: HashMap<KubeconfigRef, BindingState>,
    sites: HashMap<Arc<Site>, KubeconfigRef>,
    /// Who leads to a connection; it ends with the last of them.
    holders: HashMap<ConnectionKey, HashSet<KubeconfigRef>>,
}

impl ConnectionBindings {
    /// Lets a site be reached by a lead, whatever it was reached by before. What is known of the lead is said of the site
    /// again, also if it is not new there.
    pub fn bind(&mut self, site: &Arc<Site>, lead: &KubeconfigRef, now: Timestamp) -> Vec<BindingAction> {
        let mut acts = Vec::new();
        let before = self.sites.insert(Arc::clone(site), lead.clone());
        if let Some(before) = before.filter(|before| before != lead) {
            if let Some(followed) = self.followed.get_mut(&before) {
                followed.sites.remove(site);
            }
            self.let_go(&before, &mut acts);
        }
        let followed = self.followed.entry(lead.clone());
        let followed = followed.or_insert_with(|| BindingState::new(lead));
        followed.sites.insert(Arc::clone(site));
        match &followed.outcome {
            Some(Ok((key, _))) => acts.insert(0, BindingAction::Open(key.clone(), Arc::clone(site))),
            Some(Err(fault)) => {
                let since = followed.since.unwrap_or(now);
                acts.insert(0, refuse(site, *fault, since));
            }
            None => {}
        }
        acts
    }

    /// Lets go of a site. A lead of the platform's goes with its last site; a tenant's stays until [`ConnectionBindings::forget`].
    pub fn unbind(&mut self, site: &Arc<Site>) -> Vec<BindingAction> {
        let Some(lead) = self.sites.remove(site) else {
            return Vec::new();
        };
        let mut acts = vec![BindingAction::Close(Arc::clone(site))];
        if let Some(followed) = self.followed.get_mut(&lead) {
            followed.sites.remove(site);
        }
        self.let_go(&lead, &mut acts);
        acts
    }

    fn let_go(&mut self, lead: &KubeconfigRef, acts: &mut Vec<BindingAction>) {
        let stays = matches!(lead, KubeconfigRef::Own(_));
        if !stays && self.is_idle(lead) {
            acts.extend(self.forget(lead));
        }
    }

    /// Forgets a lead that no site is reached by.
    pub fn forget(&mut self, lead: &KubeconfigRef) -> Vec<BindingAction> {
        let followed = self.followed.remove(lead);
        match followed.and_then(|followed| followed.outcome) {
            Some(Ok((key, _))) => self
                .release(&key, lead, KubeconfigFault::Missing)
                .into_iter()
                .collect(),
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Takes in what a lead came to, which is so since `now`, or since the connection was lost.
    pub fn resolve(
        &mut self,
        lead: &KubeconfigRef,
        verdict: KubeconfigVerdict,
        now: Timestamp,
    ) -> Vec<BindingAction> {
        match verdict {
            KubeconfigVerdict::Leads(found) => self.leads_to(lead, *found),
            KubeconfigVerdict::Nowhere(fault) => self.leads_nowhere(lead, fault, now),
            KubeconfigVerdict::Same => Vec::new(),
        }
    }

    fn leads_to(&mut self, lead: &KubeconfigRef, found: ValidKubeconfig) -> Vec<BindingAction> {
        let Some(followed) = self.followed.get_mut(lead) else {
            return Vec::new();
        };
        let key = found.key;
        let before = followed.outcome.replace(Ok((key.clone(), found.content)));
        followed.since = None;
        let mut acts = vec![BindingAction::Bind(key.clone(), found.config)];
        let before = before.and_then(Result::ok).map(|(key, _)| key);
        if before.as_ref() != Some(&key) {
            let sites = followed.sites.iter();
            acts.extend(sites.map(|site| BindingAction::Open(key.clone(), Arc::clone(site))));
        }
        self.holders.entry(key.clone()).or_default().insert(lead.clone());
        // After its sites have moved.
        if let Some(before) = before.filter(|before| *before != key) {
            acts.extend(self.release(&before, lead, KubeconfigFault::Missing));
        }
        acts
    }

    fn leads_nowhere(
        &mut self,
        lead: &KubeconfigRef,
        fault: KubeconfigFault,
        now: Timestamp,
    ) -> Vec<BindingAction> {
        let Some(followed) = self.followed.get_mut(lead) else {
            return Vec::new();
        };
        let before = followed.outcome.replace(Err(fault));
        if before == Some(Err(fault)) {
            return Vec::new();
        }
        let since = *followed.since.get_or_insert(now);
        // Told before the connection ends, whose own words are less.
        let sites = followed.sites.iter();
        let mut acts: Vec<BindingAction> = sites.map(|site| refuse(site, fault, since)).collect();
        if let Some(Ok((key, _))) = before {
            acts.extend(self.release(&key, lead, fault));
        }
        acts
    }

    fn release(
        &mut self,
        key: &ConnectionKey,
        lead: &KubeconfigRef,
        fault: KubeconfigFault,
    ) -> Option<BindingAction> {
        let holders = self.holders.get_mut(key)?;
        holders.remove(lead);
        let is_last = holders.is_empty();
        is_last.then(|| {
            self.holders.remove(key);
            BindingAction::Unbind(key.clone(), fault)
        })
    }

    /// Whether a connection is led to.
    pub fn is_held(&self, key: &ConnectionKey) -> bool {
        self.holders.contains_key(key)
    }

    /// Whether a lead is followed.
    pub fn is_followed(&self, lead: &KubeconfigRef) -> bool {
        self.followed.contains_key(lead)
    }

    /// Whether it is known what a lead comes to.
    pub fn is_settled(&self, lead: &KubeconfigRef) -> bool {
        self.followed
            .get(lead)
            .is_some_and(|followed| followed.outcome.is_some())
    }

    /// Whether no site is reached by a lead.
    pub fn is_idle(&self, lead: &KubeconfigRef) -> bool {
        self.followed
            .get(lead)
            .is_none_or(|followed| followed.sites.is_empty())
    }

    /// By what a site is reached.
    pub fn kubeconfig_of(&self, site: &Site) -> Option<&KubeconfigRef> {
        self.sites.get(site)
    }

    /// The connection that a site is reached by, or why there is none; `None` until that is known.
    pub fn way_to(&self, site: &Site) -> Option<Result<&ConnectionKey, KubeconfigFault>> {
        let followed = self.followed.get(self.sites.get(site)?)?;
        let outcome = followed.outcome.as_ref()?;
        Some(outcome.as_ref().map(|(key, _)| key).map_err(|fault| *fault))
    }

    /// The leads to a connection.
    pub fn kubeconfigs_of(&self, key: &ConnectionKey) -> impl Iterator<Item = &KubeconfigRef> {
        self.holders.get(key).into_iter().flatten()
    }

    /// The leads into a Secret of the platform's.
    pub fn leads_into(&self, secret: &str) -> Vec<KubeconfigRef> {
        let is_in = |lead: &&KubeconfigRef| matches!(lead, KubeconfigRef::Platform { secret: name, .. } if name == secret);
        self.followed.keys().filter(is_in).cloned().collect()
    }

    /// What is asked for of a lead: nothing new where it is known, unless it `is_told_anyway`.
    pub fn query(&self, lead: &KubeconfigRef, is_told_anyway: bool) -> KubeconfigQuery {
        let known = self
            .followed
            .get(lead)
            .and_then(|followed| followed.outcome.clone());
        KubeconfigQuery {
            key: match lead {
                KubeconfigRef::Platform { key, .. } => key.clone(),
                KubeconfigRef::Own(own) => own.key.clone(),
                KubeconfigRef::Away => None,
            },
            known: known.and_then(Result::ok).filter(|_| !is_told_anyway),
        }
    }

    /// Sites of the platform's cluster of this name.
    pub fn sites_of(&self, name: &str) -> Vec<Arc<Site>> {
        let is_of =
            |site: &&Arc<Site>| matches!(&site.cluster, ClusterName::Platform(other) if other == name);
        self.sites.keys().filter(is_of).cloned().collect()
    }

    /// The connection that a lead leads to.
    pub fn key_of(&self, lead: &KubeconfigRef) -> Option<&ConnectionKey> {
        let outcome = self.followed.get(lead)?.outcome.as_ref()?;
        outcome.as_ref().ok().map(|(key, _)| key)
    }

    /// Names of the platform's clusters that are reached by a lead.
    pub fn names_by(&self, lead: &KubeconfigRef) -> BTreeSet<String> {
        let sites = self
            .followed
            .get(lead)
            .into_iter()
            .flat_map(|followed| &followed.sites);
        let names = sites.filter_map(|site| match &site.cluster {
            ClusterName::Platform(name) => Some(name.clone()),
            ClusterName::Own(_) => None,
        });
        names.collect()
    }

    /// Names of the platform's clusters that are reached by a connection.
    pub fn names_at(&self, key: &ConnectionKey) -> BTreeSet<String> {
        self.kubeconfigs_of(key)
            .flat_map(|lead| self.names_by(lead))
            .collect()
    }
}

/// What is said of a site that is not reached.
pub fn refuse(site: &Arc<Site>, fault: KubeconfigFault, since: Timestamp) -> BindingAction {
    let state = match (&site.cluster, fault) {
        (ClusterName::Platform(_), KubeconfigFault::Disconnected) => SiteState::Disconnected,
        (ClusterName::Platform(_), fault) => SiteState::Down {
            since,
            reason: fault.reason(),
        },
        (ClusterName::Own(own), fault) => SiteState::Refused {
            since,
            refusal: own.refusal(fault),
        },
    };
    BindingAction::Refuse(Arc::clone(site), state)
}

#[cfg(test)]
#[path = "connection_bindings/tests.rs"]
pub mod tests;
