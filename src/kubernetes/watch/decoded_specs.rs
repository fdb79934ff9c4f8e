//! The specs of tasks that were decoded and are in use: a watch shows a task several times, and its spec is the same each time.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use kube::Resource as _;

use crate::kubernetes::object::SlimObject;
use crate::plan::task::model::{DecodedSpec, Task};

/// Specs that are known before those that are not in use any more are looked for.
const FEW: usize = 256;

/// A spec of this generation, as long as a task has it.
type KnownSpec = (i64, Weak<DecodedSpec>);

/// The specs of one watch. It keeps none of them: they go with the last state of their task that the hub keeps, but for the few bytes by
/// which it knows them.
#[derive(Debug)]
pub(super) struct DecodedSpecs {
    /// By the UID of the task.
    known: HashMap<Box<str>, KnownSpec>,
    /// With so many, those that are not in use any more go.
    limit: usize,
}

impl Default for DecodedSpecs {
    fn default() -> Self {
        Self {
            known: HashMap::new(),
            limit: FEW,
        }
    }
}

impl DecodedSpecs {
    /// The spec of an object, if it was decoded and is in use.
    pub(super) fn get(&self, object: &SlimObject) -> Option<Arc<DecodedSpec>> {
        let meta = object.meta();
        let (generation, spec) = self.known.get(meta.uid.as_deref()?)?;
        meta.generation.filter(|shown| shown == generation)?;
        spec.upgrade()
    }

    /// Forgets the spec of a task that is gone.
    pub(super) fn forget(&mut self, task: &SlimObject) {
        if let Some(uid) = task.meta().uid.as_deref() {
            self.known.remove(uid);
        }
    }

    /// Takes in the spec of a task.
    pub(super) fn put(&mut self, task: &Task) {
        if self.known.len() >= self.limit {
            self.known.retain(|_, (_, spec)| spec.strong_count() > 0);
            self.limit = FEW.max(2 * self.known.len());
        }
        let spec = (task.generation, Arc::downgrade(&task.decoded));
        self.known.insert(task.id.uid.as_str().into(), spec);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::api::names::TaskKind;

    fn shown(uid: &str, generation: i64, tag: &str) -> SlimObject {
        let object = json!({
            "metadata": {"name": "shop", "namespace": "team", "uid": uid, "generation": generation},
            "spec": {"config": {"type": "release"}, "repository": "shop", "tag": tag},
        });
        serde_json::from_str(&object.to_string()).unwrap()
    }

    fn task(specs: &mut DecodedSpecs, object: SlimObject) -> Task {
        let known = specs.get(&object);
        let task = object.into_task(TaskKind::RenderTask, known).unwrap();
        specs.put(&task);
        task
    }

    #[test]
    fn a_spec_is_decoded_once_for_each_generation_as_long_as_it_is_in_use() {
        let mut specs = DecodedSpecs::default();
        let tag = |task: &Task| task.decoded.spec.as_ref().unwrap().tag.clone();
        let first = task(&mut specs, shown("a", 1, "1"));
        // The API server gives a spec that changed another generation, so another text shows what was decoded.
        let again = task(&mut specs, shown("a", 1, "2"));
        assert!(Arc::ptr_eq(&first.decoded, &again.decoded) && tag(&again) == "1");
        assert_eq!(tag(&task(&mut specs, shown("b", 1, "2"))), "2", "another task");
        assert_eq!(
            tag(&task(&mut specs, shown("a", 2, "2"))),
            "2",
            "another generation"
        );
        assert_eq!(
            tag(&task(&mut specs, shown("a", 2, "3"))),
            "3",
            "no task has it any more"
        );
    }

    #[test]
    fn specs_that_are_not_in_use_any_more_are_forgotten() {
        let mut specs = DecodedSpecs::default();
        let kept = task(&mut specs, shown("kept", 1, "1"));
        for number in 0..10 * FEW {
            task(&mut specs, shown(&number.to_string(), 1, "1"));
            assert!(specs.known.len() <= FEW);
        }
        assert!(Arc::ptr_eq(
            &specs.get(&shown("kept", 1, "1")).unwrap(),
            &kept.decoded
        ));
        specs.forget(&shown("kept", 1, "1"));
        assert!(specs.get(&shown("kept", 1, "1")).is_none());
        let all: Vec<_> = (0..3 * FEW)
            .map(|number| task(&mut specs, shown(&format!("of {number}"), 1, "1")))
            .collect();
        let is_known = |task: &Task| specs.get(&shown(task.id.uid.as_str(), 1, "1")).is_some();
        assert!(all.iter().all(is_known));
    }
}
