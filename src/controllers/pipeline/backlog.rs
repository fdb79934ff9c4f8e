//! What is to be looked at in each namespace besides its Targets.

use std::collections::{BTreeMap, BTreeSet};

use crate::plan::pipeline::concerned::StatusObject;
use crate::plan::pipeline::objects::PipelineObjects;

use super::kinds::KINDS;

/// Statuses of a namespace that are looked at in one turn, so that other namespaces have theirs soon.
const AT_ONCE: usize = 256;

/// What is to be looked at in each namespace besides its Targets.
#[derive(Default)]
pub(super) struct NamespaceBacklog {
    /// Objects whose status may be another.
    statuses: BTreeMap<String, BTreeSet<StatusObject>>,
    /// Namespaces in which a shared task may be needed no more, or a version may be of a Target that is gone.
    leftovers: BTreeSet<String>,
}

impl NamespaceBacklog {
    /// The status of an object may be another.
    pub fn add_status(&mut self, object: StatusObject) {
        let statuses = self.statuses.entry(object.key.namespace.clone());
        statuses.or_default().insert(object);
    }

    /// A shared task of a namespace may be needed no more, or a version may be of a Target that is gone.
    pub fn look_at_leftovers(&mut self, namespace: &str) {
        self.leftovers.insert(namespace.to_owned());
    }

    /// Everything in a namespace is looked at.
    pub fn look_at_all(&mut self, namespace: &str, objects: &PipelineObjects) {
        let kinds = KINDS.iter();
        for object in kinds.flat_map(|kind| (kind.status_objects)(objects, namespace)) {
            self.add_status(object);
        }
        self.look_at_leftovers(namespace);
    }

    /// What is looked at in one turn: objects, and whether leftovers are.
    pub fn take(&mut self, namespace: &str) -> (BTreeSet<StatusObject>, bool) {
        let mut statuses = self.statuses.remove(namespace).unwrap_or_default();
        if let Some(first_later) = statuses.iter().nth(AT_ONCE).cloned() {
            let later = statuses.split_off(&first_later);
            self.statuses.insert(namespace.to_owned(), later);
        }
        (statuses, self.leftovers.remove(namespace))
    }

    /// Forgets what is to be looked at in a namespace that the hub does not serve.
    pub fn forget(&mut self, namespace: &str) {
        self.statuses.remove(namespace);
        self.leftovers.remove(namespace);
    }

    /// Whether something of a namespace is left for another turn.
    pub fn has(&self, namespace: &str) -> bool {
        self.statuses.contains_key(namespace) || self.leftovers.contains(namespace)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pipeline::object::ObjectKey;
    use crate::plan::pipeline::status::StatusKind;

    #[test]
    fn of_many_objects_so_many_are_looked_at_in_a_turn_and_none_is_forgotten() {
        let mut backlog = NamespaceBacklog::default();
        for number in 0..=2 * AT_ONCE {
            backlog.add_status(StatusObject {
                kind: StatusKind::Release,
                key: ObjectKey::new("team", &number.to_string()),
            });
        }
        backlog.look_at_leftovers("team");
        let turns = [(AT_ONCE, true), (AT_ONCE, false), (1, false), (0, false)];
        for (count, has_tasks) in turns {
            assert_eq!(backlog.has("team"), count > 0);
            let (statuses, tasks) = backlog.take("team");
            assert_eq!((statuses.len(), tasks), (count, has_tasks));
        }
    }
}
