//! What the pipeline costs: a fleet from nothing, the same tasks made by hand, one Release that changes, and a restart.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use clap::Args;
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::RenderTask;
use renderhub::api::conditions::{ConditionType, is_true};
use renderhub::api::pipeline::{ComponentVersion, HydratedTarget, Profile, Release, Target};
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, wait_for};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::audit::Requests;
use crate::measure::{load, memory, number};
use crate::options::{Options, beside_program};
use crate::wire::IN_FLIGHT;
use crate::world::World;
use crate::{objects, rights};

/// Longest until a fleet is ready.
const LIMIT: Duration = Duration::from_secs(900);
/// Between two lists, which cost the API server as much as a few hundred writes.
const PAUSE: Duration = Duration::from_millis(500);
/// How long a hub is watched for writes that it should not make.
const WATCHED: Duration = Duration::from_secs(5);

/// How much of it is measured.
#[derive(Clone, Debug, Args)]
pub struct PipelineOptions {
    /// Measures the pipeline and nothing else; no other run does.
    #[arg(long, conflicts_with_all = ["only_remote", "only_instances", "only_names"])]
    pub only_pipeline: bool,
    /// Targets in all namespaces together.
    #[arg(long, default_value_t = 1000)]
    pipeline_targets: usize,
    /// Releases of each namespace, each with a Profile that matches every Target of it.
    #[arg(long, default_value_t = 20)]
    pipeline_releases: usize,
    /// File that the figures are written to as JSON [default: bench/pipeline.json in cargo's target directory].
    #[arg(long)]
    pipeline_output: Option<PathBuf>,
}

/// Tasks that ended, how long that took from a ready hub, and what the hub asked for meanwhile.
struct Made {
    tasks: usize,
    seconds: f64,
    /// Requests of the hub, those on events and Leases apart.
    requests: usize,
}

impl Made {
    fn rate(&self) -> f64 {
        number(self.tasks) / self.seconds
    }
}

struct FleetFigures {
    made: Made,
    /// Requests for each Target that has a Release, when that changes.
    one_release_changed: f64,
    /// Targets without it that were written to.
    others_written: usize,
    /// Writes of a hub that starts with the fleet.
    idle_writes: usize,
    hub_rss_mib: f64,
    hub_rss_mib_after_restart: f64,
}

struct Figures {
    targets: usize,
    load_before: Option<f64>,
    by_hand: Made,
    fleet: FleetFigures,
}

impl Figures {
    fn report(&self) -> Value {
        let Self { by_hand, fleet, .. } = self;
        json!({
            "targets": self.targets,
            "load_before": self.load_before,
            "tasks_for_fleet": fleet.made.tasks,
            "fleet_seconds": fleet.made.seconds,
            "fleet_requests": fleet.made.requests,
            "by_hand_tasks": by_hand.tasks,
            "by_hand_seconds": by_hand.seconds,
            "by_hand_requests": by_hand.requests,
            "fleet_over_by_hand": fleet.made.rate() / by_hand.rate(),
            "one_release_changed": fleet.one_release_changed,
            "others_written": fleet.others_written,
            "idle_writes": fleet.idle_writes,
            "hub_rss_mib": fleet.hub_rss_mib,
            "hub_rss_mib_after_restart": fleet.hub_rss_mib_after_restart,
        })
    }
}

/// Measures the pipeline, prints the figures and writes them as JSON.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options) -> Result<()> {
    let figures = Figures {
        targets: options.pipeline.pipeline_targets,
        load_before: load(),
        by_hand: by_hand(options).await?,
        fleet: fleet(options).await?,
    };
    let text = serde_json::to_string_pretty(&figures.report())?;
    println!("{text}");
    write(&options.pipeline, &text)
}

