//! The hub as a process: when it refuses to start, when it is ready, how it ends, and that two do not meet.

#[path = "process/memory.rs"]
mod memory;

use std::net::SocketAddr;
use std::process::{Command, Output};

use anyhow::Result;
use futures::future::try_join_all;
use kube::ResourceExt;
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub_harness::{net, wait_for};
use serde_json::json;
use support::api::PLATFORM_KINDS;
use support::programs;
use support::proxy::{Proxy, Stop, kubeconfig};
use support::{LIMIT, Stage, job_name_of};

/// Runs the hub where it is to end at once.
fn run(args: &[&str], env: &[(&str, &str)]) -> Result<Output> {
    let mut command = Command::new(programs::hub());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("RENDERHUB_") {
            command.env_remove(name);
        }
    }
    command
        .env_remove("KUBERNETES_SERVICE_HOST")
        .env("KUBECONFIG", "/no/such/file");
    Ok(command.arg("run").args(args).envs(env.iter().copied()).output()?)
}

/// Asserts that it ended with the code and one line on standard error that says this.
fn assert_refused(output: &Output, code: i32, says: &str) {
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{text}");
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(text.contains(says), "{text} does not say {says}");
    assert!(output.stdout.is_empty());
}

#[test]
fn settings_that_make_no_sense_are_refused_in_one_line() -> Result<()> {
    let table: &[(&[&str], &str)] = &[
        (&["--nonsense"], "--nonsense"),
        (&["--gc-interval=5"], "--gc-interval"),
        (&["--gc-interval=10ms"], "--gc-interval"),
        (&["--grace-period=5d"], "--grace-period"),
        (&["--log-level=verbose"], "--log-level"),
        (&["--log-format=xml"], "--log-format"),
        (&["--admin-address=nowhere"], "--admin-address"),
        (&["--max-active-jobs=many"], "--max-active-jobs"),
        (&["--max-active-jobs=0"], "--max-active-jobs"),
        (
            &["--max-active-jobs=4", "--max-active-jobs-per-namespace=5"],
            "--max-active-jobs-per-namespace",
        ),
        (&["--shard-name=Main"], "--shard-name"),
        // Gone: a hub that an earlier manifest starts says so and does not work on a part only.
        (&["--shard-count=3"], "--shard-count"),
        (&["--watch-namespaces=a,b_c"], "--watch-namespaces"),
        (&["--watch-namespaces=a, rendering"], "--watch-namespaces"),
        (
            &["--renderer-image-pull-policy=Sometimes"],
            "--renderer-image-pull-policy",
        ),
    ];
    for (args, says) in table {
        let mut all = vec!["--rendering-namespace=rendering"];
        all.extend(*args);
        assert_refused(&run(&all, &[])?, 2, says);
    }
    assert_refused(&run(&[], &[])?, 2, "--rendering-namespace");
    assert_refused(
        &run(&["--rendering-namespace=A"], &[])?,
        2,
        "--rendering-namespace",
    );
    Ok(())
}

#[test]
fn the_environment_is_read_and_flags_win() -> Result<()> {
    let rendering = ("RENDERHUB_RENDERING_NAMESPACE", "rendering");
    let bad_shard = ("RENDERHUB_SHARD_NAME", "Main");
    assert_refused(&run(&[], &[rendering, bad_shard])?, 2, "--shard-name");
    let list = ("RENDERHUB_WATCH_NAMESPACES", " a , rendering ");
    assert_refused(&run(&[], &[rendering, list])?, 2, "--watch-namespaces");
    // Legal settings get as far as the cluster.
    let address = "--admin-address=127.0.0.1:0";
    let legal = run(&["--shard-name=main", address], &[rendering, bad_shard])?;
    assert_refused(&legal, 1, "KUBECONFIG");
    Ok(())
}

