//! The kubeconfig of each site, and the connection of each kubeconfig.
//!
//! It only decides, and returns a list of [`BindingAction`]s for the caller to apply in their order.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::kubeconfig_validator::{KubeconfigHash, KubeconfigQuery, KubeconfigVerdict, ValidKubeconfig};
use crate::plan::remote::kubeconfig_fault::KubeconfigFault;
use crate::plan::remote::site::{ClusterName, Site, SiteState, TenantKubeconfig};
use crate::remote::ConnectionKey;
use crate::remote::kubeconfig::RemoteConfig;

/// The source of a kubeconfig.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KubeconfigRef {
    /// A Secret of the platform.
    Platform {
        /// Name of the Secret.
        secret: String,
        /// Key in it; `None` for `value`, then `value.yaml`.
        key: Option<String>,
    },
    /// A Secret of a tenant.
    Own(Arc<TenantKubeconfig>),
    /// None: the platform operator has disconnected the cluster.
    Away,
}

/// An action for the connection registry.
#[derive(Debug)]
pub enum BindingAction {
    /// Connect, or apply another version of the kubeconfig.
    ApplyKubeconfig(ConnectionKey, RemoteConfig),
    /// Watch a site.
    Open(ConnectionKey, Arc<Site>),
    /// Close a site that is no longer requested.
    Close(Arc<Site>),
    /// Close a site, and announce why it cannot be reached.
    Refuse(Arc<Site>, SiteState),
    /// End a connection.
    EndConnection(ConnectionKey, KubeconfigFault),
}

/// The result of a kubeconfig: a connection with the hash of its content, or a fault.
type BindingResult = Result<(ConnectionKey, KubeconfigHash), KubeconfigFault>;

#[derive(Default)]
struct BindingState {
    sites: HashSet<Arc<Site>>,
    /// `None` until the kubeconfig was read.
    outcome: Option<BindingResult>,
}

impl BindingState {
    /// The state before the first read; a disconnected cluster has no kubeconfig to read.
    fn new(kubeconfig: &KubeconfigRef) -> Self {
        let outcome = match kubeconfig {
            KubeconfigRef::Platform { .. } | KubeconfigRef::Own(_) => None,
            KubeconfigRef::Away => Some(Err(KubeconfigFault::Disconnected)),
        };
        Self {
            outcome,
            ..Self::default()
        }
    }
}

/// Kubeconfigs, their sites, and their connections.
#[derive(Default)]
pub struct ConnectionBindings {
    states: HashMap<KubeconfigRef, BindingState>,
    sites: HashMap<Arc<Site>, KubeconfigRef>,
    /// The kubeconfigs of each connection; it ends with the last of them.
    holders: HashMap<ConnectionKey, HashSet<KubeconfigRef>>,
}

impl ConnectionBindings {
    /// Binds a site to a kubeconfig instead of its former one. The known result of the kubeconfig is applied to the site again,
    /// even if the binding is not new.
    pub fn bind(&mut self, site: &Arc<Site>, kubeconfig: &KubeconfigRef) -> Vec<BindingAction> {
        let mut actions = Vec::new();
        let before = self.sites.insert(Arc::clone(site), kubeconfig.clone());
        if let Some(before) = before.filter(|before| before != kubeconfig) {
            if let Some(state) = self.states.get_mut(&before) {
                state.sites.remove(site);
            }
            self.drop_unused(&before, &mut actions);
        }
        let state = self.states.entry(kubeconfig.clone());
        let state = state.or_insert_with(|| BindingState::new(kubeconfig));
        state.sites.insert(Arc::clone(site));
        match &state.outcome {
            Some(Ok((key, _))) => actions.insert(0, BindingAction::Open(key.clone(), Arc::clone(site))),
            Some(Err(fault)) => actions.insert(0, refuse(site, *fault)),
            None => {}
        }
        actions
    }

    /// Unbinds a site. A platform's kubeconfig goes with its last site; a tenant's stays until [`ConnectionBindings::forget`].
    pub fn unbind(&mut self, site: &Arc<Site>) -> Vec<BindingAction> {
        let Some(kubeconfig) = self.sites.remove(site) else {
            return Vec::new();
        };
        let mut actions = vec![BindingAction::Close(Arc::clone(site))];
        if let Some(state) = self.states.get_mut(&kubeconfig) {
            state.sites.remove(site);
        }
        self.drop_unused(&kubeconfig, &mut actions);
        actions
    }

