//! Objects to decide about.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::conditions::Reason;
use crate::api::pipeline::{ReleaseSpec, TargetSpec};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::content_hash::content_hash;
use crate::plan::pipeline::decide::{CreateRefusal, FinalizerChange, TargetDecision, TargetInput, decide};
use crate::plan::pipeline::lookups::ChartAnswers;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::resolution::Resolution;
use crate::plan::pipeline::resolve::resolve;
use crate::plan::pipeline::rollout::{RolloutIndex, RolloutInput, VersionsInMaking};
use crate::plan::pipeline::source::TargetView;
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};
use crate::plan::platform::catalog::Catalog;

use super::registry_contents::RegistryContents;

/// The namespace of everything that has no other.
pub const HOME: &str = "team-a";

/// A key in the namespace that everything is in.
pub fn key(name: &str) -> ObjectKey {
    ObjectKey::new(HOME, name)
}

/// A time.
pub fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_000_000 + second).unwrap()
}

/// A UID that is another once the spec is, as a generation would be.
fn revision(name: &str, spec: &Value) -> String {
    format!("uid-of-{name}-{}", content_hash(spec))
}

/// An object with a spec.
pub fn object<S: DeserializeOwned, T: Default>(
    name: &str,
    labels: &Value,
    spec: Value,
) -> PipelineObject<S, T> {
    PipelineObject {
        uid: revision(name, &spec),
        created: at(0),
        labels: serde_json::from_value(labels.clone()).unwrap(),
        ..PipelineObject::made(String::new(), serde_json::from_value(spec).unwrap())
    }
}

/// Objects, and what governs them.
#[derive(Clone, Default)]
pub struct World {
    pub objects: PipelineObjects,
    pub rules: ReferenceRules,
    pub catalog: Catalog,
    pub now: i64,
    /// Why what was decided before could not be made.
    pub refusal: Option<CreateRefusal>,
    /// Charts that were planned before, by this world or the one it is a copy of.
    pub charts: Rc<ChartCache>,
    /// What registries said of charts of earlier versions.
    pub answers: ChartAnswers,
    /// What the registry has of them.
    pub registry: RegistryContents,
}

impl World {
    /// One with a registry of the tenant's.
    pub fn new() -> Self {
        let mut world = Self::default();
        let registry = json!({
            "hostname": "r.test", "pushSecretRef": {"name": "push"}, "targetPullSecretName": "pull",
        });
        world
            .objects
            .registries
            .insert(key("main"), object("main", &json!({}), registry));
        world
    }

    pub fn target(&mut self, name: &str, labels: &Value, mut spec: Value) {
        spec["renderRegistryRef"] = json!({"name": "main"});
        let target = object(name, labels, spec);
        self.objects.targets.insert(key(name), target);
    }

