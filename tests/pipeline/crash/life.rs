//! A Target whose hub is killed around one write after the other, and every write that its API server had.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, ListParams};
use renderhub::api::RenderTask;
use renderhub::api::pipeline::{HydratedTarget, HydratedTargetSpec, Target};
use renderhub_harness::audit::Event;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use super::kinds::{ALL, Kind, made};
use crate::scene::Scene;
use support::proxy::{Proxy, Stop, Write};
use support::{LIMIT, Stage};

/// A Target `edge` with the Release `shop`, and its hub.
pub struct Life {
    pub scene: Scene,
    stop: Stop,
    /// The second in which the Target was made, which is the number of its first version.
    first: i64,
    proxy: Option<Proxy>,
    /// Every write that the API server had.
    arrived: Vec<Write>,
    /// The tasks of Releases that are rendered.
    rendered: BTreeSet<Option<String>>,
}

impl Life {
    /// No hub runs yet.
    pub async fn new(prefix: &str, stop: Stop) -> Result<Self> {
        let stage = Stage::without_hub(prefix, &["--pipeline=true"]).await?;
        stage.make_registry().await?;
        let scene = Scene { stage };
        scene.release("shop", "1.0.0", json!({})).await?;
        let spec = json!({"historyLimit": 1, "userdata": {"site": "north"}});
        scene.target("edge", spec).await?;
        scene.bind("edge", "shop").await?;
        let target = scene.api::<Target>().get("edge").await?;
        let made = target.metadata.creation_timestamp.context("it is there")?;
        Ok(Self {
            scene,
            stop,
            first: made.0.as_second(),
            proxy: None,
            arrived: Vec::new(),
            rendered: BTreeSet::new(),
        })
    }

    /// Lets a hub run, if none does.
    pub async fn run(&mut self) -> Result<()> {
        self.run_with(|_| ()).await
    }

    /// Lets a hub run that is stopped at the next write of this kind.
    pub async fn stop_at(&mut self, kind: &Kind) -> Result<()> {
        let (stop, is_it) = (self.stop, kind.is_it);
        self.run_with(|proxy| proxy.stop_when(stop, move |_, write| is_it(write)))
            .await
    }

    /// The proxy is set before a hub starts, so that its first write may be the one.
    async fn run_with(&mut self, set: impl FnOnce(&Proxy)) -> Result<()> {
        if let Some(proxy) = &self.proxy {
            set(proxy);
            return Ok(());
        }
        let stage = &mut self.scene.stage;
        let proxy = Proxy::start(stage.hub_user.client().await?).await?;
        set(&proxy);
        stage.hub = Some(stage.spawn_hub(&proxy.kubeconfig()?)?);
        self.proxy = Some(proxy);
        Ok(())
    }

    /// Kills the hub with SIGKILL once it is stopped at that write; one that never comes there is a failure.
    pub async fn killed(&mut self, kind: &Kind) -> Result<()> {
        let proxy = self.proxy.take().context("no hub runs")?;
        let stopped = proxy.stopped_within(LIMIT).await;
        let write = stopped.with_context(|| format!("{:?} {}", self.stop, kind.name))?;
        self.scene.stage.kill_hub();
        let mut writes = proxy.writes();
        if self.stop == Stop::Before {
            let held = writes.iter().position(|other| is_same(other, &write));
            writes.remove(held.context("what is held was sent")?);
        }
        self.arrived.extend(writes);
        if let Some((resource, name, _)) = made(&write) {
            let is_there = self.is_there(resource, name).await?;
            let is_right = is_there == (self.stop == Stop::After);
            ensure!(is_right, "{}: {name} is there: {is_there}", kind.name);
        }
        Ok(())
    }

    pub async fn kill_at(&mut self, kind: &Kind) -> Result<()> {
        self.stop_at(kind).await?;
        self.killed(kind).await
    }

    async fn is_there(&self, resource: &str, name: &str) -> Result<bool> {
        if resource == "rendertasks" {
            return Ok(self.scene.tasks().get_opt(name).await?.is_some());
        }
        let versions: Api<HydratedTarget> = self.scene.api();
        Ok(versions.get_opt(name).await?.is_some())
    }

    /// Lets the Release's chart be pushed that is not yet.
    pub async fn render_release(&mut self) -> Result<()> {
        let task = wait_for("a task of the Release", LIMIT, async || {
            let tasks = self.scene.all_tasks().await?;
            let is_new = |task: &RenderTask| {
                task.name_any().starts_with("release-shop-") && !self.rendered.contains(&task.uid())
            };
            Ok(tasks.into_iter().find(is_new))
        })
        .await?;
        self.scene.stage.complete(&task).await?;
        self.rendered.insert(task.uid());
        Ok(())
    }

    /// Lets the chart of the newest version be pushed once that has this content.
    pub async fn push_version(&self, is_it: impl Fn(&HydratedTargetSpec) -> bool) -> Result<()> {
        let number = wait_for("a version with that content", LIMIT, async || {
            let newest = self.scene.versions("edge").await?.pop();
            let newest = newest.map(|version| version.spec);
            Ok(newest.filter(&is_it).map(|spec| spec.version))
        })
        .await?;
        let prefix = format!("bootstrap-edge-v{number}-");
        self.scene.complete_next(&prefix).await?;
        Ok(())
    }

