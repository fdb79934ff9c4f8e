//! Charts that no version names any more are deleted from a registry that says so, by digest, and nothing waits for it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams};
use renderhub::api::RenderTask;
use renderhub::api::basic_auth::BasicCredential;
use renderhub::api::pipeline::{HydratedTarget, HydratedTargetStatus, PruneFailure, PruneProgress, Target};
use renderhub::kubernetes::seal_key;
use renderhub::plan::pipeline::sealed_status::sealed;
use renderhub::plan::task::status_seal::{KEY_BYTES, SealKey};
use renderhub::renderer::auth::{Authenticator, TokenScope};
use renderhub::renderer::deleter::RegistryDeleter;
use renderhub::renderer::error::PushError;
use renderhub::renderer::manifest::Artifact;
use renderhub::renderer::origin::Origin;
use renderhub::renderer::registry::RegistryClient;
use renderhub::renderer::tls;
use renderhub::renderer::transport::{Transport, TransportLimits};
use renderhub_harness::{Registry, RegistryOptions, apply, wait_for};
use serde_json::{Value, json};

use crate::scene::Scene;
use support::away::LOOPBACK;
use support::registry::{Hostile, Reply, artifact, say};
use support::tenant::BUILDER;
use support::{DIGEST, LIMIT};

/// A chart that was pushed for a task.
pub struct Pushed {
    pub repository: String,
    pub tag: String,
    pub artifact: Artifact,
}

/// What a registry has under a tag.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    TheChart,
    Another,
    Nothing,
}

/// A real registry, and the client of a renderer.
pub struct Store(Registry);

impl Store {
    async fn start(options: RegistryOptions) -> Result<Self> {
        Ok(Self(Registry::start(options).await?))
    }

    fn auth(&self, repository: &str, access: TokenScope) -> Result<Authenticator> {
        Ok(Authenticator {
            origin: Origin::of_registry(&self.0.host().parse()?, self.0.ca_pem().is_err()),
            repository: repository.parse()?,
            credential: Some(BasicCredential {
                username: self.0.username().to_owned(),
                password: self.0.password().to_owned().into(),
            }),
            token_realm: None,
            access,
        })
    }

    fn transport(&self) -> Result<Transport> {
        let ca = self.0.ca_pem().ok();
        let config = ca.map_or_else(tls::no_tls, |ca| tls::client_config_of(&[ca]))?;
        Ok(Transport::new(config, TransportLimits::default()))
    }

    fn client(&self, repository: &str) -> Result<RegistryClient> {
        Ok(RegistryClient::new(
            self.transport()?,
            self.auth(repository, TokenScope::Push)?,
        ))
    }

    pub async fn found(&self, pushed: &Pushed) -> Result<Found> {
        let mut client = self.client(&pushed.repository)?;
        match client.holds(&pushed.tag.parse()?, &pushed.artifact).await {
            Ok(true) => Ok(Found::TheChart),
            Ok(false) => Ok(Found::Nothing),
            Err(PushError::TagConflict) => Ok(Found::Another),
            Err(error) => Err(error.into()),
        }
    }

    /// Deletes a chart, as a registry does that keeps nothing for long.
    pub async fn lose(&self, pushed: &Pushed) -> Result<()> {
        let auth = self.auth(&pushed.repository, TokenScope::Delete)?;
        let mut deleter = RegistryDeleter::new(self.transport()?, auth);
        deleter.delete(&pushed.artifact.manifest.digest).await?;
        Ok(())
    }

    /// Puts something else under the tag of a chart.
    async fn replace(&self, pushed: &Pushed) -> Result<()> {
        let mut client = self.client(&pushed.repository)?;
        let (tag, other) = (pushed.tag.parse()?, artifact("another chart"));
        // A client that has seen the tag does not look at it again.
        let seen = client.holds(&tag, &other).await;
        assert_eq!(seen, Err(PushError::TagConflict));
        client.upload(&tag, &other).await?;
        Ok(())
    }
}

