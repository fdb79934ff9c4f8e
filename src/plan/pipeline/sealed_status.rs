//! The seal on the statuses that decisions rest on: of Targets, and of their versions.
//!
//! An admission policy lets only hubs write them; the seal holds where it is missing. It binds a status to its object by UID.

use k8s_openapi::jiff::Timestamp;
use ring::hmac;
use serde::Serialize;

use crate::api::names::{hex, unhex};
use crate::api::pipeline::{
    HydratedTargetStatus, OmitsKnownNames, PipelineStatus, ProfileStatus, ReleaseStatus, TargetStatus,
};
use crate::plan::task::status_seal::SealKey;

use super::content_hash::content_hash;

/// What is sealed, so that a seal on something else can never be taken for one on such a status.
const PURPOSE: &str = "renderhub.dev/pipeline-status";

/// The status of a kind, which has a seal where decisions rest on it.
pub trait SealedStatus: Serialize + Clone + Default + OmitsKnownNames {
    /// Where the seal is; `None` for a status without one.
    fn seal(&mut self) -> Option<&mut Option<String>>;
}

impl SealedStatus for TargetStatus {
    fn seal(&mut self) -> Option<&mut Option<String>> {
        Some(&mut self.seal)
    }
}

impl OmitsKnownNames for HydratedTargetStatus {}

impl SealedStatus for HydratedTargetStatus {
    fn seal(&mut self) -> Option<&mut Option<String>> {
        Some(&mut self.seal)
    }
}

/// Statuses on which no decision rests.
macro_rules! unsealed {
    ($($status:ty),+) => {
        $(impl OmitsKnownNames for $status {}

        impl SealedStatus for $status {
            fn seal(&mut self) -> Option<&mut Option<String>> {
                None
            }
        })+
    };
}

unsealed!(ReleaseStatus, ProfileStatus, PipelineStatus, ());

/// The status with its seal, if it has one, as it is written to the object of this UID.
#[must_use]
pub fn sealed<T: SealedStatus>(key: &SealKey, uid: &str, status: &T) -> T {
    let mut status = status.clone();
    if status.seal().map(Option::take).is_some() {
        let seal = hex(hmac::sign(&key.hmac_key(), &message(uid, &status)).as_ref());
        status.seal().map(|place| place.replace(seal));
    }
    status
}

/// A status that was read, without its seal: where it should have one, what the hub did not write says nothing.
///
/// An object that is older than the key has a status from before the key was lost. Only the API server sets the creation time of an
/// object, so no writer can make a new one look older.
#[must_use]
pub fn opened<T: SealedStatus>(key: &SealKey, uid: &str, created: Timestamp, mut status: T) -> T {
    let Some(seal) = status.seal() else {
        return status;
    };
    let seal = seal.take().as_deref().and_then(unhex);
    let is_sealed = |seal: [u8; 32]| hmac::verify(&key.hmac_key(), &message(uid, &status), &seal).is_ok();
    if created < key.made() || seal.is_some_and(is_sealed) {
        status
    } else {
        T::default()
    }
}

fn message<T: Serialize>(uid: &str, status: &T) -> Vec<u8> {
    [PURPOSE, uid, &content_hash(status)].join("\0").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::task::status_seal::KEY_BYTES;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn key(byte: u8) -> SealKey {
        SealKey::new([byte; KEY_BYTES], at(100))
    }

    /// Holds: F17.
    #[test]
    fn a_status_counts_with_the_seal_of_its_object_or_if_it_is_older_than_the_key() {
        let status = TargetStatus {
            bootstrap_version: Some(7),
            ..TargetStatus::default()
        };
        let written = sealed(&key(1), "u", &status);
        let read = |key: &SealKey, uid: &str, created, status: &TargetStatus| {
            opened(key, uid, at(created), status.clone())
        };
        assert_eq!(read(&key(1), "u", 100, &written), status);
        let nothing = TargetStatus::default();
        assert_eq!(read(&key(1), "v", 100, &written), nothing);
        assert_eq!(read(&key(2), "u", 100, &written), nothing);
        assert_eq!(read(&key(1), "u", 100, &status), nothing);
        assert_eq!(read(&key(2), "u", 99, &written), status);
        let forged = TargetStatus {
            bootstrap_version: Some(8),
            ..written
        };
        assert_eq!(read(&key(1), "u", 100, &forged), nothing);
    }
}
