//! Secrets whose bytes do not stay in memory longer than they are used.

use std::fmt;
use std::ops::Deref;

use k8s_openapi::api::core::v1::Secret;
use serde::Deserialize;
use zeroize::{Zeroize as _, ZeroizeOnDrop};

/// A Secret whose values are wiped when it is dropped. It says nothing of itself.
#[derive(Deserialize)]
#[serde(transparent)]
pub struct ZeroizedSecret(Secret);

impl From<Secret> for ZeroizedSecret {
    fn from(secret: Secret) -> Self {
        Self(secret)
    }
}

impl Deref for ZeroizedSecret {
    type Target = Secret;

    fn deref(&self) -> &Secret {
        &self.0
    }
}

impl fmt::Debug for ZeroizedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WipedSecret")
    }
}

impl Drop for ZeroizedSecret {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl ZeroizeOnDrop for ZeroizedSecret {}

/// Wipes the values, and the annotations: `kubectl apply` keeps a copy of the values there.
fn wipe(secret: &mut Secret) {
    let values = secret.data.iter_mut().flat_map(|data| data.values_mut());
    values.for_each(|value| value.0.zeroize());
    let texts = secret.string_data.iter_mut().flat_map(|data| data.values_mut());
    let notes = secret.metadata.annotations.iter_mut();
    let texts = texts.chain(notes.flat_map(|all| all.values_mut()));
    texts.for_each(zeroize::Zeroize::zeroize);
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::basic_auth::BasicCredential;

    /// Holds: B20.
    #[test]
    fn every_value_of_a_secret_is_wiped() {
        let mut secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": "push", "annotations": {"last-applied": "canary"}},
            "data": {"username": "Y2FuYXJ5", "password": "Y2FuYXJ5"}, "stringData": {"more": "canary"},
        }))
        .unwrap();
        let password = secret.data.as_ref().unwrap()["password"].0.as_ptr();
        wipe(&mut secret);
        let kept = secret.data.as_ref().unwrap();
        assert!(
            kept.values()
                .all(|value| value.0.is_empty() && value.0.capacity() >= 6)
        );
        assert_eq!(kept["password"].0.as_ptr(), password, "in place, and not a copy");
        let text = serde_json::to_string(&secret).unwrap();
        assert!(text.contains("push") && !text.contains("canary") && !text.contains("Y2FuYXJ5"));
    }

    /// Holds: B20.
    #[test]
    fn what_holds_a_secret_wipes_it_and_says_nothing_of_it() {
        const fn is_wiped<T: ZeroizeOnDrop>() {}
        is_wiped::<ZeroizedSecret>();
        is_wiped::<crate::kubernetes::apply::SecretBody>();
        is_wiped::<crate::kubernetes::apply::SecretData>();
        is_wiped::<crate::plan::task::status_seal::SealKey>();
        let password = |credential: BasicCredential| -> secrecy::SecretString { credential.password };
        let made = crate::api::basic_auth::pair("me", "canary").unwrap();
        is_wiped::<secrecy::SecretString>();
        assert!(!format!("{:?}", password(made)).contains("canary"));
        let wiped: ZeroizedSecret = serde_json::from_value(json!({"data": {"a": "Y2FuYXJ5"}})).unwrap();
        assert_eq!(wiped.data.as_ref().unwrap()["a"].0, b"canary");
        assert_eq!(format!("{wiped:?}"), "WipedSecret");
    }
}
