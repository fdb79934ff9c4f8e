//! Clusters that die, refuse, and come back.

use std::sync::Arc;

use anyhow::Result;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams};
use renderhub::api::conditions::Reason;
use renderhub::plan::remote::health::{ConnectionFault, ConnectionPhase, ConnectionTiming};
use renderhub_harness::wait_for;
use serde_json::json;

use super::forward::{Forward, Mode};
use super::world::{LIMIT, Remote, Said, World, role, through, timing, who};

/// Lost in two ways, and said so once whatever is tried since; when it is back, everything is listed again.
#[tokio::test]
async fn a_lost_cluster_is_down_and_comes_back_with_what_is_there() -> Result<()> {
    for mode in [Mode::Refusing, Mode::Frozen] {
        let remote = Remote::new("lost").await?;
        let account = remote.account("hub").await?;
        remote.make_job("t1").await?;
        remote.make_job("t2").await?;
        let forward = Forward::to(remote.address()).await?;
        let (world, key, site) = (World::new(), remote.key(), remote.site());
        world.apply_kubeconfig(&key, through(&forward, &account)?);
        world.registry.open(&key, site.clone());
        let seat = world.until_up(&site).await?;
        forward.set(mode);
        world.until_down(&site, Reason::Unreachable).await?;
        let before = world.said(&site).len();
        assert!(world.registry.client(&site).is_none() && who(&seat).await.is_err());
        let report = world
            .until_reported(&key, "three attempts", |report| report.health.attempts >= 3)
            .await?;
        assert_eq!(report.health.phase, ConnectionPhase::Lost);
        let attempts: Vec<_> = world
            .reports(&key)
            .iter()
            .map(|report| report.health.attempts)
            .collect();
        assert!(attempts.contains(&0), "{attempts:?}");
        // While no watch is open, one goes and one comes.
        remote.delete_job("t1").await?;
        remote.make_job("t3").await?;
        assert_eq!(
            world.said(&site).len(),
            before,
            "a loss is said once, whatever is tried"
        );
        forward.cut();
        world.until_up(&site).await?;
        let said = world.said(&site)[before..].to_vec();
        let restart = said
            .iter()
            .rposition(|said| *said == Said::Restart)
            .expect("all is listed");
        let seen = |task: &str| said[restart..].contains(&Said::Seen(task.to_owned()));
        assert!(!seen("t1") && seen("t2") && seen("t3"), "{said:?}");
        assert_eq!(said[said.len() - 2..], [Said::Synced, Said::Up], "{said:?}");
        let report = world
            .until_reported(&key, "up", |report| report.health.phase == ConnectionPhase::Up)
            .await?;
        assert_eq!(report.health.attempts, 0);
        assert!(world.connections(&key).1 >= 1);
        world.ended().await?;
    }
    Ok(())
}

/// What breaks and is there again at once is no loss; nothing is missed by it.
#[tokio::test]
async fn a_broken_connection_to_a_cluster_that_lives_is_no_loss() -> Result<()> {
    let remote = Remote::new("blip").await?;
    let account = remote.account("hub").await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, site.clone());
    world.until_up(&site).await?;
    let taken = forward.taken();
    forward.cut();
    wait_for("another connection", LIMIT, async || {
        Ok((forward.taken() > taken).then_some(()))
    })
    .await?;
    remote.make_job("t1").await?;
    wait_for("the Job", LIMIT, async || {
        Ok(world
            .said(&site)
            .contains(&Said::Seen("t1".to_owned()))
            .then_some(()))
    })
    .await?;
    let downs = world
        .said(&site)
        .iter()
        .filter(|said| matches!(said, Said::Down(_)))
        .count();
    assert_eq!(
        (downs, world.connections(&key)),
        (1, (1, 0)),
        "only before it was up"
    );
    world.ended().await
}

/// The Secret is asked for once; what it holds counts, changed or not.
#[tokio::test]
async fn a_refused_credential_asks_for_the_secret_once() -> Result<()> {
    let remote = Remote::new("refused").await?;
    let account = remote.account("hub").await?;
    let forward = Forward::to(remote.address()).await?;
    // Nothing but the answer ends the wait for it.
    let patient = ConnectionTiming {
        reread: 10 * LIMIT,
        ..timing()
    };
    let world = World::with(patient, Arc::new(|_| None));
    let (key, site) = (remote.key(), remote.site());
    let config = through(&forward, &account)?;
    world.apply_kubeconfig(&key, config.clone());
    world.registry.open(&key, site.clone());
    world.until_up(&site).await?;
    let accounts: Api<ServiceAccount> =
        Api::namespaced(remote.plane.admin().client().await?, &remote.namespace);
    accounts.delete("hub", &DeleteParams::default()).await?;
    // The API server remembers a token for ten seconds.
    let asked = world
        .until_reported(&key, "the Secret to be asked for", |report| {
            report.health.wants_reread
        })
        .await?;
    assert_eq!(
        asked.health.phase,
        ConnectionPhase::Up,
        "not lost before it is known"
    );
    world.apply_kubeconfig(&key, config);
    world.until_down(&site, Reason::Unauthorized).await?;
    let report = world
        .until_reported(&key, "two more attempts", |report| report.health.attempts >= 2)
        .await?;
    assert_eq!(report.health.reason(), Reason::Unauthorized);
    let asked = world
        .reports(&key)
        .windows(2)
        .filter(|pair| !pair[0].health.wants_reread && pair[1].health.wants_reread)
        .count();
    assert_eq!(asked, 1, "once");
    // Another token is tried at once, whatever the wait.
    world.apply_kubeconfig(&key, through(&forward, &remote.account("other").await?)?);
    world.until_up(&site).await?;
    world.ended().await
}

/// A user that may not watch Jobs gets a condition, and the connection stays; with the right back, the site comes back by itself.
#[tokio::test]
async fn a_withdrawn_right_is_forbidden_and_not_dead() -> Result<()> {
    let (remote, other) = (Remote::new("forbidden").await?, Remote::new("allowed").await?);
    let account = remote.account("hub").await?;
    other.grant(&account, role()).await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, site.clone());
    world.registry.open(&key, other.site());
    world.until_up(&site).await?;
    world.until_up(&other.site()).await?;
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]);
    remote.grant(&account, pods).await?;
    // An open watch is not authorised again, so it is made to begin again.
    forward.cut();
    world.until_down(&site, Reason::Forbidden).await?;
    let said = world.said(&site).len();
    assert!(world.registry.client(&site).is_none());
    world.until_up(&other.site()).await?;
    let report = world
        .until_reported(&key, "the report", |report| {
            report.fault(&site) == Some(ConnectionFault::Forbidden)
        })
        .await?;
    assert_eq!(
        (report.health.phase, report.reason(&site)),
        (ConnectionPhase::Up, Reason::Forbidden)
    );
    assert_eq!(report.reason(&other.site()), Reason::Connected);
    let answered = || {
        let of = renderhub::base::metrics::clusters::OutcomeLabels {
            cluster: key.secret_uid.to_string(),
            result: "answered",
        };
        world.metrics.clusters.probes.get_or_create(&of).get()
    };
    let before = answered();
    wait_for("more probes", LIMIT, async || {
        Ok((answered() > before + 2).then_some(()))
    })
    .await?;
    assert_eq!(world.said(&site).len(), said, "once, when it was withdrawn");
    assert_eq!(
        world.connections(&key),
        (1, 0),
        "nothing is connected anew for it"
    );
    remote.grant(&account, role()).await?;
    world.until_up(&site).await?;
    world.ended().await
}
