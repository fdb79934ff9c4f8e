//! What test programs share: one control plane a program, one stage a test.
//!
//! The control plane runs without the Job controller; a test ends Jobs and pods itself, as it needs them to end.

#![allow(
    clippy::missing_errors_doc,
    clippy::missing_panics_doc,
    clippy::must_use_candidate,
    reason = "only tests call it, and each error and each panic is the end of a test"
)]

pub mod api;
pub mod away;
pub mod careless;
pub mod claim;
pub mod forge;
pub mod instances;
pub mod own;
pub mod plane;
pub mod programs;
pub mod proxy;
pub mod record;
pub mod registry;
pub mod rights;
pub mod scan;
mod tasks;
pub mod tenant;
pub mod uids;

use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::conditions::ConditionType;
use renderhub::api::labels::TASK_UID;
use renderhub::api::names::{TaskUid, job_name};
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub_harness::canary::Hit;
use renderhub_harness::diagnose::Watch;
use renderhub_harness::{ControlPlane, Hub, Identity, Rights, Scope};
use serde_json::{Value, json};

use plane::plane;
pub use scan::CANARY;
pub use tasks::shop_task;

/// Longest wait for anything that normally takes moments: far below the minutes after which the hub would reconcile a waiting
/// task anyway, and more than a machine with several clusters on two cores takes.
pub const LIMIT: Duration = Duration::from_secs(120);
/// A digest as the renderer would report it.
pub const DIGEST: &str = "sha256:0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// One test's part of the control plane: two namespaces, a registry, a hub.
pub struct Stage {
    /// The control plane it is on.
    pub plane: &'static ControlPlane,
    /// Its namespaces and the name of its shard.
    pub scope: Scope,
    /// A client of the administrator.
    pub admin: Client,
    /// Its hub while one runs.
    pub hub: Option<Hub>,
    /// The user that its hub is.
    pub hub_user: Identity,
    /// What the chart gives a hub with the stage's flags, and so the hub's user.
    pub rights: Rights,
    watch: Option<Watch>,
    flags: Vec<String>,
    may_be_refused: AtomicBool,
    /// Whether its end is checked for secrets and refusals, which happens by itself.
    is_checked: bool,
    has_passed: bool,
    /// Namespaces that the hub serves besides the tenant's.
    others: Vec<String>,
    /// The log of every hub that was started.
    logs: Vec<PathBuf>,
}

impl Stage {
    /// A stage whose hub runs and is ready, with a usable registry named like the tenant's namespace.
    pub async fn new(prefix: &str) -> Result<Self> {
        Self::with_flags(prefix, &[]).await
    }

    /// The same with more flags for the hub.
    pub async fn with_flags(prefix: &str, flags: &[&str]) -> Result<Self> {
        let mut stage = Self::without_hub(prefix, flags).await?;
        stage.make_registry().await?;
        stage.start_hub().await?;
        Ok(stage)
    }

    /// A stage on the binary's control plane without hub and registry.
    pub async fn without_hub(prefix: &str, flags: &[&str]) -> Result<Self> {
        Self::on(plane().await?, prefix, flags).await
    }

