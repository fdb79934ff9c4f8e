//! A stage with the pipeline on, and what its tests make there.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::{Resource, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, Profile, Release, ReleaseBinding, Target,
};
use renderhub_harness::commands::kubectl;
use renderhub_harness::finish::Exit;
use renderhub_harness::{ControlPlane, apply, rundir, wait_for};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use support::{LIMIT, Stage};

/// A stage with the pipeline on.
pub struct Scene {
    pub stage: Stage,
}

/// Applies a manifest as a user would, which refuses fields that the schema does not have; what kubectl warns of.
pub fn applied(plane: &ControlPlane, manifest: &str, more: &[&str]) -> Result<String> {
    let file = rundir::fresh("manifest")?.join("manifest.yaml");
    std::fs::write(&file, manifest)?;
    let mut kubectl = kubectl(plane.admin())?;
    let output = kubectl
        .args(["apply", "--filename"])
        .arg(&file)
        .args(more)
        .output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "{said}");
    Ok(said)
}

/// The condition of a type.
pub fn condition<'c>(conditions: &'c [Condition], type_: &str) -> Option<&'c Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

impl Scene {
    pub async fn new(prefix: &str) -> Result<Self> {
        Self::with_flags(prefix, &[]).await
    }

    pub async fn with_flags(prefix: &str, flags: &[&str]) -> Result<Self> {
        let flags: Vec<&str> = ["--pipeline=true"].iter().chain(flags).copied().collect();
        let stage = Stage::with_flags(prefix, &flags).await?;
        Ok(Self { stage })
    }

    pub fn passed(self) {
        self.stage.passed();
    }

    pub fn tenant(&self) -> &str {
        &self.stage.scope.tenant
    }

