//! From a Secret to what its kubeconfig comes down to.
//!
//! A kubeconfig is hostile input: it is decoded on a thread that may be given up, for a limited time, few at once, and
//! what was refused once is not decoded again as long as it is the same.

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

/// Kubeconfigs that are decoded at once; one that takes too long keeps its place until it is through.
const AT_ONCE: usize = 4;
/// Refused contents that are remembered.
const REMEMBERED: usize = 1024;

/// What decodes a kubeconfig.
pub type KubeconfigDecoder = fn(&[u8]) -> Result<RemoteConfig, KubeconfigFlaw>;

/// The decoder of kubeconfigs.
///
/// # Errors
/// What is wrong with it.
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
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// One key of a Secret that is asked for.
#[derive(Clone)]
pub struct KubeconfigQuery {
    /// The key; `None` for `value`, then `value.yaml`.
    pub key: Option<String>,
    /// What was found there before, if that need not be told again.
    pub known: Option<(ConnectionKey, KubeconfigHash)>,
}

/// What one key of a Secret comes to.
pub enum KubeconfigVerdict {
    /// What is known.
    Same,
    /// It leads to a cluster.
    Leads(Box<ValidKubeconfig>),
    /// It leads nowhere.
    Nowhere(KubeconfigFault),
}

/// A kubeconfig that leads to a cluster.
pub struct ValidKubeconfig {
    /// Where it was.
    pub key: ConnectionKey,
    /// What it comes down to.
    pub config: RemoteConfig,
    /// What it was read from.
    pub content: KubeconfigHash,
}

/// What a Secret comes to.
pub struct SecretVerdicts {
    /// UID of the Secret.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The verdict on each key, in the order asked.
    pub verdicts: Vec<KubeconfigVerdict>,
    /// Whether a kubeconfig took too long, which may be the machine's fault.
    pub is_late: bool,
}

/// Gives verdicts on kubeconfigs.
pub struct KubeconfigValidator {
    decode: KubeconfigDecoder,
    budget: Duration,
    places: Arc<Semaphore>,
    refused: Mutex<RefusedKubeconfigs>,
}

/// What keeps a kubeconfig from a verdict of its own.
enum DecodeFailure {
    Flaw(KubeconfigFlaw),
    Late,
}

impl KubeconfigValidator {
    /// A judge that gives each kubeconfig this time.
    #[must_use]
    pub fn new(decode: KubeconfigDecoder, budget: Duration) -> Self {
        Self {
            decode,
            budget,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            refused: Mutex::default(),
        }
    }

    /// The verdicts on what is asked for of a Secret; `None` where the body is none.
    pub async fn judge(&self, body: SecretBody, asked: &[KubeconfigQuery]) -> Option<SecretVerdicts> {
        let is_wanted = |key: &str| {
            let fits = |asked: &KubeconfigQuery| match &asked.key {
                Some(named) => named == key,
                None => key.starts_with("value"),
            };
            asked.iter().any(fits)
        };
        let read = body.read(is_wanted, kubeconfig::MAX_BYTES)?;
        drop(body);
        let mut judged = SecretVerdicts {
            uid: read.uid.clone(),
            version: read.version.clone(),
            verdicts: Vec::with_capacity(asked.len()),
            is_late: false,
        };
        for asked in asked {
            let verdict = self.one(&read, asked).await.unwrap_or_else(|stop| {
                let flaw = match stop {
                    DecodeFailure::Flaw(flaw) => flaw,
                    DecodeFailure::Late => {
                        judged.is_late = true;
                        LATE
                    }
                };
                KubeconfigVerdict::Nowhere(KubeconfigFault::Flaw(flaw))
            });
            judged.verdicts.push(verdict);
        }
        Some(judged)
    }

    async fn one(
        &self,
        read: &SecretData,
        asked: &KubeconfigQuery,
    ) -> Result<KubeconfigVerdict, DecodeFailure> {
        let Some((name, bytes)) = kubeconfig::pick(&read.data, asked.key.as_deref()) else {
            return Ok(KubeconfigVerdict::Nowhere(KubeconfigFault::NoKey));
        };
        let key = ConnectionKey {
            secret_uid: read.uid.as_str().into(),
            key: name.into(),
        };
        let content = KubeconfigHash::of(bytes);
        if asked.known.as_ref() == Some(&(key.clone(), content)) {
            return Ok(KubeconfigVerdict::Same);
        }
        if let Some(flaw) = self.refused().get(content) {
            return Err(DecodeFailure::Flaw(flaw));
        }
        let outcome = self.decode(bytes).await?;
        let config = outcome.map_err(|flaw| {
            self.refused().put(content, flaw);
            DecodeFailure::Flaw(flaw)
        })?;
        Ok(KubeconfigVerdict::Leads(Box::new(ValidKubeconfig {
            key,
            config,
            content,
        })))
    }

    async fn decode(&self, bytes: &[u8]) -> Result<Result<RemoteConfig, KubeconfigFlaw>, DecodeFailure> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (decode, bytes) = (self.decode, Zeroizing::new(bytes.to_vec()));
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            decode(&bytes)
        });
        let outcome = tokio::time::timeout(self.budget, work).await;
        outcome
            .map_err(|_| DecodeFailure::Late)?
            .map_err(|_| DecodeFailure::Late)
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, RefusedKubeconfigs> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LATE: KubeconfigFlaw = KubeconfigFlaw {
    reason: Reason::BadKubeconfig,
    message: "the kubeconfig takes too long to read; put a plain one into the Secret",
};

/// Contents that were refused, the oldest of which is forgotten first.
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
