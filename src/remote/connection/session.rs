//! A connection that stands: its link, and the calls that are under way on it.

#![warn(clippy::wildcard_enum_match_arm)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::remote::client::RemoteClient;
use crate::remote::kubeconfig::{ClusterCredential, Fingerprint};

use super::desired::DesiredConnection;

/// Longest that calls of a connection may go on after another took its place.
const DRAIN: Duration = Duration::from_secs(30);

/// One connection, from when it stood until it is cut.
#[derive(Debug)]
pub(super) struct ConnectionSession {
    pub(super) client: RemoteClient,
    /// Tells it from connections to elsewhere.
    connection: Fingerprint,
    /// Tells its credential from others.
    identity: Mutex<Fingerprint>,
    calls: TaskTracker,
    /// Counts credentials: what is verified of one is verified anew of the next.
    credential: watch::Sender<u64>,
}

impl ConnectionSession {
    pub(super) fn new(link: RemoteClient, wanted: &DesiredConnection) -> Self {
        Self {
            client: link,
            connection: wanted.connection,
            identity: Mutex::new(wanted.identity),
            calls: TaskTracker::new(),
            credential: watch::Sender::new(0),
        }
    }

    /// Keeps the connection while it is held, even if another takes its place.
    pub(super) fn call(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// Lets the next request carry the token that is wanted, where it is all that differs.
    pub(super) fn renew(&self, wanted: &DesiredConnection) {
        let token = match &wanted.config.login {
            ClusterCredential::Token(token) => token,
            // Another certificate is another connection.
            ClusterCredential::Certificate { .. } => return,
        };
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if self.connection != wanted.connection || *identity == wanted.identity {
            return;
        }
        *identity = wanted.identity;
        // One that cannot be sent is none: the decoder lets no such token through.
        if self.client.set_token(token).is_ok() {
            self.credential.send_modify(|count| *count += 1);
        }
    }

    /// Tells of each other credential from now on.
    pub(super) fn credentials(&self) -> watch::Receiver<u64> {
        self.credential.subscribe()
    }

    /// Ends it once no call is under way, or it takes too long, or everything ends.
    pub(super) async fn drain(self: Arc<Self>, cut: CancellationToken) {
        self.calls.close();
        _ = cut.run_until_cancelled(timeout(DRAIN, self.calls.wait())).await;
        self.client.cut();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use http::Request;
    use secrecy::SecretString;
    use tokio::time::{Instant, sleep};

    use super::*;
    use crate::kubernetes::apply::CallError;
    use crate::plan::remote::address::AddressPolicy;
    use crate::remote::client::RemoteClientSettings;
    use crate::remote::connection_registry::RateLimit;
    use crate::remote::kubeconfig::{ApiServerHost, RemoteConfig};
    use crate::remote::limits::RemoteClientLimits;
    use crate::remote::memory_budget::MemoryBudget;
    use crate::remote::resolve::Resolver;

    /// A connection to a server that takes connections and says nothing, on which a call may take longer than anything here.
    fn session(server: &TcpListener) -> Arc<ConnectionSession> {
        let config = RemoteConfig {
            host: ApiServerHost::Address(Ipv4Addr::LOCALHOST.into()),
            port: server.local_addr().unwrap().port(),
            tls_server_name: None,
            authorities: Vec::new(),
            login: ClusterCredential::Token(SecretString::from("token")),
        };
        let limits = RemoteClientLimits {
            total: 100 * DRAIN,
            connect: 100 * DRAIN,
            ..RemoteClientLimits::default()
        };
        let settings = RemoteClientSettings {
            guard: Arc::new(AddressPolicy {
                allowed: vec!["127.0.0.0/8".parse().unwrap()],
                denied: Vec::new(),
            }),
            resolver: Resolver::with_servers(&[]).unwrap(),
            limits: Arc::new(limits),
            memory_budget: MemoryBudget::default(),
            fence: crate::kubernetes::write_fence::tests::open(),
        };
        let link = RemoteClient::new(&config, &settings).unwrap();
        Arc::new(ConnectionSession::new(
            link,
            &DesiredConnection::new(config, RateLimit::default()),
        ))
    }

    async fn ask(session: Arc<ConnectionSession>) -> Result<(), CallError> {
        let request = Request::get("/api").body(Vec::new()).unwrap();
        session.client.send(request, None).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_when_another_connection_took_its_place_and_is_ended_after_a_while() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // How long the session is needed, and how long it lasts.
        for (needed, lasts) in [
            (Duration::ZERO, Duration::ZERO),
            (DRAIN / 2, DRAIN / 2),
            (2 * DRAIN, DRAIN),
        ] {
            let session = session(&server);
            let (call, begin) = (session.call(), Instant::now());
            let asked = tokio::spawn(ask(Arc::clone(&session)));
            tokio::spawn(async move {
                if !needed.is_zero() {
                    sleep(needed).await;
                }
                drop(call);
            });
            session.drain(CancellationToken::new()).await;
            assert_eq!(begin.elapsed(), lasts, "needed for {needed:?}");
            // The link is cut, and with it the call on it.
            let answer = asked.await.unwrap();
            assert!(matches!(answer, Err(CallError::Transport(_))), "{answer:?}");
            assert_eq!(begin.elapsed(), lasts, "needed for {needed:?}");
        }
    }
}
