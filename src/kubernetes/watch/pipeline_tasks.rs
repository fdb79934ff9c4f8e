//! The tasks that the pipeline made, which it is shown by the watch of all tasks.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::mpsc;

use crate::api::names::{TaskKind, TaskUid};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::task_state::PipelineTask;
use crate::plan::task::model::TaskId;
use crate::plan::task::status_seal::SealKey;

use super::event::{ShownTask, WatchChange};
use super::scope::TaskWatchScope;

/// A task that the pipeline made, with its key; of one that is gone, or lost its label, the UID.
pub type PipelineTaskChange = WatchChange<(ObjectKey, PipelineTask), (ObjectKey, TaskUid)>;

/// What the pipeline is shown of the tasks of the one namespace that is watched, or of all.
#[derive(Debug)]
pub enum PipelineTaskEvent {
    /// A task of its own, or a change of the watch.
    Change(Option<Arc<str>>, Box<PipelineTaskChange>),
    /// The API server does not let the hub list them. The watch is opened again until it does.
    Refused(Option<Arc<str>>),
}

/// Where the pipeline is shown its tasks, and the key by which the hub knows the statuses that it wrote.
#[derive(Clone)]
pub struct PipelineTaskSender {
    /// The channel; a full one makes the watch wait.
    pub out: mpsc::Sender<PipelineTaskEvent>,
    /// The key.
    pub key: Arc<SealKey>,
}

/// The tasks of the pipeline among those that one watch shows.
pub(super) struct PipelineTasks {
    sender: PipelineTaskSender,
    namespace: Option<Arc<str>>,
    /// Those that the pipeline was shown: one that loses its label is gone for it.
    shown: HashSet<TaskUid>,
}

impl PipelineTasks {
    /// `None` where the watch shows the platform's own tasks: the pipeline makes none of those, and the end of their list says nothing of
    /// its own.
    pub fn among(scope: &TaskWatchScope, sender: PipelineTaskSender) -> Option<Self> {
        (scope.kind == TaskKind::RenderTask).then(|| Self {
            sender,
            namespace: scope.namespace.clone(),
            shown: HashSet::new(),
        })
    }

    /// What tells the pipeline that the watch is refused, unless it has much else to take in: the next refusal says the same.
    pub fn refusals(&self) -> impl Fn() + Clone + Send + use<> {
        let (out, namespace) = (self.sender.out.clone(), self.namespace.clone());
        move || _ = out.try_send(PipelineTaskEvent::Refused(namespace.clone()))
    }

    /// Shows the pipeline what concerns it.
    pub async fn show(&mut self, change: &WatchChange<ShownTask, TaskId>) {
        if let Some(change) = self.change(change) {
            let event = PipelineTaskEvent::Change(self.namespace.clone(), Box::new(change));
            // A pipeline that takes no more stops with the hub.
            _ = self.sender.out.send(event).await;
        }
    }

    fn change(&mut self, change: &WatchChange<ShownTask, TaskId>) -> Option<PipelineTaskChange> {
        let id = match change {
            WatchChange::Restart => {
                self.shown.clear();
                return Some(WatchChange::Restart);
            }
            WatchChange::Synced => return Some(WatchChange::Synced),
            WatchChange::Seen(ShownTask {
                task,
                has_pipeline_label: true,
            }) => {
                self.shown.insert(task.id.uid.clone());
                let is_genuine = self.sender.key.is_genuine(task, None);
                let seen = PipelineTask::of(task, is_genuine);
                return Some(WatchChange::Seen((key_of(&task.id), seen)));
            }
            WatchChange::Seen(without_label) => &without_label.task.id,
            WatchChange::Gone(id) => id,
        };
        let was_shown = self.shown.remove(&id.uid);
        was_shown.then(|| WatchChange::Gone((key_of(id), id.uid.clone())))
    }
}