    fn drop_unused(&mut self, kubeconfig: &KubeconfigRef, actions: &mut Vec<BindingAction>) {
        let stays = matches!(kubeconfig, KubeconfigRef::Own(_));
        if !stays && self.is_idle(kubeconfig) {
            actions.extend(self.forget(kubeconfig));
        }
    }

    /// Forgets a kubeconfig without sites.
    pub fn forget(&mut self, kubeconfig: &KubeconfigRef) -> Vec<BindingAction> {
        let state = self.states.remove(kubeconfig);
        match state.and_then(|state| state.outcome) {
            Some(Ok((key, _))) => self
                .release(&key, kubeconfig, KubeconfigFault::Missing)
                .into_iter()
                .collect(),
            Some(Err(_)) | None => Vec::new(),
        }
    }

    /// Applies the verdict on a kubeconfig.
    pub fn apply_verdict(
        &mut self,
        kubeconfig: &KubeconfigRef,
        verdict: KubeconfigVerdict,
    ) -> Vec<BindingAction> {
        match verdict {
            KubeconfigVerdict::Valid(found) => self.apply_valid(kubeconfig, *found),
            KubeconfigVerdict::Invalid(fault) => self.apply_fault(kubeconfig, fault),
            KubeconfigVerdict::Unchanged => Vec::new(),
        }
    }

    fn apply_valid(&mut self, kubeconfig: &KubeconfigRef, found: ValidKubeconfig) -> Vec<BindingAction> {
        let Some(state) = self.states.get_mut(kubeconfig) else {
            return Vec::new();
        };
        let key = found.key;
        let before = state.outcome.replace(Ok((key.clone(), found.content)));
        let mut actions = vec![BindingAction::ApplyKubeconfig(key.clone(), found.config)];
        let before = before.and_then(Result::ok).map(|(key, _)| key);
        if before.as_ref() != Some(&key) {
            let sites = state.sites.iter();
            actions.extend(sites.map(|site| BindingAction::Open(key.clone(), Arc::clone(site))));
        }
        self.holders
            .entry(key.clone())
            .or_default()
            .insert(kubeconfig.clone());
        // After its sites have moved.
        if let Some(before) = before.filter(|before| *before != key) {
            actions.extend(self.release(&before, kubeconfig, KubeconfigFault::Missing));
        }
        actions
    }

    fn apply_fault(&mut self, kubeconfig: &KubeconfigRef, fault: KubeconfigFault) -> Vec<BindingAction> {
        let Some(state) = self.states.get_mut(kubeconfig) else {
            return Vec::new();
        };
        let before = state.outcome.replace(Err(fault));
        if before == Some(Err(fault)) {
            return Vec::new();
        }
        // The refusal precedes the end of the connection, whose reason is less specific.
        let sites = state.sites.iter();
        let mut actions: Vec<BindingAction> = sites.map(|site| refuse(site, fault)).collect();
        if let Some(Ok((key, _))) = before {
            actions.extend(self.release(&key, kubeconfig, fault));
        }
        actions
    }

    fn release(
        &mut self,
        key: &ConnectionKey,
        kubeconfig: &KubeconfigRef,
        fault: KubeconfigFault,
    ) -> Option<BindingAction> {
        let holders = self.holders.get_mut(key)?;
        holders.remove(kubeconfig);
        let is_last = holders.is_empty();
        is_last.then(|| {
            self.holders.remove(key);
            BindingAction::EndConnection(key.clone(), fault)
        })
    }

    /// Whether a connection has a kubeconfig.
    pub fn is_held(&self, key: &ConnectionKey) -> bool {
        self.holders.contains_key(key)
    }

    /// Whether a kubeconfig is known.
    pub fn is_known(&self, kubeconfig: &KubeconfigRef) -> bool {
        self.states.contains_key(kubeconfig)
    }

    /// The result of a kubeconfig; `None` until it was read.
    fn outcome_of(&self, kubeconfig: &KubeconfigRef) -> Option<&BindingResult> {
        self.states.get(kubeconfig)?.outcome.as_ref()
    }

