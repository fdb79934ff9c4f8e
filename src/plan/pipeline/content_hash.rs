//! The hash by which the hub tells contents apart.

use serde::Serialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::names::hex;

/// SHA-256 of a value as JSON with sorted keys, in hex.
#[must_use]
pub fn content_hash(value: &impl Serialize) -> String {
    // serde_json keeps the keys of a Value sorted, so equal values have equal bytes.
    let json = serde_json::to_value(value).unwrap_or(Value::Null).to_string();
    hex(&Sha256::digest(json.as_bytes()))
}
