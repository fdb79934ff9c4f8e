//! What an event says of a Target or a Profile: what happened to it, once for each transition.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

use crate::api::conditions::{ConditionType, Reason, find_condition, has_reason};
use crate::api::pipeline::{HydratedTargetSpec, HydratedTargetStatus, ProfileStatus, TargetStatus};

/// What an event says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PipelineReport {
    /// Whether it is a warning.
    pub is_warning: bool,
    /// Why.
    pub reason: Reason,
    /// The same for people.
    pub note: String,
}

impl PipelineReport {
    fn normal(reason: Reason, note: String) -> Self {
        Self {
            is_warning: false,
            reason,
            note,
        }
    }
}

/// A version of a Target was made.
#[must_use]
pub fn of_new_version(version: &HydratedTargetSpec) -> PipelineReport {
    let note = format!("version {} is made: {}", version.version, version.changes);
    PipelineReport::normal(Reason::VersionMade, note)
}

/// The chart of a version was pushed; `None` where another status was written.
#[must_use]
pub fn of_version(
    number: i64,
    old: &HydratedTargetStatus,
    new: &HydratedTargetStatus,
) -> Option<PipelineReport> {
    let is_pushed = old.pushed_at.is_none() && new.pushed_at.is_some();
    let note = || format!("the chart of version {number} is pushed");
    is_pushed.then(|| PipelineReport::normal(Reason::VersionPushed, note()))
}

/// The chart of a Release or of a version failed.
#[must_use]
pub fn of_target(old: &TargetStatus, new: &TargetStatus) -> Option<PipelineReport> {
    let failed = [
        (ConditionType::ReleasesRendered, Reason::ReleaseFailed),
        (ConditionType::BootstrapReady, Reason::Failed),
    ];
    let mut reached = failed.into_iter();
    reached.find_map(|(type_, reason)| reached_reason(&old.conditions, &new.conditions, type_, reason))
}

/// The rollout of a Profile halted.
#[must_use]
pub fn of_profile(old: &ProfileStatus, new: &ProfileStatus) -> Option<PipelineReport> {
    let (old, new) = (&old.conditions, &new.conditions);
    reached_reason(old, new, ConditionType::Ready, Reason::RolloutHalted)
}

/// A warning where a condition has a reason that it did not have.
fn reached_reason(
    old: &[Condition],
    new: &[Condition],
    type_: ConditionType,
    reason: Reason,
) -> Option<PipelineReport> {
    let reached = find_condition(new, type_).filter(|new| new.reason == reason.as_str())?;
    (!has_reason(old, type_, reason)).then(|| PipelineReport {
        is_warning: true,
        reason,
        note: reached.message.clone(),
    })
}
