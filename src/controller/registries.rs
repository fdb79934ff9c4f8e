//! Keeps the catalog: registries with the verdict on their credential, and renderer classes.
//!
//! Secrets are watched by metadata and read one at a time when one that a registry names changes; their bytes are
//! dropped with the verdict.

mod classes;

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use futures::stream::BoxStream;
use futures::{StreamExt, stream};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, DynamicObject};
use kube::core::PartialObjectMeta;
use kube::runtime::watcher::{Config, Event};
use kube::{Client, Resource};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::conditions::{self, ConditionType, Reason, Wanted};
use crate::api::labels::{DEFAULT_CLASS, TASK_UID};
use crate::api::{
    ClusterRegistry, ClusterRegistrySpec, ClusterRegistryStatus, RendererClass, RendererClassSpec,
};
use crate::apply::{CallError, Calls};
use crate::metrics::Metrics;
use crate::plan::catalog::{Catalog, Class, Credential, Registry};
use crate::plan::registry::{credential, ready};
use crate::watch::endless;

use classes::Classes;

/// Pause before verdicts that a failed call left open are tried again.
const RETRY: Duration = Duration::from_secs(2);

/// The catalog as the engine sees it; `None` until everything was seen once.
pub type Published = Option<Arc<Catalog>>;

/// A registry as watched.
struct Watched {
    generation: i64,
    /// `None` where the Rust type cannot decode it.
    spec: Option<ClusterRegistrySpec>,
    status: ClusterRegistryStatus,
    /// Resource version of the newest status seen or written; an older event is late and says nothing of it.
    version: u64,
    /// The verdict; kept until there is a newer one.
    credential: Option<Credential>,
    /// Whether the list under way showed it.
    is_seen: bool,
}

enum Change {
    Registry(Event<DynamicObject>),
    Class(Event<DynamicObject>),
    Secret(Event<PartialObjectMeta<Secret>>),
}

/// The loop's state.
pub struct Registries {
    calls: Calls,
    out: watch::Sender<Published>,
    fallback: RendererClassSpec,
    watched: BTreeMap<String, Watched>,
    classes: BTreeMap<String, Class>,
    verdicts: Classes,
    /// Registries whose verdict is open.
    open: HashSet<String>,
    synced: (bool, bool, bool),
    changed: bool,
}

impl Registries {
    /// A loop that publishes to `out`; tasks without a class get `fallback`.
    #[must_use]
    pub fn new(calls: Calls, fallback: RendererClassSpec, out: watch::Sender<Published>) -> Self {
        Self {
            calls,
            out,
            fallback,
            watched: BTreeMap::new(),
            classes: BTreeMap::new(),
            verdicts: Classes::default(),
            open: HashSet::new(),
            synced: (false, false, false),
            changed: false,
        }
    }

    /// Runs until `stop`.
    pub async fn run(mut self, client: Client, namespace: String, metrics: Metrics, stop: CancellationToken) {
        let mut changes = changes(&client, &namespace, &metrics);
        loop {
            let has_open = !self.open.is_empty() || self.verdicts.has_open();
            tokio::select! {
                () = stop.cancelled() => return,
                Some(change) = changes.next() => self.take_in(change),
                () = tokio::time::sleep(RETRY), if has_open => {}
            }
            if self.synced == (true, true, true) {
                self.judge().await;
                self.publish();
            }
        }
    }

    fn take_in(&mut self, change: Change) {
        match change {
            Change::Registry(Event::Apply(object) | Event::InitApply(object)) => self.take_registry(object),
            Change::Registry(Event::Delete(object)) => self.drop_registry(&object),
            // While a list is incomplete nothing is judged or published.
            Change::Registry(Event::Init) => {
                self.synced.0 = false;
                self.watched.values_mut().for_each(|w| w.is_seen = false);
            }
            Change::Registry(Event::InitDone) => {
                self.watched.retain(|_, w| w.is_seen);
                (self.synced.0, self.changed) = (true, true);
            }
            Change::Class(Event::Apply(object) | Event::InitApply(object)) => self.take_class(object),
            Change::Class(Event::Delete(object)) => self.drop_class(&object),
            Change::Class(Event::Init) => {
                self.synced.1 = false;
                self.classes.clear();
                self.verdicts.clear();
            }
            Change::Class(Event::InitDone) => (self.synced.1, self.changed) = (true, true),
            Change::Secret(Event::Apply(secret) | Event::InitApply(secret) | Event::Delete(secret)) => {
                self.reopen(secret.metadata.name.as_deref());
            }
            Change::Secret(Event::Init) => {}
            Change::Secret(Event::InitDone) => {
                self.synced.2 = true;
                self.open.extend(self.watched.keys().cloned());
            }
        }
    }

