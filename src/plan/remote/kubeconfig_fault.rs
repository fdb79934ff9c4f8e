//! Why a kubeconfig cannot be used, with messages for the platform operator and the tenant.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::api::conditions::Reason;

use super::health;
use super::site::TenantKubeconfig;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::crossing;

/// Why a kubeconfig cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KubeconfigFault {
    /// The `RenderCluster` does not exist.
    NoCluster,
    /// The `RenderCluster` is disconnected.
    Disconnected,
    /// The Secret does not exist.
    Missing,
    /// The Secret has none of the expected keys, or an empty value.
    NoKey,
    /// The ServiceAccount does not exist, or the hub may not impersonate it.
    Account,
    /// The ServiceAccount may not read the Secret, or not watch it.
    Right,
    /// The quota of clusters of its namespace, or of all namespaces, is used up.
    Full,
    /// The kubeconfig is refused.
    Flaw(KubeconfigFlaw),
}

/// What is wrong with a kubeconfig; it holds none of its text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KubeconfigFlaw {
    /// The enumerated reason.
    pub reason: Reason,
    /// The message for readers of a status.
    pub message: &'static str,
}

impl KubeconfigFault {
    /// The enumerated reason.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::NoCluster => Reason::ClusterNotFound,
            Self::Disconnected => Reason::Disconnected,
            Self::Missing | Self::NoKey => Reason::KubeconfigNotFound,
            Self::Account | Self::Right => Reason::RBACDenied,
            Self::Full => Reason::WaitingForCluster,
            Self::Flaw(flaw) => flaw.reason,
        }
    }

    /// The message for the platform operator.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoCluster => "the RenderCluster does not exist",
            Self::Disconnected => {
                "spec.disconnect is true, so the hub sends nothing there, and no timeout of the tasks there runs; set it to false to \
                 connect again"
            }
            Self::Missing => {
                "the Secret that spec.kubeConfig.secretRef names does not exist in the namespace of kubeconfigs; the cluster \
                 connects by itself once it does"
            }
            Self::NoKey => {
                "the Secret that spec.kubeConfig.secretRef names does not have the key that secretRef.key names, or without \
                 secretRef.key neither value nor value.yaml, or it is empty; put the kubeconfig under that key, or name its key \
                 in secretRef.key: kubectl calls it like the file that it was made from"
            }
            Self::Account | Self::Right => {
                "the hub may not read the Secret with the kubeconfig; give it get, list and watch on Secrets in the namespace \
                 of kubeconfigs"
            }
            Self::Full => "there are as many clusters as there may be",
            Self::Flaw(flaw) => flaw.message,
        }
    }
}

impl TenantKubeconfig {
    /// The refusal that the tenant sees. For a Secret in another namespace it is always the same, whatever is there.
    #[must_use]
    pub fn refusal(&self, fault: KubeconfigFault) -> Refusal {
        // The quota is checked first: it does not depend on the other namespace.
        if self.crosses && fault != KubeconfigFault::Full {
            return crossing();
        }
        let named = format!("the Secret {} of the namespace {}", self.name, self.namespace);
        let message = match fault {
            KubeconfigFault::NoCluster | KubeconfigFault::Missing => {
                let message = format!("{named} does not exist; the task starts by itself once it does");
                return Refusal::new(fault.reason(), message);
            }
            KubeconfigFault::NoKey => {
                let keys = match &self.key {
                    Some(key) => format!("no key {key}, or an empty one"),
                    None => "neither a key value nor value.yaml, or empty ones".to_owned(),
                };
                let message = format!(
                    "{named} has {keys}; put the kubeconfig under such a key: the task then starts by itself; or make a new task that \
                     names its key in kubeConfig.secretRef.key: kubectl calls it like the file that it was made from"
                );
                return Refusal::new(fault.reason(), message);
            }
            KubeconfigFault::Disconnected => "the platform operator has disconnected the cluster",
            KubeconfigFault::Account => {
                "the task's ServiceAccount does not exist, or the hub may not act as it; make it, or ask the platform operator to \
                 let the hub act as it"
            }
            KubeconfigFault::Right => {
                "the task's ServiceAccount may not read the Secret with the kubeconfig; give it get, list and watch on that \
                 Secret, by its name"
            }
            KubeconfigFault::Full => {
                "this namespace, or the hub for all namespaces, uses as many clusters of tenants as it may have; the task starts \
                 by itself once one of them is not used any more"
            }
            KubeconfigFault::Flaw(flaw) => flaw.message,
        };
        Refusal::new(fault.reason(), message)
    }