    /// Waits until the Target is ready with its version of this count, from 1.
    pub async fn ready(&self, count: i64) -> Result<()> {
        let number = self.first + count - 1;
        let api: Api<Target> = self.scene.api();
        wait_for(&format!("version {count} to be ready"), LIMIT, async || {
            let status = api.get("edge").await?.status.unwrap_or_default();
            Ok((status.bootstrap_version == Some(number)).then_some(()))
        })
        .await?;
        self.scene.ready("edge").await?;
        Ok(())
    }

    /// Ends the test: there were so many versions, none was left out or made twice, and no tag stands for two contents.
    pub async fn passed(mut self, versions: i64) -> Result<()> {
        self.scene.stage.hub().wait_ready().await?;
        let last = self.proxy.as_ref().context("a hub runs")?.writes();
        self.arrived.extend(last);
        each_is_known(&self.arrived)?;
        one_content_each(&self.arrived)?;
        let numbers: BTreeSet<i64> = versions_in(&self.arrived).into_keys().collect();
        let wanted: BTreeSet<i64> = (self.first..self.first + versions).collect();
        ensure!(numbers == wanted, "{numbers:?} are not {wanted:?}");
        self.nothing_was_made_twice().await?;
        self.scene.passed();
        Ok(())
    }

    async fn nothing_was_made_twice(&self) -> Result<()> {
        let actions = ["create rendertasks", "create hydratedtargets"];
        let mut requests = self.scene.stage.requests().await?;
        requests.retain(|e| actions.contains(&e.action().as_str()) && e.code < 300);
        let names: BTreeSet<&str> = requests.iter().map(|event: &Event| event.name.as_str()).collect();
        ensure!(!names.is_empty() && names.len() == requests.len(), "{names:?}");
        Ok(())
    }

    /// Nothing is left of the Target, nor of what was made for it.
    pub async fn is_gone(&self) -> Result<()> {
        let (targets, versions) = (self.scene.api::<Target>(), self.scene.api::<HydratedTarget>());
        let all = ListParams::default();
        wait_for("all of the Target to be gone", LIMIT, async || {
            let is_gone = targets.get_opt("edge").await?.is_none()
                && versions.list(&all).await?.items.is_empty()
                && self.scene.all_tasks().await?.is_empty()
                && self.scene.stage.jobs().list(&all).await?.items.is_empty();
            Ok(is_gone.then_some(()))
        })
        .await
    }
}

fn is_same(one: &Write, other: &Write) -> bool {
    (&one.method, &one.path, &one.body) == (&other.method, &other.path, &other.body)
}

/// Each write of what is the Target's is one around which a hub is killed.
fn each_is_known(writes: &[Write]) -> Result<()> {
    // Statuses and finalizers of tasks are written as for any task.
    let is_of_target = |write: &&Write| {
        let makes_or_deletes = write.method == "POST" || write.method == "DELETE";
        let parts = ["/targets/edge", "/hydratedtargets"];
        // What a status of the Target says depends on what is there when a hub looks; a kill is tried around each that matters.
        !write.path.ends_with("/targets/edge/status")
            && (parts.iter().any(|part| write.path.contains(part))
                || (write.path.contains("/rendertasks") && makes_or_deletes))
    };
    for write in writes.iter().filter(is_of_target) {
        let is_known = ALL.iter().any(|kind| (kind.is_it)(write));
        ensure!(is_known, "no hub is killed around {write:?}");
    }
    Ok(())
}

/// The specs of versions by their number.
fn versions_in(writes: &[Write]) -> BTreeMap<i64, &Value> {
    let versions = writes.iter().filter_map(made);
    let versions = versions.filter(|(resource, ..)| *resource == "hydratedtargets");
    versions
        .filter_map(|(_, _, spec)| Some((spec["version"].as_i64()?, spec)))
        .collect()
}

/// A tag is of one version with one content and of tasks with one content, and both contents are the same.
fn one_content_each(writes: &[Write]) -> Result<()> {
    let mut contents = BTreeMap::new();
    for (resource, _, spec) in writes.iter().filter_map(made) {
        let chart = match resource {
            "hydratedtargets" => format!("{}:v0.0.{}", spec["registry"]["repository"], spec["version"]),
            "rendertasks" => format!("{}:{}", spec["repository"], spec["tag"]),
            _ => continue,
        };
        let known = contents.entry((resource, chart.clone())).or_insert(spec);
        ensure!(*known == spec, "{chart} is {known} and {spec}");
    }
    let versions = versions_in(writes);
    for (resource, _, spec) in writes.iter().filter_map(made) {
        let input = &spec["config"]["bootstrap"]["input"];
        if resource != "rendertasks" || input.is_null() {
            continue;
        }
        let number = spec["tag"].as_str().and_then(|tag| tag.strip_prefix("v0.0."));
        let number: i64 = number.context("a tag of a version")?.parse()?;
        let version = versions.get(&number).context("a version is written first")?;
        let is_of_it = input["userdata"] == version["userdata"]
            && charts(&input["releases"], "tag") == charts(&version["releases"], "version");
        ensure!(is_of_it, "version {number} is {version}, and its chart {input}");
    }
    Ok(())
}

/// The charts that a version or its chart names.
fn charts<'v>(releases: &'v Value, tag: &str) -> Vec<(&'v String, &'v Value, &'v Value)> {
    let releases = releases.as_object().into_iter().flatten();
    let chart = |(name, release): (&'v String, &'v Value)| (name, &release["repository"], &release[tag]);
    releases.map(chart).collect()
}
