//! Releases that lost to others, by Target, so that what binds them can say so.

use std::collections::{BTreeSet, HashMap};

use crate::api::pipeline::ReleaseSource;

use super::object::ObjectKey;
use super::resolution::{LeftOutReason, LeftOutRelease};

/// The Releases that lost on each Target, as decided last.
#[derive(Clone, Debug, Default)]
pub struct LeftOutIndex(HashMap<ObjectKey, Vec<LeftOutRelease>>);

impl LeftOutIndex {
    /// Whether it is known who lost on a Target.
    #[must_use]
    pub fn knows(&self, target: &ObjectKey) -> bool {
        self.0.contains_key(target)
    }

    /// Notes who lost on a Target; returns what binds those of whom something else is said now.
    pub fn put(&mut self, target: &ObjectKey, left_out: Vec<LeftOutRelease>) -> BTreeSet<ReleaseSource> {
        if let Some(known) = self.0.get(target)
            && *known == left_out
        {
            return BTreeSet::new();
        }
        let old = self.0.remove(target).unwrap_or_default();
        let gone = old.iter().filter(|one| !left_out.contains(one));
        let new = left_out.iter().filter(|one| !old.contains(one));
        let changed = gone.chain(new).map(|one| one.source.clone()).collect();
        self.0.insert(target.clone(), left_out);
        changed
    }

    /// A Target is gone.
    pub fn remove(&mut self, target: &ObjectKey) {
        self.0.remove(target);
    }

    /// What a source binds and what lost on a Target.
    #[must_use]
    pub fn of(&self, target: &ObjectKey, source: &ReleaseSource) -> Option<&LeftOutRelease> {
        let left_out = self.0.get(target)?;
        left_out.iter().find(|one| one.source == *source)
    }
}

/// Which Release is there instead of one that lost. It has a name only for who may know it: in the namespace of the Target, whose
/// conditions have it too, and in its own.
#[must_use]
pub fn winner(left_out: &LeftOutRelease, target: &ObjectKey) -> String {
    let own = &left_out.source.namespace;
    let (verb, object) = match left_out.why {
        LeftOutReason::UniqueName => ("has", "the same unique name"),
        LeftOutReason::AntiAffinity => ("excludes", "it"),
    };
    if *own == target.namespace || *own == left_out.winner.namespace {
        format!("Release {} {verb} {object}", left_out.winner)
    } else {
        format!("a Release of another namespace {verb} {object}")
    }
}
