//! A real node: containerd, kubelet and kube-proxy in process, mount and network namespaces of their own.
//!
//! Whatever ends the process that started the node (a panic, Ctrl-C, SIGKILL), the kernel ends process 1 of the node,
//! and with it every shim and container, every mount, bridge and packet filter rule. The cleaner of [`crate::rundir`]
//! then removes the node's directory and its control groups. Nodes need root; see [`crate::lane`] for their network.

mod image;
mod pulls;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Node as NodeObject;
use kube::Api;
use serde_json::{Value, json};

use crate::control_plane::ControlPlane;
use crate::image::BuiltImage;
use crate::lane::Lane;
use crate::process::{Process, run};
use crate::progress::Progress;
use crate::{Tools, rundir, wait_for};

/// How long a node may take to become Ready on a busy machine; 5 seconds is normal.
const READY_LIMIT: Duration = Duration::from_secs(120);
/// Its name in the cluster.
const NAME: &str = "node-1";
const INIT: &str = include_str!("node/init.sh");

/// A running node; it ends when it is dropped.
#[derive(Debug)]
pub struct Node {
    process: Process,
    dir: PathBuf,
    cgroup: String,
    host: IpAddr,
    address: IpAddr,
    network: PathBuf,
}

impl Node {
    /// An image that every node has: a static busybox whose entrypoint sleeps, run as user 65532. Use it with a command
    /// such as `["/bin/busybox", "sh", "-c", "…"]` and `imagePullPolicy: Never`.
    pub const TEST_IMAGE: &'static str = "renderhub.test/busybox:1";

