//! Resolves names to addresses, without a thread that a slow server could block.
//!
//! A name is looked up exactly as it is written: no DNS search list turns a tenant's name into one of the hub's Services. Names
//! that were resolved before, new names, and names that timed out each have a queue of their own, so that no number of dead
//! names delays a known cluster.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hickory_resolver::config::{
    ConnectionConfig, LookupIpStrategy, NameServerConfig, ResolveHosts, ResolverConfig, ResolverOpts,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::proto::rr::Name;
use hickory_resolver::{TokioResolver, system_conf};
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Lookups at a time of names that were resolved before, and of new ones; each holds a socket.
const AT_ONCE: usize = 256;
/// Lookups at a time of names that timed out before.
const SLOW_AT_ONCE: usize = 32;
/// Most names whose last result is remembered.
const NAMES: usize = 8_192;
/// Most DNS answers that are cached, each until its TTL.
const CACHE: u64 = 1_024;
/// Most addresses of one name that are used.
const ADDRESSES: usize = 16;

/// Resolves names for all remote clients of the hub.
#[derive(Clone)]
pub struct Resolver(Arc<ResolverInner>);

/// The name servers of the hub are not known: its `resolv.conf` cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the name servers of this machine are not known")]
pub struct ResolverError;

struct ResolverInner {
    resolver: TokioResolver,
    known: Semaphore,
    new: Semaphore,
    slow: Semaphore,
    /// Names, and whether their last lookup was answered.
    answered: Mutex<HashMap<Box<str>, bool>>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// Uses the name servers of `/etc/resolv.conf`, after `/etc/hosts`.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be read.
    pub fn system() -> Result<Self, ResolverError> {
        let (config, _) = system_conf::read_system_conf().map_err(|_| ResolverError)?;
        Self::build(config.name_servers().to_vec(), ResolveHosts::Always)
    }

    /// Uses these name servers over UDP, and over TCP where an answer is too long.
    ///
    /// # Errors
    /// None that is known.
    pub fn with_servers(servers: &[SocketAddr]) -> Result<Self, ResolverError> {
        let at = |server: &SocketAddr| {
            let mut protocols = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for protocol in &mut protocols {
                protocol.port = server.port();
            }
            NameServerConfig::new(server.ip(), true, protocols.into())
        };
        Self::build(servers.iter().map(at).collect(), ResolveHosts::Never)
    }

    fn build(servers: Vec<NameServerConfig>, hosts: ResolveHosts) -> Result<Self, ResolverError> {
        let config = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config, TokioRuntimeProvider::default());
        *builder.options_mut() = options(hosts);
        Ok(Self(Arc::new(ResolverInner {
            resolver: builder.build().map_err(|_| ResolverError)?,
            known: Semaphore::new(AT_ONCE),
            new: Semaphore::new(AT_ONCE),
            slow: Semaphore::new(SLOW_AT_ONCE),
            answered: Mutex::default(),
        })))
    }

    /// The addresses of a name, IPv4 before IPv6; none where there is no such name, or no answer within the limit.
    pub async fn addresses(&self, name: &str, limit: Duration) -> Vec<IpAddr> {
        let before = self.answered().get(name).copied();
        let queue = match before {
            Some(true) => &self.0.known,
            None => &self.0.new,
            Some(false) => &self.0.slow,
        };
        // The semaphore is never closed.
        let Ok(_slot) = queue.acquire().await else {
            return Vec::new();
        };
        let found = timeout(limit, self.look_up(name)).await;
        let mut answered = self.answered();
        if answered.len() < NAMES || before.is_some() {
            answered.insert(name.into(), found.is_ok());
        }
        found.unwrap_or_default()
    }

    async fn look_up(&self, name: &str) -> Vec<IpAddr> {
        let Ok(mut name) = Name::from_ascii(name) else {
            return Vec::new();
        };
        name.set_fqdn(true);
        let found = self.0.resolver.lookup_ip(name).await;
        found
            .map(|ips| ips.iter().take(ADDRESSES).collect())
            .unwrap_or_default()
    }

    fn answered(&self) -> MutexGuard<'_, HashMap<Box<str>, bool>> {
        self.0.answered.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn options(hosts: ResolveHosts) -> ResolverOpts {
    let mut options = ResolverOpts::default();
    // Two tries fit into `RemoteClientLimits::resolve`.
    options.timeout = Duration::from_millis(900);
    options.attempts = 1;
    options.ip_strategy = LookupIpStrategy::Ipv4thenIpv6;
    options.cache_size = CACHE;
    options.use_hosts_file = hosts;
    options.max_active_requests = AT_ONCE;
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Holds: K14.
    #[tokio::test]
    async fn the_number_of_remembered_names_is_bounded() {
        let resolver = Resolver::with_servers(&[]).unwrap();
        for number in 0..NAMES + 100 {
            resolver
                .addresses(&format!("name-{number}.test"), Duration::ZERO)
                .await;
        }
        assert_eq!(resolver.answered().len(), NAMES);
    }
}
