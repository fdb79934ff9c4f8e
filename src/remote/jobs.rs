//! The hub's Jobs in one namespace of another cluster, by their metadata: listed once, then watched, for as long as the
//! cluster lets it.
//!
//! A server that floods is read at a bounded pace, and what it says of one Job in between counts once. It cannot make the
//! hub remember more than a bounded number of Jobs, nor list or watch in a loop.

mod batch;
pub mod decode;
mod slim;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::time::{Instant, sleep, timeout_at};

use super::link::{Link, WatchEnd, Watching, price};
use super::pace::Pace;
use crate::api::labels::own_objects;
use crate::api::names::HubId;
use crate::kubernetes::apply::{CallError, Extent, Stage};
use crate::kubernetes::watch::{Change, JobMark};
use batch::{Batch, Known};
use slim::{Line, PAGE, Page, Told, View};

/// Pages of one list, so that a server that always has another one is no endless list.
const PAGES: usize = 100;
/// Lines that are told of at once.
const BATCH: usize = 256;
/// How long a server that floods is listened to before the loop is told.
const WINDOW: Duration = Duration::from_millis(100);
/// Metadata only, for a list and for a watch.
const ACCEPT_LIST: &str = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1";
const ACCEPT_WATCH: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";

/// Lists the hub's Jobs in a namespace and watches them, and tells `seen` of each change: first [`Change::Restart`], all
/// Jobs and [`Change::Synced`], then what changes. A version that is too old begins that anew. It returns when the
/// connection is lost, the server refuses, or what it says cannot be true.
///
/// For a future that is to be spawned, `seen` must borrow nothing: the compiler cannot see yet that it is `Send` otherwise.
pub async fn watch_jobs(
    link: &Link,
    user: Option<&HeaderValue>,
    namespace: &str,
    hub_id: &HubId,
    mut seen: impl AsyncFnMut(Change<JobMark>),
) -> WatchEnd {
    let limits = link.limits();
    let mut watch = JobWatch {
        link,
        user,
        view: View {
            hub: hub_id,
            namespace,
        },
        path: path(namespace, hub_id),
        version: None,
        known: Known::new(link.room()),
        pace: Pace::new(limits.event_rate, limits.event_burst),
        broken: 0,
    };
    loop {
        let done = match watch.version.take() {
            // In memory of its own: a watch that is quiet for days keeps no room for it.
            None => Box::pin(watch.list(&mut seen)).await,
            Some(version) => watch.follow(version, &mut seen).await,
        };
        if let Err(stop) = done
            && let Some(end) = watch.broke(stop).await
        {
            return end;
        }
    }
}

struct JobWatch<'a> {
    link: &'a Link,
    user: Option<&'a HeaderValue>,
    view: View<'a>,
    path: String,
    /// From where the watch goes on; without one, everything is listed.
    version: Option<String>,
    known: Known,
    pace: Pace,
    /// Watches in a row that ended as soon as they were opened.
    broken: u32,
}

enum Stop {
    /// It is tried again after a pause, unless this was so too often.
    Broken(WatchEnd),
    /// It is over.
    End(WatchEnd),
}

