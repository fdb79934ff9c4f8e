//! The seal on a status: it shows whether the hub or another writer of statuses wrote it.
//!
//! It binds the status to its task, so that it cannot be copied to another. An older status of the same task has a seal too; the
//! digest of the last one, which the index keeps, excludes it.

#![warn(clippy::wildcard_enum_match_arm)]

use k8s_openapi::jiff::Timestamp;
use ring::hmac;
use secrecy::{ExposeSecret, SecretBox};
use zeroize::{Zeroize as _, ZeroizeOnDrop};

use crate::api::RenderTaskStatus;
use crate::api::names::{TaskUid, hex, unhex};

use super::model::Task;
use super::status_digest::StatusDigest;

/// Bytes of a key.
pub const KEY_BYTES: usize = 32;
/// What is sealed, so that a seal on something else can never be taken for one on a status.
const PURPOSE: &[u8] = b"renderhub.dev/task-status\0";

/// What the index keeps of the last status that the hub wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LastStatusDigest {
    /// The status it wrote last, or found at its start; `None` where there was none.
    pub digest: Option<StatusDigest>,
    /// Whether a later write may or may not have come through, because its answer was lost.
    pub in_doubt: bool,
}

/// The key that the hub seals with.
#[derive(Debug)]
pub struct SealKey {
    key: SecretBox<[u8; KEY_BYTES]>,
    made: Timestamp,
}

impl ZeroizeOnDrop for SealKey {}

impl SealKey {
    /// A key, and when the Secret that holds it was made.
    #[must_use]
    pub fn new(mut key: [u8; KEY_BYTES], made: Timestamp) -> Self {
        // Copied to where it stays, because a move would leave what it moves from as it was.
        let kept = SecretBox::init_with_mut(|kept: &mut [u8; KEY_BYTES]| kept.copy_from_slice(&key));
        key.zeroize();
        Self { key: kept, made }
    }

    /// Puts the seal on a status of the task, and gives its digest; one that says nothing needs none.
    #[must_use]
    pub fn sealed(
        &self,
        task: &TaskUid,
        status: RenderTaskStatus,
    ) -> (RenderTaskStatus, Option<StatusDigest>) {
        let digest = StatusDigest::of_typed(&status);
        let seal = digest.map(|digest| hex(hmac::sign(&self.hmac_key(), &message(task, digest)).as_ref()));
        (RenderTaskStatus { seal, ..status }, digest)
    }

    /// When the Secret that holds the key was made.
    #[must_use]
    pub const fn made(&self) -> Timestamp {
        self.made
    }

    /// Whether the status on the task is the last one that the hub wrote; `last` is `None` for a task that the hub has not seen
    /// before.
    ///
    /// A task that is older than the key has a status from before there were seals, or from before the key was lost. Only the API
    /// server sets the creation time of an object, so no writer can make a new task look older.
    #[must_use]
    pub fn is_genuine(&self, task: &Task, last: Option<LastStatusDigest>) -> bool {
        let Some(last) = last else {
            return task.status_digest.is_none() || task.created < self.made || self.is_sealed(task);
        };
        task.status_digest == last.digest || (last.in_doubt && self.is_sealed(task))
    }

    fn is_sealed(&self, task: &Task) -> bool {
        let seal = task.status.seal.as_deref().and_then(unhex);
        task.status_digest.zip(seal).is_some_and(|(digest, seal)| {
            hmac::verify(&self.hmac_key(), &message(&task.id.uid, digest), &seal).is_ok()
        })
    }

    pub(in crate::plan) fn hmac_key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, self.key.expose_secret())
    }
}

fn message(task: &TaskUid, digest: StatusDigest) -> Vec<u8> {
    [PURPOSE, task.as_str().as_bytes(), b"\0", digest.bytes()].concat()
}
