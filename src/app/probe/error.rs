//! The faults that a network probe finds, and how a pod reports them.

/// Exit code where something was reached that must not be: the one value that a pod reports to the pod that made it.
pub(super) const REACHED: u8 = 3;

/// What does not hold, or is not known.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProbeError {
    /// It did not answer, or not with 200.
    #[error("{0} does not say that the hub is ready")]
    NotReady(String),
    /// A connection was made.
    #[error(
        "{0} was reached: the cluster's network does not enforce NetworkPolicy, so renderers reach it too; \
         use a network plugin that does"
    )]
    Reached(String),
    /// What has no address cannot be reached anyway, which shows nothing.
    #[error("{0} has no address; it must be HOST:PORT")]
    NoAddress(String),
    /// No Job can be made in this namespace, or followed.
    #[error(
        "the API server refuses the test's Job in {0}, so nothing is known of the network there: look for a right \
         that the hub lacks, a ResourceQuota that is used up, or an admission policy"
    )]
    Refused(String),
    /// The API server is not reached from here.
    #[error(
        "the API server does not answer the test's pod, so nothing is known of the network of {0}; where a NetworkPolicy \
         of yours closes the namespace of this pod, let app.kubernetes.io/component=test out to the API server"
    )]
    Unanswered(String),
    /// The Job's pod did not end, or there was none.
    #[error(
        "the test's Job in {0} did not end in time, so nothing is known of the network there; \
         why is in: kubectl --namespace {0} get events"
    )]
    Unfinished(String),
    /// The Job's pod was ended before it could tell.
    #[error(
        "the pod of the test's Job in {0} ended without a verdict, so nothing is known of the network there; \
         run the test again, and look at: kubectl --namespace {0} get events"
    )]
    Unclear(String),
}
