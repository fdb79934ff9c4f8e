//! Which sites are reached through which kubeconfig, and which connection each kubeconfig leads to.
//!
//! Decides only: what is to be done with connections is returned as a list of [`Act`]s, in the order to do them in.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use super::secrets::{Asked, Content, Found, Verdict};
use crate::plan::remote::lead::Fault;
use crate::plan::remote::site::{ClusterName, OwnKubeconfig, Site, SiteState};
use crate::remote::ClusterKey;
use crate::remote::kubeconfig::RemoteConfig;

/// Where a kubeconfig is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Lead {
    /// In a Secret of the platform's.
    Platform {
        /// Name of the Secret.
        secret: String,
        /// Key in it; `None` for `value`, then `value.yaml`.
        key: Option<String>,
    },
    /// In a Secret of a tenant's.
    Own(Arc<OwnKubeconfig>),
    /// Nowhere: the platform operator keeps the hub away.
    Away,
}

/// What is to be done with a connection.
#[derive(Debug)]
pub enum Act {
    /// Connect, or go on with another state of the kubeconfig.
    Bind(ClusterKey, RemoteConfig),
    /// Watch a site.
    Open(ClusterKey, Arc<Site>),
    /// Let a site be that nobody wants any more.
    Close(Arc<Site>),
    /// Close a site, and say why it is not reached.
    Refuse(Arc<Site>, SiteState),
    /// End a connection.
    Unbind(ClusterKey, Fault),
}

/// What a lead came to: a connection and what it was made of, or nothing.
type Outcome = Result<(ClusterKey, Content), Fault>;

#[derive(Default)]
struct Followed {
    sites: HashSet<Arc<Site>>,
    /// `None` until it was looked at.
    outcome: Option<Outcome>,
    /// Since when nothing is reached by it.
    since: Option<Timestamp>,
}

impl Followed {
    /// One that was not looked at yet; where the hub keeps away there is nothing to look at.
    fn new(lead: &Lead) -> Self {
        let outcome = match lead {
            Lead::Platform { .. } | Lead::Own(_) => None,
            Lead::Away => Some(Err(Fault::Disconnected)),
        };
        Self {
            outcome,
            ..Self::default()
        }
    }
}

/// Leads, the sites that are reached by them, and the connections that they lead to.
#[derive(Default)]
pub struct Leads {
    followed: HashMap<Lead, Followed>,
    sites: HashMap<Arc<Site>, Lead>,
    /// Who leads to a connection; it ends with the last of them.
    holders: HashMap<ClusterKey, HashSet<Lead>>,
}

impl Leads {
    /// Lets a site be reached by a lead, whatever it was reached by before. What is known of the lead is said of the site
    /// again, also if it is not new there.
    pub fn seat(&mut self, site: &Arc<Site>, lead: &Lead, now: Timestamp) -> Vec<Act> {
        let mut acts = Vec::new();
        let before = self.sites.insert(Arc::clone(site), lead.clone());
        if let Some(before) = before.filter(|before| before != lead) {
            if let Some(followed) = self.followed.get_mut(&before) {
                followed.sites.remove(site);
            }
            self.let_go(&before, &mut acts);
        }
        let followed = self.followed.entry(lead.clone());
        let followed = followed.or_insert_with(|| Followed::new(lead));
        followed.sites.insert(Arc::clone(site));
        match &followed.outcome {
            Some(Ok((key, _))) => acts.insert(0, Act::Open(key.clone(), Arc::clone(site))),
            Some(Err(fault)) => {
                let since = followed.since.unwrap_or(now);
                acts.insert(0, refuse(site, *fault, since));
            }
            None => {}
        }
        acts
    }

    /// Lets go of a site. A lead of the platform's goes with its last site; a tenant's stays until [`Leads::forget`].
    pub fn unseat(&mut self, site: &Arc<Site>) -> Vec<Act> {
        let Some(lead) = self.sites.remove(site) else {
            return Vec::new();
        };
        let mut acts = vec![Act::Close(Arc::clone(site))];
        if let Some(followed) = self.followed.get_mut(&lead) {
            followed.sites.remove(site);
        }
        self.let_go(&lead, &mut acts);
        acts
    }

    fn let_go(&mut self, lead: &Lead, acts: &mut Vec<Act>) {
        let stays = matches!(lead, Lead::Own(_));
        if !stays && self.is_idle(lead) {
            acts.extend(self.forget(lead));
        }
    }

