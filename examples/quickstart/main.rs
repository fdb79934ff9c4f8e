//! From nothing to two charts in a registry: a cluster with a real node, a registry with a password, renderhub's own
//! chart installed with helm, and a tenant who asks for two charts and cannot read the credential they are pushed with.
//!
//! `make quickstart` builds what it needs and runs it; with `KEEP=1` it leaves everything running, with `REMOTE=1` the same
//! tenant renders on a second cluster as well, which then dies and comes back.

mod charts;
mod platform;
mod remote;
mod tenant;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow};
use renderhub_harness::{Tools, rundir};
use tokio::signal::unix::{SignalKind, signal};

use platform::Platform;
use remote::Edge;
use tenant::Tenant;

#[tokio::main]
async fn main() -> ExitCode {
    // Whatever is running is dropped, and with it the whole world, when the user has seen enough.
    let outcome = tokio::select! {
        outcome = run() => outcome,
        stopped = stop() => stopped.and_then(|()| ended()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("quickstart: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Whether everything was shown, and is only left running.
static IS_KEPT: AtomicBool = AtomicBool::new(false);

/// What the end by a signal is: the way to end what is left running, and an interruption before.
fn ended() -> Result<()> {
    if IS_KEPT.load(Ordering::SeqCst) {
        Ok(())
    } else {
        Err(anyhow!("interrupted"))
    }
}

async fn run() -> Result<()> {
    let begin = Instant::now();
    step("programs of Kubernetes (built once, in about ten minutes, then reused)");
    Tools::ensure_without_flux()?;
    let platform = Platform::start().await?;
    let edge = match show(&platform).await {
        Ok(edge) => edge,
        Err(error) => {
            eprintln!("{}", platform.picture().await?);
            return Err(error);
        }
    };
    println!(
        "\nDone in {} s: the charts are what was asked for.",
        begin.elapsed().as_secs()
    );
    if is_set("KEEP") {
        // Before anything is said of it: a user can end it as soon as the text is there.
        IS_KEPT.store(true, Ordering::SeqCst);
        say_how_to_look_around(&platform, edge.as_ref())?;
        return std::future::pending().await;
    }
    println!("Everything is removed again; KEEP=1 make quickstart leaves it running.");
    Ok(())
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// What the platform does, what the tenant does, and what comes of it; the second cluster, if one was asked for.
async fn show(platform: &Platform) -> Result<Option<Edge>> {
    platform.install().await?;

    step("platform: a registry for team-a, its credential in the rendering namespace");
    platform.add_registry().await?;

    step("tenant team-a: two RenderTasks");
    let tenant = Tenant::new(platform).await?;
    tenant.submit().await?;

    step("charts, pulled back with helm");
    let into = rundir::fresh("charts")?;
    let release = charts::pull(platform, "release-web", "1.0.0", &into).await?;
    charts::check_release(platform.helm(), &release).await?;
    charts::print_tree(&release)?;
    let bootstrap = charts::pull(platform, "bootstrap-shop", "0.1.0", &into).await?;
    charts::check_bootstrap(platform.helm(), &bootstrap).await?;

    step("may the tenant read the credential?");
    tenant.try_to_read_the_credential().await?;
    if !is_set("REMOTE") {
        return Ok(None);
    }
    let edge = Edge::start().await?;
    edge.show(platform, &tenant).await?;
    Ok(Some(edge))
}

/// Everything is left running until the user ends it.
fn say_how_to_look_around(platform: &Platform, edge: Option<&Edge>) -> Result<()> {
    let kubectl = Tools::path("kubectl")?;
    println!("\nLook around:");
    println!("  export KUBECONFIG={}", platform.kubeconfig().display());
    println!("  alias kubectl={}", kubectl.display());
    println!("  kubectl get rendertasks --all-namespaces");
    println!("  kubectl --namespace team-a describe rendertask web");
    println!("  kubectl --namespace renderhub-system logs deployment/renderhub");
    if let Some(edge) = edge {
        println!("  kubectl get renderclusters");
        println!(
            "  kubectl --kubeconfig {} get jobs --all-namespaces",
            edge.kubeconfig()?.display()
        );
    }
    println!(
        "\nEnd it with Ctrl-C here, or from elsewhere: kill {}",
        std::process::id()
    );
    Ok(())
}

/// Until Ctrl-C or SIGTERM.
async fn stop() -> Result<()> {
    let (mut interrupt, mut terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
    tokio::select! {
        _ = interrupt.recv() => {}
        _ = terminate.recv() => {}
    }
    Ok(())
}

fn step(what: &str) {
    println!("\n==> {what}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_running_ends_with_success_and_what_is_cut_short_does_not() {
        assert!(ended().is_err());
        IS_KEPT.store(true, Ordering::SeqCst);
        assert!(ended().is_ok());
    }
}
