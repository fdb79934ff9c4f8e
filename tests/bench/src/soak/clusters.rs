//! Clusters of each hostile kind, by which the hub knows them.

use anyhow::Result;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::PostParams;
use renderhub::api::RenderCluster;
use renderhub_harness::Islet;
use renderhub_harness::hostile::{Hostile, Http};
use serde_json::json;
use tokio::time::Instant;

use super::script::{self, WAYS};
use crate::objects;
use crate::remote::gate::Gate;
use crate::remote::stage::Stage;

/// A port that no packet comes back from.
const NOWHERE: u16 = 6443;
/// Number of the gate of the cluster that dies.
const GATE: u16 = 900;

/// All of them; they end with the handle.
pub struct Clusters {
    names: Vec<String>,
    dying: Gate,
    _servers: Vec<Hostile>,
    _islet: Islet,
}

impl Clusters {
    /// Starts them, and registers them with hubs.
    ///
    /// # Errors
    /// If one does not start.
    pub async fn start(stage: &Stage) -> Result<Self> {
        let (mut names, mut servers) = (Vec::new(), Vec::new());
        for (name, way) in WAYS {
            let hub = stage.world.hub_id.clone();
            let server = Hostile::start(Http::Two, move |asked| way(asked, &hub)).await?;
            register(stage, name, script::NAMESPACE, &script::kubeconfig(&server), 20).await?;
            names.push(name.to_owned());
            servers.push(server);
        }
        let islet = Islet::start().await?;
        islet.cut()?;
        let dying = Gate::open(GATE, stage.address()).await?;
        let real = stage.cluster("soak").await?;
        let by = |url: String| real.identity.by_way_of(url).kubeconfig_text();
        let nowhere = format!("https://{}:{NOWHERE}", islet.address());
        for (name, kubeconfig, qps) in [
            ("one-a-second", real.identity.kubeconfig_text()?, 1),
            ("dying", by(dying.url())?, 20),
            ("dead", by(nowhere)?, 20),
        ] {
            register(stage, name, &real.namespace, &kubeconfig, qps).await?;
            names.push(name.to_owned());
        }
        Ok(Self {
            names,
            dying,
            _servers: servers,
            _islet: islet,
        })
    }

    /// Names that tasks are for.
    pub fn names(&self) -> Vec<String> {
        self.names.clone()
    }

    /// Lets the one that is alive at first die at this moment.
    pub async fn one_dies(&self, at: Instant) {
        tokio::time::sleep_until(at).await;
        self.dying.freeze();
    }
}

async fn register(stage: &Stage, name: &str, namespace: &str, kubeconfig: &str, qps: u32) -> Result<()> {
    let secret: Secret = serde_json::from_value(json!({
        "metadata": {"name": name, "labels": {"bench.renderhub.dev/kubeconfig": "true"}},
        "stringData": {"value": kubeconfig},
    }))?;
    let cluster: RenderCluster = serde_json::from_value(json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
        "spec": {
            "kubeConfig": {"secretRef": {"name": name}}, "renderNamespace": namespace, "allowedNamespaces": ["*"],
            "registries": [objects::REGISTRY], "qps": qps, "burst": qps,
        },
    }))?;
    let post = PostParams::default();
    let secrets: Api<Secret> = Api::namespaced(stage.world.admin.clone(), &stage.world.rendering);
    secrets.create(&post, &secret).await?;
    stage.render_clusters().create(&post, &cluster).await?;
    Ok(())
}
