//! The state of a remote client: its connections, its token and its rate limiter, which all its clones share.

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

/// What a remote client needs besides its kubeconfig.
#[derive(Clone, Debug)]
pub struct RemoteClientSettings {
    /// Which addresses may be connected to.
    pub guard: Arc<AddressPolicy>,
    /// Resolves names; one for all clients.
    pub resolver: Resolver,
    /// Bounds of each call and each watch.
    pub limits: Arc<RemoteClientLimits>,
    /// Memory for responses; one for all clients.
    pub memory_budget: MemoryBudget,
    /// The write fence, which every request but a GET goes through.
    pub fence: WriteFence,
}

/// Client of one remote API server. Clones share connections, rate limiter and token; the connections end with the last clone.
#[derive(Clone)]
pub struct RemoteClient(pub(super) Arc<RemoteClientInner>);

pub(super) struct RemoteClientInner {
    pub(super) base: String,
    pub(super) pool: ConnectionPool,
    pub(super) limits: Arc<RemoteClientLimits>,
    pub(super) token: RwLock<Option<HeaderValue>>,
    pub(super) pace: RateLimiter,
    pub(super) in_flight: Arc<Semaphore>,
    pub(super) memory_budget: MemoryBudget,
    pub(super) fence: WriteFence,
    pub(super) cut: CancellationToken,
    _cut_at_end: DropGuard,
}

impl fmt::Debug for RemoteClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RemoteClient")
    }
}

impl RemoteClient {
    /// Makes a client. It connects with the first call.
    ///
    /// # Errors
    /// If no connection can be made with the configuration, for example because the key belongs to another certificate.
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
            in_flight: Arc::new(Semaphore::new(limits.in_flight)),
            limits,
            memory_budget: settings.memory_budget.clone(),
            fence: settings.fence.clone(),
            cut: cut.clone(),
            _cut_at_end: cut.drop_guard(),
        })))
    }

    /// Sends another token from the next request on, over the same connections. A client with a certificate ignores it.
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

    /// Sets the calls per second and the burst from now on; each is at least one.
    pub fn set_rate_limit(&self, qps: u32, burst: u32) {
        self.0.pace.set(qps, burst);
    }

    /// Ends every connection, call and watch at once and permanently.
    pub fn close(&self) {
        self.0.cut.cancel();
    }

    /// Number of connections that the client has opened.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.0.pool.opened()
    }

    pub(in crate::remote) fn limits(&self) -> &RemoteClientLimits {
        &self.0.limits
    }

    pub(in crate::remote) fn memory_budget(&self) -> &MemoryBudget {
        &self.0.memory_budget
    }

    /// Gives unused reserved calls back to the rate limiter.
    pub(super) fn give_back(&self, calls: u32) {
        self.0.pace.give_back(calls);
    }

    /// Whether both are clones of one client.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}
