//! The hub's Jobs in one namespace of another cluster, by their metadata: listed once, then watched until the watch ends.
//!
//! A server that sends a flood of events is read at a bounded rate, and several events of one Job become one. It cannot make the
//! hub remember more than a bounded number of Jobs, nor list or watch in a loop.

mod change_batch;
pub mod decode;
mod slim;

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderValue, Request, header};
use tokio::time::{Instant, sleep, timeout_at};

use super::client::{RemoteClient, WatchEnd, WatchStream, price};
use super::rate_limiter::RateLimiter;
use crate::api::labels::own_objects;
use crate::api::names::{HubId, percent_encode};
use crate::kubernetes::apply::{CallError, LIST_PAGE, ResponseLimit, TransportStage};
use crate::kubernetes::watch::{JobMetadata, METADATA_LIST, METADATA_WATCH, WatchChange};
use change_batch::{ChangeBatch, JobInventory};
use decode::page;
use slim::{JobFilter, WatchLine, WatchLineEvent};

/// Most pages of one list, so that a server that always has another page does not make the list endless.
const PAGES: usize = 100;
/// Most lines of a watch in one batch.
const BATCH: usize = 256;
/// How long lines of a flood are collected before the batch is sent.
const WINDOW: Duration = Duration::from_millis(100);

/// Lists the hub's Jobs in a namespace and watches them, and calls `seen` with each change: first [`WatchChange::Restart`], all
/// Jobs and [`WatchChange::Synced`], then each later change. After a resource version that is too old it lists again. It
/// returns when the connection is lost, the server refuses, or a response cannot be valid.
///
/// In a future that is spawned, `seen` must borrow nothing: otherwise the compiler cannot prove yet that it is `Send`.
pub async fn watch_jobs(
    client: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    hub_id: &HubId,
    mut seen: impl AsyncFnMut(WatchChange<JobMetadata>),
) -> WatchEnd {
    let limits = client.limits();
    let mut watch = JobWatch {
        client,
        user,
        view: JobFilter {
            hub: hub_id,
            namespace,
        },
        path: path(namespace, hub_id),
        version: None,
        known: JobInventory::new(client.memory_budget()),
        pace: RateLimiter::new(limits.event_rate, limits.event_burst),
        broken: 0,
    };
    loop {
        let done = match watch.version.take() {
            // Boxed: the future of a watch lives for days, and must not keep space for a list.
            None => Box::pin(watch.list(&mut seen)).await,
            Some(version) => watch.follow(version, &mut seen).await,
        };
        if let Err(stop) = done
            && let Some(end) = watch.pause_before_retry(stop).await
        {
            return end;
        }
    }
}

struct JobWatch<'a> {
    client: &'a RemoteClient,
    user: Option<&'a HeaderValue>,
    view: JobFilter<'a>,
    path: String,
    /// Resource version at which the watch continues; without one, all Jobs are listed.
    version: Option<String>,
    known: JobInventory,
    pace: RateLimiter,
    /// Watches in a row that ended as soon as they were opened.
    broken: u32,
}

enum JobWatchStop {
    /// The watch is retried after a pause, up to a number of times.
    Broken(WatchEnd),
    /// The watch is not retried.
    End(WatchEnd),
}

