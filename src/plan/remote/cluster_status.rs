//! The status of a `RenderCluster`, and when it is written.

use std::fmt::Write as _;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use k8s_openapi::jiff::Timestamp;

use crate::api::RenderClusterStatus;
use crate::api::conditions::{self, ConditionType, DesiredCondition, Reason, find_condition};
use crate::api::time::whole_seconds;

use super::health::{self, ConnectionHealth, ConnectionPhase};
use super::kubeconfig_fault::{KubeconfigFault, KubeconfigFlaw};
use crate::plan::platform::namespaces;

/// Shortest time between two writes that change no condition.
pub const PAUSE: Duration = Duration::from_secs(10);
/// Age at which the time of the last answer is written although nothing else changed.
const STALE: Duration = Duration::from_secs(600);

/// Message of a cluster that is connected.
const UP: &str = "the cluster answers, and the hub has the rights there that it needs";

/// State of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ClusterState {
    /// There is no valid kubeconfig.
    NoConnection(KubeconfigFault),
    /// There is a connection, up or not.
    Connection {
        /// Its health.
        health: ConnectionHealth,
        /// Why the cluster's namespace there cannot be used.
        fault: Option<health::ConnectionFault>,
    },
}

impl ClusterState {
    /// A connection without a report yet.
    #[must_use]
    pub const fn first() -> Self {
        let fault = Some(health::ConnectionFault::Connecting);
        let health = ConnectionHealth {
            phase: ConnectionPhase::Connecting,
            fault,
            unanswered_since: None,
            version: None,
            last_probe: None,
            attempts: 0,
            next_attempt: None,
            wants_reread: false,
        };
        Self::Connection { health, fault }
    }

    /// Whether the first attempt to connect is in flight.
    const fn is_first(&self) -> bool {
        matches!(
            self,
            Self::Connection {
                fault: Some(health::ConnectionFault::Connecting),
                ..
            }
        )
    }

    /// Attempts since the connection was lost, and the time of the next one if none is in flight.
    fn attempts(&self) -> Option<(u32, Option<Timestamp>)> {
        match self {
            Self::Connection { health, .. } if health.phase == ConnectionPhase::Lost => {
                Some((health.attempts, health.next_attempt))
            }
            Self::NoConnection(_) | Self::Connection { .. } => None,
        }
    }

    fn reason(&self) -> Reason {
        match self {
            Self::NoConnection(fault) => fault.reason(),
            Self::Connection { fault, .. } => {
                fault.map_or(Reason::Connected, health::ConnectionFault::reason)
            }
        }
    }

    fn message(&self) -> &'static str {
        match self {
            Self::NoConnection(fault) => fault.message(),
            Self::Connection { fault, .. } => fault.map_or(UP, health::ConnectionFault::message),
        }
    }
}

/// The facts that a cluster's status shows.
#[derive(Clone, Debug)]
pub struct ClusterFacts<'a> {
    /// Generation of the spec.
    pub generation: i64,
    /// Its state.
    pub state: ClusterState,
    /// Whether nothing new is started there.
    pub is_suspended: bool,
    /// Namespaces that are refused because they were deleted and recreated.
    pub recreated: &'a [String],
    /// Jobs of this hub there.
    pub active_jobs: usize,
}

/// The next status, made of the current one. An announced attempt that is in flight changes nothing; the next attempt in a
/// written status never lies in the past.
#[must_use]
pub fn next(old: &RenderClusterStatus, facts: &ClusterFacts<'_>, now: Timestamp) -> RenderClusterStatus {
    let next = with_attempts(old, facts, announced(old, facts), now);
    let is_past = next
        .next_connection_attempt
        .as_ref()
        .is_some_and(|at| at.0 < whole_seconds(now).0);
    if is_past && next != *old {
        return with_attempts(old, facts, None, now);
    }
    next
}

fn with_attempts(
    old: &RenderClusterStatus,
    facts: &ClusterFacts<'_>,
    announced: Option<(u32, Time)>,
    now: Timestamp,
) -> RenderClusterStatus {
    let mut next = old.clone();
    let generation = Some(facts.generation);
    // After a restart of the hub, the former condition stays until the first attempt has ended.
    let keeps_condition =
        facts.state.is_first() && old.observed_generation == generation && connected(old).is_some();
    if !keeps_condition {
        set_condition(&mut next, facts, announced, now);
    }
    let health = match &facts.state {
        ClusterState::Connection { health, .. } => Some(health),
        ClusterState::NoConnection(_) => None,
    };
    if let Some(version) = health.and_then(|health| health.version) {
        next.version = Some(version.to_string());
    }
    next.active_jobs = Some(limited(facts.active_jobs));
    if let Some(probe) = health.and_then(|health| health.last_probe)
        && (next != *old || is_stale(old.last_probe_time.as_ref(), probe))
    {
        next.last_probe_time = Some(whole_seconds(probe));
    }
    next
}

