//! Which task an object serves, by its metadata.

use kube::api::ObjectMeta;

use crate::api::labels::{self, TASK_UID};
use crate::api::names::{TaskUid, is_name_of};
use crate::plan::task::job_state::{CompletionHint, ObservedJob};

/// A Job by its metadata.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobMetadata {
    /// The task it serves, by its label.
    pub task: TaskUid,
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// Hash of the spec it was made from.
    pub spec_hash: String,
    /// Where its chart goes.
    pub chart_url: Option<String>,
    /// What its metadata say of its end.
    pub hint: CompletionHint,
    /// The Job itself once it has ended, where its watch shows more than metadata.
    pub ended: Option<Box<ObservedJob>>,
}

/// The task an object serves, by its label.
#[must_use]
pub fn task_of(metadata: &ObjectMeta) -> Option<TaskUid> {
    metadata
        .labels
        .as_ref()?
        .get(TASK_UID)
        .map(|uid| TaskUid::new(uid))
}

/// The task whose config Secret this is, by its label and its name.
#[must_use]
pub fn secret_task(metadata: &ObjectMeta) -> Option<TaskUid> {
    let task = task_of(metadata)?;
    is_name_of(metadata.name.as_deref()?, &task).then_some(task)
}

/// The task whose Job owns the pod: a copy of that Job has pods with the same labels.
#[must_use]
pub fn pod_task(metadata: &ObjectMeta) -> Option<TaskUid> {
    let task = task_of(metadata)?;
    let mut owners = metadata.owner_references.iter().flatten();
    let owner = owners.find(|o| o.controller == Some(true) && o.kind == "Job")?;
    is_name_of(&owner.name, &task).then_some(task)
}

/// A Job by its metadata and what those say of its end; `None` without a UID or a task whose Job has this name.
#[must_use]
pub fn job_metadata(metadata: &ObjectMeta, hint: CompletionHint) -> Option<JobMetadata> {
    let annotation = |key: &str| metadata.annotations.as_ref()?.get(key).cloned();
    let (task, name) = (task_of(metadata)?, metadata.name.clone()?);
    if !is_name_of(&name, &task) {
        return None;
    }
    Some(JobMetadata {
        task,
        name,
        uid: metadata.uid.clone()?,
        spec_hash: annotation(labels::SPEC_HASH).unwrap_or_default(),
        chart_url: annotation(labels::CHART_URL),
        hint,
        ended: None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::job_name;

    fn metadata(value: Value) -> ObjectMeta {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn a_job_is_known_by_its_label_and_never_by_its_name_alone() {
        let name = job_name("shop", &TaskUid::new("t1"));
        let full = json!({
            "name": name, "uid": "j1", "labels": {"renderhub.dev/task-uid": "t1"},
            "annotations": {"renderhub.dev/spec-hash": "abc", "renderhub.dev/task-name": "shop",
                "renderhub.dev/chart-url": "oci://r/x:1"},
        });
        let read = |value: Value| job_metadata(&metadata(value), CompletionHint::Soon);
        let mark = read(full.clone()).unwrap();
        assert_eq!(
            (mark.task.as_str(), mark.uid.as_str(), mark.spec_hash.as_str()),
            ("t1", "j1", "abc")
        );
        assert_eq!(
            (mark.hint, mark.chart_url.as_deref()),
            (CompletionHint::Soon, Some("oci://r/x:1"))
        );
        for field in ["name", "uid", "labels"] {
            let mut part = full.clone();
            part.as_object_mut().unwrap().remove(field);
            assert_eq!(read(part), None, "{field}");
        }
        let mut copy = full;
        copy["name"] = json!("debug-copy");
        assert_eq!(read(copy), None, "a copy under another name is not ours");
    }
}