impl JobWatch<'_> {
    async fn list(
        &mut self,
        seen: &mut impl AsyncFnMut(WatchChange<JobMetadata>),
    ) -> Result<(), JobWatchStop> {
        seen(WatchChange::Restart).await;
        self.known.clear();
        let until = Instant::now() + self.client.limits().list;
        let mut next = String::new();
        for _ in 0..PAGES {
            let path = format!("{}&limit={LIST_PAGE}{next}", self.path);
            let request = self
                .client
                .fetch(get(&path, METADATA_LIST)?, self.user, ResponseLimit::Page);
            let response = timeout_at(until, request).await;
            let bytes = response.unwrap_or(Err(CallError::Timeout)).map_err(refused)?;
            let page = page(&bytes, self.view.hub, self.view.namespace).map_err(JobWatchStop::End)?;
            for job in page.jobs {
                self.remember(&job).map_err(JobWatchStop::End)?;
                seen(WatchChange::Seen(job)).await;
            }
            let Some(continue_token) = page.next else {
                self.version = Some(page.version.ok_or(JobWatchStop::End(WatchEnd::Unreadable))?);
                seen(WatchChange::Synced).await;
                return Ok(());
            };
            next = format!("&continue={}", percent_encode(&continue_token));
        }
        Err(JobWatchStop::End(WatchEnd::TooMuch))
    }

    async fn follow(
        &mut self,
        version: String,
        seen: &mut impl AsyncFnMut(WatchChange<JobMetadata>),
    ) -> Result<(), JobWatchStop> {
        let path = format!(
            "{}&watch=true&allowWatchBookmarks=true&resourceVersion={version}",
            self.path
        );
        let request = get(&path, METADATA_WATCH)?;
        let mut watching = self
            .client
            .open_watch(request, self.user)
            .await
            .map_err(refused)?;
        self.version = Some(version);
        let opened = Instant::now();
        let ended = loop {
            if let Err(ended) = self.send_batch(&mut watching, seen).await {
                break ended;
            }
        };
        let is_long = opened.elapsed() >= self.client.limits().watch_life;
        if is_long {
            self.broken = 0;
        }
        let end = match ended {
            JobWatchEnd::Stop(end) => return Err(JobWatchStop::End(end)),
            JobWatchEnd::Closed => WatchEnd::Lost,
            JobWatchEnd::TooOld => {
                self.version = None;
                WatchEnd::Expired
            }
        };
        if is_long {
            Ok(())
        } else {
            Err(JobWatchStop::Broken(end))
        }
    }

    /// Waits for a line, adds the lines that are there already, in a flood also those that arrive soon, and sends the batch.
    async fn send_batch(
        &mut self,
        watching: &mut WatchStream,
        seen: &mut impl AsyncFnMut(WatchChange<JobMetadata>),
    ) -> Result<(), JobWatchEnd> {
        let mut batch = ChangeBatch::default();
        let (mut cost, mut lines) = (0, 0);
        let mut next = watching.next(&self.pace).await;
        let window = if self.pace.is_below_half() {
            WINDOW
        } else {
            Duration::ZERO
        };
        let until = Instant::now() + window;
        let ended = loop {
            let line = match next {
                Ok(Some(line)) => line,
                Ok(None) => break Some(JobWatchEnd::Closed),
                Err(end) => break Some(JobWatchEnd::Stop(end)),
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
        self.pace.acquire_many(cost).await;
        for change in batch.into_changes() {
            seen(change).await;
        }
        ended.map_or(Ok(()), Err)
    }

    fn read(&mut self, line: &Bytes, batch: &mut ChangeBatch) -> Result<(), JobWatchEnd> {
        let (event, version) = WatchLine::parse(line, self.view);
        match event {
            WatchLineEvent::There(job) => {
                self.remember(&job).map_err(JobWatchEnd::Stop)?;
                batch.seen(job);
            }
            WatchLineEvent::Gone(job) if self.known.forget(&job) => batch.gone(job.task),
            WatchLineEvent::Gone(_) | WatchLineEvent::Nothing => {}
            WatchLineEvent::TooOld => return Err(JobWatchEnd::TooOld),
            WatchLineEvent::Ended => return Err(JobWatchEnd::Closed),
            WatchLineEvent::Unreadable => return Err(JobWatchEnd::Stop(WatchEnd::Unreadable)),
        }
        if version.is_some() {
            self.version = version;
        }
        Ok(())
    }

    fn remember(&mut self, job: &JobMetadata) -> Result<(), WatchEnd> {
        let has_room = self.known.remember(job, self.client.limits().jobs);
        has_room.then_some(()).ok_or(WatchEnd::TooMuch)
    }

    /// Waits before the next try; returns the reason of the end where there is none.
    async fn pause_before_retry(&mut self, stop: JobWatchStop) -> Option<WatchEnd> {
        let end = match stop {
            JobWatchStop::End(end) => return Some(end),
            JobWatchStop::Broken(end) => end,
        };
        let limits = self.client.limits();
        self.broken += 1;
        if self.broken >= limits.watch_attempts {
            return Some(end);
        }
        sleep(limits.watch_pause * 2_u32.saturating_pow(self.broken - 1)).await;
        None
    }
}

/// How a watch ended.
enum JobWatchEnd {
    /// The server closed it.
    Closed,
    /// Its resource version is too old.
    TooOld,
    /// No other watch is opened.
    Stop(WatchEnd),
}

/// A resource version or a page that is too old is retried; any other refusal ends the watch.
fn refused(error: CallError) -> JobWatchStop {
    match error {
        CallError::Code(410) => JobWatchStop::Broken(WatchEnd::Expired),
        error => JobWatchStop::End(WatchEnd::Call(error)),
    }
}

fn get(path: &str, accept: &'static str) -> Result<Request<Vec<u8>>, JobWatchStop> {
    let request = Request::get(path).header(header::ACCEPT, accept).body(Vec::new());
    request.map_err(|_| JobWatchStop::End(WatchEnd::Call(CallError::Transport(TransportStage::Internal))))
}

fn path(namespace: &str, hub_id: &HubId) -> String {
    let selector = percent_encode(&own_objects(hub_id));
    format!("/apis/batch/v1/namespaces/{namespace}/jobs?labelSelector={selector}")
}
