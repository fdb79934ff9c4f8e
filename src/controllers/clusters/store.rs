//! The store of the platform's `RenderClusters`.

use std::collections::BTreeMap;
use std::sync::Arc;

use kube::api::DynamicObject;
use kube::runtime::watcher::Event;

use super::connection_bindings::KubeconfigRef;
use crate::api::{RenderClusterSpec, RenderClusterStatus};
use crate::kubernetes::object::version_of;
use crate::plan::relist::{RelistMark, Relists};
use crate::plan::remote::site::{ClusterName, Site};
use crate::remote::connection_registry::RateLimit;

/// A `RenderCluster` as watched.
pub struct ObservedCluster {
    pub uid: String,
    pub generation: i64,
    /// `None` where the Rust type cannot decode it.
    pub spec: Option<RenderClusterSpec>,
    pub status: RenderClusterStatus,
    /// Resource version of the newest status seen or written; the status in an older event is ignored.
    pub version: u64,
    /// The list that showed it last.
    listed: RelistMark,
}

impl ObservedCluster {
    fn read(object: &DynamicObject) -> Self {
        let field = |key: &str| object.data.get(key).cloned().unwrap_or_default();
        Self {
            spec: serde_json::from_value(field("spec")).ok(),
            // An unreadable status is overwritten.
            status: serde_json::from_value(field("status")).unwrap_or_default(),
            version: version_of(&object.metadata).unwrap_or_default(),
            generation: object.metadata.generation.unwrap_or(1),
            uid: object.metadata.uid.clone().unwrap_or_default(),
            listed: RelistMark::default(),
        }
    }

    /// The site where Jobs of this cluster run, and the source of its kubeconfig.
    pub fn site_and_kubeconfig(&self, name: &str) -> Option<(Arc<Site>, KubeconfigRef)> {
        let spec = self.spec.as_ref()?;
        let site = Site {
            cluster: ClusterName::Platform(name.to_owned()),
            namespace: spec.render_namespace.clone(),
        };
        let secret = &spec.kube_config.secret_ref;
        let kubeconfig = if spec.disconnect {
            KubeconfigRef::Away
        } else {
            KubeconfigRef::Platform {
                secret: secret.name.clone(),
                key: secret.key.clone(),
            }
        };
        Some((Arc::new(site), kubeconfig))
    }

    /// Rate limit of the requests to the cluster.
    pub fn rate_limit(&self) -> RateLimit {
        let default = RateLimit::default();
        let or = |value: Option<i32>, default| value.and_then(|n| u32::try_from(n).ok()).unwrap_or(default);
        let spec = self.spec.as_ref();
        RateLimit {
            qps: or(spec.and_then(|spec| spec.qps), default.qps),
            burst: or(spec.and_then(|spec| spec.burst), default.burst),
        }
    }

    /// Records the status that the hub wrote.
    pub fn set_status(&mut self, status: RenderClusterStatus, version: Option<u64>) {
        let namespaces = std::mem::take(&mut self.status.namespaces);
        self.status = RenderClusterStatus { namespaces, ..status };
        self.version = version.unwrap_or_default();
    }
}

/// The change of a `RenderCluster` that an event shows.
#[derive(Debug, PartialEq, Eq)]
pub enum ClusterChange {
    /// It is new, has another spec, or is deleted.
    Changed(String),
    /// Its status was written, by any client.
    StatusWritten(String),
}

/// All `RenderClusters` by name.
#[derive(Default)]
pub struct ClusterStore {
    all: BTreeMap<String, ObservedCluster>,
    lists: Relists<()>,
}

