//! Secrets with a kubeconfig: read whole, because there is no other way, and decoded no further than is asked for.

use std::collections::BTreeMap;
use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::ByteString;
use serde::Deserialize;
use serde_json::value::RawValue;
use zeroize::{Zeroize as _, ZeroizeOnDrop, Zeroizing};

use crate::api::zeroized::ZeroizedSecret;

/// A Secret as it came; its bytes are wiped with it.
pub struct SecretBody(Zeroizing<Vec<u8>>);

impl ZeroizeOnDrop for SecretBody {}

impl fmt::Debug for SecretBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretBody")
    }
}

impl SecretBody {
    /// The body of an answer.
    #[must_use]
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }

    /// All of the Secret. `None` where the body is no Secret.
    #[must_use]
    pub fn whole(&self) -> Option<ZeroizedSecret> {
        serde_json::from_slice(&self.0).ok()
    }

    /// The Secret with those of its keys that `is_wanted`, each cut off one byte or a few after the first `longest`: enough
    /// to see that it is longer. `None` where the body is no Secret.
    #[must_use]
    pub fn read(&self, is_wanted: impl Fn(&str) -> bool, longest: usize) -> Option<SecretData> {
        let lean: LeanSecret<'_> = serde_json::from_slice(&self.0).ok()?;
        let mut read = SecretData {
            uid: lean.metadata.uid,
            version: lean.metadata.resource_version,
            data: BTreeMap::new(),
        };
        for (key, value) in lean.data.unwrap_or_default() {
            if is_wanted(&key) {
                let value = decode(value.get(), longest)?;
                read.data.insert(key, ByteString(value));
            }
        }
        Some(read)
    }
}

/// What was read of a Secret; its bytes are wiped with it.
pub struct SecretData {
    /// UID of the Secret.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// Values by key.
    pub data: BTreeMap<String, ByteString>,
}

impl fmt::Debug for SecretData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SecretData")
            .field("uid", &self.uid)
            .finish_non_exhaustive()
    }
}

impl Drop for SecretData {
    fn drop(&mut self) {
        self.data.values_mut().for_each(|value| value.0.zeroize());
    }
}

impl ZeroizeOnDrop for SecretData {}

#[derive(Deserialize)]
struct LeanSecret<'a> {
    metadata: LeanSecretMetadata,
    #[serde(borrow, default)]
    data: Option<BTreeMap<String, &'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanSecretMetadata {
    uid: String,
    resource_version: String,
}

/// The beginning of a value in base64 between quotes.
fn decode(quoted: &str, longest: usize) -> Option<Vec<u8>> {
    if quoted == "null" {
        return Some(Vec::new());
    }
    let text = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let enough = (longest / 3 + 1) * 4;
    STANDARD.decode(text.get(..enough).unwrap_or(text)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body(data: &str) -> SecretBody {
        let text = format!(
            r#"{{"kind":"Secret","metadata":{{"uid":"u","resourceVersion":"7","labels":{{"a":"b"}}}}{data}}}"#
        );
        SecretBody::new(text.into_bytes())
    }

    #[test]
    fn only_what_is_asked_for_is_decoded() {
        let encoded = STANDARD.encode("content");
        let body = body(&format!(
            r#","data":{{"value":"{encoded}","none":null,"other":"not base64"}}"#
        ));
        let read = body.read(|key| key != "other", 100).unwrap();
        assert_eq!((read.uid.as_str(), read.version.as_str()), ("u", "7"));
        assert_eq!(read.data["value"].0, b"content");
        assert!(read.data["none"].0.is_empty() && read.data.len() == 2);
        assert!(
            body.read(|_| true, 100).is_none(),
            "what is asked for must be sound"
        );
    }

    #[test]
    fn a_secret_may_hold_nothing() {
        assert!(body("").read(|_| true, 9).unwrap().data.is_empty());
        assert!(body(r#","data":null"#).read(|_| true, 9).unwrap().data.is_empty());
        assert!(SecretBody::new(b"<html>".to_vec()).read(|_| true, 9).is_none());
    }

    /// Holds: K9.
    #[test]
    fn of_what_is_too_long_no_more_is_decoded_than_shows_it() {
        for length in 0..40 {
            let whole = vec![b'x'; length];
            let data = format!(r#","data":{{"value":"{}"}}"#, STANDARD.encode(&whole));
            let read = body(&data).read(|_| true, 10).unwrap();
            let cut = &read.data["value"].0;
            assert_eq!(cut.len() > 10, length > 10, "{length}");
            assert!(cut.len() <= 13 && whole.starts_with(cut), "{length}");
        }
    }

    #[test]
    fn nothing_of_a_secret_is_shown() {
        let data = format!(r#","data":{{"value":"{}"}}"#, STANDARD.encode("canary"));
        let body = body(&data);
        let read = body.read(|_| true, 100).unwrap();
        let shown = format!("{body:?} {read:?}");
        assert!(!shown.contains("canary") && !shown.contains("value"), "{shown}");
    }
}
