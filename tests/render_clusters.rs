//! The platform's clusters and those of tenants: which kubeconfig leads where, what becomes of it when its Secret changes, and
//! what is said of it. The loops run in the test itself, between a control plane that is the hub and another one.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "render_clusters/tenants.rs"]
mod tenants;
#[path = "render_clusters/world.rs"]
mod world;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::RenderCluster;
use renderhub::api::conditions::Reason;
use renderhub::cluster::Want;
use renderhub::kubeconfig::MAX_BYTES;
use renderhub::plan::site::SiteState;
use renderhub_harness::wait_for;
use serde_json::json;
use world::{FIXED_LIMIT, LIMIT, World, insecure, kubeconfig_of};

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_is_followed_wherever_its_secret_goes() -> Result<()> {
    let world = World::new().await?;
    let (west, user) = (world.name("west"), world.user("west").await?);
    world.put_cluster(&west, &west, json!({"qps": 50})).await?;
    let found = world.told(&west, "False", "KubeconfigNotFound").await?;
    assert!(
        found.message.contains("docs/reasons/KubeconfigNotFound.md"),
        "{}",
        found.message
    );

    // It comes later.
    world.put_secret(&west, "value", &kubeconfig_of(&user)?).await?;
    world.told(&west, "True", "Connected").await?;
    let status = world.status(&west).await?;
    assert!(status.version.is_some_and(|version| version.starts_with("1.")));
    assert!(status.last_probe_time.is_some() && status.observed_generation == Some(1));
    assert_eq!((status.active_jobs, status.connection_attempts), (Some(0), None));
    let shown = world.shown(&west);
    assert!(
        shown.contains("renderhub_cluster_connected") && shown.contains("last_probe"),
        "{shown}"
    );

    // What is only said of it changes nothing.
    let before = world.connections_of(&west);
    let reads = world.reads_of(&west).await?;
    let label = json!({"metadata": {"labels": {"tier": "gold"}, "annotations": {"seen": "yes"}}});
    world.patch_secret(&west, label).await?;
    wait_for("the Secret to be read again", LIMIT, async || {
        Ok((world.reads_of(&west).await? > reads).then_some(()))
    })
    .await?;
    world.barrier().await?;
    assert_eq!(world.connections_of(&west), before);

    // Another user's credential is in use soon.
    let other = world.user("other").await?;
    let mark = world.remote.audit()?.mark().await?;
    world.put_secret(&west, "value", &kubeconfig_of(&other)?).await?;
    wait_for("the new credential to be in use", FIXED_LIMIT, async || {
        let seen = world
            .remote
            .audit()?
            .between(mark, world.remote.audit()?.mark().await?)?;
        Ok(seen.iter().any(|event| event.user == other.name()).then_some(()))
    })
    .await?;

    // The key goes, and comes back under the other name.
    world.put_secret(&west, "something", "else").await?;
    world.told_soon(&west, "False", "KubeconfigNotFound").await?;
    assert_eq!(world.registry().bound(), 0);
    world
        .put_secret(&west, "value.yaml", &kubeconfig_of(&user)?)
        .await?;
    world.told(&west, "True", "Connected").await?;

    // The Secret goes, and another one comes.
    world.delete_secret(&west).await?;
    world.told_soon(&west, "False", "KubeconfigNotFound").await?;
    assert_eq!(world.registry().bound(), 0);
    world.put_secret(&west, "value", &kubeconfig_of(&user)?).await?;
    world.told(&west, "True", "Connected").await?;

    // The cluster goes, and nothing of it stays.
    world.delete_cluster(&west).await?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().bound() == 0 && world.shown(&west).is_empty()).then_some(()))
    })
    .await?;
    world.passed().await
}

