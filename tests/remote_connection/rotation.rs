//! Another state of a kubeconfig: nothing, the token alone, or everything.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use renderhub::api::conditions::Reason;
use renderhub_harness::process::Process;
use renderhub_harness::{Identity, rundir, wait_for};

use super::forward::Forward;
use super::world::{LIMIT, Remote, Said, World, slow_call, through, who};

#[tokio::test]
async fn the_same_kubeconfig_reconnects_nothing() -> Result<()> {
    let remote = Remote::new("same").await?;
    let account = remote.account("hub").await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, site.clone());
    world.until_up(&site).await?;
    let said = world.said(&site);
    let same = through(&forward, &account)?;
    for _ in 0..100 {
        world.apply_kubeconfig(&key, same.clone());
        tokio::task::yield_now().await;
    }
    // A call and a Job show that what came before was worked through.
    who(&world.until_up(&site).await?).await.unwrap();
    remote.make_job("t1").await?;
    wait_for("the Job", LIMIT, async || {
        Ok(world
            .said(&site)
            .contains(&Said::Seen("t1".to_owned()))
            .then_some(()))
    })
    .await?;
    assert_eq!(world.connections(&key), (1, 0));
    assert_eq!((forward.taken(), world.said(&site).len()), (1, said.len() + 1));
    world.ended().await
}

#[tokio::test]
async fn another_token_is_on_the_next_request_and_on_the_same_connection() -> Result<()> {
    let remote = Remote::new("token").await?;
    let (first, second) = (remote.account("first").await?, remote.account("second").await?);
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &first)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    assert_eq!(who(&seat).await.unwrap(), first.name());
    let said = world.said(&site);
    for account in [&second, &first, &second] {
        world.apply_kubeconfig(&key, through(&forward, account)?);
        assert_eq!(who(&seat).await.unwrap(), account.name());
    }
    assert_eq!(forward.taken(), 1, "on the same connection");
    assert_eq!(world.connections(&key), (1, 0));
    remote.make_job("t1").await?;
    wait_for("the Job", LIMIT, async || {
        Ok((world.said(&site).len() > said.len()).then_some(()))
    })
    .await?;
    assert_eq!(
        world.said(&site)[said.len()..],
        [Said::Seen("t1".to_owned())],
        "the watch goes on"
    );
    world.ended().await
}

/// A user by a certificate, with the Role.
async fn by_certificate(remote: &Remote, name: &str) -> Result<Identity> {
    let user = remote.plane.user(&format!("{name}-{}", remote.namespace), &[])?;
    remote.grant(&user, super::role()).await?;
    Ok(user)
}

/// Holds: K12.
#[tokio::test]
async fn another_certificate_takes_the_place_while_old_calls_end() -> Result<()> {
    let remote = Remote::new("swap").await?;
    let first = by_certificate(&remote, "first").await?;
    let second = by_certificate(&remote, "second").await?;
    remote.make_job("t1").await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &first)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    assert_eq!(who(&seat).await.unwrap(), first.name());
    let said = world.said(&site).len();
    let (slow, namespace) = (seat.clone(), remote.namespace.clone());
    let call = tokio::spawn(async move { slow_call(&slow, &namespace, 9).await });
    tokio::task::yield_now().await;
    world.apply_kubeconfig(&key, through(&forward, &second)?);
    wait_for("requests as the second", LIMIT, async || {
        Ok((who(&seat).await? == second.name()).then_some(()))
    })
    .await?;
    assert!(
        !call.is_finished(),
        "the call is under way still, or it shows nothing"
    );
    assert_eq!(forward.open(), 2, "the old connection is kept for it");
    assert!(call.await?.is_ok(), "and the call ends as if nothing had been");
    wait_for("the old connection to end", LIMIT, async || {
        Ok((forward.open() == 1).then_some(()))
    })
    .await?;
    assert_eq!(world.connections(&key), (2, 1));
    wait_for("all to be seen anew", LIMIT, async || {
        Ok((world.said(&site).last() == Some(&Said::Up)).then_some(()))
    })
    .await?;
    let t1 = Said::Seen("t1".to_owned());
    assert_eq!(
        world.said(&site)[said..],
        [Said::Restart, t1, Said::Synced, Said::Up],
        "never down in between"
    );
    world.ended().await
}

#[tokio::test]
async fn a_kubeconfig_that_does_not_work_ends_the_old_connection_too() -> Result<()> {
    let remote = Remote::new("worse").await?;
    let account = remote.account("hub").await?;
    let forward = Forward::to(remote.address()).await?;
    let (world, key, site) = (World::new(), remote.key(), remote.site());
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.registry.open(&key, site.clone());
    let seat = world.until_up(&site).await?;
    let mut nowhere = through(&forward, &account)?;
    nowhere.port = 1;
    world.apply_kubeconfig(&key, nowhere);
    world.until_down(&site, Reason::Unreachable).await?;
    assert!(who(&seat).await.is_err());
    wait_for("the old connection to end", LIMIT, async || {
        Ok((forward.open() == 0).then_some(()))
    })
    .await?;
    world.apply_kubeconfig(&key, through(&forward, &account)?);
    world.until_up(&site).await?;
    world.ended().await
}

