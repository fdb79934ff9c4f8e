//! What is said of a `RenderCluster`, and when it is written.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::api::RenderClusterStatus;
use crate::api::conditions::{self, CONNECTION_ATTEMPTS, ConditionType, Reason, Wanted};

use super::health::{self, Health, Phase};
use super::lead::{Fault, Flaw};
use super::namespaces;

/// Shortest time between two writes that change no condition.
pub const PAUSE: Duration = Duration::from_secs(10);
/// Age at which the time of the last answer is written although nothing else is.
const STALE: Duration = Duration::from_secs(600);

/// What is said of a cluster that is connected.
const UP: &str = "the cluster answers, and the hub may do there what it must";

/// How a cluster stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Standing {
    /// Nothing leads there.
    Nowhere(Fault),
    /// A connection was made to lead there, and stands or not.
    Connection {
        /// What is known of it.
        health: Health,
        /// What keeps the cluster's namespace there from being used.
        fault: Option<health::Fault>,
    },
}

impl Standing {
    /// A connection of which nothing was heard yet.
    #[must_use]
    pub const fn first() -> Self {
        let fault = Some(health::Fault::Connecting);
        let health = Health {
            phase: Phase::Connecting,
            fault,
            since: None,
            version: None,
            last_probe: None,
            attempts: 0,
            next_attempt: None,
            reread: false,
        };
        Self::Connection { health, fault }
    }

    /// Whether the first attempt to connect is under way.
    const fn is_first(&self) -> bool {
        matches!(
            self,
            Self::Connection {
                fault: Some(health::Fault::Connecting),
                ..
            }
        )
    }

    /// Attempts since the connection was lost, and when the next one is made if none is under way.
    fn attempts(&self) -> Option<(u32, Option<Timestamp>)> {
        match self {
            Self::Connection { health, .. } if health.phase == Phase::Lost => {
                Some((health.attempts, health.next_attempt))
            }
            Self::Nowhere(_) | Self::Connection { .. } => None,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::Nowhere(fault) => fault.reason(),
            Self::Connection { fault, .. } => fault.map_or(Reason::Connected, health::Fault::reason),
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::Nowhere(fault) => fault.message(),
            Self::Connection { fault, .. } => fault.map_or(UP, health::Fault::message),
        }
    }
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
    /// Jobs of this hub there.
    pub active_jobs: usize,
}

/// The status that says what is known, made of the one that is there.
#[must_use]
pub fn next(old: &RenderClusterStatus, facts: &Facts<'_>, now: Timestamp) -> RenderClusterStatus {
    let mut next = old.clone();
    let generation = Some(facts.generation);
    // What was said before the hub started again is as good as any guess until the first attempt has ended.
    let says_nothing_new =
        facts.standing.is_first() && old.observed_generation == generation && connected(old).is_some();
    if !says_nothing_new {
        // An attempt that is under way is the one that was announced.
        let announced = old.next_connection_attempt.as_ref().map_or(now, |time| time.0);
        let attempts = facts.standing.attempts();
        let attempts = attempts.map(|(made, next)| (made, seconds(next.unwrap_or(announced))));
        let wanted = wanted(facts, attempts.as_ref());
        conditions::merge(&mut next.conditions, &[wanted], &[], generation, now);
        next.observed_generation = generation;
        next.connection_attempts = attempts.as_ref().map(|(made, _)| limited(*made));
        next.next_connection_attempt = attempts.map(|(_, at)| at);
    }
    let health = match &facts.standing {
        Standing::Connection { health, .. } => Some(health),
        Standing::Nowhere(_) => None,
    };
    if let Some(version) = health.and_then(|health| health.version) {
        next.version = Some(version.to_string());
    }
    next.active_jobs = Some(limited(facts.active_jobs));
    if let Some(probe) = health.and_then(|health| health.last_probe)
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
    if contradicts(old, next) {
        return Some(now);
    }
    let earliest = written.and_then(|written| written.checked_add(PAUSE).ok());
    Some(earliest.map_or(now, |earliest| earliest.max(now)))
}

/// Whether two statuses say different things of whether the cluster is connected, and why.
#[must_use]
pub fn contradicts(one: &RenderClusterStatus, other: &RenderClusterStatus) -> bool {
    let said = |status: &RenderClusterStatus| {
        let verdict = connected(status).map(|c| (c.status.clone(), c.reason.clone()));
        (verdict, status.observed_generation)
    };
    said(one) != said(other)
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

fn limited(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn wanted(facts: &Facts<'_>, attempts: Option<&(u32, Time)>) -> Wanted {
    let mut message = facts.standing.message().to_owned();
    if facts.is_suspended {
        message.push_str("; it is suspended, so nothing new is started there");
    }
    namespaces::mention(&mut message, facts.recreated);
    if let Some((made, next)) = attempts {
        let next = next.0;
        _ = write!(
            message,
            "{CONNECTION_ATTEMPTS}{made}, next connection attempt: {next}"
        );
    }
    let reason = facts.standing.reason();
    Wanted {
        type_: ConditionType::Connected,
        status: reason == Reason::Connected,
        reason,
        message,
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
