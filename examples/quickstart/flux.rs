//! A second cluster that the charts are installed on: from what a tenant writes to a pod there, on to another version, and back.

use std::path::PathBuf;

use anyhow::Result;
use renderhub_harness::target::push_app;
use renderhub_harness::{TargetCluster, flux};

use crate::platform::{Platform, show};
use crate::step;
use crate::tenant::Tenant;

/// Repository of the Target's chart: the tenant's namespace, and the Target.
const REPOSITORY: &str = "team-a/bootstrap-edge";

/// The second cluster; it ends when it is dropped, pods first.
pub struct Shop {
    cluster: TargetCluster,
}

impl Shop {
    /// Starts it.
    pub async fn start() -> Result<Self> {
        step("another cluster: a control plane, a node, and Flux");
        let cluster = TargetCluster::start().await?;
        Ok(Self { cluster })
    }

    /// Everything that is to be seen of it.
    pub async fn show(&self, platform: &Platform, tenant: &Tenant) -> Result<()> {
        self.install(platform, tenant).await?;

        step("tenant team-a: version 2.0.0 of the shop");
        let other = r#"{"spec":{"componentVersionRef":{"name":"shop-2.0.0"}}}"#;
        tenant
            .run(&["patch", "release", "shop", "--type=merge", "--patch", other])
            .await?;
        self.runs("2.0.0").await?;
        versions(tenant).await?;

        step("tenant team-a: back to the first version of the Target");
        let first = tenant.first_version("edge").await?;
        let back = format!(r#"{{"spec":{{"rollbackTo":{first}}}}}"#);
        tenant
            .run(&["patch", "target", "edge", "--type=merge", "--patch", &back])
            .await?;
        self.runs("1.0.0").await?;
        versions(tenant).await
    }

    /// From a Release to its pod.
    async fn install(&self, platform: &Platform, tenant: &Tenant) -> Result<()> {
        step("two versions of an app, pushed with helm as charts/app");
        for version in ["1.0.0", "2.0.0"] {
            push_app(platform.helm(), platform.registry(), version).await?;
        }

        step("tenant team-a: what is released, and where it goes");
        println!("    registry.example.com is {} here", platform.registry().host());
        for file in [
            "component.yaml",
            "release.yaml",
            "registry.yaml",
            "target.yaml",
            "releasebinding.yaml",
        ] {
            tenant.apply_example(file, platform.registry()).await?;
        }

        step("the hub makes the tasks; their charts are rendered and pushed");
        tenant
            .run(&["wait", "--for=condition=Ready", "target/edge", "--timeout=2m"])
            .await?;
        for kind in ["targets", "rendertasks", "hydratedtargets"] {
            tenant.run(&["get", kind]).await?;
        }

        step("owner of the other cluster: a pull Secret, and examples/pipeline/flux.yaml");
        self.cluster.follow(platform.registry(), REPOSITORY).await?;
        self.runs("1.0.0").await?;
        let all = ["helmreleases", "--all", "--namespace", flux::NAMESPACE];
        let ready = ["wait", "--for=condition=Ready", "--timeout=1m"];
        show(&self.kubeconfig()?, &[&ready[..], &all].concat()).await
    }

    /// Waits until the pod of this version says what it was given, and lets it say so.
    async fn runs(&self, version: &str) -> Result<()> {
        let words = format!("version={version} greeting=hello site=north");
        self.cluster.app_says("shop", &words).await?;
        let kubeconfig = self.kubeconfig()?;
        show(&kubeconfig, &["--namespace", "shop", "get", "pods"]).await?;
        show(
            &kubeconfig,
            &["--namespace", "shop", "logs", "--selector", "app=shop"],
        )
        .await
    }

    /// The administrator's kubeconfig.
    pub fn kubeconfig(&self) -> Result<PathBuf> {
        self.cluster.plane().admin().kubeconfig()
    }
}

/// Shows the versions once the hub knows that the newest is pushed; Flux may be quicker.
async fn versions(tenant: &Tenant) -> Result<()> {
    let all = [
        "wait",
        "--for=condition=Ready",
        "hydratedtargets",
        "--all",
        "--timeout=1m",
    ];
    tenant.run(&all).await?;
    tenant.run(&["get", "hydratedtargets"]).await
}
