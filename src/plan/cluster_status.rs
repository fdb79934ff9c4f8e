//! What is said of a `RenderCluster`, and when it is written.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::api::RenderClusterStatus;
use crate::api::conditions::{self, CONNECTION_ATTEMPTS, ConditionType, Reason, Wanted};

use super::lead::{Fault, Flaw};
use super::namespaces;

/// Shortest time between two writes that change no condition.
pub const PAUSE: Duration = Duration::from_secs(10);
/// Age at which the time of the last answer is written although nothing else is.
const STALE: Duration = Duration::from_secs(600);

/// How a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing leads there.
    Nowhere(Fault),
    /// The first attempt to connect is under way.
    Connecting,
    /// It is connected.
    Up,
    /// It is not connected.
    Down {
        /// Why.
        reason: Reason,
        /// Attempts since it was lost.
        attempts: u32,
        /// When the next one is made.
        next: Timestamp,
    },
}

/// What is known of a cluster.
#[derive(Clone, Debug)]
pub struct Facts<'a> {
    /// Generation of the spec.
    pub generation: i64,
    /// How it stands.
    pub standing: Standing,
    /// Whether nothing new is started there.
    pub is_suspended: bool,
    /// Namespaces that are refused because they were deleted and recreated.
    pub recreated: &'a [String],
    /// Version of Kubernetes there, if it was heard.
    pub version: Option<&'a str>,
    /// When it answered last, if it did.
    pub last_probe: Option<Timestamp>,
    /// Jobs of this hub there.
    pub active_jobs: usize,
}

/// The status that says what is known, made of the one that is there.
#[must_use]
pub fn next(old: &RenderClusterStatus, facts: &Facts<'_>, now: Timestamp) -> RenderClusterStatus {
    let mut next = old.clone();
    let generation = Some(facts.generation);
    // What was said before the hub started again is as good as any guess until the first attempt has ended.
    let says_nothing_new = facts.standing == Standing::Connecting
        && old.observed_generation == generation
        && connected(old).is_some();
    if !says_nothing_new {
        conditions::merge(&mut next.conditions, &[wanted(facts)], &[], generation, now);
        next.observed_generation = generation;
        (next.connection_attempts, next.next_connection_attempt) = match facts.standing {
            Standing::Down { attempts, next, .. } => {
                let attempts = i32::try_from(attempts).unwrap_or(i32::MAX);
                (Some(attempts), Some(seconds(next)))
            }
            Standing::Nowhere(_) | Standing::Connecting | Standing::Up => (None, None),
        };
    }
    if let Some(version) = facts.version {
        next.version = Some(version.to_owned());
    }
    next.active_jobs = Some(i32::try_from(facts.active_jobs).unwrap_or(i32::MAX));
    if let Some(probe) = facts.last_probe
        && (next != *old || is_stale(old.last_probe_time.as_ref(), probe))
    {
        next.last_probe_time = Some(seconds(probe));
    }
    next
}

/// When a status is to be written that was written last at `written`; `None` where there is nothing to say.
#[must_use]
pub fn due(
    old: &RenderClusterStatus,
    next: &RenderClusterStatus,
    written: Option<Timestamp>,
    now: Timestamp,
) -> Option<Timestamp> {
    if old == next {
        return None;
    }
    let said = |status: &RenderClusterStatus| {
        let verdict = connected(status).map(|c| (c.status.clone(), c.reason.clone()));
        (verdict, status.observed_generation)
    };
    if said(old) != said(next) {
        return Some(now);
    }
    let earliest = written.and_then(|written| written.checked_add(PAUSE).ok());
    Some(earliest.map_or(now, |earliest| earliest.max(now)))
}

fn connected(status: &RenderClusterStatus) -> Option<&Condition> {
    let type_ = ConditionType::Connected.as_str();
    status.conditions.iter().find(|c| c.type_ == type_)
}

fn is_stale(written: Option<&Time>, probe: Timestamp) -> bool {
    written.is_none_or(|written| probe.duration_since(written.0).unsigned_abs() >= STALE)
}

/// To the second, as the API server keeps it, so that what is read back is what was written.
fn seconds(time: Timestamp) -> Time {
    Time(Timestamp::from_second(time.as_second()).unwrap_or(time))
}

fn wanted(facts: &Facts<'_>) -> Wanted {
    let (is_up, reason) = match facts.standing {
        Standing::Nowhere(fault) => (false, fault.reason()),
        Standing::Connecting => (false, Reason::Connecting),
        Standing::Up => (true, Reason::Connected),
        Standing::Down { reason, .. } => (false, reason),
    };
    let mut message = match facts.standing {
        Standing::Nowhere(fault) => fault.message(),
        Standing::Connecting => "the first attempt to connect is under way",
        Standing::Up => "the cluster answers, and the hub may do there what it must",
        Standing::Down { reason, .. } => why(reason),
    }
    .to_owned();
    if facts.is_suspended {
        message.push_str("; it is suspended, so nothing new is started there");
    }
    namespaces::mention(&mut message, facts.recreated);
    if let Standing::Down { attempts, next, .. } = facts.standing {
        let next = seconds(next).0;
        _ = write!(
            message,
            "{CONNECTION_ATTEMPTS}{attempts}, next connection attempt: {next}"
        );
    }
    Wanted {
        type_: ConditionType::Connected,
        status: is_up,
        reason,
        message,
    }
}

/// Why a cluster is not connected, in words.
const fn why(reason: Reason) -> &'static str {
    match reason {
        Reason::Unauthorized => {
            "the cluster does not know the kubeconfig's user any more; put a new kubeconfig into the Secret"
        }
        Reason::Forbidden => {
            "the kubeconfig's user may not do in renderNamespace what the hub must; give it the documented Role there"
        }
        Reason::SelfTarget => "the kubeconfig leads to the hub's own cluster, which needs no RenderCluster",
        Reason::Incompatible => {
            "the cluster's version of Kubernetes is too old, or lacks a kind that the hub needs"
        }
        Reason::ImpersonationNotEffective => {
            "requests reach the cluster as somebody else's than they are made as"
        }
        Reason::InsecureKubeconfig => "the kubeconfig leads to an address that the hub does not connect to",
        _ => "the cluster does not answer, or not in time",
    }
}

/// A `RenderCluster` whose spec this version does not understand.
#[must_use]
pub const fn undecodable() -> Fault {
    Fault::Flaw(Flaw {
        reason: Reason::InvalidSpec,
        message: "the spec does not have the shape this hub understands",
    })
}

#[cfg(test)]
mod tests;
