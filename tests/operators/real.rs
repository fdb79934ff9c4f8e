//! Operators that real OLM installs, whose controllers' images are in a registry with a password.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use renderhub_harness::olm::{Bundle, Catalog, NAMESPACE, OPERATORS};
use renderhub_harness::registry::is_pull_refused;
use renderhub_harness::{ControlPlane, Node, Olm, PrivateRegistry, Watch, apply, wait_for};
use serde_json::json;

/// Longest that OLM takes from a change to the pod, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(180);
/// The user whose password the Secret holds.
const USER: &str = "puller";
/// The Secret that a catalog names.
const SECRET: &str = "pull";

/// A cluster with OLM and a registry with an operator's image; they end when they are dropped, OLM first.
struct Scene {
    olm: Olm,
    registry: PrivateRegistry,
    _node: Node,
    plane: ControlPlane,
}

impl Scene {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::builder().with_node_network().start().await?;
        let node = Node::start(&plane).await?;
        let registry = PrivateRegistry::start(&node).await?;
        registry.change_password(USER)?;
        let olm = Olm::start(&plane).await?;
        Ok(Self {
            olm,
            registry,
            _node: node,
            plane,
        })
    }

    /// A version of an operator whose image is in the registry.
    async fn bundle(&self, version: &str, name: &str, account: &str) -> Result<Bundle> {
        let repository = format!("operators/{name}");
        self.registry
            .push_image(&repository, &Node::test_image()?)
            .await?;
        Ok(Bundle::new(
            version,
            name,
            account,
            &self.registry.image(&repository),
        ))
    }

    /// Writes the Secret with the password of now, as the administrator does, where catalogs are.
    async fn write_secret(&self) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": SECRET, "namespace": NAMESPACE},
            "stringData": {".dockerconfigjson": self.registry.docker_config(USER)?},
        });
        apply::object(&self.plane.admin().client().await?, secret)
            .await
            .map(drop)
    }

    /// Makes a source of a catalog and subscribes to its package.
    async fn subscribe(&self, catalog: &Catalog, name: &str) -> Result<()> {
        let client = self.plane.admin().client().await?;
        apply::object(&client, catalog.source(name, &[SECRET])).await?;
        let subscription = catalog.subscription(name, OPERATORS, name);
        apply::object(&client, subscription).await.map(drop)
    }

    /// Waits until a pod of an operator is as it is asked for.
    async fn until_pod(&self, name: &str, what: &str, is_so: impl Fn(&Pod) -> bool) -> Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.plane.admin().client().await?, OPERATORS);
        let of_operator = ListParams::default().labels(&format!("app={name}"));
        let what = format!("a pod of {name} {what}");
        let waited = wait_for(&what, LIMIT, async || {
            if let Err(ended) = self.olm.check_running() {
                return Ok(Some(Err(ended)));
            }
            let found = pods.list(&of_operator).await?.items.into_iter().find(&is_so);
            Ok(found.map(Ok))
        });
        waited.await?
    }
}

#[tokio::test]
async fn by_itself_olm_leaves_an_operator_without_its_catalogs_pull_secret() -> Result<()> {
    let scene = Scene::start().await?;
    let watch = Watch::new(&scene.plane, &[NAMESPACE, OPERATORS]);
    scene.write_secret().await?;
    let bundle = scene.bundle("1.0.0", "shop", "shop-controller").await?;
    let catalog = Catalog::start("shop", &[bundle]).await?;
    scene.subscribe(&catalog, "shop").await?;
    let pod = scene
        .until_pod("shop", "that could not be pulled", is_pull_refused)
        .await?;
    let spec = pod.spec.unwrap_or_default();
    assert_eq!(spec.service_account_name.as_deref(), Some("shop-controller"));
    assert!(spec.image_pull_secrets.is_none(), "OLM itself names the Secret");
    watch.passed();
    Ok(())
}
