//! Names to addresses, without a thread that a slow server could hold.
//!
//! A name is looked up exactly as it is written: no search list of the hub's own network turns a tenant's name into one of
//! the hub's Services. A name that was answered before, a new one, and one that ran out of time each wait in a line of
//! their own, so that no number of dead names delays a cluster that is known.

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

/// Lookups at a time of names that were answered before, and of new ones; each holds a socket.
const AT_ONCE: usize = 256;
/// Lookups at a time of names that ran out of time before.
const SLOW_AT_ONCE: usize = 32;
/// Names of which it is remembered whether they were answered.
const NAMES: usize = 8_192;
/// Answers that are remembered for as long as they say.
const CACHE: u64 = 1_024;
/// Addresses of one name that are looked at.
const ADDRESSES: usize = 16;

/// Resolves names for all links of the hub.
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
    /// Names, and whether they were answered last.
    answered: Mutex<HashMap<Box<str>, bool>>,
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver")
    }
}

impl Resolver {
    /// Asks the name servers of `/etc/resolv.conf`, after `/etc/hosts`.
    ///
    /// # Errors
    /// If there is no such file, or it cannot be read.
    pub fn system() -> Result<Self, ResolverError> {
        let (config, _) = system_conf::read_system_conf().map_err(|_| ResolverError)?;
        Self::build(config.name_servers().to_vec(), ResolveHosts::Always)
    }

    /// Asks these name servers over UDP, and TCP for what is too long.
    ///
    /// # Errors
    /// None that is known.
    pub fn with_servers(servers: &[SocketAddr]) -> Result<Self, ResolverError> {
        let at = |server: &SocketAddr| {
            let mut ways = [ConnectionConfig::udp(), ConnectionConfig::tcp()];
            for way in &mut ways {
                way.port = server.port();
            }
            NameServerConfig::new(server.ip(), true, ways.into())
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
    pub(super) async fn addresses(&self, name: &str, limit: Duration) -> Vec<IpAddr> {
        let before = self.answered().get(name).copied();
        let line = match before {
            Some(true) => &self.0.known,
            None => &self.0.new,
            Some(false) => &self.0.slow,
        };
        // Never closed.
        let Ok(_turn) = line.acquire().await else {
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
    // Two datagrams fit into the limit of a link.
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
    async fn names_without_end_are_not_remembered() {
        let resolver = Resolver::with_servers(&[]).unwrap();
        for number in 0..NAMES + 100 {
            resolver
                .addresses(&format!("name-{number}.test"), Duration::ZERO)
                .await;
        }
        assert_eq!(resolver.answered().len(), NAMES);
    }
}