    /// A stage on this control plane without hub and registry.
    pub async fn on(plane: &'static ControlPlane, prefix: &str, flags: &[&str]) -> Result<Self> {
        let scope = plane.scope(prefix).await?;
        let admin = plane.admin().client().await?;
        let flags: Vec<String> = flags.iter().map(ToString::to_string).collect();
        let rights = Rights::of_chart(&rights::chart_values(&scope, &flags, &[])).await?;
        let hub_user = plane
            .user_with_rights(&format!("hub-{}", scope.shard), &rights)
            .await?;
        let watch = Watch::new(plane, &[&scope.tenant, &scope.rendering]);
        let account: ServiceAccount =
            serde_json::from_value(json!({"metadata": {"name": "renderhub-renderer"}}))?;
        let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), &scope.rendering);
        accounts.create(&PostParams::default(), &account).await?;
        let stage = Self {
            plane,
            scope,
            admin,
            hub: None,
            hub_user,
            rights,
            watch: Some(watch),
            flags,
            may_be_refused: AtomicBool::new(false),
            is_checked: true,
            has_passed: false,
            others: Vec::new(),
            logs: Vec::new(),
        };
        // As if a hub had been here before: what its first start costs and does has tests of its own.
        stage.make_seal_key().await?;
        Ok(stage)
    }

    /// Starts the hub and waits until it is ready.
    pub async fn start_hub(&mut self) -> Result<()> {
        let hub = self.spawn_hub(&self.hub_user.kubeconfig()?)?;
        hub.wait_ready().await?;
        self.hub = Some(hub);
        Ok(())
    }

    /// Starts a hub of this stage with a kubeconfig; its log is part of what a failure shows.
    pub fn spawn_hub(&mut self, kubeconfig: &Path) -> Result<Hub> {
        self.spawn_hub_with(kubeconfig, &[])
    }

    /// The same with variables in its environment.
    pub fn spawn_hub_with(&mut self, kubeconfig: &Path, env: &[(&str, &str)]) -> Result<Hub> {
        let mut flags = vec![
            format!("--rendering-namespace={}", self.scope.rendering),
            format!("--shard-name={}", self.scope.shard),
        ];
        if !self.flags.iter().any(|flag| flag == EVERYWHERE) {
            let watched = std::iter::once(&self.scope.tenant).chain(&self.others);
            let watched: Vec<_> = watched.map(String::as_str).collect();
            flags.push(format!("--watch-namespaces={}", watched.join(",")));
        }
        if !self.flags.iter().any(|flag| flag.starts_with(OWN_HOSTS)) {
            flags.push(format!("{OWN_HOSTS}=*"));
        }
        flags.extend(self.flags.iter().filter(|flag| *flag != EVERYWHERE).cloned());
        let hub = Hub::spawn_with(programs::hub(), kubeconfig, &flags, env)?;
        self.watch = self.watch.take().map(|watch| watch.with_hub(&hub));
        self.logs.push(hub.log_path().to_owned());
        Ok(hub)
    }

    /// Lets a hub that starts later serve another namespace too.
    pub async fn also_watch(&mut self, namespace: &str) -> Result<()> {
        self.others.push(namespace.to_owned());
        self.give_rights(&[]).await
    }

    /// The lines of the hub's log with this message.
    pub fn log_lines(&self, message: &str) -> Vec<Value> {
        let log = self.hub().log();
        let lines = log
            .lines()
            .filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["message"] == message).collect()
    }

    /// Kills the hub as a crash would.
    pub fn kill_hub(&mut self) {
        if let Some(hub) = self.hub.take() {
            hub.kill9();
        }
    }

    /// Kills the hub and starts it anew.
    pub async fn restart_hub(&mut self) -> Result<()> {
        self.kill_hub();
        self.start_hub().await
    }

    /// The running hub.
    pub fn hub(&self) -> &Hub {
        self.hub.as_ref().expect("the hub was started")
    }

    /// Ends the test, which has passed if the checks of every stage find nothing; nothing is printed then.
    pub fn passed(mut self) {
        self.has_passed = true;
    }

    /// This test plants secrets and sees to them itself.
    pub fn plants_leaks(&mut self) {
        self.is_checked = false;
    }

    /// No secret shows, and the hub asked for nothing that the chart does not allow.
    fn check(&self) {
        self.was_refused_nothing();
        // A test's runtime may be busy with servers of the test, so another one looks.
        let looked = std::thread::scope(|scope| scope.spawn(|| scan_now(self)).join());
        let hits = looked
            .expect("the look itself is sound")
            .expect("what is looked at can be read");
        assert!(hits.is_empty(), "a secret shows: {}", scan::described(&hits));
    }
}

impl Drop for Stage {
    /// Checks a stage whose test did not fail by a panic.
    ///
    /// # Panics
    /// If a secret shows somewhere, if that cannot be checked, or if the hub was refused something.
    fn drop(&mut self) {
        if self.is_checked && !std::thread::panicking() {
            if !self.has_passed {
                eprintln!(
                    "the test does not say that it passed: it may have returned an error of its own besides what follows"
                );
            }
            self.check();
        }
        if let Some(watch) = self.watch.take().filter(|_| self.has_passed) {
            watch.passed();
        }
    }
}

fn scan_now(stage: &Stage) -> Result<Vec<Hit>> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(stage.hits())
}

/// Whether a status has a condition with this status and reason.
pub fn has(status: &RenderTaskStatus, type_: ConditionType, value: &str, reason: &str) -> bool {
    let found = status.conditions.iter().find(|c| c.type_ == type_.as_str());
    found.is_some_and(|c| c.status == value && c.reason == reason)
}

/// The message of a task's condition; empty where it has none.
pub fn message_of(status: &RenderTaskStatus, type_: ConditionType) -> &str {
    let found = status.conditions.iter().find(|c| c.type_ == type_.as_str());
    found.map_or("", |c| c.message.as_str())
}

/// Flag of a stage only: its hub serves every namespace and the platform's own tasks.
pub const EVERYWHERE: &str = "everywhere";

/// Flag with the hosts that tenants may name; a stage lists all of them unless it is given.
pub const OWN_HOSTS: &str = "--own-registry-hosts";

/// Selects the Job, the config Secret and the pods of a task.
pub fn of_task(task: &RenderTask) -> ListParams {
    ListParams::default().labels(&format!("{TASK_UID}={}", task.uid().unwrap_or_default()))
}

/// Name of the Job and the config Secret of a task.
pub fn job_name_of(task: &RenderTask) -> String {
    job_name(&task.name_any(), &TaskUid::new(&task.uid().unwrap_or_default()))
}
