//! Connections to other clusters: real API servers at the other end, reached as the documented Role lets the hub.

#![expect(
    clippy::panic,
    clippy::too_many_lines,
    reason = "a test fails by panicking, and reads best as one story"
)]

#[path = "remote_connection/between.rs"]
mod between;
#[path = "remote_connection/forward.rs"]
mod forward;
#[path = "remote_connection/identity.rs"]
mod identity;
#[path = "remote_connection/loss.rs"]
mod loss;
#[path = "remote_connection/rotation.rs"]
mod rotation;
#[path = "remote_connection/storm.rs"]
mod storm;
#[path = "remote_connection/world.rs"]
mod world;

use anyhow::Result;
use renderhub::api::conditions::Reason;
use renderhub::plan::remote::health::ConnectionPhase;
use renderhub::plan::remote::site::Site;
use renderhub_harness::wait_for;

use between::Stripper;
use forward::{Forward, Mode};
use world::{LIMIT, Remote, Said, World, config, key, plane, role, slow_call, through, who};

#[tokio::test]
async fn a_site_is_up_once_every_job_there_was_listed() -> Result<()> {
    let remote = Remote::new("told").await?;
    let account = remote.account("hub").await?;
    for task in ["t1", "t2"] {
        remote.make_job(task).await?;
    }
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, config(&account)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    let said = world.said(&site);
    let seen = |task: &str| said.contains(&Said::Seen(task.to_owned()));
    assert!(seen("t1") && seen("t2"), "{said:?}");
    assert_eq!(said[0], Said::Down(Reason::Connecting));
    let order: Vec<_> = said
        .iter()
        .filter(|said| !matches!(said, Said::Seen(_)))
        .collect();
    assert_eq!(order[1..], [&Said::Restart, &Said::Synced, &Said::Up], "{said:?}");
    // From then on, events are sent on at once.
    remote.make_job("t3").await?;
    remote.delete_job("t1").await?;
    wait_for("both events", LIMIT, async || {
        let said = world.said(&site);
        let both = [Said::Seen("t3".to_owned()), Said::Gone("t1".to_owned())];
        Ok(both.iter().all(|event| said.contains(event)).then_some(()))
    })
    .await?;
    assert_eq!(
        who(&seat).await.unwrap(),
        account.name(),
        "as the kubeconfig's user and nobody else"
    );
    let report = world
        .until_reported(&key, "the report", |report| {
            report.health.phase == ConnectionPhase::Up
        })
        .await?;
    assert_eq!(report.reason(&site), Reason::Connected);
    assert_eq!(report.health.version.unwrap().to_string(), "1.36");
    assert!(report.health.last_probe.is_some() && report.health.next_attempt.is_none());
    world.ended().await
}

/// No site of a connection is announced before all of them are known.
#[tokio::test]
async fn no_site_is_up_before_all_were_seen() -> Result<()> {
    let (first, second) = (Remote::new("quick").await?, Remote::new("late").await?);
    let account = first.account("hub").await?;
    second.grant(&account, role()).await?;
    let between = Stripper::start(account.client().await?).await?;
    between.hold(Some(&format!("{}/jobs", second.namespace)));
    let (world, key) = (World::new(), first.key());
    world.registry.open(&key, first.site());
    assert!(world.all().is_empty(), "without a connection nothing is opened");
    world.apply_kubeconfig(&key, between.config(&account)?);
    world.registry.open(&key, first.site());
    world.registry.open(&key, second.site());
    wait_for("the first to be seen", LIMIT, async || {
        Ok(world.said(&first.site()).contains(&Said::Synced).then_some(()))
    })
    .await?;
    assert!(world.registry.client(&first.site()).is_none());
    between.hold(None);
    world.until_up(&first.site()).await?;
    world.until_up(&second.site()).await?;
    let all = world.all();
    let at = |site: &Site, word: &Said| all.iter().position(|(of, said)| **of == *site && said == word);
    let seen = at(&second.site(), &Said::Synced);
    assert!(seen.is_some() && seen < at(&first.site(), &Said::Up), "{all:?}");
    world.ended().await
}

