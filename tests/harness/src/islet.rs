//! An address behind a link that can be cut: what is sent there is then lost without an error.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd as _;
use std::process::Command;

use anyhow::{Context, Result, anyhow};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tempfile::TempDir;
use tokio::net::TcpListener;

use crate::lane::Lane;
use crate::process::run;

/// A network namespace with one address, 198.18.N.2; it ends with the handle.
#[derive(Debug)]
pub struct Islet {
    lane: Lane,
    _dir: TempDir,
}

impl Islet {
    /// Makes one.
    ///
    /// # Errors
    /// If this is not root, or no network can be made.
    pub async fn start() -> Result<Self> {
        let dir = TempDir::new()?;
        Ok(Self {
            lane: Lane::take(dir.path()).await?,
            _dir: dir,
        })
    }

    /// The address there.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.lane.node()
    }

    /// A socket that listens there; it can be used from anywhere.
    ///
    /// # Errors
    /// If the namespace cannot be entered.
    pub fn listen(&self) -> Result<TcpListener> {
        let namespace = std::fs::File::open(self.lane.namespace())?;
        let address = SocketAddr::new(self.address(), 0);
        // A thread of its own, because it stays in the namespace; the socket stays there too, also when it is used elsewhere.
        let made = std::thread::spawn(move || {
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))?;
            let listener = std::net::TcpListener::bind(address).context("cannot listen there")?;
            listener.set_nonblocking(true)?;
            anyhow::Ok(listener)
        });
        let listener = made
            .join()
            .map_err(|_| anyhow!("the thread in the namespace failed"))??;
        Ok(TcpListener::from_std(listener)?)
    }

    /// Drops everything that comes or goes over TCP from now on, acknowledgements too, without an error.
    ///
    /// # Errors
    /// If there is no `iptables`.
    pub fn cut(&self) -> Result<()> {
        for chain in ["INPUT", "OUTPUT"] {
            let mut command = Command::new("nsenter");
            command.arg(format!("--net={}", self.lane.namespace().display()));
            run(command.args(["--", "iptables", "-I", chain, "-p", "tcp", "-j", "DROP"]))?;
        }
        Ok(())
    }
}
