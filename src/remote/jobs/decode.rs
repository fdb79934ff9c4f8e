//! Decodes the bytes of a list and of a watch, without a connection: the entry points of the fuzz targets, too.

use bytes::Bytes;

use super::slim::{JobFilter, WatchLine, WatchLineEvent, version};
use crate::api::names::HubId;
use crate::kubernetes::apply::LeanPage;
use crate::kubernetes::watch::{JobMetadata, LineDecoder};
use crate::remote::client::WatchEnd;

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

/// Decodes one page of a list.
///
/// # Errors
/// [`WatchEnd::Unreadable`] where it is no page, [`WatchEnd::TooMuch`] where it has more objects than the hub asks for.
pub fn page(body: &[u8], hub: &HubId, namespace: &str) -> Result<DecodedPage, WatchEnd> {
    let page = LeanPage::read(body).ok_or(WatchEnd::Unreadable)?;
    if page.is_too_long() {
        return Err(WatchEnd::TooMuch);
    }
    let view = JobFilter { hub, namespace };
    Ok(DecodedPage {
        version: version(page.version()),
        next: page.next().map(ToOwned::to_owned),
        jobs: page
            .objects()
            .filter_map(|object| view.job(&object.meta, object.hint))
            .collect(),
    })
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
