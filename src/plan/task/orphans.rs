//! Decides which objects with the hub's labels are orphans.

use std::time::Duration;

use crate::api::names::TaskUid;

use crate::plan::task::model::TaskPhase;

/// An object with the hub's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabeledObject {
    /// UID of the task it was made for, by its label.
    pub task: Option<TaskUid>,
    /// How long it exists.
    pub age: Duration,
}

/// Whether an object is to be deleted: it is older than `grace`, and its task is gone, or was never named.
///
/// `phase` is the phase of its task; `None` is a task that does not exist. The reconcile of a live task decides when its objects
/// are deleted.
#[must_use]
pub fn is_orphan(object: &LabeledObject, grace: Duration, phase: Option<TaskPhase>) -> bool {
    object.age >= grace && phase.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(task: Option<&str>, age: u64) -> LabeledObject {
        LabeledObject {
            task: task.map(TaskUid::new),
            age: Duration::from_secs(age),
        }
    }

    /// Holds: D3.
    #[test]
    fn only_old_objects_without_a_task_go() {
        let table = [
            (Some("live"), 3600, false),
            (Some("gone"), 3600, true),
            (Some("gone"), 59, false),
            (None, 3600, true),
        ];
        for (task, age, goes) in table {
            let object = marked(task, age);
            let phase = (task == Some("live")).then_some(TaskPhase::Running);
            let found = is_orphan(&object, Duration::from_secs(60), phase);
            assert_eq!(found, goes, "{task:?} {age}");
        }
    }
}
