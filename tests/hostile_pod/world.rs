//! The world of these tests: the chart installed on a real node, a registry, and renderer classes in hostile hands.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::labels::TASK_UID;
use renderhub::api::{RenderTask, RenderTaskStatus};
use renderhub_harness::commands::kubectl;
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::image::Image;
use renderhub_harness::process::{Process, run};
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{Canaries, ControlPlane, Node, apply, rundir, wait_for};
use serde_json::{Value, json};
use support::programs;
use tokio::sync::OnceCell;

pub const HUB: &str = "renderhub-system";
pub const RENDERING: &str = "renderhub-rendering";
pub const TENANT: &str = "team-a";
/// Longest that anything here may take.
pub const LIMIT: Duration = Duration::from_secs(240);
/// The credential of the stand-in for the metadata service.
pub const CLOUD_CREDENTIAL: &str = "canary-of-the-cloud";
/// Where clouds have it.
pub const METADATA: &str = "169.254.169.254";

const METADATA_PATH: &str = "/latest/meta-data/iam/security-credentials/";
const IMAGE: &str = "renderhub.test/hostile:1";

/// A cluster with a node, a registry, and the hub as the chart installs it.
pub struct World {
    pub node: Node,
    pub registry: Registry,
    pub plane: ControlPlane,
    _metadata: Process,
    /// `address:port` of a pod of another tenant.
    pub neighbour: String,
}

/// The world of this test binary; its clients are made anew in each test's runtime.
pub async fn world() -> Result<&'static World> {
    static WORLD: OnceCell<World> = OnceCell::const_new();
    WORLD.get_or_try_init(World::start).await
}

