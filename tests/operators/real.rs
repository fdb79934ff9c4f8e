//! Operators that real OLM installs, whose controllers' images are in a registry with a password.

use std::time::Duration;

use anyhow::{Result, ensure};
use k8s_openapi::api::core::v1::{Pod, Secret, ServiceAccount};
use kube::api::{DeleteParams, DynamicObject, ListParams};
use kube::{Api, Client, ResourceExt};
use renderhub::api::olm::{COPIED_FROM, olm_resource};
use renderhub::plan::pipeline::object::ObjectKey;
use renderhub::plan::pull_secrets::ownership::copy_name;
use renderhub_harness::olm::{Bundle, Catalog, NAMESPACE, OPERATORS};
use renderhub_harness::registry::is_pull_refused;
use renderhub_harness::{ControlPlane, Hub, Node, Olm, PrivateRegistry, Watch, apply, wait_for};
use serde_json::json;

use crate::world::rights;
use support::programs;

/// Longest that OLM takes from a change to the pod, on a machine that is busy with other tests.
const LIMIT: Duration = Duration::from_secs(180);
/// The user whose password the Secret holds.
const USER: &str = "puller";
/// The Secret that a catalog names.
const SECRET: &str = "pull";
/// A namespace whose operators look after itself.
const OWN: &str = "own";
/// A namespace whose operators look after [`WATCHED`].
const SINGLE: &str = "single";
/// A namespace without a Subscription.
const WATCHED: &str = "watched";

