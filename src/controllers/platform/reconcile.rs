//! What follows from what was seen: verdicts on credentials, records of namespaces, statuses, and the catalog itself.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{self, ConditionType, DesiredCondition, Reason};
use crate::api::labels::REGISTRY_HOST;
use crate::kubernetes::apply::{CallError, PlatformStatusPatch};
use crate::plan::platform::catalog::{Catalog, CatalogClass, CatalogCluster, CatalogRegistry};
use crate::plan::platform::class;
use crate::plan::platform::namespaces;
use crate::plan::platform::namespaces::{NamespaceUidPatch, NamespaceUids, named};
use crate::plan::platform::registry::{judge, ready};
use crate::plan::queue::NamespaceWeights;

use super::CatalogController;
use super::dry_run::DryRunResult;
use super::namespace_recorder::{NamespaceRecorder, RecordsNamespaces};
use super::store::{PlatformStatus, StoredObject};

/// No change to a record.
static NOTHING: NamespaceUidPatch = NamespaceUidPatch::new();

impl CatalogController {
    /// Takes in what came of a trial.
    pub(super) fn take_trial(&mut self, tried: DryRunResult) {
        let DryRunResult {
            name,
            uid,
            generation,
            answer,
        } = tried;
        let is_it = self
            .classes
            .get(&name)
            .is_some_and(|class| class.uid == uid && class.generation == generation);
        // What changed meanwhile is due anyhow.
        if !is_it {
            return;
        }
        let has_turned = self.trials.judge(&name, answer);
        self.has_changed |= has_turned;
        if has_turned {
            self.trials.tell_verdict(&name, uid);
        }
        self.classes_to_tell.insert(name);
    }

    /// Whether something waits for a call to be tried again.
    pub(super) fn has_work(&self) -> bool {
        let told = self.registries_to_tell.is_empty() && self.classes_to_tell.is_empty();
        !(self.open.is_empty() && told && self.clusters_to_record.is_empty())
    }

    /// Brings verdicts, records and the catalog up to what was seen.
    pub(super) async fn catch_up(&mut self) {
        // A namespace that went takes its grants along before any call is waited for.
        if std::mem::take(&mut self.has_withdrawn) && self.open.is_empty() {
            self.publish();
        }
        self.judge().await;
        // Recorded before it is published: what only this process knows would be granted anew after a restart.
        let recorded = self.record().await;
        // Published before it is told: what comes once a status speaks of a spec is treated by that spec.
        self.publish();
        self.tell(recorded).await;
    }

    /// Gives the verdicts that are open; those that a failed call leaves open are given later.
    async fn judge(&mut self) {
        for name in std::mem::take(&mut self.open) {
            match self.judge_one(&name).await {
                Ok(()) => _ = self.registries_to_tell.insert(name),
                Err(error) => {
                    tracing::warn!(
                        registry = name,
                        kind = error.kind(),
                        stage = error.stage(),
                        "no verdict yet; it is repeated"
                    );
                    self.open.insert(name);
                }
            }
        }
    }