#[test]
fn a_catalog_that_could_not_be_used_is_refused_in_one_line_also_from_the_environment() -> Result<()> {
    let table: &[(&[&str], &str)] = &[
        (
            &[
                "--pipeline",
                "--no-cross-namespace-refs=false",
                "--catalog-namespaces=a",
            ],
            "--catalog-namespaces needs --watch-namespaces",
        ),
        (
            &["--pipeline", "--watch-namespaces=a", "--catalog-namespaces=b"],
            "--catalog-namespaces needs --no-cross-namespace-refs=false",
        ),
    ];
    let rendering = ("RENDERHUB_RENDERING_NAMESPACE", "rendering");
    for (args, says) in table {
        assert_refused(&run(args, &[rendering])?, 2, says);
    }
    let crossing = [
        "--pipeline",
        "--watch-namespaces=a",
        "--no-cross-namespace-refs=false",
    ];
    let catalogs = ("RENDERHUB_CATALOG_NAMESPACES", " b , rendering ");
    assert_refused(
        &run(&crossing, &[rendering, catalogs])?,
        2,
        "--catalog-namespaces must not contain the rendering namespace",
    );
    let address = "--admin-address=127.0.0.1:0";
    let legal = [&crossing[..], &["--catalog-namespaces=b", address]].concat();
    assert_refused(&run(&legal, &[rendering, catalogs])?, 1, "KUBECONFIG");
    Ok(())
}

/// Holds: I7.
#[test]
fn what_the_machine_does_not_give_is_said_in_one_line() -> Result<()> {
    let rendering = ("RENDERHUB_RENDERING_NAMESPACE", "rendering");
    for name in [
        "KUBE_RS_DEBUG_IMPERSONATE_USER",
        "KUBE_RS_DEBUG_IMPERSONATE_GROUP",
        "KUBE_RS_DEBUG_OVERRIDE_URL",
    ] {
        assert_refused(&run(&[], &[rendering, (name, "https://x")])?, 1, name);
    }
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = format!("--admin-address={}", taken.local_addr()?);
    let config = kubeconfig(taken.local_addr()?)?;
    let output = run(
        &[&address],
        &[rendering, ("KUBECONFIG", config.to_str().unwrap_or_default())],
    )?;
    assert_refused(&output, 1, "admin address");
    Ok(())
}

/// Code of `/livez` and of `/readyz`.
async fn health(stage: &Stage) -> Result<(u16, u16)> {
    let hub = stage.hub();
    Ok((hub.get("/livez").await?.0, hub.get("/readyz").await?.0))
}