/// Holds: K1, K3, K4, K7, K9.
#[tokio::test(flavor = "multi_thread")]
async fn each_kubeconfig_that_is_refused_says_why() -> Result<()> {
    let world = World::new().await?;
    let good = kubeconfig_of(&world.user("good").await?)?;
    let own = kubeconfig_of(world.hub.admin())?;
    let huge = "#".repeat(1024 * 1024 - 1024);
    let large = format!("{good}\n{}", "#".repeat(MAX_BYTES));
    let table = [
        ("exec", insecure(&good, "exec")?, "InsecureKubeconfig"),
        ("file", insecure(&good, "file")?, "InsecureKubeconfig"),
        ("skip", insecure(&good, "skip")?, "InsecureKubeconfig"),
        ("http", good.replace("https://", "http://"), "InsecureKubeconfig"),
        ("no-ca", insecure(&good, "no-ca")?, "BadKubeconfig"),
        ("garbage", "{[".to_owned(), "BadKubeconfig"),
        ("alias", format!("a: &a 1\nb: *a\n{good}"), "BadKubeconfig"),
        ("large", large, "KubeconfigTooLarge"),
        ("huge", huge, "KubeconfigTooLarge"),
        ("itself", own, "SelfTarget"),
    ];
    for (name, kubeconfig, _) in &table {
        let name = world.name(name);
        world.put_secret(&name, "value", kubeconfig).await?;
        world.put_cluster(&name, &name, json!({})).await?;
    }
    for (name, kubeconfig, reason) in &table {
        let told = world.told(&world.name(name), "False", reason).await?;
        assert!(
            told.message.contains(&format!("docs/reasons/{reason}.md")),
            "{}",
            told.message
        );
        let is_own_words = !told.message.contains("BEGIN") && !told.message.contains(&kubeconfig[..2]);
        assert!(is_own_words || name == &"garbage", "{}", told.message);
    }
    // Only one of them led to a connection, and that is mended like all others.
    assert_eq!(world.registry().bound(), 1);
    let mended = world.name("exec");
    world.put_secret(&mended, "value", &good).await?;
    world.told(&mended, "True", "Connected").await?;
    world.passed().await
}