    fn take_registry(&mut self, object: DynamicObject) {
        let Some(name) = object.metadata.name else { return };
        let generation = object.metadata.generation.unwrap_or(1);
        let field = |key: &str| object.data.get(key).cloned().unwrap_or_default();
        let status = serde_json::from_value(field("status")).unwrap_or_default();
        let version = version_of(object.metadata.resource_version.as_deref());
        let known = self.watched.get_mut(&name);
        if let Some(known) = known.filter(|known| known.generation == generation) {
            known.is_seen = true;
            if version >= known.version {
                (known.status, known.version) = (status, version);
            }
            return;
        }
        let spec = serde_json::from_value(field("spec")).ok();
        let watched = Watched {
            generation,
            spec,
            status,
            version,
            credential: None,
            is_seen: true,
        };
        self.watched.insert(name.clone(), watched);
        self.open.insert(name);
    }

    fn drop_registry(&mut self, object: &DynamicObject) {
        let Some(name) = &object.metadata.name else { return };
        self.open.remove(name);
        self.changed |= self.watched.remove(name).is_some();
    }

    fn take_class(&mut self, object: DynamicObject) {
        let Some(name) = object.metadata.name else { return };
        let annotations = object.metadata.annotations.unwrap_or_default();
        let is_default = annotations.get(DEFAULT_CLASS).is_some_and(|v| v == "true");
        let field = |key: &str| object.data.get(key).cloned().unwrap_or_default();
        let spec: Option<RendererClassSpec> = serde_json::from_value(field("spec")).ok();
        let status = serde_json::from_value(field("status")).unwrap_or_default();
        let version = version_of(object.metadata.resource_version.as_deref());
        let generation = object.metadata.generation.unwrap_or(1);
        // An event of what the hub itself said changes nothing for tasks.
        let is_known = self.verdicts.generation(&name) == Some(generation);
        let is_same = is_known
            && self
                .classes
                .get(&name)
                .is_some_and(|c| c.is_default == is_default);
        self.changed |= !is_same;
        self.verdicts
            .take(&name, generation, spec.as_ref(), (status, version));
        if let Some(spec) = spec {
            self.classes.insert(name, Class { spec, is_default });
        } else {
            tracing::warn!(
                class = name,
                "this renderer class cannot be decoded; its tasks wait"
            );
            self.classes.remove(&name);
        }
    }

    fn drop_class(&mut self, object: &DynamicObject) {
        let Some(name) = &object.metadata.name else { return };
        self.verdicts.drop(name);
        self.changed |= self.classes.remove(name).is_some();
    }

    /// Asks for a new verdict on the registries that name a Secret.
    fn reopen(&mut self, secret: Option<&str>) {
        let names = |w: &Watched| {
            w.spec
                .as_ref()
                .and_then(|s| s.push_secret_ref.as_ref())
                .map(|r| r.name.clone())
        };
        let affected = self
            .watched
            .iter()
            .filter(|(_, w)| names(w).as_deref() == secret && secret.is_some());
        self.open.extend(affected.map(|(name, _)| name.clone()));
    }

    /// Gives the verdicts that are open; those that a failed call leaves open are given later.
    async fn judge(&mut self) {
        for name in self.open.clone() {
            match self.judge_one(&name).await {
                Ok(()) => _ = self.open.remove(&name),
                Err(error) => tracing::warn!(
                    registry = name,
                    kind = error.kind(),
                    "no verdict yet; it is repeated"
                ),
            }
        }
        self.verdicts.write(&self.calls).await;
    }

    async fn judge_one(&mut self, name: &str) -> Result<(), CallError> {
        let Some(watched) = self.watched.get_mut(name) else {
            return Ok(());
        };
        let wanted = match &watched.spec {
            Some(spec) => {
                let secret = match &spec.push_secret_ref {
                    Some(named) => self.calls.get_secret(&named.name).await?,
                    None => None,
                };
                let verdict = credential(spec, secret.as_ref());
                let wanted = ready(spec, &verdict);
                watched.credential = Some(verdict);
                wanted
            }
            None => Wanted {
                type_: ConditionType::Ready,
                status: false,
                reason: Reason::InvalidSpec,
                message: "the spec does not have the shape this hub understands".to_owned(),
            },
        };
        self.changed = true;
        let mut status = watched.status.clone();
        let generation = Some(watched.generation);
        conditions::merge(
            &mut status.conditions,
            &[wanted],
            &[],
            generation,
            Timestamp::now(),
        );
        status.observed_generation = generation;
        if status != watched.status {
            let version = self.calls.write_registry_status(name, &status).await?;
            (watched.status, watched.version) = (status, version_of(version.as_deref()));
        }
        Ok(())
    }

