//! Names that people can read, cut with a hash to what OCI, Helm and Kubernetes allow.

use sha2::{Digest, Sha256};

use crate::api::names::hex;

/// Longest readable part of a name; with a hash it is a DNS label.
pub const READABLE_MAX: usize = 46;
/// Hex digits of a hash in a name or a version.
const HASH_DIGITS: usize = 16;

/// A name with its prefix, cut to the length with a hash of the whole.
#[must_use]
pub fn readable(prefix: &str, name: &str, longest: usize) -> String {
    let whole = format!("{prefix}{name}");
    if whole.len() <= longest {
        return whole;
    }
    let digest = hex(&Sha256::digest(whole.as_bytes()));
    let room = longest - 1 - HASH_DIGITS;
    let cut = whole.get(..room).unwrap_or_default().trim_end_matches(['-', '.']);
    format!("{cut}-{}", short(&digest))
}

/// The digits of a hash that a name has.
#[must_use]
pub fn short(hash: &str) -> &str {
    hash.get(..HASH_DIGITS).unwrap_or(hash)
}