    /// The static busybox of that image, to put it into another one.
    ///
    /// # Errors
    /// If the machine has none.
    pub fn busybox() -> Result<&'static Path> {
        image::busybox()
    }

    /// The image of that name as files, to push it to a registry.
    ///
    /// # Errors
    /// If the machine has no busybox.
    pub fn test_image() -> Result<BuiltImage> {
        image::write(Self::TEST_IMAGE, &rundir::fresh("images")?)
    }

    /// Starts a node of `plane` and waits until it is Ready. The control plane must have been made with
    /// [`crate::control_plane::Builder::with_node_network`].
    ///
    /// # Errors
    /// If this is not root, a program is missing or the node does not get Ready.
    pub async fn start(plane: &ControlPlane) -> Result<Self> {
        let _progress = Progress::start("starting a node");
        let lane = plane
            .lane()
            .context("no network for a node: start the control plane `with_node_network`")?;
        let dir = rundir::fresh("node")?;
        let cgroup = rundir::cgroup_name()?;
        rundir::make_cgroups(&cgroup)?;
        let files = Files {
            plane,
            dir: &dir,
            cgroup: &cgroup,
        };
        files.write()?;
        let process = Process::spawn("the node", &init(lane, &dir)?, &dir.join("node.log"))?;
        let node = Self {
            process,
            dir,
            cgroup,
            host: lane.host(),
            address: lane.node(),
            network: lane.namespace(),
        };
        node.until_ready(plane).await?;
        Ok(node)
    }

    async fn until_ready(&self, plane: &ControlPlane) -> Result<()> {
        let nodes: Api<NodeObject> = Api::all(plane.admin().client().await?);
        let waited = wait_for("the node to be Ready", READY_LIMIT, async || {
            if let Err(ended) = self.process.check_running() {
                return Ok(Some(Err(ended)));
            }
            let status = nodes.get(NAME).await?.status.unwrap_or_default();
            let ready = status
                .conditions
                .unwrap_or_default()
                .iter()
                .any(|c| c.type_ == "Ready" && c.status == "True");
            Ok(ready.then_some(Ok(())))
        });
        waited.await.with_context(|| self.log_tail(30))?
    }

    /// This machine's address as pods see it: bind a registry or any other server of a test here.
    #[must_use]
    pub fn registry_address(&self) -> IpAddr {
        self.host
    }

    /// The node's own address, where its kubelet listens.
    #[must_use]
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// Brings an image in from a tar of an OCI layout; its name is the annotation `io.containerd.image.name`.
    ///
    /// # Errors
    /// If containerd refuses it.
    pub fn import_image(&self, tar: &Path) -> Result<()> {
        let _progress = Progress::start(format!("importing {}", tar.display()));
        run(self.ctr().args(["images", "import"]).arg(tar)).map(drop)
    }

    /// Kills what runs in a container with SIGKILL, by the id in its pod's status: `containerd://…`.
    ///
    /// # Errors
    /// If it does not run.
    pub fn kill_container(&self, id: &str) -> Result<()> {
        let id = id.trim_start_matches("containerd://");
        run(self.ctr().args(["tasks", "kill", "--signal", "SIGKILL", id])).map(drop)
    }

    /// The client of the node's containerd.
    fn ctr(&self) -> Command {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.dir.join("containerd.sock"));
        command.args(["--namespace", "k8s.io"]);
        command
    }

    /// The names of all images on the node.
    ///
    /// # Errors
    /// If containerd does not answer.
    pub fn images(&self) -> Result<Vec<String>> {
        let listed = run(self.ctr().args(["images", "list", "--quiet"]))?;
        Ok(listed.lines().map(str::to_owned).collect())
    }

    /// Where the kubelet keeps the logs of all containers, to scan them.
    #[must_use]
    pub fn pod_logs(&self) -> PathBuf {
        self.dir.join("pods")
    }

    /// A path on the node as this machine sees it, e.g. `/run` or the kubelet's [`Node::kubelet_root`].
    ///
    /// # Errors
    /// If the node has ended.
    pub fn path_on_node(&self, path: &Path) -> Result<PathBuf> {
        let unshare = self.process.pid();
        let children = std::fs::read_to_string(format!("/proc/{unshare}/task/{unshare}/children"))?;
        let init = children.split_whitespace().next().context("the node has ended")?;
        Ok(Path::new("/proc")
            .join(init)
            .join("root")
            .join(path.strip_prefix("/").unwrap_or(path)))
    }

    /// The kubelet's directory on the node, which holds the volumes of all pods.
    #[must_use]
    pub fn kubelet_root(&self) -> PathBuf {
        self.dir.join("state/kubelet")
    }

    /// A command that runs in the node's network: what it binds or adds there is gone with the node.
    pub fn in_network(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net={}", self.network.display()))
            .arg("--")
            .arg(program);
        command
    }

    /// The name of the control group below which all its containers run.
    #[must_use]
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// The process that ends everything on the node when it ends.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    fn log_tail(&self, lines: usize) -> String {
        let tail = |name: &str| {
            let log = std::fs::read(self.dir.join(name)).unwrap_or_default();
            let log = String::from_utf8_lossy(&log).into_owned();
            let all: Vec<&str> = log.lines().collect();
            format!("-- {name}\n{}", all[all.len().saturating_sub(lines)..].join("\n"))
        };
        let logs = ["node.log", "containerd.log", "kubelet.log", "kube-proxy.log"];
        logs.map(tail).join("\n")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.process.kill();
        // The kernel takes the namespaces down on its own time; the cleaner finishes what is busy until then.
        for _ in 0..100 {
            rundir::remove_cgroups(&self.cgroup);
            let _ = std::fs::remove_dir_all(&self.dir);
            if !self.dir.exists() && !rundir::has_cgroups(&self.cgroup) {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// The command that becomes process 1 of the node.
fn init(lane: &Lane, dir: &Path) -> Result<Command> {
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    let mut command = Command::new("nsenter");
    command
        .arg(format!("--net={}", lane.namespace().display()))
        .args(["--", "unshare"])
        .args(namespaces)
        .args(["--", "sh", "-c", INIT, "renderhub-node"])
        .arg(dir)
        .env("KUBELET", Tools::path("kubelet")?)
        .env("KUBE_PROXY", Tools::path("kube-proxy")?)
        .env("NODE_NAME", NAME)
        .env("NODE_IP", lane.node().to_string());
    Ok(command)
}

/// The configuration of the node's programs.
struct Files<'a> {
    plane: &'a ControlPlane,
    dir: &'a Path,
    cgroup: &'a str,
}

impl Files<'_> {
    fn write(&self) -> Result<()> {
        let lane = self.plane.lane().context("no network for a node")?;
        std::fs::create_dir(self.dir.join("cni"))?;
        std::fs::create_dir(self.dir.join("state"))?;
        std::fs::create_dir(self.dir.join(pulls::HOSTS))?;
        image::write(Node::TEST_IMAGE, self.dir)?;
        self.file("cni/pods.conflist", &cni(&lane.pods()).to_string())?;
        self.file("containerd.toml", &self.containerd())?;
        let serving = self.plane.authority().server(&[NAME], &[lane.node()])?;
        self.file("ca.pem", self.plane.ca_pem())?;
        self.file("kubelet.pem", &serving.cert)?;
        self.file("kubelet.key", &serving.key)?;
        self.file("kubelet.yaml", &self.kubelet(lane.node()).to_string())?;
        let kubelet = self
            .plane
            .user(&format!("system:node:{NAME}"), &["system:nodes"])?;
        let proxy = self.plane.user("system:kube-proxy", &[])?;
        for (identity, name) in [(kubelet, "kubelet.kubeconfig"), (proxy, "proxy.kubeconfig")] {
            std::fs::rename(identity.kubeconfig()?, self.dir.join(name))?;
        }
        Ok(())
    }

    fn file(&self, name: &str, content: &str) -> Result<()> {
        rundir::write_private(&self.dir.join(name), content.as_bytes())
    }

    fn path(&self, name: &str) -> String {
        self.dir.join(name).display().to_string()
    }

    fn containerd(&self) -> String {
        format!(
            r#"version = 2
root = "{root}"
state = "/run/containerd"
[grpc]
address = "{socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{image}"
# A container may not lower its score below ours, which fails where we may not lower it ourselves.
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".registry]
config_path = "{hosts}"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{cni}"
[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"
"#,
            root = self.path("state/containerd"),
            socket = self.path("containerd.sock"),
            image = Node::TEST_IMAGE,
            cni = self.path("cni"),
            hosts = self.path(pulls::HOSTS),
        )
    }

    fn kubelet(&self, address: IpAddr) -> Value {
        json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": address,
            "authentication": {
                "anonymous": { "enabled": false },
                "webhook": { "enabled": true },
                "x509": { "clientCAFile": self.path("ca.pem") },
            },
            "authorization": { "mode": "Webhook" },
            "tlsCertFile": self.path("kubelet.pem"),
            "tlsPrivateKeyFile": self.path("kubelet.key"),
            "containerRuntimeEndpoint": format!("unix://{}", self.path("containerd.sock")),
            "podLogsDir": self.path("pods"),
            "failCgroupV1": false,
            "failSwapOn": false,
            "cgroupDriver": "cgroupfs",
            // A root of its own: kubelets side by side would remove each other's groups.
            "cgroupRoot": format!("/{}", self.cgroup),
            // As any node should have it; the default is none.
            "podPidsLimit": 128,
            // How often the disk that a pod uses is measured; the default of a minute is long for a test.
            "volumeStatsAggPeriod": "5s",
            "enforceNodeAllocatable": [],
            "makeIPTablesUtilChains": false,
            "oomScoreAdj": 0,
            // There is no DNS: addresses are IPs or hostAliases.
            "resolvConf": "",
            "evictionHard": { "memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%" },
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
        })
    }
}

fn cni(pods: &str) -> Value {
    json!({
        "cniVersion": "0.4.0",
        "name": "pods",
        "plugins": [{
            "type": "bridge",
            "bridge": "pods0",
            "isGateway": true,
            "ipMasq": false,
            "hairpinMode": true,
            "ipam": {
                "type": "host-local",
                "dataDir": "/run/cni",
                "ranges": [[{ "subnet": pods }]],
                // No default route: packets for other addresses than a test's servers are not sent at all. The second is where
                // clouds keep their metadata service; the node has no route to it, only a test may put a stand-in on it.
                "routes": [{ "dst": "198.18.0.0/15" }, { "dst": "169.254.169.254/32" }],
            },
        }],
    })
}
