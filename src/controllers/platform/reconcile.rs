//! Brings everything up to the stores: verdicts on credentials, records of namespaces, the catalog, and statuses.

use std::collections::BTreeMap;
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::RendererClassSpec;
use crate::api::conditions::{self, ConditionType, find_condition};
use crate::api::labels::REGISTRY_HOST;
use crate::kubernetes::apply::{CallError, PlatformStatusPatch};
use crate::plan::platform::catalog::{Catalog, CatalogClass, CatalogCluster, CatalogRegistry};
use crate::plan::platform::namespaces;
use crate::plan::platform::namespaces::{NamespaceUidPatch, NamespaceUids};
use crate::plan::platform::registry::judge_credential;
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::queue::NamespaceWeights;

use super::class_images::ClassName;
use super::dry_run::DryRunResult;
use super::kind_store::{ListsNamespaces, PlatformStatus, StoredObject};
use super::kinds::KINDS;
use super::state::{CatalogController, KindConditions, PlatformKind};

/// No change to a record.
static NO_CHANGE: NamespaceUidPatch = NamespaceUidPatch::new();

impl CatalogController {
    /// Records the result of a dry run.
    pub(super) fn handle_dry_run(&mut self, result: DryRunResult) {
        let DryRunResult {
            name,
            uid,
            generation,
            answer,
        } = result;
        let is_current = self
            .stores
            .classes
            .get(&name)
            .is_some_and(|class| class.uid == uid && class.generation == generation);
        // A class that changed meanwhile has another dry run queued.
        if !is_current {
            return;
        }
        let has_changed = self.dry_runs.record_answer(&name, answer);
        self.has_changed |= has_changed;
        if has_changed {
            self.dry_runs.report_verdict(&name, uid);
        }
        self.stores.classes.due.insert(name);
    }

    /// Whether a failed call is to be repeated.
    pub(super) fn has_work(&self) -> bool {
        !self.unjudged_registries.is_empty()
            || !self.images.unread.is_empty()
            || KINDS.iter().any(|kind| !(kind.is_written)(&self.stores))
    }

    /// Brings verdicts, records, the catalog and statuses up to the stores.
    pub(super) async fn reconcile(&mut self) {
        // The grants of a namespace that is gone end before the controller waits for any call.
        let is_read = self.unjudged_registries.is_empty() && self.images.unread.is_empty();
        if std::mem::take(&mut self.has_withdrawn) && is_read {
            self.publish();
        }
        self.judge_credentials().await;
        self.read_pull_secrets().await;
        // Recorded before it is published: a restarted hub would grant again what only this process knew.
        for kind in &KINDS {
            (kind.record)(self).await;
        }
        // Published before the status is written: once a status shows a generation, tasks are decided by it.
        self.publish();
        for kind in &KINDS {
            (kind.write_statuses)(self).await;
        }
    }

    /// Judges credentials; those that a failed call leaves open are judged later.
    async fn judge_credentials(&mut self) {
        for name in std::mem::take(&mut self.unjudged_registries) {
            match self.judge_credential_of(&name).await {
                Ok(()) => _ = self.stores.registries.due.insert(name),
                Err(error) => {
                    tracing::warn!(
                        registry = name,
                        kind = error.kind(),
                        stage = error.stage(),
                        "the credential of this registry is not judged yet; the hub tries again"
                    );
                    self.unjudged_registries.insert(name);
                }
            }
        }
    }

    async fn judge_credential_of(&mut self, name: &str) -> Result<(), CallError> {
        let Some(spec) = self.stores.registries.get(name).and_then(|w| w.spec.as_ref()) else {
            self.has_changed = true;
            return Ok(());
        };
        let secret = match &spec.push_secret_ref {
            Some(named) => self.hub_client.get_secret(&named.name).await?,
            None => None,
        };
        let named = spec.push_secret_ref.as_ref().map(|named| named.name.as_str());
        let verdict = judge_credential(named, &spec.hostname, secret.as_deref());
        if verdict.is_unbound {
            tracing::warn!(
                registry = name,
                annotation = REGISTRY_HOST,
                "the registry's Secret does not say which host it is for; a later version requires that it does"
            );
        }
        self.has_changed |= self.credentials.insert(name.to_owned(), verdict.clone()) != Some(verdict);
        Ok(())
    }

