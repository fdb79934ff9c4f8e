//! Permits to announce the state of a site, held one after the other.

use tokio_util::sync::CancellationToken;

/// Permit holders that may still announce the state of a site.
#[derive(Clone, Debug, Default)]
pub(in crate::remote) struct Announcers(Vec<CancellationToken>);

impl Announcers {
    /// Whether all of them have dropped their permits.
    pub(in crate::remote) fn are_done(&self) -> bool {
        self.0.iter().all(CancellationToken::is_cancelled)
    }

    /// Waits until all of them have dropped their permits.
    pub(in crate::remote) async fn done(&self) {
        for announcer in &self.0 {
            announcer.cancelled().await;
        }
    }
}

/// The right to announce the state of a site. Its holder waits for all earlier holders, so that events keep their order; it is
/// done when the permit is dropped.
#[derive(Debug)]
pub(in crate::remote) struct AnnouncePermit {
    pub(in crate::remote) before: Announcers,
    /// Cancelled when the site is closed.
    pub(in crate::remote) closed: CancellationToken,
    done: CancellationToken,
}

impl AnnouncePermit {
    /// A permit after `before`, and the announcers that the next permit waits for; these include `before`, as a permit may be
    /// dropped before its holder could use it.
    pub(in crate::remote) fn after(before: Announcers, cut: &CancellationToken) -> (Self, Announcers) {
        let done = CancellationToken::new();
        let mut announcers = before.clone();
        announcers.0.retain(|announcer| !announcer.is_cancelled());
        announcers.0.push(done.clone());
        let permit = Self {
            before,
            closed: cut.child_token(),
            done,
        };
        (permit, announcers)
    }
}

/// Of a type with this, a future holds the whole and not only the fields that it names.
impl Drop for AnnouncePermit {
    fn drop(&mut self) {
        self.done.cancel();
    }
}