    /// Whether a kubeconfig has a result.
    pub fn is_settled(&self, kubeconfig: &KubeconfigRef) -> bool {
        self.outcome_of(kubeconfig).is_some()
    }

    /// Whether a kubeconfig has no site.
    pub fn is_idle(&self, kubeconfig: &KubeconfigRef) -> bool {
        self.states
            .get(kubeconfig)
            .is_none_or(|state| state.sites.is_empty())
    }

    /// The kubeconfig of a site.
    pub fn kubeconfig_of(&self, site: &Site) -> Option<&KubeconfigRef> {
        self.sites.get(site)
    }

    /// The connection of a site, or why there is none; `None` until that is known.
    pub fn connection_of(&self, site: &Site) -> Option<Result<&ConnectionKey, KubeconfigFault>> {
        let outcome = self.outcome_of(self.sites.get(site)?)?;
        Some(outcome.as_ref().map(|(key, _)| key).map_err(|fault| *fault))
    }

    /// The kubeconfigs of a connection.
    pub fn kubeconfigs_of(&self, key: &ConnectionKey) -> impl Iterator<Item = &KubeconfigRef> {
        self.holders.get(key).into_iter().flatten()
    }

    /// The kubeconfigs in a Secret of the platform.
    pub fn kubeconfigs_in(&self, secret: &str) -> Vec<KubeconfigRef> {
        let is_in = |source: &&KubeconfigRef| matches!(source, KubeconfigRef::Platform { secret: name, .. } if name == secret);
        self.states.keys().filter(is_in).cloned().collect()
    }

    /// The query for a kubeconfig; its known content gives no new verdict, unless it `must_report`.
    pub fn query(&self, kubeconfig: &KubeconfigRef, must_report: bool) -> KubeconfigQuery {
        let known = self.outcome_of(kubeconfig).cloned();
        KubeconfigQuery {
            key: match kubeconfig {
                KubeconfigRef::Platform { key, .. } => key.clone(),
                KubeconfigRef::Own(own) => own.key.clone(),
                KubeconfigRef::Away => None,
            },
            known: known.and_then(Result::ok).filter(|_| !must_report),
        }
    }

    /// Sites of the `RenderCluster` of this name.
    pub fn sites_of(&self, name: &str) -> Vec<Arc<Site>> {
        let is_of =
            |site: &&Arc<Site>| matches!(&site.cluster, ClusterName::Platform(other) if other == name);
        self.sites.keys().filter(is_of).cloned().collect()
    }

    /// The connection of a kubeconfig.
    pub fn key_of(&self, kubeconfig: &KubeconfigRef) -> Option<&ConnectionKey> {
        self.outcome_of(kubeconfig)?.as_ref().ok().map(|(key, _)| key)
    }

    /// Names of the `RenderClusters` of a kubeconfig.
    pub fn names_by(&self, kubeconfig: &KubeconfigRef) -> BTreeSet<String> {
        let sites = self
            .states
            .get(kubeconfig)
            .into_iter()
            .flat_map(|state| &state.sites);
        let names = sites.filter_map(|site| match &site.cluster {
            ClusterName::Platform(name) => Some(name.clone()),
            ClusterName::Own(_) => None,
        });
        names.collect()
    }

    /// Names of the `RenderClusters` of a connection.
    pub fn names_at(&self, key: &ConnectionKey) -> BTreeSet<String> {
        self.kubeconfigs_of(key)
            .flat_map(|kubeconfig| self.names_by(kubeconfig))
            .collect()
    }
}

/// The action that refuses a site.
pub fn refuse(site: &Arc<Site>, fault: KubeconfigFault) -> BindingAction {
    let state = match (&site.cluster, fault) {
        (ClusterName::Platform(_), KubeconfigFault::Disconnected) => SiteState::Disconnected,
        (ClusterName::Platform(_), fault) => SiteState::down(fault.reason()),
        (ClusterName::Own(own), fault) => SiteState::Refused(own.refusal(fault)),
    };
    BindingAction::Refuse(Arc::clone(site), state)
}

#[cfg(test)]
#[path = "connection_bindings/tests.rs"]
pub mod tests;
