//! What happens to a connection, and what it asks for.

use super::fault::ConnectionFault;
use super::version::KubernetesVersion;

/// What is to be done next; what became of it is a [`ConnectionEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Connect, and ask what is asked once.
    Connect,
    /// Probe.
    Probe,
}

/// What became of something, or came from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The attempt to connect came through, to a cluster of this version.
    Connected(KubernetesVersion),
    /// The attempt failed.
    Failed(ConnectionFault),
    /// The probe was answered.
    Answered,
    /// The probe was not, or with a refusal.
    Missed(ConnectionFault),
    /// Something else than a probe ended as on a broken connection, or with a refused credential.
    SuspectedLoss,
    /// So many calls in a row ran out of time, whatever probes say; with 0 one was answered since.
    Unanswered(u32),
    /// The kubeconfig has another token, which requests carry from now on. An attempt that was under way does not count; a
    /// probe goes on.
    Token,
    /// The kubeconfig leads elsewhere, or proves who the hub is in another way; nothing that was under way counts.
    Replaced,
    /// The Secret was read once more, and holds the same.
    Same,
}
