//! The admin server: `/livez`, `/readyz` and `/metrics`. It shows nothing of any tenant and changes nothing.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use axum::routing::get;
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::plan::lease;

/// The state behind `/readyz`.
#[derive(Clone)]
pub struct Readiness {
    /// Whether everything was seen once.
    pub ready: watch::Receiver<bool>,
    /// What the instance does.
    pub state: watch::Receiver<lease::InstanceState>,
    /// The end.
    pub stop: CancellationToken,
}

#[derive(Clone)]
struct AdminState {
    registry: Arc<Registry>,
    health: Readiness,
}

/// Serves until the process ends; ready as a standby, and from the first sync on; not after `stop`.
///
/// # Errors
/// The listener failed.
pub async fn serve(listener: TcpListener, registry: Arc<Registry>, health: Readiness) -> std::io::Result<()> {
    let router = Router::new()
        .route("/livez", get(|| async { "ok" }))
        .route("/readyz", get(readyz))
        .route("/metrics", get(metrics))
        .with_state(AdminState { registry, health });
    axum::serve(listener, router).await
}

async fn readyz(State(AdminState { health, .. }): State<AdminState>) -> impl IntoResponse {
    if health.stop.is_cancelled() {
        (StatusCode::SERVICE_UNAVAILABLE, "stopping")
    } else if *health.state.borrow() == lease::InstanceState::Standby {
        (StatusCode::OK, "ok (standby)")
    } else if *health.ready.borrow() {
        (StatusCode::OK, "ok (active)")
    } else {
        (StatusCode::SERVICE_UNAVAILABLE, "not synced yet")
    }
}

async fn metrics(State(shared): State<AdminState>) -> impl IntoResponse {
    let mut text = String::new();
    let code = match encode(&mut text, &shared.registry) {
        Ok(()) => StatusCode::OK,
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR,
    };
    let type_ = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    (code, [(header::CONTENT_TYPE, type_)], text)
}