    async fn judge_one(&mut self, name: &str) -> Result<(), CallError> {
        let Some(spec) = self.registries.get(name).and_then(|w| w.spec.as_ref()) else {
            return Ok(());
        };
        let secret = match &spec.push_secret_ref {
            Some(named) => self.calls.get_secret(&named.name).await?,
            None => None,
        };
        let named = spec.push_secret_ref.as_ref().map(|named| named.name.as_str());
        let verdict = judge(named, &spec.hostname, secret.as_deref());
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

    /// Writes the records of namespaces; those that a failed call leaves are written later. Returns the registries and the
    /// classes of which they are as they should be; how a cluster stands is told by whoever connects to it.
    async fn record(&mut self) -> (Vec<String>, Vec<String>) {
        let mut recorder = NamespaceRecorder {
            calls: &self.calls,
            land: &self.namespaces,
            has_changed: false,
        };
        let registries = recorder.record(&mut self.registries, &mut self.registries_to_tell);
        let registries = registries.await;
        let classes = recorder.record(&mut self.classes, &mut self.classes_to_tell);
        let classes = classes.await;
        let clusters = recorder.record(&mut self.clusters, &mut self.clusters_to_record);
        clusters.await;
        self.has_changed |= recorder.has_changed;
        (registries, classes)
    }

    /// Writes the statuses that may not say what is so; those that a failed call leaves are written later.
    async fn tell(&mut self, (registries, classes): (Vec<String>, Vec<String>)) {
        for name in registries {
            if let Err(error) = self.tell_registry(&name).await {
                self.registries.failed(&name, error);
                self.registries_to_tell.insert(name);
            }
        }
        for name in classes {
            if let Err(error) = self.tell_class(&name).await {
                self.classes.failed(&name, error);
                self.classes_to_tell.insert(name);
            }
        }
    }

    async fn tell_registry(&mut self, name: &str) -> Result<(), CallError> {
        let Some(watched) = self.registries.get(name) else {
            return Ok(());
        };
        let wanted = match (&watched.spec, self.credentials.get(name)) {
            (Some(spec), Some(verdict)) => {
                let mut wanted = ready(spec, verdict);
                let recreated = self.recreated(spec, watched);
                namespaces::mention(&mut wanted.message, &recreated);
                wanted
            }
            // It is told with the verdict.
            (Some(_), None) => return Ok(()),
            (None, _) => undecodable(),
        };
        let next = next_status(watched, &[wanted], &[]);
        let Some(write) = status_write(watched, &next)? else {
            return Ok(());
        };
        let version = self.calls.write_registry_status(name, &write).await?;
        self.registries.wrote(name, next, version.as_deref());
        Ok(())
    }

    async fn tell_class(&mut self, name: &str) -> Result<(), CallError> {
        // It is told with the verdict of the API server.
        let Some(watched) = self.classes.get(name).filter(|_| !self.trials.is_open(name)) else {
            return Ok(());
        };
        let spec = watched.spec.as_ref();
        let mut wanted = class::conditions(spec, self.trials.objection(name));
        if let Some(spec) = spec {
            let recreated = self.recreated(spec, watched);
            for ready in wanted.iter_mut().filter(|w| w.type_ == ConditionType::Ready) {
                namespaces::mention(&mut ready.message, &recreated);
            }
        }
        let next = next_status(watched, &wanted, class::unsaid(spec));
        let Some(write) = status_write(watched, &next)? else {
            return Ok(());
        };
        let version = self.calls.write_class_status(name, &write).await?;
        self.classes.wrote(name, next, version.as_deref());
        Ok(())
    }

    fn recreated<S: RecordsNamespaces>(&self, spec: &S, watched: &StoredObject<S>) -> Vec<String> {
        let status = &watched.status;
        let is_ready = |condition: &&Condition| condition.type_ == ConditionType::Ready.as_str();
        let ready = status.conditions.iter().find(is_ready);
        let mentioned = ready.map_or("", |ready| &ready.message);
        let mentioned: Vec<&str> = namespaces::mentioned(mentioned)
            .filter(|name| !self.namespaces.is_own(name))
            .collect();
        namespaces::recreated(
            spec.allowed(),
            &status.namespaces,
            self.namespaces.existing(),
            &mentioned,
        )
    }

    pub(super) fn publish(&mut self) {
        if !std::mem::take(&mut self.has_changed) {
            return;
        }
        let registries = self.registries.iter().filter_map(|(name, watched)| {
            let registry = CatalogRegistry {
                spec: watched.spec.clone()?,
                credential: self.credentials.get(name)?.credential.clone(),
                recorded: watched.status.namespaces.clone(),
            };
            Some((name.clone(), registry))
        });
        let classes = self.classes.iter().filter_map(|(name, watched)| {
            let class = CatalogClass {
                spec: watched.spec.clone()?,
                is_default: watched.is_default,
                is_refused: self.trials.objection(name).is_some(),
                recorded: watched.status.namespaces.clone(),
            };
            Some((name.clone(), class))
        });
        let clusters = self.clusters.iter().filter_map(|(name, watched)| {
            let cluster = CatalogCluster {
                spec: watched.spec.clone()?,
                uid: watched.uid.clone(),
                generation: watched.generation,
                recorded: watched.status.namespaces.clone(),
            };
            Some((name.clone(), cluster))
        });
        let catalog = Catalog {
            registries: registries.collect(),
            classes: classes.collect(),
            clusters: clusters.collect(),
            weights: Arc::new(NamespaceWeights::new(
                self.policies.iter().filter_map(|(_, w)| w.spec.as_ref()),
            )),
            fallback: self.fallback.clone(),
            namespaces: self.listed(),
        };
        self.out.send_replace(Some(Arc::new(catalog)));
    }

    /// UIDs of the existing namespaces that some list names; of thousands most are named by none.
    fn listed(&self) -> NamespaceUids {
        let by_registries = self
            .registries
            .iter()
            .filter_map(|(_, w)| Some(&w.spec.as_ref()?.allowed_namespaces));
        let by_classes = self
            .classes
            .iter()
            .filter_map(|(_, w)| Some(&w.spec.as_ref()?.allowed_namespaces));
        let by_clusters = self
            .clusters
            .iter()
            .filter_map(|(_, w)| Some(&w.spec.as_ref()?.allowed_namespaces));
        let lists = by_registries.chain(by_classes).chain(by_clusters);
        let names = lists.flat_map(|allowed| named(allowed));
        names
            .filter_map(|name| Some((name.clone(), self.namespaces.existing().get(name)?.clone())))
            .collect()
    }
}

fn undecodable() -> DesiredCondition {
    DesiredCondition {
        type_: ConditionType::Ready,
        status: false,
        reason: Reason::InvalidSpec,
        message: "this version of the hub cannot read the spec: a field is missing, or has a value of another type; correct it".to_owned(),
    }
}

/// The status of an object with these conditions.
fn next_status<S>(
    watched: &StoredObject<S>,
    wanted: &[DesiredCondition],
    gone: &[ConditionType],
) -> PlatformStatus {
    let mut next = watched.status.clone();
    let generation = Some(watched.generation);
    conditions::merge(&mut next.conditions, wanted, gone, generation, Timestamp::now());
    next.observed_generation = generation;
    next
}

/// Writes what the hub says of an object; nothing where that is what it says already. It is written over no newer status, in
/// which another hub may have mentioned a namespace.
fn status_write<'a, S>(
    watched: &'a StoredObject<S>,
    next: &'a PlatformStatus,
) -> Result<Option<PlatformStatusPatch<'a>>, CallError> {
    if *next == watched.status {
        return Ok(None);
    }
    watched.check()?;
    Ok(Some(PlatformStatusPatch {
        uid: &watched.uid,
        version: Some(watched.version),
        conditions: &next.conditions,
        observed_generation: next.observed_generation,
        namespaces: &NOTHING,
    }))
}
