//! Namespaces with an operator each, as OLM would have made them.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use futures::{StreamExt, TryStreamExt, stream};
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{Api, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::PartialObjectMeta;
use kube::{Client, ResourceExt};
use renderhub::api::olm::olm_resource;
use renderhub::plan::pipeline::object::ObjectKey;
use renderhub::plan::pull_secrets::ownership::copy_name;
use renderhub_harness::audit::{Event, Mark};
use renderhub_harness::hub::AS_INSTALLED;
use renderhub_harness::olm::apply_crds;
use renderhub_harness::progress::Progress;
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::{AuditLevel, ControlPlane, Hub, Identity, Rights, wait_for};
use serde_json::{Value, json};

/// Namespace of the catalogs.
pub(super) const CATALOGS: &str = "catalogs";
/// The Secret that they name.
pub(super) const PULL: &str = "pull";
/// Objects that are made at once.
const AT_ONCE: usize = 16;
/// Writes of the bare writer at once: as the program's workers.
const IN_FLIGHT: usize = 16;
/// Longest wait for what the program does.
pub(super) const LIMIT: Duration = Duration::from_secs(300);
/// Between two looks at many objects.
const PAUSE: Duration = Duration::from_millis(300);

/// The control plane, and what is on it.
pub struct OperatorFleet {
    plane: ControlPlane,
    pub(super) admin: Client,
    user: Identity,
    rights: Rights,
    pub namespaces: Vec<String>,
    /// Number of catalogs: each namespace has its operator from the next one.
    pub(super) catalogs: usize,
}

impl OperatorFleet {
    /// Starts a control plane and makes it all.
    ///
    /// # Errors
    /// If something cannot be made.
    pub async fn make(namespaces: usize, catalogs: usize) -> Result<Self> {
        let plane = ControlPlane::builder()
            .with_audit(AuditLevel::Metadata)
            .without_job_controller()
            .start()
            .await?;
        let admin = plane.admin().client().await?;
        apply_crds(&admin).await?;
        let names: Vec<String> = (0..namespaces)
            .map(|number| format!("team-{number:04}"))
            .collect();
        make_all(&admin, &names, catalogs).await?;
        let values = [
            "pullSecrets.olm.enabled=true".to_owned(),
            format!("pullSecrets.olm.catalogNamespaces={{{CATALOGS}}}"),
            format!("pullSecrets.olm.namespaces={{{}}}", names.join(",")),
        ];
        let rights = Rights::of_component("pull-secrets", &values).await?;
        Ok(Self {
            user: plane.user_with_rights("copies", &rights).await?,
            admin,
            plane,
            rights,
            namespaces: names,
            catalogs: catalogs.max(1),
        })
    }

    /// Starts the program, and waits until it has seen everything.
    ///
    /// # Errors
    /// If it does not become ready.
    pub async fn spawn(&self) -> Result<Hub> {
        let program = std::env::current_exe()?.with_file_name("renderhub");
        let flags = [
            format!("--namespaces={}", self.namespaces.join(",")),
            format!("--catalog-namespaces={CATALOGS}"),
            format!("--record-namespace={RELEASE_NAMESPACE}"),
        ];
        let hub = Hub::spawn_command(
            program,
            "pull-secrets",
            &self.user.kubeconfig()?,
            &flags,
            AS_INSTALLED,
        )?;
        hub.wait_ready().await?;
        Ok(hub)
    }

    /// Gives the program its rights once more, as the platform operator does for a namespace that was made again.
    ///
    /// # Errors
    /// If they cannot be given.
    pub(super) async fn renew_rights(&self) -> Result<()> {
        self.plane.set_rights(&self.user, &self.rights).await
    }

    /// A place in the audit log.
    ///
    /// # Errors
    /// If it cannot be read.
    pub async fn mark(&self) -> Result<Mark> {
        self.plane.audit()?.mark().await
    }

    /// What the program wrote since then; events left out.
    ///
    /// # Errors
    /// If the audit log cannot be read.
    pub async fn writes(&self, since: Mark) -> Result<Vec<Event>> {
        self.writes_of(since, &self.user).await
    }

    async fn writes_of(&self, since: Mark, user: &Identity) -> Result<Vec<Event>> {
        let mut all = self.plane.audit()?.since_with(since, user.name()).await?;
        all.retain(|event| {
            event.user == user.name()
                && event.is_write()
                && event.resource != "events"
                && event.stage == "ResponseComplete"
        });
        Ok(all)
    }

    /// Gives the Secret this value.
    ///
    /// # Errors
    /// If it cannot be written.
    pub async fn write_secret(&self, value: &str) -> Result<()> {
        write_secret(&self.admin, PULL, value).await
    }

    /// Waits until each copy has this value.
    ///
    /// # Errors
    /// If one does not in time.
    pub async fn until_copied(&self, value: &str) -> Result<()> {
        let (secrets, expected) = (Api::<Secret>::all(self.admin.clone()), config(value));
        let copies = ListParams::default().labels("renderhub.dev/copied-for=olm");
        wait_for("the copies", LIMIT, async || {
            tokio::time::sleep(PAUSE).await;
            let all = secrets.list(&copies).await?.items;
            let is_so = |secret: &&Secret| {
                let value = secret
                    .data
                    .as_ref()
                    .and_then(|data| data.get(".dockerconfigjson"));
                value.is_some_and(|value| value.0 == expected.as_bytes())
            };
            Ok((all.iter().filter(is_so).count() == self.namespaces.len()).then_some(()))
        })
        .await
    }

    /// Waits until each ServiceAccount is linked.
    ///
    /// # Errors
    /// If one is not in time.
    pub async fn until_linked(&self) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::all(self.admin.clone());
        wait_for("the links", LIMIT, async || {
            tokio::time::sleep(PAUSE).await;
            let all = accounts
                .list(&ListParams::default().labels("app=operator"))
                .await?
                .items;
            let linked = all.iter().filter(|account| account.image_pull_secrets.is_some());
            Ok((linked.count() == 2 * self.namespaces.len()).then_some(()))
        })
        .await
    }

    /// Waits until the program has read each copy.
    ///
    /// # Errors
    /// If it has not in time.
    pub async fn until_read(&self, program: &Hub) -> Result<()> {
        wait_for("the copies to be read", LIMIT, async || {
            let metrics = program.metrics().await?;
            let mut lines = metrics.lines();
            let line = lines.find(|line| line.contains("verb=\"get\",resource=\"secrets\",code=\"200\""));
            let reads = line.and_then(|line| line.rsplit(' ').next()?.parse::<usize>().ok());
            Ok((reads > Some(self.namespaces.len())).then_some(()))
        })
        .await
    }

    /// Writes each copy as the program does, without it; the seconds from the first write to the last.
    ///
    /// # Errors
    /// If one cannot be written.
    pub async fn write_bare(&self, value: &str) -> Result<f64> {
        let client = self.user.client().await?;
        let copies: Api<PartialObjectMeta<Secret>> = Api::all(self.admin.clone());
        let known = copies
            .list_metadata(&ListParams::default().labels("renderhub.dev/copied-for=olm"))
            .await?;
        let name = copy_name(&ObjectKey::new(CATALOGS, PULL));
        let encoded = STANDARD.encode(config(value));
        let writes = known.items.into_iter().map(|copy| {
            let api: Api<Secret> = Api::namespaced(client.clone(), &copy.namespace().unwrap_or_default());
            let body = json!({
                "metadata": {"uid": copy.uid(), "labels": copy.labels(), "annotations": copy.annotations()},
                "data": {".dockerconfigjson": encoded},
            });
            let name = name.clone();
            async move {
                let body = Patch::Merge(&body);
                api.patch(&name, &PatchParams::default(), &body).await.map(drop)
            }
        });
        let begin = Instant::now();
        stream::iter(writes)
            .buffer_unordered(IN_FLIGHT)
            .try_collect::<()>()
            .await?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// Makes the namespaces, the catalogs and the operators.
async fn make_all(admin: &Client, names: &[String], catalogs: usize) -> Result<()> {
    let _progress = Progress::start(format!("operators in {} namespaces", names.len()));
    make_namespace(admin, RELEASE_NAMESPACE).await?;
    make_namespace(admin, CATALOGS).await?;
    write_secret(admin, PULL, "first").await?;
    for number in 0..catalogs {
        make(
            admin,
            "CatalogSource",
            "catalogsources",
            CATALOGS,
            json!({
                "metadata": {"name": format!("catalog-{number}")},
                "spec": {"sourceType": "grpc", "address": "127.0.0.1:1", "secrets": [PULL]},
            }),
        )
        .await?;
    }
    let made = names
        .iter()
        .enumerate()
        .map(|(number, name)| make_team(admin, name, number % catalogs.max(1)));
    stream::iter(made)
        .buffer_unordered(AT_ONCE)
        .try_collect::<()>()
        .await?;
    Ok(())
}

async fn make_namespace(admin: &Client, name: &str) -> Result<()> {
    let namespace = serde_json::from_value(json!({"metadata": {"name": name}}))?;
    let api: Api<Namespace> = Api::all(admin.clone());
    api.create(&PostParams::default(), &namespace).await?;
    Ok(())
}

pub(super) async fn write_secret(admin: &Client, name: &str, value: &str) -> Result<()> {
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name, "namespace": CATALOGS}, "stringData": {".dockerconfigjson": config(value)},
    });
    let api: Api<Secret> = Api::namespaced(admin.clone(), CATALOGS);
    let apply = PatchParams::apply("bench").force();
    api.patch(name, &apply, &Patch::Apply(&secret)).await?;
    Ok(())
}

