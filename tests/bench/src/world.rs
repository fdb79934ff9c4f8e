//! The ground of a run: a control plane with the chart's CRDs and policies, namespaces, users, and the processes on it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{ApiResource, DeleteParams, ListParams, PostParams};
use kube::core::{PartialObjectMeta, Request};
use kube::{Api, Client, Resource};
use renderhub::api::labels::{FINALIZER, HUB_ID, TARGET_FINALIZER};
use renderhub::api::names::{HubId, TaskKind};
use renderhub::api::pipeline::Target;
use renderhub::api::{ClusterRegistry, RenderTask};
use renderhub::kubernetes::object::{SlimObject, task_resource};
use renderhub::plan::task::model::Task;
use renderhub_harness::hub::AS_INSTALLED;
use renderhub_harness::process::Process;
use renderhub_harness::progress::Progress;
use renderhub_harness::{AuditLevel, ControlPlane, Hub, Identity, Rights, rundir, wait_for};
use serde_json::{Value, json};

use crate::options::Options;
use crate::pipeline::FleetWrites;
use crate::wire::{self, IN_FLIGHT};
use crate::{bare, objects, rights};

/// Longest that the API server may take for something small.
const LIMIT: Duration = Duration::from_secs(60);

/// Everything a measurement needs.
pub struct World {
    /// The control plane.
    pub plane: ControlPlane,
    /// A client that may do everything.
    pub admin: Client,
    /// The hub's user.
    pub hub_user: Identity,
    /// The bare writer's user.
    pub bare_user: Identity,
    /// Tasks in a burst.
    pub burst_tasks: usize,
    /// Finished tasks that a hub finds when it starts.
    pub restart_tasks: usize,
    /// Namespace of Jobs and config Secrets.
    pub rendering: String,
    /// Hub id on the objects.
    pub hub_id: String,
    finisher_user: Identity,
    namespaces: Vec<String>,
    bare_in_flight: usize,
}

