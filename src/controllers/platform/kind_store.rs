//! The store of the objects of one kind.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use kube::core::object::HasSpec;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::AllowedNamespace;
use crate::api::labels::DEFAULT_CLASS;
use crate::kubernetes::apply::CallError;
use crate::kubernetes::object::version_of;
use crate::plan::platform::namespaces;
use crate::plan::platform::namespaces::{NamespaceUidPatch, NamespaceUids, named};
use crate::plan::relist::ShownKeys;

/// Most corrections to the record of one object under one spec, so that two hubs that disagree stop writing; each still uses its
/// own record.
const CORRECTIONS: usize = 16;

/// A kind that may list namespaces by name.
pub trait ListsNamespaces: HasSpec + Sized {
    /// The namespaces that a spec lists.
    fn allowed(_: &Self::Spec) -> &[AllowedNamespace] {
        &[]
    }
}

/// What the statuses of all the platform's kinds hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformStatus {
    /// What the hub says of the object.
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions are about.
    pub observed_generation: Option<i64>,
    /// UIDs of the namespaces that the object lists, as recorded at first use, with this hub's corrections.
    pub namespaces: NamespaceUids,
}

/// An object as watched.
pub struct StoredObject<K: HasSpec> {
    pub uid: String,
    pub generation: i64,
    /// `None` where the Rust type cannot decode it.
    pub spec: Option<K::Spec>,
    /// Whether its annotation makes it the default.
    pub is_default: bool,
    pub status: PlatformStatus,
    /// Resource version of the newest status seen or written; the status in an older event is ignored.
    pub version: u64,
    /// Whether another writer wrote meanwhile: the hub writes nothing before it has seen that.
    is_outdated: bool,
    /// Changes that put the record right where no hub can have changed it.
    corrections: NamespaceUidPatch,
    /// Corrections written since the spec last changed.
    corrected: usize,
}

/// What a watch event changed.
#[derive(Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// A list began; until it ends, the store may hold objects that are gone.
    Listing,
    /// The list ended; these objects are gone.
    Listed(Vec<String>),
    /// The object is new, or its spec is.
    NewSpec(String),
    /// Another writer changed which namespaces are recorded.
    NewRecord(String),
    /// The object is gone.
    Gone(String),
    /// Nothing that the hub uses.
    Nothing,
}

/// The objects of one kind, and what of their statuses is still to be written.
pub struct KindStore<K: HasSpec> {
    objects: BTreeMap<String, StoredObject<K>>,
    shown: ShownKeys<(), String>,
    /// Objects whose record of namespaces, or whose conditions, may be out of date.
    pub due: BTreeSet<String>,
    /// Of those, the objects whose record is up to date.
    pub recorded: BTreeSet<String>,
}

impl<K: HasSpec> Default for KindStore<K> {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            shown: ShownKeys::default(),
            due: BTreeSet::new(),
            recorded: BTreeSet::new(),
        }
    }
}

impl<K: ListsNamespaces<Spec: DeserializeOwned>> KindStore<K> {
    /// Applies a watch event.
    pub fn take(&mut self, event: Event<DynamicObject>) -> StoreChange {
        let change = match event {
            Event::Apply(object) | Event::InitApply(object) => self.put(object),
            Event::Delete(object) => {
                let name = object.metadata.name;
                let name = name.filter(|name| self.objects.remove(name).is_some());
                name.map_or(StoreChange::Nothing, StoreChange::Gone)
            }
            Event::Init => {
                self.shown.begin(());
                StoreChange::Listing
            }
            Event::InitDone => StoreChange::Listed(self.shown.sweep(&(), &mut self.objects, |_| true)),
        };
        if let StoreChange::NewSpec(name) | StoreChange::NewRecord(name) = &change {
            self.due.insert(name.clone());
        }
        change
    }

    fn put(&mut self, object: DynamicObject) -> StoreChange {
        let Some(name) = object.metadata.name.clone() else {
            return StoreChange::Nothing;
        };
        let mut seen = StoredObject::<K>::read(object);
        self.shown.add(&(), &name);
        let Some(known) = self.objects.get_mut(&name).filter(|known| known.uid == seen.uid) else {
            self.objects.insert(name.clone(), seen);
            return StoreChange::NewSpec(name);
        };
        let is_late = seen.version < known.version;
        let is_new = known.generation != seen.generation || known.is_default != seen.is_default;
        if is_late {
            seen.status = known.status.clone();
            seen.version = known.version;
            seen.is_outdated = known.is_outdated;
            seen.corrections = std::mem::take(&mut known.corrections);
            seen.corrected = known.corrected;
        } else if known.generation == seen.generation {
            seen.correct(known);
        }
        let has_new_record =
            !seen.corrections.is_empty() || known.status.namespaces != seen.status.namespaces;
        *known = seen;
        match (is_new, has_new_record) {
            (true, _) => StoreChange::NewSpec(name),
            (false, true) => StoreChange::NewRecord(name),
            (false, false) => StoreChange::Nothing,
        }
    }

