//! An object of the pipeline as the hub watches it.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::Timestamp;

use crate::plan::task::finalizer_summary::FinalizerSummary;

/// Names an object of a namespace.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl ObjectKey {
    /// The key of an object.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Self {
        Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        }
    }

    /// The key of what this object refers to: it is beside it, unless the reference says in which namespace it is.
    #[must_use]
    pub fn referred(&self, namespace: Option<&String>, name: &str) -> Self {
        Self::new(namespace.unwrap_or(&self.namespace), name)
    }
}

impl fmt::Display for ObjectKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// An object as watched.
#[derive(Clone, Debug)]
pub struct PipelineObject<S, T = ()> {
    /// Its UID.
    pub uid: String,
    /// Version of the object: an event with an older one says nothing new.
    pub version: u64,
    /// Generation of the spec.
    pub generation: i64,
    /// When it was made; the Unix epoch until a watch has shown it.
    pub created: Timestamp,
    /// Whether its deletion was requested, also where no watch has shown it yet.
    pub deleting: bool,
    /// When its deletion was requested, once a watch shows it.
    pub deleted_at: Option<Timestamp>,
    /// Its finalizers, of which that of Targets is the hub's own.
    pub finalizers: FinalizerSummary,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `None` where the Rust type cannot decode it. Such an object is there all the same: what it put on a cluster stays.
    pub spec: Option<S>,
    /// What the hub says of it.
    pub status: T,
}

/// How an object differs from what was known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ObjectDifference {
    /// In nothing that a decision rests on.
    None,
    /// In its status alone.
    Status,
    /// It is another one, or its spec or labels are.
    Content,
}

impl<S: PartialEq, T: PartialEq> PipelineObject<S, T> {
    /// How the object differs from an earlier state. A spec that a watch showed differs exactly where its generation does.
    #[must_use]
    pub fn difference(&self, earlier: &Self) -> ObjectDifference {
        let is_same = self.uid == earlier.uid
            && self.generation == earlier.generation
            && (earlier.is_shown() || self.spec == earlier.spec)
            && self.deleting == earlier.deleting
            && self.deleted_at == earlier.deleted_at
            && self.finalizers == earlier.finalizers
            && self.labels == earlier.labels
            && self.spec.is_some() == earlier.spec.is_some();
        match is_same {
            false => ObjectDifference::Content,
            true if self.status == earlier.status => ObjectDifference::None,
            true => ObjectDifference::Status,
        }
    }
}

impl<S, T: Default> PipelineObject<S, T> {
    /// An object that the hub made just now, until a watch shows it.
    #[must_use]
    pub fn made(uid: String, spec: S) -> Self {
        Self {
            uid,
            version: 0,
            generation: 1,
            created: Timestamp::UNIX_EPOCH,
            deleting: false,
            deleted_at: None,
            finalizers: FinalizerSummary::default(),
            labels: BTreeMap::new(),
            spec: Some(spec),
            status: T::default(),
        }
    }
}

impl<S, T> PipelineObject<S, T> {
    /// Whether a watch has shown the object: one that the hub made just now may be another than the hub wrote, where an admission
    /// webhook changed it.
    #[must_use]
    pub fn is_shown(&self) -> bool {
        self.created != Timestamp::UNIX_EPOCH
    }

    /// Takes in what a watch shows of the object that is no [difference](ObjectDifference::None).
    pub fn show(&mut self, shown: &Self) {
        self.version = shown.version;
        self.created = shown.created;
    }

    /// Takes in what the hub wrote to the object, with the version that the write made. A watch may have shown a newer one by now,
    /// which holds that write already.
    pub fn take_in(&mut self, written: Option<u64>, change: impl FnOnce(&mut Self)) {
        if written.is_none_or(|version| version >= self.version) {
            change(self);
            self.version = written.unwrap_or(self.version);
        }
    }
}

/// The entries of a map that are in a namespace.
pub fn within<'m, V>(
    map: &'m BTreeMap<ObjectKey, V>,
    namespace: &'m str,
) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> {
    let first = ObjectKey::new(namespace, "");
    map.range(first..)
        .take_while(move |(key, _)| key.namespace == namespace)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_before_what_a_watch_showed_changes_nothing() {
        for (written, status) in [
            (Some(6), "seen"),
            (Some(7), "written"),
            (Some(8), "written"),
            (None, "written"),
        ] {
            let mut object = PipelineObject::<(), &str>::made("u".to_owned(), ());
            (object.version, object.status) = (7, "seen");
            object.take_in(written, |object| object.status = "written");
            assert_eq!(
                (object.status, object.version),
                (status, written.unwrap_or(7).max(7))
            );
        }
    }
}
