//! What the person who reads of a failed Job can do about it.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::api::termination::TerminationReason as Reported;

use super::job_state::PodKillReason;

/// What to do next, as the end of a sentence that says what happened; without a termination message, by what stopped the pod.
pub(super) const fn advice(
    reason: Option<Reported>,
    deadline: bool,
    stop: Option<PodKillReason>,
) -> &'static str {
    match (reason, stop) {
        (Some(said), _) => of_reason(said),
        (None, Some(PodKillReason::OutOfMemory)) => {
            "make a new task with less in spec.config, or ask the platform operator for a renderer class with more memory"
        }
        (None, Some(PodKillReason::Evicted)) => {
            "make a new task; if that fails too, ask the platform operator to look at the node and at the limits of the renderer \
             class"
        }
        (None, None) if deadline => "ask the platform operator why, then make a new task",
        (None, None) => "then make a new task",
    }
}

/// No failure has one of the last three reasons.
const fn of_reason(said: Reported) -> &'static str {
    match said {
        Reported::BadConfig => "correct spec.config in a new task",
        Reported::InputReplaced => "then make a new task",
        Reported::ChartTooLarge => "make a new task with less in spec.config",
        Reported::BadArchive => {
            "ask the platform operator to check the image of the renderer class, then make a new task"
        }
        Reported::BadDestination => {
            "make a new task whose repository ends in the chart's name and whose tag is the chart's version"
        }
        Reported::BadCredentials | Reported::Unauthorized => {
            "correct the push Secret, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::CredentialRequired => {
            "name a push Secret, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::Forbidden => {
            "give its account the right to push there, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::TagConflict => "make a new task with another version of the chart",
        Reported::RegistryUnreachable => {
            "check the registry's host, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::RegistryRefused => {
            "ask the platform operator, who can read the log of the pod, or look into the registry's log; then make a new task"
        }
        Reported::DigestMismatch => {
            "do not use what is there, and find out what separates the pod from the registry, or ask the platform operator to"
        }
        Reported::RedirectRefused => {
            "name the host that answers in the end, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::RealmRefused => {
            "name its URL in tokenRealm of the Registry, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Reported::Internal => {
            "make a new task; if that fails too, ask the platform operator, who can read the log of the pod"
        }
        Reported::Rendered | Reported::Pushed | Reported::AlreadyExists => "make a new task",
    }
}
