//! Decodes the bytes of a list and of a watch, without a connection: the entry points of the fuzz targets.

use bytes::Bytes;

use super::slim::{JobFilter, JobPage, WatchLine, WatchLineEvent};
use crate::api::names::HubId;
use crate::kubernetes::watch::JobMetadata;
use crate::kubernetes::watch::LineDecoder;

/// The decoded content of one page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPage {
    /// The hub's Jobs on it.
    pub jobs: Vec<JobMetadata>,
    /// Resource version of the list.
    pub version: Option<String>,
    /// Continue token of the next page.
    pub next: Option<String>,
}

/// Reads a page as [`super::watch_jobs`] does; `None` where it is no valid page.
#[must_use]
pub fn page(body: &[u8], hub: &HubId, namespace: &str) -> Option<DecodedPage> {
    let page = JobPage::read(body).filter(|page| !page.is_too_long())?;
    let next = page.next().ok()?.map(ToOwned::to_owned);
    let version = page.version();
    let jobs = page.jobs(JobFilter { hub, namespace }).collect();
    Some(DecodedPage { jobs, version, next })
}

/// The decoded content of one line of a watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLine {
    /// A Job of the hub's, and whether it is still there.
    pub job: Option<(JobMetadata, bool)>,
    /// Resource version after it.
    pub version: Option<String>,
}

/// Reads the lines of a watch that arrives in these parts, up to the first that ends the watch; a line has at most `max` bytes.
#[must_use]
pub fn lines(parts: &[&[u8]], max: usize, hub: &HubId, namespace: &str) -> Vec<DecodedLine> {
    let (mut lines, mut read) = (LineDecoder::default(), Vec::new());
    for part in parts {
        lines.push(Bytes::copy_from_slice(part));
        loop {
            let line = match lines.next(max) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(_) => return read,
            };
            let (event, version) = WatchLine::parse(&line, JobFilter { hub, namespace });
            let job = match event {
                WatchLineEvent::There(job) => Some((job, true)),
                WatchLineEvent::Gone(job) => Some((job, false)),
                WatchLineEvent::Nothing => None,
                WatchLineEvent::TooOld | WatchLineEvent::Ended | WatchLineEvent::Unreadable => return read,
            };
            read.push(DecodedLine { job, version });
        }
    }
    read
}
