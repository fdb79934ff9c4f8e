//! The life of one connection to a cluster, and of the watches on it, as pure state machines: time is passed in.
//!
//! `Connecting → Up → Lost`: a connection that is down has a next attempt or one under way, one that is up has a next
//! probe or one under way. When it was lost is kept until it stands again, whatever is tried meanwhile. Only the hub's
//! own clock counts, never that of the cluster.

use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;

mod connection;
mod watching;

pub use connection::{Connection, Heard, Todo};
pub use watching::Watching;

/// The oldest version of Kubernetes that Jobs are run on.
pub const OLDEST: Version = Version { major: 1, minor: 29 };

/// One moment by both clocks: the one that never jumps for waiting, the other for telling.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment {
    /// For timers.
    pub at: Instant,
    /// For people, and for what outlives the hub.
    pub wall: Timestamp,
}

/// How long things take.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    /// From the start of a probe to the start of the next.
    pub probe_every: Duration,
    /// Probes start on multiples of it, so that those of many clusters wake the hub together; zero is any time.
    pub beat: Duration,
    /// What the beats are counted from; the same for all connections.
    pub origin: Instant,
    /// Probes in a row without an answer after which a connection is lost.
    pub misses: u32,
    /// Calls in a row that are not answered in time after which it is lost too, whatever it says to probes; once it was lost so,
    /// one more is enough until a call is answered.
    pub unanswered: u32,
    /// Longest wait for the Secret to be read anew, after the cluster refused what was read before.
    pub reread: Duration,
    /// First wait between two attempts to connect; doubled each time.
    pub backoff: Duration,
    /// Longest wait between two attempts.
    pub backoff_cap: Duration,
    /// Longest that a site counts as up without its watch.
    pub rewatch: Duration,
    /// Longest that the sites of a new connection wait for the slowest of them.
    pub settle: Duration,
}

impl Timing {
    /// What a hub runs with, whose beats are counted from there.
    #[must_use]
    pub const fn since(origin: Instant) -> Self {
        Self {
            probe_every: Duration::from_secs(10),
            beat: Duration::from_secs(1),
            origin,
            misses: 5,
            unanswered: 3,
            reread: Duration::from_secs(5),
            backoff: Duration::from_secs(5),
            backoff_cap: Duration::from_secs(320),
            rewatch: Duration::from_secs(5),
            settle: Duration::from_secs(20),
        }
    }

    /// The last beat that is not later.
    #[must_use]
    pub fn on_beat(&self, at: Instant) -> Instant {
        let since = at.saturating_duration_since(self.origin).as_nanos();
        let late = since.checked_rem(self.beat.as_nanos()).unwrap_or_default();
        let late = u64::try_from(late).map(Duration::from_nanos).unwrap_or_default();
        at.checked_sub(late).unwrap_or(at)
    }

    /// How long to wait after so many failures, spread over the upper half so that many do not come back at once.
    #[must_use]
    pub fn wait(&self, failures: u32, seed: u64) -> Duration {
        let full = self
            .backoff
            .saturating_mul(1 << failures.min(16))
            .min(self.backoff_cap);
        full.mul_f64(0.5 + 0.5 * share(seed, failures))
    }
}

/// A number in 0…1 that differs between seeds and between the attempts of one.
fn share(seed: u64, failures: u32) -> f64 {
    let mut hasher = DefaultHasher::new();
    (seed, failures).hash(&mut hasher);
    let thousandths = u16::try_from(hasher.finish() % 1000).unwrap_or_default();
    f64::from(thousandths) / 1000.0
}

/// A version of Kubernetes, without what vendors add to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version {
    /// Before the dot.
    pub major: u16,
    /// After it.
    pub minor: u16,
}

impl Version {
    /// The version by the two words of `/version`; vendors write a minor such as `29+`.
    #[must_use]
    pub fn parse(major: &str, minor: &str) -> Option<Self> {
        let number = |text: &str| {
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            text.get(..digits)?.parse().ok()
        };
        Some(Self {
            major: number(major)?,
            minor: number(minor)?,
        })
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

/// What keeps a connection, or a site on it, from being used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fault {
    /// The first attempt is under way.
    Connecting,
    /// No answer, or none in time, or none that can be read.
    Unreachable,
    /// The cluster does not know the user.
    Unauthorized,
    /// The address of the server is one that the hub may not connect to.
    Denied,
    /// The user may not do what the hub must.
    Forbidden,
    /// The namespace for Jobs does not exist there.
    NoNamespace,
    /// The kubeconfig's certificates or key are none.
    BadKubeconfig,
    /// It is the hub's own cluster.
    SelfTarget,
    /// It may be the hub's own cluster: its user may look at nothing that tells.
    Unrecognised,
    /// Kubernetes there is too old, or lacks what the hub needs.
    Incompatible,
    /// The cluster's answers are more than the hub takes, or not what an API server answers.
    Unusable,
    /// A tenant's kubeconfig that may do everything on its cluster.
    Overprivileged,
    /// Requests as the task's ServiceAccount arrive as somebody else's.
    ImpersonationNotEffective,
    /// The Secret or the key is gone.
    KubeconfigNotFound,
}

impl Fault {
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

    /// The fault as a condition tells it.
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

    /// The same for people, with what they can do about it.
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
            | Self::ImpersonationNotEffective => self.of_rights(),
        }
    }

    /// What is said of the rights of the kubeconfig's user.
    const fn of_rights(self) -> &'static str {
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

    /// Whether another attempt right now may well come through: the network broke, or the credential is being replaced.
    #[must_use]
    pub const fn is_passing(self) -> bool {
        matches!(self, Self::Connecting | Self::Unreachable | Self::Unauthorized)
    }
}

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// It never stood, and nothing failed yet.
    Connecting,
    /// It stands.
    Up,
    /// It does not stand.
    Lost,
}

/// What is known of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Health {
    /// Where it stands.
    pub phase: Phase,
    /// Why it does not stand; `None` while it does.
    pub fault: Option<Fault>,
    /// When it was lost first, or made; `None` while it stands.
    pub since: Option<Timestamp>,
    /// Version of Kubernetes there, as last told.
    pub version: Option<Version>,
    /// When the cluster answered last.
    pub last_probe: Option<Timestamp>,
    /// Attempts since the loss; 0 while the connection stands.
    pub attempts: u32,
    /// When the next attempt is made; `None` while one is under way or the connection stands.
    pub next_attempt: Option<Timestamp>,
    /// The cluster refused the credential: read the Secret once more, and bind what it holds, changed or not.
    pub reread: bool,
}

impl Health {
    /// The reason of the condition `Connected`.
    #[must_use]
    pub fn reason(&self) -> Reason {
        self.fault.map_or(Reason::Connected, Fault::reason)
    }
}

#[cfg(test)]
mod tests;
