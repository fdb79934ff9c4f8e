//! Flux on a cluster: source-controller and helm-controller as processes of their own beside it.

use std::fs;
use std::net::SocketAddr;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use crate::process::Process;
use crate::progress::Progress;
use crate::{ControlPlane, Tools, net, rundir, wait_for};

/// Where Flux's own objects are.
pub const NAMESPACE: &str = "flux-system";
/// Its controllers.
const PROGRAMS: [&str; 2] = ["source-controller", "helm-controller"];
/// How long a controller may take to listen, on a machine that is busy with other tests.
const READY_LIMIT: Duration = Duration::from_secs(90);

/// A running Flux; it ends when it is dropped.
#[derive(Debug)]
pub struct Flux {
    _source: Process,
    _helm: Process,
}

impl Flux {
    /// Makes Flux's kinds and starts both controllers as the administrator.
    ///
    /// # Errors
    /// If a program cannot be built, or does not start.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let programs = PROGRAMS.map(Tools::path);
        let _progress = Progress::start("starting Flux");
        let [source, helm] = programs;
        let (source, helm) = (source?, helm?);
        make_kinds(plane).await?;
        let ip = net::loopback();
        let [storage, metrics, health, helm_metrics, helm_health] =
            net::free_ports::<5>(ip)?.map(|port| SocketAddr::new(ip, port));
        let dir = rundir::fresh("flux")?;
        let source = controller(plane, "source-controller", &source, &dir, |command| {
            command
                .arg(format!("--storage-path={}", dir.display()))
                .arg(format!("--storage-addr={storage}"))
                .arg(format!("--storage-adv-addr={storage}"))
                .arg(format!("--metrics-addr={metrics}"))
                .arg(format!("--health-addr={health}"));
        })?;
        let helm = controller(plane, "helm-controller", &helm, &dir, |command| {
            command
                .arg(format!("--metrics-addr={helm_metrics}"))
                .arg(format!("--health-addr={helm_health}"));
        })?;
        until_listening(&source, storage).await?;
        until_listening(&helm, helm_health).await?;
        Ok(Self {
            _source: source,
            _helm: helm,
        })
    }
}

/// Makes Flux's kinds, and the namespace of its own objects.
///
/// # Errors
/// If Flux cannot be built, or the API server refuses a kind.
pub async fn make_kinds(plane: &ControlPlane) -> Result<()> {
    for program in PROGRAMS.map(Tools::path) {
        let kinds = program?.with_file_name("crds");
        let mut files: Vec<_> = fs::read_dir(&kinds)?.collect::<std::io::Result<_>>()?;
        files.sort_by_key(fs::DirEntry::path);
        for file in files {
            plane.apply_file(&file.path()).await?;
        }
    }
    let namespace = format!("apiVersion: v1\nkind: Namespace\nmetadata: {{name: {NAMESPACE}}}\n");
    plane.apply_yaml(&namespace).await?;
    Ok(())
}

fn controller(
    plane: &ControlPlane,
    name: &str,
    program: &std::path::Path,
    dir: &std::path::Path,
    arguments: impl FnOnce(&mut Command),
) -> Result<Process> {
    let mut command = Command::new(program);
    command
        .env("KUBECONFIG", plane.admin().kubeconfig()?)
        .env("RUNTIME_NAMESPACE", NAMESPACE)
        .args([
            "--enable-leader-election=false",
            "--events-addr=",
            "--watch-all-namespaces",
        ]);
    arguments(&mut command);
    Process::spawn(name, &command, &dir.join(format!("{name}.log")))
}

async fn until_listening(process: &Process, address: SocketAddr) -> Result<()> {
    let what = format!("{} to listen", process.name());
    let waited = wait_for(&what, READY_LIMIT, async || {
        if let Err(ended) = process.check_running() {
            return Ok(Some(Err(ended)));
        }
        Ok(net::accepts(address).then_some(Ok(())))
    });
    waited.await?.context("Flux does not run")
}
