//! What the loops of the hub share.

use kube::Client;
use tokio_util::sync::CancellationToken;

use crate::app::config::Settings;
use crate::base::metrics::Metrics;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::write_fence::WriteFence;

/// The clients and settings that the loops share.
pub(super) struct HubParts {
    /// The hub's own client, through the fence.
    pub client: Client,
    /// A client of the same API server without a credential, through the fence.
    pub anonymous: Client,
    /// The hub's own calls.
    pub hub_client: HubClient,
    /// Opens while the hub holds its Lease.
    pub fence: WriteFence,
    pub metrics: Metrics,
    pub settings: Settings,
    pub stop: CancellationToken,
}