impl JobWatch<'_> {
    async fn list(&mut self, seen: &mut impl AsyncFnMut(Change<JobMark>)) -> Result<(), Stop> {
        seen(Change::Restart).await;
        self.known.clear();
        let until = Instant::now() + self.link.limits().list;
        let mut next = String::new();
        for _ in 0..PAGES {
            let path = format!("{}&limit={PAGE}{next}", self.path);
            let asked = self.link.fetch(get(&path, ACCEPT_LIST)?, self.user, Extent::Page);
            let told = timeout_at(until, asked).await;
            let bytes = told.unwrap_or(Err(CallError::Timeout)).map_err(refused)?;
            let page = Page::read(&bytes).ok_or(Stop::End(WatchEnd::Unreadable))?;
            if page.is_too_long() {
                return Err(Stop::End(WatchEnd::TooMuch));
            }
            let mark = page
                .next()
                .map_err(|_| Stop::End(WatchEnd::Unreadable))?
                .map(ToOwned::to_owned);
            let version = page.version();
            for mark in page.marks(self.view) {
                self.note(&mark)?;
                seen(Change::Seen(mark)).await;
            }
            let Some(mark) = mark else {
                self.version = Some(version.ok_or(Stop::End(WatchEnd::Unreadable))?);
                seen(Change::Synced).await;
                return Ok(());
            };
            next = format!("&continue={}", encoded(&mark));
        }
        Err(Stop::End(WatchEnd::TooMuch))
    }

    async fn follow(
        &mut self,
        version: String,
        seen: &mut impl AsyncFnMut(Change<JobMark>),
    ) -> Result<(), Stop> {
        let path = format!(
            "{}&watch=true&allowWatchBookmarks=true&resourceVersion={version}",
            self.path
        );
        let request = get(&path, ACCEPT_WATCH)?;
        let mut watching = self.link.open_watch(request, self.user).await.map_err(refused)?;
        self.version = Some(version);
        let opened = Instant::now();
        let ended = loop {
            if let Err(ended) = self.turn(&mut watching, seen).await {
                break ended;
            }
        };
        let is_long = opened.elapsed() >= self.link.limits().watch_life;
        if is_long {
            self.broken = 0;
        }
        let end = match ended {
            Ended::Stop(end) => return Err(Stop::End(end)),
            Ended::Closed => WatchEnd::Lost,
            Ended::TooOld => {
                self.version = None;
                WatchEnd::Expired
            }
        };
        if is_long { Ok(()) } else { Err(Stop::Broken(end)) }
    }

    /// Waits for a line, takes those that are there already with it, in a flood also those that come soon, and tells of all
    /// at once.
    async fn turn(
        &mut self,
        watching: &mut Watching,
        seen: &mut impl AsyncFnMut(Change<JobMark>),
    ) -> Result<(), Ended> {
        let mut batch = Batch::default();
        let (mut cost, mut lines) = (0, 0);
        let mut next = watching.next(&self.pace).await;
        let window = if self.pace.is_short() {
            WINDOW
        } else {
            Duration::ZERO
        };
        let until = Instant::now() + window;
        let ended = loop {
            let line = match next {
                Ok(Some(line)) => line,
                Ok(None) => break Some(Ended::Closed),
                Err(end) => break Some(Ended::Stop(end)),
            };
            cost += price(line.len());
            lines += 1;
            if let Err(ended) = self.read(&line, &mut batch) {
                break Some(ended);
            }
            if lines >= BATCH {
                break None;
            }
            match timeout_at(until, watching.next(&self.pace)).await {
                Ok(more) => next = more,
                Err(_) => break None,
            }
        };
        self.pace.turns(cost).await;
        for change in batch.into_changes() {
            seen(change).await;
        }
        ended.map_or(Ok(()), Err)
    }

    fn read(&mut self, line: &Bytes, batch: &mut Batch) -> Result<(), Ended> {
        let (told, version) = Line::told(line, self.view);
        match told {
            Told::There(mark) => {
                self.note(&mark).map_err(|_| Ended::Stop(WatchEnd::TooMuch))?;
                batch.seen(mark);
            }
            Told::Gone(mark) if self.known.forget(&mark) => batch.gone(mark.task),
            Told::Gone(_) | Told::Nothing => {}
            Told::TooOld => return Err(Ended::TooOld),
            Told::Ended => return Err(Ended::Closed),
            Told::Unreadable => return Err(Ended::Stop(WatchEnd::Unreadable)),
        }
        if version.is_some() {
            self.version = version;
        }
        Ok(())
    }

    fn note(&mut self, mark: &JobMark) -> Result<(), Stop> {
        if self.known.note(mark, self.link.limits().jobs) {
            return Ok(());
        }
        Err(Stop::End(WatchEnd::TooMuch))
    }

    /// Waits before the next try; why there is none, if that was too often.
    async fn broke(&mut self, stop: Stop) -> Option<WatchEnd> {
        let end = match stop {
            Stop::End(end) => return Some(end),
            Stop::Broken(end) => end,
        };
        let limits = self.link.limits();
        self.broken += 1;
        if self.broken >= limits.watch_attempts {
            return Some(end);
        }
        sleep(limits.watch_pause * 2_u32.saturating_pow(self.broken - 1)).await;
        None
    }
}

/// How a watch came to its end.
enum Ended {
    /// The server closed it.
    Closed,
    /// Its version is too old.
    TooOld,
    /// No other is opened.
    Stop(WatchEnd),
}

/// A version or a page that is too old is asked for anew.
fn refused(error: CallError) -> Stop {
    match error {
        CallError::Code(410) => Stop::Broken(WatchEnd::Expired),
        error => Stop::End(WatchEnd::Call(error)),
    }
}

fn get(path: &str, accept: &'static str) -> Result<Request<Vec<u8>>, Stop> {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new());
    request.map_err(|_| Stop::End(WatchEnd::Call(CallError::Transport(Stage::Internal))))
}

fn path(namespace: &str, hub_id: &HubId) -> String {
    let selector = encoded(&own_objects(hub_id));
    format!("/apis/batch/v1/namespaces/{namespace}/jobs?labelSelector={selector}")
}

/// As a value in a query.
fn encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() * 2);
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b'~') {
            out.push(char::from(byte));
        } else {
            const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
            let digit = |half: u8| char::from(DIGITS[usize::from(half)]);
            out.extend(['%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
    out
}
