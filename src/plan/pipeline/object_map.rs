//! The objects of a kind, and which of them name what: a decision looks at what concerns it, and a change finds whom it concerns.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Deref, DerefMut};

use super::object::{ObjectKey, PipelineObject};

/// What an object can name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[expect(missing_docs, reason = "each but the last is the kind it is named after")]
pub enum NamedKind {
    Target,
    Release,
    ComponentVersion,
    Registry,
    ReleaseBinding,
    RegistryBinding,
    Profile,
    Component,
    /// A label that a selector requires, as `key=value`, in the namespace of what selects. The empty name is of selectors that
    /// cannot be found by a label.
    Label,
}

/// A name that an object gives to another.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NamedObject {
    /// Kind of what is named.
    pub kind: NamedKind,
    /// What is named, whether it exists or not.
    pub key: ObjectKey,
}

impl NamedObject {
    /// An object of a kind.
    #[must_use]
    pub fn new(kind: NamedKind, namespace: &str, name: &str) -> Self {
        Self {
            kind,
            key: ObjectKey::new(namespace, name),
        }
    }
}

/// An object that names others.
pub trait NamesOthers {
    /// Everything that the object of this key names.
    fn names(&self, key: &ObjectKey) -> Vec<NamedObject>;

    /// Bytes of memory that it takes, where that is bounded.
    fn kept_bytes(&self) -> usize {
        0
    }
}

/// The objects of a kind.
pub type ObjectMap<S, T = ()> = IndexedMap<PipelineObject<S, T>>;

/// Who gives each name.
type Naming = BTreeMap<NamedObject, BTreeSet<ObjectKey>>;

/// Objects by their key, and by what they name. To read, it is a map.
#[derive(Clone, Debug)]
pub struct IndexedMap<V> {
    objects: BTreeMap<ObjectKey, V>,
    index: ObjectIndex,
}

/// What follows from the objects.
#[derive(Clone, Debug, Default)]
struct ObjectIndex {
    naming: Naming,
    /// Bytes of the objects of each namespace that has any.
    bytes: BTreeMap<String, usize>,
}

impl<V> Default for IndexedMap<V> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            index: ObjectIndex::default(),
        }
    }
}

impl<V> Deref for IndexedMap<V> {
    type Target = BTreeMap<ObjectKey, V>;

    fn deref(&self) -> &Self::Target {
        &self.objects
    }
}

// === to find ===

impl<V> IndexedMap<V> {
    /// The objects that name this one.
    pub fn naming<'m>(
        &'m self,
        kind: NamedKind,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> + use<'m, V> {
        let known = self.index.naming.get(&NamedObject {
            kind,
            key: key.clone(),
        });
        known.into_iter().flatten().filter_map(|key| self.entry(key))
    }

    /// The objects of a namespace that name this one.
    pub fn naming_from<'m>(
        &'m self,
        namespace: &str,
        kind: NamedKind,
        key: &ObjectKey,
    ) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> + use<'m, V> {
        let known = self.index.naming.get(&NamedObject {
            kind,
            key: key.clone(),
        });
        let first = ObjectKey::new(namespace, "");
        let namespace = namespace.to_owned();
        let all = known
            .into_iter()
            .flat_map(move |keys| keys.range(first.clone()..));
        all.take_while(move |key| key.namespace == namespace)
            .filter_map(|key| self.entry(key))
    }

    /// The objects that name one of a namespace, each as often as it names one.
    pub fn naming_within<'m>(
        &'m self,
        kind: NamedKind,
        namespace: &str,
    ) -> impl Iterator<Item = (&'m ObjectKey, &'m V)> + use<'m, V> {
        let first = NamedObject::new(kind, namespace, "");
        let namespace = namespace.to_owned();
        let named = self.index.naming.range(first..);
        named
            .take_while(move |(named, _)| named.kind == kind && named.key.namespace == namespace)
            .flat_map(|(_, keys)| keys)
            .filter_map(|key| self.entry(key))
    }

    /// Bytes of the objects of a namespace.
    #[must_use]
    pub fn bytes_within(&self, namespace: &str) -> usize {
        self.bytes().get(namespace).copied().unwrap_or_default()
    }

    /// Bytes of the objects of each namespace, where they count.
    pub(super) fn bytes(&self) -> &BTreeMap<String, usize> {
        &self.index.bytes
    }

    /// Each name with the objects that give it.
    #[cfg(test)]
    pub(super) fn index(&self) -> impl Iterator<Item = (&NamedObject, &BTreeSet<ObjectKey>)> {
        self.index.naming.iter()
    }

    fn entry(&self, key: &ObjectKey) -> Option<(&ObjectKey, &V)> {
        self.objects.get_key_value(key)
    }
}

