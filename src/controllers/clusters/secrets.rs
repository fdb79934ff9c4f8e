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
use crate::plan::remote::lead::{Fault, Flaw};
use crate::remote::ClusterKey;
use crate::remote::kubeconfig;
use crate::remote::kubeconfig::RemoteConfig;

/// Kubeconfigs that are decoded at once; one that takes too long keeps its place until it is through.
const AT_ONCE: usize = 4;
/// Refused contents that are remembered.
const REMEMBERED: usize = 1024;

/// What decodes a kubeconfig.
pub type Decode = fn(&[u8]) -> Result<RemoteConfig, Flaw>;

/// The decoder of kubeconfigs.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8]) -> Result<RemoteConfig, Flaw> {
    kubeconfig::decode(bytes).map_err(|error| Flaw {
        reason: error.reason(),
        message: error.message(),
    })
}

/// SHA-256 of a kubeconfig.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Content([u8; 32]);

impl Content {
    /// That of these bytes.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// One key of a Secret that is asked for.
#[derive(Clone)]
pub struct Asked {
    /// The key; `None` for `value`, then `value.yaml`.
    pub key: Option<String>,
    /// What was found there before, if that need not be told again.
    pub known: Option<(ClusterKey, Content)>,
}

/// What one key of a Secret comes to.
pub enum Verdict {
    /// What is known.
    Same,
    /// It leads to a cluster.
    Leads(Box<Found>),
    /// It leads nowhere.
    Nowhere(Fault),
}

/// A kubeconfig that leads to a cluster.
pub struct Found {
    /// Where it was.
    pub key: ClusterKey,
    /// What it comes down to.
    pub config: RemoteConfig,
    /// What it was read from.
    pub content: Content,
}

/// What a Secret comes to.
pub struct Judged {
    /// UID of the Secret.
    pub uid: String,
    /// Its resource version.
    pub version: String,
    /// The verdict on each key, in the order asked.
    pub verdicts: Vec<Verdict>,
    /// Whether a kubeconfig took too long, which may be the machine's fault.
    pub is_late: bool,
}

/// Gives verdicts on kubeconfigs.
pub struct Judge {
    decode: Decode,
    budget: Duration,
    places: Arc<Semaphore>,
    refused: Mutex<Refused>,
}

/// What keeps a kubeconfig from a verdict of its own.
enum Stop {
    Flaw(Flaw),
    Late,
}

impl Judge {
    /// A judge that gives each kubeconfig this time.
    #[must_use]
    pub fn new(decode: Decode, budget: Duration) -> Self {
        Self {
            decode,
            budget,
            places: Arc::new(Semaphore::new(AT_ONCE)),
            refused: Mutex::default(),
        }
    }

    /// The verdicts on what is asked for of a Secret; `None` where the body is none.
    pub async fn judge(&self, body: SecretBody, asked: &[Asked]) -> Option<Judged> {
        let is_wanted = |key: &str| {
            let fits = |asked: &Asked| match &asked.key {
                Some(named) => named == key,
                None => key.starts_with("value"),
            };
            asked.iter().any(fits)
        };
        let read = body.read(is_wanted, kubeconfig::MAX_BYTES)?;
        drop(body);
        let mut judged = Judged {
            uid: read.uid.clone(),
            version: read.version.clone(),
            verdicts: Vec::with_capacity(asked.len()),
            is_late: false,
        };
        for asked in asked {
            let verdict = self.one(&read, asked).await.unwrap_or_else(|stop| {
                let flaw = match stop {
                    Stop::Flaw(flaw) => flaw,
                    Stop::Late => {
                        judged.is_late = true;
                        LATE
                    }
                };
                Verdict::Nowhere(Fault::Flaw(flaw))
            });
            judged.verdicts.push(verdict);
        }
        Some(judged)
    }

    async fn one(&self, read: &SecretData, asked: &Asked) -> Result<Verdict, Stop> {
        let Some((name, bytes)) = kubeconfig::pick(&read.data, asked.key.as_deref()) else {
            return Ok(Verdict::Nowhere(Fault::NoKey));
        };
        let key = ClusterKey {
            secret_uid: read.uid.as_str().into(),
            key: name.into(),
        };
        let content = Content::of(bytes);
        if asked.known.as_ref() == Some(&(key.clone(), content)) {
            return Ok(Verdict::Same);
        }
        if let Some(flaw) = self.refused().get(content) {
            return Err(Stop::Flaw(flaw));
        }
        let outcome = self.decode(bytes).await?;
        let config = outcome.map_err(|flaw| {
            self.refused().put(content, flaw);
            Stop::Flaw(flaw)
        })?;
        Ok(Verdict::Leads(Box::new(Found { key, config, content })))
    }

    async fn decode(&self, bytes: &[u8]) -> Result<Result<RemoteConfig, Flaw>, Stop> {
        let place = Arc::clone(&self.places).acquire_owned().await;
        let (decode, bytes) = (self.decode, Zeroizing::new(bytes.to_vec()));
        let work = tokio::task::spawn_blocking(move || {
            let _place = place;
            decode(&bytes)
        });
        let outcome = tokio::time::timeout(self.budget, work).await;
        outcome.map_err(|_| Stop::Late)?.map_err(|_| Stop::Late)
    }

    fn refused(&self) -> std::sync::MutexGuard<'_, Refused> {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

const LATE: Flaw = Flaw {
    reason: Reason::BadKubeconfig,
    message: "the kubeconfig takes too long to read; put a plain one into the Secret",
};

/// Contents that were refused, the oldest of which is forgotten first.
#[derive(Default)]
struct Refused {
    flaws: HashMap<Content, Flaw>,
    order: VecDeque<Content>,
}

impl Refused {
    fn get(&self, content: Content) -> Option<Flaw> {
        self.flaws.get(&content).copied()
    }

    fn put(&mut self, content: Content, flaw: Flaw) {
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
#[path = "secrets/tests.rs"]
mod tests;