impl World {
    /// A world, with or without the chart's `MutatingAdmissionPolicy`.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start(options: &Options, with_policy: bool) -> Result<Self> {
        Self::start_with(options, with_policy, rights::hub).await
    }

    /// The same with other rights of the hub, by its rendering namespace.
    ///
    /// # Errors
    /// If it does not start.
    pub async fn start_with(
        options: &Options,
        with_policy: bool,
        rights: impl AsyncFnOnce(&str) -> Result<Rights>,
    ) -> Result<Self> {
        ensure!(
            options
                .tasks
                .min(options.namespaces)
                .min(options.rounds)
                .min(options.bare_in_flight)
                > 0,
            "tasks, namespaces, rounds and requests in flight must be at least 1"
        );
        let plane = ControlPlane::builder()
            .with_audit(AuditLevel::Metadata)
            .without_job_controller()
            .start()
            .await?;
        apply_chart(&plane, with_policy).await?;
        let mut namespaces = Vec::new();
        for _ in 0..options.namespaces {
            namespaces.push(plane.namespace("team").await?);
        }
        let rendering = plane.rendering_namespace("rendering").await?;
        let rights = rights(&rendering).await?;
        let world = Self {
            admin: plane.admin().client().await?,
            hub_user: plane.user_with_rights("hub", &rights).await?,
            bare_user: plane.user_with_rights("bare", &rights::bare(rights)).await?,
            finisher_user: plane.user_with_rules("finisher", rights::finisher()).await?,
            burst_tasks: options.tasks,
            restart_tasks: options.restart_tasks,
            bare_in_flight: options.bare_in_flight,
            rendering,
            hub_id: hub_id(&plane).await?,
            namespaces,
            plane,
        };
        world.make_platform().await?;
        world.until_policy_is(with_policy).await?;
        Ok(world)
    }

    async fn make_platform(&self) -> Result<()> {
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": objects::RENDERER_ACCOUNT}}))?;
        let secret: Secret = serde_json::from_value(json!({
            "metadata": {"name": objects::PUSH_SECRET},
            "type": "kubernetes.io/basic-auth",
            "stringData": {"username": "bench", "password": rundir::random_hex(8)?},
        }))?;
        let registry: ClusterRegistry = serde_json::from_value(json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry",
            "metadata": {"name": objects::REGISTRY}, "spec": objects::registry(),
        }))?;
        let post = PostParams::default();
        Api::namespaced(self.admin.clone(), &self.rendering)
            .create(&post, &account)
            .await?;
        Api::namespaced(self.admin.clone(), &self.rendering)
            .create(&post, &secret)
            .await?;
        Api::all(self.admin.clone()).create(&post, &registry).await?;
        Ok(())
    }

    /// Waits until the API server sets the finalizers, or until it is known that it does not.
    async fn until_policy_is(&self, present: bool) -> Result<()> {
        let task = objects::task(&self.namespaces[0], "probe");
        let target = objects::target(&self.namespaces[0], "probe");
        let targets = Request::new(Target::url_path(&(), Some(&self.namespaces[0])));
        wait_for("the admission policies", LIMIT, async || {
            Ok(
                (self.is_guarded(&self.tasks_in(0), &task, FINALIZER).await? == present
                    && self.is_guarded(&targets, &target, TARGET_FINALIZER).await? == present)
                    .then_some(()),
            )
        })
        .await
    }

    /// Whether the API server gives such an object the finalizer.
    async fn is_guarded(&self, path: &Request, object: &Value, finalizer: &str) -> Result<bool> {
        let dry_run = PostParams {
            dry_run: true,
            field_manager: None,
        };
        let request = path.create(&dry_run, serde_json::to_vec(object)?)?;
        let made: Value = self.admin.request(request).await?;
        let finalizers = made["metadata"]["finalizers"].as_array();
        Ok(finalizers.is_some_and(|all| all.contains(&json!(finalizer))))
    }

    /// The namespaces of tasks, which are assigned in rotation.
    pub fn namespaces(&self) -> &[String] {
        &self.namespaces
    }

    /// The id of another hub of this cluster.
    ///
    /// # Errors
    /// If there can be no such hub.
    pub fn hub_id_of(&self, shard: &str) -> Result<String> {
        let (_, cluster) = self.hub_id.rsplit_once('-').context("no hub id")?;
        Ok(HubId::new(shard, cluster)?.to_string())
    }

    // === tasks ===

    /// Creates the task with this number, in the next namespace.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn create_task(&self, number: usize) -> Result<Task> {
        self.create_task_with(number, &json!({})).await
    }

    /// The same with these fields of its spec.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn create_task_with(&self, number: usize, spec: &Value) -> Result<Task> {
        let turn = number % self.namespaces.len();
        let mut task = objects::task(&self.namespaces[turn], &format!("task-{number}"));
        for (field, value) in spec.as_object().into_iter().flatten() {
            task["spec"][field] = value.clone();
        }
        let request = self
            .tasks_in(turn)
            .create(&PostParams::default(), serde_json::to_vec(&task)?)?;
        let made: SlimObject = self.admin.request(request).await?;
        made.into_task(TaskKind::RenderTask, None)
            .context("a task without a UID")
    }

    /// Creates this task in the namespace of this number.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn create_whole_task(&self, namespace: usize, task: &RenderTask) -> Result<()> {
        let body = serde_json::to_vec(task)?;
        let request = self.tasks_in(namespace).create(&PostParams::default(), body);
        wire::send(&self.admin, request).await
    }

    /// Creates tasks as fast as the API server takes them.
    ///
    /// # Errors
    /// If it refuses one.
    pub async fn create_tasks(&self, count: usize) -> Result<Vec<Task>> {
        let _progress = Progress::start(format!("creating {count} tasks"));
        futures::stream::iter(0..count)
            .map(|number| self.create_task(number))
            .buffer_unordered(IN_FLIGHT)
            .try_collect()
            .await
    }

    /// Removes all tasks, without a hub.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn remove_tasks(&self, tasks: &[Task]) -> Result<()> {
        let _progress = Progress::start(format!("removing {} tasks", tasks.len()));
        let body = kube::api::Patch::Merge(json!({"metadata": {"finalizers": null}}));
        futures::stream::iter(tasks.iter().map(Ok))
            .try_for_each_concurrent(IN_FLIGHT, |task| {
                let request = bare::tasks(task).patch(&task.id.name, &bare::manager(), &body);
                wire::send(&self.admin, request)
            })
            .await?;
        for request in self.delete_requests(&DeleteParams::default()) {
            wire::send(&self.admin, request).await?;
        }
        let all: Api<SlimObject> = Api::all_with(self.admin.clone(), &Self::resource());
        wait_for("the tasks to be gone", LIMIT, async || {
            let left = all.list_metadata(&ListParams::default().limit(1)).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await
    }

    /// Requests that delete all tasks.
    pub fn delete_requests(&self, how: &DeleteParams) -> Vec<wire::Request> {
        let of = |turn| self.tasks_in(turn).delete_collection(how, &ListParams::default());
        (0..self.namespaces.len()).map(of).collect()
    }

    /// Tasks as a resource.
    pub fn resource() -> ApiResource {
        task_resource(TaskKind::RenderTask)
    }

    fn tasks_in(&self, turn: usize) -> Request {
        let path = SlimObject::url_path(&Self::resource(), Some(&self.namespaces[turn]));
        Request::new(path)
    }

    /// Whether no hub has left anything of its tasks.
    ///
    /// # Errors
    /// If the API server does not say.
    pub async fn is_cleared(&self) -> Result<bool> {
        let one = ListParams::default().labels(HUB_ID).limit(1);
        let jobs: Api<Job> = Api::namespaced(self.admin.clone(), &self.rendering);
        let secrets: Api<Secret> = Api::namespaced(self.admin.clone(), &self.rendering);
        Ok(jobs.list_metadata(&one).await?.items.is_empty()
            && secrets.list_metadata(&one).await?.items.is_empty())
    }

    // === processes ===

    /// Starts a hub.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_hub(&self) -> Result<Hub> {
        self.spawn_hub_with(&[])
    }

    /// The same with more flags.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_hub_with(&self, more: &[String]) -> Result<Hub> {
        let mut flags = objects::hub_flags(&self.rendering);
        flags.extend_from_slice(more);
        Self::spawn_hub_as(&self.hub_user, &flags)
    }

    /// Starts a hub as this user, with these flags and no others.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_hub_as(user: &Identity, flags: &[String]) -> Result<Hub> {
        let binary = std::env::current_exe()?.with_file_name("renderhub");
        ensure!(
            binary.is_file(),
            "the hub is not built: run `make bench`, or cargo build --release --bin renderhub"
        );
        Hub::spawn_with(&binary, &user.kubeconfig()?, flags, AS_INSTALLED)
    }

    /// Starts the Job finisher.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_finisher(&self) -> Result<Process> {
        self.spawn_finisher_of(&self.hub_id)
    }

    /// Starts one that only watches the Jobs, which a bare writer completes itself.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_watching_finisher(&self) -> Result<Process> {
        let only = "--only-watches".to_owned();
        self.spawn_part("finisher", &self.finisher_user, &self.hub_id, &[only])
    }

    /// Starts one with which each Job takes as long.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_finisher_after(&self, job: Duration) -> Result<Process> {
        let lasts = format!("--job-millis={}", job.as_millis());
        self.spawn_part("finisher", &self.finisher_user, &self.hub_id, &[lasts])
    }

    /// Starts the Job finisher of these hubs, ids separated by commas.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_finisher_of(&self, hub_ids: &str) -> Result<Process> {
        self.spawn_part("finisher", &self.finisher_user, hub_ids, &[])
    }

    /// Starts a process that does nothing.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_idle() -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        Process::spawn("idle", command.arg("idle"), &rundir::fresh("idle")?.join("log"))
    }

    /// Starts the bare writer.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_bare(&self) -> Result<Process> {
        let in_flight = format!("--in-flight={}", self.bare_in_flight);
        self.spawn_part("bare", &self.bare_user, &self.hub_id, &[in_flight])
    }

    /// Starts the bare writer of a fleet.
    ///
    /// # Errors
    /// If it does not start.
    pub fn spawn_bare_fleet(&self, writes: FleetWrites) -> Result<Process> {
        let flags = [
            format!("--in-flight={}", self.bare_in_flight),
            format!("--target-statuses={}", writes.target_statuses),
            format!("--release-statuses={}", writes.release_statuses),
            format!(
                "--component-version-statuses={}",
                writes.component_version_statuses
            ),
            format!("--profile-statuses={}", writes.profile_statuses),
            format!("--target-patches={}", writes.target_patches),
            format!("--events={}", writes.events),
        ];
        self.spawn_part("bare-fleet", &self.bare_user, &self.hub_id, &flags)
    }

    fn spawn_part(&self, part: &str, user: &Identity, hub_ids: &str, flags: &[String]) -> Result<Process> {
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([part, "--hub-id", hub_ids, "--rendering-namespace"])
            .arg(&self.rendering)
            .args(flags)
            .env("KUBECONFIG", user.kubeconfig()?);
        Process::spawn(part, &command, &rundir::fresh(part)?.join("log"))
    }

    /// Process id of kube-apiserver, by its command line.
    ///
    /// # Errors
    /// If it does not run.
    pub fn apiserver_pid(&self) -> Result<u32> {
        let is_apiserver = |pid: &u32| {
            std::fs::read(format!("/proc/{pid}/comm")).is_ok_and(|name| name.starts_with(b"kube-apiserver"))
        };
        self.plane
            .pids()
            .into_iter()
            .find(is_apiserver)
            .context("kube-apiserver does not run")
    }
}

