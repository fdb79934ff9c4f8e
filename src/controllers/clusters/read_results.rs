//! Results of the controller's tasks: a Secret that was read, a status that was written.

use std::collections::HashSet;

use super::connection_bindings::KubeconfigRef;
use super::kubeconfig_validator::SecretVerdicts;
use crate::api::RenderClusterStatus;
use crate::kubernetes::apply::{CallError, TransportStage};

/// Read state of a Secret of the platform.
#[derive(Default)]
pub(super) struct SecretReadState {
    /// UID and resource version when it was last read.
    pub(super) read: Option<(String, String)>,
    /// UID and resource version that the watch showed last.
    pub(super) seen: Option<(String, String)>,
    /// UIDs of deleted Secrets of this name; a response of a read that began before the deletion is ignored.
    pub(super) deleted: HashSet<String>,
    /// Whether the next read is reported although nothing changed.
    pub(super) must_report: bool,
}

/// Result of a read.
pub(super) struct SecretReadResult {
    pub(super) kubeconfigs: Vec<KubeconfigRef>,
    /// Whether it was to be reported although nothing changed.
    pub(super) must_report: bool,
    pub(super) outcome: Result<Option<SecretVerdicts>, CallError>,
}

impl SecretReadResult {
    /// Of a read that panicked: it is repeated as one that failed.
    pub(super) const fn panicked() -> Self {
        Self {
            kubeconfigs: Vec::new(),
            must_report: true,
            outcome: Err(CallError::Transport(TransportStage::Internal)),
        }
    }
}

/// Result of a status write.
pub(super) struct ClusterStatusWrite {
    pub(super) uid: String,
    pub(super) status: RenderClusterStatus,
    /// The status before the write; the watch may show the new one before the result arrives.
    pub(super) before: RenderClusterStatus,
    pub(super) outcome: Result<Option<u64>, CallError>,
}
