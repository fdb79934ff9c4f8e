//! A cluster that charts are installed on: a control plane, a node and Flux, and an app whose pods say what they were given.
//!
//! The app is the chart of `examples/pipeline/app`; the other files of `examples/pipeline` put it there.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use kube::{Api, ResourceExt};
use serde_json::json;

use crate::helm::Helm;
use crate::remote::examples;
use crate::{ControlPlane, Flux, Node, Registry, apply, flux, rundir, wait_for};

/// Longest that a change takes from its first write to the pod: Flux asks for a new chart every few seconds, and backs off to half
/// a minute.
pub const LIMIT: Duration = Duration::from_secs(240);
/// Secret on the cluster that charts are pulled with, as the examples name it.
pub const PULL_SECRET: &str = "pull";
/// Host of the registry in the examples.
const EXAMPLE_HOST: &str = "registry.example.com";
/// Repository of the Target's chart in the examples.
const EXAMPLE_REPOSITORY: &str = "team-a/bootstrap-edge";

/// A cluster with Flux; it ends when it is dropped, Flux first and then the pods.
#[derive(Debug)]
pub struct TargetCluster {
    _flux: Flux,
    node: Node,
    plane: ControlPlane,
}

impl TargetCluster {
    /// Starts it.
    ///
    /// # Errors
    /// If a program is missing or does not start.
    pub async fn start() -> Result<Self> {
        let plane = ControlPlane::builder().with_node_network().start().await?;
        let node = Node::start(&plane).await?;
        Ok(Self {
            _flux: Flux::start(&plane).await?,
            node,
            plane,
        })
    }

    /// Its control plane.
    #[must_use]
    pub fn plane(&self) -> &ControlPlane {
        &self.plane
    }

    /// What the owner of the cluster does once: a pull Secret, and Flux that follows the chart of this repository.
    ///
    /// # Errors
    /// If the API server refuses it.
    pub async fn follow(&self, registry: &Registry, repository: &str) -> Result<()> {
        let client = self.plane.admin().client().await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": PULL_SECRET, "namespace": flux::NAMESPACE},
            "stringData": {".dockerconfigjson": registry.docker_config_json()},
        });
        apply::object(&client, secret).await?;
        let objects = example("flux.yaml", registry)?;
        ensure!(
            objects.contains(EXAMPLE_REPOSITORY),
            "flux.yaml follows something else"
        );
        apply::yaml(&client, &objects.replace(EXAMPLE_REPOSITORY, repository)).await?;
        Ok(())
    }

    /// The pods of an app that are not about to go.
    ///
    /// # Errors
    /// If the API server does not answer.
    pub async fn app_pods(&self, name: &str) -> Result<Vec<Pod>> {
        let pods: Api<Pod> = Api::all(self.plane.admin().client().await?);
        let of_app = ListParams::default().labels(&format!("app={name}"));
        let mut pods = pods.list(&of_app).await?.items;
        pods.retain(|pod| pod.metadata.deletion_timestamp.is_none());
        Ok(pods)
    }

    /// Waits until the only pod of an app says so; returns the pod.
    ///
    /// # Errors
    /// If it does not.
    pub async fn app_says(&self, name: &str, expected: &str) -> Result<Pod> {
        let what = format!("the pod of {name} to say {expected}");
        wait_for(&what, LIMIT, async || {
            let mut pods = self.app_pods(name).await?;
            let (1, Some(pod)) = (pods.len(), pods.pop()) else {
                return Ok(None);
            };
            let said = self.said(&pod)?;
            Ok(said.lines().any(|line| line.ends_with(expected)).then_some(pod))
        })
        .await
    }

    /// What a pod has written, read where the kubelet keeps it.
    fn said(&self, pod: &Pod) -> Result<String> {
        let uid = pod.uid().context("a pod without a UID")?;
        let mut text = String::new();
        for entry in fs::read_dir(self.node.pod_logs())? {
            let dir = entry?.path();
            let log = dir.join("app/0.log");
            if dir.to_string_lossy().ends_with(&uid) && log.is_file() {
                text.push_str(&fs::read_to_string(log)?);
            }
        }
        Ok(text)
    }

    /// Waits until an app has no pod.
    ///
    /// # Errors
    /// If it keeps one.
    pub async fn app_is_gone(&self, name: &str) -> Result<()> {
        wait_for(&format!("the pod of {name} to go"), LIMIT, async || {
            Ok(self.app_pods(name).await?.is_empty().then_some(()))
        })
        .await
    }
}

/// Pushes a version of the app's chart to `charts/app` of a registry that this helm is logged in to.
///
/// # Errors
/// If helm fails.
pub async fn push_app(helm: &Helm, registry: &Registry, version: &str) -> Result<()> {
    let (chart, out) = (folder().join("app"), rundir::fresh("app")?);
    let words = [
        Path::new("package"),
        &chart,
        Path::new("--version"),
        Path::new(version),
        Path::new("--app-version"),
        Path::new(version),
        Path::new("--destination"),
        &out,
    ];
    helm.run(&words).await?;
    let package = out.join(format!("app-{version}.tgz"));
    let charts = format!("oci://{}/charts", registry.host());
    let words = [
        Path::new("push"),
        &package,
        Path::new(&charts),
        Path::new("--plain-http"),
    ];
    helm.run(&words).await.map(drop)
}

/// A file of `examples/pipeline` for this registry, which has no certificate.
///
/// # Errors
/// If there is no such file.
pub fn example(file: &str, registry: &Registry) -> Result<String> {
    let path = folder().join(file);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let text = text.replace(EXAMPLE_HOST, &registry.host());
    Ok(text.replace("insecure: false", "insecure: true"))
}

/// Where the examples of the pipeline are.
#[must_use]
pub fn folder() -> PathBuf {
    examples().join("pipeline")
}
