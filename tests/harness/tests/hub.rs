//! Promises of the harness: a program it starts has its output read, and is stopped and killed as a test asks.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use renderhub_harness::{Hub, wait_for};

const LIMIT: Duration = Duration::from_secs(30);

/// A stand-in for the hub: the harness only knows its command line, its signals and its admin server.
fn program(dir: &Path, script: &str) -> Result<PathBuf> {
    let path = dir.join("program");
    std::fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

#[tokio::test]
async fn a_hub_that_refuses_its_settings_is_noticed_at_once() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let refuse = program(dir.path(), r#"echo "refused: $*, config $KUBECONFIG"; exit 3"#)?;
    let hub = Hub::spawn(&refuse, Path::new("/nonexistent"), &["--shard-name=s1"])?;
    let error = format!("{:#}", hub.wait_ready().await.unwrap_err());
    assert!(error.contains("refused: run --admin-address=127."), "{error}");
    assert!(error.contains("--shard-name=s1, config /nonexistent"), "{error}");
    assert_eq!(hub.wait_exit(LIMIT).await?.code(), Some(3));
    Ok(())
}

#[tokio::test]
async fn a_hub_is_asked_to_end_and_killed_when_dropped() -> Result<()> {
    let dir = tempfile::tempdir()?;
    let patient = program(
        dir.path(),
        "trap 'echo drained; exit 0' TERM; echo up; while :; do sleep 0.05; done",
    )?;
    let no_args: [&str; 0] = [];
    let hub = Hub::spawn(&patient, Path::new("/nonexistent"), &no_args)?;
    wait_for("the program to be up", LIMIT, async || {
        Ok(hub.log().contains("up").then_some(()))
    })
    .await?;
    assert!(hub.sigterm(LIMIT).await?.success());
    assert!(hub.log().ends_with("drained\n"));
    assert!(hub.sigterm(LIMIT).await.is_err(), "it has ended before");

    let hub = Hub::spawn(&patient, Path::new("/nonexistent"), &no_args)?;
    let pid = hub.pid();
    assert!(hub.exit_status().is_none());
    drop(hub);
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    Ok(())
}
