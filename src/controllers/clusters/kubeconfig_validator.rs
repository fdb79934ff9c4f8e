//! Decodes the kubeconfigs in a Secret.
//!
//! A kubeconfig is hostile input: it is decoded on a thread of its own, for a limited time, and few at once. Content that was
//! refused is not decoded again.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::sync::Semaphore;
use zeroize::Zeroizing;

use crate::api::conditions::Reason;
use crate::kubernetes::apply::{SecretBody, SecretData};
use crate::plan::remote::kubeconfig_fault::{KubeconfigFault, KubeconfigFlaw};
use crate::remote::ConnectionKey;
use crate::remote::kubeconfig;
use crate::remote::kubeconfig::RemoteConfig;

/// Kubeconfigs that are decoded at once; one that takes too long keeps its slot until its thread ends.
const AT_ONCE: usize = 4;
/// Refused contents that are remembered.
const REMEMBERED: usize = 1024;

/// Function that decodes a kubeconfig.
pub type KubeconfigDecoder = fn(&[u8]) -> Result<RemoteConfig, KubeconfigFlaw>;

/// The decoder of kubeconfigs.
///
/// # Errors
/// The flaw of the kubeconfig.
pub fn decode(bytes: &[u8]) -> Result<RemoteConfig, KubeconfigFlaw> {
    kubeconfig::decode(bytes).map_err(|error| KubeconfigFlaw {
        reason: error.reason(),
        message: error.message(),
    })
}

/// SHA-256 of a kubeconfig.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct KubeconfigHash([u8; 32]);

impl KubeconfigHash {
    /// The hash of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// A query for one key of a Secret.
#[derive(Clone)]
pub struct KubeconfigQuery {
    /// The key; `None` for `value`, then `value.yaml`.
    pub key: Option<String>,
    /// The known content, for which no new verdict is needed.
    pub known: Option<(ConnectionKey, KubeconfigHash)>,
}

/// The verdict on one key of a Secret.
pub enum KubeconfigVerdict {
    /// The content is the known one.
    Unchanged,
    /// The kubeconfig is valid.
    Valid(Box<ValidKubeconfig>),
    /// The kubeconfig is missing or refused.
    Invalid(KubeconfigFault),
}

/// A valid kubeconfig.
pub struct ValidKubeconfig {
    /// Its source.
    pub key: ConnectionKey,
    /// Its decoded settings.
    pub config: RemoteConfig,
    /// Hash of its bytes.
    pub content: KubeconfigHash,
}

/// The verdicts on a Secret.
pub struct SecretVerdicts {
    /// UID of the Secret.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The verdict for each query, in order.
    pub verdicts: Vec<KubeconfigVerdict>,
    /// Whether the decoding of a kubeconfig timed out, which a busy node may cause.
    pub is_late: bool,
}

/// Validates kubeconfigs.
pub struct KubeconfigValidator {
    decode: KubeconfigDecoder,
    budget: Duration,
    slots: Arc<Semaphore>,
    refused: Mutex<RefusedKubeconfigs>,
}

impl KubeconfigValidator {
    /// A validator with this deadline for each kubeconfig.
    #[must_use]
    pub fn new(decode: KubeconfigDecoder, budget: Duration) -> Self {
        Self {
            decode,
            budget,
            slots: Arc::new(Semaphore::new(AT_ONCE)),
            refused: Mutex::default(),
        }
    }

    /// The verdicts for the queries on a Secret; `None` where the body cannot be decoded.
    pub async fn validate(&self, body: SecretBody, queries: &[KubeconfigQuery]) -> Option<SecretVerdicts> {
        let is_wanted = |key: &str| {
            let fits = |query: &KubeconfigQuery| match &query.key {
                Some(named) => named == key,
                None => key.starts_with("value"),
            };
            queries.iter().any(fits)
        };
        let read = body.read(is_wanted, kubeconfig::MAX_BYTES)?;
        drop(body);
        let mut validated = SecretVerdicts {
            uid: read.uid.clone(),
            version: read.version.clone(),
            verdicts: Vec::with_capacity(queries.len()),
            is_late: false,
        };
        for query in queries {
            let verdict = self.verdict(&read, query).await;
            validated.is_late |= verdict.is_none();
            let late = KubeconfigVerdict::Invalid(KubeconfigFault::Flaw(TOO_SLOW));
            validated.verdicts.push(verdict.unwrap_or(late));
        }
        Some(validated)
    }

    /// The verdict for one query; `None` where the kubeconfig takes too long to decode.
    async fn verdict(&self, read: &SecretData, query: &KubeconfigQuery) -> Option<KubeconfigVerdict> {
        let Some((name, bytes)) = kubeconfig::pick(&read.data, query.key.as_deref()) else {
            return Some(KubeconfigVerdict::Invalid(KubeconfigFault::NoKey));
        };
        let key = ConnectionKey {
            secret_uid: read.uid.as_str().into(),
            key: name.into(),
        };
        let content = KubeconfigHash::of(bytes);
        if query.known.as_ref() == Some(&(key.clone(), content)) {
            return Some(KubeconfigVerdict::Unchanged);
        }
        let refused = self.refused().get(content);
        let outcome = match refused {
            Some(flaw) => Err(flaw),
            None => self.decode(bytes).await?,
        };
        Some(match outcome {
            Ok(config) => KubeconfigVerdict::Valid(Box::new(ValidKubeconfig { key, config, content })),
            Err(flaw) => {
                self.refused().put(content, flaw);
                KubeconfigVerdict::Invalid(KubeconfigFault::Flaw(flaw))
            }
        })
    }

    /// What the decoder makes of a kubeconfig; `None` where it takes too long.
    async fn decode(&self, bytes: &[u8]) -> Option<Result<RemoteConfig, KubeconfigFlaw>> {
        let slot = Arc::clone(&self.slots).acquire_owned().await;
        let (decode, bytes) = (self.decode, Zeroizing::new(bytes.to_vec()));
        let work = tokio::task::spawn_blocking(move || {
            let _slot = slot;
            decode(&bytes)
        });
        tokio::time::timeout(self.budget, work).await.ok()?.ok()
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, RefusedKubeconfigs> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const TOO_SLOW: KubeconfigFlaw = KubeconfigFlaw {
    reason: Reason::BadKubeconfig,
    message: "the kubeconfig takes too long to read; put a plain one into the Secret",
};

/// Refused contents, of which the oldest is forgotten first.
#[derive(Default)]
struct RefusedKubeconfigs {
    flaws: HashMap<KubeconfigHash, KubeconfigFlaw>,
    order: VecDeque<KubeconfigHash>,
}

impl RefusedKubeconfigs {
    fn get(&self, content: KubeconfigHash) -> Option<KubeconfigFlaw> {
        self.flaws.get(&content).copied()
    }

    fn put(&mut self, content: KubeconfigHash, flaw: KubeconfigFlaw) {
        if self.flaws.insert(content, flaw).is_none() {
            self.order.push_back(content);
        }
        if self.order.len() > REMEMBERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.flaws.remove(&oldest);
        }
    }
}

#[cfg(test)]
#[path = "kubeconfig_validator/tests.rs"]
mod tests;
