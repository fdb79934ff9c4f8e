//! Which hub `renderhub stop` ends.

use std::time::Duration;

use clap::Args as ClapArgs;

use super::parse::duration;
use crate::app::stop::HubDeployment;

/// Flags of `renderhub stop`.
#[derive(Debug, ClapArgs)]
pub struct StopArgs {
    /// Namespace of the hub.
    #[arg(long)]
    pub namespace: String,
    /// Name of its Deployment.
    #[arg(long)]
    pub deployment: String,
    /// Labels that select its pods, such as `app=hub,release=main`.
    #[arg(long)]
    pub selector: String,
    /// Longest that is waited until all of them have ended.
    #[arg(long, default_value = "40s", value_parser = duration)]
    pub timeout: Duration,
}

impl StopArgs {
    /// The hub that is meant.
    #[must_use]
    pub fn hub(&self) -> HubDeployment {
        HubDeployment {
            namespace: self.namespace.clone(),
            deployment: self.deployment.clone(),
            selector: self.selector.clone(),
        }
    }
}
