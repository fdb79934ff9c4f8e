//! The hashes by which a Job names what its pod is to read, so that the pod refuses what was put in its place.

use sha2::{Digest as _, Sha256};

use crate::api::names::hex;

/// Variable of the container that renders: SHA-256 of the configuration.
pub const CONFIG_SHA256: &str = "RENDERHUB_CONFIG_SHA256";
/// Variable of the container that pushes: SHA-256 of the file with the destination.
pub const URL_SHA256: &str = "RENDERHUB_URL_SHA256";

/// The hash of a file's content, as a variable has it.
#[must_use]
pub fn sha256(content: &[u8]) -> String {
    hex(&Sha256::digest(content))
}
