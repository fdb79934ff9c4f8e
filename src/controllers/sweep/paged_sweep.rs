//! A list of what is at a site, page by page: no more than one page is held at a time, and of what is found to be of no task a
//! bounded number.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout_at};

use crate::kubernetes::apply::{CallError, ListKind, ListedObject, TaskObjectClient};

use crate::controllers::sweep::unused_copies::FoundPullCopy;
use crate::controllers::sweep::{OrphanJob, OrphanSecret};

/// Longest that all pages of what is at a site take together.
pub const LONGEST_SWEEP: Duration = Duration::from_secs(60);
/// Pages of what is at a site, of 500 objects each: a server that always has another one is no endless list.
const PAGES: usize = 100;
/// Objects of no task that one sweep of one cluster removes. At three calls each it takes half of the time between two sweeps;
/// what is more is left to the next one.
pub const CANDIDATES: usize = 1_000;

/// Sweeps of sites that remove something at once; what finds no place is left to its next sweep.
pub const REMOVALS: usize = 16;

/// Places for sweeps that remove something.
#[derive(Clone, Debug)]
pub struct SweepPermits(Arc<Semaphore>);

impl Default for SweepPermits {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(REMOVALS)))
    }
}

impl SweepPermits {
    /// A place, if there is one; it is given back when it is dropped.
    #[must_use]
    pub fn take(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).try_acquire_owned().ok()
    }
}

/// A list of several pages.
#[derive(Debug)]
pub struct PagedSweep {
    objects: TaskObjectClient,
    listing: ListKind,
    /// Whether copies of pull Secrets may be there.
    has_copies: bool,
    next: Option<String>,
    pages: usize,
    until: Instant,
    /// What was found to be of no task.
    pub candidates: OrphanBatch,
}

/// One step of it: the objects of one page.
#[derive(Debug)]
pub struct PagedSweepStep {
    /// What they are.
    pub listing: ListKind,
    /// The objects of hubs of this cluster.
    pub items: Vec<ListedObject>,
    /// Whether they are the last.
    pub is_last: bool,
}

/// Objects of no task, no more than are removed at once.
#[derive(Debug, Default)]
pub struct OrphanBatch {
    /// Config Secrets.
    pub secrets: Vec<OrphanSecret>,
    /// Jobs.
    pub jobs: Vec<OrphanJob>,
    /// Copies of pull Secrets.
    pub pull_copies: Vec<FoundPullCopy>,
    /// Those that are left to the next sweep.
    pub left_out: usize,
    /// Objects with a hub's labels whose name or UID is none.
    pub illegible: usize,
}

impl OrphanBatch {
    /// Adds a config Secret.
    pub fn add_secret(&mut self, secret: OrphanSecret) {
        if self.has_room() {
            self.secrets.push(secret);
        }
    }

    /// Adds a Job.
    pub fn add_job(&mut self, job: impl FnOnce() -> OrphanJob) {
        if self.has_room() {
            self.jobs.push(job());
        }
    }

    /// Adds a copy of a pull Secret.
    pub fn add_pull_copy(&mut self, copy: FoundPullCopy) {
        if self.has_room() {
            self.pull_copies.push(copy);
        }
    }

    const fn has_room(&mut self) -> bool {
        let has_room = self.secrets.len() + self.jobs.len() + self.pull_copies.len() < CANDIDATES;
        if !has_room {
            self.left_out += 1;
        }
        has_room
    }
}

impl PagedSweep {
    /// A list of what is at a place, from its beginning, with all its time before it; with the copies of pull Secrets, where there may
    /// be any.
    #[must_use]
    pub fn new(objects: TaskObjectClient, has_copies: bool) -> Self {
        Self {
            objects,
            listing: ListKind::OthersJobs,
            has_copies,
            next: None,
            pages: 0,
            until: Instant::now() + LONGEST_SWEEP,
            candidates: OrphanBatch::default(),
        }
    }

    /// When the time is over for all of it.
    #[must_use]
    pub const fn until(&self) -> Instant {
        self.until
    }

    /// The next page.
    ///
    /// # Errors
    /// It cannot be read; [`CallError::Timeout`] once all pages together took too long, [`CallError::TooLarge`] where there are
    /// too many.
    pub async fn step(&mut self) -> Result<PagedSweepStep, CallError> {
        if self.pages == PAGES {
            return Err(CallError::TooLarge);
        }
        self.pages += 1;
        let listing = self.listing;
        let asked = self.objects.list(listing, self.next.as_deref());
        let page = timeout_at(self.until, asked).await;
        let page = page.unwrap_or(Err(CallError::Timeout))?;
        self.candidates.illegible += page.illegible;
        self.next = page.next;
        let following = match listing {
            _ if self.next.is_some() => Some(listing),
            ListKind::OthersJobs => Some(ListKind::Secrets),
            ListKind::Secrets => self.has_copies.then_some(ListKind::PullCopies),
            ListKind::PullCopies => None,
        };
        self.listing = following.unwrap_or(listing);
        Ok(PagedSweepStep {
            listing,
            items: page.items,
            is_last: following.is_none(),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use futures::future::BoxFuture;

    use super::*;
    use crate::api::names::HubId;
    use crate::kubernetes::apply::{ApiTransport, ResponseLimit};

    /// A server that always has another page, and takes its time for each.
    #[derive(Debug)]
    struct Endless(Duration, AtomicUsize);

    impl ApiTransport for Endless {
        fn send(
            &self,
            _: http::Request<Vec<u8>>,
            extent: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            assert_eq!(extent, ResponseLimit::Page);
            self.1.fetch_add(1, Ordering::Relaxed);
            Box::pin(async {
                tokio::time::sleep(self.0).await;
                Ok(Bytes::from_static(
                    br#"{"metadata":{"continue":"more"},"items":[]}"#,
                ))
            })
        }
    }

    async fn sweep(pause: Duration) -> (CallError, usize, Duration) {
        let transport = Arc::new(Endless(pause, AtomicUsize::new(0)));
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        let objects = TaskObjectClient::new(transport.clone(), None, "renders".to_owned(), hub);
        let (mut sweep, begin) = (PagedSweep::new(objects, true), Instant::now());
        loop {
            if let Err(error) = sweep.step().await {
                return (error, transport.1.load(Ordering::Relaxed), begin.elapsed());
            }
        }
    }

    /// Holds: H2, B9.
    #[tokio::test(start_paused = true)]
    async fn all_pages_of_a_list_have_one_deadline_and_their_number_an_end() {
        let (error, asked, took) = sweep(Duration::from_secs(25)).await;
        assert_eq!((error, asked, took), (CallError::Timeout, 3, LONGEST_SWEEP));
        let (error, asked, _) = sweep(Duration::ZERO).await;
        assert_eq!((error, asked), (CallError::TooLarge, PAGES));
    }

    /// Holds: B5.
    #[test]
    fn of_candidates_a_bounded_number_is_kept_and_the_rest_counted() {
        let mut candidates = OrphanBatch::default();
        for n in 0..CANDIDATES + 7 {
            candidates.add_job(|| OrphanJob {
                name: format!("render-{n}"),
                uid: "u".to_owned(),
            });
        }
        assert_eq!((candidates.jobs.len(), candidates.left_out), (CANDIDATES, 7));
    }

    /// Holds: B9.
    #[test]
    fn no_more_sweeps_remove_at_once_than_there_are_places() {
        let places = SweepPermits::default();
        let mut taken: Vec<_> = std::iter::from_fn(|| places.take()).collect();
        assert_eq!(taken.len(), REMOVALS);
        taken.pop();
        assert!(places.take().is_some(), "one was given back");
    }
}
