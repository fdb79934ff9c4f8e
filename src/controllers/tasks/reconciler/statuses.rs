//! Writes statuses, each with the hub's seal, and believes none that has another's.

use std::sync::Arc;

use crate::api::RenderTaskStatus;
use crate::api::conditions::{ConditionType, Reason, find_condition, is_true};
use crate::kubernetes::apply::CallError;
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::task::model::{Task, TaskPhase};

use super::super::outcome::ReconcileError;
use super::Reconciler;

impl Reconciler<'_> {
    /// The task as read, with the hub's last status in place of one that it did not write.
    pub(super) fn believe(&mut self, mut task: Task) -> Task {
        let (last, status) = self.view.last_written.take().unwrap_or_default();
        self.view.is_forged = !self.context.key.is_genuine(&task, Some(last));
        self.outcome.status.is_forged = Some(self.view.is_forged);
        if self.view.is_forged {
            task.set_status(status);
        }
        task
    }

    pub(super) async fn write_status(
        &mut self,
        task: &Arc<Task>,
        status: RenderTaskStatus,
    ) -> Result<(), ReconcileError> {
        let is_first = task.status.conditions.is_empty();
        self.put_status(task, status).await?;
        if let Some(task) = self.view.task.as_ref().filter(|_| !self.outcome.is_gone) {
            record_events(&self.context.events, task, is_first);
        }
        Ok(())
    }

    /// Restores a status that another writer changed. Its event was sent already, so it is not sent again.
    pub(super) async fn restore_status(&mut self, task: &Arc<Task>) -> Result<(), ReconcileError> {
        self.put_status(task, task.status.clone()).await?;
        self.outcome.status.was_restored = true;
        tracing::warn!(task = %task.id.uid, "a status that the hub did not write was put right");
        Ok(())
    }

    async fn put_status(&mut self, task: &Arc<Task>, status: RenderTaskStatus) -> Result<(), ReconcileError> {
        let (status, digest) = self.context.key.sealed(&task.id.uid, status);
        let answer = self.context.hub_client.write_status(&task.id, &status).await;
        self.outcome.status.in_doubt = answer.as_ref().is_err_and(|error| error.is_ambiguous());
        let standing = match answer {
            Err(CallError::NotFound) => {
                self.outcome.is_gone = true;
                return Ok(());
            }
            answer => answer?,
        };
        self.view.is_forged = false;
        (self.outcome.status.is_forged, self.outcome.status.was_written) = (Some(false), true);
        self.apply_change(task, String::new(), |task| {
            task.set_revision(standing);
            task.set_sealed_status(status, digest);
        });
        Ok(())
    }
}

/// At most two events a task: why it cannot start, and how it ended.
fn record_events(events: &EventRecorder, task: &Task, is_first: bool) {
    let type_ = match task.phase() {
        TaskPhase::Succeeded => ConditionType::JobSucceeded,
        TaskPhase::Failed => ConditionType::JobFailed,
        TaskPhase::Pending if is_first => ConditionType::JobScheduled,
        _ => return,
    };
    let Some(condition) = find_condition(&task.status.conditions, type_) else {
        return;
    };
    let Some(reason) = Reason::parse(&condition.reason) else {
        return;
    };
    let is_good = is_true(&task.status.conditions, ConditionType::JobSucceeded) || reason == Reason::Queued;
    events.record(EventMessage {
        subject: EventSubject::Task(task.id.clone()),
        is_warning: !is_good,
        reason,
        note: condition.message.clone(),
    });
}