    /// Writes the records of namespaces of one kind; those that a failed call leaves are written later.
    pub(super) async fn record<K: PlatformKind>(&mut self) {
        for name in std::mem::take(&mut K::store_mut(&mut self.stores).due) {
            let result = self.record_one::<K>(&name).await;
            let store = K::store_mut(&mut self.stores);
            match result {
                Ok(()) => _ = store.recorded.insert(name),
                Err(error) => {
                    store.failed(&name, error);
                    store.due.insert(name);
                }
            }
        }
    }

    async fn record_one<K: PlatformKind>(&mut self, name: &str) -> Result<(), CallError> {
        let Some(resource) = K::STATUS else { return Ok(()) };
        // First the names that leave the record, then those that it lacks.
        while let Some((object, patch)) = K::store(&self.stores)
            .get(name)
            .and_then(|object| self.record_due(object))
        {
            object.check()?;
            let mut next = object.status.clone();
            namespaces::apply(&mut next.namespaces, &patch);
            let write = record_write(object, &patch);
            let version = self.hub_client.write_platform_status::<K>(resource, name, &write);
            let version = version.await?;
            self.has_changed = true;
            let store = K::store_mut(&mut self.stores);
            store.wrote(name, next, version);
            store.corrected(name, &patch);
        }
        Ok(())
    }

