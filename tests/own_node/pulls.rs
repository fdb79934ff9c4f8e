//! A renderer whose image is in a registry with a password: pulled because the platform named one Secret, on the hub's cluster and on a
//! second one.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, DynamicObject, Patch, PatchParams, PostParams};
use renderhub::api::conditions::ConditionType::{JobSucceeded, Ready};
use renderhub::api::labels::REGISTRY_HOST;
use renderhub::api::{RenderTask, RendererClass};
use renderhub_harness::image::Image;
use renderhub_harness::registry::{Registry, RegistryOptions};
use renderhub_harness::{AuditLevel, ControlPlane, Node, PrivateRegistry, apply, rundir, wait_for};
use serde_json::json;

use support::away::{Cluster, LOOPBACK};
use support::programs;
use support::record::raw;
use support::{LIMIT, Stage, plane};

/// Where the image is, and the user whose password is in the Secret.
const REPOSITORY: &str = "platform/renderer";
const USER: &str = "puller";

/// A cluster with a node; it ends with the process.
async fn cluster() -> Result<(&'static ControlPlane, Node)> {
    let builder = ControlPlane::builder()
        .with_node_network()
        .with_audit(AuditLevel::Metadata);
    let plane: &'static ControlPlane = Box::leak(Box::new(builder.start().await?));
    let node = Node::start(plane).await?;
    Ok((plane, node))
}

/// A hub on a cluster with a node, with the registry of the renderer's image and the one that charts go to.
struct Scene {
    stage: Stage,
    images: PrivateRegistry,
    _charts: Registry,
    /// The namespace of the platform's pull Secrets.
    sources: String,
    class: String,
}

impl Scene {
    async fn new(plane: &'static ControlPlane, node: &Node) -> Result<Self> {
        for file in plane::files("crds")? {
            plane.apply_file(&file).await?;
        }
        let images = PrivateRegistry::start(node).await?;
        let image = Image::renderer(programs::renderer());
        images
            .push_image(REPOSITORY, &image.write(&rundir::fresh("images")?)?)
            .await?;
        images.change_password(USER)?;
        let charts = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
        let sources = plane.namespace("pull-sources").await?;
        let flag = format!("--pull-secret-namespace={sources}");
        let mut stage = Stage::on(plane, "pulls", &[LOOPBACK, &flag]).await?;
        let push: Secret = serde_json::from_value(json!({
            "metadata": {"name": "push", "annotations": {REGISTRY_HOST: charts.host()}}, "type": "kubernetes.io/basic-auth",
            "stringData": {"username": charts.username(), "password": charts.password()},
        }))?;
        stage.secrets().create(&PostParams::default(), &push).await?;
        let registry =
            json!({"hostname": charts.host(), "plainHTTP": true, "pushSecretRef": {"name": "push"}});
        stage.put_registry(registry).await?;
        stage.start_hub().await?;
        let class = format!("{}-private", stage.scope.tenant);
        let object = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass", "metadata": {"name": class},
            "spec": {
                "image": images.image(REPOSITORY), "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "pull"}],
            },
        });
        apply::object(&stage.admin, object).await?;
        Ok(Self {
            stage,
            images,
            _charts: charts,
            sources,
            class,
        })
    }

    /// Writes the password of now into the Secret that the class names.
    async fn put_secret(&self) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson", "metadata": {"name": "pull"},
            "stringData": {".dockerconfigjson": self.images.docker_config(USER)?},
        });
        let secrets: Api<Secret> = Api::namespaced(self.stage.admin.clone(), &self.sources);
        let apply = PatchParams::apply("test").force();
        secrets.patch("pull", &apply, &Patch::Apply(&secret)).await?;
        Ok(())
    }

    async fn submit(&self, name: &str, cluster: Option<&Cluster<'_>>) -> Result<RenderTask> {
        let mut spec = json!({"rendererClassName": self.class});
        if let Some(cluster) = cluster {
            spec["clusterName"] = json!(cluster.name);
        }
        self.stage.submit_with(name, spec).await
    }

    /// Renders and pushes, here and on the second cluster.
    async fn renders(&self, name: &str, cluster: &Cluster<'_>) -> Result<()> {
        let here = self.submit(&format!("{name}-here"), None).await?;
        let there = self.submit(&format!("{name}-there"), Some(cluster)).await?;
        for task in [here, there] {
            self.stage
                .condition(&task, JobSucceeded, "True", "JobSucceeded")
                .await?;
        }
        Ok(())
    }

    /// Waits until the class says with these words why its image is not pulled; the message.
    async fn until_class_says(&self, words: &str) -> Result<String> {
        let classes: Api<DynamicObject> = Api::all_with(self.stage.admin.clone(), &raw::<RendererClass>());
        wait_for(&format!("the class to say {words}"), LIMIT, async || {
            let class = classes.get(&self.class).await?;
            let conditions = class.data["status"]["conditions"]
                .as_array()
                .cloned()
                .unwrap_or_default();
            let pulled = conditions
                .iter()
                .find(|condition| condition["type"] == "ImagePulled");
            let message = pulled.and_then(|condition| condition["message"].as_str());
            Ok(message
                .filter(|message| message.contains(words))
                .map(str::to_owned))
        })
        .await
    }

    /// Waits until a task says that its image is not pulled; the message.
    async fn image_pull_of(&self, task: &RenderTask) -> Result<String> {
        let status = self
            .stage
            .condition(task, Ready, "False", "ImagePullFailed")
            .await?;
        let mut conditions = status.conditions.into_iter();
        let ready = conditions.find(|condition| condition.type_ == Ready.as_str());
        Ok(ready.context("it has the condition")?.message)
    }

    /// Task and class say which Secret was tried, and that it is missing.
    async fn nothing_is_pulled_without_the_secret(&self) -> Result<()> {
        let waits = self.submit("waits", None).await?;
        let said = self.image_pull_of(&waits).await?;
        let of_class = self.until_class_says("pull (does not exist").await?;
        for said in [said, of_class] {
            let from = format!("from {} with pull (does not exist", self.images.host());
            for words in ["container render", "ImagePullBackOff", &from] {
                ensure!(said.contains(words), "{words}: {said}");
            }
        }
        self.stage.delete(&waits).await?;
        Ok(())
    }
}

/// Holds: S1, S5.
#[tokio::test]
async fn an_image_behind_a_password_is_pulled_here_and_on_a_second_cluster_and_after_a_rotation() -> Result<()>
{
    let (plane, node) = cluster().await?;
    let (second, second_node) = cluster().await?;
    let scene = Scene::new(plane, &node).await?;
    scene.images.serve(&second_node)?;
    let east = scene.stage.register(second, json!({})).await?;

    scene.nothing_is_pulled_without_the_secret().await?;
    scene.put_secret().await?;
    scene.renders("first", &east).await?;
    // The registry takes the old password no more, and the class says that its Secret has the host.
    scene.images.change_password(USER)?;
    let refused = scene.submit("refused", None).await?;
    let refused_there = scene.submit("refused-there", Some(&east)).await?;
    for task in [&refused, &refused_there] {
        let said = scene.image_pull_of(task).await?;
        let has = format!("with pull (has {})", scene.images.host());
        ensure!(said.contains(&has), "{said}");
    }
    let message = scene.until_class_says("pull (has ").await?;
    ensure!(!message.contains(&scene.images.docker_config(USER)?), "{message}");
    for task in [&refused, &refused_there] {
        scene.stage.delete(task).await?;
    }
    scene.put_secret().await?;
    scene.renders("rotated", &east).await?;
    scene.stage.passed();
    Ok(())
}
