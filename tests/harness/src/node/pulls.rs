//! Which registries the node's container runtime pulls from, and what it has of them.

use anyhow::{Result, ensure};
use serde_json::json;

use super::Node;
use crate::process::run;
use crate::rundir;

/// Where the runtime looks for a registry's certificate at each pull, below the node's directory.
pub(super) const HOSTS: &str = "hosts";

impl Node {
    /// Lets the container runtime pull from a registry whose certificate this authority signed; it reads that at each pull.
    pub(crate) fn trust_registry(&self, host: &str, ca_pem: &str) -> Result<()> {
        let dir = self.dir.join(HOSTS).join(host);
        std::fs::create_dir_all(&dir)?;
        let ca = dir.join("ca.pem");
        rundir::write_private(&ca, ca_pem.as_bytes())?;
        let (server, ca) = (json!(format!("https://{host}")), json!(ca));
        // In a table of its own: containerd 1.6 reads no certificate of the server above it.
        let hosts = format!("[host.{server}]\ncapabilities = [\"pull\", \"resolve\"]\nca = {ca}\n");
        rundir::write_private(&dir.join("hosts.toml"), hosts.as_bytes())
    }

    /// Deletes the images of a registry, so that the next pod must pull them.
    ///
    /// # Errors
    /// If the runtime does not answer, or keeps one.
    pub fn remove_images_of(&self, host: &str) -> Result<()> {
        let of_host = |name: &String| name.starts_with(&format!("{host}/"));
        let names: Vec<_> = self.images()?.into_iter().filter(of_host).collect();
        if names.is_empty() {
            return Ok(());
        }
        run(self.ctr().args(["images", "remove", "--sync"]).args(&names))?;
        ensure!(
            !self.images()?.iter().any(of_host),
            "the node keeps an image of {host}"
        );
        Ok(())
    }
}