    /// The next change to an object's record.
    fn record_due<'o, K: PlatformKind>(
        &self,
        object: &'o StoredObject<K>,
    ) -> Option<(&'o StoredObject<K>, NamespaceUidPatch)> {
        let allowed = K::allowed(object.spec.as_ref()?);
        let (recorded, store) = (&object.status.namespaces, &self.namespaces);
        // Before anything else is recorded, and only for namespaces that this hub serves.
        let corrections = object.corrections().filter(|(name, _)| store.is_own(name));
        let corrections: BTreeMap<_, _> = corrections
            .map(|(name, uid)| (name.clone(), uid.clone()))
            .collect();
        if !corrections.is_empty() {
            return Some((object, corrections));
        }
        let patch = namespaces::record(allowed, recorded, store.existing(), |name| store.is_own(name));
        (!patch.is_empty()).then_some((object, patch))
    }

    /// Writes the statuses of one kind that may be out of date; those that a failed call leaves are written later.
    pub(super) async fn write_statuses<K: PlatformKind>(&mut self) {
        for name in std::mem::take(&mut K::store_mut(&mut self.stores).recorded) {
            if let Err(error) = self.write_status::<K>(&name).await {
                let store = K::store_mut(&mut self.stores);
                store.failed(&name, error);
                store.due.insert(name);
            }
        }
    }

    async fn write_status<K: PlatformKind>(&mut self, name: &str) -> Result<(), CallError> {
        let (Some(resource), Some(object)) = (K::STATUS, K::store(&self.stores).get(name)) else {
            return Ok(());
        };
        let Some(KindConditions { mut wanted, absent }) = K::conditions(self, name, object) else {
            return Ok(());
        };
        if let Some(spec) = &object.spec {
            let recreated = self.recreated::<K>(spec, object);
            for ready in wanted.iter_mut().filter(|w| w.type_ == ConditionType::Ready) {
                namespaces::mention(&mut ready.message, &recreated);
            }
        }
        let mut next = object.status.clone();
        let generation = Some(object.generation);
        conditions::merge(
            &mut next.conditions,
            &wanted,
            &absent,
            generation,
            Timestamp::now(),
        );
        next.observed_generation = generation;
        let Some(write) = status_write(object, &next)? else {
            return Ok(());
        };
        let version = self.hub_client.write_platform_status::<K>(resource, name, &write);
        let version = version.await?;
        K::store_mut(&mut self.stores).wrote(name, next, version);
        Ok(())
    }

    fn recreated<K: PlatformKind>(&self, spec: &K::Spec, object: &StoredObject<K>) -> Vec<String> {
        let status = &object.status;
        let ready = find_condition(&status.conditions, ConditionType::Ready);
        let mentioned = ready.map_or("", |ready| &ready.message);
        let mentioned: Vec<&str> = namespaces::mentioned(mentioned)
            .filter(|name| !self.namespaces.is_own(name))
            .collect();
        let (allowed, existing) = (K::allowed(spec), self.namespaces.existing());
        namespaces::recreated(allowed, &status.namespaces, existing, &mentioned)
    }

    pub(super) fn publish(&mut self) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let registries = self.stores.registries.iter().filter_map(|(name, object)| {
            let registry = CatalogRegistry {
                spec: object.spec.clone()?,
                credential: self.credentials.get(name)?.credential.clone(),
                recorded: object.status.namespaces.clone(),
            };
            Some((name.clone(), registry))
        });
        let clusters = self.stores.clusters.iter().filter_map(|(name, object)| {
            let cluster = CatalogCluster {
                spec: object.spec.clone()?,
                uid: object.uid.clone(),
                generation: object.generation,
                recorded: object.status.namespaces.clone(),
            };
            Some((name.clone(), cluster))
        });
        let catalog = Catalog {
            registries: registries.collect(),
            classes: self.classes(),
            clusters: clusters.collect(),
            weights: Arc::new(NamespaceWeights::new(
                self.stores.policies.iter().filter_map(|(_, w)| w.spec.as_ref()),
            )),
            fallback: CatalogClass {
                spec: self.fallback.clone(),
                ..self.image_of(&None, &self.fallback)
            },
            namespaces: self.listed(),
        };
        self.out.send_replace(Some(Arc::new(catalog)));
    }

    fn classes(&self) -> BTreeMap<String, CatalogClass> {
        let classes = self.stores.classes.iter().filter_map(|(name, object)| {
            let spec = object.spec.as_ref()?;
            let class = CatalogClass {
                spec: spec.clone(),
                is_default: object.is_default,
                is_refused: self.dry_runs.rejection(name).is_some(),
                recorded: object.status.namespaces.clone(),
                ..self.image_of(&Some(name.clone()), spec)
            };
            Some((name.clone(), class))
        });
        classes.collect()
    }

    /// What a class has of what is known of its image.
    fn image_of(&self, class: &ClassName, spec: &RendererClassSpec) -> CatalogClass {
        let named = self.images.named.get(class).cloned();
        CatalogClass {
            pull_secrets: named.unwrap_or_else(|| NamedPullSecret::unread(spec)),
            pull_failure: self.images.failures.get(class).cloned(),
            ..CatalogClass::default()
        }
    }

    /// UIDs of the existing namespaces that an object lists; of thousands most are listed by none.
    fn listed(&self) -> NamespaceUids {
        let names = KINDS.iter().flat_map(|kind| (kind.allowed)(&self.stores));
        names
            .filter_map(|name| Some((name.clone(), self.namespaces.existing().get(name)?.clone())))
            .collect()
    }
}

/// Writes only the changed names of a record, because other hubs record their own namespaces in it. A first use is written only over
/// the version it was decided on, because another hub may have recorded one since.
pub(super) fn record_write<'a, K: ListsNamespaces>(
    object: &'a StoredObject<K>,
    patch: &'a NamespaceUidPatch,
) -> PlatformStatusPatch<'a> {
    PlatformStatusPatch {
        uid: &object.uid,
        version: patch.values().any(Option::is_some).then_some(object.version),
        conditions: &[],
        observed_generation: None,
        namespaces: patch,
    }
}

/// Writes the conditions of an object; `None` where they are written already. It is written over no newer status, in which
/// another hub may have mentioned a namespace.
fn status_write<'a, K: ListsNamespaces>(
    object: &'a StoredObject<K>,
    next: &'a PlatformStatus,
) -> Result<Option<PlatformStatusPatch<'a>>, CallError> {
    if *next == object.status {
        return Ok(None);
    }
    object.check()?;
    Ok(Some(PlatformStatusPatch {
        uid: &object.uid,
        version: Some(object.version),
        conditions: &next.conditions,
        observed_generation: next.observed_generation,
        namespaces: &NO_CHANGE,
    }))
}