impl World {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::builder().with_node_network().start().await?;
        let node = Node::start(&plane).await?;
        let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
        import(&node)?;
        install(&plane, &registry).await?;
        let metadata = metadata_service(&node)?;
        let admin = plane.admin().client().await?;
        for object in platform(&registry) {
            apply::object(&admin, object).await?;
        }
        let neighbour = neighbour(&admin).await?;
        // After this a pod is one of the hub's, or it reaches nothing.
        let renderers = [("app.kubernetes.io/managed-by", "renderhub")];
        node.enforce_policies(&plane, RENDERING, &renderers).await?;
        Ok(Self {
            node,
            registry,
            plane,
            _metadata: metadata,
            neighbour,
        })
    }

    pub async fn admin(&self) -> Result<Client> {
        self.plane.admin().client().await
    }

    pub async fn tasks(&self) -> Result<Api<RenderTask>> {
        Ok(Api::namespaced(self.admin().await?, TENANT))
    }

    /// Submits a task of the class `class` whose configuration says what its renderer does; the chart is named like the task.
    pub async fn submit(&self, name: &str, class: &str, mode: &str, fields: Value) -> Result<()> {
        let mut config = json!({"type": "hostile", "mode": mode, "chart": name});
        for (key, value) in fields.as_object().context("no object")? {
            config[key] = value.clone();
        }
        self.submit_config(name, Some(class), config).await
    }

    /// Submits a task with this configuration; without a class it is for the real renderer.
    pub async fn submit_config(&self, name: &str, class: Option<&str>, config: Value) -> Result<()> {
        let mut task = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask",
            "metadata": {"name": name, "namespace": TENANT},
            "spec": {
                "registryRef": {"name": "main"}, "repository": format!("{TENANT}/{name}"), "tag": "1.0.0",
                "config": config,
            },
        });
        if let Some(class) = class {
            task["spec"]["rendererClassName"] = json!(class);
        }
        // As JSON: the Rust type would leave out what only this renderer understands.
        apply::object(&self.admin().await?, task).await.map(drop)
    }

    /// Waits for the end of a task; returns `JobSucceeded`, or the reason of `JobFailed` and its message.
    pub async fn end(&self, name: &str) -> Result<(String, String)> {
        let tasks = self.tasks().await?;
        wait_for(&format!("the end of RenderTask {name}"), LIMIT, async || {
            let status = tasks.get(name).await?.status.unwrap_or_default();
            Ok(ended(&status))
        })
        .await
    }

    /// The pods of a task.
    pub async fn pods(&self, name: &str) -> Result<Vec<Pod>> {
        let uid = self.tasks().await?.get(name).await?.uid().unwrap_or_default();
        let pods: Api<Pod> = Api::namespaced(self.admin().await?, RENDERING);
        let of_task = ListParams::default().labels(&format!("{TASK_UID}={uid}"));
        Ok(pods.list(&of_task).await?.items)
    }

    /// Waits until the first container of a task has begun, or never will.
    pub async fn until_started(&self, name: &str) -> Result<()> {
        let tasks = self.tasks().await?;
        wait_for(&format!("the pod of {name} to start"), LIMIT, async || {
            let has_ended = ended(&tasks.get(name).await?.status.unwrap_or_default()).is_some();
            let pods = self.pods(name).await?;
            let statuses = pods.iter().filter_map(|pod| pod.status.as_ref());
            let mut states = statuses
                .flat_map(|s| s.init_container_statuses.iter().flatten())
                .filter_map(|c| c.state.as_ref());
            let has_begun = states.any(|s| s.running.is_some() || s.terminated.is_some());
            Ok((has_ended || has_begun).then_some(()))
        })
        .await
    }

    /// What the hostile container of a task that failed has written, read where the kubelet keeps it.
    pub async fn log(&self, name: &str) -> Result<String> {
        let uids: Vec<String> = self
            .pods(name)
            .await?
            .iter()
            .filter_map(ResourceExt::uid)
            .collect();
        let mut text = String::new();
        for file in files(&self.node.pod_logs())? {
            if uids
                .iter()
                .any(|uid| file.to_string_lossy().contains(uid.as_str()))
            {
                write!(text, "{}", lines_of(&file)?)?;
            }
        }
        ensure!(!text.is_empty(), "{name} has logged nothing");
        Ok(text)
    }

    /// The chart of a task, unpacked.
    pub async fn pulled(&self, name: &str) -> Result<PathBuf> {
        let registry = &self.registry;
        let helm = Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())?;
        let url = format!("oci://{}/{TENANT}/{name}", registry.host());
        helm.pull_plain(&url, "1.0.0", &rundir::fresh("pulled")?).await
    }

    /// The pod that the Job of a task makes.
    pub async fn template(&self, name: &str) -> Result<Value> {
        let uid = self.tasks().await?.get(name).await?.uid().unwrap_or_default();
        let jobs: Api<Job> = Api::namespaced(self.admin().await?, RENDERING);
        let of_task = ListParams::default().labels(&format!("{TASK_UID}={uid}"));
        let job = jobs
            .list(&of_task)
            .await?
            .items
            .pop()
            .context("the task has no Job")?;
        Ok(serde_json::to_value(
            job.spec.context("a Job without a spec")?.template,
        )?)
    }

    /// `address:port` of another renderer's pod, which listens.
    pub async fn sibling(&self) -> Result<String> {
        self.submit("sibling", "hostile", "listen", json!({})).await?;
        let address = wait_for("the sibling's address", LIMIT, async || {
            let pods = self.pods("sibling").await?;
            Ok(pods.into_iter().find_map(|pod| pod.status?.pod_ip))
        })
        .await?;
        let listens = format!("echo | {} nc -w 1 {address} 8080", Node::busybox()?.display());
        wait_for("the sibling to listen", LIMIT, async || {
            let mut shell = self.node.in_network("sh");
            Ok(run(shell.args(["-c", &listens]))?
                .contains("a sibling")
                .then_some(()))
        })
        .await?;
        Ok(format!("{address}:8080"))
    }

    /// Tries the same from a pod that no policy is for.
    pub fn reached_without_a_policy(&self, targets: &[(&str, String)]) -> Result<String> {
        let mut script = String::new();
        for (name, at) in targets {
            let (address, port) = at.rsplit_once(':').context("no port")?;
            writeln!(
                script,
                "/bin/busybox nc -w 10 {address} {port} </dev/null >/dev/null && echo CONNECT {name} reached"
            )?;
        }
        write!(
            script,
            "printf 'GET {METADATA_PATH} HTTP/1.0\\r\\n\\r\\n' | /bin/busybox nc -w 10 {METADATA} 80"
        )?;
        let mut exec = kubectl(self.plane.admin())?;
        exec.args([
            "exec",
            "--namespace",
            TENANT,
            "neighbour",
            "--",
            "/bin/busybox",
            "sh",
            "-c",
        ]);
        run(exec.arg(script))
    }

    /// The registry's credential in each form in which it could show.
    pub fn canaries(&self) -> Canaries {
        Canaries::new().with("the password", self.registry.password())
    }
}

/// The end of a task, if it ended, and the message of a failure.
fn ended(status: &RenderTaskStatus) -> Option<(String, String)> {
    let held = |type_: &str| {
        status
            .conditions
            .iter()
            .find(|c| c.type_ == type_ && c.status == "True")
    };
    let reason = held("JobSucceeded").or(held("JobFailed"))?.reason.clone();
    let failure = status.failure.as_ref();
    Some((reason, failure.map(|f| f.message.clone()).unwrap_or_default()))
}

/// All files below a directory.
pub fn files(dir: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path)?);
        } else {
            found.push(path);
        }
    }
    Ok(found)
}

/// The lines of a container's log without what the runtime puts before each.
fn lines_of(file: &Path) -> Result<String> {
    let text = String::from_utf8_lossy(&std::fs::read(file)?).into_owned();
    let lines = text.lines().filter_map(|line| line.splitn(4, ' ').nth(3));
    Ok(lines.flat_map(|line| [line, "\n"]).collect())
}