    /// Forgets a lead that no site is reached by.
    pub fn forget(&mut self, lead: &Lead) -> Vec<Act> {
        let followed = self.followed.remove(lead);
        match followed.and_then(|followed| followed.outcome) {
            Some(Ok((key, _))) => self.release(&key, lead, Fault::Missing).into_iter().collect(),
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Takes in what a lead came to, which is so since `now`, or since the connection was lost.
    pub fn settle(&mut self, lead: &Lead, verdict: Verdict, now: Timestamp) -> Vec<Act> {
        match verdict {
            Verdict::Leads(found) => self.leads_to(lead, *found),
            Verdict::Nowhere(fault) => self.leads_nowhere(lead, fault, now),
            Verdict::Same => Vec::new(),
        }
    }

    fn leads_to(&mut self, lead: &Lead, found: Found) -> Vec<Act> {
        let Some(followed) = self.followed.get_mut(lead) else {
            return Vec::new();
        };
        let key = found.key;
        let before = followed.outcome.replace(Ok((key.clone(), found.content)));
        followed.since = None;
        let mut acts = vec![Act::Bind(key.clone(), found.config)];
        let before = before.and_then(Result::ok).map(|(key, _)| key);
        if before.as_ref() != Some(&key) {
            let sites = followed.sites.iter();
            acts.extend(sites.map(|site| Act::Open(key.clone(), Arc::clone(site))));
        }
        self.holders.entry(key.clone()).or_default().insert(lead.clone());
        // After its sites have moved.
        if let Some(before) = before.filter(|before| *before != key) {
            acts.extend(self.release(&before, lead, Fault::Missing));
        }
        acts
    }

    fn leads_nowhere(&mut self, lead: &Lead, fault: Fault, now: Timestamp) -> Vec<Act> {
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
        let mut acts: Vec<Act> = sites.map(|site| refuse(site, fault, since)).collect();
        if let Some(Ok((key, _))) = before {
            acts.extend(self.release(&key, lead, fault));
        }
        acts
    }

    fn release(&mut self, key: &ClusterKey, lead: &Lead, fault: Fault) -> Option<Act> {
        let holders = self.holders.get_mut(key)?;
        holders.remove(lead);
        let is_last = holders.is_empty();
        is_last.then(|| {
            self.holders.remove(key);
            Act::Unbind(key.clone(), fault)
        })
    }

    /// Whether a connection is led to.
    pub fn is_held(&self, key: &ClusterKey) -> bool {
        self.holders.contains_key(key)
    }

    /// Whether a lead is followed.
    pub fn is_followed(&self, lead: &Lead) -> bool {
        self.followed.contains_key(lead)
    }

    /// Whether it is known what a lead comes to.
    pub fn is_settled(&self, lead: &Lead) -> bool {
        self.followed
            .get(lead)
            .is_some_and(|followed| followed.outcome.is_some())
    }

    /// Whether no site is reached by a lead.
    pub fn is_idle(&self, lead: &Lead) -> bool {
        self.followed
            .get(lead)
            .is_none_or(|followed| followed.sites.is_empty())
    }

    /// By what a site is reached.
    pub fn lead_of(&self, site: &Site) -> Option<&Lead> {
        self.sites.get(site)
    }

    /// The connection that a site is reached by, or why there is none; `None` until that is known.
    pub fn way_to(&self, site: &Site) -> Option<Result<&ClusterKey, Fault>> {
        let followed = self.followed.get(self.sites.get(site)?)?;
        let outcome = followed.outcome.as_ref()?;
        Some(outcome.as_ref().map(|(key, _)| key).map_err(|fault| *fault))
    }

    /// The leads to a connection.
    pub fn leads_of(&self, key: &ClusterKey) -> impl Iterator<Item = &Lead> {
        self.holders.get(key).into_iter().flatten()
    }

    /// The leads into a Secret of the platform's.
    pub fn leads_into(&self, secret: &str) -> Vec<Lead> {
        let is_in = |lead: &&Lead| matches!(lead, Lead::Platform { secret: name, .. } if name == secret);
        self.followed.keys().filter(is_in).cloned().collect()
    }

    /// What is asked for of a lead: nothing new where it is known, unless it `is_told_anyway`.
    pub fn asked(&self, lead: &Lead, is_told_anyway: bool) -> Asked {
        let known = self
            .followed
            .get(lead)
            .and_then(|followed| followed.outcome.clone());
        Asked {
            key: match lead {
                Lead::Platform { key, .. } => key.clone(),
                Lead::Own(own) => own.key.clone(),
                Lead::Away => None,
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
    pub fn key_of(&self, lead: &Lead) -> Option<&ClusterKey> {
        let outcome = self.followed.get(lead)?.outcome.as_ref()?;
        outcome.as_ref().ok().map(|(key, _)| key)
    }

    /// Names of the platform's clusters that are reached by a lead.
    pub fn names_by(&self, lead: &Lead) -> BTreeSet<String> {
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
    pub fn names_at(&self, key: &ClusterKey) -> BTreeSet<String> {
        self.leads_of(key).flat_map(|lead| self.names_by(lead)).collect()
    }
}

/// What is said of a site that is not reached.
pub fn refuse(site: &Arc<Site>, fault: Fault, since: Timestamp) -> Act {
    let state = match (&site.cluster, fault) {
        (ClusterName::Platform(_), Fault::Disconnected) => SiteState::Disconnected,
        (ClusterName::Platform(_), fault) => SiteState::Down {
            since,
            reason: fault.reason(),
        },
        (ClusterName::Own(own), fault) => SiteState::Refused {
            since,
            refusal: own.refusal(fault),
        },
    };
    Act::Refuse(Arc::clone(site), state)
}

#[cfg(test)]
#[path = "leads/tests.rs"]
pub mod tests;
