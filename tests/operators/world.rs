//! A catalog's namespace, namespaces of operators, and a program that copies pull Secrets between them.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::core::v1::{ConfigMap, Secret, ServiceAccount};
use k8s_openapi::api::events::v1::Event;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams};
use kube::{Client, ResourceExt};
use renderhub::api::olm::olm_resource;
use renderhub::kubernetes::pull_secrets::RECORD;
use renderhub::plan::pipeline::object::ObjectKey;
use renderhub::plan::pull_secrets::ownership::copy_name;
use renderhub_harness::audit::{self, Mark};
use renderhub_harness::olm::apply_crds;
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::{AuditLevel, ControlPlane, Hub, Identity, Rights, apply, wait_for};
use serde_json::{Value, json};
use support::programs;
use tokio::sync::OnceCell;

/// Longest wait for anything that normally takes moments, on a machine that is busy with other tests.
pub const LIMIT: Duration = Duration::from_secs(60);
/// The Secret that a catalog names.
pub const PULL: &str = "pull";

/// The control plane of the tests without OLM's programs. It cannot stream lists, as older ones: `list` is a right that is used there.
pub async fn plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async {
        let plane = ControlPlane::builder()
            .with_audit(AuditLevel::Metadata)
            .without_job_controller()
            .with_apiserver_arg("--feature-gates=WatchList=false")
            .start()
            .await?;
        apply_crds(&plane.admin().client().await?).await?;
        anyhow::Ok(plane)
    };
    PLANE.get_or_try_init(start).await
}

/// One test's part of the control plane.
pub struct World {
    pub plane: &'static ControlPlane,
    pub admin: Client,
    /// The namespace of catalogs.
    pub catalogs: String,
    /// Namespaces that copies may go to.
    pub teams: Vec<String>,
    /// Namespace of the program's ConfigMap.
    pub record: String,
    pub user: Identity,
    pub rights: Rights,
    pub flags: Vec<String>,
    pub programs: Vec<Hub>,
    pub begin: Mark,
}

/// The rights that the chart gives for these namespaces, with its own namespace in the place of the release's.
pub async fn rights(catalogs: &str, teams: &[String], record: &str) -> Result<Rights> {
    let values = [
        "pullSecrets.olm.enabled=true".to_owned(),
        format!("pullSecrets.olm.catalogNamespaces={{{catalogs}}}"),
        format!("pullSecrets.olm.namespaces={{{}}}", teams.join(",")),
    ];
    let mut rights = Rights::of_component("pull-secrets", &values).await?;
    for bound in &mut rights.bound {
        if bound.namespace.as_deref() == Some(RELEASE_NAMESPACE) {
            bound.namespace = Some(record.to_owned());
        }
    }
    Ok(rights)
}

impl World {
    /// Namespaces, a Secret `pull` with the value `1`, a catalog `main` that names it, and no program yet.
    pub async fn prepare(prefix: &str, teams: usize) -> Result<Self> {
        let plane = plane().await?;
        let mut names = Vec::new();
        for number in 0..teams {
            names.push(plane.namespace(&format!("{prefix}-{number}")).await?);
        }
        let catalogs = plane.namespace(&format!("{prefix}-olm")).await?;
        let record = plane.namespace(&format!("{prefix}-record")).await?;
        let rights = rights(&catalogs, &names, &record).await?;
        let world = Self {
            admin: plane.admin().client().await?,
            user: plane
                .user_with_rights(&format!("{prefix}-copies"), &rights)
                .await?,
            begin: plane.audit()?.mark().await?,
            plane,
            catalogs,
            teams: names,
            record,
            rights,
            flags: Vec::new(),
            programs: Vec::new(),
        };
        world.write_secret(PULL, "1").await?;
        world.write_catalog("main", &[PULL]).await?;
        Ok(world)
    }

    /// The same with a program that is ready.
    pub async fn start(prefix: &str, teams: usize) -> Result<Self> {
        let mut world = Self::prepare(prefix, teams).await?;
        world.spawn().await?;
        Ok(world)
    }

    /// Starts a program, beside those that run.
    pub async fn spawn(&mut self) -> Result<()> {
        let mut flags = vec![
            format!("--namespaces={}", self.teams.join(",")),
            format!("--catalog-namespaces={}", self.catalogs),
            format!("--record-namespace={}", self.record),
        ];
        flags.extend(self.flags.iter().cloned());
        let binary = programs::hub();
        let program = Hub::spawn_command(binary, "pull-secrets", &self.user.kubeconfig()?, &flags, &[])?;
        program.wait_ready().await?;
        self.programs.push(program);
        Ok(())
    }

    /// Kills all programs and starts one.
    pub async fn restart(&mut self) -> Result<()> {
        self.kill();
        self.spawn().await
    }

    /// Kills all programs.
    pub fn kill(&mut self) {
        for program in self.programs.drain(..) {
            program.kill9();
        }
    }

    pub fn team(&self) -> &str {
        &self.teams[0]
    }