    /// The refusal for a connection that is not up; `None` where the fault may pass by itself, and for a kubeconfig in another
    /// namespace.
    #[must_use]
    pub fn disconnection(&self, fault: health::ConnectionFault) -> Option<Refusal> {
        use health::ConnectionFault as Lost;
        let message = match fault {
            // Addresses are checked after names are resolved, and a tenant must not learn which names resolve.
            Lost::Connecting | Lost::Unreachable | Lost::Denied | Lost::KubeconfigNotFound => return None,
            Lost::Forbidden => {
                "the cluster does not let the kubeconfig's user act as the task's ServiceAccount, or that one list and watch \
                 Jobs in deploymentNamespace; give both the rights of docs/how-to/bring-your-own-cluster.md"
            }
            Lost::NoNamespace => {
                "the cluster does not have the namespace that deploymentNamespace names; make it there, or name another one in a \
                 new task"
            }
            Lost::Unauthorized
            | Lost::BadKubeconfig
            | Lost::SelfTarget
            | Lost::Unrecognised
            | Lost::Incompatible
            | Lost::Unusable
            | Lost::Overprivileged
            | Lost::ImpersonationNotEffective => fault.message(),
        };
        (!self.crosses).then(|| Refusal::new(fault.reason(), message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::task::tenant::ReadIdentity;

    const FAULTS: [KubeconfigFault; 8] = [
        KubeconfigFault::NoCluster,
        KubeconfigFault::Disconnected,
        KubeconfigFault::Missing,
        KubeconfigFault::NoKey,
        KubeconfigFault::Account,
        KubeconfigFault::Right,
        KubeconfigFault::Full,
        KubeconfigFault::Flaw(KubeconfigFlaw {
            reason: Reason::BadKubeconfig,
            message: "it cannot be read",
        }),
    ];

    fn own(crosses: bool) -> TenantKubeconfig {
        TenantKubeconfig {
            identity: ReadIdentity::Hub,
            namespace: "a".to_owned(),
            name: "kubeconfig".to_owned(),
            key: None,
            crosses,
        }
    }

    #[test]
    fn each_fault_has_its_reason() {
        let reasons = FAULTS.map(|fault| own(false).refusal(fault).reason.as_str());
        let expected = [
            "ClusterNotFound",
            "Disconnected",
            "KubeconfigNotFound",
            "KubeconfigNotFound",
            "RBACDenied",
            "RBACDenied",
            "WaitingForCluster",
            "BadKubeconfig",
        ];
        assert_eq!(reasons, expected);
        assert!(FAULTS.iter().all(|fault| fault.message().len() > 10));
    }

    #[test]
    fn a_connection_fault_is_a_refusal_only_where_the_tenant_must_act() {
        for fault in health::ConnectionFault::ALL {
            let refusal = own(false).disconnection(fault);
            let passes = matches!(fault.reason(), Reason::Connecting | Reason::Unreachable)
                || fault == health::ConnectionFault::KubeconfigNotFound;
            assert_eq!(refusal.is_none(), passes, "{fault:?}");
            if let Some(refusal) = refusal {
                assert_eq!(refusal.reason, fault.reason());
                assert!(!refusal.message.contains("by itself"), "{fault:?}");
            }
            assert_eq!(own(true).disconnection(fault), None, "{fault:?}");
        }
    }

    #[test]
    fn a_missing_secret_or_key_is_named_to_the_tenant() {
        let message = |key: Option<&str>, fault| {
            let own = TenantKubeconfig {
                key: key.map(str::to_owned),
                ..own(false)
            };
            own.refusal(fault).message
        };
        let missing = message(None, KubeconfigFault::Missing);
        assert!(missing.contains("the Secret kubeconfig of the namespace a does not exist"));
        assert!(message(None, KubeconfigFault::NoKey).contains("neither a key value nor value.yaml"));
        assert!(message(Some("eu"), KubeconfigFault::NoKey).contains("no key eu"));
    }

    #[test]
    fn all_faults_in_another_namespace_give_the_same_refusal() {
        let refusals: Vec<_> = FAULTS.iter().map(|fault| own(true).refusal(*fault)).collect();
        let of_the_namespace = FAULTS
            .iter()
            .zip(&refusals)
            .filter(|(fault, _)| **fault != KubeconfigFault::Full);
        for (fault, refusal) in of_the_namespace {
            assert_eq!(refusal, &refusals[0], "{fault:?}");
            assert_eq!(refusal.reason, Reason::CrossNamespaceRefDenied);
        }
        assert_eq!(
            refusals[6],
            own(false).refusal(KubeconfigFault::Full),
            "it depends on the tenant alone"
        );
    }
}
