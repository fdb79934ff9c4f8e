//! Who may speak of a site, one after the other.

use tokio_util::sync::{CancellationToken, DropGuard};

/// Those who may still speak of a site.
#[derive(Clone, Debug, Default)]
pub(in crate::remote) struct Announcers(Vec<CancellationToken>);

impl Announcers {
    /// Whether nobody of them speaks any more.
    pub(in crate::remote) fn are_done(&self) -> bool {
        self.0.iter().all(CancellationToken::is_cancelled)
    }

    /// Waits for that.
    pub(in crate::remote) async fn done(&self) {
        for speaker in &self.0 {
            speaker.cancelled().await;
        }
    }
}

/// The right to speak of a site: who holds it waits for whoever held it before, so that nothing is told out of order.
#[derive(Debug)]
pub(in crate::remote) struct AnnouncePermit {
    pub(in crate::remote) before: Announcers,
    /// Ends when the site is closed.
    pub(in crate::remote) closed: CancellationToken,
    _done: DropGuard,
}

impl AnnouncePermit {
    /// After `before`, on a connection that may be cut; and whom the next waits for: a turn may be given up before it came.
    pub(in crate::remote) fn after(before: Announcers, cut: &CancellationToken) -> (Self, Announcers) {
        let done = CancellationToken::new();
        let mut speakers = before.clone();
        speakers.0.retain(|speaker| !speaker.is_cancelled());
        speakers.0.push(done.clone());
        let turn = Self {
            before,
            closed: cut.child_token(),
            _done: done.drop_guard(),
        };
        (turn, speakers)
    }
}