#[tokio::test]
async fn a_hub_that_starts_before_its_api_server_waits_for_it() -> Result<()> {
    let mut stage = Stage::without_hub("early", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    // On an address of its own the port stays free.
    let own = net::loopback();
    let free = SocketAddr::new(own, net::free_port(own)?);
    let hub = stage.spawn_hub(&kubeconfig(free)?)?;
    stage.hub = Some(hub);
    wait_for("the hub to ask in vain", LIMIT, async || {
        Ok(stage
            .hub()
            .log()
            .contains("the API server does not answer")
            .then_some(()))
    })
    .await?;
    assert_eq!(health(&stage).await?, (200, 503));
    let _proxy = Proxy::start_at(free, stage.hub_user.client().await?).await?;
    stage.hub().wait_ready().await?;
    assert_eq!(health(&stage).await?, (200, 200));
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_hub_without_rights_on_the_cluster_says_which() -> Result<()> {
    let mut stage = Stage::without_hub("rights", &[]).await?;
    stage.grant(|resource| resource != "namespaces").await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    let status = hub.wait_exit(LIMIT).await?;
    assert_eq!(status.code(), Some(1));
    assert!(hub.log().contains("the namespace kube-system cannot be read"));
    stage.passed();
    Ok(())
}

/// The hub is not ready while one of its sources is closed to it, and becomes so once it opens.
async fn ready_needs(resource: &str) -> Result<()> {
    // A hub that cannot see whether tasks lie where its credentials are would not start at all.
    let mut stage = Stage::without_hub("sync", &["--skip-preflight=tenant-tasks"]).await?;
    stage.blind_to(resource).await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    stage.hub = Some(hub);
    let kind = format!("kind=\"{resource}\"");
    wait_for(&format!("the watch of {resource} to break"), LIMIT, async || {
        let broke = stage.counted("renderhub_watch_errors_total", &[&kind]).await?;
        Ok((broke >= 1).then_some(()))
    })
    .await?;
    assert_eq!(health(&stage).await?, (200, 503), "{resource}");
    stage.grant(|_| true).await?;
    stage.hub().wait_ready().await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn readiness_is_earned_by_every_source() -> Result<()> {
    let of_tasks = ["rendertasks", "jobs", "pods", "secrets"];
    let of_platform = PLATFORM_KINDS.iter().map(String::as_str);
    try_join_all(of_tasks.into_iter().chain(of_platform).map(ready_needs)).await?;
    Ok(())
}

#[tokio::test]
async fn sigterm_finishes_what_is_under_way_and_starts_nothing() -> Result<()> {
    let mut stage = Stage::without_hub("drain", &[]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    proxy.stop_when(Stop::Before, |_, write| write.creates("secrets"));
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    hub.wait_ready().await?;
    let task = stage.submit(stage.task("shop")).await?;
    proxy.stopped().await?;
    let (ended, late) = tokio::try_join!(hub.sigterm(LIMIT), async {
        wait_for("the hub to say that it stops", LIMIT, async || {
            let (code, text) = hub.get("/readyz").await?;
            Ok((code == 503 && text == "stopping").then_some(()))
        })
        .await?;
        let late = stage.submit(stage.task("late")).await?;
        assert!(hub.exit_status().is_none());
        proxy.release();
        Ok(late)
    })?;
    assert_eq!(ended.code(), Some(0), "{}", hub.log());
    // The pass that was under way went on to its end: Secret, Job, status.
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    assert_eq!(stage.objects(&task).await?, (true, true));
    assert!(proxy.writes().iter().all(|w| !w.path.contains("late")));
    assert!(stage.tasks().get("late").await?.finalizers().is_empty());
    assert_eq!(stage.objects(&late).await?, (false, false));
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn what_outlasts_the_grace_period_is_left_to_the_next_start() -> Result<()> {
    let mut stage = Stage::without_hub("grace", &["--grace-period=1s"]).await?;
    stage.make_registry().await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    proxy.stop_when(Stop::Before, |_, write| write.creates("jobs"));
    let hub = stage.spawn_hub(&proxy.kubeconfig()?)?;
    let task = stage.submit(stage.task("shop")).await?;
    proxy.stopped().await?;
    let ended = hub.sigterm(LIMIT).await?;
    assert_eq!(ended.code(), Some(0), "{}", hub.log());
    assert!(hub.log().contains("the next start goes on with it"));
    let written = proxy.writes();
    assert_eq!(
        stage.objects(&task).await?,
        (false, true),
        "{written:#?}\n{}",
        hub.log()
    );
    drop(proxy);
    stage.start_hub().await?;
    stage.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(stage.successes("create jobs", &job_name_of(&task)).await?, 1);
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn two_hubs_in_one_rendering_namespace_leave_each_other_alone() -> Result<()> {
    let first = Stage::new("first").await?;
    let mut second = Stage::without_hub("second", &["--gc-interval=1s"]).await?;
    second.scope.rendering.clone_from(&first.scope.rendering);
    second.give_rights(&[]).await?;
    second
        .put_registry(json!({"pushSecretRef": {"name": "push"}}))
        .await?;
    let task = first.submit(first.task("shop")).await?;
    first
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    second.start_hub().await?;
    second.barrier().await?;
    wait_for("the second hub to sweep a few times", LIMIT, async || {
        let labels = ["verb=\"list\"", "resource=\"secrets\""];
        let sweeps = second.counted("renderhub_api_calls_total", &labels).await?;
        Ok((sweeps >= 4).then_some(()))
    })
    .await?;
    let name = job_name_of(&task);
    assert_eq!(first.objects(&task).await?, (true, true));
    let touched: Vec<_> = second.requests().await?;
    let touched: Vec<_> = touched
        .iter()
        .filter(|e| e.name == name || e.namespace == first.scope.tenant)
        .map(|e| (e.action(), &e.name))
        .collect();
    assert!(touched.is_empty(), "{touched:?}");
    first.complete(&task).await?;
    first
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let strayed: Vec<_> = first.requests().await?;
    assert!(strayed.iter().all(|e| e.namespace != second.scope.tenant));
    first.passed();
    second.passed();
    Ok(())
}
