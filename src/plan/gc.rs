//! Which objects with the hub's mark nobody needs any more.

use std::time::Duration;

use crate::names::TaskUid;

use super::task::Phase;

/// An object with the hub's mark.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Marked {
    /// Name of the object.
    pub name: String,
    /// UID of the object.
    pub uid: String,
    /// UID of the task it was made for, by its label.
    pub task: Option<TaskUid>,
    /// How long it exists.
    pub age: Duration,
}

/// The objects to delete: those older than `grace` whose task is gone, or was never named.
///
/// `phase` answers where a live task stands; `None` is a task that does not exist. Objects of live tasks are left to
/// the task's own life, which knows when they may go.
pub fn orphans<'a>(
    objects: &'a [Marked],
    grace: Duration,
    phase: impl Fn(&TaskUid) -> Option<Phase> + 'a,
) -> impl Iterator<Item = &'a Marked> {
    objects
        .iter()
        .filter(move |o| o.age >= grace && o.task.as_ref().and_then(&phase).is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(task: Option<&str>, age: u64) -> Marked {
        Marked {
            name: "render-x".into(),
            uid: "u".into(),
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
            let objects = [marked(task, age)];
            let live = |uid: &TaskUid| (uid.as_str() == "live").then_some(Phase::Running);
            assert_eq!(
                orphans(&objects, Duration::from_secs(60), live).count() == 1,
                goes,
                "{task:?} {age}"
            );
        }
    }
}
