//! Everything that a hub writes for a fleet, by its own decisions, before any of it is written.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ApiResource, ListParams};
use kube::{Client, Resource};
use renderhub::api::pipeline::{
    ComponentVersion, HydratedTargetSpec, HydratedTargetStatus, OmitsKnownNames as _, PipelineStatus,
    Profile, ProfileStatus, Release, ReleaseStatus, Target, TargetStatus,
};
use renderhub::kubernetes::object::LabelledObject;
use renderhub::plan::pipeline::chart_cache::ChartCache;
use renderhub::plan::pipeline::decide::{FinalizerChange, NewTask, TargetDecision, TargetInput, decide};
use renderhub::plan::pipeline::left_out::LeftOutIndex;
use renderhub::plan::pipeline::lookups::ChartAnswers;
use renderhub::plan::pipeline::names::PipelineSpec;
use renderhub::plan::pipeline::object::{ObjectKey, PipelineObject};
use renderhub::plan::pipeline::object_map::ObjectMap;
use renderhub::plan::pipeline::objects::PipelineObjects;
use renderhub::plan::pipeline::profile_status::of_profile;
use renderhub::plan::pipeline::references::ReferenceRules;
use renderhub::plan::pipeline::rollout::RolloutIndex;
use renderhub::plan::pipeline::source::TargetView;
use renderhub::plan::pipeline::status::{StatusInput, of_component_version, of_release};
use renderhub::plan::pipeline::task_state::{PipelineTask, PipelineTaskState};
use renderhub::plan::platform::catalog::Catalog;
use serde::de::DeserializeOwned;

/// Decisions that a Target takes at most until it is ready.
const STEPS: usize = 16;

/// What is written for a fleet.
#[derive(Default)]
pub struct FleetPlan {
    /// Tasks that Targets share.
    pub shared: Vec<(String, NewTask)>,
    /// What is written for each Target.
    pub targets: Vec<TargetPlan>,
    /// Statuses of Releases, by key and UID.
    pub releases: Vec<(ObjectKey, String, ReleaseStatus)>,
    /// Statuses of `ComponentVersion`s, by key and UID.
    pub component_versions: Vec<(ObjectKey, String, PipelineStatus)>,
    /// Statuses of Profiles, by key and UID.
    pub profiles: Vec<(ObjectKey, String, ProfileStatus)>,
}

/// What is written for a Target.
pub struct TargetPlan {
    /// Its key.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Each status that a decision gives it, in the order of time.
    pub statuses: Vec<TargetStatus>,
    /// Its version, by name.
    pub version: (String, HydratedTargetSpec),
    /// The status of that version.
    pub version_status: HydratedTargetStatus,
    /// The task of that version.
    pub task: NewTask,
}

impl FleetPlan {
    /// The plan for the fleet that there is.
    ///
    /// # Errors
    /// If the API server does not say what there is, or it would not get ready.
    pub async fn of(client: &Client, catalog: &Catalog) -> Result<Self> {
        let mut objects = PipelineObjects {
            targets: listed::<Target, _, _>(client).await?,
            releases: listed::<Release, _, _>(client).await?,
            component_versions: listed::<ComponentVersion, _, _>(client).await?,
            profiles: listed::<Profile, _, _>(client).await?,
            ..PipelineObjects::default()
        };
        let charts = ChartCache::default();
        let mut plan = Self::default();
        let targets: Vec<ObjectKey> = objects.targets.keys().cloned().collect();
        let mut shared = BTreeSet::new();
        for key in targets {
            let mut target = Draft::default();
            for _ in 0..STEPS {
                let decision = decision(&key, &objects, &charts, catalog)?;
                take_in(&key, &decision, &mut objects);
                for task in &decision.new_tasks {
                    if !task.is_targets_own && shared.insert((key.namespace.clone(), task.name.clone())) {
                        plan.shared.push((key.namespace.clone(), task.clone()));
                    }
                }
                if !target.take_in(decision) {
                    break;
                }
            }
            let object = objects.targets.get(&key).context("it was listed")?;
            plan.targets.push(target.finished(key, object.uid.clone())?);
        }
        plan.add_statuses(&objects);
        Ok(plan)
    }

