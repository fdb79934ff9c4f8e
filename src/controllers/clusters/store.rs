//! The platform's `RenderClusters`, as watched.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use super::connection_bindings::KubeconfigRef;
use crate::api::{RenderClusterSpec, RenderClusterStatus};
use crate::plan::remote::site::{ClusterName, Site};
use crate::remote::connection_registry::RateLimit;

/// A `RenderCluster` as watched.
pub struct ObservedCluster {
    pub uid: String,
    pub generation: i64,
    /// `None` where the Rust type cannot decode it.
    pub spec: Option<RenderClusterSpec>,
    pub status: RenderClusterStatus,
    /// Resource version of the newest status seen or written; an older event is late and says nothing of it.
    pub version: u64,
}

impl ObservedCluster {
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
    pub fn site_and_kubeconfig(&self, name: &str) -> Option<(Arc<Site>, KubeconfigRef)> {
        let spec = self.spec.as_ref()?;
        let site = Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: spec.render_namespace.clone(),
        };
        let secret = &spec.kube_config.secret_ref;
        let lead = if spec.disconnect {
            KubeconfigRef::Away
        } else {
            KubeconfigRef::Platform {
                secret: secret.name.clone(),
                key: secret.key.clone(),
            }
        };
        Some((Arc::new(site), lead))
    }

    /// How many requests the cluster gets.
    pub fn rate_limit(&self) -> RateLimit {
        let default = RateLimit::default();
        let or = |said: Option<i32>, default| said.and_then(|n| u32::try_from(n).ok()).unwrap_or(default);
        let spec = self.spec.as_ref();
        RateLimit {
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

/// What an event shows of the one of a name.
#[derive(Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// It is new, has another spec, or is gone.
    Changed(String),
    /// Its status was written, by whomever.
    Told(String),
}

/// All of them by name.
#[derive(Default)]
pub struct ClusterStore {
    all: BTreeMap<String, ObservedCluster>,
    /// Names that the list under way showed.
    shown: BTreeSet<String>,
}

impl ClusterStore {
    /// Takes in what a watch saw.
    pub fn take(&mut self, event: Event<DynamicObject>) -> Vec<ClusterChange> {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(name) = object.metadata.name.clone() else {
                    return Vec::new();
                };
                self.shown.insert(name.clone());
                let is_known = self.put(&name, ObservedCluster::read(&object));
                vec![if is_known {
                    ClusterChange::Told(name)
                } else {
                    ClusterChange::Changed(name)
                }]
            }
            Event::Delete(object) => {
                let name = object
                    .metadata
                    .name
                    .filter(|name| self.all.remove(name).is_some());
                name.map(ClusterChange::Changed).into_iter().collect()
            }
            Event::Init => {
                self.shown.clear();
                Vec::new()
            }
            Event::InitDone => {
                let shown = std::mem::take(&mut self.shown);
                let gone: Vec<String> = self
                    .all
                    .keys()
                    .filter(|name| !shown.contains(*name))
                    .cloned()
                    .collect();
                self.all.retain(|name, _| shown.contains(name));
                gone.into_iter().map(ClusterChange::Changed).collect()
            }
        }
    }

    /// Whether it was there with this spec already.
    fn put(&mut self, name: &str, mut seen: ObservedCluster) -> bool {
        let known = self.all.remove(name).filter(|known| known.uid == seen.uid);
        let is_known = known
            .as_ref()
            .is_some_and(|known| known.generation == seen.generation);
        if let Some(known) = known.filter(|known| known.version > seen.version) {
            (seen.status, seen.version) = (known.status, known.version);
        }
        self.all.insert(name.to_owned(), seen);
        is_known
    }

    /// The one of this name.
    pub fn get(&self, name: &str) -> Option<&ObservedCluster> {
        self.all.get(name)
    }

    /// The one of this name, if it is still that of this UID.
    pub fn get_mut(&mut self, name: &str, uid: &str) -> Option<&mut ObservedCluster> {
        self.all.get_mut(name).filter(|seen| seen.uid == uid)
    }
}

/// A resource version as a number, 0 where there is none.
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(name: &str) -> ClusterChange {
        ClusterChange::Changed(name.to_owned())
    }

    /// One whose generation is its pace.
    fn object(name: &str, uid: &str, version: u64, qps: u32) -> DynamicObject {
        let object = json!({
            "metadata": {"name": name, "uid": uid, "generation": qps, "resourceVersion": version.to_string()},
            "spec": {"kubeConfig": {"secretRef": {"name": "west"}}, "renderNamespace": "jobs", "qps": qps},
            "status": {"version": format!("1.{version}")},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_late_event_does_not_hide_what_was_written() {
        let mut shelf = ClusterStore::default();
        shelf.take(Event::Apply(object("a", "1", 5, 1)));
        let status = RenderClusterStatus {
            version: Some("1.7".to_owned()),
            ..RenderClusterStatus::default()
        };
        shelf.get_mut("a", "1").unwrap().wrote(status, Some("7"));
        assert!(shelf.get_mut("a", "2").is_none(), "another one was written to");
        assert_eq!(shelf.take(Event::Apply(object("a", "1", 6, 2))), [changed("a")]);
        let again = shelf.take(Event::Apply(object("a", "1", 6, 2)));
        assert_eq!(again, [ClusterChange::Told("a".to_owned())]);
        let seen = shelf.get("a").unwrap();
        assert_eq!(
            (seen.status.version.as_deref(), seen.rate_limit().qps),
            (Some("1.7"), 2)
        );
        assert_eq!(shelf.take(Event::Apply(object("a", "2", 6, 2))), [changed("a")]);
        let other = shelf.get("a").unwrap();
        assert_eq!(
            other.status.version.as_deref(),
            Some("1.6"),
            "it inherits nothing"
        );
    }

    #[test]
    fn a_list_shows_all_there_is() {
        let mut shelf = ClusterStore::default();
        for name in ["a", "b"] {
            shelf.take(Event::Apply(object(name, name, 1, 1)));
        }
        assert!(shelf.take(Event::Init).is_empty());
        shelf.take(Event::InitApply(object("a", "a", 1, 1)));
        assert_eq!(shelf.take(Event::InitDone), [changed("b")]);
        assert!(shelf.get("a").is_some() && shelf.get("b").is_none());
        assert_eq!(shelf.take(Event::Delete(object("a", "a", 1, 1))), [changed("a")]);
        assert!(shelf.take(Event::Delete(object("a", "a", 1, 1))).is_empty());
    }

    #[test]
    fn what_cannot_be_decoded_leads_nowhere_and_is_there() {
        let mut wrong = object("a", "1", 1, 1);
        wrong.data["spec"]["kubeConfig"] = json!(7);
        wrong.data["status"] = json!("forged");
        let mut shelf = ClusterStore::default();
        shelf.take(Event::Apply(wrong));
        let seen = shelf.get("a").unwrap();
        assert!(seen.site_and_kubeconfig("a").is_none() && seen.status == RenderClusterStatus::default());
        assert_eq!(seen.rate_limit(), RateLimit::default());
    }
}
