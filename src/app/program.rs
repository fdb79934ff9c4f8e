//! What each long-running program has before its own work: signals that end it, metrics, and the admin server that shows both.

use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::admin;
use super::error::AppError;
use super::signals::cancel_on_signal;
use crate::base::metrics::Metrics;
use crate::plan::lease::InstanceState;

/// A program that listens, and has nothing else to do yet.
pub(super) struct Program {
    /// The loops that run until the end.
    pub loops: JoinSet<()>,
    /// Cancelled by the first signal that asks the program to end.
    pub stop: CancellationToken,
    pub metrics: Metrics,
    /// Set once everything was seen.
    pub ready: watch::Sender<bool>,
    /// What the instance does, as the admin server shows it.
    pub state: watch::Sender<InstanceState>,
}

impl Program {
    /// Listens for the kubelet and for a scraper of metrics, and for signals.
    ///
    /// # Errors
    /// The address is taken, or signals cannot be caught.
    pub async fn start(admin_address: SocketAddr, state: InstanceState) -> Result<Self, AppError> {
        let listener = TcpListener::bind(admin_address).await.map_err(AppError::Bind)?;
        let stop = CancellationToken::new();
        let (metrics, registry) = Metrics::new();
        let (ready, is_ready) = watch::channel(false);
        let state = watch::Sender::new(state);
        let mut loops = JoinSet::new();
        loops.spawn(cancel_on_signal(stop.clone())?);
        let health = admin::Readiness {
            ready: is_ready,
            state: state.subscribe(),
            stop: stop.clone(),
        };
        let admin = admin::serve(listener, registry, health);
        loops.spawn(async move { _ = admin.await });
        Ok(Self {
            loops,
            stop,
            metrics,
            ready,
            state,
        })
    }
}
