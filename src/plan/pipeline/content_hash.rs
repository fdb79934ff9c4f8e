//! The hash by which the hub tells contents apart.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::names::hex;

/// SHA-256 of a value as JSON with sorted keys, in hex.
#[must_use]
pub fn content_hash(value: &impl Serialize) -> String {
    // serde_json keeps the keys of a Value sorted, so equal values have equal bytes.
    let sorted = serde_json::to_value(value).unwrap_or(Value::Null);
    hex(&Sha256::digest(serde_json::to_vec(&sorted).unwrap_or_default()))
}
