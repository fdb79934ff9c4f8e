//! One connection: a checked address, a socket that notices when its peer is gone, and TLS.
//!
//! It ignores proxy variables of the environment: a connection goes to the address that was checked.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::sockopt;
use rustls::pki_types::ServerName;
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::limits::RemoteClientLimits;
use super::resolve::Resolver;
use super::socket::ThrottledSocket;
use super::tls::{self, RemoteClientError};
use crate::kubernetes::apply::{CallError, TransportStage};
use crate::kubernetes::write_fence::WritesInFlight;
use crate::plan::remote::address::AddressPolicy;
use crate::remote::kubeconfig::{ApiServerHost, RemoteConfig};

/// Most addresses of one name that are tried.
const ADDRESSES: usize = 4;
/// Longest wait for one of several addresses.
const PER_ADDRESS: Duration = Duration::from_secs(3);
/// TCP keepalives without an answer after which a connection is dead.
const KEEPALIVES: u32 = 3;

/// Makes connections to one API server.
pub(super) struct RemoteConnector {
    host: ApiServerHost,
    port: u16,
    name: ServerName<'static>,
    tls: TlsConnector,
    guard: Arc<AddressPolicy>,
    resolver: Resolver,
}

impl RemoteConnector {
    pub(super) fn new(
        config: &RemoteConfig,
        guard: Arc<AddressPolicy>,
        resolver: Resolver,
    ) -> Result<Self, RemoteClientError> {
        Ok(Self {
            host: config.host.clone(),
            port: config.port,
            name: tls::server_name(config)?,
            tls: TlsConnector::from(Arc::new(tls::client_config(config)?)),
            guard,
            resolver,
        })
    }

    /// A connection whose peer showed the expected certificate, and whose socket checks the write fence for writes in flight.
    ///
    /// # Errors
    /// [`CallError::Barred`] where the address is not permitted, [`CallError::Timeout`] when it took too long, else
    /// [`CallError::Transport`] with the stage at which it failed.
    pub(super) async fn connect(
        &self,
        limits: &RemoteClientLimits,
        in_flight: WritesInFlight,
    ) -> Result<TlsStream<ThrottledSocket>, CallError> {
        let connected = timeout(limits.connect, async {
            let addresses = self.permitted_addresses(limits).await?;
            let tcp = self.dial(&addresses, limits).await?;
            let socket = ThrottledSocket::new(tcp, limits.read_rate, limits.read_burst, in_flight);
            let tls = self.tls.connect(self.name.clone(), socket).await;
            tls.map_err(|_| CallError::Transport(TransportStage::Tls))
        });
        connected.await.unwrap_or(Err(CallError::Timeout))
    }

    /// The addresses of the host, all of which must be permitted. One forbidden address refuses the name, because the owner of
    /// its DNS zone then probes the hub's network.
    async fn permitted_addresses(&self, limits: &RemoteClientLimits) -> Result<Vec<IpAddr>, CallError> {
        let addresses = match &self.host {
            ApiServerHost::Address(address) => vec![*address],
            ApiServerHost::Name(name) => self.resolver.addresses(name, limits.resolve).await,
        };
        let is_permitted = addresses.iter().all(|address| self.guard.permits(*address));
        if !is_permitted {
            return Err(CallError::Barred);
        }
        if addresses.is_empty() {
            return Err(CallError::Transport(TransportStage::Resolve));
        }
        Ok(addresses)
    }

    async fn dial(&self, addresses: &[IpAddr], limits: &RemoteClientLimits) -> Result<TcpStream, CallError> {
        let limit = if addresses.len() > 1 {
            PER_ADDRESS
        } else {
            limits.connect
        };
        let mut error = CallError::Transport(TransportStage::Connect);
        for address in addresses.iter().take(ADDRESSES) {
            let to = SocketAddr::new(*address, self.port);
            match timeout(limit, dial_address(to, limits)).await {
                Ok(Ok(tcp)) => return Ok(tcp),
                Ok(Err(_)) => {}
                Err(_) => error = CallError::Timeout,
            }
        }
        Err(error)
    }
}

async fn dial_address(to: SocketAddr, limits: &RemoteClientLimits) -> io::Result<TcpStream> {
    let socket = if to.is_ipv4() {
        TcpSocket::new_v4()?
    } else {
        TcpSocket::new_v6()?
    };
    sockopt::set_socket_keepalive(&socket, true)?;
    sockopt::set_tcp_keepidle(&socket, limits.keepalive)?;
    sockopt::set_tcp_keepintvl(&socket, limits.keepalive)?;
    sockopt::set_tcp_keepcnt(&socket, KEEPALIVES)?;
    let millis = u32::try_from(limits.user_timeout.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(&socket, millis)?;
    sockopt::set_tcp_nodelay(&socket, true)?;
    socket.connect(to).await
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use secrecy::SecretString;
    use tokio::time::{Instant, advance};

    use super::*;
    use crate::remote::kubeconfig::ClusterCredential;

    /// An address at which Linux answers nothing, because its accept queue is full, and the values that keep it full.
    fn silent() -> (SocketAddr, impl Sized) {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
        let listener = socket.listen(1).unwrap();
        let address = listener.local_addr().unwrap();
        let mut full = Vec::new();
        while let Ok(connection) = std::net::TcpStream::connect_timeout(&address, Duration::from_millis(500))
        {
            full.push(connection);
            assert!(full.len() < 16, "the accept queue never fills");
        }
        (address, (listener, full))
    }

    fn connector(port: u16) -> RemoteConnector {
        let config = RemoteConfig {
            host: ApiServerHost::Address(Ipv4Addr::LOCALHOST.into()),
            port,
            tls_server_name: None,
            authorities: Vec::new(),
            login: ClusterCredential::Token(SecretString::from("token")),
        };
        RemoteConnector::new(&config, Arc::default(), Resolver::with_servers(&[]).unwrap()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn of_several_addresses_one_that_does_not_answer_has_less_time_and_the_next_is_tried() {
        let (silent, _full) = silent();
        let limits = RemoteClientLimits::default();
        let alone = Instant::now();
        let failed = connector(silent.port()).dial(&[silent.ip()], &limits).await;
        assert_eq!(
            (failed.unwrap_err(), alone.elapsed()),
            (CallError::Timeout, limits.connect)
        );
        let both = Instant::now();
        let failed = connector(silent.port()).dial(&[silent.ip(); 2], &limits).await;
        assert_eq!(
            (failed.unwrap_err(), both.elapsed()),
            (CallError::Timeout, 2 * PER_ADDRESS)
        );

        let other = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        let _answers = TcpListener::bind((other, silent.port())).unwrap();
        let dialled = tokio::spawn(async move {
            let addresses = [silent.ip(), other];
            let tcp = connector(silent.port())
                .dial(&addresses, &RemoteClientLimits::default())
                .await;
            tcp.map(|tcp| tcp.peer_addr().unwrap().ip())
        });
        tokio::task::yield_now().await;
        advance(PER_ADDRESS.mul_f64(0.9)).await;
        tokio::task::yield_now().await;
        assert!(!dialled.is_finished());
        advance(PER_ADDRESS.mul_f64(0.2)).await;
        // The paused clock does not advance while the test waits for the kernel.
        for _ in 0..5_000 {
            if dialled.is_finished() {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
        assert!(dialled.is_finished());
        assert_eq!(dialled.await.unwrap(), Ok(other));
    }
}
