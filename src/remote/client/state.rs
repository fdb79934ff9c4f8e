//! What a link is: its connections, its token and its pace, which all its clones share.

use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};

use http::header::HeaderValue;
use secrecy::SecretString;
use tokio::sync::Semaphore;
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::kubernetes::write_fence::WriteFence;
use crate::plan::remote::address::AddressPolicy;
use crate::remote::connect::RemoteConnector;
use crate::remote::connection_pool::ConnectionPool;
use crate::remote::headers::{base, bearer};
use crate::remote::kubeconfig::{ClusterCredential, RemoteConfig};
use crate::remote::limits::RemoteClientLimits;
use crate::remote::memory_budget::MemoryBudget;
use crate::remote::rate_limiter::RateLimiter;
use crate::remote::resolve::Resolver;
use crate::remote::tls::RemoteClientError;

/// What a link needs besides its configuration.
#[derive(Clone, Debug)]
pub struct RemoteClientSettings {
    /// Which addresses may be connected to.
    pub guard: Arc<AddressPolicy>,
    /// Resolves names; one for all links.
    pub resolver: Resolver,
    /// Bounds of all that is done.
    pub limits: Arc<RemoteClientLimits>,
    /// Memory for what is said; one for all links.
    pub memory_budget: MemoryBudget,
    /// What every request but a GET goes through.
    pub fence: WriteFence,
}

/// The way to one API server. Clones share their connection, their pace and their token; the connection ends with the last.
#[derive(Clone)]
pub struct RemoteClient(pub(super) Arc<RemoteClientInner>);

pub(super) struct RemoteClientInner {
    pub(super) base: String,
    pub(super) pool: ConnectionPool,
    pub(super) limits: Arc<RemoteClientLimits>,
    pub(super) token: RwLock<Option<HeaderValue>>,
    pub(super) pace: RateLimiter,
    pub(super) turns: Arc<Semaphore>,
    pub(super) room: MemoryBudget,
    pub(super) gate: WriteFence,
    pub(super) cut: CancellationToken,
    _cut_at_end: DropGuard,
}

impl fmt::Debug for RemoteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Link")
    }
}

impl RemoteClient {
    /// Makes a link. Nothing is connected until the first call.
    ///
    /// # Errors
    /// If the configuration is none that a connection can be made of, such as a key of another certificate.
    pub fn new(config: &RemoteConfig, settings: &RemoteClientSettings) -> Result<Self, RemoteClientError> {
        let limits = Arc::clone(&settings.limits);
        let token = match &config.login {
            ClusterCredential::Token(token) => Some(bearer(token)?),
            ClusterCredential::Certificate { .. } => None,
        };
        let connector = RemoteConnector::new(config, Arc::clone(&settings.guard), settings.resolver.clone())?;
        let cut = CancellationToken::new();
        Ok(Self(Arc::new(RemoteClientInner {
            base: base(config),
            pool: ConnectionPool::new(
                connector,
                Arc::clone(&limits),
                settings.fence.clone(),
                cut.clone(),
            ),
            token: RwLock::new(token),
            pace: RateLimiter::new(limits.qps, limits.burst),
            turns: Arc::new(Semaphore::new(limits.in_flight)),
            limits,
            room: settings.memory_budget.clone(),
            gate: settings.fence.clone(),
            cut: cut.clone(),
            _cut_at_end: cut.drop_guard(),
        })))
    }

    /// Sends another token from the next request on, over the same connections. A link that logs in by certificate keeps to
    /// that.
    ///
    /// # Errors
    /// [`RemoteClientError::Token`] when the token cannot be sent; the old one stays.
    pub fn set_token(&self, token: &SecretString) -> Result<(), RemoteClientError> {
        let value = bearer(token)?;
        let mut held = self.0.token.write().unwrap_or_else(PoisonError::into_inner);
        if held.is_some() {
            *held = Some(value);
        }
        Ok(())
    }

    /// Lets through so many calls in a second from now on, and so many at once after a rest; each at least one.
    pub fn set_pace(&self, qps: u32, burst: u32) {
        self.0.pace.set(qps, burst);
    }

    /// Ends every connection, call and watch at once, and for good.
    pub fn cut(&self) {
        self.0.cut.cancel();
    }

    /// Connections that the link opened since it was made.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.0.pool.opened()
    }

    pub(in crate::remote) fn limits(&self) -> &RemoteClientLimits {
        &self.0.limits
    }

    pub(in crate::remote) fn room(&self) -> &MemoryBudget {
        &self.0.room
    }

    /// Gives back calls that were paid for.
    pub(super) fn give_back(&self, calls: u32) {
        self.0.pace.give_back(calls);
    }

    /// Whether both are clones of one.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
