//! M1: the rendering namespace is no tenant's, and tenants hold no right in it.

use super::Preflight;
use anyhow::{Result, ensure};
use k8s_openapi::api::authorization::v1::{LocalSubjectAccessReview, SubjectAccessReviewSpec};
use k8s_openapi::api::rbac::v1::{ClusterRoleBinding, RoleBinding};
use kube::api::{Api, DeleteParams, ObjectMeta, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::{SKIP, own_stage, refused};
use support::{EVERYWHERE, LIMIT, Stage};

trait Bindings {
    /// Binds a subject to a built-in role in the rendering namespace.
    async fn let_in(&self, name: &str, role: &str, subject: Value) -> Result<()>;
    async fn turn_out(&self, name: &str) -> Result<()>;
    fn bindings(&self) -> Api<RoleBinding>;
    /// Binds a subject to a built-in role in the whole cluster.
    async fn bind_everywhere(&self, role: &str, subject: Value) -> Result<()>;
    async fn unbind_everywhere(&self) -> Result<()>;
    /// Waits until a user may, or may not any more, get pods in the rendering namespace.
    async fn until_may_get_pods(&self, is_allowed: bool, user: Option<&str>, group: &str) -> Result<()>;
}

impl Bindings for Stage {
    async fn let_in(&self, name: &str, role: &str, subject: Value) -> Result<()> {
        let binding: RoleBinding = serde_json::from_value(json!({
            "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        }))?;
        self.bindings().create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    async fn turn_out(&self, name: &str) -> Result<()> {
        self.bindings().delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    fn bindings(&self) -> Api<RoleBinding> {
        Api::namespaced(self.admin.clone(), &self.scope.rendering)
    }

    async fn bind_everywhere(&self, role: &str, subject: Value) -> Result<()> {
        let binding: ClusterRoleBinding = serde_json::from_value(json!({
            "metadata": {"name": self.scope.shard}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        }))?;
        let api: Api<ClusterRoleBinding> = Api::all(self.admin.clone());
        api.create(&PostParams::default(), &binding).await?;
        Ok(())
    }

    async fn unbind_everywhere(&self) -> Result<()> {
        let api: Api<ClusterRoleBinding> = Api::all(self.admin.clone());
        api.delete(&self.scope.shard, &DeleteParams::default()).await?;
        Ok(())
    }

    async fn until_may_get_pods(&self, is_allowed: bool, user: Option<&str>, group: &str) -> Result<()> {
        let api: Api<LocalSubjectAccessReview> = Api::namespaced(self.admin.clone(), &self.scope.rendering);
        let attributes = json!({"namespace": self.scope.rendering, "verb": "get", "resource": "pods"});
        let asked = LocalSubjectAccessReview {
            metadata: ObjectMeta {
                namespace: Some(self.scope.rendering.clone()),
                ..ObjectMeta::default()
            },
            spec: SubjectAccessReviewSpec {
                user: user.map(str::to_owned),
                groups: Some(vec![group.to_owned()]),
                resource_attributes: Some(serde_json::from_value(attributes)?),
                ..SubjectAccessReviewSpec::default()
            },
            ..LocalSubjectAccessReview::default()
        };
        wait_for("the binding to be in force", LIMIT, async || {
            let answer = api.create(&PostParams::default(), &asked).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((allowed == is_allowed).then_some(()))
        })
        .await
    }
}

/// Holds: M1.
#[tokio::test]
async fn a_rendering_namespace_that_is_watched_or_a_tenants_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("own", &[]).await?;
    let flags = format!("{}, {}", stage.scope.tenant, stage.scope.rendering);
    let tenant = std::mem::replace(&mut stage.scope.tenant, flags);
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    ensure!(hub.wait_exit(LIMIT).await?.code() == Some(2));
    ensure!(
        hub.log().contains("--watch-namespaces must not contain"),
        "{}",
        hub.log()
    );
    stage.scope.tenant = tenant;

    // A tenant makes tasks where the credentials are.
    let mut task = stage.task("shop");
    task["metadata"]["namespace"] = json!(stage.scope.rendering);
    let tasks: Api<RenderTask> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    tasks
        .create(&PostParams::default(), &serde_json::from_value(task)?)
        .await?;
    let said = stage.refuses(&["tenant-tasks"]).await?;
    ensure!(said.contains("it is a tenant's"), "{said}");
    stage.starts(&[(SKIP, "tenant-tasks")]).await?;
    tasks.delete("shop", &DeleteParams::default()).await?;

    // A registry lets it push as a tenant would.
    let both = json!({"allowedNamespaces": [stage.scope.tenant, stage.scope.rendering]});
    stage.put_registry(both).await?;
    let said = stage.refuses(&["rendering-namespace"]).await?;
    ensure!(said.contains(&stage.scope.tenant), "{said}");
    stage.put_registry(json!({})).await?;
    stage.starts(&[]).await?;

    // The chart makes no right there.
    stage.allow_forbidden();
    stage.scope.rendering = "default".to_owned();
    let most = "pod-security,network-policy,resource-quota,tenant-tasks,tenant-rights,role-bindings";
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &[(SKIP, most)])?;
    refused(&hub, &["rendering-namespace"]).await?;
    stage.passed();
    Ok(())
}

/// Holds: M1, R7.
#[tokio::test]
async fn a_binding_that_lets_a_stranger_in_is_refused_until_it_is_marked() -> Result<()> {
    let mut stage = Stage::without_hub("bound", &[]).await?;
    let strangers = [
        json!({"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}),
        json!({"kind": "Group", "name": "developers", "apiGroup": "rbac.authorization.k8s.io"}),
        json!({"kind": "ServiceAccount", "name": "builder", "namespace": "elsewhere"}),
    ];
    for subject in strangers {
        stage.let_in("let-in", "view", subject.clone()).await?;
        let said = stage.refuses(&["role-bindings"]).await?;
        ensure!(
            said.contains("let-in") && said.contains("renderhub.dev/platform-access"),
            "{said}"
        );
        stage.starts(&[(SKIP, "role-bindings")]).await?;
        let mark = json!({"metadata": {"annotations": {"renderhub.dev/platform-access": "true"}}});
        stage
            .bindings()
            .patch("let-in", &PatchParams::default(), &Patch::Merge(mark))
            .await?;
        stage.starts(&[]).await?;
        stage.turn_out("let-in").await?;
    }
    let ours = json!({"kind": "ServiceAccount", "name": "helper", "namespace": stage.scope.rendering});
    stage.let_in("own", "view", ours).await?;
    stage.starts(&[]).await?;
    stage.passed();
    Ok(())
}

/// A right that comes from outside the namespace shows in none of its bindings.
///
/// Holds: M1, R7.
#[tokio::test]
async fn a_right_that_tenants_hold_from_elsewhere_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("wide", &[]).await?;
    let group = format!("system:serviceaccounts:{}", stage.scope.tenant);
    let user = format!("system:serviceaccount:{}:default", stage.scope.tenant);
    let subjects = [
        json!({"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}),
        json!({"kind": "ServiceAccount", "name": "default", "namespace": stage.scope.tenant}),
    ];
    for subject in subjects {
        stage.bind_everywhere("view", subject).await?;
        stage.until_may_get_pods(true, Some(&user), &group).await?;
        let said = stage.refuses(&["tenant-rights"]).await?;
        ensure!(
            said.contains(&stage.scope.tenant) && said.contains("get pods/log"),
            "{said}"
        );
        stage.starts(&[(SKIP, "tenant-rights")]).await?;
        stage.unbind_everywhere().await?;
        stage.until_may_get_pods(false, Some(&user), &group).await?;
    }
    stage.starts(&[]).await?;
    stage.passed();
    Ok(())
}

/// Holds: M1.
#[tokio::test]
async fn a_right_of_all_users_is_refused_and_a_hub_for_all_asks_for_those_it_knows() -> Result<()> {
    let mut stage = own_stage("everybody", &[EVERYWHERE]).await?;
    let everybody = json!({
        "kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io",
    });
    stage.bind_everywhere("view", everybody).await?;
    stage
        .until_may_get_pods(true, None, "system:authenticated")
        .await?;
    let said = stage.refuses(&["tenant-rights"]).await?;
    ensure!(said.contains("system:authenticated may get pods"), "{said}");
    stage.unbind_everywhere().await?;
    stage
        .until_may_get_pods(false, None, "system:authenticated")
        .await?;
    stage.starts(&[]).await?;

    // The hub knows the namespace only from a registry, or from a task in it.
    let group = format!("system:serviceaccounts:{}", stage.scope.tenant);
    stage
        .bind_everywhere(
            "view",
            json!({"kind": "Group", "name": group, "apiGroup": "rbac.authorization.k8s.io"}),
        )
        .await?;
    stage.until_may_get_pods(true, None, &group).await?;
    stage.starts(&[]).await?;
    stage.put_registry(json!({})).await?;
    stage.refuses(&["tenant-rights"]).await?;
    stage.put_registry(json!({"allowedNamespaces": ["*"]})).await?;
    stage.starts(&[]).await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage.refuses(&["tenant-rights"]).await?;
    stage.unbind_everywhere().await?;
    stage.until_may_get_pods(false, None, &group).await?;
    stage.start_hub().await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.delete(&task).await?;
    stage.passed();
    Ok(())
}
