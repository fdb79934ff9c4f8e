//! The parameters of a write, and the fields of its response.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::api::{DeleteParams, PatchParams, PostParams, Preconditions};
use serde::Deserialize;

use crate::api::labels::FIELD_MANAGER;
use crate::plan::task::finalizer_summary::FinalizerSummary;

use super::error::{CallError, found};

/// The fields of the response to a write.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct WriteResponse {
    pub(super) metadata: WriteResponseMetadata,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WriteResponseMetadata {
    #[serde(default)]
    pub(super) resource_version: String,
    pub(super) generation: Option<i64>,
    pub(super) deletion_timestamp: Option<Time>,
    #[serde(default)]
    pub(super) finalizers: FinalizerSummary,
}

/// The resource version that a write made; `None` where the object is gone, or the answer has no number.
pub(super) fn written_version(answer: Result<WriteResponse, CallError>) -> Result<Option<u64>, CallError> {
    let answer = found(answer)?;
    Ok(answer.and_then(|answer| answer.metadata.resource_version.parse().ok()))
}

pub(super) fn manager() -> PatchParams {
    PatchParams {
        field_manager: Some(FIELD_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

pub(super) fn create(dry_run: bool) -> PostParams {
    PostParams {
        dry_run,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}

pub(super) fn delete(uid: &str) -> DeleteParams {
    DeleteParams::background().preconditions(Preconditions {
        uid: Some(uid.to_owned()),
        resource_version: None,
    })
}