impl Scene {
    /// Changes how far a version is, with the seal of the hub's key.
    async fn rewrite_prune(&self, all: &Api<HydratedTarget>, name: &str, progress: Value) -> Result<()> {
        let secret = self.stage.secrets().get(seal_key::NAME).await?;
        let bytes = secret
            .data
            .context("the key")?
            .remove("key")
            .context("the key")?
            .0;
        let key = <[u8; KEY_BYTES]>::try_from(bytes).ok().context("its length")?;
        let key = SealKey::new(key, Timestamp::UNIX_EPOCH);
        let version = all.get(name).await?;
        let mut status = serde_json::to_value(version.status.clone().context("a status")?)?;
        for (field, value) in progress.as_object().context("fields")? {
            status["prune"][field] = value.clone();
        }
        let status: HydratedTargetStatus = serde_json::from_value(status)?;
        let status = sealed(&key, &version.uid().context("a UID")?, &status);
        let change = json!([{"op": "add", "path": "/status", "value": status}]);
        let patch = Patch::Json::<()>(serde_json::from_value(change)?);
        all.patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Lets the tenant's account read the tenant's Registries, and the Secret `own-push` with this login.
    pub async fn make_own_login(&mut self, username: &str, password: &str) -> Result<()> {
        self.stage.let_hub_be(&[BUILDER]).await?;
        let (stage, tenant) = (&self.stage, self.tenant());
        stage.make_account(tenant, BUILDER).await?;
        let readable = ["secrets", "registries"];
        stage.let_read(tenant, tenant, BUILDER, &readable).await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
            "metadata": {"name": "own-push", "namespace": tenant},
            "stringData": {"username": username, "password": password},
        });
        apply::object(&stage.admin, secret).await?;
        Ok(())
    }

    /// A scene whose registry is a real one that prunes, with a certificate of its own authority.
    pub async fn with_store(prefix: &str) -> Result<(Self, Store)> {
        let scene = Self::new(prefix).await?;
        let store = Store::start(RegistryOptions::new().with_tls()).await?;
        let certificates = json!({
            "apiVersion": "v1", "kind": "ConfigMap",
            "metadata": {"name": "registry-ca", "namespace": scene.stage.scope.rendering},
            "data": {"trust-bundle.pem": store.0.ca_pem()?},
        });
        apply::object(&scene.stage.admin, certificates).await?;
        let login = json!({"username": store.0.username(), "password": store.0.password()});
        let patch = Patch::Merge(json!({"stringData": login}));
        let secrets = scene.stage.secrets();
        secrets.patch("push", &PatchParams::default(), &patch).await?;
        let spec = json!({"prune": true, "plainHTTP": false, "caConfigMapRef": {"name": "registry-ca"}});
        scene.stage.use_registry_at(&store.0.host(), spec).await?;
        Ok((scene, store))
    }

    /// Pushes a chart for the next task whose name starts so and whose tag is none of these, and ends the task.
    pub async fn push_next(&self, store: &Store, prefix: &str, known: &[&Pushed]) -> Result<Pushed> {
        let task = wait_for(&format!("a task {prefix}…"), LIMIT, async || {
            let all = self.all_tasks().await?;
            let is_new = |task: &RenderTask| {
                let is_known = known.iter().any(|pushed| pushed.tag == task.spec.tag);
                task.name_any().starts_with(prefix) && !is_known
            };
            Ok(all.into_iter().find(is_new))
        })
        .await?;
        let content = format!("{} {}", task.spec.repository, task.spec.tag);
        self.push_for(store, &task, &content).await
    }

    /// Pushes a chart with this content for a task, and ends the task.
    pub async fn push_for(&self, store: &Store, task: &RenderTask, content: &str) -> Result<Pushed> {
        let pushed = Pushed {
            repository: task.spec.repository.clone(),
            tag: task.spec.tag.clone(),
            artifact: artifact(content),
        };
        let mut client = store.client(&pushed.repository)?;
        client.push(&pushed.tag.parse()?, &pushed.artifact).await?;
        let digest = pushed.artifact.manifest.digest.as_str();
        self.stage.complete_with(task, digest).await?;
        Ok(pushed)
    }

    async fn delete_target(&self, name: &str) -> Result<()> {
        let targets: Api<Target> = self.api();
        targets.delete(name, &DeleteParams::default()).await?;
        wait_for(&format!("the Target {name} to be gone"), LIMIT, async || {
            Ok(targets.get_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    async fn until_gone(&self, version: &HydratedTarget) -> Result<()> {
        let (api, name) = (self.api::<HydratedTarget>(), version.name_any());
        wait_for(&format!("the version {name} to be gone"), LIMIT, async || {
            Ok(api.get_opt(&name).await?.is_none().then_some(()))
        })
        .await
    }

    /// Waits until an attempt at the charts of a version failed.
    async fn failed_prune(&self, version: &str) -> Result<PruneProgress> {
        let api: Api<HydratedTarget> = self.api();
        wait_for(&format!("an attempt at {version} to fail"), LIMIT, async || {
            let progress = api.get(version).await?.status.and_then(|status| status.prune);
            Ok(progress.filter(|progress| progress.failure.is_some()))
        })
        .await
    }

    /// A Target without Releases that is pushed, by its only version.
    async fn bare_target(&self, name: &str, spec: Value) -> Result<HydratedTarget> {
        let mut whole = json!({"allowEmpty": true});
        for (key, value) in spec.as_object().context("no object")? {
            whole[key] = value.clone();
        }
        self.target(name, whole).await?;
        self.complete_version(name, 1).await?;
        Ok(self.versions(name).await?.remove(0))
    }
}

/// Holds: F12.
#[tokio::test]
async fn a_tag_that_no_version_names_is_deleted_and_one_that_another_names_or_that_changed_is_not()
-> Result<()> {
    let (scene, store) = Scene::with_store("pruned").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.release("blog", "1.0.0", json!({})).await?;
    scene.target("edge", json!({"historyLimit": 1})).await?;
    scene.bind("edge", "shop").await?;
    scene.bind("edge", "blog").await?;
    let blog = scene.push_next(&store, "release-blog-", &[]).await?;
    let shop_1 = scene.push_next(&store, "release-shop-", &[]).await?;
    let edge_1 = scene.push_next(&store, "bootstrap-edge-v", &[]).await?;
    let first = scene.until_versions("edge", 1).await?.remove(0);
    scene.ready("edge").await?;
    scene.component_version("shop", "1.1.0").await?;
    let shop_2 = scene.push_next(&store, "release-shop-", &[&shop_1]).await?;
    let edge_2 = scene.push_next(&store, "bootstrap-edge-v", &[&edge_1]).await?;
    scene.component_version("shop", "1.2.0").await?;
    let shop_3 = scene
        .push_next(&store, "release-shop-", &[&shop_1, &shop_2])
        .await?;
    let edge_3 = scene
        .push_next(&store, "bootstrap-edge-v", &[&edge_1, &edge_2])
        .await?;
    scene.until_gone(&first).await?;
    for (pushed, expected) in [
        (&edge_1, Found::Nothing),
        (&shop_1, Found::Nothing),
        (&blog, Found::TheChart),
        (&edge_2, Found::TheChart),
        (&shop_2, Found::TheChart),
        (&edge_3, Found::TheChart),
        (&shop_3, Found::TheChart),
    ] {
        assert_eq!(
            store.found(pushed).await?,
            expected,
            "{} {}",
            pushed.repository,
            pushed.tag
        );
    }
    // Another client put something else under a tag of the next version that goes.
    store.replace(&shop_2).await?;
    let second = scene.versions("edge").await?.remove(0);
    scene.component_version("shop", "1.3.0").await?;
    scene
        .push_next(&store, "release-shop-", &[&shop_1, &shop_2, &shop_3])
        .await?;
    scene
        .push_next(&store, "bootstrap-edge-v", &[&edge_1, &edge_2, &edge_3])
        .await?;
    scene.until_gone(&second).await?;
    assert_eq!(store.found(&shop_2).await?, Found::Another);
    assert_eq!(store.found(&edge_2).await?, Found::Nothing);
    assert_eq!(store.found(&blog).await?, Found::TheChart);
    let metrics = scene.stage.hub().metrics().await?;
    for line in ["result=\"Deleted\"} 3", "result=\"Changed\"} 1"] {
        assert!(
            metrics.contains(&format!("renderhub_prunes_total{{{line}")),
            "{line}"
        );
    }
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn with_a_target_its_charts_go_and_those_that_it_shares_with_the_last_one() -> Result<()> {
    let (scene, store) = Scene::with_store("shared").await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    for target in ["near", "far"] {
        scene.target(target, json!({})).await?;
        scene.bind(target, "shop").await?;
    }
    let shop = scene.push_next(&store, "release-shop-", &[]).await?;
    let near = scene.push_next(&store, "bootstrap-near-v", &[]).await?;
    let far = scene.push_next(&store, "bootstrap-far-v", &[]).await?;
    scene.ready("near").await?;
    scene.ready("far").await?;
    let versions = [
        scene.versions("near").await?.remove(0),
        scene.versions("far").await?.remove(0),
    ];
    scene.delete_target("near").await?;
    scene.until_gone(&versions[0]).await?;
    assert_eq!(store.found(&near).await?, Found::Nothing);
    assert_eq!(
        store.found(&shop).await?,
        Found::TheChart,
        "the other Target has it"
    );
    scene.delete_target("far").await?;
    scene.until_gone(&versions[1]).await?;
    for pushed in [&far, &shop] {
        assert_eq!(
            store.found(pushed).await?,
            Found::Nothing,
            "{}",
            pushed.repository
        );
    }
    // The same Release is rendered and pushed again where a Target wants it again.
    scene.target("near", json!({})).await?;
    scene.push_next(&store, "release-shop-", &[]).await?;
    scene.push_next(&store, "bootstrap-near-v", &[]).await?;
    scene.ready("near").await?;
    assert_eq!(store.found(&shop).await?, Found::TheChart);
    scene.passed();
    Ok(())
}

/// Holds: F12.
#[tokio::test]
async fn a_chart_that_is_being_deleted_is_rendered_again_only_once_that_has_ended() -> Result<()> {
    let scene = Scene::new("meanwhile").await?;
    let registry = Hostile::start(|seen, _| {
        Some(match seen.method() {
            "DELETE" => Reply::Hang,
            _ => say(200, &[("Docker-Content-Digest", DIGEST.to_owned())]),
        })
    })
    .await;
    let host = registry.address.to_string();
    scene.stage.use_registry_at(&host, json!({"prune": true})).await?;
    scene.release("shop", "1.0.0", json!({})).await?;
    scene.target("near", json!({})).await?;
    scene.bind("near", "shop").await?;
    let first = scene.complete_next("release-shop-").await?;
    scene.complete_version("near", 1).await?;
    let version = scene.versions("near").await?.remove(0).name_any();
    scene.delete_target("near").await?;
    wait_for("the deletion to begin", LIMIT, async || {
        Ok(registry
            .seen()
            .iter()
            .any(|seen| seen.method() == "DELETE")
            .then_some(()))
    })
    .await?;
    scene.target("far", json!({})).await?;
    scene.bind("far", "shop").await?;
    scene
        .target_is("far", "ReleasesRendered", "False", "Pending")
        .await?;
    let is_made = scene
        .all_tasks()
        .await?
        .iter()
        .any(|task| task.name_any().starts_with("release-shop-"));
    let api: Api<HydratedTarget> = scene.api();
    let progress = api.get(&version).await?.status.and_then(|status| status.prune);
    let has_ended = progress.is_none_or(|progress| progress.failure.is_some());
    assert!(
        has_ended || !is_made,
        "its task would find the chart there, and lose it then"
    );
    let again = scene.complete_next("release-shop-").await?;
    assert_eq!(again.spec.tag, first.spec.tag);
    scene.passed();
    Ok(())
}

/// Holds: F14.
#[tokio::test]
async fn a_registry_that_refuses_or_says_nothing_holds_no_deletion_and_is_given_up() -> Result<()> {
    let mut scene = Scene::new("refuses").await?;
    let answer = Arc::new(AtomicU16::new(405));
    let said = Arc::clone(&answer);
    let registry = Hostile::start(move |seen, _| {
        Some(match (seen.method(), said.load(Ordering::Relaxed)) {
            ("DELETE", 0) => Reply::Hang,
            ("DELETE", 302) => say(302, &[("Location", "http://127.0.0.1:9/".to_owned())]),
            ("DELETE", status) => say(status, &[]),
            _ => say(200, &[("Docker-Content-Digest", DIGEST.to_owned())]),
        })
    })
    .await;
    let host = registry.address.to_string();
    scene.stage.use_registry_at(&host, json!({"prune": true})).await?;
    for (status, failure) in [
        (400, PruneFailure::Refused),
        (401, PruneFailure::Refused),
        (403, PruneFailure::Refused),
        (405, PruneFailure::Refused),
        (503, PruneFailure::Unreachable),
        (302, PruneFailure::BadAnswer),
        (0, PruneFailure::Unreachable),
    ] {
        let name = format!("edge-{status}");
        let version = scene.bare_target(&name, json!({})).await?.name_any();
        answer.store(status, Ordering::Relaxed);
        scene.delete_target(&name).await?;
        let progress = scene.failed_prune(&version).await?;
        assert_eq!(
            (progress.failure, progress.attempts),
            (Some(failure), 1),
            "{status}"
        );
        assert!(progress.next_attempt > Some(progress.since), "{status}");
    }
    // A hub that starts anew finds the clocks where they were: one is due for its last attempt, one in an hour.
    answer.store(405, Ordering::Relaxed);
    scene.stage.kill_hub();
    let all: Api<HydratedTarget> = scene.api();
    let kept = all.list(&ListParams::default()).await?.items;
    let of = |target: &str| {
        let mut found = kept.iter().filter(|version| version.spec.target_name == target);
        found
            .next()
            .map(ResourceExt::name_any)
            .context("its record is gone")
    };
    let (due, waiting) = (of("edge-405")?, of("edge-403")?);
    let in_an_hour = Timestamp::now() + SignedDuration::from_hours(1);
    for (name, progress) in [
        (&due, json!({"attempts": 9, "nextAttempt": null})),
        (&waiting, json!({"attempts": 9, "nextAttempt": Time(in_an_hour)})),
    ] {
        scene.rewrite_prune(&all, name, progress).await?;
    }
    scene.stage.start_hub().await?;
    wait_for("the charts to be given up", LIMIT, async || {
        Ok(all.get_opt(&due).await?.is_none().then_some(()))
    })
    .await?;
    let progress = all.get(&waiting).await?.status.and_then(|status| status.prune);
    assert_eq!(progress.map(|progress| progress.attempts), Some(9));
    let events: Api<Event> = scene.api();
    let note = wait_for("the event", LIMIT, async || {
        let events = events.list(&ListParams::default()).await?.items;
        let found = events
            .into_iter()
            .find(|event| event.reason.as_deref() == Some("PruneGivenUp"));
        Ok(found.and_then(|event| event.note))
    })
    .await?;
    assert!(
        note.contains("does not let the credential delete manifests"),
        "{note}"
    );
    assert_eq!(
        all.list(&ListParams::default()).await?.items.len(),
        kept.len() - 1
    );
    scene.passed();
    Ok(())
}

/// Holds: F11.
#[tokio::test]
async fn a_tenants_registry_is_pruned_as_the_targets_account_and_with_the_tenants_password() -> Result<()> {
    let (mut scene, store) = (
        Scene::with_flags("own", &[LOOPBACK]).await?,
        Store::start(RegistryOptions::new()).await?,
    );
    scene
        .make_own_login(store.0.username(), store.0.password())
        .await?;
    let registry = json!({
        "hostname": store.0.host(), "plainHTTP": true, "prune": true, "pushSecretRef": {"name": "own-push"},
        "repositoryPrefix": "tenants/{namespace}/",
    });
    scene.registry("own", registry).await?;
    let target = json!({
        "renderRegistryRef": {"name": "own"}, "serviceAccountName": BUILDER, "allowEmpty": true,
    });
    scene.target("edge", target).await?;
    let pushed = scene.push_next(&store, "bootstrap-edge-v", &[]).await?;
    assert_eq!(
        pushed.repository,
        format!("tenants/{}/bootstrap-edge", scene.tenant())
    );
    scene.ready("edge").await?;
    let version = scene.versions("edge").await?.remove(0);
    scene.delete_target("edge").await?;
    scene.until_gone(&version).await?;
    assert_eq!(store.found(&pushed).await?, Found::Nothing);
    scene.stage.hub_read_nothing_itself(scene.tenant()).await?;
    scene.passed();
    Ok(())
}

/// Holds: F13.
#[tokio::test]
async fn the_hub_does_not_connect_to_a_tenants_registry_at_an_address_that_is_its_own() -> Result<()> {
    let mut scene = Scene::new("guarded").await?;
    let registry =
        Hostile::start(|_, _| Some(say(200, &[("Docker-Content-Digest", DIGEST.to_owned())]))).await;
    scene.stage.let_hub_be(&[BUILDER]).await?;
    let tenant = scene.tenant().to_owned();
    scene.stage.make_account(&tenant, BUILDER).await?;
    scene
        .stage
        .let_read(&tenant, &tenant, BUILDER, &["registries", "secrets"])
        .await?;
    scene.stage.make_own_secret(&tenant, "own-push").await?;
    let (port, mut names) = (registry.address.port(), Vec::new());
    for (name, host) in [("address", "127.0.0.1"), ("name", "localhost")] {
        let spec = json!({"hostname": format!("{host}:{port}"), "plainHTTP": true, "prune": true, "pushSecretRef": {"name": "own-push"}});
        scene.registry(name, spec).await?;
        let target = json!({"renderRegistryRef": {"name": name}, "serviceAccountName": BUILDER});
        let version = scene.bare_target(name, target).await?.name_any();
        scene.delete_target(name).await?;
        names.push(version);
    }
    let failures = [
        scene.failed_prune(&names[0]).await?.failure,
        scene.failed_prune(&names[1]).await?.failure,
    ];
    assert_eq!(
        failures,
        [Some(PruneFailure::NotGranted), Some(PruneFailure::Failed)]
    );
    assert!(registry.seen().is_empty() && registry.connections() == 0);
    scene.passed();
    Ok(())
}
