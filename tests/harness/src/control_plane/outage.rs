//! A control plane that dies, hangs and comes back, as a remote cluster does.

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::ControlPlane;
use crate::process::Process;

impl ControlPlane {
    /// Kills the API server: its port is closed, what it stored stays.
    ///
    /// # Errors
    /// If it has none.
    pub fn stop_api_server(&self) -> Result<()> {
        self.api_server()?.kill();
        Ok(())
    }

    /// Starts it again where it was, with the same keys, and waits until it is ready.
    ///
    /// # Errors
    /// If it still runs, or does not get ready.
    pub async fn start_api_server(&self) -> Result<()> {
        self.api_server()?.restart()?;
        self.until_live().await
    }

    /// Stops the API server in the middle of whatever it does: connections stay open and are accepted, and nothing is
    /// answered.
    ///
    /// # Errors
    /// If it does not run.
    pub fn freeze_api_server(&self) -> Result<()> {
        self.api_server()?.freeze()
    }

    /// Lets it go on.
    ///
    /// # Errors
    /// If it does not run.
    pub fn thaw_api_server(&self) -> Result<()> {
        self.api_server()?.signal(Signal::CONT)
    }

    fn api_server(&self) -> Result<&Process> {
        let mut servers = self.servers.iter();
        servers
            .find(|server| server.name() == "kube-apiserver")
            .context("this control plane has no API server")
    }
}
