//! Nodes pull from a registry with the password that a pod's Secret holds, ask again for each pod, and are refused with an old one.

use k8s_openapi::api::core::v1::Pod;
use renderhub_harness::{PrivateRegistry, apply, registry};
use serde_json::json;

use super::*;

/// The user whose password is in the Secrets.
const USER: &str = "puller";

/// Pods of one namespace whose image is in a registry.
struct Pods<'a> {
    plane: &'a ControlPlane,
    registry: &'a PrivateRegistry,
    namespace: String,
}

impl<'a> Pods<'a> {
    async fn new(plane: &'a ControlPlane, registry: &'a PrivateRegistry) -> Result<Self> {
        let namespace = plane.namespace("pulls").await?;
        Ok(Self {
            plane,
            registry,
            namespace,
        })
    }

    async fn secret(&self, name: &str, config: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": self.namespace}, "stringData": {".dockerconfigjson": config},
        });
        apply::object(&self.plane.admin().client().await?, secret)
            .await
            .map(drop)
    }

    /// Makes a pod of a repository's image that names these Secrets, and waits until that is pulled, or could not be.
    async fn is_pulled(&self, name: &str, repository: &str, secrets: &[&str]) -> Result<bool> {
        let client = self.plane.admin().client().await?;
        let secrets: Vec<_> = secrets.iter().map(|name| json!({"name": name})).collect();
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "imagePullSecrets": secrets, "terminationGracePeriodSeconds": 0,
                "containers": [{
                    "name": "sleeper", "image": self.registry.image(repository), "imagePullPolicy": "Always",
                }],
            },
        });
        apply::object(&client, pod).await?;
        let pods: Api<Pod> = Api::namespaced(client, &self.namespace);
        wait_for("an image to be pulled or not", LIMIT, async || {
            let pod = pods.get(name).await?;
            let runs = pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
            Ok((runs || registry::is_pull_refused(&pod)).then_some(runs))
        })
        .await
    }
}

#[tokio::test]
async fn an_image_is_pulled_with_the_password_of_now_alone() -> Result<()> {
    let (plane, node) = world().await?;
    let registry = PrivateRegistry::start(node).await?;
    let image = Node::test_image()?;
    for repository in ["team/one", "team/two"] {
        registry.push_image(repository, &image).await?;
    }
    registry.change_password(USER)?;
    let pods = Pods::new(plane, &registry).await?;
    let watch = Watch::new(plane, &[&pods.namespace]);
    let first = registry.docker_config(USER)?;
    pods.secret("first", &first).await?;
    assert!(!pods.is_pulled("without", "team/one", &[]).await?);
    assert!(pods.is_pulled("with", "team/one", &["first"]).await?);
    // It is on the node, and the registry is asked again.
    assert!(!pods.is_pulled("without-again", "team/one", &[]).await?);

    registry.change_password(USER)?;
    pods.secret("second", &registry.docker_config(USER)?).await?;
    assert!(!pods.is_pulled("with-old", "team/one", &["first"]).await?);
    assert!(pods.is_pulled("with-new", "team/two", &["second"]).await?);
    node.remove_images_of(&registry.host())?;
    assert!(
        pods.is_pulled("with-both", "team/one", &["first", "second"])
            .await?
    );

    registry.remove_user(USER)?;
    assert!(!pods.is_pulled("with-none", "team/two", &["second"]).await?);
    watch.passed();
    Ok(())
}

#[tokio::test]
async fn the_node_of_another_cluster_pulls_from_it_too() -> Result<()> {
    let (_, first) = world().await?;
    let plane = ControlPlane::builder().with_node_network().start().await?;
    let node = Node::start(&plane).await?;
    let registry = PrivateRegistry::start(first).await?;
    registry.serve(&node)?;
    registry.push_image("team/one", &Node::test_image()?).await?;
    registry.change_password(USER)?;
    let pods = Pods::new(&plane, &registry).await?;
    let watch = Watch::new(&plane, &[&pods.namespace]);
    pods.secret("pull", &registry.docker_config(USER)?).await?;
    assert!(!pods.is_pulled("without", "team/one", &[]).await?);
    assert!(pods.is_pulled("with", "team/one", &["pull"]).await?);
    watch.passed();
    Ok(())
}
