//! The objects of one kind of the platform's, as watched.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::DynamicObject;
use kube::runtime::watcher::Event;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::api::labels::DEFAULT_CLASS;
use crate::kubernetes::apply::CallError;
use crate::plan::platform::namespaces;
use crate::plan::platform::namespaces::{NamespaceUidPatch, NamespaceUids};

use super::lists::AllowsNamespaces;

/// Times that the record of one object is put right while its spec stays: hubs that believe two things come to rest, and what
/// this one believes counts for it all the same.
const AMENDS: usize = 16;

/// What the statuses of all the platform's kinds hold.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PlatformStatus {
    /// What the hub says of the object.
    pub conditions: Vec<Condition>,
    /// Generation of the spec that the conditions speak of.
    pub observed_generation: Option<i64>,
    /// UIDs of the namespaces that the object lists, as recorded at first use, and as this hub believes them.
    pub namespaces: NamespaceUids,
}

/// An object as watched.
pub struct StoredObject<S> {
    pub uid: String,
    pub generation: i64,
    /// `None` where the Rust type cannot decode it.
    pub spec: Option<S>,
    /// Whether its annotation makes it the one that is meant where none is named.
    pub is_default: bool,
    pub status: PlatformStatus,
    /// Resource version of the newest status seen or written; an older event is late and says nothing of it.
    pub version: u64,
    /// Whether somebody has written meanwhile: nothing is written before that is seen.
    is_outdated: bool,
    /// Whether the list under way showed it.
    is_shown: bool,
    /// What no hub changed in the record, and is to be put right.
    amends: NamespaceUidPatch,
    /// How often that was done since the spec is what it is.
    amended: usize,
}

/// What an event changed.
#[derive(Debug, PartialEq, Eq)]
pub enum StoreChange {
    /// A list began; what is on the shelf may be outdated until it ends.
    Listing,
    /// The list ended.
    Listed,
    /// The object is new, or its spec is.
    NewSpec(String),
    /// Somebody else changed which namespaces are recorded.
    NewRecord(String),
    /// The object is gone.
    Gone(String),
    /// Nothing that counts here.
    Nothing,
}

/// The objects of one kind.
pub struct PlatformStore<S>(BTreeMap<String, StoredObject<S>>);

impl<S> Default for PlatformStore<S> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<S: DeserializeOwned + AllowsNamespaces> PlatformStore<S> {
    /// Takes in what a watch saw.
    pub fn take(&mut self, event: Event<DynamicObject>) -> StoreChange {
        match event {
            Event::Apply(object) | Event::InitApply(object) => self.put(object),
            Event::Delete(object) => {
                let name = object.metadata.name.filter(|name| self.0.remove(name).is_some());
                name.map_or(StoreChange::Nothing, StoreChange::Gone)
            }
            Event::Init => {
                self.0.values_mut().for_each(|watched| watched.is_shown = false);
                StoreChange::Listing
            }
            Event::InitDone => {
                self.0.retain(|_, watched| watched.is_shown);
                StoreChange::Listed
            }
        }
    }

    fn put(&mut self, object: DynamicObject) -> StoreChange {
        let Some(name) = object.metadata.name.clone() else {
            return StoreChange::Nothing;
        };
        let mut seen = StoredObject::<S>::read(object);
        let Some(known) = self.0.get_mut(&name).filter(|known| known.uid == seen.uid) else {
            self.0.insert(name.clone(), seen);
            return StoreChange::NewSpec(name);
        };
        let is_late = seen.version < known.version;
        let is_new = known.generation != seen.generation || known.is_default != seen.is_default;
        if is_late {
            seen.status = known.status.clone();
            seen.version = known.version;
            seen.is_outdated = known.is_outdated;
            seen.amends = std::mem::take(&mut known.amends);
            seen.amended = known.amended;
        } else if known.generation == seen.generation {
            seen.doubt(known);
        }
        let has_new_record = !seen.amends.is_empty() || known.status.namespaces != seen.status.namespaces;
        *known = seen;
        match (is_new, has_new_record) {
            (true, _) => StoreChange::NewSpec(name),
            (false, true) => StoreChange::NewRecord(name),
            (false, false) => StoreChange::Nothing,
        }
    }
}

impl<S> PlatformStore<S> {
    /// The object of this name.
    pub fn get(&self, name: &str) -> Option<&StoredObject<S>> {
        self.0.get(name)
    }

    /// Takes in what was written to an object's status.
    pub fn wrote(&mut self, name: &str, status: PlatformStatus, version: Option<&str>) {
        if let Some(watched) = self.0.get_mut(name) {
            (watched.status, watched.version) = (status, version_of(version));
        }
    }

    /// Takes in that what no hub changed was put right.
    pub fn amended(&mut self, name: &str, patch: &NamespaceUidPatch) {
        let Some(watched) = self.0.get_mut(name).filter(|watched| !watched.amends.is_empty()) else {
            return;
        };
        watched.amends.retain(|name, _| !patch.contains_key(name));
        watched.amended += 1;
        tracing::warn!(
            object = name,
            "a record of namespaces that no hub wrote was put right"
        );
    }

    /// Takes in that a write failed: another hub was faster, or it is told.
    pub fn failed(&mut self, name: &str, error: CallError) {
        match self.0.get_mut(name) {
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
        self.0.keys()
    }

    /// All objects by name.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &StoredObject<S>)> {
        self.0.iter()
    }

    /// Names of the objects whose spec is so.
    pub fn naming(&self, is_so: impl Fn(&S) -> bool) -> Vec<String> {
        let fits = |watched: &StoredObject<S>| watched.spec.as_ref().is_some_and(&is_so);
        let fitting = self.0.iter().filter(|(_, watched)| fits(watched));
        fitting.map(|(name, _)| name.clone()).collect()
    }
}

impl<S: AllowsNamespaces> StoredObject<S> {
    /// Holds to what was known of the record, where a change was made that no hub makes under one spec.
    fn doubt(&mut self, known: &Self) {
        self.amended = known.amended;
        let believed = &known.status.namespaces;
        let Some(spec) = &self.spec else {
            // It grants nothing; what is known stays for when it can be read again.
            self.status.namespaces.clone_from(believed);
            return;
        };
        let amends = namespaces::tampered(spec.allowed(), believed, &self.status.namespaces);
        namespaces::apply(&mut self.status.namespaces, &amends);
        if self.amended < AMENDS {
            self.amends = amends;
        }
    }
}

impl<S> StoredObject<S> {
    /// What is to be put right in the record.
    pub fn amends(&self) -> impl Iterator<Item = (&String, &Option<String>)> {
        self.amends.iter()
    }

    /// Whether a write over this version can be made.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when one was refused, and the reason has not been seen yet.
    pub fn check(&self) -> Result<(), CallError> {
        if self.is_outdated {
            return Err(CallError::Conflict);
        }
        Ok(())
    }
}

impl<S: DeserializeOwned> StoredObject<S> {
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
            version: version_of(object.metadata.resource_version.as_deref()),
            generation: object.metadata.generation.unwrap_or(1),
            uid: object.metadata.uid.unwrap_or_default(),
            is_outdated: false,
            is_shown: true,
            amends: NamespaceUidPatch::new(),
            amended: 0,
        }
    }
}

/// A resource version as a number, 0 where there is none.
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
