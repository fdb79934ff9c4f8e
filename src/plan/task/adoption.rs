//! What a hub takes over of another hub of its cluster, whose namespaces it serves now.
//!
//! A namespace moves from one hub to another while its tasks run. What the first one made carries that one's id; the second
//! one knows it by what no other task's objects have, and goes on where the first one stopped. Nothing is made twice, and
//! nothing is taken from a hub of another cluster.

#![warn(clippy::wildcard_enum_match_arm)]

use kube::api::ObjectMeta;

use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, SPEC_HASH, TASK_UID};
use crate::api::names::{HubId, TaskUid, is_name_of, job_name};

use crate::plan::task::model::TaskId;

/// The creator of an object that has the name of a task's Job and config Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectCreator {
    /// This hub.
    Own,
    /// Another hub of the same cluster.
    Kin,
    /// Another writer, or an unknown one.
    Foreign,
}

/// Who made an object, by its name and its labels.
#[must_use]
pub fn maker(hub: &HubId, meta: &ObjectMeta) -> ObjectCreator {
    let label = |key: &str| meta.labels.as_ref().and_then(|labels| labels.get(key));
    let is_managed = label(MANAGED_BY).is_some_and(|by| by == MANAGED_BY_VALUE);
    let creator = match label(HUB_ID).filter(|_| is_managed) {
        Some(id) if id == hub.as_str() => ObjectCreator::Own,
        Some(id) if hub.is_kin(id) => ObjectCreator::Kin,
        _ => return ObjectCreator::Foreign,
    };
    // Last, because the name is a hash.
    let task = label(TASK_UID).map(|uid| TaskUid::new(uid));
    let has_its_name = task
        .zip(meta.name.as_deref())
        .is_some_and(|(task, name)| is_name_of(name, &task));
    if has_its_name {
        creator
    } else {
        ObjectCreator::Foreign
    }
}

/// Whether an object is the task's, made from its spec as it is, by this hub or another of its cluster.
#[must_use]
pub fn is_its(hub: &HubId, meta: &ObjectMeta, task: &TaskId, spec_hash: &str) -> bool {
    maker(hub, meta) != ObjectCreator::Foreign && is_made_for(meta, task, Some(spec_hash))
}

/// What becomes of an object that another hub of the cluster made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptionDecision {
    /// It is of a task that this hub serves now: it is taken over.
    Adopt,
    /// It is of a task in a namespace that this hub serves now, and the hub knows of no such task: it is removed once the
    /// API server says that there is none.
    Orphan,
    /// It is not for this hub to touch.
    Leave,
}

/// The decision on an object that is not this hub's own.
///
/// `serves` is whether the hub serves the task that the object names. `known` is that task, if the hub knows it, with the hash of
/// its spec where that is remembered.
#[must_use]
pub fn judge(
    hub: &HubId,
    meta: &ObjectMeta,
    serves: bool,
    known: Option<(&TaskId, Option<&str>)>,
) -> AdoptionDecision {
    if maker(hub, meta) != ObjectCreator::Kin || !serves {
        return AdoptionDecision::Leave;
    }
    match known {
        None => AdoptionDecision::Orphan,
        Some((task, hash)) if is_made_for(meta, task, hash) => AdoptionDecision::Adopt,
        Some(_) => AdoptionDecision::Leave,
    }
}

