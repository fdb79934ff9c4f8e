//! Writes in the middle of a change, at which a hub is killed.

use support::proxy::Write;

/// A version of a Target is made.
pub fn makes_version(write: &Write) -> bool {
    write.creates("hydratedtargets")
}

/// The task for a version's chart is made.
pub fn makes_bootstrap_task(write: &Write) -> bool {
    let name = write.body["metadata"]["name"].as_str();
    write.creates("rendertasks") && name.is_some_and(|name| name.starts_with("bootstrap-"))
}

/// A release's chart was pushed, and its task's status says so.
pub fn says_that_a_release_is_rendered(write: &Write) -> bool {
    is_status(write, "/rendertasks/release-") && write.status()["completionTime"].is_string()
}

/// A version's chart was pushed, and the version's status says so.
pub fn says_that_a_version_is_pushed(write: &Write) -> bool {
    is_status(write, "/hydratedtargets/") && write.status()["pushedAt"].is_string()
}

/// The status of a Release says that it names what it may not, or what is not there.
pub fn says_that_a_release_is_not_ready(write: &Write) -> bool {
    let mut conditions = write.status()["conditions"].as_array().into_iter().flatten();
    is_status(write, "/releases/") && conditions.any(|c| c["type"] == "Ready" && c["status"] == "False")
}

/// The object whose status a write is.
pub fn object_of(write: &Write) -> &str {
    let path = write.path.trim_end_matches("/status");
    path.rsplit('/').next().unwrap_or_default()
}

fn is_status(write: &Write, of: &str) -> bool {
    write.path.contains(of) && write.path.ends_with("/status")
}
