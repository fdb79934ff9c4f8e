//! `renderhub-world` starts a control plane, a node and a registry, prints `ready` and waits.
//!
//! The test that kills it looks for what is left; a person can look around with the kubeconfig it prints.

use anyhow::Result;
use renderhub_harness::{ControlPlane, Node, Registry, RegistryOptions, rundir};

#[tokio::main]
async fn main() -> Result<()> {
    let plane = ControlPlane::builder().with_node_network().start().await?;
    let node = Node::start(&plane).await?;
    let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
    println!("kubeconfig {}", plane.admin().kubeconfig()?.display());
    println!("registry {}", registry.host());
    println!("directory {}", rundir::of_this_process()?.display());
    println!("ready");
    tokio::signal::ctrl_c().await?;
    Ok(())
}
