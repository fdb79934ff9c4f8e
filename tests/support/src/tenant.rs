//! A tenant with a registry, a credential and a `ServiceAccount` of its own.

use anyhow::Result;
use k8s_openapi::api::authorization::v1::SubjectAccessReview;
use kube::api::{Api, PostParams};
use renderhub::api::RenderTask;
use renderhub_harness::{apply, audit, wait_for};
use serde_json::{Value, json};

use super::{LIMIT, Stage};

/// The tenant's `ServiceAccount`.
pub const BUILDER: &str = "builder";
/// The tenant's own password; it may be in the tenant's Secret and the task's config Secret, and nowhere else.
pub const OWN: &str = "canary-own-password";

/// The name of a `ServiceAccount` as a user.
pub fn account(namespace: &str, name: &str) -> String {
    format!("system:serviceaccount:{namespace}:{name}")
}

impl Stage {
    /// Makes the `ServiceAccount`, lets the hub become it in this way, and lets it read what tasks name.
    pub async fn make_builder(&self, verb: &str) -> Result<()> {
        let tenant = self.scope.tenant.clone();
        self.make_account(&tenant, BUILDER).await?;
        self.let_hub_become(&tenant, BUILDER, verb).await?;
        self.let_read(
            &tenant,
            &tenant,
            BUILDER,
            &["secrets", "configmaps", "registries"],
        )
        .await
    }

    /// Makes a `ServiceAccount`.
    pub async fn make_account(&self, namespace: &str, name: &str) -> Result<()> {
        let account = json!({"apiVersion": "v1", "kind": "ServiceAccount",
            "metadata": {"name": name, "namespace": namespace}});
        apply::object(&self.admin, account).await?;
        Ok(())
    }

    /// Lets the hub become one `ServiceAccount`: `create` its tokens, or `impersonate` it.
    pub async fn let_hub_become(&self, namespace: &str, name: &str, verb: &str) -> Result<()> {
        let resource = match verb {
            "create" => "serviceaccounts/token",
            _ => "serviceaccounts",
        };
        let right =
            json!({"apiGroups": [""], "resources": [resource], "resourceNames": [name], "verbs": [verb]});
        let hub = self.hub_subject();
        self.bind(namespace, &format!("become-{name}"), &right, &hub)
            .await?;
        self.until_hub_may_become(namespace, name, verb).await
    }

    /// The API server's own watch of rights may be late, and the hub is to be refused nothing.
    async fn until_hub_may_become(&self, namespace: &str, name: &str, verb: &str) -> Result<()> {
        let subresource = (verb == "create").then_some("token");
        let question = json!({"metadata": {}, "spec": {"user": self.hub_user.name(), "resourceAttributes": {
            "namespace": namespace, "verb": verb, "resource": "serviceaccounts", "subresource": subresource, "name": name,
        }}});
        let question: SubjectAccessReview = serde_json::from_value(question)?;
        let reviews: Api<SubjectAccessReview> = Api::all(self.admin.clone());
        wait_for("the hub's right to be in force", LIMIT, async || {
            let answer = reviews.create(&PostParams::default(), &question).await?;
            Ok(answer.status.is_some_and(|status| status.allowed).then_some(()))
        })
        .await
    }

    /// Lets a `ServiceAccount` of `of` get these resources in `namespace`.
    pub async fn let_read(&self, of: &str, namespace: &str, name: &str, resources: &[&str]) -> Result<()> {
        let right = json!({"apiGroups": ["", "renderhub.dev"], "resources": resources, "verbs": ["get"]});
        let account = json!({"kind": "ServiceAccount", "name": name, "namespace": of});
        self.bind(namespace, &format!("{of}-{name}"), &right, &account)
            .await
    }

    /// Gives a subject a right in a namespace.
    pub async fn bind(&self, namespace: &str, name: &str, right: &Value, subject: &Value) -> Result<()> {
        let meta = json!({"name": name, "namespace": namespace});
        let group = "rbac.authorization.k8s.io";
        let role =
            json!({"apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": meta, "rules": [right]});
        apply::object(&self.admin, role).await?;
        let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": meta,
            "subjects": [subject], "roleRef": {"apiGroup": group, "kind": "Role", "name": name}});
        apply::object(&self.admin, binding).await?;
        Ok(())
    }

    /// The hub, as the subject of a binding.
    pub fn hub_subject(&self) -> Value {
        json!({"kind": "User", "name": self.hub_user.name(), "apiGroup": "rbac.authorization.k8s.io"})
    }

    /// Makes a credential in a namespace that is not the rendering namespace, with the copy of it that kubectl leaves in an
    /// annotation.
    pub async fn make_own_secret(&self, namespace: &str, name: &str) -> Result<()> {
        let secret = json!({"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/basic-auth",
            "metadata": {"name": name, "namespace": namespace, "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": json!({"stringData": {"password": OWN}}).to_string(),
            }},
            "stringData": {"username": "me", "password": OWN}});
        apply::object(&self.admin, secret).await?;
        Ok(())
    }

    /// Makes a `Registry` that names the Secret `own-push`.
    pub async fn make_own_registry(&self, namespace: &str, name: &str) -> Result<()> {
        let registry = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "Registry",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {"hostname": "registry.mine:5000", "pushSecretRef": {"name": "own-push"}}});
        apply::object(&self.admin, registry).await?;
        Ok(())
    }

    /// Submits a task that names the tenant's `Registry`.
    pub async fn submit_for_registry(&self, name: &str, registry: Value) -> Result<RenderTask> {
        let mut named = json!({"kind": "Registry"});
        for (key, value) in registry.as_object().into_iter().flatten() {
            named[key] = value.clone();
        }
        let spec = json!({"registryRef": named, "serviceAccountName": BUILDER});
        self.submit_with(name, spec).await
    }

    /// Submits a task that describes its registry itself.
    pub async fn submit_for_host(&self, name: &str, secret: &str) -> Result<RenderTask> {
        let spec = json!({"registryRef": null, "baseURL": "registry.mine:5000", "pushSecretRef": {"name": secret},
            "serviceAccountName": BUILDER});
        self.submit_with(name, spec).await
    }

    /// Every answered request on something in the namespace by a user, or on a user's behalf.
    pub async fn requests_of(&self, user: &str, namespace: &str) -> Result<Vec<audit::Event>> {
        let all = self.plane.audit()?;
        let mut events = all.since_with(audit::Mark::START, user).await?;
        events.retain(|e| {
            let who = e.impersonated_user.as_deref().unwrap_or(&e.user);
            who == user && e.namespace == namespace && e.stage == "ResponseComplete"
        });
        Ok(events)
    }

    /// Asserts that the hub as itself has read nothing of what tenants name in this namespace.
    pub async fn hub_read_nothing_itself(&self, namespace: &str) -> Result<()> {
        let own = self.requests_of(self.hub_user.name(), namespace).await?;
        let read: Vec<_> = own
            .iter()
            .filter(|e| {
                ["secrets", "configmaps"].contains(&e.resource.as_str()) || e.action() == "get registries"
            })
            .map(|e| (e.action(), &e.name))
            .collect();
        assert!(read.is_empty(), "the hub read as itself: {read:?}");
        Ok(())
    }

    /// How many tokens of the `ServiceAccount` the hub got.
    pub async fn tokens_of(&self, name: &str) -> Result<usize> {
        self.successes("create serviceaccounts/token", name).await
    }
}