fn import(node: &Node) -> Result<()> {
    let images = rundir::fresh("images")?;
    let renderer = programs::renderer();
    let script = Path::new(programs::ROOT).join("tests/hostile_pod/hostile.sh");
    let hostile = Image::new(IMAGE, &renderer, "renderhub-renderer")
        .with_file("bin/busybox", Node::busybox()?)
        .with_file("hostile.sh", script);
    for image in [Image::hub(programs::hub()), Image::renderer(renderer), hostile] {
        node.import_image(&image.write(&images)?.tar)?;
    }
    Ok(())
}

/// Installs the chart as a platform operator would, and waits for the hub.
async fn install(plane: &ControlPlane, registry: &Registry) -> Result<()> {
    let chart = helm::renderhub_chart();
    let chart = chart.to_str().context("the path of the chart is no text")?;
    let helm = Helm::new()?.with_cluster(plane.admin().kubeconfig()?);
    let words = [
        "install",
        "renderhub",
        chart,
        "--namespace",
        HUB,
        "--create-namespace",
    ];
    let to = json!([{"ipBlock": {"cidr": format!("{}/32", registry.address().ip())}}]);
    let to = format!("networkPolicy.registries.to={to}");
    let ports = format!("networkPolicy.registries.ports=[{}]", registry.address().port());
    let values = ["--set-json", &to, "--set-json", &ports];
    helm.run(&[&words[..], &values, &["--wait", "--timeout", "2m"]].concat())
        .await?;
    let namespace = Namespace {
        metadata: ObjectMeta {
            name: Some(TENANT.to_owned()),
            ..ObjectMeta::default()
        },
        ..Namespace::default()
    };
    let namespaces: Api<Namespace> = Api::all(plane.admin().client().await?);
    namespaces.create(&PostParams::default(), &namespace).await?;
    Ok(())
}

/// The credential, the registry, and the classes.
fn platform(registry: &Registry) -> Vec<Value> {
    let class = |name: &str, more: Value| {
        let mut class = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass", "metadata": {"name": name},
            "spec": {
                "image": IMAGE, "imagePullPolicy": "Never", "command": ["/bin/busybox", "sh", "/hostile.sh"],
                "backoffLimit": 0, "activeDeadlineSeconds": 400,
            },
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            class["spec"][key] = value.clone();
        }
        class
    };
    vec![
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": "push", "namespace": RENDERING},
            "type": "kubernetes.io/basic-auth",
            "stringData": {"username": registry.username(), "password": registry.password()},
        }),
        json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "ClusterRegistry", "metadata": {"name": "main"},
            "spec": {
                "hostname": registry.host(), "plainHTTP": true, "pushSecretRef": {"name": "push"},
                "allowedNamespaces": [TENANT],
            },
        }),
        class("hostile", json!({})),
        class(
            "foreign-hostile",
            json!({"mode": "Single", "allowedNamespaces": [TENANT]}),
        ),
        class("brief", json!({"activeDeadlineSeconds": 15})),
        class(
            "foreign",
            json!({"mode": "Single", "command": [], "allowedNamespaces": [TENANT]}),
        ),
    ]
}

/// A stand-in for the metadata service, on an interface of the node's own network: no packet leaves the machine.
fn metadata_service(node: &Node) -> Result<Process> {
    let mut address = node.in_network("ip");
    address.args(["address", "add", &format!("{METADATA}/32"), "dev", "lo"]);
    run(&mut address)?;
    let root = rundir::fresh("metadata")?;
    let place = root.join("latest/meta-data/iam/security-credentials");
    std::fs::create_dir_all(&place)?;
    std::fs::write(place.join("index.html"), CLOUD_CREDENTIAL)?;
    let mut server: Command = node.in_network(Node::busybox()?);
    server
        .args(["httpd", "-f", "-p", &format!("{METADATA}:80"), "-h"])
        .arg(&root);
    Process::spawn("the metadata service", &server, &root.join("log"))
}

/// A pod of another tenant that listens.
async fn neighbour(admin: &Client) -> Result<String> {
    let pod: Pod = serde_json::from_value(json!({
        "metadata": {"name": "neighbour"},
        "spec": {"containers": [{
            "name": "neighbour", "image": Node::TEST_IMAGE, "imagePullPolicy": "Never",
            "command": ["/bin/busybox", "nc", "-ll", "-p", "8080", "-e", "/bin/busybox", "echo", "a neighbour"],
        }]},
    }))?;
    let pods: Api<Pod> = Api::namespaced(admin.clone(), TENANT);
    pods.create(&PostParams::default(), &pod).await?;
    let ip = wait_for("the neighbour's address", LIMIT, async || {
        let status = pods.get("neighbour").await?.status.unwrap_or_default();
        Ok(status
            .pod_ip
            .filter(|_| status.phase.as_deref() == Some("Running")))
    })
    .await?;
    Ok(format!("{ip}:8080"))
}
