//! A cluster as its owner hands it to a platform: one namespace, one account, and a kubeconfig that can do nothing else.
//!
//! The namespace and the rights are those of `examples/remote-cluster/role.yaml`, that very file, so that whatever works in a
//! test works for people.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::Api;
use kube::api::{DeleteParams, ListParams};
use serde_json::{Value, json};

use crate::{ControlPlane, Identity, apply, rundir, wait_for};

/// The account of the kubeconfig, the Role and the binding of the examples are all called this.
pub const ACCOUNT: &str = "renderhub";
/// The namespace of the examples, in whose place a test's own is put.
pub const NAMESPACE: &str = "renderhub-jobs";
/// How long the API server may take to see that a right or an account is there, or gone.
const LIMIT: Duration = Duration::from_secs(30);

/// A namespace of a control plane that Jobs of a hub elsewhere may run in.
#[derive(Debug, Clone)]
pub struct Remote<'a> {
    /// The control plane.
    pub plane: &'a ControlPlane,
    /// The namespace.
    pub namespace: String,
}

impl<'a> Remote<'a> {
    /// Creates a namespace with a unique name, with the account and the Role of the example.
    ///
    /// # Errors
    /// If the API server refuses, or does not see the rights in time.
    pub async fn make(plane: &'a ControlPlane, prefix: &str) -> Result<Self> {
        let namespace = format!("{prefix}-{}", rundir::random_hex(4)?);
        let remote = Self { plane, namespace };
        remote.grant().await?;
        Ok(remote)
    }

    /// Applies the example once more: gives back what [`Remote::revoke`] or [`Remote::expel`] took.
    ///
    /// # Errors
    /// As [`Remote::make`].
    pub async fn grant(&self) -> Result<()> {
        let yaml = example("remote-cluster/role.yaml", &self.namespace)?;
        self.plane.apply_yaml(&yaml).await?;
        // Pods cannot be made before it is there.
        let accounts = self.accounts().await?;
        wait_for("the namespace's default ServiceAccount", LIMIT, async || {
            Ok(accounts.get_metadata_opt("default").await?)
        })
        .await?;
        let identity = self.identity().await?;
        self.until_answered(&identity, 200).await
    }

    /// The user's name as the API server knows it.
    #[must_use]
    pub fn user(&self) -> String {
        format!("system:serviceaccount:{}:{ACCOUNT}", self.namespace)
    }

    /// The account by a token that it has never had before; earlier ones go on.
    ///
    /// # Errors
    /// If the API server gives none.
    pub async fn identity(&self) -> Result<Identity> {
        self.plane.service_account(&self.namespace, ACCOUNT).await
    }

    /// The kubeconfig, as text, with a token that it has never had before.
    ///
    /// # Errors
    /// As [`Remote::identity`].
    pub async fn kubeconfig(&self) -> Result<String> {
        self.identity().await?.kubeconfig_text()
    }

    /// A user by certificate with the same rights.
    ///
    /// # Errors
    /// If the API server refuses, or does not see the rights in time.
    pub async fn certificate_identity(&self, user: &str) -> Result<Identity> {
        let identity = self.plane.user(user, &[])?;
        let group = "rbac.authorization.k8s.io";
        let binding = json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding",
            "metadata": {"name": user, "namespace": self.namespace},
            "roleRef": {"apiGroup": group, "kind": "Role", "name": ACCOUNT},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        });
        apply::object(&self.plane.admin().client().await?, binding).await?;
        self.until_answered(&identity, 200).await?;
        Ok(identity)
    }

    /// Takes every right from the account: it is known and forbidden everything (403).
    ///
    /// # Errors
    /// If the API server refuses, or does not see it in time.
    pub async fn revoke(&self) -> Result<()> {
        let identity = self.identity().await?;
        let bindings: Api<RoleBinding> = Api::namespaced(self.plane.admin().client().await?, &self.namespace);
        bindings.delete(ACCOUNT, &DeleteParams::default()).await?;
        self.until_answered(&identity, 403).await
    }

    /// Deletes the account: all of its tokens are refused (401).
    ///
    /// # Errors
    /// As [`Remote::revoke`].
    pub async fn expel(&self) -> Result<()> {
        let identity = self.identity().await?;
        // The API server remembers for some seconds that a token was good. This one it learns last, so it forgets it last.
        self.answer(&identity).await?;
        let accounts = self.accounts().await?;
        accounts.delete(ACCOUNT, &DeleteParams::default()).await?;
        self.until_answered(&identity, 401).await
    }

    /// The Secret with a kubeconfig, for the hub.
    #[must_use]
    pub fn secret(&self, namespace: &str, name: &str, kubeconfig: &str) -> Value {
        json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": namespace},
            "stringData": {"value": kubeconfig},
        })
    }

    /// The `RenderCluster` that names such a Secret, for every namespace and for no credential.
    #[must_use]
    pub fn render_cluster(&self, name: &str, secret: &str) -> Value {
        json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": name},
            "spec": {
                "kubeConfig": {"secretRef": {"name": secret}}, "renderNamespace": self.namespace,
                "allowedNamespaces": ["*"],
            },
        })
    }

    async fn accounts(&self) -> Result<Api<ServiceAccount>> {
        let admin = self.plane.admin().client().await?;
        Ok(Api::namespaced(admin, &self.namespace))
    }

    /// Waits until the user gets this answer when it lists Jobs here.
    async fn until_answered(&self, user: &Identity, code: u16) -> Result<()> {
        let what = format!("{} to be answered with {code}", user.name());
        wait_for(&what, LIMIT, async || {
            Ok((self.answer(user).await? == code).then_some(()))
        })
        .await
    }

    /// The code of the answer that the user gets when it lists Jobs here.
    async fn answer(&self, user: &Identity) -> Result<u16> {
        let jobs: Api<Job> = Api::namespaced(user.client().await?, &self.namespace);
        match jobs.list_metadata(&ListParams::default().limit(1)).await {
            Ok(_) => Ok(200),
            Err(kube::Error::Api(status)) => Ok(status.code),
            Err(error) => Err(error.into()),
        }
    }
}

/// A file of `examples` with another namespace for the Jobs.
///
/// # Errors
/// If there is no such file, or it does not name the namespace.
pub fn example(file: &str, namespace: &str) -> Result<String> {
    let path = examples().join(file);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    ensure!(text.contains(NAMESPACE), "{file} does not speak of {NAMESPACE}");
    Ok(text.replace(NAMESPACE, namespace))
}

/// Where the examples are.
#[must_use]
pub fn examples() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness.ancestors().nth(2).unwrap_or(harness).join("examples")
}
