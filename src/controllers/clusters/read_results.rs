//! What calls beside the loop brought: a Secret that was read, a status that was written.

use std::collections::HashSet;

use super::connection_bindings::KubeconfigRef;
use super::kubeconfig_validator::SecretVerdicts;
use crate::api::RenderClusterStatus;
use crate::kubernetes::apply::CallError;

/// What is known of a Secret.
#[derive(Default)]
pub(super) struct SecretReadState {
    /// UID and resource version when it was last read.
    pub(super) read: Option<(String, String)>,
    /// The same as the watch showed it last.
    pub(super) seen: Option<(String, String)>,
    /// UIDs of those of its name that were deleted since it is known; an answer of before tells nothing of after.
    pub(super) deleted: HashSet<String>,
    /// Whether the next reading is told although nothing changed.
    pub(super) is_told_anyway: bool,
    /// Whether the list under way showed it.
    pub(super) is_shown: bool,
}

/// What a reading brought.
pub(super) struct SecretReadResult {
    pub(super) secret: String,
    pub(super) leads: Vec<KubeconfigRef>,
    pub(super) outcome: Result<Option<SecretVerdicts>, CallError>,
}

/// What became of a write.
pub(super) struct ClusterStatusWrite {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) status: RenderClusterStatus,
    /// What it changed, as it stood when it was decided: by now the watch may have shown the new one.
    pub(super) before: RenderClusterStatus,
    pub(super) outcome: Result<Option<String>, CallError>,
}