    pub fn component_version(&mut self, name: &str, tag: &str) {
        let chart = json!({"repository": format!("charts.test/{name}"), "tag": tag});
        let spec = json!({
            "componentRef": {"name": name}, "tag": tag, "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        });
        let version = object(name, &json!({}), spec);
        self.objects.component_versions.insert(key(name), version);
    }

    /// A Release of the component `version`.
    pub fn release(&mut self, name: &str, version: &str, labels: &Value, mut spec: Value) {
        if !self.objects.component_versions.contains_key(&key(version)) {
            self.component_version(version, "1.0.0");
        }
        spec["componentVersionRef"] = json!({"name": version});
        let release = object(name, labels, spec);
        self.objects.releases.insert(key(name), release);
    }

    pub fn bind(&mut self, target: &str, release: &str) {
        self.bind_as(&format!("{target}-{release}"), target, release);
    }

    pub fn bind_as(&mut self, name: &str, target: &str, release: &str) {
        let spec = json!({"targetRef": {"name": target}, "releaseRef": {"name": release}});
        let binding = object(name, &json!({}), spec);
        self.objects.release_bindings.insert(key(name), binding);
    }

    pub fn profile(&mut self, name: &str, release: &str, labels: &Value) {
        let spec = json!({"releaseRef": {"name": release}, "targetSelector": {"matchLabels": labels}});
        self.objects
            .profiles
            .insert(key(name), object(name, &json!({}), spec));
    }

    /// A Profile that brings a change of the Release to so many Targets at a time.
    pub fn staged_profile(&mut self, name: &str, release: &str, labels: &Value, limit: &Value) {
        let selector = json!({"matchLabels": labels});
        let spec =
            json!({"releaseRef": {"name": release}, "targetSelector": selector, "maxUnavailable": limit});
        self.objects
            .profiles
            .insert(key(name), object(name, &json!({}), spec));
    }

    /// Gives a Profile data for its Targets.
    pub fn profile_data(&mut self, name: &str, data: Value) {
        let mut profile = self.objects.profiles.get_mut(&key(name)).unwrap();
        profile.spec.as_mut().unwrap().userdata = Some(data);
    }

    /// Another spec of a Target.
    pub fn change_target(&mut self, name: &str, change: impl FnOnce(&mut TargetSpec)) {
        let mut target = self.objects.targets.get_mut(&key(name)).unwrap();
        change(target.spec.as_mut().unwrap());
        target.generation += 1;
    }

    /// Another spec of a Release.
    pub fn change_release(&mut self, name: &str, change: impl FnOnce(&mut ReleaseSpec)) {
        let mut release = self.objects.releases.get_mut(&key(name)).unwrap();
        change(release.spec.as_mut().unwrap());
        release.generation += 1;
    }

    /// Another ring of a Target.
    pub fn relabel(&mut self, target: &str, ring: &str) {
        let mut target = self.objects.targets.get_mut(&key(target)).unwrap();
        target.labels = [("ring".to_owned(), ring.to_owned())].into();
    }

    pub fn registry_binding(&mut self, name: &str, target: &str, host: &str, secret: &str) {
        let registry = json!({"hostname": host, "targetPullSecretName": secret});
        self.objects
            .registries
            .insert(key(name), object(name, &json!({}), registry));
        let spec = json!({"targetRef": {"name": target}, "registryRef": {"name": name}});
        let binding = object(name, &json!({}), spec);
        self.objects.registry_bindings.insert(key(name), binding);
    }

    /// What a Target gets.
    pub fn resolve(&self, target: &str) -> Resolution<'_> {
        let (key, object) = self.objects.targets.get_key_value(&key(target)).unwrap();
        let newest = self.newest(target);
        resolve(
            TargetView { key, object },
            newest,
            &self.objects,
            &self.rules,
            at(self.now),
        )
    }

    /// The newest version of a Target.
    pub fn newest(&self, target: &str) -> Option<&crate::api::pipeline::HydratedTargetSpec> {
        let all = self
            .objects
            .hydrated_targets
            .values()
            .filter_map(|version| version.spec.as_ref());
        all.filter(|spec| spec.target_name == target)
            .max_by_key(|spec| spec.version)
    }

    /// What is to be done for a Target.
    pub fn decide(&self, target: &str) -> TargetDecision {
        self.decide_of(&key(target)).unwrap()
    }

    /// What is to be done for a Target of any namespace, which is the same whether its charts were planned before or not.
    pub fn decide_of(&self, target: &ObjectKey) -> Option<TargetDecision> {
        let decision = self.decide_with(&self.charts, target);
        let anew = self.decide_with(&ChartCache::default(), target);
        assert_eq!(format!("{decision:?}"), format!("{anew:?}"));
        decision
    }

    /// Whether anything is decided about a Target.
    pub fn is_decided(&self, target: &str) -> bool {
        self.decide_with(&self.charts, &key(target)).is_some()
    }

    fn decide_with(&self, charts: &ChartCache, target: &ObjectKey) -> Option<TargetDecision> {
        let (key, object) = self.objects.targets.get_key_value(target)?;
        decide(TargetInput {
            charts,
            rollouts: &self.rollouts(charts),
            target: TargetView { key, object },
            objects: &self.objects,
            rules: &self.rules,
            refusal: self.refusal,
            catalog: &self.catalog,
            answers: &self.answers,
            // No clock shows whole seconds.
            now: at(self.now) + Duration::from_millis(400),
        })
    }

    /// The rollouts as a hub sees them that has just started.
    pub fn rollouts(&self, charts: &ChartCache) -> RolloutIndex {
        let mut rollouts = RolloutIndex::default();
        rollouts.refresh(self.rollout_input(charts, &VersionsInMaking::new()));
        rollouts
    }

    pub fn rollout_input<'o>(
        &'o self,
        charts: &'o ChartCache,
        in_making: &'o VersionsInMaking,
    ) -> RolloutInput<'o> {
        RolloutInput {
            objects: &self.objects,
            rules: &self.rules,
            catalog: &self.catalog,
            charts,
            in_making,
        }
    }

    /// Does what is to be done for a Target once, as the controller would.
    pub fn step(&mut self, target: &str) -> TargetDecision {
        self.step_of(&key(target)).unwrap()
    }

    /// The same for a Target of any namespace.
    pub fn step_of(&mut self, target: &ObjectKey) -> Option<TargetDecision> {
        self.begin_lookups(target);
        let decision = self.decide_of(target)?;
        self.look_up(target, &decision);
        let key = |name: &str| ObjectKey::new(&target.namespace, name);
        for task in &decision.new_tasks {
            self.remember_config(task);
            let made = PipelineTask::made(format!("uid-of-{}", task.name), &task.spec, &task.spec_hash);
            self.objects.tasks.insert(key(&task.name), made);
        }
        if let Some((name, spec)) = decision.new_version.clone() {
            let version = PipelineObject::made(format!("uid-of-{name}"), spec);
            self.objects.hydrated_targets.insert(key(&name), version);
        }
        for record in decision.version_status.iter().chain(&decision.records) {
            let mut version = self.objects.hydrated_targets.get_mut(&record.seen.0).unwrap();
            version.status = record.status.clone();
        }
        for (key, _) in &decision.old_tasks {
            self.objects.tasks.remove(key);
        }
        for (key, _) in &decision.old_versions {
            self.objects.hydrated_targets.remove(key);
        }
        let mut object = self.objects.targets.get_mut(target).unwrap();
        object.status = decision.status.clone();
        match decision.finalizer {
            FinalizerChange::Keep => {}
            FinalizerChange::Add => object.finalizers = object.finalizers.with_own(),
            FinalizerChange::Remove | FinalizerChange::Force => {
                object.finalizers = object.finalizers.without_own();
            }
        }
        Some(decision)
    }

    /// Asks for the deletion of a Target, which stays as long as it has a finalizer.
    pub fn delete_target(&mut self, name: &str) {
        let now = at(self.now);
        let mut object = self.objects.targets.get_mut(&key(name)).unwrap();
        object.deleting = true;
        object.deleted_at = Some(now);
    }

    /// Lets the registry of every Target prune, or not.
    pub fn prune(&mut self, is_on: bool) {
        let mut registry = self.objects.registries.get_mut(&key("main")).unwrap();
        registry.spec.as_mut().unwrap().prune = Some(is_on);
    }

    /// Ends every task that runs.
    pub fn succeed(&mut self) {
        let at = at(self.now);
        self.end_running(|name| PipelineTaskState::Succeeded {
            digest: Some(format!("sha256:{}", content_hash(&name))),
            at,
        });
    }

    /// Fails every task that runs.
    pub fn fail(&mut self, is_final: bool) {
        self.fail_with(Reason::JobFailed, is_final);
    }

    /// Fails every task that runs for a reason.
    pub fn fail_with(&mut self, reason: Reason, is_final: bool) {
        let at = at(self.now);
        self.end_running(|_| PipelineTaskState::Failed { reason, at, is_final });
    }

    fn end_running(&mut self, state: impl Fn(&str) -> PipelineTaskState) {
        let keys: Vec<ObjectKey> = self.objects.tasks.keys().cloned().collect();
        for key in keys {
            let mut task = self.objects.tasks.get_mut(&key).unwrap();
            if task.state == PipelineTaskState::Running {
                task.state = state(&key.name);
            }
        }
    }

    /// Steps and succeeding tasks, until nothing is left to do.
    pub fn settle(&mut self, target: &str) {
        for _ in 0..20 {
            let before = self.state();
            self.step(target);
            self.succeed();
            if self.state() == before {
                return;
            }
        }
        panic!("it does not come to rest");
    }

    fn state(&self) -> String {
        let statuses: BTreeMap<_, _> = self
            .objects
            .targets
            .iter()
            .map(|(key, t)| (key.to_string(), &t.status))
            .collect();
        let versions: BTreeMap<_, _> = self
            .objects
            .hydrated_targets
            .iter()
            .map(|(key, version)| (key.to_string(), (&version.spec, &version.status)))
            .collect();
        content_hash(&(statuses, versions, format!("{:?}", self.objects.tasks)))
    }

    /// The reason of `Ready` of a Target.
    pub fn ready(&self, target: &str) -> (String, String) {
        let status = &self.objects.targets[&key(target)].status;
        let ready = status
            .conditions
            .iter()
            .find(|condition| condition.type_ == "Ready")
            .unwrap();
        (ready.reason.clone(), ready.message.clone())
    }

    /// The unique names of the newest version, with the tag of each component.
    pub fn bundled(&self, target: &str) -> Vec<String> {
        let newest = self.newest(target);
        let releases = newest.into_iter().flat_map(|spec| &spec.releases);
        releases
            .map(|(name, release)| format!("{name} {}", release.component_version))
            .collect()
    }
}