    pub fn api<K>(&self) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.stage.admin.clone(), self.tenant())
    }

    pub fn tasks(&self) -> Api<RenderTask> {
        self.stage.tasks()
    }

    pub async fn make(&self, kind: &str, name: &str, labels: Value, spec: Value) -> Result<()> {
        let object = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": self.tenant(), "labels": labels}, "spec": spec,
        });
        apply::object(&self.stage.admin, object).await?;
        Ok(())
    }

    /// A version of a component of the same name, with one chart.
    pub async fn component_version(&self, name: &str, tag: &str) -> Result<()> {
        let chart = json!({"repository": format!("registry.test/{name}"), "tag": tag});
        let spec = json!({
            "componentRef": {"name": name}, "tag": tag, "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"},
        });
        self.make("ComponentVersion", name, json!({}), spec).await
    }

    /// A Release of a component of the same name; `spec` is laid over it, `labels` of it are the Release's.
    pub async fn release(&self, name: &str, tag: &str, spec: Value) -> Result<()> {
        self.component_version(name, tag).await?;
        self.release_of(name, name, spec).await
    }

    pub async fn release_of(&self, name: &str, version: &str, mut spec: Value) -> Result<()> {
        let labels = spec.as_object_mut().and_then(|spec| spec.remove("labels"));
        spec["componentVersionRef"] = json!({"name": version});
        self.make("Release", name, labels.unwrap_or_default(), spec).await
    }

    /// A Target that uses the stage's registry.
    pub async fn target(&self, name: &str, spec: Value) -> Result<()> {
        self.target_with(name, json!({}), spec).await
    }

    pub async fn target_with(&self, name: &str, labels: Value, mut spec: Value) -> Result<()> {
        if spec.get("renderRegistryRef").is_none() {
            spec["renderRegistryRef"] = json!({"kind": "ClusterRegistry", "name": self.tenant()});
        }
        self.make("Target", name, labels, spec).await
    }

    pub async fn change_target(&self, name: &str, spec: Value) -> Result<()> {
        let api: Api<Target> = self.api();
        let patch = Patch::Merge(json!({"spec": spec}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    pub async fn label_target(&self, name: &str, labels: Value) -> Result<()> {
        let api: Api<Target> = self.api();
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        api.patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Binds a Release to a Target; the binding is named by both.
    pub async fn bind(&self, target: &str, release: &str) -> Result<()> {
        let spec = json!({"targetRef": {"name": target}, "releaseRef": {"name": release}});
        self.make("ReleaseBinding", &format!("{target}-{release}"), json!({}), spec)
            .await
    }

    pub async fn registry(&self, name: &str, spec: Value) -> Result<()> {
        self.make("Registry", name, json!({}), spec).await
    }

    /// Lets a Target know a Registry's pull Secret.
    pub async fn bind_registry(&self, target: &str, registry: &str) -> Result<()> {
        let spec = json!({"targetRef": {"name": target}, "registryRef": {"name": registry}});
        let name = format!("{target}-{registry}");
        self.make("RegistryBinding", &name, json!({}), spec).await
    }

    pub async fn profile(&self, name: &str, release: &str, labels: Value, userdata: Value) -> Result<()> {
        let spec = json!({
            "releaseRef": {"name": release}, "targetSelector": {"matchLabels": labels}, "userdata": userdata,
        });
        self.make("Profile", name, json!({}), spec).await
    }

    pub async fn all_tasks(&self) -> Result<Vec<RenderTask>> {
        Ok(self.tasks().list(&ListParams::default()).await?.items)
    }

    /// Waits for a task whose name starts so.
    pub async fn task_named(&self, prefix: &str) -> Result<RenderTask> {
        wait_for(&format!("a task {prefix}…"), LIMIT, async || {
            let all = self.all_tasks().await?;
            Ok(all.into_iter().find(|task| task.name_any().starts_with(prefix)))
        })
        .await
    }

    /// Completes the task whose name starts so.
    pub async fn complete_next(&self, prefix: &str) -> Result<RenderTask> {
        let task = self.task_named(prefix).await?;
        self.stage.complete(&task).await?;
        Ok(task)
    }

    /// Completes a task whose name starts so and that is another than this.
    pub async fn complete_other(&self, prefix: &str, known: &RenderTask) -> Result<RenderTask> {
        let task = wait_for(&format!("another task {prefix}…"), LIMIT, async || {
            let all = self.all_tasks().await?;
            let other = |task: &RenderTask| task.name_any().starts_with(prefix) && task.uid() != known.uid();
            Ok(all.into_iter().find(other))
        })
        .await?;
        self.stage.complete(&task).await?;
        Ok(task)
    }

    /// Completes the task of a Target's version, counted from 1.
    pub async fn complete_version(&self, target: &str, count: usize) -> Result<()> {
        let versions = self.until_versions(target, count).await?;
        let prefix = format!("bootstrap-{target}-v{}-", versions[count - 1].spec.version);
        self.complete_next(&prefix).await?;
        let name = versions[count - 1].name_any();
        let api: Api<HydratedTarget> = self.api();
        wait_for("the version to be pushed", LIMIT, async || {
            let version = api.get(&name).await?;
            let pushed = version.status.and_then(|status| status.pushed_at);
            Ok(pushed.map(|_| ()))
        })
        .await
    }

    pub async fn fail(&self, task: &RenderTask) -> Result<()> {
        let message = json!({"phase": "Push", "reason": "RegistryUnavailable"}).to_string();
        let exit = Exit::new("renderer", 3, message);
        self.stage.fail(task, exit, "BackoffLimitExceeded").await?;
        Ok(())
    }

    /// The versions of a Target, the oldest first.
    pub async fn versions(&self, target: &str) -> Result<Vec<HydratedTarget>> {
        let api: Api<HydratedTarget> = self.api();
        let all = api.list(&ListParams::default()).await?.items;
        let mut own: Vec<_> = all.into_iter().filter(|v| v.spec.target_name == target).collect();
        own.sort_by_key(|version| version.spec.version);
        Ok(own)
    }

    pub async fn until_versions(&self, target: &str, count: usize) -> Result<Vec<HydratedTarget>> {
        wait_for(&format!("{count} versions of {target}"), LIMIT, async || {
            let versions = self.versions(target).await?;
            Ok((versions.len() >= count).then_some(versions))
        })
        .await
    }

    /// Waits until a condition of a Target is so; its message.
    pub async fn target_is(&self, name: &str, type_: &str, status: &str, reason: &str) -> Result<String> {
        self.target_is_within(LIMIT, name, (type_, status, reason)).await
    }

    /// The same with a limit of its own.
    pub async fn target_is_within(
        &self,
        limit: Duration,
        name: &str,
        (type_, status, reason): (&str, &str, &str),
    ) -> Result<String> {
        let api: Api<Target> = self.api();
        wait_for(&format!("{name}: {type_}={status} {reason}"), limit, async || {
            let target = api.get(name).await?;
            let generation = target.metadata.generation;
            let Some(said) = target
                .status
                .filter(|said| said.observed_generation == generation)
            else {
                return Ok(None);
            };
            let found = condition(&said.conditions, type_);
            let found = found.filter(|c| c.status == status && c.reason == reason);
            Ok(found.map(|c| c.message.clone()))
        })
        .await
    }

    pub async fn ready(&self, name: &str) -> Result<Target> {
        self.target_is(name, "Ready", "True", "Ready").await?;
        let api: Api<Target> = self.api();
        Ok(api.get(name).await?)
    }

    /// Waits until `Ready` of an object is so.
    pub async fn condition_of<K>(
        &self,
        api: &Api<K>,
        name: &str,
        conditions: impl Fn(&K) -> Option<&Vec<Condition>>,
        status: &str,
        reason: &str,
    ) -> Result<()>
    where
        K: Clone + DeserializeOwned + Debug,
    {
        wait_for(&format!("{name}: Ready={status} {reason}"), LIMIT, async || {
            let object = api.get(name).await?;
            let ready = conditions(&object).and_then(|all| condition(all, "Ready"));
            Ok(ready
                .filter(|c| c.status == status && c.reason == reason)
                .map(|_| ()))
        })
        .await
    }

    /// Resource versions of everything that the pipeline may write.
    pub async fn versions_of_objects(&self) -> Result<BTreeMap<String, String>> {
        let mut all = BTreeMap::new();
        self.versions_of::<Target>(&mut all).await?;
        self.versions_of::<Release>(&mut all).await?;
        self.versions_of::<ReleaseBinding>(&mut all).await?;
        self.versions_of::<Profile>(&mut all).await?;
        self.versions_of::<HydratedTarget>(&mut all).await?;
        self.versions_of::<ComponentVersion>(&mut all).await?;
        self.versions_of::<Component>(&mut all).await?;
        Ok(all)
    }

    async fn versions_of<K>(&self, all: &mut BTreeMap<String, String>) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + DeserializeOwned + Debug,
    {
        for object in self.api::<K>().list(&ListParams::default()).await?.items {
            let version = object.resource_version().context("it was read")?;
            all.insert(format!("{} {}", K::kind(&()), object.name_any()), version);
        }
        Ok(())
    }
}
