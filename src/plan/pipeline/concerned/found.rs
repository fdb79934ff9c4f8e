//! What a search finds.

use std::collections::BTreeSet;

use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::status::StatusKind;

/// An object whose status the hub writes and that is no Target.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StatusObject {
    /// Its kind.
    pub kind: StatusKind,
    /// The object.
    pub key: ObjectKey,
}

/// Whom changes concern.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Concerned {
    /// The Target that changed itself, or that what changed belongs to.
    pub own: Option<ObjectKey>,
    /// Other Targets that are to be decided about.
    pub targets: BTreeSet<ObjectKey>,
    /// Objects whose status may be another.
    pub statuses: BTreeSet<StatusObject>,
    /// A namespace in which a task that Targets share may be needed no more, or something of a version is to go.
    pub leftovers: Option<String>,
    /// A task that ran, and whose chart is pushed now.
    pub pushed: Option<ObjectKey>,
}

impl Concerned {
    /// A Target that changed itself, or that what changed belongs to.
    pub fn own(&mut self, target: ObjectKey) {
        let before = self.own.replace(target);
        self.targets
            .extend(before.filter(|before| Some(before) != self.own.as_ref()));
    }

    /// The same without the Targets, which have nothing to do about it.
    #[must_use]
    pub fn without_targets(self) -> Self {
        Self {
            own: None,
            targets: BTreeSet::new(),
            ..self
        }
    }

    /// The Target of a version.
    pub fn own_of_version(&mut self, key: &ObjectKey, object: &StoredVersion) {
        if let Some(spec) = &object.spec {
            self.own(ObjectKey::new(&key.namespace, &spec.target_name));
        }
    }

    /// An object whose status may be another.
    pub fn status(&mut self, kind: StatusKind, key: &ObjectKey) {
        let key = key.clone();
        self.statuses.insert(StatusObject { kind, key });
    }
}
