//! What should be where.

use std::collections::{BTreeMap, BTreeSet};

use super::complaint::{ComplaintSubject, PullSecretComplaint};
use super::content::PullSecretContent;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::ownership::CopyMarks;

/// A copy that should be there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedCopy {
    /// What it says of itself.
    pub marks: CopyMarks,
    /// What should be in it.
    pub content: PullSecretContent,
}

/// What should be where.
#[derive(Clone, Debug, Default)]
pub struct PullSecretPlan {
    /// Copies, by namespace and name.
    pub copies: BTreeMap<ObjectKey, WantedCopy>,
    /// Names of copies that each ServiceAccount should have, by its namespace and name.
    pub links: BTreeMap<ObjectKey, BTreeSet<String>>,
    /// Copies that stay as they are.
    pub held: BTreeSet<ObjectKey>,
    /// Copies whose links stay where they are.
    pub held_links: BTreeSet<ObjectKey>,
    /// Pods that should make room for their successors.
    pub evictions: Vec<WantedEviction>,
    /// What is wrong.
    pub complaints: BTreeSet<PullSecretComplaint>,
}

/// A pod that should be evicted, if its `ReplicaSet` is of one of these Deployments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WantedEviction {
    /// Namespace and name of the pod.
    pub pod: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Name and UID of its `ReplicaSet`.
    pub replica_set: (String, String),
    /// Deployments of operators with its ServiceAccount.
    pub deployments: BTreeSet<String>,
    /// A Subscription that one of them is of; `None` where it is gone.
    pub subscription: Option<ComplaintSubject>,
}
