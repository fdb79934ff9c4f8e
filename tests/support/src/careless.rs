//! A tenant with a careless role, which may write more than its tasks.

use std::fmt::Debug;

use anyhow::Result;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{Api, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub_harness::wait_for;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{LIMIT, Stage};

impl Stage {
    /// The tasks as a user sees them who has every right on everything of renderhub's in the tenant's namespace: on the status
    /// of tasks, and even the one that makes a hub.
    pub async fn careless_tenant(&self) -> Result<Api<RenderTask>> {
        let namespace = &self.scope.tenant;
        let name = format!("careless-{namespace}");
        let user = self.plane.user(&name, &[])?;
        let role: Role = serde_json::from_value(json!({
            "metadata": {"name": name},
            "rules": [{"apiGroups": ["renderhub.dev"], "resources": ["*"], "verbs": ["*"]}],
        }))?;
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name},
            "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": user.name()}],
        }))?;
        let post = PostParams::default();
        let roles: Api<Role> = Api::namespaced(self.admin.clone(), namespace);
        let bindings: Api<RoleBinding> = Api::namespaced(self.admin.clone(), namespace);
        roles.create(&post, &role).await?;
        bindings.create(&post, &binding).await?;
        let tasks: Api<RenderTask> = Api::namespaced(user.client().await?, namespace);
        wait_for("the tenant's rights to be in force", LIMIT, async || {
            let answer = tasks.list(&kube::api::ListParams::default()).await;
            Ok(answer.is_ok().then_some(()))
        })
        .await?;
        Ok(tasks)
    }
}

/// Puts a whole status in the place of the one that is there.
///
/// # Errors
/// The API server's refusal.
pub async fn put_status(tasks: &Api<RenderTask>, name: &str, status: &Value) -> kube::Result<()> {
    let patch = json!([{"op": "add", "path": "/status", "value": status}]);
    let patch: Patch<Value> = Patch::Json(serde_json::from_value(patch).map_err(kube::Error::SerdeError)?);
    tasks
        .patch_status(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}

/// Puts these finalizers in the place of those that are there.
///
/// # Errors
/// The API server's refusal.
pub async fn put_finalizers<K>(objects: &Api<K>, name: &str, finalizers: &Value) -> kube::Result<()>
where
    K: Clone + DeserializeOwned + Debug,
{
    let patch = Patch::Merge(json!({"metadata": {"finalizers": finalizers}}));
    objects
        .patch(name, &PatchParams::default(), &patch)
        .await
        .map(drop)
}
