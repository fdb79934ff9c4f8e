//! Why a kubeconfig leads nowhere, in words for whoever can mend it.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::api::conditions::Reason;

use super::catalog::Refusal;
use super::site::OwnKubeconfig;
use super::tenant::crossing;

/// Why a kubeconfig leads nowhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The `RenderCluster` does not exist.
    NoCluster,
    /// The `RenderCluster` says that the hub keeps away.
    Disconnected,
    /// The Secret, or the key in it, does not exist.
    Missing,
    /// The ServiceAccount does not exist, or the hub may not act as it.
    Account,
    /// The ServiceAccount may not read the Secret, or not watch it.
    Right,
    /// Its namespace has as many clusters as one may have, or all namespaces together have.
    Full,
    /// What it holds is refused.
    Flaw(Flaw),
}

/// What is wrong with a kubeconfig; only our words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flaw {
    /// The enumerated reason.
    pub reason: Reason,
    /// The same for people.
    pub message: &'static str,
}

impl Fault {
    /// The enumerated reason.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::NoCluster => Reason::ClusterNotFound,
            Self::Disconnected => Reason::Disconnected,
            Self::Missing => Reason::KubeconfigNotFound,
            Self::Account | Self::Right => Reason::RBACDenied,
            Self::Full => Reason::WaitingForCluster,
            Self::Flaw(flaw) => flaw.reason,
        }
    }

    /// What the platform operator is told.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::NoCluster => "the RenderCluster does not exist",
            Self::Disconnected => {
                "spec.disconnect keeps the hub away: nothing is sent there, and no time counts against the tasks there; set it \
                 to false to connect again"
            }
            Self::Missing => {
                "the Secret with the kubeconfig, or the key in it, does not exist; the cluster connects by itself once it does"
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

impl OwnKubeconfig {
    /// What the tenant is told. Of another namespace nothing is told but that it was not to be, whatever is there.
    #[must_use]
    pub fn refusal(&self, fault: Fault) -> Refusal {
        // How many clusters the tenant has is no secret of the other namespace, and is looked at first.
        if self.crosses && fault != Fault::Full {
            return crossing();
        }
        let message = match fault {
            Fault::NoCluster | Fault::Missing => {
                "the Secret with the kubeconfig, or the key in it, does not exist; the task starts by itself once it does"
            }
            Fault::Disconnected => "the platform operator keeps the hub away from the cluster",
            Fault::Account => {
                "the task's ServiceAccount does not exist, or the hub may not act as it; make it, or ask the platform operator"
            }
            Fault::Right => {
                "the task's ServiceAccount may not read the Secret with the kubeconfig; give it get, list and watch on that \
                 Secret, by its name"
            }
            Fault::Full => {
                "the namespace, or the hub, has as many clusters as it may have; the task starts by itself once one is left"
            }
            Fault::Flaw(flaw) => flaw.message,
        };
        Refusal::new(fault.reason(), message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::tenant::Reader;

    const FAULTS: [Fault; 7] = [
        Fault::NoCluster,
        Fault::Disconnected,
        Fault::Missing,
        Fault::Account,
        Fault::Right,
        Fault::Full,
        Fault::Flaw(Flaw {
            reason: Reason::BadKubeconfig,
            message: "it cannot be read",
        }),
    ];

    fn own(crosses: bool) -> OwnKubeconfig {
        OwnKubeconfig {
            reader: Reader::Hub,
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
            "RBACDenied",
            "RBACDenied",
            "WaitingForCluster",
            "BadKubeconfig",
        ];
        assert_eq!(reasons, expected);
        assert!(FAULTS.iter().all(|fault| fault.message().len() > 10));
    }

    #[test]
    fn of_another_namespace_all_that_can_be_learned_is_one_answer() {
        let told: Vec<_> = FAULTS.iter().map(|fault| own(true).refusal(*fault)).collect();
        let there = FAULTS
            .iter()
            .zip(&told)
            .filter(|(fault, _)| **fault != Fault::Full);
        for (fault, refusal) in there {
            assert_eq!(refusal, &told[0], "{fault:?}");
            assert_eq!(refusal.reason, Reason::CrossNamespaceRefDenied);
        }
        assert_eq!(
            told[5],
            own(false).refusal(Fault::Full),
            "it depends on the tenant alone"
        );
    }
}