/// Whether an object that a hub made is the task's by its name, to which its label is tied, and of the task's spec.
fn is_made_for(meta: &ObjectMeta, task: &TaskId, spec_hash: Option<&str>) -> bool {
    let hash = meta.annotations.as_ref().and_then(|all| all.get(SPEC_HASH));
    meta.name.as_deref() == Some(&*job_name(&task.name, &task.uid))
        && hash.is_some_and(|hash| spec_hash.is_none_or(|wanted| wanted == hash))
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::TaskKind;

    const CLUSTER: &str = "0f5a4e0c-0001-4000-8000-000000000001";

    fn hub() -> HubId {
        HubId::new("b", CLUSTER).unwrap()
    }

    fn task() -> TaskId {
        TaskId {
            kind: TaskKind::RenderTask,
            namespace: "team-a".to_owned(),
            name: "shop".to_owned(),
            uid: TaskUid::new("t1"),
        }
    }

    /// What the hub `id` makes for the task, with one part changed by a JSON pointer; null takes the part away.
    fn object(id: &str, changed: Option<(&str, Value)>) -> ObjectMeta {
        let mut meta = json!({
            "name": job_name("shop", &TaskUid::new("t1")), "uid": "j1",
            "labels": {
                "app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/hub-id": id, "renderhub.dev/task-uid": "t1",
            },
            "annotations": {"renderhub.dev/spec-hash": "abc"},
        });
        if let Some((pointer, value)) = changed {
            *meta.pointer_mut(pointer).unwrap() = value;
        }
        for part in ["labels", "annotations"] {
            meta[part].as_object_mut().unwrap().retain(|_, v| !v.is_null());
        }
        serde_json::from_value(meta).unwrap()
    }

    const MANAGER: &str = "/labels/app.kubernetes.io~1managed-by";
    const HUB: &str = "/labels/renderhub.dev~1hub-id";
    const UID: &str = "/labels/renderhub.dev~1task-uid";
    const HASH: &str = "/annotations/renderhub.dev~1spec-hash";

    /// Holds: C5.
    #[test]
    fn only_what_a_hub_of_this_cluster_made_is_known_as_such() {
        for (id, expected) in [
            ("b-0f5a4e0c", ObjectCreator::Own),
            ("a-0f5a4e0c", ObjectCreator::Kin),
            ("b-0-0f5a4e0c", ObjectCreator::Kin),
            ("a-0f5a4e0d", ObjectCreator::Foreign),
            ("b-00000000", ObjectCreator::Foreign),
            ("0f5a4e0c", ObjectCreator::Foreign),
            ("-0f5a4e0c", ObjectCreator::Foreign),
            ("A-0f5a4e0c", ObjectCreator::Foreign),
            ("a0f5a4e0c", ObjectCreator::Foreign),
            ("", ObjectCreator::Foreign),
        ] {
            assert_eq!(maker(&hub(), &object(id, None)), expected, "{id}");
        }
        for id in ["a-0f5a4e0c", "b-0f5a4e0c"] {
            for changed in [
                (MANAGER, json!("helm")),
                (MANAGER, Value::Null),
                (HUB, Value::Null),
                (UID, json!("t2")),
                (UID, Value::Null),
                ("/name", json!("copy")),
            ] {
                let reported = format!("{changed:?}");
                assert_eq!(
                    maker(&hub(), &object(id, Some(changed))),
                    ObjectCreator::Foreign,
                    "{reported}"
                );
            }
        }
    }

    const KIN: &str = "a-0f5a4e0c";

    /// Holds: C5.
    #[test]
    fn what_another_hub_made_is_adopted_for_its_task_and_its_spec_only() {
        let (task, other) = (task(), TaskUid::new("t2"));
        let other = TaskId {
            uid: other,
            ..task.clone()
        };
        let known = Some((&task, Some("abc")));
        let unremembered = Some((&task, None));
        let table = [
            (true, known, AdoptionDecision::Adopt),
            (true, unremembered, AdoptionDecision::Adopt),
            (true, None, AdoptionDecision::Orphan),
            // Another hub serves the namespace.
            (false, known, AdoptionDecision::Leave),
            (false, None, AdoptionDecision::Leave),
            // Another task, another spec.
            (true, Some((&other, Some("abc"))), AdoptionDecision::Leave),
            (true, Some((&task, Some("xyz"))), AdoptionDecision::Leave),
        ];
        for (serves, known, expected) in table {
            let found = judge(&hub(), &object(KIN, None), serves, known);
            assert_eq!(found, expected, "{serves} {known:?}");
        }
    }

    /// Holds: C5.
    #[test]
    fn what_another_hub_did_not_make_for_the_task_is_left_alone() {
        let task = task();
        let known = Some((&task, Some("abc")));
        let table = [
            // No spec hash on the object, even where the index has none.
            (object(KIN, Some((HASH, Value::Null))), known),
            (object(KIN, Some((HASH, Value::Null))), Some((&task, None))),
            // Another name than the one of the task's Job.
            (
                object(KIN, Some(("/name", json!(job_name("web", &task.uid))))),
                known,
            ),
            // A hub of another cluster, no hub, this hub itself.
            (object("a-0f5a4e0d", None), known),
            (object("a-0f5a4e0d", None), None),
            (object(KIN, Some((HUB, Value::Null))), known),
            (object(KIN, Some((MANAGER, json!("helm")))), known),
            (object("b-0f5a4e0c", None), known),
        ];
        for (meta, known) in table {
            assert_eq!(
                judge(&hub(), &meta, true, known),
                AdoptionDecision::Leave,
                "{meta:?} {known:?}"
            );
        }
    }
}