    /// The statuses of Releases, `ComponentVersion`s and Profiles, once all Targets are ready and none of their Releases lost to another.
    fn add_statuses(&mut self, objects: &PipelineObjects) {
        let mut left_out = LeftOutIndex::default();
        for target in objects.targets.keys() {
            left_out.put(target, Vec::new());
        }
        let input = StatusInput {
            objects,
            rules: &ReferenceRules::default(),
            rollouts: &RolloutIndex::default(),
            left_out: &left_out,
            now: Timestamp::now(),
        };
        for (key, object) in objects.releases.iter() {
            let status = of_release(key, object, &input);
            let write = status.map(|status| (key.clone(), object.uid.clone(), status));
            self.releases.extend(write);
        }
        for (key, object) in objects.component_versions.iter() {
            let status = of_component_version(key, object, &input);
            let write = status.map(|status| (key.clone(), object.uid.clone(), status));
            self.component_versions.extend(write);
        }
        for (key, object) in objects.profiles.iter() {
            let status = of_profile(key, object, &input);
            let write = status.map(|status| (key.clone(), object.uid.clone(), status));
            self.profiles.extend(write);
        }
    }
}

/// What is known of a Target's plan.
#[derive(Default)]
struct Draft {
    statuses: Vec<TargetStatus>,
    version: Option<(String, HydratedTargetSpec)>,
    version_status: Option<HydratedTargetStatus>,
    task: Option<NewTask>,
}

impl Draft {
    /// Takes a decision in; whether it had anything new.
    fn take_in(&mut self, decision: TargetDecision) -> bool {
        let is_new = decision.finalizer == FinalizerChange::Add
            || decision.new_version.is_some()
            || decision.version_status.is_some()
            || !decision.new_tasks.is_empty()
            || self.statuses.last() != Some(&decision.status);
        if self.statuses.last() != Some(&decision.status) {
            self.statuses.push(decision.status);
        }
        self.version = decision.new_version.or(self.version.take());
        self.version_status = decision
            .version_status
            .map(|record| record.status)
            .or(self.version_status.take());
        let own = decision.new_tasks.into_iter().find(|task| task.is_targets_own);
        self.task = own.or(self.task.take());
        is_new
    }

    fn finished(mut self, key: ObjectKey, uid: String) -> Result<TargetPlan> {
        ensure!(!self.statuses.is_empty(), "nothing is decided about {key}");
        let mut version = self.version.context("a Target without a version")?;
        version.1.leave_out(&key.namespace);
        for status in &mut self.statuses {
            status.leave_out(&key.namespace);
        }
        Ok(TargetPlan {
            key,
            uid,
            statuses: self.statuses,
            version,
            version_status: self.version_status.context("a version that is not pushed")?,
            task: self.task.context("a version without a task")?,
        })
    }
}

fn decision(
    key: &ObjectKey,
    objects: &PipelineObjects,
    charts: &ChartCache,
    catalog: &Catalog,
) -> Result<TargetDecision> {
    let (key, object) = objects.targets.get_key_value(key).context("it was listed")?;
    let input = TargetInput {
        target: TargetView { key, object },
        objects,
        rules: &ReferenceRules::default(),
        refusal: None,
        catalog,
        charts,
        rollouts: &RolloutIndex::default(),
        answers: &ChartAnswers::default(),
        now: Timestamp::now(),
    };
    decide(input).context("a Target that cannot be decoded")
}

/// Does what was decided, and ends all tasks.
fn take_in(target: &ObjectKey, decision: &TargetDecision, objects: &mut PipelineObjects) {
    let key = |name: &str| ObjectKey::new(&target.namespace, name);
    for task in &decision.new_tasks {
        let mut made = PipelineTask::made(String::new(), &task.spec, &task.spec_hash);
        made.state = PipelineTaskState::Succeeded {
            digest: Some(format!("sha256:{}", "0".repeat(64))),
            at: Timestamp::now(),
        };
        objects.tasks.insert(key(&task.name), made);
    }
    if let Some((name, spec)) = decision.new_version.clone() {
        let version = PipelineObject::made(String::new(), spec);
        objects.hydrated_targets.insert(key(&name), version);
    }
    if let Some(record) = &decision.version_status
        && let Some(mut version) = objects.hydrated_targets.get_mut(&record.seen.0)
    {
        version.status = record.status.clone();
    }
    if let Some(mut object) = objects.targets.get_mut(target) {
        object.status = decision.status.clone();
        if decision.finalizer == FinalizerChange::Add {
            object.finalizers = object.finalizers.with_own();
        }
    }
}

async fn listed<K, S, T>(client: &Client) -> Result<ObjectMap<S, T>>
where
    K: Resource<DynamicType = ()>,
    S: PipelineSpec<T> + DeserializeOwned,
    T: DeserializeOwned + Default,
{
    let api: Api<LabelledObject> = Api::all_with(client.clone(), &ApiResource::erase::<K>(&()));
    let all = api.list(&ListParams::default()).await?.items;
    let all: BTreeMap<ObjectKey, PipelineObject<S, T>> =
        all.into_iter().filter_map(LabelledObject::into_object).collect();
    Ok(all.into_iter().collect())
}
