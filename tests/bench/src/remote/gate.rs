//! Forwarders to one API server under many loopback addresses: they pass everything on, until one is frozen.
//!
//! They run in the bench, so that no measured process pays for them.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

/// One address; it closes with the handle, and every connection through it.
#[derive(Debug)]
pub struct Gate {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
    task: AbortHandle,
}

impl Gate {
    /// Opens the forwarder of this number, at a free port.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn open(number: u16, to: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((address(number), 0))
            .await
            .context("a gate cannot listen; 1,000 of them need 4,000 open files: see `ulimit -n`")?;
        let address = listener.local_addr()?;
        let (frozen, is_frozen) = watch::channel(false);
        let task = tokio::spawn(accept(listener, to, is_frozen)).abort_handle();
        Ok(Self {
            address,
            frozen,
            task,
        })
    }

    /// The URL of the API server by this way.
    pub fn url(&self) -> String {
        format!("https://{}", self.address)
    }

    /// From now on connections are accepted and nothing passes, nor on those that are open.
    pub fn freeze(&self) {
        self.frozen.send_replace(true);
    }

    /// Ends what was frozen, and passes on what comes from now on.
    pub fn thaw(&self) {
        self.frozen.send_replace(false);
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// 127.200.0.0/16, never an address that ends in 0 or 255.
fn address(number: u16) -> Ipv4Addr {
    let [third, fourth] = [number / 250, 1 + number % 250].map(|part| u8::try_from(part).unwrap_or(u8::MAX));
    Ipv4Addr::new(127, 200, third, fourth)
}

async fn accept(listener: TcpListener, to: SocketAddr, is_frozen: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    while let Ok((from, _)) = listener.accept().await {
        connections.spawn(pass(from, to, is_frozen.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn pass(mut from: TcpStream, to: SocketAddr, mut is_frozen: watch::Receiver<bool>) {
    let passed = {
        let through = async {
            let mut there = TcpStream::connect(to).await?;
            from.set_nodelay(true)?;
            there.set_nodelay(true)?;
            tokio::io::copy_bidirectional(&mut from, &mut there).await
        };
        tokio::select! {
            biased;
            _ = is_frozen.wait_for(|is| *is) => None,
            done = through => Some(done),
        }
    };
    if passed.is_none() {
        // The socket is kept, and nothing is read or written: a process that hangs.
        _ = is_frozen.wait_for(|is| !*is).await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::timeout;

    use super::*;

    /// A server that says everything back.
    async fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let (mut from, mut to) = stream.split();
                    _ = tokio::io::copy(&mut from, &mut to).await;
                });
            }
        });
        address
    }

    async fn is_answered(stream: &mut TcpStream) -> bool {
        if stream.write_all(b"?").await.is_err() {
            return false;
        }
        let answer = timeout(Duration::from_millis(300), stream.read_u8()).await;
        matches!(answer, Ok(Ok(b'?')))
    }

    #[tokio::test]
    async fn a_frozen_gate_takes_connections_and_says_nothing_until_it_thaws() {
        let gate = Gate::open(0, echo().await).await.unwrap();
        let connect = || TcpStream::connect(gate.address);
        let mut before = connect().await.unwrap();
        assert!(is_answered(&mut before).await);
        gate.freeze();
        assert!(!is_answered(&mut before).await, "one that stands is frozen too");
        let mut meanwhile = connect().await.unwrap();
        assert!(!is_answered(&mut meanwhile).await);
        gate.thaw();
        assert!(is_answered(&mut connect().await.unwrap()).await);
    }

    #[test]
    fn every_gate_has_an_address_of_its_own() {
        let all: std::collections::BTreeSet<_> = (0..10_000).map(address).collect();
        assert_eq!(all.len(), 10_000);
        assert!(
            all.iter()
                .all(|address| address.is_loopback() && ![0, 255].contains(&address.octets()[3]))
        );
    }
}
