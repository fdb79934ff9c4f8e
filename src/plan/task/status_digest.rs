//! The digest by which two statuses of a task are compared.

use std::collections::BTreeMap;

use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::api::RenderTaskStatus;

/// The field of a status that holds its seal.
const SEAL: &str = "seal";

/// SHA-256 of a status as JSON with sorted keys and without its seal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatusDigest([u8; 32]);

impl StatusDigest {
    /// Digest of the status of an object; `None` where it is empty.
    #[must_use]
    pub fn of(status: &Value) -> Option<Self> {
        let fields: BTreeMap<_, _> = status
            .as_object()?
            .iter()
            .filter(|(name, _)| *name != SEAL)
            .collect();
        if fields.is_empty() {
            return None;
        }
        let canonical = serde_json::to_vec(&fields).unwrap_or_default();
        Some(Self(Sha256::digest(canonical).into()))
    }

    /// Digest of a status as it will be on an object.
    #[must_use]
    pub fn of_typed(status: &RenderTaskStatus) -> Option<Self> {
        Self::of(&serde_json::to_value(status).unwrap_or_default())
    }

    /// The digest as it is sealed.
    pub(super) const fn bytes(&self) -> &[u8] {
        &self.0
    }
}
