//! A fleet: Targets that each get every Release of their namespace, by Profiles.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use futures::{StreamExt, TryStreamExt};
use kube::api::{Api, ListParams, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::conditions::{ConditionType, is_true};
use renderhub::api::labels::GROUP;
use renderhub::api::pipeline::{Component, ComponentVersion, HydratedTarget, Profile, Release, Target};
use renderhub_harness::audit::Event;
use renderhub_harness::progress::Progress;
use renderhub_harness::wait_for;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::audit::Requests;
use crate::measure::number;
use crate::objects;
use crate::wire::IN_FLIGHT;
use crate::world::World;

/// Longest until a fleet is ready.
const LIMIT: Duration = Duration::from_secs(900);
/// Between two lists, which cost the API server as much as a few hundred writes.
const PAUSE: Duration = Duration::from_millis(500);
/// Name of the Target that gets no Release.
const WITHOUT: &str = "without";
/// How long a hub is watched for writes that it should not make.
pub const WATCHED: Duration = Duration::from_secs(5);

/// Targets that each get every Release of their namespace, by Profiles.
pub struct Fleet<'w> {
    /// Where they are.
    pub world: &'w World,
    /// Targets in all namespaces together.
    pub targets: usize,
    /// Releases of each namespace.
    pub releases: usize,
}

/// What one Release that changes costs.
pub struct OneChanged {
    /// Requests for each Target that has it.
    pub requests: f64,
    /// Requests about Targets that do not have it, and about what is theirs.
    pub others: usize,
}

/// All objects of a kind.
///
/// # Errors
/// If the API server does not say.
pub async fn all<K>(client: &Client) -> Result<Vec<K>>
where
    K: kube::Resource<DynamicType = ()> + Clone + DeserializeOwned + std::fmt::Debug,
{
    Ok(Api::<K>::all(client.clone())
        .list(&ListParams::default())
        .await?
        .items)
}

/// Waits until the garbage collector watches renderhub's kinds, which it looks for twice a minute: otherwise it lists all objects of a
/// fleet, and gets all their owners, in the middle of a run.
///
/// # Errors
/// If it takes too long.
pub async fn until_garbage_is_collected(world: &World) -> Result<()> {
    let _progress = Progress::start("the garbage collector learns of the kinds".to_owned());
    let (namespace, name) = (&world.namespaces()[0], "garbage");
    let mut garbage = object(
        "Component",
        namespace,
        name,
        &json!({"scheme": "https", "registry": "registry.test", "repository": "charts"}),
    );
    garbage["metadata"]["ownerReferences"] = json!([
        {"apiVersion": "renderhub.dev/v1alpha1", "kind": "Component", "name": "gone", "uid": "gone"},
    ]);
    let api: Api<Component> = Api::namespaced(world.admin.clone(), namespace);
    api.create(&PostParams::default(), &serde_json::from_value(garbage)?)
        .await?;
    wait_for("garbage to be collected", LIMIT, async || {
        tokio::time::sleep(PAUSE).await;
        Ok(api.get_metadata_opt(name).await?.is_none().then_some(()))
    })
    .await
}

impl Fleet<'_> {
    /// Makes everything that a tenant makes of it.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn make(&self) -> Result<()> {
        let _progress = Progress::start(format!("making {} Targets", self.targets));
        let mut made = Vec::new();
        for namespace in self.world.namespaces() {
            for number in 0..self.releases {
                made.extend(release(namespace, number));
            }
        }
        let namespaces = self.world.namespaces();
        made.extend((0..self.targets).map(|number| {
            objects::target(
                &namespaces[number % namespaces.len()],
                &format!("target-{number}"),
            )
        }));
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

    /// Waits until the newest version of each Target is pushed, and nothing of its tasks is left.
    ///
    /// # Errors
    /// If it takes too long.
    pub async fn until_ready(&self) -> Result<()> {
        let _progress = Progress::start("the fleet gets ready".to_owned());
        let mut late = all::<Target>(&self.world.admin).await?;
        ensure!(late.len() == self.targets, "some Targets are gone");
        late.retain(|target| !is_ready(target));
        // One by one: a list of all costs the API server as much as a few hundred of the hub's writes.
        for target in late {
            let api: Api<Target> =
                Api::namespaced(self.world.admin.clone(), &target.namespace().unwrap_or_default());
            wait_for("the Target to be ready", LIMIT, async || {
                let is_done = is_ready(&api.get(&target.name_any()).await?);
                tokio::time::sleep(if is_done { Duration::ZERO } else { PAUSE }).await;
                Ok(is_done.then_some(()))
            })
            .await?;
        }
        wait_for("the tasks to leave nothing", LIMIT, async || {
            tokio::time::sleep(PAUSE).await;
            Ok(self.world.is_cleared().await?.then_some(()))
        })
        .await
    }

    /// One Release of the first namespace changes: requests for each Target that has it, and those about others.
    ///
    /// # Errors
    /// If it takes too long.
    pub async fn change_one(&self) -> Result<OneChanged> {
        let namespace = &self.world.namespaces()[0];
        self.make_target_without(namespace).await?;
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
        let requests = Requests::since(audit, begin, &self.world.hub_user).await?;
        let elsewhere = &self.world.namespaces()[1..];
        let is_of_others = |event: &Event| {
            let is_there = elsewhere.contains(&event.namespace) || event.name == WITHOUT;
            event.user == self.world.hub_user.name() && event.group == GROUP && is_there
        };
        let events = audit.since(begin).await?;
        Ok(OneChanged {
            requests: number(requests.of_tasks()) / number(own),
            others: events.iter().filter(|event| is_of_others(event)).count(),
        })
    }

    /// Makes a Target beside those of a namespace that no Profile matches, and waits until the hub has said so.
    async fn make_target_without(&self, namespace: &str) -> Result<()> {
        let mut target = objects::target(namespace, WITHOUT);
        target["metadata"]["labels"] = json!({"ring": "none"});
        self.create(target).await?;
        let api: Api<Target> = Api::namespaced(self.world.admin.clone(), namespace);
        wait_for(
            "the hub to look at a Target without Releases",
            LIMIT,
            async || {
                let status = api.get(WITHOUT).await?.status.unwrap_or_default();
                tokio::time::sleep(PAUSE).await;
                Ok((!status.conditions.is_empty()).then_some(()))
            },
        )
        .await
    }
}

/// Whether the newest version of a Target is pushed.
fn is_ready(target: &Target) -> bool {
    let status = target.status.as_ref();
    status.is_some_and(|status| is_true(&status.conditions, ConditionType::BootstrapReady))
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
