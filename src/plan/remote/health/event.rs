//! Events of a connection, and the actions that it requests.

use super::fault::ConnectionFault;
use super::version::KubernetesVersion;

/// The next action for a connection; its result is a [`ConnectionEvent`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionAction {
    /// Connect, and make the checks of a new connection.
    Connect,
    /// Probe.
    Probe,
}

/// The result of an action, or a change from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConnectionEvent {
    /// The attempt to connect succeeded, to a cluster of this version.
    Connected(KubernetesVersion),
    /// The attempt failed.
    Failed(ConnectionFault),
    /// The probe was answered.
    Answered,
    /// The probe was not answered, or was refused.
    Missed(ConnectionFault),
    /// A call or a watch ended as on a broken connection, or with a refused credential.
    SuspectedLoss,
    /// So many calls in a row timed out, even if probes are answered; 0 after a call was answered.
    Unanswered(u32),
    /// The kubeconfig has another token, and is the same in all else: requests carry the new token from now on. An attempt in
    /// flight is aborted; a probe goes on.
    TokenRotated,
    /// The kubeconfig differs in more than the token: another server, authority, certificate or kind of credential. It needs a new
    /// connection; an attempt or a probe in flight is aborted.
    KubeconfigReplaced,
    /// The Secret was read again, and the kubeconfig in it is the same.
    KubeconfigUnchanged,
}