    /// Writes a pull Secret where catalogs are.
    pub async fn write_secret(&self, name: &str, value: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {"name": name, "namespace": self.catalogs},
            "stringData": {".dockerconfigjson": config(value)},
        }))
        .await
    }

    pub async fn write_catalog(&self, name: &str, secrets: &[&str]) -> Result<()> {
        self.apply(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": name, "namespace": self.catalogs},
            "spec": {"sourceType": "grpc", "address": "127.0.0.1:1", "secrets": secrets},
        }))
        .await
    }

    /// What OLM makes of an operator: a Subscription that has a version, the version, and its ServiceAccount.
    pub async fn install(&self, namespace: &str, name: &str, catalog: &str, account: &str) -> Result<()> {
        self.write_account(namespace, account, &[]).await?;
        self.write_version(namespace, name, account).await?;
        self.subscribe(namespace, name, catalog, name).await
    }

    pub async fn subscribe(&self, namespace: &str, name: &str, catalog: &str, version: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"name": name, "channel": "stable", "source": catalog, "sourceNamespace": self.catalogs},
        }))
        .await?;
        let status = json!({"status": {
            "installedCSV": version, "currentCSV": version, "lastUpdated": "2026-01-01T00:00:00Z",
        }});
        let api = self.olm("Subscription", "subscriptions", namespace);
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(&status))
            .await?;
        Ok(())
    }

    /// A version of an operator with one Deployment.
    pub async fn write_version(&self, namespace: &str, name: &str, account: &str) -> Result<()> {
        self.apply(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"displayName": name, "install": {"strategy": "deployment", "spec": {"deployments": [{
                "name": format!("{name}-controller"),
                "spec": {
                    "selector": {"matchLabels": {"app": name}},
                    "template": {"metadata": {"labels": {"app": name}}, "spec": {
                        "serviceAccountName": account, "containers": [{"name": "c", "image": "example.test/c"}],
                    }},
                },
            }]}}},
        }))
        .await
    }

    pub async fn write_account(&self, namespace: &str, name: &str, entries: &[&str]) -> Result<()> {
        let entries: Vec<Value> = entries.iter().map(|name| json!({"name": name})).collect();
        let mut account = json!({
            "apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace},
        });
        if !entries.is_empty() {
            account["imagePullSecrets"] = json!(entries);
        }
        self.apply(account).await
    }

    pub async fn apply(&self, object: Value) -> Result<()> {
        apply::object(&self.admin, object).await.map(drop)
    }

    pub fn olm(&self, kind: &str, plural: &str, namespace: &str) -> Api<DynamicObject> {
        let resource: ApiResource = olm_resource(kind, plural);
        Api::namespaced_with(self.admin.clone(), namespace, &resource)
    }

    pub async fn remove_subscription(&self, namespace: &str, name: &str) -> Result<()> {
        let api = self.olm("Subscription", "subscriptions", namespace);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub async fn remove_version(&self, namespace: &str, name: &str) -> Result<()> {
        let api = self.olm("ClusterServiceVersion", "clusterserviceversions", namespace);
        api.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    pub fn secrets(&self, namespace: &str) -> Api<Secret> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    pub fn accounts(&self, namespace: &str) -> Api<ServiceAccount> {
        Api::namespaced(self.admin.clone(), namespace)
    }

    /// Name of the copy of a Secret of the catalogs.
    pub fn copy(&self, secret: &str) -> String {
        copy_name(&ObjectKey::new(&self.catalogs, secret))
    }

    /// Makes a Secret that has all that the copy of [`PULL`] has, but for its value.
    pub async fn forge_copy(&self, namespace: &str) -> Result<Secret> {
        let source = format!("{}/{PULL}", self.catalogs);
        let forged = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
            "metadata": {
                "name": self.copy(PULL), "namespace": namespace,
                "labels": {"app.kubernetes.io/managed-by": "renderhub", "renderhub.dev/copied-for": "olm"},
                "annotations": {"renderhub.dev/source": source, "renderhub.dev/source-uid": "forged", "renderhub.dev/operators": ""},
            },
            "stringData": {".dockerconfigjson": config("forged")},
        });
        self.apply(forged).await?;
        Ok(self.secrets(namespace).get(&self.copy(PULL)).await?)
    }

    /// Waits until the copy of a Secret has this value.
    pub async fn until_copied(&self, namespace: &str, secret: &str, value: &str) -> Result<Secret> {
        let (api, name) = (self.secrets(namespace), self.copy(secret));
        wait_for(
            &format!("a copy of {secret} in {namespace} with the value {value}"),
            LIMIT,
            async || {
                let copy = api.get_opt(&name).await?;
                Ok(copy.filter(|copy| value_of(copy).as_deref() == Some(&config(value))))
            },
        )
        .await
    }

    /// The entries of a ServiceAccount.
    pub async fn entries(&self, namespace: &str, account: &str) -> Result<Vec<String>> {
        let account = self.accounts(namespace).get(account).await?;
        let entries = account.image_pull_secrets.unwrap_or_default();
        Ok(entries.into_iter().map(|entry| entry.name).collect())
    }

    /// Waits until a ServiceAccount has exactly these entries.
    pub async fn until_entries(&self, namespace: &str, account: &str, expected: &[String]) -> Result<()> {
        wait_for(&format!("{account} to have {expected:?}"), LIMIT, async || {
            let found = self.entries(namespace, account).await?;
            Ok((found == expected).then_some(()))
        })
        .await
    }

    /// Waits until no Secret of the form of a copy is in a namespace.
    pub async fn until_no_copy(&self, namespace: &str) -> Result<()> {
        wait_for(&format!("no copy in {namespace}"), LIMIT, async || {
            let all = self
                .secrets(namespace)
                .list_metadata(&ListParams::default())
                .await?;
            let mut names = all.items.iter().map(ResourceExt::name_any);
            Ok((!names.any(|name| name.starts_with("olm-pull-"))).then_some(()))
        })
        .await
    }

    /// An operator of another namespace that the program serves too; once it has its copy, everything that happened before was seen.
    pub async fn until_seen(&self) -> Result<()> {
        let name = format!("seen-{}", renderhub_harness::rundir::random_hex(3)?);
        let last = self.teams.last().context("a namespace")?;
        self.install(last, &name, "main", &name).await?;
        self.until_entries(last, &name, &[self.copy(PULL)]).await
    }

    /// What the program wrote since then and was not refused, as `verb resource namespace/name`; events are left out.
    pub async fn writes(&self, since: Mark) -> Result<Vec<String>> {
        let all = self.plane.audit()?.since_with(since, self.user.name()).await?;
        let own = all
            .iter()
            .filter(|event| event.user == self.user.name() && event.is_write());
        let own = own.filter(|event| event.stage == "ResponseComplete" && event.resource != "events");
        Ok(own
            .map(|event| format!("{} {}/{}", event.action(), event.namespace, event.name))
            .collect())
    }

    pub async fn mark(&self) -> Result<Mark> {
        self.plane.audit()?.mark().await
    }

    /// Everything that the program asked for.
    pub async fn requests(&self) -> Result<Vec<audit::Event>> {
        let mut all = self
            .plane
            .audit()?
            .since_with(self.begin, self.user.name())
            .await?;
        all.retain(|event| event.user == self.user.name());
        Ok(all)
    }

    /// The data of the program's ConfigMap.
    pub async fn recorded(&self) -> Result<BTreeMap<String, String>> {
        let api: Api<ConfigMap> = Api::namespaced(self.admin.clone(), &self.record);
        let record = api.get_opt(RECORD).await?;
        Ok(record.and_then(|record| record.data).unwrap_or_default())
    }

    /// Waits until the ConfigMap has exactly these conditions, as `kind name reason`.
    pub async fn until_conditions(&self, expected: &[&str]) -> Result<String> {
        wait_for(&format!("the conditions {expected:?}"), LIMIT, async || {
            let text = self
                .recorded()
                .await?
                .remove("conditions.json")
                .unwrap_or_else(|| "[]".to_owned());
            let all: Vec<BTreeMap<String, String>> = serde_json::from_str(&text)?;
            let found: Vec<String> = all
                .iter()
                .map(|one| format!("{} {} {}", one["kind"], one["name"], one["reason"]))
                .collect();
            Ok((found == expected).then_some(text))
        })
        .await
    }

    /// Waits until an object of OLM has an event with this reason; its note.
    pub async fn until_event(&self, namespace: &str, name: &str, reason: &str) -> Result<String> {
        let api: Api<Event> = Api::namespaced(self.admin.clone(), namespace);
        wait_for(&format!("an event {reason} on {name}"), LIMIT, async || {
            let all = api.list(&ListParams::default()).await?.items;
            let found = all.into_iter().find(|event| {
                let regarding = event.regarding.clone().unwrap_or_default();
                event.reason.as_deref() == Some(reason)
                    && regarding.name.as_deref() == Some(name)
                    && regarding.api_version.as_deref() == Some("operators.coreos.com/v1alpha1")
            });
            Ok(found.and_then(|event| event.note))
        })
        .await
    }

    /// The end of a test: the program still runs, was refused nothing that the chart gives, and said nothing of a Secret.
    pub fn passed(&self) -> Result<()> {
        for program in &self.programs {
            ensure!(
                program.exit_status().is_none(),
                "the program ended: {}",
                program.log()
            );
            ensure!(!program.log().contains("canary"), "a Secret is in the log");
        }
        Ok(())
    }

    /// The same, and nothing was refused.
    pub fn passed_with_its_rights(&self) -> Result<()> {
        let refused = self.plane.audit()?.refused(self.user.name())?;
        ensure!(refused.is_empty(), "the chart lacks a right: {refused:#?}");
        self.passed()
    }
}

/// A file of credentials with this value in it.
pub fn config(value: &str) -> String {
    let auth = STANDARD.encode(format!("user:canary-{value}"));
    json!({"auths": {"registry.test": {"auth": auth}}}).to_string()
}

/// The value of a pull Secret.
pub fn value_of(secret: &Secret) -> Option<String> {
    let value = secret.data.as_ref()?.get(".dockerconfigjson")?;
    String::from_utf8(value.0.clone()).ok()
}
