//! What a registry is asked about a success, and what it answered.

use k8s_openapi::jiff::Timestamp;

use crate::api::oci::{Digest, OciReference};
use crate::plan::platform::catalog::CopyRequest;

/// What is asked of a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyRequest {
    /// Where the chart should be.
    pub reference: OciReference,
    /// Whether the registry is reached over plain HTTP.
    pub plain_http: bool,
    /// Token service of another origin that the registry may send the hub to.
    pub token_realm: Option<String>,
    /// The credential and the certificates, by name.
    pub means: CopyRequest,
    /// Digest of the manifest; absent, anything under the tag will do.
    pub digest: Option<Digest>,
    /// Whether nothing is believed without an answer.
    pub is_required: bool,
}

/// A registry's answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum VerifyResult {
    /// It holds the manifest.
    Held,
    /// It does not.
    Missing,
    /// It shows something else in the place of the manifest.
    Different,
    /// It does not let the hub look.
    Refused,
    /// Nothing that can be understood, or nothing in time.
    Silent,
}

/// The state of a task's verification. There is one request for a task at a time; the reconciler, the index and the controller carry it
/// unread, so a second kind of check is another answer to that request, or this becomes a list.
#[derive(Clone, Debug)]
pub struct VerificationState {
    /// When it was first asked for.
    pub since: Timestamp,
    /// When it may be asked for again.
    pub next: Timestamp,
    /// The last request and its answer, until a reconcile used it.
    pub answer: Option<(VerifyRequest, VerifyResult)>,
}
