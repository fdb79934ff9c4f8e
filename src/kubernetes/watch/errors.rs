//! Why a watch broke, and how that is logged.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::runtime::watcher;

use crate::kubernetes::apply::TransportStage;

/// What a watch is of.
pub(super) struct WatchName {
    pub(super) name: &'static str,
    /// The one namespace, or all.
    pub(super) namespace: Option<String>,
}

impl WatchName {
    pub(super) fn log(&self, error: &watcher::Error) {
        let resource = self.name;
        if !is_forbidden(error) {
            let (kind, stage) = (kind_of(error), stage_of(error));
            tracing::warn!(watch = resource, kind, stage, "watch broke; it is opened again");
            return;
        }
        let verb = if matches!(error, watcher::Error::InitialListFailed(_)) {
            "list"
        } else {
            "watch"
        };
        let namespace = self.namespace.as_deref().unwrap_or("all namespaces");
        tracing::warn!(
            kind = "Forbidden",
            verb,
            resource,
            namespace,
            "the hub lacks a right; grant it, as the chart does: the watch is opened again until then"
        );
    }
}

pub(super) fn is_usable(error: &watcher::Error, can_stream: &AtomicBool) -> bool {
    let code = refusal(error);
    let cannot_stream = matches!(code, Some(400 | 422)) && can_stream.swap(false, Ordering::Relaxed);
    !cannot_stream && code != Some(410)
}

pub(super) fn is_forbidden(error: &watcher::Error) -> bool {
    refusal(error) == Some(403)
}

/// The code with which the API server refused to begin a watch.
fn refusal(error: &watcher::Error) -> Option<u16> {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::InitialListFailed(kube::Error::Api(status))) = error
    else {
        return None;
    };
    Some(status.code)
}

const fn kind_of(error: &watcher::Error) -> &'static str {
    match error {
        watcher::Error::InitialListFailed(_) => "InitialListFailed",
        watcher::Error::WatchStartFailed(_) => "WatchStartFailed",
        watcher::Error::WatchError(_) => "WatchError",
        watcher::Error::WatchFailed(_) => "WatchFailed",
        watcher::Error::NoResourceVersion => "NoResourceVersion",
    }
}

/// How far the call came that opened the watch, where the API server did not answer.
fn stage_of(error: &watcher::Error) -> Option<&'static str> {
    match error {
        watcher::Error::InitialListFailed(cause)
        | watcher::Error::WatchStartFailed(cause)
        | watcher::Error::WatchFailed(cause) => {
            let is_answer = matches!(cause, kube::Error::Api(_));
            (!is_answer).then(|| TransportStage::of(cause).as_str())
        }
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => None,
    }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_watch_that_breaks_says_how_far_its_call_came_where_the_api_server_did_not_answer() {
        let refused = io::Error::from_raw_os_error(111);
        let not_reached = watcher::Error::InitialListFailed(kube::Error::Service(Box::new(refused)));
        assert_eq!(stage_of(&not_reached), Some("connect"));
        let cut = watcher::Error::WatchFailed(kube::Error::LinesCodecMaxLineLengthExceeded);
        assert_eq!(stage_of(&cut), Some("body"));
        let answer = kube::core::Status::failure("gone", "Expired")
            .with_code(410)
            .boxed();
        assert_eq!(stage_of(&watcher::Error::WatchError(answer.clone())), None);
        assert_eq!(
            stage_of(&watcher::Error::WatchStartFailed(kube::Error::Api(answer))),
            None
        );
    }
}
