//! What the person who reads of a failed Job can do about it.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::api::termination::Reason as Said;

use super::outcome::Stop;

/// What to do next, as the end of a sentence that says what happened; without a word of the pod by what stopped it.
pub(super) const fn advice(said: Option<Said>, deadline: bool, stop: Option<Stop>) -> &'static str {
    match (said, stop) {
        (Some(said), _) => of_word(said),
        (None, Some(Stop::OutOfMemory)) => {
            "make a new task with less in spec.config, or ask the platform operator for a renderer class with more memory"
        }
        (None, Some(Stop::Evicted)) => {
            "make a new task; if that fails too, ask the platform operator to look at the node and at the limits of the renderer \
             class"
        }
        (None, None) if deadline => "ask the platform operator why, then make a new task",
        (None, None) => "then make a new task",
    }
}

const fn of_word(said: Said) -> &'static str {
    match said {
        Said::BadConfig => "correct spec.config in a new task",
        Said::InputReplaced => "then make a new task",
        Said::ChartTooLarge => "make a new task with less in spec.config",
        Said::BadArchive => {
            "ask the platform operator to check the image of the renderer class, then make a new task"
        }
        Said::BadDestination => {
            "make a new task whose repository ends in the chart's name and whose tag is the chart's version"
        }
        Said::BadCredentials | Said::Unauthorized => {
            "correct the push Secret, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::CredentialRequired => {
            "name a push Secret, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::Forbidden => {
            "give its account the right to push there, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::TagConflict => "make a new task with another version of the chart",
        Said::RegistryUnreachable => {
            "check the registry's host, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::RegistryRefused => {
            "ask the platform operator, who can read the log of the pod, or look into the registry's log; then make a new task"
        }
        Said::DigestMismatch => {
            "do not use what is there, and find out what stands between the pod and the registry, or ask the platform operator to"
        }
        Said::RedirectRefused => {
            "name the host that answers in the end, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::RealmRefused => {
            "name its URL in tokenRealm of the Registry, or for a ClusterRegistry ask the platform operator to; then make a new task"
        }
        Said::Internal => {
            "make a new task; if that fails too, ask the platform operator, who can read the log of the pod"
        }
        // No failure is told with one of these.
        Said::Rendered | Said::Pushed | Said::AlreadyExists => "make a new task",
    }
}
