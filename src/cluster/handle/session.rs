//! A connection that stands: its link, and the calls that are under way on it.

#![warn(clippy::wildcard_enum_match_arm)]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::task::task_tracker::TaskTrackerToken;

use crate::cluster::link::Link;
use crate::kubeconfig::{Fingerprint, Login};

use super::Desired;

/// Longest that calls of a connection may go on after another took its place.
const DRAIN: Duration = Duration::from_secs(30);

/// One connection, from when it stood until it is cut.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) link: Link,
    /// Tells it from connections to elsewhere.
    connection: Fingerprint,
    /// Tells its credential from others.
    identity: Mutex<Fingerprint>,
    calls: TaskTracker,
    /// Counts credentials: what is verified of one is verified anew of the next.
    credential: watch::Sender<u64>,
}

impl Session {
    pub(super) fn new(link: Link, wanted: &Desired) -> Self {
        Self {
            link,
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
    pub(super) fn renew(&self, wanted: &Desired) {
        let token = match &wanted.config.login {
            Login::Token(token) => token,
            // Another certificate is another connection.
            Login::Certificate { .. } => return,
        };
        let mut identity = self.identity.lock().unwrap_or_else(PoisonError::into_inner);
        if self.connection != wanted.connection || *identity == wanted.identity {
            return;
        }
        *identity = wanted.identity;
        // One that cannot be sent is none: the decoder lets no such token through.
        if self.link.set_token(token).is_ok() {
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
        self.link.cut();
    }
}