/// A fleet from nothing, one Release of it that changes, and a restart of the hub.
async fn fleet(options: &Options) -> Result<FleetFigures> {
    let wanted = &options.pipeline;
    let world = world(options).await?;
    let _finisher = world.spawn_finisher()?;
    let fleet = Fleet {
        world: &world,
        targets: wanted.pipeline_targets,
        releases: wanted.pipeline_releases,
    };
    fleet.make().await?;
    let audit = world.plane.audit()?;
    let begin = audit.mark().await?;
    let hub = ready_hub(&world).await?;
    let started = Instant::now();
    fleet.until_ready().await?;
    let seconds = started.elapsed().as_secs_f64();
    let requests = requests(&Requests::since(audit, begin, &world.hub_user).await?);
    let tasks = all::<RenderTask>(&world.admin).await?.len();
    let hub_rss_mib = memory(hub.pid())?.now_mib;
    let (one_release_changed, others_written) = fleet.change_one().await?;
    drop(hub);
    let begin = audit.mark().await?;
    let hub = ready_hub(&world).await?;
    tokio::time::sleep(WATCHED).await;
    Ok(FleetFigures {
        made: Made {
            tasks,
            seconds,
            requests,
        },
        one_release_changed,
        others_written,
        idle_writes: Requests::since(audit, begin, &world.hub_user).await?.all_writes,
        hub_rss_mib,
        hub_rss_mib_after_restart: memory(hub.pid())?.now_mib,
    })
}

async fn world(options: &Options) -> Result<World> {
    let world = World::start(options, true).await?;
    let rights = rights::hub_with_pipeline(&world.rendering).await?;
    world.plane.set_rights(&world.hub_user, &rights).await?;
    Ok(world)
}

async fn ready_hub(world: &World) -> Result<Hub> {
    let hub = world.spawn_hub_with(&["--pipeline=true".to_owned()])?;
    hub.wait_ready().await?;
    Ok(hub)
}

/// As many tasks as the fleet has, made before the hub starts.
async fn by_hand(options: &Options) -> Result<Made> {
    let wanted = &options.pipeline;
    let tasks = wanted.pipeline_targets + wanted.pipeline_releases * options.namespaces;
    let world = world(options).await?;
    let _finisher = world.spawn_finisher()?;
    world.create_tasks(tasks).await?;
    let audit = world.plane.audit()?;
    let begin = audit.mark().await?;
    let hub = ready_hub(&world).await?;
    let started = Instant::now();
    let ended = format!("renderhub_tasks{{phase=\"succeeded\"}} {tasks}");
    wait_for("the tasks to end", LIMIT, async || {
        let text = hub.metrics().await?;
        Ok(text.lines().any(|line| line == ended).then_some(()))
    })
    .await?;
    let seconds = started.elapsed().as_secs_f64();
    let requests = requests(&Requests::since(audit, begin, &world.hub_user).await?);
    Ok(Made {
        tasks,
        seconds,
        requests,
    })
}

/// Requests but those on events and Leases.
fn requests(all: &Requests) -> usize {
    let counted = all
        .counts
        .iter()
        .filter(|(action, _)| !action.contains("events") && !action.contains("leases"));
    counted.map(|(_, count)| count).sum()
}

async fn all<K>(client: &Client) -> Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(Api::<K>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .items)
}

/// Targets that each get every Release of their namespace, by Profiles.
struct Fleet<'w> {
    world: &'w World,
    targets: usize,
    releases: usize,
}

