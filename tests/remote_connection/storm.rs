//! Many who bind, open, close and look up at once.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use renderhub::api::conditions::Reason;
use renderhub::plan::remote::site::{ClusterName, Site};
use tokio::task::JoinSet;

use super::world::{LIMIT, Remote, Said, World, config, key, role, who};

/// Numbers that repeat with the seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

/// A Secret that is deleted and made again under its name is another cluster: in whatever order the events of it come, the site
/// never leads where it led before, and a client of before reaches nothing.
///
/// Holds: K12.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_recreated_secret_inherits_nothing() -> Result<()> {
    let remote = Remote::new("anew").await?;
    let accounts = [remote.account("first").await?, remote.account("second").await?];
    let configs = [config(&accounts[0])?, config(&accounts[1])?];
    let (world, site) = (World::new(), remote.site());
    let mut dice = Dice(11);
    let mut old = None;
    for number in 0..1_000_usize {
        let key = key(&format!("{}-{number}", remote.namespace));
        let before = world.registry.client(&site);
        let mut steps = [0, 1];
        if dice.below(2) == 0 {
            steps.reverse();
        }
        for step in steps {
            if step == 0 {
                if let Some(old) = old.take() {
                    world.registry.end_connection(&old, Reason::KubeconfigNotFound);
                }
            } else {
                world.apply_kubeconfig(&key, configs[number % 2].clone());
                if dice.below(2) == 0 {
                    tokio::task::yield_now().await;
                }
                world.registry.open(&key, Arc::clone(&site));
            }
            if dice.below(3) == 0 {
                tokio::time::sleep(Duration::from_millis(dice.below(8))).await;
            }
        }
        if let Some(before) = before {
            assert!(!before.is_valid() && who(&before).await.is_err(), "{number}");
        }
        if let Some(seat) = world.registry.client(&site)
            && let Ok(found) = who(&seat).await
        {
            assert_eq!(found, accounts[number % 2].name(), "{number}");
        }
        if number % 50 == 0 {
            let seat = world.until_up(&site).await?;
            assert_eq!(who(&seat).await.unwrap(), accounts[number % 2].name(), "{number}");
        }
        old = Some(key);
    }
    assert_eq!(world.registry.connections(), 1, "the last");
    // A later client began after the last message of the one before.
    let said = world.said(&site);
    let states = |at: usize| {
        said[..at]
            .iter()
            .rev()
            .find(|said| matches!(said, Said::Up | Said::Down(_)))
    };
    for (at, _) in said
        .iter()
        .enumerate()
        .filter(|(_, said)| **said == Said::Restart)
    {
        assert_eq!(
            states(at),
            Some(&Said::Down(Reason::Connecting)),
            "{:?}",
            &said[..=at]
        );
    }
    let restarts = said.iter().enumerate().filter(|(_, said)| **said == Said::Up);
    for (at, _) in restarts {
        let restart = said[..at].iter().rposition(|said| *said == Said::Restart);
        let between = &said[restart.context("all is seen before")?..at];
        assert!(
            between.contains(&Said::Synced) && !between.contains(&Said::Up),
            "{between:?}"
        );
    }
    world.ended().await
}

/// Whatever is done at once, nothing waits for ever: every call ends, and so does the stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_call_gets_stuck_whatever_is_done_at_once() -> Result<()> {
    let remote = Remote::new("storm").await?;
    let accounts = [remote.account("first").await?, remote.account("second").await?];
    let second = Remote::new("storm").await?;
    for account in &accounts {
        second.grant(account, role()).await?;
    }
    let mut broken = config(&accounts[0])?;
    broken.port = 1;
    let certificate = remote.plane.user(&format!("cert-{}", remote.namespace), &[])?;
    remote.grant(&certificate, role()).await?;
    let configs = Arc::new([
        config(&accounts[0])?,
        config(&accounts[1])?,
        config(&certificate)?,
        broken,
    ]);
    let namespaces = [remote.namespace.clone(), second.namespace.clone()];
    let sites: Arc<Vec<Arc<Site>>> = Arc::new(
        (0..6_usize)
            .map(|number| {
                Arc::new(Site {
                    cluster: ClusterName::Platform(format!("cluster-{number}")),
                    namespace: namespaces[number % 2].clone(),
                })
            })
            .collect(),
    );
    let world = Arc::new(World::new());
    let mut tasks = JoinSet::new();
    for seed in 0..8 {
        let (world, configs, sites) = (Arc::clone(&world), Arc::clone(&configs), Arc::clone(&sites));
        tasks.spawn(async move {
            let mut dice = Dice(seed);
            for _ in 0..400 {
                let key = key(&format!("storm-{}", dice.below(4)));
                let site = Arc::clone(&sites[usize::try_from(dice.below(6)).unwrap()]);
                match dice.below(8) {
                    0 | 1 => {
                        let config = &configs[usize::try_from(dice.below(4)).unwrap()];
                        world.apply_kubeconfig(&key, config.clone());
                    }
                    2 | 3 => world.registry.open(&key, site),
                    4 => world.registry.close(&site),
                    5 => world.registry.end_connection(&key, Reason::KubeconfigNotFound),
                    _ => {
                        if let Some(seat) = world.registry.client(&site) {
                            // It may end at any moment, but it ends.
                            _ = who(&seat).await;
                        }
                    }
                }
                if dice.below(4) == 0 {
                    tokio::time::sleep(Duration::from_millis(dice.below(5))).await;
                }
            }
        });
    }
    let all = tokio::time::timeout(2 * LIMIT, tasks.join_all());
    all.await.context("somebody got stuck")?;
    // And it works as before.
    let (last, site) = (key("storm-last"), Arc::clone(&sites[0]));
    world.apply_kubeconfig(&last, config(&accounts[0])?);
    world.registry.open(&last, Arc::clone(&site));
    let seat = world.until_up(&site).await?;
    assert_eq!(who(&seat).await.unwrap(), accounts[0].name());
    tokio::time::timeout(LIMIT, world.registry.shutdown())
        .await
        .context("it does not end")?;
    assert!(world.registry.client(&site).is_none() && who(&seat).await.is_err());
    Ok(())
}
