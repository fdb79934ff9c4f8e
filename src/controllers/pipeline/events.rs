//! Handles what watches show.

use tokio::sync::mpsc;

use crate::kubernetes::watch::PipelineTaskEvent;

use super::controller::PipelineController;
use super::store::PipelineChange;
use super::watches::PipelineWatchEvent;

/// Events of tasks that are handled before Targets are decided about again: the watch that brings them waits meanwhile.
const AT_ONCE: usize = 64;

impl PipelineController {
    /// Handles what the watch of tasks shows, and some of what already waits: a full channel keeps the controller of tasks waiting too.
    pub(super) fn handle_task_events(
        &mut self,
        first: PipelineTaskEvent,
        others: &mut mpsc::Receiver<PipelineTaskEvent>,
    ) {
        self.handle_watch_event(first.into());
        for _ in 1..AT_ONCE {
            let Ok(event) = others.try_recv() else { break };
            self.handle_watch_event(event.into());
        }
    }

    pub(super) fn handle_watch_event(&mut self, event: PipelineWatchEvent) {
        // The event may show one of them, and is no news then.
        self.take_in_writes();
        let was_listed = self.store.is_listed();
        let change = match event {
            PipelineWatchEvent::Object(kind, scope, event) => {
                (kind.handle_event)(&mut self.store, &scope, event)
            }
            PipelineWatchEvent::Grant(scope, event) => self.store.handle_grant_event(&scope, event),
            PipelineWatchEvent::Task(scope, change) => self.store.handle_task_change(&scope, change),
            PipelineWatchEvent::Refused(scope) => self.store.handle_refusal(&scope),
        };
        self.look_at_room(&change);
        match change {
            PipelineChange::Concerned(namespace, found) => {
                if self.rollouts.mark(&namespace, &found) {
                    self.settle();
                }
                self.wake(*found);
            }
            PipelineChange::Listed if self.store.is_listed() => {
                self.settings.rules.unread = self.store.unread();
                self.wake_all();
                if !was_listed {
                    let targets = self.store.objects.targets.len();
                    tracing::info!(targets, "the pipeline knows all its objects");
                }
            }
            PipelineChange::Nothing | PipelineChange::Listed => {}
        }
    }
}
