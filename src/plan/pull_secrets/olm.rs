//! Pull secrets for operators that OLM installed: from what the watches know to what should be where.
//!
//! [`decide()`] says what should be where, and why something is not; [`changes`] compares that with what is there. A copy that
//! rests on something that is not known at the moment, such as a catalog that was deleted, stays as it is.

mod changes;
mod complaint;
mod content;
mod decide;
mod evictions;
mod links;
mod needs;
mod observed;
mod pods;
mod record;
mod settle;
mod wanted;

pub use changes::{CopyDeletion, CopyWrite, NamespaceChanges, changes};
pub use complaint::{ComplaintSubject, PullSecretComplaint};
pub use content::{PullSecretContent, SourceFault, content_of};
pub use decide::decide;
pub use evictions::EvictionLimiter;
pub use links::LinkChange;
pub use observed::{
    NamespaceGrant, ObservedAccount, ObservedCatalog, ObservedCopy, ObservedCsv, ObservedNamespace,
    ObservedOlm, ObservedPod, ObservedSource, ObservedSubscription, PullSecretLimits, PullSecretState,
};
pub use pods::{PendingPods, pending_pods};
pub use record::{NamespaceRecord, RecordedNamespace};
pub use wanted::{PullSecretPlan, WantedCopy, WantedEviction};

#[cfg(test)]
mod tests;