fn key_of(id: &TaskId) -> ObjectKey {
    ObjectKey::new(&id.namespace, &id.name)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;
    use kube::api::ObjectMeta;
    use serde_json::json;

    use super::*;
    use crate::plan::task::model::Task;
    use crate::plan::task::status_seal::KEY_BYTES;

    fn tasks(
        kind: TaskKind,
        namespace: Option<&str>,
    ) -> (Option<PipelineTasks>, mpsc::Receiver<PipelineTaskEvent>) {
        let (out, events) = mpsc::channel(1);
        let key = Arc::new(SealKey::new([0; KEY_BYTES], Timestamp::UNIX_EPOCH));
        let scope = TaskWatchScope {
            kind,
            namespace: namespace.map(Arc::from),
        };
        (
            PipelineTasks::among(&scope, PipelineTaskSender { out, key }),
            events,
        )
    }

    #[test]
    fn the_platforms_own_tasks_are_none_of_the_pipelines() {
        assert!(tasks(TaskKind::ClusterRenderTask, None).0.is_none());
        assert!(tasks(TaskKind::RenderTask, None).0.is_some());
    }

    fn task(name: &str, has_pipeline_label: bool) -> WatchChange<ShownTask, TaskId> {
        let meta = ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some("team".to_owned()),
            uid: Some(format!("uid of {name}")),
            ..ObjectMeta::default()
        };
        let task = Task::new(TaskKind::RenderTask, &meta, json!({}), json!({})).unwrap();
        WatchChange::Seen(ShownTask {
            task: Box::new(task),
            has_pipeline_label,
        })
    }

    fn gone(name: &str) -> WatchChange<ShownTask, TaskId> {
        WatchChange::Gone(TaskId {
            kind: TaskKind::RenderTask,
            namespace: "team".to_owned(),
            name: name.to_owned(),
            uid: TaskUid::new(&format!("uid of {name}")),
        })
    }

    fn said(event: PipelineTaskEvent) -> String {
        let PipelineTaskEvent::Change(namespace, change) = event else {
            panic!("{event:?}")
        };
        assert_eq!(namespace.as_deref(), Some("team"));
        let (said, key, uid) = match *change {
            WatchChange::Restart => return "restart".to_owned(),
            WatchChange::Synced => return "synced".to_owned(),
            WatchChange::Seen((key, task)) => ("seen", key, task.uid),
            WatchChange::Gone((key, uid)) => ("gone", key, uid.as_str().to_owned()),
        };
        assert_eq!(
            (key.namespace.as_str(), uid),
            ("team", format!("uid of {}", key.name))
        );
        format!("{said} {}", key.name)
    }

    #[tokio::test]
    async fn the_pipeline_is_shown_its_tasks_as_long_as_they_have_the_label() {
        let (tasks, mut events) = tasks(TaskKind::RenderTask, Some("team"));
        let mut tasks = tasks.unwrap();
        for (change, expected) in [
            (WatchChange::Restart, Some("restart")),
            (task("own", true), Some("seen own")),
            (task("own", true), Some("seen own")),
            (task("another", false), None),
            (WatchChange::Synced, Some("synced")),
            (task("own", false), Some("gone own")),
            (task("own", false), None),
            (gone("another"), None),
            (gone("own"), None),
            (task("own", true), Some("seen own")),
            (gone("own"), Some("gone own")),
            (task("own", true), Some("seen own")),
            (WatchChange::Restart, Some("restart")),
            // The list does not show it to the pipeline, which knows then that it is gone.
            (task("own", false), None),
        ] {
            tasks.show(&change).await;
            let shown = events.try_recv().ok().map(said);
            assert_eq!(shown.as_deref(), expected, "{change:?}");
        }
    }

    #[test]
    fn a_refusal_waits_for_no_room_in_the_channel() {
        let (tasks, mut events) = tasks(TaskKind::RenderTask, None);
        let report = tasks.unwrap().refusals();
        report();
        report();
        assert!(matches!(events.try_recv(), Ok(PipelineTaskEvent::Refused(None))));
        assert!(events.try_recv().is_err());
    }
}