    fn publish(&mut self) {
        if !std::mem::take(&mut self.changed) {
            return;
        }
        let registries = self.watched.iter().filter_map(|(name, w)| {
            let registry = Registry {
                spec: w.spec.clone()?,
                credential: w.credential.clone()?,
            };
            Some((name.clone(), registry))
        });
        let catalog = Catalog {
            registries: registries.collect(),
            classes: self.classes.clone(),
            fallback: self.fallback.clone(),
        };
        self.out.send_replace(Some(Arc::new(catalog)));
    }
}

/// A resource version as a number, 0 where there is none.
fn version_of(text: Option<&str>) -> u64 {
    text.and_then(|text| text.parse().ok()).unwrap_or_default()
}

fn changes(client: &Client, namespace: &str, metrics: &Metrics) -> BoxStream<'static, Change> {
    let registries = dynamic::<ClusterRegistry>(client, metrics, "clusterregistries").map(Change::Registry);
    let classes = dynamic::<RendererClass>(client, metrics, "rendererclasses").map(Change::Class);
    // Config Secrets of tasks are in the same namespace; they are not the platform's.
    let platform = Config::default().labels(&format!("!{TASK_UID}"));
    let secrets: Api<PartialObjectMeta<Secret>> = Api::namespaced(client.clone(), namespace);
    let secrets = endless(secrets, platform, metrics.clone(), "secrets").map(Change::Secret);
    stream::select_all([registries.boxed(), classes.boxed(), secrets.boxed()]).boxed()
}

/// Watches a kind without its Rust type, so that an object the type cannot decode stops nobody else.
fn dynamic<K: Resource<DynamicType = ()>>(
    client: &Client,
    metrics: &Metrics,
    name: &'static str,
) -> BoxStream<'static, Event<DynamicObject>> {
    let resource = kube::api::ApiResource::erase::<K>(&());
    let api: Api<DynamicObject> = Api::all_with(client.clone(), &resource);
    endless(api, Config::default(), metrics.clone(), name).boxed()
}

#[cfg(test)]
mod tests {
    use kube::Config;
    use serde_json::json;

    use super::*;
    use crate::names::HubId;

    fn registries() -> Registries {
        let client = Client::try_from(Config::new("http://127.0.0.1:9".parse().unwrap())).unwrap();
        let hub_id = HubId::new("test", "00000000-0000").unwrap();
        let calls = Calls::new(client, Metrics::new().0, "rendering".to_owned(), hub_id);
        Registries::new(calls, RendererClassSpec::default(), watch::channel(None).0)
    }

    fn registry(version: u64, reason: &str) -> DynamicObject {
        let condition = json!({"type": "Ready", "status": "False", "reason": reason, "message": "",
            "lastTransitionTime": "2024-01-01T00:00:00Z"});
        serde_json::from_value(json!({
            "metadata": {"name": "main", "generation": 1, "resourceVersion": version.to_string()},
            "spec": {"hostname": "registry.test"}, "status": {"conditions": [condition]},
        }))
        .unwrap()
    }

    #[tokio::test]
    async fn a_late_event_does_not_hide_that_a_verdict_must_be_written() {
        let mut registries = registries();
        registries.take_registry(registry(5, "PushSecretInvalid"));
        registries.take_registry(registry(4, "PushSecretNotFound"));
        assert_eq!(
            registries.watched["main"].status.conditions[0].reason,
            "PushSecretInvalid"
        );
        registries.take_registry(registry(6, "Ready"));
        assert_eq!(registries.watched["main"].status.conditions[0].reason, "Ready");
    }

    #[tokio::test]
    async fn a_list_under_way_keeps_verdicts_and_its_end_drops_what_it_did_not_show() {
        let mut registries = registries();
        registries.take_registry(registry(5, "Ready"));
        registries.watched.get_mut("main").unwrap().credential = Some(Credential::Anonymous);
        registries.take_in(Change::Registry(Event::Init));
        registries.take_in(Change::Registry(Event::InitApply(registry(5, "Ready"))));
        registries.take_in(Change::Registry(Event::InitDone));
        assert_eq!(registries.watched["main"].credential, Some(Credential::Anonymous));
        registries.take_in(Change::Registry(Event::Init));
        registries.take_in(Change::Registry(Event::InitDone));
        assert!(registries.watched.is_empty());
    }
}