/// A site that is opened later is watched on the same connection, and no other site is announced again.
#[tokio::test]
async fn another_site_disturbs_no_other() -> Result<()> {
    let (first, second) = (Remote::new("first").await?, Remote::new("second").await?);
    let account = first.account("hub").await?;
    second.grant(&account, role()).await?;
    second.make_job("t1").await?;
    let forward = Forward::to(first.address()).await?;
    let (world, key) = (World::new(), first.key());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, first.site());
    world.until_up(&first.site()).await?;
    let before = world.said(&first.site());
    world.registry.open(&key, second.site());
    world.until_up(&second.site()).await?;
    assert!(world.said(&second.site()).contains(&Said::Seen("t1".to_owned())));
    assert_eq!(world.said(&first.site()), before);
    assert_eq!(world.connections(&key), (1, 0));
    assert_eq!(forward.taken(), 1, "one connection for all");
    // Closed, it sends no more; the other goes on.
    world.registry.close(&second.site());
    assert!(world.registry.client(&second.site()).is_none());
    let before = world.said(&second.site()).len();
    second.make_job("t2").await?;
    first.make_job("t3").await?;
    wait_for("the other's Job", LIMIT, async || {
        let is_there = world.said(&first.site()).contains(&Said::Seen("t3".to_owned()));
        Ok(is_there.then_some(()))
    })
    .await?;
    assert_eq!(world.said(&second.site()).len(), before);
    world.ended().await
}

/// Everything on it ends at once, and nothing of it is left.
///
/// Holds: K12.
#[tokio::test]
async fn an_unbound_connection_is_cut_with_all_that_is_under_way() -> Result<()> {
    let remote = Remote::new("cut").await?;
    let account = remote.account("hub").await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    who(&seat).await.unwrap();
    assert!(world.series(&key) >= 3);
    let (slow, namespace) = (seat.clone(), remote.namespace.clone());
    let call = tokio::spawn(async move { slow_call(&slow, &namespace, 25).await });
    tokio::task::yield_now().await;
    world.registry.end_connection(&key, Reason::KubeconfigNotFound);
    assert!(world.registry.client(&site).is_none() && !seat.is_valid());
    assert!(who(&seat).await.is_err(), "not even by who held it before");
    let cut = tokio::time::timeout(std::time::Duration::from_secs(5), call).await??;
    assert!(cut.is_err(), "the call is cut and not waited for");
    world.until_down(&site, Reason::KubeconfigNotFound).await?;
    wait_for("the connections to end", LIMIT, async || {
        Ok((forward.open() == 0).then_some(()))
    })
    .await?;
    let before = world.said(&site).len();
    wait_for("the series to end", LIMIT, async || {
        Ok((world.series(&key) == 0).then_some(()))
    })
    .await?;
    remote.make_job("t1").await?;
    assert_eq!(
        (world.registry.connections(), world.said(&site).len()),
        (0, before)
    );
    world.ended().await
}

/// A hundred clusters that accept connections and never answer disturb no other.
#[tokio::test]
async fn a_start_with_dead_clusters_delays_no_other() -> Result<()> {
    let remote = Remote::new("alive").await?;
    let account = remote.account("hub").await?;
    let dead = Forward::to(remote.address()).await?;
    dead.set(Mode::Frozen);
    let world = World::new();
    let mut others = Vec::new();
    for number in 0..100 {
        let other = Remote {
            plane: plane().await?,
            namespace: format!("dead-{number}"),
        };
        world.apply_kubeconfig(&other.key(), through(&dead, &account)?);
        world.registry.open(&other.key(), other.site());
        others.push(other);
    }
    world.apply_kubeconfig(&remote.key(), config(&account)?);
    world.registry.open(&remote.key(), remote.site());
    world.until_up(&remote.site()).await?;
    for other in &others {
        assert!(world.registry.client(&other.site()).is_none());
    }
    world.until_down(&others[99].site(), Reason::Unreachable).await?;
    assert_eq!(world.registry.connections(), 101);
    world.ended().await
}

/// The last announcement of a site comes after everything else of it, and before the first one after it is opened again.
#[tokio::test]
async fn the_last_word_is_the_last() -> Result<()> {
    use renderhub::plan::remote::site::SiteState;
    let remote = Remote::new("last").await?;
    let account = remote.account("hub").await?;
    let (world, site) = (World::new(), remote.site());
    for round in 0..20 {
        let key = key(&format!("{}-{round}", remote.namespace));
        world.apply_kubeconfig(&key, config(&account)?);
        world.registry.open(&key, site.clone());
        if round % 2 == 0 {
            world.until_up(&site).await?;
        }
        world
            .registry
            .refuse(site.clone(), SiteState::down(Reason::FeatureDisabled));
        assert!(world.registry.client(&site).is_none());
        if round % 3 == 0 {
            world.until_down(&site, Reason::FeatureDisabled).await?;
        }
        world.registry.end_connection(&key, Reason::KubeconfigNotFound);
    }
    world.until_down(&site, Reason::FeatureDisabled).await?;
    let said = world.said(&site);
    for (at, event) in said.iter().enumerate() {
        let next = said.get(at + 1);
        if *event == Said::Down(Reason::FeatureDisabled) {
            assert!(
                matches!(next, None | Some(Said::Down(_))),
                "{next:?} after the last word: {said:?}"
            );
        }
        assert_ne!(
            *event,
            Said::Down(Reason::KubeconfigNotFound),
            "it was closed before"
        );
    }
    world.ended().await
}