// === to change ===

impl<V: NamesOthers> IndexedMap<V> {
    /// Puts an object in; the one that had its key.
    pub fn insert(&mut self, key: ObjectKey, object: V) -> Option<V> {
        let before = self.objects.get(&key).map(|known| IndexEntry::of(&key, known));
        let after = IndexEntry::of(&key, &object);
        self.index.replace(&key, &before.unwrap_or_default(), after);
        self.objects.insert(key, object)
    }

    /// Takes an object out.
    pub fn remove(&mut self, key: &ObjectKey) -> Option<V> {
        let gone = self.objects.remove(key)?;
        let before = IndexEntry::of(key, &gone);
        self.index.replace(key, &before, IndexEntry::default());
        Some(gone)
    }

    /// Keeps the objects that are wanted.
    pub fn retain(&mut self, mut is_wanted: impl FnMut(&ObjectKey, &V) -> bool) {
        let unwanted = self
            .objects
            .iter()
            .filter(|(key, object)| !is_wanted(key, object));
        let unwanted: Vec<ObjectKey> = unwanted.map(|(key, _)| key.clone()).collect();
        for key in unwanted {
            self.remove(&key);
        }
    }

    /// Takes all objects out.
    pub fn clear(&mut self) {
        *self = Self::default();
    }

    /// An object to be changed. What it names is found once the change is over.
    pub fn get_mut(&mut self, key: &ObjectKey) -> Option<ChangedObject<'_, V>> {
        let object = self.objects.get_mut(key)?;
        Some(ChangedObject {
            key: key.clone(),
            before: IndexEntry::of(key, object),
            object,
            index: &mut self.index,
        })
    }
}

impl<S, T> IndexedMap<PipelineObject<S, T>> {
    /// Takes in an object that does not differ from what is known of it, which names and takes what it did.
    pub fn show(&mut self, key: &ObjectKey, shown: &PipelineObject<S, T>) {
        if let Some(known) = self.objects.get_mut(key) {
            known.show(shown);
        }
    }
}

impl<V: NamesOthers> FromIterator<(ObjectKey, V)> for IndexedMap<V> {
    fn from_iter<I: IntoIterator<Item = (ObjectKey, V)>>(objects: I) -> Self {
        let mut map = Self::default();
        for (key, object) in objects {
            map.insert(key, object);
        }
        map
    }
}

/// An object that is being changed.
#[derive(Debug)]
pub struct ChangedObject<'m, V: NamesOthers> {
    key: ObjectKey,
    before: IndexEntry,
    object: &'m mut V,
    index: &'m mut ObjectIndex,
}

impl<V: NamesOthers> Deref for ChangedObject<'_, V> {
    type Target = V;

    fn deref(&self) -> &V {
        self.object
    }
}

impl<V: NamesOthers> DerefMut for ChangedObject<'_, V> {
    fn deref_mut(&mut self) -> &mut V {
        self.object
    }
}

impl<V: NamesOthers> Drop for ChangedObject<'_, V> {
    fn drop(&mut self) {
        let after = IndexEntry::of(&self.key, self.object);
        self.index.replace(&self.key, &self.before, after);
    }
}

/// What the index holds of one object.
#[derive(Debug, Default)]
struct IndexEntry {
    names: Vec<NamedObject>,
    bytes: usize,
}

impl IndexEntry {
    fn of(key: &ObjectKey, object: &impl NamesOthers) -> Self {
        Self {
            names: object.names(key),
            bytes: object.kept_bytes(),
        }
    }
}

impl ObjectIndex {
    /// Takes in that an object is another one now. Most changes are in what the index does not hold.
    fn replace(&mut self, key: &ObjectKey, before: &IndexEntry, after: IndexEntry) {
        if before.names != after.names {
            self.drop_names(key, &before.names);
            self.add_names(key, after.names);
        }
        if before.bytes != after.bytes {
            self.count_bytes(&key.namespace, before.bytes, after.bytes);
        }
    }

    fn add_names(&mut self, key: &ObjectKey, names: Vec<NamedObject>) {
        for named in names {
            self.naming.entry(named).or_default().insert(key.clone());
        }
    }

    fn drop_names(&mut self, key: &ObjectKey, names: &[NamedObject]) {
        for named in names {
            if let Some(keys) = self.naming.get_mut(named) {
                keys.remove(key);
                if keys.is_empty() {
                    self.naming.remove(named);
                }
            }
        }
    }

    fn count_bytes(&mut self, namespace: &str, before: usize, after: usize) {
        let known = self.bytes.entry(namespace.to_owned()).or_default();
        *known = (*known + after).saturating_sub(before);
        if *known == 0 {
            self.bytes.remove(namespace);
        }
    }
}
