//! What is done for a Target that is being deleted: what was made for it alone goes, and then its finalizer.

use k8s_openapi::jiff::SignedDuration;

use super::decision::{FinalizerChange, TargetDecision, TargetInput};
use crate::plan::pipeline::history::versions;
use crate::plan::pipeline::task::own_tasks;

/// Longest that the deletion of a Target waits for what was made for it.
pub const TEARDOWN_LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// What is done for a Target that is being deleted. Its tasks are waited for, and of its versions only that they are deleted, or are
/// the record of charts that are to be deleted: registries hold up no deletion.
pub(super) fn teardown(input: TargetInput<'_>) -> TargetDecision {
    let TargetInput {
        target, objects, now, ..
    } = input;
    let mut out = TargetDecision {
        status: target.object.status.clone(),
        ..TargetDecision::default()
    };
    let Some(deleted) = target
        .object
        .deleted_at
        .filter(|_| target.object.finalizers.hub_index.is_some())
    else {
        return out;
    };
    let versions = versions(&objects.hydrated_targets, target.key, &target.object.uid);
    let mut tasks = own_tasks(target.key, objects).peekable();
    if versions.is_empty() && tasks.peek().is_none() {
        out.finalizer = FinalizerChange::Remove;
        return out;
    }
    let ends = deleted.saturating_add(TEARDOWN_LIMIT).unwrap_or(deleted);
    if ends <= now {
        out.finalizer = FinalizerChange::Force;
        return out;
    }
    out.look_again = Some(ends);
    for (key, task) in tasks.filter(|(_, task)| !task.deleting) {
        out.old_tasks.push((key.clone(), task.uid.clone()));
    }
    let spec = target.object.spec.as_ref();
    let account = spec.and_then(|spec| spec.service_account_name.as_deref());
    for (key, version) in versions.values() {
        out.retire(key, version, account, input);
    }
    out
}
