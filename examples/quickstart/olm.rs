//! An operator that OLM installs, whose image is in a registry with a password: first without its catalog's pull Secret, then with it.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use renderhub_harness::olm::{Bundle, Catalog, NAMESPACE, OPERATORS};
use renderhub_harness::registry::is_pull_refused;
use renderhub_harness::{Node, Olm, PrivateRegistry, apply, wait_for};
use serde_json::json;

use crate::platform::{Platform, show};
use crate::step;

/// The operator, its package, and its catalog.
const SHOP: &str = "shop";
/// The user of the registry who may pull.
const USER: &str = "puller";
/// Longest wait for a pod.
const LIMIT: Duration = Duration::from_secs(120);

/// OLM with a catalog; it ends when it is dropped.
pub struct Operators {
    olm: Olm,
    _catalog: Catalog,
    _registry: PrivateRegistry,
}

impl Operators {
    /// Starts OLM, and subscribes to an operator for whose image it has no password.
    pub async fn start(platform: &Platform) -> Result<Self> {
        step("OLM: catalog-operator and olm-operator beside the cluster");
        let olm = Olm::start(platform.plane()).await?;

        step("an operator's image in a registry that only a user with a password pulls from");
        let registry = PrivateRegistry::start(platform.node()).await?;
        registry.change_password(USER)?;
        let repository = format!("operators/{SHOP}");
        registry.push_image(&repository, &Node::test_image()?).await?;
        println!("    {}", registry.image(&repository));

        step("a catalog that names the Secret `pull` (spec.secrets), and a Subscription");
        let bundle = Bundle::new("1.0.0", SHOP, "shop-controller", &registry.image(&repository));
        let catalog = Catalog::start(SHOP, &[bundle]).await?;
        let client = platform.plane().admin().client().await?;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": "pull", "namespace": NAMESPACE},
            "stringData": {".dockerconfigjson": registry.docker_config(USER)?},
        });
        for object in [
            secret,
            catalog.source(SHOP, &["pull"]),
            catalog.subscription(SHOP, OPERATORS, SHOP),
        ] {
            apply::object(&client, object).await?;
        }
        let operators = Self {
            olm,
            _catalog: catalog,
            _registry: registry,
        };
        operators
            .until_pod(platform, "that cannot be pulled", is_pull_refused)
            .await?;
        show(platform.kubeconfig(), &["--namespace", OPERATORS, "get", "pods"]).await?;
        Ok(operators)
    }

    /// The values with which the chart serves the operators' namespace.
    pub fn values() -> [String; 3] {
        [
            "pullSecrets.olm.enabled=true".to_owned(),
            format!("pullSecrets.olm.namespaces={{{OPERATORS}}}"),
            format!("pullSecrets.olm.catalogNamespaces={{{NAMESPACE}}}"),
        ]
    }

    /// What becomes of the operator once the chart is there.
    pub async fn show(&self, platform: &Platform) -> Result<()> {
        step("the copy, the link, and the operator that runs");
        self.until_pod(platform, "that runs", is_running).await?;
        let kubeconfig = platform.kubeconfig();
        let here = ["--namespace", OPERATORS];
        let links = "jsonpath={.imagePullSecrets}{\"\\n\"}";
        for words in [
            &["get", "secrets", "--selector", "renderhub.dev/copied-for=olm"][..],
            &["get", "serviceaccount", "shop-controller", "--output", links],
            &["get", "events", "--field-selector", "reason=PodEvicted"],
            &["get", "pods"],
        ] {
            show(kubeconfig, &[&here[..], words].concat()).await?;
        }
        Ok(())
    }

    /// Waits until a pod of the operator is as it is asked for.
    async fn until_pod(&self, platform: &Platform, what: &str, is_so: impl Fn(&Pod) -> bool) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(platform.plane().admin().client().await?, OPERATORS);
        let of_operator = ListParams::default().labels(&format!("app={SHOP}"));
        wait_for(&format!("a pod of {SHOP} {what}"), LIMIT, async || {
            self.olm.check_running()?;
            let found = pods.list(&of_operator).await?.items;
            Ok(found.iter().any(&is_so).then_some(()))
        })
        .await
    }
}

fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let is_running = status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
    is_running && pod.metadata.deletion_timestamp.is_none()
}
