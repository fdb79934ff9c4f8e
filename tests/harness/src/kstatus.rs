//! What Flux makes of the status of an object, by the library that it does so with.

use std::process::Stdio;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::Tools;

/// `InProgress`, `Current`, `Failed` or `Terminating`.
///
/// # Errors
/// If the program cannot be built, or the library refuses the object.
pub async fn of(object: &impl Serialize) -> Result<String> {
    let mut command = Command::new(Tools::path("kstatus")?);
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true);
    let mut kstatus = command.spawn().context("cannot start kstatus")?;
    let mut stdin = kstatus.stdin.take().context("kstatus reads nothing")?;
    stdin.write_all(&serde_json::to_vec(object)?).await?;
    drop(stdin);
    let output = kstatus.wait_with_output().await?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    ensure!(output.status.success(), "kstatus failed: {said}");
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
