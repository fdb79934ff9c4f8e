//! Why a watch broke, and how that is logged.

use std::sync::atomic::{AtomicBool, Ordering};

use kube::runtime::watcher;

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
            let kind = kind_of(error);
            tracing::warn!(watch = resource, kind, "watch broke; it is opened again");
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
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::InitialListFailed(kube::Error::Api(status))) = error
    else {
        return true;
    };
    let cannot_stream = matches!(status.code, 400 | 422) && can_stream.swap(false, Ordering::Relaxed);
    !cannot_stream && status.code != 410
}

pub(super) fn is_forbidden(error: &watcher::Error) -> bool {
    let (watcher::Error::WatchStartFailed(kube::Error::Api(status))
    | watcher::Error::InitialListFailed(kube::Error::Api(status))) = error
    else {
        return false;
    };
    status.code == 403
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
