//! An open connection: its client, and the calls in flight on it.

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

/// Longest time for which calls may go on after another session replaced theirs.
const DRAIN: Duration = Duration::from_secs(30);

/// One open connection, until it is cut.
#[derive(Debug)]
pub(super) struct ConnectionSession {
    pub(super) client: RemoteClient,
    /// That of its kubeconfig; another one needs another session.
    fingerprint_without_token: Fingerprint,
    /// That of the kubeconfig whose token it sends.
    fingerprint: Mutex<Fingerprint>,
    calls: TaskTracker,
    /// Counts rotations: the checks made with one token are repeated with the next.
    token_rotations: watch::Sender<u64>,
}

impl ConnectionSession {
    pub(super) fn new(client: RemoteClient, wanted: &DesiredConnection) -> Self {
        Self {
            client,
            fingerprint_without_token: wanted.fingerprint_without_token,
            fingerprint: Mutex::new(wanted.fingerprint),
            calls: TaskTracker::new(),
            token_rotations: watch::Sender::new(0),
        }
    }

    /// Keeps the session open while the token is held, even if another session replaces it.
    pub(super) fn call(&self) -> TaskTrackerToken {
        self.calls.token()
    }

    /// Sends the rotated token from the next request on, if nothing else differs.
    pub(super) fn rotate_token(&self, wanted: &DesiredConnection) {
        let token = match &wanted.config.login {
            ClusterCredential::Token(token) => token,
            // Another certificate needs a new connection.
            ClusterCredential::Certificate { .. } => return,
        };
        let mut fingerprint = self.fingerprint.lock().unwrap_or_else(PoisonError::into_inner);
        if self.fingerprint_without_token != wanted.fingerprint_without_token
            || *fingerprint == wanted.fingerprint
        {
            return;
        }
        *fingerprint = wanted.fingerprint;
        // The kubeconfig decoder refuses tokens that cannot be sent, so this does not fail.
        if self.client.set_token(token).is_ok() {
            self.token_rotations.send_modify(|count| *count += 1);
        }
    }

    /// Notifies of each later rotation.
    pub(super) fn token_rotations(&self) -> watch::Receiver<u64> {
        self.token_rotations.subscribe()
    }

    /// Ends the session once no call is in flight, after [`DRAIN`] at the latest, or with `cut`.
    pub(super) async fn drain(self: Arc<Self>, cut: CancellationToken) {
        self.calls.close();
        _ = cut.run_until_cancelled(timeout(DRAIN, self.calls.wait())).await;
        self.client.close();
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

    /// A session to a server that accepts connections and never answers; calls have a deadline far beyond [`DRAIN`].
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
        let client = RemoteClient::new(&config, &settings).unwrap();
        Arc::new(ConnectionSession::new(
            client,
            &DesiredConnection::new(config, RateLimit::default()),
        ))
    }

    async fn get_api(session: Arc<ConnectionSession>) -> Result<(), CallError> {
        let request = Request::get("/api").body(Vec::new()).unwrap();
        session.client.send(request, None).await.map(drop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_goes_on_when_another_connection_took_its_place_and_is_ended_after_a_while() {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        // How long a call holds the session, and how long it lasts.
        for (held, lasts) in [
            (Duration::ZERO, Duration::ZERO),
            (DRAIN / 2, DRAIN / 2),
            (2 * DRAIN, DRAIN),
        ] {
            let session = session(&server);
            let (call, begin) = (session.call(), Instant::now());
            let call_task = tokio::spawn(get_api(Arc::clone(&session)));
            tokio::spawn(async move {
                if !held.is_zero() {
                    sleep(held).await;
                }
                drop(call);
            });
            session.drain(CancellationToken::new()).await;
            assert_eq!(begin.elapsed(), lasts, "held for {held:?}");
            // Cutting the client ends the call on it.
            let answer = call_task.await.unwrap();
            assert!(matches!(answer, Err(CallError::Transport(_))), "{answer:?}");
            assert_eq!(begin.elapsed(), lasts, "held for {held:?}");
        }
    }
}
