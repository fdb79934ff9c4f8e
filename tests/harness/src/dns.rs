//! A name server that answers as a test says, or never.

use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::Result;
use tokio::net::UdpSocket;
use tokio::task::JoinHandle;

use crate::net;

/// The answer for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// Its addresses, which no resolver may cache; with none the name does not exist.
    Are(Vec<Ipv4Addr>),
    /// Nothing, ever.
    Nothing,
}

/// A name server on a loopback address of its own; it ends with the handle.
pub struct Dns {
    address: SocketAddr,
    asked: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl fmt::Debug for Dns {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dns")
            .field("address", &self.address)
            .finish_non_exhaustive()
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Dns {
    /// Answers each question for the addresses of a name, which comes in lower case and without a dot at its end.
    ///
    /// # Errors
    /// If it cannot listen.
    pub async fn start(says: impl Fn(&str) -> Said + Send + 'static) -> Result<Self> {
        let socket = UdpSocket::bind((net::loopback(), 0)).await?;
        let (address, asked) = (socket.local_addr()?, Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&asked);
        let task = tokio::spawn(async move {
            let mut packet = [0; 1_500];
            while let Ok((len, from)) = socket.recv_from(&mut packet).await {
                count.fetch_add(1, Ordering::Relaxed);
                if let Some(answer) = answer(&packet[..len], &says) {
                    _ = socket.send_to(&answer, from).await;
                }
            }
        });
        Ok(Self { address, asked, task })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Questions it was asked so far.
    #[must_use]
    pub fn asked(&self) -> usize {
        self.asked.load(Ordering::Relaxed)
    }
}

/// Type of a question for an IPv4 address.
const A: u16 = 1;

fn answer(question: &[u8], says: &impl Fn(&str) -> Said) -> Option<Vec<u8>> {
    let mut at = 12;
    let mut labels = Vec::new();
    loop {
        let len = usize::from(*question.get(at)?);
        at += 1;
        if len == 0 {
            break;
        }
        labels.push(String::from_utf8_lossy(question.get(at..at + len)?).to_lowercase());
        at += len;
    }
    let kind = u16::from_be_bytes([*question.get(at)?, *question.get(at + 1)?]);
    let end = at + 4;
    let Said::Are(addresses) = says(&labels.join(".")) else {
        return None;
    };
    let found = if kind == A { addresses.as_slice() } else { &[] };
    // No such name, or no address of this kind.
    let code = if addresses.is_empty() { 3 } else { 0 };
    let mut packet = question.get(..2)?.to_vec();
    packet.extend([0x81, 0x80 | code, 0, 1]);
    packet.extend(u16::try_from(found.len()).ok()?.to_be_bytes());
    packet.extend([0; 4]);
    packet.extend(question.get(12..end)?);
    for address in found {
        // The name of the question, type A, class IN, no time to live, four bytes.
        packet.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4]);
        packet.extend(address.octets());
    }
    Some(packet)
}
