//! The platform's clusters and those of tenants: which kubeconfig leads where, what follows when its Secret changes, and what its
//! condition says. The loops run in the test itself, between a control plane that is the hub and another one.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "render_clusters/kubeconfigs.rs"]
mod kubeconfigs;
#[path = "render_clusters/look.rs"]
mod look;
#[path = "render_clusters/statuses.rs"]
mod statuses;
#[path = "render_clusters/tenants.rs"]
mod tenants;
#[path = "render_clusters/world.rs"]
mod world;

use std::sync::Arc;

use anyhow::{Context, Result};
use kubeconfigs::{insecure, kubeconfig_of, leading_to, with_token};
use renderhub::api::conditions::Reason;
use renderhub::plan::remote::site::SiteState;
use renderhub::remote::SiteRequest;
use renderhub::remote::kubeconfig::MAX_BYTES;
use renderhub_harness::wait_for;
use serde_json::json;
use world::{LIMIT, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_kubeconfig_is_followed_wherever_its_secret_goes() -> Result<()> {
    let world = World::new().await?;
    let (west, user) = (world.name("west"), world.user("west").await?);
    world.put_cluster(&west, &west, json!({"qps": 50})).await?;
    let found = world
        .until_connected_is(&west, "False", "KubeconfigNotFound")
        .await?;
    assert!(
        found.message.contains("spec.kubeConfig.secretRef"),
        "{}",
        found.message
    );

    // It comes later.
    world.put_secret(&west, "value", &kubeconfig_of(&user)?).await?;
    world.until_connected_is(&west, "True", "Connected").await?;
    let status = world.status(&west).await?;
    assert!(status.version.is_some_and(|version| version.starts_with("1.")));
    assert!(status.last_probe_time.is_some() && status.observed_generation == Some(1));
    assert_eq!((status.active_jobs, status.connection_attempts), (Some(0), None));
    let shown = world.shown(&west);
    assert!(
        shown.contains("renderhub_cluster_connected") && shown.contains("last_probe"),
        "{shown}"
    );

    // A change of its metadata changes nothing.
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
    wait_for("the new credential to be in use", LIMIT, async || {
        let seen = world
            .remote
            .audit()?
            .between(mark, world.remote.audit()?.mark().await?)?;
        Ok(seen.iter().any(|event| event.user == other.name()).then_some(()))
    })
    .await?;

    // The key goes, and comes back under the other name.
    world.put_secret(&west, "something", "else").await?;
    world
        .until_connected_is(&west, "False", "KubeconfigNotFound")
        .await?;
    assert_eq!(world.registry().connections(), 0);
    world
        .put_secret(&west, "value.yaml", &kubeconfig_of(&user)?)
        .await?;
    world.until_connected_is(&west, "True", "Connected").await?;

    // The Secret goes, and another one comes.
    world.delete_secret(&west).await?;
    world
        .until_connected_is(&west, "False", "KubeconfigNotFound")
        .await?;
    assert_eq!(world.registry().connections(), 0);
    world.put_secret(&west, "value", &kubeconfig_of(&user)?).await?;
    world.until_connected_is(&west, "True", "Connected").await?;

    // The cluster goes, and nothing of it stays.
    world.delete_cluster(&west).await?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().connections() == 0 && world.shown(&west).is_empty()).then_some(()))
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
        let condition = world
            .until_connected_is(&world.name(name), "False", reason)
            .await?;
        assert!(
            !condition.message.contains("docs/reasons"),
            "{}",
            condition.message
        );
        let is_own_words =
            !condition.message.contains("BEGIN") && !condition.message.contains(&kubeconfig[..2]);
        assert!(is_own_words || name == &"garbage", "{}", condition.message);
    }
    // Only one of them led to a connection, and that is corrected like all others.
    assert_eq!(world.registry().connections(), 1);
    let mended = world.name("exec");
    world.put_secret(&mended, "value", &good).await?;
    world.until_connected_is(&mended, "True", "Connected").await?;
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
        world.until_connected_is(name, "True", "Connected").await?;
    }
    assert_eq!(world.registry().connections(), 1);
    world.delete_cluster(&east).await?;
    world.barrier().await?;
    assert_eq!(world.registry().connections(), 1);
    let (attempts, _) = world.connections_of(&west);
    assert_eq!(attempts, 1, "it was connected to once");
    world.until_connected_is(&west, "True", "Connected").await?;
    world.delete_cluster(&west).await?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().connections() == 0).then_some(()))
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
    world.until_connected_is(&west, "True", "Connected").await?;
    let site = Arc::new(world.site(&west));
    world.want(SiteRequest::Open(Arc::clone(&site)))?;
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
    assert_eq!(world.registry().connections(), 1);
    assert!(
        world.registry().client(&site).is_some(),
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
    assert!(world.registry().connections() == 0 && world.registry().client(&site).is_none());
    world
        .put_secret(&west, "value", &kubeconfig_of(&world.user("west").await?)?)
        .await?;
    world.is_up(&west).await?;
    world.want(SiteRequest::Close(Arc::clone(&site)))?;
    wait_for("the connection to be gone", LIMIT, async || {
        Ok((world.registry().connections() == 0).then_some(()))
    })
    .await?;
    // Nothing leads there any more.
    world.want(SiteRequest::Open(Arc::clone(&site)))?;
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
        .put_secret(&west, "value", &with_token(&good, "nobody")?)
        .await?;
    world.put_cluster(&west, &west, json!({})).await?;
    world.until_connected_is(&west, "False", "Unauthorized").await?;
    wait_for("the Secret to be read once more", LIMIT, async || {
        Ok((world.reads_of(&west).await? == 2).then_some(()))
    })
    .await?;
    world.barrier().await?;
    assert_eq!(world.reads_of(&west).await?, 2);
    world.put_secret(&west, "value", &good).await?;
    world.until_connected_is(&west, "True", "Connected").await?;
    world.passed().await
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_clusters_are_reported_and_delay_no_other() -> Result<()> {
    let world = World::new().await?;
    let good = kubeconfig_of(&world.user("good").await?)?;
    // Half of them refuse, half of them accept and say nothing.
    let silent = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let silent = (silent.local_addr()?.port(), silent);
    // A socket that does not listen refuses connections, and keeps its port from others.
    let closed = tokio::net::TcpSocket::new_v4()?;
    closed.bind("127.0.0.1:0".parse()?)?;
    for n in 0..50 {
        let name = world.name(&format!("dead-{n}"));
        let port = if n % 2 == 0 {
            silent.0
        } else {
            closed.local_addr()?.port()
        };
        world
            .put_secret(&name, "value", &leading_to(&good, port)?)
            .await?;
        world.put_cluster(&name, &name, json!({})).await?;
    }
    let alive = world.name("alive");
    world.put_secret(&alive, "value", &good).await?;
    world.put_cluster(&alive, &alive, json!({})).await?;
    world.until_connected_is(&alive, "True", "Connected").await?;
    world.delete_secret(&alive).await?;
    world
        .until_connected_is(&alive, "False", "KubeconfigNotFound")
        .await?;
    for n in 0..50 {
        let name = world.name(&format!("dead-{n}"));
        let condition = world.until_connected_is(&name, "False", "Unreachable").await?;
        let status = world.status(&name).await?;
        let (made, next) = status
            .connection_attempts
            .zip(status.next_connection_attempt)
            .context("it is told")?;
        assert!(made > 0 && next.0 > k8s_openapi::jiff::Timestamp::UNIX_EPOCH);
        let (why, ending) = condition
            .message
            .split_once("; connection attempts: ")
            .context("it ends so")?;
        assert!(why.starts_with("the cluster does not answer"), "{why}");
        assert!(
            ending.contains(", next connection attempt: 20") && ending.ends_with('Z'),
            "{ending}"
        );
    }
    world.passed().await
}