/// Holds: K9.
#[tokio::test(flavor = "multi_thread")]
async fn a_huge_secret_is_read_again_and_again_and_leaves_nothing() -> Result<()> {
    const SPARE: u64 = 2 * 1024;
    let world = World::new().await?;
    let [small, huge] = ["small", "huge"].map(|name| world.name(name));
    world.put_secret(&small, "value", "{[").await?;
    world
        .put_secret(&huge, "value", &"#".repeat(1024 * 1024 - 1024))
        .await?;
    world.put_cluster(&small, &small, json!({})).await?;
    world.told(&small, "False", "BadKubeconfig").await?;
    world.put_cluster(&huge, &huge, json!({})).await?;
    world.told(&huge, "False", "KubeconfigTooLarge").await?;
    // What the allocator keeps of the first readings, for each thread, serves those that follow.
    let mut used = Vec::new();
    for n in 0..60 {
        let reads = world.reads();
        let label = json!({"metadata": {"labels": {"turn": n.to_string()}}});
        world.patch_secret(&huge, label).await?;
        wait_for("the Secret to be read again", LIMIT, async || {
            Ok((world.reads() > reads).then_some(()))
        })
        .await?;
        used.push(world::resident()?);
    }
    let (before, after) = (used[29], used[59]);
    assert!(after <= before + SPARE, "{used:?} KiB");
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn clusters_of_one_kubeconfig_have_one_connection() -> Result<()> {
    let world = World::new().await?;
    let (west, east) = (world.name("a-west"), world.name("b-east"));
    world
        .put_secret("shared", "value", &kubeconfig_of(&world.user("shared").await?)?)
        .await?;
    // The default key, and the same key by its name.
    let by_name = json!({"kubeConfig": {"secretRef": {"name": "shared", "key": "value"}}});
    for (name, more) in [(&west, json!({})), (&east, by_name)] {
        world.put_cluster(name, "shared", more).await?;
        world.told(name, "True", "Connected").await?;
    }
    assert_eq!(world.registry().bound(), 1);
    world.delete_cluster(&east).await?;
    world.barrier().await?;
    assert_eq!(world.registry().bound(), 1);
    let (attempts, _) = world.connections_of(&west);
    assert_eq!(attempts, 1, "it was connected to once");
    world.told(&west, "True", "Connected").await?;
    world.delete_cluster(&west).await?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().bound() == 0).then_some(()))
    })
    .await?;
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn tasks_of_a_cluster_that_is_gone_are_seen_to_their_end() -> Result<()> {
    let world = World::new().await?;
    let west = world.name("west");
    world
        .put_secret(&west, "value", &kubeconfig_of(&world.user("west").await?)?)
        .await?;
    world.put_cluster(&west, &west, json!({})).await?;
    world.told(&west, "True", "Connected").await?;
    let site = Arc::new(world.site(&west));
    world.want(Want::Open(Arc::clone(&site))).await?;
    world.is_up(&west).await?;
    let pace = world.connections_of(&west);
    world.put_cluster(&west, &west, json!({"qps": 5})).await?;
    wait_for("the change to be told", LIMIT, async || {
        Ok((world.status(&west).await?.observed_generation == Some(2)).then_some(()))
    })
    .await?;
    assert_eq!(
        world.connections_of(&west),
        pace,
        "another pace is no other connection"
    );

    world.delete_cluster(&west).await?;
    world.barrier().await?;
    assert_eq!(world.registry().bound(), 1);
    assert!(
        world.registry().seat(&site).is_some(),
        "what runs there can be asked for"
    );
    // Its kubeconfig is followed as before.
    world.delete_secret(&west).await?;
    let is_gone = |state: &SiteState| {
        matches!(
            state,
            SiteState::Down {
                reason: Reason::KubeconfigNotFound,
                ..
            }
        )
    };
    world.state(&site, "the loss", is_gone).await?;
    assert!(world.registry().bound() == 0 && world.registry().seat(&site).is_none());
    world
        .put_secret(&west, "value", &kubeconfig_of(&world.user("west").await?)?)
        .await?;
    world.is_up(&west).await?;
    world.want(Want::Close(Arc::clone(&site))).await?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().bound() == 0).then_some(()))
    })
    .await?;
    // Nothing leads there any more.
    world.want(Want::Open(Arc::clone(&site))).await?;
    let is_unknown = |state: &SiteState| {
        matches!(
            state,
            SiteState::Down {
                reason: Reason::ClusterNotFound,
                ..
            }
        )
    };
    world.state(&site, "it to be unknown", is_unknown).await?;
    world.put_cluster(&west, &west, json!({})).await?;
    world.is_up(&west).await?;
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_credential_that_is_refused_is_read_once_more() -> Result<()> {
    let world = World::new().await?;
    let west = world.name("west");
    let good = kubeconfig_of(&world.user("west").await?)?;
    world
        .put_secret(&west, "value", &world::with_token(&good, "nobody")?)
        .await?;
    world.put_cluster(&west, &west, json!({})).await?;
    world.told(&west, "False", "Unauthorized").await?;
    wait_for("the Secret to be read once more", LIMIT, async || {
        Ok((world.reads_of(&west).await? == 2).then_some(()))
    })
    .await?;
    world.barrier().await?;
    assert_eq!(world.reads_of(&west).await?, 2);
    world.put_secret(&west, "value", &good).await?;
    world.told(&west, "True", "Connected").await?;
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_clusters_are_told_of_and_delay_nobody() -> Result<()> {
    let world = World::new().await?;
    let good = kubeconfig_of(&world.user("good").await?)?;
    // Half of them refuse, half of them accept and say nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let silent = (silent.local_addr()?.port(), silent);
    let closed = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await?
        .local_addr()?
        .port();
    for n in 0..50 {
        let name = world.name(&format!("dead-{n}"));
        let port = if n % 2 == 0 { silent.0 } else { closed };
        world
            .put_secret(&name, "value", &world::leading_to(&good, port)?)
            .await?;
        world.put_cluster(&name, &name, json!({})).await?;
    }
    let alive = world.name("alive");
    world.put_secret(&alive, "value", &good).await?;
    world.put_cluster(&alive, &alive, json!({})).await?;
    world.told(&alive, "True", "Connected").await?;
    world.delete_secret(&alive).await?;
    world.told_soon(&alive, "False", "KubeconfigNotFound").await?;
    for n in 0..50 {
        let name = world.name(&format!("dead-{n}"));
        let told = world.told(&name, "False", "Unreachable").await?;
        let status = world.status(&name).await?;
        let (made, next) = status
            .connection_attempts
            .zip(status.next_connection_attempt)
            .context("it is told")?;
        assert!(made > 0 && next.0 > k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let (why, ending) = told
            .message
            .split_once("; connection attempts: ")
            .context("it ends so")?;
        assert!(why.ends_with("docs/reasons/Unreachable.md"), "{why}");
        assert!(
            ending.contains(", next connection attempt: 20") && ending.ends_with('Z'),
            "{ending}"
        );
    }
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hub_that_starts_again_writes_nothing_that_is_said_already() -> Result<()> {
    let mut world = World::new().await?;
    let [up, missing, bad, forged] = ["up", "missing", "bad", "forged"].map(|name| world.name(name));
    world
        .put_secret(&up, "value", &kubeconfig_of(&world.user("up").await?)?)
        .await?;
    world.put_secret(&bad, "value", "{[").await?;
    for (name, reason, status) in [
        (&up, "Connected", "True"),
        (&missing, "KubeconfigNotFound", "False"),
        (&bad, "BadKubeconfig", "False"),
        (&forged, "KubeconfigNotFound", "False"),
    ] {
        world
            .put_cluster(name, name, json!({"suspend": *name == bad}))
            .await?;
        world.told(name, status, reason).await?;
    }
    // A change that no condition tells of may be written a little later.
    world.settled(&up).await?;
    let mark = world.hub.audit()?.mark().await?;
    world.restart().await?;
    wait_for("the connection to stand again", LIMIT, async || {
        Ok(world
            .shown(&up)
            .contains("cluster_connected{cluster=\"")
            .then_some(()))
    })
    .await?;
    world.is_up(&up).await?;
    world.barrier().await?;
    let counts = |writes: Vec<String>, name: &str| writes.iter().filter(|written| *written == name).count();
    for name in [&up, &missing, &bad, &forged] {
        assert_eq!(counts(world.written(mark).await?, name), 0, "{name}");
    }
    // What somebody else wrote is put right by who is connected; who has no kubeconfig may be another hub than the one meant.
    for name in [&up, &forged] {
        let forgery = json!({"status": {"conditions": [{"type": "Connected", "status": "False", "reason": "Forgery",
            "message": "", "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
        let api: Api<RenderCluster> = Api::all(world.admin.clone());
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&forgery))
            .await?;
    }
    world.told(&up, "True", "Connected").await?;
    world.barrier().await?;
    world.told_soon(&forged, "False", "Forgery").await?;
    world.passed().await
}

/// Holds: T8.
#[tokio::test(flavor = "multi_thread")]
async fn a_namespace_is_granted_to_whoever_had_it_first() -> Result<()> {
    let world = World::new().await?;
    let (west, tenant) = (world.name("west"), world.hub.namespace("tenant").await?);
    let namespaces: Api<Namespace> = Api::all(world.admin.clone());
    let uid = async || Ok::<_, anyhow::Error>(namespaces.get_metadata(&tenant).await?.metadata.uid);
    let first = uid().await?;
    world
        .put_cluster(&west, &west, json!({"allowedNamespaces": [tenant]}))
        .await?;
    world.told(&west, "False", "KubeconfigNotFound").await?;
    wait_for("the namespace to be recorded", LIMIT, async || {
        Ok((world.status(&west).await?.namespaces.get(&tenant) == first.as_ref()).then_some(()))
    })
    .await?;
    let offered = world.offered(&west, |cluster| cluster.recorded.get(&tenant) == first.as_ref());
    let offered = offered.await?;
    assert_eq!(offered.spec.render_namespace, world.jobs);

    namespaces.delete(&tenant, &DeleteParams::default()).await?;
    wait_for("the namespace to be gone", LIMIT, async || {
        Ok(namespaces
            .get_metadata_opt(&tenant)
            .await?
            .is_none()
            .then_some(()))
    })
    .await?;
    let again = serde_json::from_value(json!({"metadata": {"name": tenant}}))?;
    namespaces.create(&PostParams::default(), &again).await?;
    wait_for("the cluster to say that it is another one", LIMIT, async || {
        let told = world.told(&west, "False", "KubeconfigNotFound").await?;
        let says = format!("deleted and recreated: {tenant};");
        Ok(told.message.contains(&says).then_some(()))
    })
    .await?;
    assert_eq!(world.status(&west).await?.namespaces.get(&tenant), first.as_ref());
    assert_ne!(uid().await?, first);

    // One that nobody understands is offered to nobody, and told of.
    world.break_cluster(&west).await?;
    world.told(&west, "False", "InvalidSpec").await?;
    tokio::time::timeout(Duration::from_secs(60), world.withdrawn(&west)).await??;
    world.passed().await
}
