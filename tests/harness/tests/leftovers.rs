//! Promise of the harness: a world whose process is killed with SIGKILL, or ends by a panic or Ctrl-C, leaves nothing.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::PostParams;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, Config};
use renderhub_harness::{Node, wait_for};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

const LIMIT: Duration = Duration::from_secs(60);

/// A `renderhub-world` of its own, with its output.
struct World {
    child: Child,
    kubeconfig: PathBuf,
    /// The file with the number of its bridge, which no other bridge gets.
    link: PathBuf,
    /// That number.
    index: String,
    directory: PathBuf,
}

impl World {
    fn start() -> Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_renderhub-world"))
            .stdout(Stdio::piped())
            .spawn()?;
        let output = BufReader::new(child.stdout.take().context("no output")?);
        let mut said = std::collections::BTreeMap::new();
        for line in output.lines() {
            let line = line?;
            if line == "ready" {
                break;
            }
            let (key, value) = line.split_once(' ').context("a line of key and value")?;
            said.insert(key.to_owned(), value.to_owned());
        }
        let get = |key: &str| {
            said.get(key)
                .cloned()
                .with_context(|| format!("the world did not say its {key}"))
        };
        let lane = get("registry")?
            .split('.')
            .nth(2)
            .context("an address")?
            .to_owned();
        let link = PathBuf::from(format!("/sys/class/net/renderhub{lane}/ifindex"));
        let index = std::fs::read_to_string(&link)?;
        Ok(Self {
            kubeconfig: get("kubeconfig")?.into(),
            directory: get("directory")?.into(),
            link,
            index,
            child,
        })
    }

    async fn client(&self) -> Result<Client> {
        let kubeconfig: Kubeconfig = serde_json::from_str(&std::fs::read_to_string(&self.kubeconfig)?)?;
        Ok(Client::try_from(
            Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?,
        )?)
    }

    /// Starts a pod that runs until it is killed.
    async fn run_a_pod(&self) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.client().await?, "default");
        let pod = json!({ "metadata": { "name": "sleeper" }, "spec": { "containers": [{
            "name": "sleeper", "image": Node::TEST_IMAGE, "imagePullPolicy": "Never",
        }]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?)
            .await?;
        wait_for("the pod to run", LIMIT, async || {
            let phase = pods.get("sleeper").await?.status.and_then(|status| status.phase);
            Ok((phase.as_deref() == Some("Running")).then_some(()))
        })
        .await
    }

    fn control_groups(&self) -> Vec<PathBuf> {
        let name = self
            .directory
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        let mut found = Vec::new();
        for hierarchy in std::fs::read_dir("/sys/fs/cgroup")
            .into_iter()
            .flatten()
            .flatten()
        {
            let inside = std::fs::read_dir(hierarchy.path())
                .into_iter()
                .flatten()
                .flatten();
            let groups = inside.chain([hierarchy]).map(|entry| entry.path());
            found.extend(groups.filter(|path| path.to_string_lossy().contains(&name)));
        }
        found
    }

    /// Everything that is left of this world, as texts; empty when nothing is left.
    fn left(&self, processes: &BTreeSet<Process>) -> Vec<String> {
        let mut left: Vec<String> = processes
            .iter()
            .filter(|p| p.is_alive())
            .map(|p| format!("process {} ({})", p.pid, p.name))
            .collect();
        left.extend(
            self.control_groups()
                .iter()
                .map(|path| format!("control group {}", path.display())),
        );
        let mounts = std::fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let directory = self.directory.to_string_lossy().into_owned();
        left.extend(
            mounts
                .lines()
                .filter(|line| line.contains(&directory))
                .map(|line| format!("mount {line}")),
        );
        // Its name may be that of another world's bridge by now.
        let is_there = std::fs::read_to_string(&self.link).is_ok_and(|index| index == self.index);
        left.extend(is_there.then(|| self.link.display().to_string()));
        left.extend(
            self.directory
                .exists()
                .then(|| self.directory.display().to_string()),
        );
        left
    }

    async fn until_nothing_is_left(&self, processes: &BTreeSet<Process>) -> Result<()> {
        wait_for("the world to be gone", LIMIT, async || {
            let left = self.left(processes);
            ensure!(left.is_empty(), "left: {}", left.join(", "));
            Ok(Some(()))
        })
        .await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A process, distinguished from a later one with the same id by its start time.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Process {
    pid: u32,
    started: String,
    name: String,
}

impl Process {
    fn read(pid: u32) -> Option<Self> {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        let (head, tail) = stat.rsplit_once(')')?;
        let name = head.split_once('(')?.1.to_owned();
        let started = tail.split_whitespace().nth(19)?.to_owned();
        Some(Self { pid, started, name })
    }

    fn is_alive(&self) -> bool {
        Self::read(self.pid).is_some_and(|now| now.started == self.started)
    }
}

/// The process and all below it, those in other process namespaces too.
fn tree(pid: u32) -> BTreeSet<Process> {
    let mut found: BTreeSet<Process> = Process::read(pid).into_iter().collect();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task"))
        .into_iter()
        .flatten()
        .flatten();
    for thread in threads {
        let children = std::fs::read_to_string(thread.path().join("children")).unwrap_or_default();
        found.extend(
            children
                .split_whitespace()
                .filter_map(|child| child.parse().ok())
                .flat_map(tree),
        );
    }
    found
}

fn below(world: &World) -> Result<BTreeSet<Process>> {
    let processes = tree(world.child.id());
    let names: BTreeSet<&str> = processes.iter().map(|process| process.name.as_str()).collect();
    for expected in [
        "etcd",
        "kube-apiserver",
        "registry",
        "containerd",
        "containerd-shim",
        "kubelet",
        "busybox",
    ] {
        ensure!(names.contains(expected), "no {expected} among {names:?}");
    }
    ensure!(
        world.link.exists() && world.directory.exists(),
        "the world is there"
    );
    let pod = processes
        .iter()
        .find(|process| process.name == "busybox")
        .context("the pod's process")?;
    let groups = std::fs::read_to_string(format!("/proc/{}/cgroup", pod.pid))?;
    let directory = world
        .directory
        .file_name()
        .unwrap_or_default()
        .to_string_lossy()
        .into_owned();
    ensure!(
        groups.contains(&directory),
        "the pod runs in the world's own control groups: {groups}"
    );
    Ok(processes)
}

#[tokio::test]
async fn nothing_survives_a_sigkill() -> Result<()> {
    let mut world = World::start()?;
    world.run_a_pod().await?;
    let processes = below(&world)?;
    world.child.kill()?;
    world.child.wait()?;
    world.until_nothing_is_left(&processes).await
}

#[tokio::test]
async fn nothing_survives_ctrl_c() -> Result<()> {
    let mut world = World::start()?;
    world.run_a_pod().await?;
    let processes = below(&world)?;
    let pid = Pid::from_raw(i32::try_from(world.child.id())?).context("a process id")?;
    kill_process(pid, Signal::INT)?;
    let status = world.child.wait()?;
    assert!(status.success(), "an orderly end: {status}");
    world.until_nothing_is_left(&processes).await
}
