//! The key of the hub's seals: a Secret in the rendering namespace, which the first hub there makes.

use std::collections::BTreeMap;
use std::time::Duration;

use k8s_openapi::ByteString;
use k8s_openapi::api::core::v1::Secret;
use kube::api::ObjectMeta;
use ring::rand::{SecureRandom, SystemRandom};

use crate::api::zeroized::ZeroizedSecret;
use crate::kubernetes::apply::{CallError, HubClient};
use crate::plan::task::status_seal::{KEY_BYTES, SealKey};

/// Name of the Secret.
pub const NAME: &str = "renderhub-seal";
/// Key in the Secret.
const FIELD: &str = "key";
/// Pause before the API server is asked again.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// Why there is no key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SealKeyError {
    /// The hub may not read or make the Secret.
    #[error(
        "the Secret {NAME} in the rendering namespace cannot be read or made; the hub needs get and create on Secrets there"
    )]
    Forbidden,
    /// The Secret holds something else.
    #[error(
        "the Secret {NAME} in the rendering namespace holds no key of {KEY_BYTES} bytes; delete it, and a new one is made"
    )]
    Unusable,
    /// The system has no random bytes.
    #[error("the system gives no random bytes")]
    NoRandomness,
}

/// The key, read, or made where there is none; asked for until the API server answers.
///
/// # Errors
/// What no waiting mends.
pub async fn load(calls: &HubClient) -> Result<SealKey, SealKeyError> {
    loop {
        let error = match calls.get_secret(NAME).await {
            Ok(Some(secret)) => return key_in(&secret).ok_or(SealKeyError::Unusable),
            Ok(None) => {
                let made = fresh()?;
                match calls.objects().create_secret(&made).await {
                    // Read in any case: only the API server knows when it was made, and whose was first.
                    Ok(_) => continue,
                    Err(declined) if declined.error == CallError::AlreadyExists => continue,
                    Err(declined) => declined.error,
                }
            }
            Err(error) => error,
        };
        if error == CallError::Forbidden {
            return Err(SealKeyError::Forbidden);
        }
        tracing::warn!(
            kind = error.kind(),
            stage = error.stage(),
            "the Secret {NAME} cannot be read or made yet; it is tried again"
        );
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

fn key_in(secret: &Secret) -> Option<SealKey> {
    let bytes = secret.data.as_ref()?.get(FIELD)?.0.as_slice();
    let made = secret.metadata.creation_timestamp.as_ref()?.0;
    Some(SealKey::new(bytes.try_into().ok()?, made))
}

/// A Secret with a new key. It has no label of one hub: every hub of the namespace seals with the same key.
fn fresh() -> Result<ZeroizedSecret, SealKeyError> {
    let mut key = vec![0; KEY_BYTES];
    SystemRandom::new()
        .fill(&mut key)
        .map_err(|_| SealKeyError::NoRandomness)?;
    let label = ("app.kubernetes.io/part-of".to_owned(), "renderhub".to_owned());
    let secret = Secret {
        metadata: ObjectMeta {
            name: Some(NAME.to_owned()),
            labels: Some([label].into()),
            ..ObjectMeta::default()
        },
        type_: Some("Opaque".to_owned()),
        immutable: Some(true),
        data: Some(BTreeMap::from([(FIELD.to_owned(), ByteString(key))])),
        ..Secret::default()
    };
    Ok(secret.into())
}
