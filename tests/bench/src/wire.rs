//! Requests whose responses are not decoded, so that discarded bytes cost the same for every writer.

use std::time::Duration;

use anyhow::{Context, Result};
use kube::{Client, Config};
use renderhub::kubernetes::apply::lean_write;

/// Requests in flight of a bulk writer; more only wait in the API server.
pub const IN_FLIGHT: usize = 8;
/// Longest a request may take.
const DEADLINE: Duration = Duration::from_secs(60);

/// A request, or why it could not be made.
pub type Request = Result<http::Request<Vec<u8>>, kube::core::request::Error>;

/// A client of the cluster and user in `KUBECONFIG`, without retries.
///
/// # Errors
/// If there is no usable kubeconfig.
pub async fn client() -> Result<Client> {
    let mut config = Config::from_kubeconfig(&kube::config::KubeConfigOptions::default()).await?;
    config.default_retry = false;
    config.proxy_url = None;
    Ok(Client::try_from(config)?)
}

/// Sends a request and reads the answer as bytes only.
///
/// # Errors
/// If it fails, or the API server refuses.
pub async fn send(client: &Client, request: Request) -> Result<()> {
    let answer = client.request_text(request?);
    tokio::time::timeout(DEADLINE, answer)
        .await
        .context("a request took too long")??;
    Ok(())
}

/// The same for a write of one object, of which the API server answers with the metadata alone, as it does to a hub.
///
/// # Errors
/// If it fails, or the API server refuses.
pub async fn write(client: &Client, request: Request) -> Result<()> {
    send(client, lean_write(request)).await
}

/// Whether the object was gone already.
pub fn is_not_found(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(kube::Error::Api(status)) if status.is_not_found())
}