/// Sets the condition `Connected`, with the attempts as they were announced or as they are now.
fn set_condition(
    status: &mut RenderClusterStatus,
    facts: &ClusterFacts<'_>,
    announced: Option<(u32, Time)>,
    now: Timestamp,
) {
    let current = || {
        let (made, next) = facts.state.attempts()?;
        Some((made, whole_seconds(next.map_or(now, |next| next.max(now)))))
    };
    let attempts = announced.or_else(current);
    let wanted = wanted(facts, attempts.as_ref());
    let generation = Some(facts.generation);
    conditions::merge(&mut status.conditions, &[wanted], &[], generation, now);
    status.observed_generation = generation;
    status.connection_attempts = attempts.as_ref().map(|(made, _)| limited(*made));
    status.next_connection_attempt = attempts.map(|(_, at)| at);
}

/// The attempts as they were announced, where the announced one is in flight.
fn announced(old: &RenderClusterStatus, facts: &ClusterFacts<'_>) -> Option<(u32, Time)> {
    let (made, None) = facts.state.attempts()? else {
        return None;
    };
    let announced = u32::try_from(old.connection_attempts?).ok()?;
    let is_same = announced == made || announced.checked_add(1) == Some(made);
    is_same.then_some((announced, old.next_connection_attempt.clone()?))
}

/// When a status that was last written at `written` is to be written; `None` where nothing changed.
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

/// The reason and message of the event for a written status, if whether it is connected, or why not, has changed.
#[must_use]
pub fn transition<'a>(old: &RenderClusterStatus, new: &'a RenderClusterStatus) -> Option<(Reason, &'a str)> {
    let condition = connected(new)?;
    let reason = Reason::parse(&condition.reason)?;
    let has_changed = connected(old).is_none_or(|before| before.reason != condition.reason);
    (has_changed && reason != Reason::Connecting).then_some((reason, condition.message.as_str()))
}

/// Whether two statuses differ in whether the cluster is connected, or why not.
#[must_use]
pub fn contradicts(one: &RenderClusterStatus, other: &RenderClusterStatus) -> bool {
    let verdict_of = |status: &RenderClusterStatus| {
        let verdict = connected(status).map(|c| (c.status.clone(), c.reason.clone()));
        (verdict, status.observed_generation)
    };
    verdict_of(one) != verdict_of(other)
}

fn connected(status: &RenderClusterStatus) -> Option<&Condition> {
    find_condition(&status.conditions, ConditionType::Connected)
}

fn is_stale(written: Option<&Time>, probe: Timestamp) -> bool {
    written.is_none_or(|written| probe.duration_since(written.0).unsigned_abs() >= STALE)
}

fn limited(number: impl TryInto<i32>) -> i32 {
    number.try_into().unwrap_or(i32::MAX)
}

fn wanted(facts: &ClusterFacts<'_>, attempts: Option<&(u32, Time)>) -> DesiredCondition {
    let mut message = facts.state.message().to_owned();
    if facts.is_suspended {
        message.push_str("; it is suspended, so nothing new is started there");
    }
    namespaces::mention(&mut message, facts.recreated);
    if let Some((made, next)) = attempts {
        let next = next.0;
        _ = write!(
            message,
            "; connection attempts: {made}, next connection attempt: {next}"
        );
    }
    let reason = facts.state.reason();
    DesiredCondition::new(
        ConditionType::Connected,
        reason == Reason::Connected,
        reason,
        message,
    )
}

/// A `RenderCluster` whose spec this version does not understand.
#[must_use]
pub const fn undecodable() -> KubeconfigFault {
    KubeconfigFault::Flaw(KubeconfigFlaw {
        reason: Reason::InvalidSpec,
        message: "this version of the hub cannot read the spec: a field is missing, or has a value of another type; correct it",
    })
}

#[cfg(test)]
mod tests;
