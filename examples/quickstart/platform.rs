//! What the platform team has: a cluster with renderhub on it, and a registry.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use renderhub_harness::diagnose::Watch;
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::image::{BuiltImage, Image};
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{ControlPlane, Node, Tools, rundir};

use crate::step;

/// Where the hub runs.
pub const HUB_NAMESPACE: &str = "renderhub-system";
/// Where the Jobs run and the credential is; the chart's default.
pub const RENDERING_NAMESPACE: &str = "renderhub-rendering";

/// A cluster with renderhub on it, and a registry. It ends when it is dropped, pods first.
pub struct Platform {
    node: Node,
    registry: Registry,
    helm: Helm,
    kubeconfig: PathBuf,
    plane: ControlPlane,
}

impl Platform {
    /// Starts all of it, and waits until the hub's Deployment is available.
    pub async fn start() -> Result<Self> {
        step("control plane: etcd, kube-apiserver, kube-controller-manager, kube-scheduler");
        let builder = ControlPlane::builder().with_node_network().with_scheduler();
        let plane = builder.start().await?;

        step("node: containerd, kubelet, kube-proxy");
        let node = Node::start(&plane).await?;

        step("registry with a password");
        let options = RegistryOptions::new().with_address(node.registry_address());
        let registry = Registry::start(options).await?;
        println!("    {}", registry.host());

        let kubeconfig = plane.admin().kubeconfig()?;
        let helm = Helm::new()?.with_cluster(&kubeconfig);
        let helm = helm.with_login(&registry.host(), registry.username(), registry.password())?;
        Ok(Self {
            node,
            registry,
            helm,
            kubeconfig,
            plane,
        })
    }

    /// Makes both images, and installs the chart with them, and with these words more for helm.
    pub async fn install(&self, more: &[&str]) -> Result<()> {
        step("images of the hub and of the renderer");
        let hub = Image::hub(programs()?.join("renderhub"));
        let hub = hub.write(&rundir::fresh("images")?)?;
        for built in [hub, renderer_image()?] {
            self.node.import_image(&built.tar)?;
            println!("    {}@{}", built.name, built.digest);
        }

        step("renderhub's chart, installed with helm");
        let chart = helm::renderhub_chart();
        let chart = chart.to_str().context("the path of the chart is no text")?;
        let words = [
            "install",
            "renderhub",
            chart,
            "--namespace",
            HUB_NAMESPACE,
            "--create-namespace",
        ];
        self.helm
            .run(&[&words[..], &["--wait", "--timeout", "3m"], more].concat())
            .await?;
        let pods = self
            .kubectl(&["--namespace", HUB_NAMESPACE, "get", "pods"])
            .await?;
        print_indented(&pods);
        Ok(())
    }

    /// Registers the registry for `team-a`, as the platform team does once.
    pub async fn add_registry(&self) -> Result<()> {
        let objects = include_str!("manifests/platform.yaml")
            .replace("${REGISTRY}", &self.registry.host())
            .replace("${USERNAME}", self.registry.username())
            .replace("${PASSWORD}", self.registry.password());
        self.plane.apply_yaml(&objects).await?;
        let words = [
            "wait",
            "--for=condition=Ready",
            "clusterregistry/example",
            "--timeout=60s",
        ];
        print_indented(&self.kubectl(&words).await?);
        Ok(())
    }

    /// The control plane, for a caller that speaks with it in another name.
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// Its node.
    pub fn node(&self) -> &Node {
        &self.node
    }

    /// Helm as the administrator, logged in to the registry.
    pub fn helm(&self) -> &Helm {
        &self.helm
    }

    /// The registry with a password.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// `oci://…` of a chart of team-a.
    pub fn chart_url(&self, name: &str) -> String {
        format!("oci://{}/team-a/{name}", self.registry.host())
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Conditions, events and logs, without any secret: for when something went wrong.
    pub async fn picture(&self) -> Result<String> {
        let watch = Watch::new(&self.plane, &["team-a", RENDERING_NAMESPACE, HUB_NAMESPACE]);
        let picture = watch.picture().await;
        watch.passed();
        picture
    }

    /// Runs kubectl as the administrator; what it printed.
    pub async fn kubectl(&self, words: &[&str]) -> Result<String> {
        let (code, output) = kubectl(&self.kubeconfig, words).await?;
        ensure!(code == Some(0), "kubectl {} failed", words.join(" "));
        Ok(output)
    }
}

/// Makes the image of the renderer.
pub fn renderer_image() -> Result<BuiltImage> {
    Image::renderer(programs()?.join("renderhub-renderer")).write(&rundir::fresh("images")?)
}

/// Runs kubectl with a kubeconfig; returns its exit code and what it printed on standard output.
pub async fn kubectl(kubeconfig: &Path, words: &[&str]) -> Result<(Option<i32>, String)> {
    let mut command = tokio::process::Command::new(Tools::path("kubectl")?);
    command
        .args(words)
        .env("KUBECONFIG", kubeconfig)
        .kill_on_drop(true);
    let output = command.output().await.context("cannot start kubectl")?;
    Ok((
        output.status.code(),
        String::from_utf8_lossy(&output.stdout).into_owned(),
    ))
}

/// Shows a command of kubectl, and what it prints.
pub async fn show(kubeconfig: &Path, words: &[&str]) -> Result<()> {
    println!("    $ kubectl {}", words.join(" "));
    let (code, output) = kubectl(kubeconfig, words).await?;
    ensure!(code == Some(0), "kubectl {} failed", words.join(" "));
    print_indented(&output);
    Ok(())
}

/// Prints the lines below a step.
pub fn print_indented(text: &str) {
    for line in text.lines() {
        println!("    {line}");
    }
}

/// Where cargo put the hub and the renderer: next to the directory of this example.
fn programs() -> Result<PathBuf> {
    let this = std::env::current_exe()?;
    let directory = this
        .ancestors()
        .nth(2)
        .context("the example is in no directory")?;
    for program in ["renderhub", "renderhub-renderer"] {
        ensure!(
            directory.join(program).is_file(),
            "{program} is not built yet: run cargo build --bins"
        );
    }
    Ok(directory.to_owned())
}