/// Name of the copy of a Secret of the catalogs.
fn copy(secret: &str) -> String {
    copy_name(&ObjectKey::new(NAMESPACE, secret))
}

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
        let admin = plane.admin().client().await?;
        for namespace in [OWN, SINGLE, WATCHED] {
            let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            apply::object(&admin, namespace).await?;
        }
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

    async fn admin(&self) -> Result<Client> {
        self.plane.admin().client().await
    }

    /// The versions of operators of a namespace: `ClusterServiceVersions`.
    async fn versions(&self, namespace: &str) -> Result<Api<DynamicObject>> {
        let resource = olm_resource("ClusterServiceVersion", "clusterserviceversions");
        Ok(Api::namespaced_with(self.admin().await?, namespace, &resource))
    }

    /// Starts the program as the chart does, with the rights of the chart.
    async fn start_program(&self) -> Result<Hub> {
        let listed = [OPERATORS, OWN, SINGLE, WATCHED].map(str::to_owned);
        let record = self.plane.namespace("record").await?;
        let rights = rights(NAMESPACE, &listed, &record).await?;
        let user = self.plane.user_with_rights("copies", &rights).await?;
        let flags = [
            format!("--namespaces={}", listed.join(",")),
            format!("--catalog-namespaces={NAMESPACE}"),
            format!("--record-namespace={record}"),
        ];
        let binary = programs::hub();
        let program = Hub::spawn_command(binary, "pull-secrets", &user.kubeconfig()?, &flags, &[])?;
        program.wait_ready().await?;
        Ok(program)
    }

    /// Waits until the copy of a Secret has the password of now.
    async fn until_copied(&self, secret: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.admin().await?, OPERATORS);
        let config = self.registry.docker_config(USER)?;
        wait_for(
            &format!("a copy of {secret} with the password of now"),
            LIMIT,
            async || {
                let copy = secrets.get_opt(&copy(secret)).await?;
                let value = copy.and_then(|copy| copy.data?.remove(".dockerconfigjson"));
                Ok(value
                    .is_some_and(|value| value.0 == config.as_bytes())
                    .then_some(()))
            },
        )
        .await
    }

    /// Waits until a ServiceAccount has the copies of these Secrets, and no other entry.
    async fn until_linked(&self, account: &str, secrets: &[&str]) -> Result<()> {
        self.until_linked_in(OPERATORS, account, secrets).await
    }

    async fn until_linked_in(&self, namespace: &str, account: &str, secrets: &[&str]) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin().await?, namespace);
        let expected: Vec<String> = secrets.iter().map(|secret| copy(secret)).collect();
        wait_for(
            &format!("{account} to have the copies of {secrets:?}"),
            LIMIT,
            async || {
                let found = accounts
                    .get(account)
                    .await?
                    .image_pull_secrets
                    .unwrap_or_default();
                let found: Vec<String> = found.into_iter().map(|entry| entry.name).collect();
                Ok((found == expected).then_some(()))
            },
        )
        .await
    }

    /// Waits until the copy of a Secret is gone.
    async fn until_gone(&self, secret: &str) -> Result<()> {
        let secrets: Api<Secret> = Api::namespaced(self.admin().await?, OPERATORS);
        wait_for(&format!("the copy of {secret} to be gone"), LIMIT, async || {
            Ok(secrets
                .get_metadata_opt(&copy(secret))
                .await?
                .is_none()
                .then_some(()))
        })
        .await
    }

    /// OLM copied versions to the namespace that operators look after, and nothing else came there.
    async fn got_copies_only(&self) -> Result<()> {
        let versions = self.versions(WATCHED).await?;
        let secrets: Api<Secret> = Api::namespaced(self.admin().await?, WATCHED);
        wait_for("versions that OLM copied", LIMIT, async || {
            let copied = versions
                .list_metadata(&ListParams::default().labels(COPIED_FROM))
                .await?;
            Ok((!copied.items.is_empty()).then_some(()))
        })
        .await?;
        let all = secrets.list_metadata(&ListParams::default()).await?.items;
        ensure!(
            all.iter()
                .all(|secret| !secret.name_any().starts_with("olm-pull-"))
        );
        Ok(())
    }

    /// Deletes the pods of an operator, for which others come.
    async fn replace_pods(&self, name: &str) -> Result<()> {
        let pods: Api<Pod> = Api::namespaced(self.admin().await?, OPERATORS);
        let of_operator = ListParams::default().labels(&format!("app={name}"));
        pods.delete_collection(&DeleteParams::default(), &of_operator)
            .await?;
        Ok(())
    }

    /// Waits until OLM has ended an upgrade: a version that is deleted before is made again by OLM.
    async fn until_upgraded(&self, from: &str, to: &str) -> Result<()> {
        let versions = self.versions(OPERATORS).await?;
        wait_for(&format!("{to} in the place of {from}"), LIMIT, async || {
            let next = versions.get(to).await?;
            let is_ended = next.data["status"]["phase"] == "Succeeded"
                && versions.get_metadata_opt(from).await?.is_none();
            Ok(is_ended.then_some(()))
        })
        .await
    }

    /// Removes an operator as OLM's documentation says: its Subscription, and its version.
    async fn remove(&self, name: &str, version: &str) -> Result<()> {
        let resource = olm_resource("Subscription", "subscriptions");
        let subscriptions: Api<DynamicObject> =
            Api::namespaced_with(self.admin().await?, OPERATORS, &resource);
        let delete = DeleteParams::default();
        subscriptions.delete(name, &delete).await?;
        self.versions(OPERATORS).await?.delete(version, &delete).await?;
        Ok(())
    }

    /// Writes a Secret with the password of now, as the administrator does, where catalogs are.
    async fn write_secret(&self, name: &str) -> Result<()> {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "stringData": {".dockerconfigjson": self.registry.docker_config(USER)?},
        });
        apply::object(&self.plane.admin().client().await?, secret)
            .await
            .map(drop)
    }

    /// Makes a source of a catalog and subscribes to its package.
    async fn subscribe(&self, catalog: &Catalog, name: &str, secret: &str) -> Result<()> {
        let client = self.plane.admin().client().await?;
        apply::object(&client, catalog.source(name, &[secret])).await?;
        let subscription = catalog.subscription(name, OPERATORS, name);
        apply::object(&client, subscription).await.map(drop)
    }

    /// Subscribes to it in another namespace, whose operators look after one namespace.
    async fn subscribe_in(&self, catalog: &Catalog, name: &str, namespace: &str, target: &str) -> Result<()> {
        let group = json!({
            "apiVersion": "operators.coreos.com/v1", "kind": "OperatorGroup",
            "metadata": {"name": "group", "namespace": namespace}, "spec": {"targetNamespaces": [target]},
        });
        for object in [group, catalog.subscription(name, namespace, name)] {
            apply::object(&self.admin().await?, object).await?;
        }
        Ok(())
    }

    /// Waits until a pod of an operator for all namespaces is as it is asked for.
    async fn until_pod(&self, name: &str, what: &str, is_so: impl Fn(&Pod) -> bool) -> Result<Pod> {
        self.until_pod_in(OPERATORS, name, what, is_so).await
    }

    async fn until_pod_in(
        &self,
        namespace: &str,
        name: &str,
        what: &str,
        is_so: impl Fn(&Pod) -> bool,
    ) -> Result<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.plane.admin().client().await?, namespace);
        let of_operator = ListParams::default().labels(&format!("app={name}"));
        let what = format!("a pod of {name} in {namespace} {what}");
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

