//! The platform's `RenderClusters`, as watched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use super::leads::Lead;
use crate::api::{RenderClusterSpec, RenderClusterStatus};
use crate::cluster::registry::Pace;
use crate::plan::site::{ClusterName, Site};

/// A `RenderCluster` as watched.
pub struct Seen {
    pub uid: String,
    pub generation: i64,
    /// `None` where the Rust type cannot decode it.
    pub spec: Option<RenderClusterSpec>,
    pub status: RenderClusterStatus,
    /// Resource version of the newest status seen or written; an older event is late and says nothing of it.
    pub version: u64,
}

impl Seen {
    fn read(object: &DynamicObject) -> Self {
        let field = |key: &str| object.data.get(key).cloned().unwrap_or_default();
        Self {
            spec: serde_json::from_value(field("spec")).ok(),
            // One that cannot be read is written over.
            status: serde_json::from_value(field("status")).unwrap_or_default(),
            version: version_of(object.metadata.resource_version.as_deref()),
            generation: object.metadata.generation.unwrap_or(1),
            uid: object.metadata.uid.clone().unwrap_or_default(),
        }
    }

    /// Where Jobs of the cluster of this name run, and what leads there.
    pub fn place(&self, name: &str) -> Option<(Arc<Site>, Lead)> {
        let spec = self.spec.as_ref()?;
        let site = Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: spec.render_namespace.clone(),
        };
        let secret = &spec.kube_config.secret_ref;
        let lead = Lead::Platform {
            secret: secret.name.clone(),
            key: secret.key.clone(),
        };
        Some((Arc::new(site), lead))
    }

    /// How many requests the cluster gets.
    pub fn pace(&self) -> Pace {
        let default = Pace::default();
        let or = |said: Option<i32>, default| said.and_then(|n| u32::try_from(n).ok()).unwrap_or(default);
        let spec = self.spec.as_ref();
        Pace {
            qps: or(spec.and_then(|spec| spec.qps), default.qps),
            burst: or(spec.and_then(|spec| spec.burst), default.burst),
        }
    }

    /// Takes in what was written to the status.
    pub fn wrote(&mut self, status: RenderClusterStatus, version: Option<&str>) {
        let namespaces = std::mem::take(&mut self.status.namespaces);
        self.status = RenderClusterStatus { namespaces, ..status };
        self.version = version_of(version);
    }
}

/// All of them by name.
#[derive(Default)]
pub struct Shelf {
    all: BTreeMap<String, Seen>,
    /// Names that the list under way showed.
    shown: BTreeSet<String>,
}

impl Shelf {
    /// Takes in what a watch saw; the names that are new, changed or gone.
    pub fn take(&mut self, event: Event<DynamicObject>) -> Vec<String> {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(name) = object.metadata.name.clone() else {
                    return Vec::new();
                };
                self.shown.insert(name.clone());
                self.put(&name, Seen::read(&object));
                vec![name]
            }
            Event::Delete(object) => {
                let name = object.metadata.name.filter(|name| self.all.remove(name).is_some());
                name.into_iter().collect()
            }
            Event::Init => {
                self.shown.clear();
                Vec::new()
            }
            Event::InitDone => {
                let shown = std::mem::take(&mut self.shown);
                let gone: Vec<String> = self.all.keys().filter(|name| !shown.contains(*name)).cloned().collect();
                self.all.retain(|name, _| shown.contains(name));
                gone
            }
        }
    }

    fn put(&mut self, name: &str, mut seen: Seen) {
        let known = self.all.remove(name).filter(|known| known.uid == seen.uid);
        if let Some(known) = known.filter(|known| known.version > seen.version) {
            (seen.status, seen.version) = (known.status, known.version);
        }
        self.all.insert(name.to_owned(), seen);
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&Seen> {
        self.all.get(name)
    }

    /// The one of this name, if it is still that of this UID.
    pub fn get_mut(&mut self, name: &str, uid: &str) -> Option<&mut Seen> {
        self.all.get_mut(name).filter(|seen| seen.uid == uid)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&String, &Seen)> {
        self.all.iter()
    }
}

/// A resource version as a number, 0 where there is none.
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}
