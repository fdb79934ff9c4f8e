//! Flags of the admin port.

use std::net::SocketAddr;

use clap::{ArgAction, Args};

/// What the hub publishes on its admin port, which asks for no credential.
#[derive(Clone, Copy, Debug, Args)]
pub struct AdminArgs {
    /// Address of /livez, /readyz and /metrics.
    #[arg(long, env = "RENDERHUB_ADMIN_ADDRESS", default_value = "0.0.0.0:8080")]
    pub admin_address: SocketAddr,
    /// Whether the metrics of the queue name namespaces of tenants; otherwise they are summed.
    #[arg(
        long,
        env = "RENDERHUB_METRICS_BY_NAMESPACE",
        default_value_t = false,
        default_missing_value = "true",
        num_args = 0..=1,
        require_equals = true,
        action = ArgAction::Set
    )]
    pub metrics_by_namespace: bool,
}
