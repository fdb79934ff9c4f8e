//! What is read out of the bytes of a list and of a watch, without a connection: the fuzz targets begin here.

use bytes::Bytes;

use super::slim::{JobFilter, JobPage, WatchLine, WatchLineEvent};
use crate::api::names::HubId;
use crate::kubernetes::watch::JobMetadata;
use crate::remote::line_decoder::LineDecoder;

/// What is taken from one page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedPage {
    /// The hub's Jobs on it.
    pub jobs: Vec<JobMetadata>,
    /// Version of the list.
    pub version: Option<String>,
    /// Mark for the next page.
    pub next: Option<String>,
}

/// Reads a page as [`super::watch_jobs`] does; `None` where it can be none that was asked for.
#[must_use]
pub fn page(body: &[u8], hub: &HubId, namespace: &str) -> Option<DecodedPage> {
    let page = JobPage::read(body).filter(|page| !page.is_too_long())?;
    let next = page.next().ok()?.map(ToOwned::to_owned);
    let version = page.version();
    let jobs = page.marks(JobFilter { hub, namespace }).collect();
    Some(DecodedPage { jobs, version, next })
}

/// What one line of a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DecodedLine {
    /// A Job of the hub's, and whether it is still there.
    pub job: Option<(JobMetadata, bool)>,
    /// Version of the list after it.
    pub version: Option<String>,
}

/// Reads the lines of a watch that comes in these parts, as far as one goes on after them; a line has `max` bytes at most.
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
            let (told, version) = WatchLine::told(&line, JobFilter { hub, namespace });
            let job = match told {
                WatchLineEvent::There(mark) => Some((mark, true)),
                WatchLineEvent::Gone(mark) => Some((mark, false)),
                WatchLineEvent::Nothing => None,
                WatchLineEvent::TooOld | WatchLineEvent::Ended | WatchLineEvent::Unreadable => return read,
            };
            read.push(DecodedLine { job, version });
        }
    }
    read
}