/// What a process holds: resident KiB, and open file descriptors.
fn held() -> Result<(u64, usize)> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let rss = rss.and_then(|rss| rss.trim().strip_suffix(" kB"));
    let files = std::fs::read_dir("/proc/self/fd")?.count();
    Ok((rss.context("no resident set")?.trim().parse()?, files))
}

const CHILD: &str = "RENDERHUB_TEST_ROTATIONS";

/// Ten thousand tokens and three hundred certificates later the hub holds what it held. A process of its own, because
/// others would be measured too.
#[test]
fn rotations_leave_nothing_behind() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    if let Ok(given) = std::env::var(CHILD) {
        return runtime.block_on(rotate(&serde_json::from_str::<Vec<String>>(&given)?));
    }
    let given = runtime.block_on(async {
        let remote = Remote::new("rotate").await?;
        let tokens = [remote.account("first").await?, remote.account("second").await?];
        let certificates = [
            by_certificate(&remote, "first").await?,
            by_certificate(&remote, "second").await?,
        ];
        let all = tokens.iter().chain(&certificates);
        let files: Result<Vec<_>> = all
            .map(|who| Ok(who.kubeconfig()?.display().to_string()))
            .collect();
        let mut given = files?;
        given.push(remote.namespace.clone());
        anyhow::Ok(given)
    })?;
    let log = rundir::fresh("rotations")?.join("log");
    let mut command = std::process::Command::new(std::env::current_exe()?);
    command
        .args([
            "--exact",
            "rotation::rotations_leave_nothing_behind",
            "--nocapture",
        ])
        .env(CHILD, serde_json::to_string(&given)?);
    let child = Process::spawn("rotations", &command, &log)?;
    let status = runtime.block_on(child.wait(Duration::from_secs(300)))?;
    ensure!(status.success(), "{}", child.log());
    Ok(())
}

async fn rotate(given: &[String]) -> Result<()> {
    let [a, b, c, d, namespace] = given else {
        anyhow::bail!("five are given")
    };
    let read = |path: &String| anyhow::Ok(renderhub::remote::kubeconfig::decode(&std::fs::read(path)?)?);
    let (tokens, certificates) = ([read(a)?, read(b)?], [read(c)?, read(d)?]);
    let world = World::new();
    let (key, site) = (
        super::key(namespace),
        std::sync::Arc::new(renderhub::plan::remote::site::Site {
            cluster: renderhub::plan::remote::site::ClusterName::Platform(namespace.clone()),
            namespace: namespace.clone(),
        }),
    );
    world.apply_kubeconfig(&key, tokens[0].clone());
    world.registry.open(&key, std::sync::Arc::clone(&site));
    let mut before = None;
    for number in 0..11_000_usize {
        if number == 1_000 {
            before = Some(held()?);
        }
        world.apply_kubeconfig(&key, tokens[number % 2].clone());
        if number % 50 == 0 {
            // Each is in use; the pause lets the connection's task see it.
            who(&world.until_up(&site).await?).await?;
        } else {
            tokio::task::yield_now().await;
        }
    }
    let (rss, files) = before.context("measured")?;
    let after = held()?;
    ensure!(world.connections(&key) == (1, 0), "tokens reconnect nothing");
    ensure!(
        after.1 == files,
        "file descriptors: {files} before, {} after",
        after.1
    );
    ensure!(after.0 * 20 <= rss * 21, "KiB: {rss} before, {} after", after.0);
    let mut before = None;
    for number in 0..400_usize {
        if number == 100 {
            before = Some(held()?);
        }
        world.apply_kubeconfig(&key, certificates[number % 2].clone());
        wait_for("the swap", LIMIT, async || {
            let swaps = world.connections(&key).1;
            Ok((swaps > u64::try_from(number)?).then_some(()))
        })
        .await?;
    }
    who(&world.until_up(&site).await?).await?;
    let (rss, files) = before.context("measured")?;
    // The last swap's old connection may still be closing.
    wait_for(
        "file descriptors as before",
        Duration::from_secs(40),
        async || Ok((held()?.1 <= files + files / 20).then_some(())),
    )
    .await?;
    let after = held()?;
    ensure!(
        after.0 * 20 <= rss * 21,
        "KiB: {rss} before the swaps, {} after",
        after.0
    );
    world.ended().await
}