    /// Makes the objects due that list a namespace; returns whether there are any.
    pub fn mark_listing(&mut self, namespace: &str) -> bool {
        let found = self.matching(|spec| named(K::allowed(spec)).any(|listed| listed == namespace));
        let is_listed = !found.is_empty();
        self.due.extend(found);
        is_listed
    }

    /// The namespaces that the objects list by name.
    pub fn allowed(&self) -> impl Iterator<Item = &String> {
        let specs = self.objects.values().filter_map(|object| object.spec.as_ref());
        specs.flat_map(|spec| named(K::allowed(spec)))
    }
}

impl<K: HasSpec> KindStore<K> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&StoredObject<K>> {
        self.objects.get(name)
    }

    /// Records the status that the hub wrote.
    pub fn wrote(&mut self, name: &str, status: PlatformStatus, version: Option<u64>) {
        if let Some(watched) = self.objects.get_mut(name) {
            (watched.status, watched.version) = (status, version.unwrap_or_default());
        }
    }

    /// Records that corrections were written.
    pub fn corrected(&mut self, name: &str, patch: &NamespaceUidPatch) {
        let Some(watched) = self
            .objects
            .get_mut(name)
            .filter(|watched| !watched.corrections.is_empty())
        else {
            return;
        };
        watched.corrections.retain(|name, _| !patch.contains_key(name));
        watched.corrected += 1;
        tracing::warn!(
            object = name,
            "a record of namespaces that no hub wrote was put right"
        );
    }

    /// Records that a write failed: after a conflict, the object waits for the event of the other write.
    pub fn failed(&mut self, name: &str, error: CallError) {
        match self.objects.get_mut(name) {
            Some(watched) if error == CallError::Conflict => watched.is_outdated = true,
            _ => tracing::warn!(
                object = name,
                kind = error.kind(),
                stage = error.stage(),
                "status not written; it is repeated"
            ),
        }
    }

    /// All names.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    /// Whether every record and status was written.
    pub fn is_written(&self) -> bool {
        self.due.is_empty() && self.recorded.is_empty()
    }

    /// All objects by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &StoredObject<K>)> {
        self.objects.iter()
    }

    /// Names of the objects whose spec matches.
    pub fn matching(&self, matches: impl Fn(&K::Spec) -> bool) -> Vec<String> {
        let is_match = |object: &StoredObject<K>| object.spec.as_ref().is_some_and(&matches);
        let found = self.objects.iter().filter(|(_, object)| is_match(object));
        found.map(|(name, _)| name.clone()).collect()
    }
}

impl<K: ListsNamespaces<Spec: DeserializeOwned>> StoredObject<K> {
    /// Keeps what was known of the record, where a writer made a change that no hub makes under one spec.
    fn correct(&mut self, known: &Self) {
        self.corrected = known.corrected;
        let before = &known.status.namespaces;
        let Some(spec) = &self.spec else {
            // It grants nothing; the record stays for when the spec can be decoded again.
            self.status.namespaces.clone_from(before);
            return;
        };
        let corrections = namespaces::tampered(K::allowed(spec), before, &self.status.namespaces);
        namespaces::apply(&mut self.status.namespaces, &corrections);
        if self.corrected < CORRECTIONS {
            self.corrections = corrections;
        }
    }
}

impl<K: HasSpec> StoredObject<K> {
    /// Changes that put the record right.
    pub fn corrections(&self) -> impl Iterator<Item = (&String, &Option<String>)> {
        self.corrections.iter()
    }

    /// Refuses a write to an object of which a newer version exists.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when a write met one, and no event has shown the newer version yet.
    pub fn check(&self) -> Result<(), CallError> {
        if self.is_outdated {
            return Err(CallError::Conflict);
        }
        Ok(())
    }
}

impl<K: ListsNamespaces<Spec: DeserializeOwned>> StoredObject<K> {
    fn read(object: DynamicObject) -> Self {
        let field = |key: &str| object.data.get(key).cloned().unwrap_or_default();
        let annotations = object.metadata.annotations.as_ref();
        let default = annotations.and_then(|all| all.get(DEFAULT_CLASS));
        // A status without its record would look as if no namespace had been seen, and the next one would be granted.
        let status: Option<PlatformStatus> = match field("status") {
            Value::Null => Some(PlatformStatus::default()),
            status => serde_json::from_value(status).ok(),
        };
        Self {
            spec: serde_json::from_value(field("spec"))
                .ok()
                .filter(|_| status.is_some()),
            is_default: default.is_some_and(|value| value == "true"),
            status: status.unwrap_or_default(),
            version: version_of(&object.metadata).unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(1),
            uid: object.metadata.uid.unwrap_or_default(),
            is_outdated: false,
            corrections: NamespaceUidPatch::new(),
            corrected: 0,
        }
    }
}
