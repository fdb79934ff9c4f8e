//! Faults of a connection, with their reasons and messages.

use crate::api::conditions::Reason;

/// Why a connection, or a site on it, cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ConnectionFault {
    /// The first attempt is in flight.
    Connecting,
    /// No answer, no answer in time, or an unreadable one.
    Unreachable,
    /// The cluster does not know the user.
    Unauthorized,
    /// The address of the server is one that the hub may not connect to.
    Denied,
    /// The user lacks a right that the hub needs.
    Forbidden,
    /// The namespace for Jobs does not exist there.
    NoNamespace,
    /// The kubeconfig's certificates or key are invalid.
    BadKubeconfig,
    /// It is the hub's own cluster.
    SelfTarget,
    /// It may be the hub's own cluster: the user may read no namespace that would show it.
    Unrecognised,
    /// Kubernetes there is too old, or lacks what the hub needs.
    Incompatible,
    /// The cluster's answers are larger than the hub accepts, or not those of an API server.
    Unusable,
    /// A tenant's kubeconfig that has all rights on its cluster.
    Overprivileged,
    /// The cluster does not see requests as those of the task's ServiceAccount.
    ImpersonationNotEffective,
    /// The Secret or its key does not exist.
    KubeconfigNotFound,
}

impl ConnectionFault {
    /// Every fault.
    pub const ALL: [Self; 14] = [
        Self::Connecting,
        Self::Unreachable,
        Self::Unauthorized,
        Self::Denied,
        Self::Forbidden,
        Self::NoNamespace,
        Self::BadKubeconfig,
        Self::SelfTarget,
        Self::Unrecognised,
        Self::Incompatible,
        Self::Unusable,
        Self::Overprivileged,
        Self::ImpersonationNotEffective,
        Self::KubeconfigNotFound,
    ];

    /// Reason of the condition that shows the fault.
    #[must_use]
    pub const fn reason(self) -> Reason {
        match self {
            Self::Connecting => Reason::Connecting,
            Self::Unreachable | Self::Denied => Reason::Unreachable,
            Self::Unauthorized => Reason::Unauthorized,
            Self::Forbidden | Self::NoNamespace => Reason::Forbidden,
            Self::BadKubeconfig => Reason::BadKubeconfig,
            Self::SelfTarget => Reason::SelfTarget,
            Self::Unrecognised => Reason::Unrecognised,
            Self::Incompatible | Self::Unusable => Reason::Incompatible,
            Self::Overprivileged => Reason::InsecureKubeconfig,
            Self::ImpersonationNotEffective => Reason::ImpersonationNotEffective,
            Self::KubeconfigNotFound => Reason::KubeconfigNotFound,
        }
    }

    /// Message for the platform operator or the tenant, with the remedy.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::Connecting => "the first attempt to connect is under way",
            Self::Unreachable => "the cluster does not answer, or not in time; the hub tries again by itself",
            Self::Unauthorized => {
                "the cluster does not know the kubeconfig's user; put a valid credential into the Secret"
            }
            Self::Denied => {
                "the hub does not connect to the address of the kubeconfig's server: it is loopback, link-local, a metadata \
                 address or one of --cluster-deny-cidrs; name another one, or allow it with --cluster-allow-cidrs"
            }
            Self::BadKubeconfig => {
                "the certificates or the key in the kubeconfig cannot be used; put a kubeconfig with valid ones into the Secret"
            }
            Self::SelfTarget => {
                "the kubeconfig is one for the hub's own cluster; put that of another cluster into the Secret, or make tasks that \
                 name no cluster: they run on the hub's own"
            }
            Self::Incompatible => {
                "the cluster is not Kubernetes 1.29 or newer, or lacks a kind that the hub needs; upgrade it, or use another"
            }
            Self::Unusable => {
                "the cluster's answers are larger than the hub accepts, or not those of an API server; check what answers at the \
                 kubeconfig's server"
            }
            Self::KubeconfigNotFound => {
                "the Secret with the kubeconfig, or the key in it, does not exist; make it: the cluster then connects by itself"
            }
            Self::Forbidden
            | Self::NoNamespace
            | Self::Unrecognised
            | Self::Overprivileged
            | Self::ImpersonationNotEffective => self.rights_message(),
        }
    }

    /// Message about the rights of the kubeconfig's user.
    const fn rights_message(self) -> &'static str {
        match self {
            Self::NoNamespace => {
                "the cluster does not have the namespace that spec.renderNamespace names; make it there, with the Role of \
                 docs/how-to/register-a-cluster.md"
            }
            Self::Unrecognised => {
                "the hub cannot tell the cluster from its own; give the kubeconfig's user get on the namespace for Jobs there, as the \
                 Role of docs/how-to/register-a-cluster.md does"
            }
            Self::Overprivileged => {
                "the kubeconfig's user may do everything on its cluster; give it the Role of docs/how-to/register-a-cluster.md and no \
                 more"
            }
            Self::ImpersonationNotEffective => {
                "the cluster does not see the hub's requests as those of the task's ServiceAccount; let nothing between the hub and \
                 the cluster's API server remove the header Impersonate-User"
            }
            _ => {
                "the cluster does not let the kubeconfig's user list and watch Jobs in spec.renderNamespace, or has no such \
                 namespace, which it tells only users with more rights; give the user the Role of docs/how-to/register-a-cluster.md in \
                 that namespace"
            }
        }
    }

    /// Whether a retry may soon succeed: the network broke, or the credential is being replaced.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Connecting | Self::Unreachable | Self::Unauthorized)
    }
}