/// The bindings of the mutating policies, as of a release that serves all namespaces.
const MUTATING_EVERYWHERE: &str = "\
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-finalizer}
spec: {policyName: renderhub-finalizer}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-target-finalizer}
spec: {policyName: renderhub-target-finalizer}
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: renderhub-unmanaged-versions}
spec: {policyName: renderhub-unmanaged-versions}
";

async fn apply_chart(plane: &ControlPlane, with_policy: bool) -> Result<()> {
    let files = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../charts/renderhub/files");
    let crds: std::io::Result<Vec<PathBuf>> = std::fs::read_dir(files.join("crds"))?
        .map(|entry| Ok(entry?.path()))
        .collect();
    for file in crds? {
        plane.apply_file(&file).await?;
    }
    plane.apply_file(&files.join("policies/validating.yaml")).await?;
    if with_policy {
        plane.apply_file(&files.join("policies/mutating.yaml")).await?;
        plane.apply_yaml(MUTATING_EVERYWHERE).await?;
    }
    Ok(())
}

async fn hub_id(plane: &ControlPlane) -> Result<String> {
    let api: Api<PartialObjectMeta<Namespace>> = Api::all(plane.admin().client().await?);
    let cluster = api.get_metadata("kube-system").await?;
    let uid = cluster
        .metadata
        .uid
        .context("the namespace kube-system has no UID")?;
    Ok(HubId::new(objects::SHARD, &uid)?.to_string())
}
