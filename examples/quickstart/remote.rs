//! A second cluster that renders for the first: registered with a kubeconfig that can do one thing, lost, and back.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::Api;
use kube::api::ListParams;
use renderhub::api::RenderCluster;
use renderhub::api::conditions::{ConditionType, Reason};
use renderhub_harness::{ControlPlane, Node, Tools, remote, rundir, wait_for};

use crate::platform::{HUB_NAMESPACE, Platform, kubectl, print_indented, renderer_image};
use crate::tenant::Tenant;
use crate::{charts, step};

/// Its name on the hub.
const NAME: &str = "edge";
/// A cluster that is lost is seen within seconds, one that is back within the longest pause of the first minutes.
const LIMIT: Duration = Duration::from_secs(180);

/// The second cluster; it ends when it is dropped, pods first.
pub struct Edge {
    _node: Node,
    plane: ControlPlane,
}

impl Edge {
    /// Starts it, with the renderer's image on its node.
    pub async fn start() -> Result<Self> {
        step("another cluster: a control plane and a node of its own");
        let plane = ControlPlane::builder().with_node_network().start().await?;
        let node = Node::start(&plane).await?;
        node.import_image(&renderer_image()?.tar)?;
        Ok(Self { _node: node, plane })
    }

    /// Everything that is to be seen of it: how it is registered and used, and how it is lost and comes back.
    pub async fn show(&self, platform: &Platform, tenant: &Tenant) -> Result<()> {
        step("its owner: one namespace, one Role, one kubeconfig, by examples/remote-cluster/kubeconfig.sh");
        let kubeconfig = self.narrow_kubeconfig().await?;
        may_do_one_thing(&kubeconfig).await?;

        step("platform: a RenderCluster for team-a");
        self.register(platform, &kubeconfig).await?;

        step("tenant team-a: a RenderTask with clusterName: edge");
        tenant.submit_to_edge("web-edge", "1.1.0").await?;
        tenant.finished("web-edge").await?;
        println!("    ran on: {}", tenant.cluster_of("web-edge").await?);
        let into = rundir::fresh("charts")?;
        charts::pull(platform, "release-web", "1.1.0", &into).await?;
        self.holds_no_credential().await?;

        step("the cluster dies while a task runs there");
        self.die(platform, tenant).await?;

        step("the cluster comes back");
        self.plane.start_api_server().await?;
        connected(platform, true).await?;
        tenant.finished("web-before").await?;
        tenant.finished("web-after").await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        self.plane.admin().kubeconfig()
    }

    /// What the script of the examples makes.
    async fn narrow_kubeconfig(&self) -> Result<PathBuf> {
        let program = Tools::path("kubectl")?;
        let programs = program.parent().context("kubectl is in no directory")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let out = rundir::fresh("edge")?.join("edge.kubeconfig");
        let script = remote::examples().join("remote-cluster/kubeconfig.sh");
        let mut command = tokio::process::Command::new("sh");
        command
            .arg(script)
            .arg("--out")
            .arg(&out)
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("KUBECONFIG", self.kubeconfig()?)
            .kill_on_drop(true);
        let ran = command.output().await.context("cannot start the script")?;
        let said = String::from_utf8_lossy(&ran.stderr).into_owned();
        ensure!(ran.status.success(), "the script failed:\n{said}");
        let kept = said.lines().filter(|line| line.contains("token ends"));
        kept.for_each(print_indented);
        Ok(out)
    }

    async fn register(&self, platform: &Platform, kubeconfig: &Path) -> Result<()> {
        let file = format!("--from-file=value={}", kubeconfig.display());
        let words = [
            "--namespace",
            HUB_NAMESPACE,
            "create",
            "secret",
            "generic",
            NAME,
            &file,
        ];
        print_indented(&platform.kubectl(&words).await?);
        let manifest = include_str!("manifests/edge.yaml");
        platform.plane().apply_yaml(manifest).await?;
        connected(platform, true).await
    }

    /// The credential was there for as long as the task, and is not any more.
    async fn holds_no_credential(&self) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.plane.admin().client().await?, remote::NAMESPACE);
        wait_for("the config Secret to be gone", LIMIT, async || {
            let left = secrets.list_metadata(&ListParams::default()).await?;
            Ok(left.items.is_empty().then_some(()))
        })
        .await?;
        println!("    Secrets left on the cluster: 0");
        Ok(())
    }

    async fn die(&self, platform: &Platform, tenant: &Tenant) -> Result<()> {
        tenant.submit_to_edge("web-before", "1.2.0").await?;
        tenant.reached("web-before", Reason::JobScheduled).await?;
        self.plane.stop_api_server()?;
        connected(platform, false).await?;
        tenant.submit_to_edge("web-after", "1.3.0").await?;
        tenant.reached("web-after", Reason::WaitingForCluster).await?;
        tenant.table().await
    }
}

/// The kubeconfig of the script, tried where it must not work.
async fn may_do_one_thing(kubeconfig: &Path) -> Result<()> {
    for (words, expected) in [
        (["create", "jobs", "--namespace", remote::NAMESPACE], "yes"),
        (["get", "secrets", "--namespace", "kube-system"], "no"),
    ] {
        let (_, answer) = kubectl(kubeconfig, &[&["auth", "can-i"], &words[..]].concat()).await?;
        println!(
            "    $ kubectl auth can-i {}\n    {}",
            words.join(" "),
            answer.trim()
        );
        ensure!(answer.trim() == expected, "the kubeconfig has other rights");
    }
    Ok(())
}

/// Waits until the cluster is connected, or is not, and prints what its condition says meanwhile.
async fn connected(platform: &Platform, is_wanted: bool) -> Result<()> {
    let clusters: Api<RenderCluster> = Api::all(platform.plane().admin().client().await?);
    let seen = RefCell::new(String::new());
    wait_for("the RenderCluster's condition", LIMIT, async || {
        let status = clusters.get(NAME).await?.status.unwrap_or_default();
        let is_it = |condition: &&Condition| condition.type_ == ConditionType::Connected.as_str();
        let Some(told) = status.conditions.iter().find(is_it) else {
            return Ok(None);
        };
        if seen.replace(told.reason.clone()) != told.reason {
            println!("    {NAME}  Connected={} {}", told.status, told.reason);
            println!("          {}", told.message);
        }
        Ok(((told.status == "True") == is_wanted).then_some(()))
    })
    .await
}