/// Holds: S14.
#[tokio::test]
async fn operators_of_real_olm_run_because_of_the_pull_secrets_of_their_catalogs() -> Result<()> {
    let scene = Scene::start().await?;
    let watch = Watch::new(&scene.plane, &[NAMESPACE, OPERATORS]);
    scene.write_secret(SECRET).await?;
    let first = scene.bundle("1.0.0", "shop", "shop-controller").await?;
    let catalog = Catalog::start("shop", std::slice::from_ref(&first)).await?;
    scene.subscribe(&catalog, "shop", SECRET).await?;
    // Without the program.
    let pod = scene
        .until_pod("shop", "that could not be pulled", is_pull_refused)
        .await?;
    let spec = pod.spec.unwrap_or_default();
    ensure!(spec.service_account_name.as_deref() == Some("shop-controller"));
    ensure!(spec.image_pull_secrets.is_none(), "OLM itself names the Secret");

    // With it: the pod that came before is evicted, and its successor runs.
    let program = scene.start_program().await?;
    scene.until_pod("shop", "that runs", is_running).await?;
    scene.until_linked("shop-controller", &[SECRET]).await?;

    // The next pod pulls with the next password.
    scene.registry.change_password(USER)?;
    scene.write_secret(SECRET).await?;
    scene.until_copied(SECRET).await?;
    scene.replace_pods("shop").await?;
    scene
        .until_pod("shop", "that runs with the next password", is_running)
        .await?;

    // A second catalog, whose operator was not there before: its first pod has what it needs.
    scene.write_secret("second").await?;
    let blog = scene.bundle("1.0.0", "blog", "blog-controller").await?;
    let second = Catalog::start("blog", &[blog]).await?;
    scene.subscribe(&second, "blog", "second").await?;
    scene.until_pod("blog", "that runs", is_running).await?;
    scene.until_linked("blog-controller", &["second"]).await?;
    scene.until_linked("shop-controller", &[SECRET]).await?;

    // Groups for one namespace: its own, and another one, which has a copy of the version and gets nothing. OLM installs what the
    // operator depends on from another catalog, and each has what its own catalog names.
    let base = scene.bundle("1.0.0", "base", "base-controller").await?;
    let solo = scene.bundle("1.0.0", "solo", "solo-controller").await?;
    let third = Catalog::start("solo", &[solo.requiring("base")]).await?;
    let fourth = Catalog::start("base", &[base]).await?;
    for source in [
        third.source("solo", &[SECRET]),
        fourth.source("base", &["second"]),
    ] {
        apply::object(&scene.admin().await?, source).await?;
    }
    scene.subscribe_in(&third, "solo", OWN, OWN).await?;
    scene.subscribe_in(&third, "solo", SINGLE, WATCHED).await?;
    for namespace in [OWN, SINGLE] {
        for (operator, secret) in [("solo", SECRET), ("base", "second")] {
            scene
                .until_pod_in(namespace, operator, "that runs", is_running)
                .await?;
            let account = format!("{operator}-controller");
            scene.until_linked_in(namespace, &account, &[secret]).await?;
        }
    }
    scene.got_copies_only().await?;

    // The next version of the first has another ServiceAccount.
    let next = scene.bundle("2.0.0", "shop", "shop-controller-2").await?;
    catalog.change(&[first, next]).await?;
    scene
        .until_pod("shop", "of the next version that runs", |pod| {
            let account = pod
                .spec
                .as_ref()
                .and_then(|spec| spec.service_account_name.as_deref());
            account == Some("shop-controller-2") && is_running(pod)
        })
        .await?;
    scene.until_linked("shop-controller-2", &[SECRET]).await?;

    // With its operator each copy goes, and nothing is left.
    scene.until_upgraded("shop.v1.0.0", "shop.v2.0.0").await?;
    scene.remove("blog", "blog.v1.0.0").await?;
    scene.until_gone("second").await?;
    scene.until_linked("shop-controller-2", &[SECRET]).await?;
    scene.remove("shop", "shop.v2.0.0").await?;
    scene.until_gone(SECRET).await?;
    let accounts: Api<ServiceAccount> = Api::namespaced(scene.admin().await?, OPERATORS);
    for account in accounts.list(&ListParams::default()).await? {
        let entries = account.image_pull_secrets.unwrap_or_default();
        let ours = entries.iter().filter(|entry| entry.name.starts_with("olm-pull-"));
        ensure!(ours.count() == 0, "a link is left");
    }
    ensure!(program.exit_status().is_none(), "{}", program.log());
    watch.passed();
    Ok(())
}

fn is_running(pod: &Pod) -> bool {
    let status = pod.status.as_ref();
    let is_running = status.is_some_and(|status| status.phase.as_deref() == Some("Running"));
    is_running && pod.metadata.deletion_timestamp.is_none()
}
