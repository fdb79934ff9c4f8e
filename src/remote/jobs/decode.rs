//! What is read out of the bytes of a list and of a watch, without a connection: the fuzz targets begin here.

use bytes::Bytes;

use super::slim::{Line, Page, Told, View};
use crate::api::names::HubId;
use crate::kubernetes::watch::JobMark;
use crate::remote::lines::Lines;

/// What is taken from one page of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PageRead {
    /// The hub's Jobs on it.
    pub jobs: Vec<JobMark>,
    /// Version of the list.
    pub version: Option<String>,
    /// Mark for the next page.
    pub next: Option<String>,
}

/// Reads a page as [`super::watch_jobs`] does; `None` where it can be none that was asked for.
#[must_use]
pub fn page(body: &[u8], hub: &HubId, namespace: &str) -> Option<PageRead> {
    let page = Page::read(body).filter(|page| !page.is_too_long())?;
    let next = page.next().ok()?.map(ToOwned::to_owned);
    let version = page.version();
    let jobs = page.marks(View { hub, namespace }).collect();
    Some(PageRead { jobs, version, next })
}

/// What one line of a watch tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineRead {
    /// A Job of the hub's, and whether it is still there.
    pub job: Option<(JobMark, bool)>,
    /// Version of the list after it.
    pub version: Option<String>,
}

/// Reads the lines of a watch that comes in these parts, as far as one goes on after them; a line has `max` bytes at most.
#[must_use]
pub fn lines(parts: &[&[u8]], max: usize, hub: &HubId, namespace: &str) -> Vec<LineRead> {
    let (mut lines, mut read) = (Lines::default(), Vec::new());
    for part in parts {
        lines.push(Bytes::copy_from_slice(part));
        loop {
            let line = match lines.next(max) {
                Ok(Some(line)) => line,
                Ok(None) => break,
                Err(_) => return read,
            };
            let (told, version) = Line::told(&line, View { hub, namespace });
            let job = match told {
                Told::There(mark) => Some((mark, true)),
                Told::Gone(mark) => Some((mark, false)),
                Told::Nothing => None,
                Told::TooOld | Told::Ended | Told::Unreadable => return read,
            };
            read.push(LineRead { job, version });
        }
    }
    read
}
