//! An object of the pipeline as the hub watches it.

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::jiff::Timestamp;

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
    /// When it was made.
    pub created: Timestamp,
    /// Whether its deletion was requested.
    pub deleting: bool,
    /// Its labels.
    pub labels: BTreeMap<String, String>,
    /// `None` where the Rust type cannot decode it. Such an object is there all the same: what it put on a cluster stays.
    pub spec: Option<S>,
    /// What the hub says of it.
    pub status: T,
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
            labels: BTreeMap::new(),
            spec: Some(spec),
            status: T::default(),
        }
    }
}

/// The objects of a kind.
pub type ObjectMap<S, T = ()> = BTreeMap<ObjectKey, PipelineObject<S, T>>;

/// The entries of a map that are in a namespace.
pub fn within<'m, V>(
    map: &'m BTreeMap<ObjectKey, V>,
    namespace: &'m str,
) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> {
    let first = ObjectKey::new(namespace, "");
    map.range(first..)
        .take_while(move |(key, _)| key.namespace == namespace)
}