impl Fleet<'_> {
    async fn make(&self) -> Result<()> {
        let _progress = Progress::start(format!("making {} Targets", self.targets));
        let mut made = Vec::new();
        for namespace in self.world.namespaces() {
            for number in 0..self.releases {
                made.extend(release(namespace, number));
            }
        }
        let namespaces = self.world.namespaces();
        made.extend((0..self.targets).map(|number| target(&namespaces[number % namespaces.len()], number)));
        futures::stream::iter(made)
            .map(|object| self.create(object))
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<Vec<()>>()
            .await?;
        Ok(())
    }

    async fn create(&self, object: Value) -> Result<()> {
        let namespace = object["metadata"]["namespace"]
            .as_str()
            .context("no namespace")?
            .to_owned();
        let admin = || self.world.admin.clone();
        macro_rules! create {
            ($kind:ident) => {{
                let api: Api<$kind> = Api::namespaced(admin(), &namespace);
                api.create(
                    &PostParams::default(),
                    &serde_json::from_value(object.clone())?,
                )
                .await?;
            }};
        }
        match object["kind"].as_str() {
            Some("ComponentVersion") => create!(ComponentVersion),
            Some("Release") => create!(Release),
            Some("Profile") => create!(Profile),
            _ => create!(Target),
        }
        Ok(())
    }

    /// Waits until the newest version of each Target is pushed.
    async fn until_ready(&self) -> Result<()> {
        let _progress = Progress::start("the fleet gets ready".to_owned());
        wait_for("the fleet to be ready", LIMIT, async || {
            tokio::time::sleep(PAUSE).await;
            let targets = all::<Target>(&self.world.admin).await?;
            let is_ready = |target: &&Target| {
                let status = target.status.as_ref();
                status.is_some_and(|status| is_true(&status.conditions, ConditionType::BootstrapReady))
            };
            Ok((targets.iter().filter(is_ready).count() == self.targets).then_some(()))
        })
        .await
    }

    /// One Release of the first namespace changes: requests for each Target that has it, and Targets of others that were written.
    async fn change_one(&self) -> Result<(f64, usize)> {
        let namespace = &self.world.namespaces()[0];
        let before = self.versions_elsewhere(namespace).await?;
        let audit = self.world.plane.audit()?;
        let begin = audit.mark().await?;
        let api: Api<Release> = Api::namespaced(self.world.admin.clone(), namespace);
        let patch = Patch::Merge(json!({"spec": {"values": {"replicas": 7}}}));
        api.patch("release-0", &PatchParams::default(), &patch).await?;
        let own = self.targets / self.world.namespaces().len();
        let hydrated: Api<HydratedTarget> = Api::namespaced(self.world.admin.clone(), namespace);
        wait_for("the change to be rolled out", LIMIT, async || {
            let versions = hydrated.list(&ListParams::default()).await?.items;
            let pushed = versions
                .iter()
                .filter_map(|v| v.status.as_ref()?.pushed_at.as_ref())
                .count();
            tokio::time::sleep(PAUSE).await;
            Ok((pushed >= 2 * own).then_some(()))
        })
        .await?;
        tokio::time::sleep(WATCHED).await;
        let requests = requests(&Requests::since(audit, begin, &self.world.hub_user).await?);
        let after = self.versions_elsewhere(namespace).await?;
        let written = before
            .iter()
            .filter(|(name, version)| after.get(*name) != Some(version))
            .count();
        Ok((number(requests) / number(own), written))
    }

    async fn versions_elsewhere(&self, namespace: &str) -> Result<BTreeMap<String, Option<String>>> {
        let targets = all::<Target>(&self.world.admin).await?;
        let elsewhere = targets
            .iter()
            .filter(|target| target.namespace().as_deref() != Some(namespace));
        Ok(elsewhere
            .map(|target| (target.name_any(), target.resource_version()))
            .collect())
    }
}

fn object(kind: &str, namespace: &str, name: &str, spec: &Value) -> Value {
    json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": kind,
        "metadata": {"name": name, "namespace": namespace, "labels": {"ring": "one"}}, "spec": spec,
    })
}

fn release(namespace: &str, number: usize) -> [Value; 3] {
    let name = format!("release-{number}");
    let chart = json!({"repository": format!("registry.test/charts/{name}"), "tag": "1.0.0"});
    let version = json!({
        "componentRef": {"name": name}, "tag": "1.0.0", "resources": {"chart": chart},
        "entrypoint": {"resourceName": "chart", "type": "helm"},
    });
    let release = json!({
        "componentVersionRef": {"name": name},
        "values": {"replicas": 3, "ingress": {"enabled": true, "host": "shop.example.test"}},
    });
    let profile = json!({"releaseRef": {"name": name}, "targetSelector": {"matchLabels": {"ring": "one"}}});
    [
        object("ComponentVersion", namespace, &name, &version),
        object("Release", namespace, &name, &release),
        object("Profile", namespace, &name, &profile),
    ]
}

fn target(namespace: &str, number: usize) -> Value {
    let registry = json!({"kind": "ClusterRegistry", "name": objects::REGISTRY});
    let spec = json!({"renderRegistryRef": registry, "userdata": {"site": format!("site-{number}")}});
    object("Target", namespace, &format!("target-{number}"), &spec)
}

fn write(options: &PipelineOptions, figures: &str) -> Result<()> {
    let path = options
        .pipeline_output
        .clone()
        .map_or_else(|| beside_program("pipeline.json"), Ok)?;
    std::fs::create_dir_all(path.parent().context("no directory")?)?;
    Ok(std::fs::write(path, figures)?)
}
