//! What `--log-level debug` shows of the pipeline: each decision about a Target, and whom a write is for.

use tracing::Span;

use crate::api::conditions::{ConditionType, find_condition};
use crate::plan::pipeline::decide::TargetDecision;
use crate::plan::pipeline::object::ObjectKey;

/// Around what is done for a Target.
pub(super) fn span_of(key: &ObjectKey) -> Span {
    tracing::debug_span!("target", namespace = key.namespace, target_name = key.name)
}

/// Shows what was decided about a Target.
pub(super) fn log_decision(key: &ObjectKey, decision: &TargetDecision) {
    let ready = || find_condition(&decision.status.conditions, ConditionType::Ready);
    tracing::debug!(
        namespace = key.namespace,
        target_name = key.name,
        ready = ready().map(|ready| ready.reason.as_str()),
        new_version = decision.new_version.as_ref().map(|(_, spec)| spec.version),
        new_tasks = decision.new_tasks.len(),
        awaits_tasks = decision.awaits_tasks,
        "a Target is decided about"
    );
}
