//! From nothing to two charts in a registry: a cluster with a real node, a registry with a password, renderhub's own
//! chart installed with helm, and a tenant who asks for two charts and cannot read the credential they are pushed with.
//!
//! `make quickstart` builds what it needs and runs it; with `KEEP=1` it leaves everything running, with `REMOTE=1` the same
//! tenant renders on a second cluster as well, which then dies and comes back. With `FLUX=1` the tenant writes Releases and a Target
//! instead of tasks, and Flux on a second cluster installs what the hub makes of them. With `OLM=1` nothing is rendered: OLM installs an
//! operator whose image needs a password, which it gets from its catalog.

mod charts;
mod flux;
mod olm;
mod platform;
mod remote;
mod tenant;

use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use anyhow::{Result, anyhow, ensure};
use renderhub_harness::{Tools, rundir};
use tokio::signal::unix::{SignalKind, signal};

use flux::Shop;
use olm::Operators;
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
    let chosen = ["FLUX", "REMOTE", "OLM"].into_iter().filter(|name| is_set(name));
    ensure!(
        chosen.count() <= 1,
        "FLUX=1, REMOTE=1 and OLM=1 are different things to see: choose one"
    );
    let begin = Instant::now();
    step("programs of Kubernetes (built once, in about ten minutes, then reused)");
    if is_set("FLUX") {
        Tools::ensure()?;
    } else {
        Tools::ensure_without_flux()?;
    }
    let platform = Platform::start().await?;
    let other = match show(&platform).await {
        Ok(other) => other,
        Err(error) => {
            eprintln!("{}", platform.picture().await?);
            return Err(error);
        }
    };
    let outcome = match other {
        Other::Shop(_) => "the app runs what its Release and its Target say",
        Other::Operators(_) => {
            "the operator runs, because its image is pulled with the Secret of its catalog"
        }
        _ => "the charts are what was asked for",
    };
    println!("\nDone in {} s: {outcome}.", begin.elapsed().as_secs());
    if is_set("KEEP") {
        // Before anything is said of it: a user can end it as soon as the text is there.
        IS_KEPT.store(true, Ordering::SeqCst);
        say_how_to_look_around(&platform, &other)?;
        return std::future::pending().await;
    }
    println!("Everything is removed again; KEEP=1 make quickstart leaves it running.");
    Ok(())
}

fn is_set(variable: &str) -> bool {
    std::env::var_os(variable).is_some_and(|value| !value.is_empty() && value != "0")
}

/// The second cluster, if one was asked for.
enum Other {
    None,
    /// It renders.
    Edge(Box<Edge>),
    /// Flux installs on it.
    Shop(Box<Shop>),
    /// None: OLM installs an operator on the first one.
    Operators(#[expect(dead_code, reason = "OLM ends when it is dropped")] Box<Operators>),
}

/// From a Release to a pod on a second cluster.
async fn show_pipeline(platform: &Platform) -> Result<Other> {
    platform.install(&["--set", "pipeline.enabled=true"]).await?;
    let shop = Shop::start().await?;

    step("platform: a registry for team-a, its credential in the rendering namespace");
    platform.add_registry().await?;
    let tenant = Tenant::new(platform).await?;
    shop.show(platform, &tenant).await?;
    Ok(Other::Shop(Box::new(shop)))
}

/// From a Subscription to an operator that runs.
async fn show_operators(platform: &Platform) -> Result<Other> {
    let operators = Operators::start(platform).await?;
    let values = Operators::values();
    let words: Vec<&str> = values
        .iter()
        .flat_map(|value| ["--set", value.as_str()])
        .collect();
    platform.install(&words).await?;
    operators.show(platform).await?;
    Ok(Other::Operators(Box::new(operators)))
}

/// What the platform does, what the tenant does, and what comes of it.
async fn show(platform: &Platform) -> Result<Other> {
    if is_set("FLUX") {
        return show_pipeline(platform).await;
    }
    if is_set("OLM") {
        return show_operators(platform).await;
    }
    platform.install(&[]).await?;

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
        return Ok(Other::None);
    }
    let edge = Edge::start().await?;
    edge.show(platform, &tenant).await?;
    Ok(Other::Edge(Box::new(edge)))
}

/// Everything is left running until the user ends it.
fn say_how_to_look_around(platform: &Platform, other: &Other) -> Result<()> {
    let kubectl = Tools::path("kubectl")?;
    println!("\nLook around:");
    println!("  export KUBECONFIG={}", platform.kubeconfig().display());
    println!("  alias kubectl={}", kubectl.display());
    if !matches!(other, Other::Operators(_)) {
        println!("  kubectl get rendertasks --all-namespaces");
    }
    match other {
        Other::Operators(_) => {
            println!("  kubectl --namespace renderhub-system logs deployment/renderhub-pull-secrets");
            println!("  kubectl --namespace operators get secrets,serviceaccounts,pods");
        }
        Other::Shop(_) => println!("  kubectl --namespace team-a describe target edge"),
        _ => println!("  kubectl --namespace team-a describe rendertask web"),
    }
    println!("  kubectl --namespace renderhub-system logs deployment/renderhub");
    match other {
        Other::None | Other::Operators(_) => {}
        Other::Edge(edge) => {
            println!("  kubectl get renderclusters");
            let kubeconfig = edge.kubeconfig()?;
            println!(
                "  kubectl --kubeconfig {} get jobs --all-namespaces",
                kubeconfig.display()
            );
        }
        Other::Shop(shop) => {
            let kubeconfig = shop.kubeconfig()?;
            let kinds = "ocirepositories,helmreleases,pods";
            println!(
                "  kubectl --kubeconfig {} get {kinds} --all-namespaces",
                kubeconfig.display()
            );
        }
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