impl ClusterStore {
    /// Applies a watch event.
    pub fn take(&mut self, event: Event<DynamicObject>) -> Vec<ClusterChange> {
        match event {
            Event::Apply(object) | Event::InitApply(object) => {
                let Some(name) = object.metadata.name.clone() else {
                    return Vec::new();
                };
                let is_known = self.put(&name, ObservedCluster::read(&object));
                vec![if is_known {
                    ClusterChange::StatusWritten(name)
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
                self.lists.begin(());
                Vec::new()
            }
            Event::InitDone => {
                let mark = self.lists.mark(&());
                let gone = self.all.iter().filter(|(_, seen)| seen.listed != mark);
                let gone = gone.map(|(name, _)| ClusterChange::Changed(name.clone()));
                let gone = gone.collect();
                self.all.retain(|_, seen| seen.listed == mark);
                gone
            }
        }
    }

    /// Stores it; returns whether it was there with this generation already.
    fn put(&mut self, name: &str, mut seen: ObservedCluster) -> bool {
        seen.listed = self.lists.mark(&());
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

    /// The `RenderCluster` of this name.
    pub fn get(&self, name: &str) -> Option<&ObservedCluster> {
        self.all.get(name)
    }

    /// The site of the `RenderCluster` of this name, and the source of its kubeconfig.
    pub fn site_and_kubeconfig(&self, name: &str) -> Option<(Arc<Site>, KubeconfigRef)> {
        self.get(name)?.site_and_kubeconfig(name)
    }

    /// The `RenderCluster` of this name, if it has this UID.
    pub fn get_mut(&mut self, name: &str, uid: &str) -> Option<&mut ObservedCluster> {
        self.all.get_mut(name).filter(|seen| seen.uid == uid)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn changed(name: &str) -> ClusterChange {
        ClusterChange::Changed(name.to_owned())
    }

    /// A `RenderCluster` whose generation is its `qps`.
    fn object(name: &str, uid: &str, version: u64, qps: u32) -> DynamicObject {
        let object = json!({
            "metadata": {"name": name, "uid": uid, "generation": qps, "resourceVersion": version.to_string()},
            "spec": {"kubeConfig": {"secretRef": {"name": "west"}}, "renderNamespace": "jobs", "qps": qps},
            "status": {"version": format!("1.{version}")},
        });
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_late_event_does_not_replace_a_written_status() {
        let mut store = ClusterStore::default();
        store.take(Event::Apply(object("a", "1", 5, 1)));
        let status = RenderClusterStatus {
            version: Some("1.7".to_owned()),
            ..RenderClusterStatus::default()
        };
        store.get_mut("a", "1").unwrap().set_status(status, Some(7));
        assert!(store.get_mut("a", "2").is_none(), "another one was written to");
        assert_eq!(store.take(Event::Apply(object("a", "1", 6, 2))), [changed("a")]);
        let again = store.take(Event::Apply(object("a", "1", 6, 2)));
        assert_eq!(again, [ClusterChange::StatusWritten("a".to_owned())]);
        let seen = store.get("a").unwrap();
        assert_eq!(
            (seen.status.version.as_deref(), seen.rate_limit().qps),
            (Some("1.7"), 2)
        );
        assert_eq!(store.take(Event::Apply(object("a", "2", 6, 2))), [changed("a")]);
        let other = store.get("a").unwrap();
        assert_eq!(
            other.status.version.as_deref(),
            Some("1.6"),
            "it inherits nothing"
        );
    }

    #[test]
    fn a_cluster_that_a_list_does_not_show_is_deleted() {
        let mut store = ClusterStore::default();
        for name in ["a", "b"] {
            store.take(Event::Apply(object(name, name, 1, 1)));
        }
        assert!(store.take(Event::Init).is_empty());
        store.take(Event::InitApply(object("a", "a", 1, 1)));
        assert_eq!(store.take(Event::InitDone), [changed("b")]);
        assert!(store.get("a").is_some() && store.get("b").is_none());
        assert_eq!(store.take(Event::Delete(object("a", "a", 1, 1))), [changed("a")]);
        assert!(store.take(Event::Delete(object("a", "a", 1, 1))).is_empty());
    }

    #[test]
    fn a_cluster_that_cannot_be_decoded_has_no_kubeconfig() {
        let mut wrong = object("a", "1", 1, 1);
        wrong.data["spec"]["kubeConfig"] = json!(7);
        wrong.data["status"] = json!("forged");
        let mut store = ClusterStore::default();
        store.take(Event::Apply(wrong));
        let seen = store.get("a").unwrap();
        assert!(seen.site_and_kubeconfig("a").is_none() && seen.status == RenderClusterStatus::default());
        assert_eq!(seen.rate_limit(), RateLimit::default());
    }
}
