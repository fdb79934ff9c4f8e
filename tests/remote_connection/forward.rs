//! A way to a server that counts its connections, and breaks as networks break.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

use anyhow::Result;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// How it treats what comes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It passes everything on.
    Open,
    /// It ends every connection.
    Refusing,
    /// It takes connections and keeps them, and nothing moves on any.
    Frozen,
}

/// Passes bytes on; it ends when it is dropped.
pub struct Forward {
    pub address: SocketAddr,
    mode: watch::Sender<Mode>,
    counts: Arc<Counts>,
    _server: AbortOnDropHandle<()>,
}

#[derive(Default)]
struct Counts {
    taken: AtomicUsize,
    open: AtomicUsize,
}

impl Forward {
    pub async fn to(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (mode, seen) = watch::channel(Mode::Open);
        let counts = Arc::new(Counts::default());
        let shared = Arc::clone(&counts);
        let serve = async move {
            let mut connections = tokio::task::JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                shared.taken.fetch_add(1, SeqCst);
                connections.spawn(carry(client, server, seen.clone(), Arc::clone(&shared)));
            }
        };
        Ok(Self {
            address,
            mode,
            counts,
            _server: AbortOnDropHandle::new(tokio::spawn(serve)),
        })
    }

    /// Behaves so from now on, on the connections that are there too.
    pub fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    /// Ends the connections that are there, and takes others.
    pub fn cut(&self) {
        self.set(Mode::Refusing);
        self.set(Mode::Open);
    }

    /// Connections taken so far.
    pub fn taken(&self) -> usize {
        self.counts.taken.load(SeqCst)
    }

    /// Connections that are open.
    pub fn open(&self) -> usize {
        self.counts.open.load(SeqCst)
    }
}

struct Open(Arc<Counts>);

impl Drop for Open {
    fn drop(&mut self) {
        self.0.open.fetch_sub(1, SeqCst);
    }
}

async fn carry(
    mut client: TcpStream,
    server: SocketAddr,
    mut mode: watch::Receiver<Mode>,
    counts: Arc<Counts>,
) {
    counts.open.fetch_add(1, SeqCst);
    let _open = Open(counts);
    let frozen = AtomicBool::new(false);
    loop {
        match *mode.borrow_and_update() {
            Mode::Open => break,
            Mode::Refusing => return,
            Mode::Frozen => frozen.store(true, SeqCst),
        }
        if mode.changed().await.is_err() {
            return;
        }
    }
    // What was frozen once stays so, as a connection through a dead middlebox does.
    if frozen.load(SeqCst) {
        return;
    }
    let Ok(mut upstream) = TcpStream::connect(server).await else {
        return;
    };
    tokio::select! {
        _ = tokio::io::copy_bidirectional(&mut client, &mut upstream) => {}
        changed = mode.changed() => {
            if changed.is_ok() && *mode.borrow() == Mode::Frozen {
                // Both ends stay open, and nothing moves.
                _ = mode.wait_for(|mode| *mode != Mode::Frozen).await;
            }
        }
    }
}
