//! A way to a registry that can be held for minutes, and whose clients still finish when it opens again.
//!
//! A renderer waits 60 seconds for an answer and then gives up; where a connection breaks it tries again, four times in all. So a
//! connection that nothing may pass breaks before that.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How long a connection is kept while nothing passes.
const KEPT: Duration = Duration::from_secs(50);

/// Passes connections on to a registry; it ends when it is dropped.
pub struct Front {
    address: SocketAddr,
    is_held: watch::Sender<bool>,
    _server: AbortOnDropHandle<()>,
}

impl Front {
    /// In front of the registry that listens there, on the same address.
    pub async fn before(registry: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((registry.ip(), 0)).await?;
        let address = listener.local_addr()?;
        let (is_held, seen) = watch::channel(false);
        let serve = async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(carry(client, registry, seen.clone()));
            }
        };
        Ok(Self {
            address,
            is_held,
            _server: AbortOnDropHandle::new(tokio::spawn(serve)),
        })
    }

    /// `address:port`, as in a chart reference.
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// From now on new connections get no answer.
    pub fn hold(&self) {
        self.is_held.send_replace(true);
    }

    /// Lets connections through again, those that wait too.
    pub fn release(&self) {
        self.is_held.send_replace(false);
    }
}

async fn carry(mut client: TcpStream, registry: SocketAddr, mut is_held: watch::Receiver<bool>) {
    let released = async { is_held.wait_for(|is_held| !is_held).await.is_ok() };
    if tokio::time::timeout(KEPT, released).await != Ok(true) {
        return;
    }
    if let Ok(mut upstream) = TcpStream::connect(registry).await {
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream).await;
    }
}
