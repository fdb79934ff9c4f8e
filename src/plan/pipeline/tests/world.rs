//! Objects to decide about.

use std::collections::BTreeMap;
use std::rc::Rc;

use k8s_openapi::jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::api::conditions::Reason;
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::content_hash::content_hash;
use crate::plan::pipeline::decide::{TargetDecision, TargetInput, decide};
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::resolve::{Resolution, resolve};
use crate::plan::pipeline::source::TargetView;
use crate::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};
use crate::plan::platform::catalog::Catalog;

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

fn object<S: DeserializeOwned, T: Default>(name: &str, labels: &Value, spec: Value) -> PipelineObject<S, T> {
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
    /// Charts that were planned before, by this world or the one it is a copy of.
    pub charts: Rc<ChartCache>,
}

impl World {
    /// One with a registry of the tenant's.
    pub fn new() -> Self {
        let mut world = Self::default();
        let registry = json!({"hostname": "r.test", "targetPullSecretName": "pull"});
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
        let name = format!("{target}-{release}");
        let spec = json!({"targetRef": {"name": target}, "releaseRef": {"name": release}});
        let binding = object(&name, &json!({}), spec);
        self.objects.release_bindings.insert(key(&name), binding);
    }

    pub fn profile(&mut self, name: &str, release: &str, labels: &Value) {
        let spec = json!({"releaseRef": {"name": release}, "targetSelector": {"matchLabels": labels}});
        self.objects
            .profiles
            .insert(key(name), object(name, &json!({}), spec));
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

    fn newest(&self, target: &str) -> Option<&crate::api::pipeline::HydratedTargetSpec> {
        let all = self
            .objects
            .hydrated_targets
            .values()
            .filter_map(|version| version.spec.as_ref());
        all.filter(|spec| spec.target_name == target)
            .max_by_key(|spec| spec.version)
    }

    /// What is to be done for a Target, which is the same whether its charts were planned before or not.
    pub fn decide(&self, target: &str) -> TargetDecision {
        let decision = self.decide_with(&self.charts, target);
        let anew = self.decide_with(&ChartCache::default(), target);
        assert_eq!(format!("{decision:?}"), format!("{anew:?}"));
        decision
    }

    fn decide_with(&self, charts: &ChartCache, target: &str) -> TargetDecision {
        let (key, object) = self.objects.targets.get_key_value(&key(target)).unwrap();
        decide(TargetInput {
            charts,
            target: TargetView { key, object },
            objects: &self.objects,
            rules: &self.rules,
            catalog: &self.catalog,
            now: at(self.now),
        })
        .unwrap()
    }

    /// Does what is to be done for a Target once, as the controller would.
    pub fn step(&mut self, target: &str) -> TargetDecision {
        let decision = self.decide(target);
        for task in &decision.new_tasks {
            let made = PipelineTask::made(format!("uid-of-{}", task.name), &task.spec);
            self.objects.tasks.insert(key(&task.name), made);
        }
        if let Some((name, spec)) = decision.new_version.clone() {
            let version = PipelineObject::made(format!("uid-of-{name}"), spec);
            self.objects.hydrated_targets.insert(key(&name), version);
        }
        if let Some(((key, _), status)) = decision.version_status.clone() {
            self.objects.hydrated_targets.get_mut(&key).unwrap().status = status;
        }
        for (key, _) in &decision.old_tasks {
            self.objects.tasks.remove(key);
        }
        for (key, _) in &decision.old_versions {
            self.objects.hydrated_targets.remove(key);
        }
        let object = self.objects.targets.get_mut(&key(target)).unwrap();
        object.status = decision.status.clone();
        decision
    }

    /// Ends every task that runs.
    pub fn succeed(&mut self) {
        let at = at(self.now);
        for task in self.objects.tasks.values_mut() {
            if task.state == PipelineTaskState::Running {
                let digest = Some("sha256:0".to_owned());
                task.state = PipelineTaskState::Succeeded { digest, at };
            }
        }
    }

    /// Fails every task that runs.
    pub fn fail(&mut self, is_final: bool) {
        let (reason, at) = (Reason::JobFailed, at(self.now));
        for task in self.objects.tasks.values_mut() {
            if task.state == PipelineTaskState::Running {
                task.state = PipelineTaskState::Failed { reason, at, is_final };
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
