//! The termination messages of ended pods: written by their watch, read by workers, removed with the pod.

use std::sync::Arc;

use dashmap::DashMap;

use crate::api::names::TaskUid;
use crate::plan::task::job_state::PodTermination;

/// Termination messages by task. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct PodResults(Arc<DashMap<TaskUid, PodTermination>>);

impl PodResults {
    /// Stores the message of a pod, unless a younger pod of the task has one already.
    pub fn put(&self, task: TaskUid, note: PodTermination) {
        if self.get(&task).is_none_or(|known| known.created <= note.created) {
            self.0.insert(task, note);
        }
    }

    /// Forgets the message of a pod that is gone.
    pub fn remove(&self, task: &TaskUid, pod_uid: &str) {
        self.0.remove_if(task, |_, note| note.pod_uid == pod_uid);
    }

    /// Forgets everything; a new list follows.
    pub fn clear(&self) {
        self.0.clear();
    }

    /// The latest message of a task's pods.
    #[must_use]
    pub fn get(&self, task: &TaskUid) -> Option<PodTermination> {
        self.0.get(task).map(|note| note.value().clone())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn termination(pod: &str, second: i64, succeeded: bool) -> PodTermination {
        PodTermination {
            pod_uid: pod.to_owned(),
            created: Timestamp::from_second(second).unwrap(),
            succeeded,
            exit_code: None,
            message: None,
            stop: None,
        }
    }

    #[test]
    fn the_youngest_pod_speaks_and_only_its_own_end_silences_it() {
        let (notes, task) = (PodResults::default(), TaskUid::new("t"));
        notes.put(task.clone(), termination("b", 2, true));
        notes.put(task.clone(), termination("a", 1, false));
        notes.remove(&task, "a");
        assert_eq!(notes.get(&task), Some(termination("b", 2, true)));
        notes.remove(&task, "b");
        assert_eq!(notes.get(&task), None);
    }
}