fn config(value: &str) -> String {
    let auth = STANDARD.encode(format!("user:{value}"));
    json!({"auths": {"registry.test": {"auth": auth}}}).to_string()
}

/// Makes an object of OLM.
async fn make(admin: &Client, kind: &str, plural: &str, namespace: &str, mut object: Value) -> Result<()> {
    let resource = olm_resource(kind, plural);
    object["apiVersion"] = json!(resource.api_version);
    object["kind"] = json!(kind);
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), namespace, &resource);
    let object: DynamicObject = serde_json::from_value(object)?;
    let made = api.create(&PostParams::default(), &object).await?;
    made.uid().context("an object without a UID")?;
    Ok(())
}

/// A ServiceAccount of an operator.
pub(super) async fn make_account(admin: &Client, namespace: &str, name: &str) -> Result<()> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let account = json!({"metadata": {"name": name, "labels": {"app": "operator"}}});
    accounts
        .create(&PostParams::default(), &serde_json::from_value(account)?)
        .await?;
    Ok(())
}

/// A namespace with an operator of two Deployments.
pub(super) async fn make_team(admin: &Client, name: &str, catalog: usize) -> Result<()> {
    make_namespace(admin, name).await?;
    for account in ["controller", "webhook"] {
        make_account(admin, name, account).await?;
    }
    make(
        admin,
        "ClusterServiceVersion",
        "clusterserviceversions",
        name,
        version(),
    )
    .await?;
    make(admin, "Subscription", "subscriptions", name, json!({
        "metadata": {"name": "operator"},
        "spec": {
            "name": "operator", "channel": "stable", "source": format!("catalog-{catalog}"), "sourceNamespace": CATALOGS,
        },
    }))
    .await?;
    let status = json!({"status": {
        "installedCSV": "operator.v1", "currentCSV": "operator.v1", "lastUpdated": "2026-01-01T00:00:00Z",
    }});
    let resource = olm_resource("Subscription", "subscriptions");
    let api: Api<DynamicObject> = Api::namespaced_with(admin.clone(), name, &resource);
    api.patch_status("operator", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    Ok(())
}

/// A version of an operator with two Deployments.
fn version() -> Value {
    let deployment = |account: &str| {
        json!({"name": account, "spec": {
            "selector": {"matchLabels": {"app": account}},
            "template": {"metadata": {"labels": {"app": account}}, "spec": {
                "serviceAccountName": account, "containers": [{"name": "c", "image": "registry.test/c"}],
            }},
        }})
    };
    json!({
        "metadata": {"name": "operator.v1"},
        "spec": {"displayName": "operator", "install": {"strategy": "deployment", "spec": {
            "deployments": [deployment("controller"), deployment("webhook")],
        }}},
    })
}
