//! Users of a control plane: certificates of its own authority, and `ServiceAccounts` with short-lived tokens.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, Role, RoleBinding, RoleRef, Subject,
};
use kube::api::{ObjectMeta, Patch, PatchParams, PostParams};
use kube::{Api, Client};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::ControlPlane;
use crate::identity::{Endpoint, Identity, Proof, Token};
use crate::pki::Authority;
use crate::rights::{Bound, Rights};
use crate::{apply, rundir, wait_for};

/// How long the API server may take to see a new binding; it is milliseconds.
const RBAC_LIMIT: Duration = Duration::from_secs(20);
/// Long enough for any test, in seconds.
const TOKEN_SECONDS: i64 = 4 * 3600;

/// Signs a client certificate for a user.
pub(super) fn certificate(
    authority: &Authority,
    endpoint: &Arc<Endpoint>,
    user: &str,
    groups: &[&str],
) -> Result<Identity> {
    Ok(Identity::new(
        user,
        Proof::Certificate(authority.client(user, groups)?),
        endpoint,
    ))
}

impl ControlPlane {
    /// A user with no rights but those of `groups` (two at most) and of every authenticated user.
    ///
    /// # Errors
    /// If there are more than two groups.
    pub fn user(&self, name: &str, groups: &[&str]) -> Result<Identity> {
        certificate(&self.authority, &self.endpoint, name, groups)
    }

    /// A tenant: a user with Kubernetes' own `admin` role in `namespace`, and nothing elsewhere.
    ///
    /// # Errors
    /// If the API server refuses the binding or does not see it in time.
    pub async fn tenant(&self, namespace: &str) -> Result<Identity> {
        let name = format!("tenant-{}-{namespace}", rundir::random_hex(2)?);
        let identity = self.user(&name, &[])?;
        let binding = RoleBinding {
            metadata: named(&name),
            role_ref: role("admin"),
            subjects: Some(vec![user_subject(&name)]),
        };
        let bindings: Api<RoleBinding> = Api::namespaced(self.admin.client().await?, namespace);
        bindings.create(&PostParams::default(), &binding).await?;
        let asked = ResourceAttributes {
            namespace: Some(namespace.to_owned()),
            verb: Some("create".to_owned()),
            resource: Some("configmaps".to_owned()),
            ..ResourceAttributes::default()
        };
        until_allowed(&identity.client().await?, asked).await?;
        Ok(identity)
    }

    /// A user with exactly these rights in the whole cluster.
    ///
    /// # Errors
    /// If the API server refuses the role or does not see it in time.
    pub async fn user_with_rules(&self, name: &str, rules: Vec<PolicyRule>) -> Result<Identity> {
        let name = format!("{name}-{}", rundir::random_hex(4)?);
        let identity = self.user(&name, &[])?;
        let client = self.admin.client().await?;
        let probe = rules.first().cloned();
        let cluster_role = ClusterRole {
            metadata: named(&name),
            rules: Some(rules),
            ..ClusterRole::default()
        };
        Api::all(client.clone())
            .create(&PostParams::default(), &cluster_role)
            .await?;
        let binding = ClusterRoleBinding {
            metadata: named(&name),
            role_ref: role(&name),
            subjects: Some(vec![user_subject(&name)]),
        };
        Api::all(client).create(&PostParams::default(), &binding).await?;
        if let Some(rule) = probe {
            until_granted(&identity.client().await?, None, &rule).await?;
        }
        Ok(identity)
    }

    /// A user with exactly the rights that the chart gives the hub, bound where the chart binds them.
    ///
    /// # Errors
    /// If the API server refuses a role or does not see it in time.
    pub async fn user_with_rights(&self, name: &str, rights: &Rights) -> Result<Identity> {
        let identity = self.user(&format!("{name}-{}", rundir::random_hex(4)?), &[])?;
        self.set_rights(&identity, rights).await?;
        Ok(identity)
    }

    /// Gives such a user these rights in the place of those of the same bindings, and waits until new ones are in force.
    ///
    /// # Errors
    /// As [`ControlPlane::user_with_rights`].
    pub async fn set_rights(&self, user: &Identity, rights: &Rights) -> Result<()> {
        let admin = self.admin.client().await?;
        for bound in &rights.bound {
            bind(&admin, user.name(), bound).await?;
        }
        let own = user.client().await?;
        for bound in &rights.bound {
            if let Some(rule) = bound.rules.first() {
                until_granted(&own, bound.namespace.as_deref(), rule).await?;
            }
        }
        Ok(())
    }

    /// A `ServiceAccount` by a fresh token, as a pod would have it; the account is made when it is missing.
    ///
    /// # Errors
    /// If the API server refuses.
    pub async fn service_account(&self, namespace: &str, name: &str) -> Result<Identity> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.client().await?, namespace);
        let post = PostParams::default();
        if accounts.get_metadata_opt(name).await?.is_none() {
            let account = ServiceAccount {
                metadata: named(name),
                ..ServiceAccount::default()
            };
            accounts.create(&post, &account).await?;
        }
        let spec = TokenRequestSpec {
            expiration_seconds: Some(TOKEN_SECONDS),
            ..TokenRequestSpec::default()
        };
        let request = TokenRequest {
            spec: Some(spec),
            ..TokenRequest::default()
        };
        let answer = accounts.create_token_request(name, &post, &request).await?;
        let token = answer
            .status
            .and_then(|status| status.token)
            .context("the API server gave no token")?;
        let user = format!("system:serviceaccount:{namespace}:{name}");
        Ok(Identity::new(user, Proof::Token(Token(token)), &self.endpoint))
    }
}

/// Binds the rules to the user by a role that is the user's alone.
async fn bind(admin: &Client, user: &str, bound: &Bound) -> Result<()> {
    // One ClusterRole may be bound in several namespaces, with the same rules.
    let name = format!("{user}-{}", bound.role);
    let role = if bound.is_cluster_role {
        "ClusterRole"
    } else {
        "Role"
    };
    let metadata = json!({"name": name, "namespace": bound.namespace, "labels": bound.labels});
    let version = "rbac.authorization.k8s.io/v1";
    let rules = json!({"apiVersion": version, "kind": role, "metadata": metadata, "rules": bound.rules});
    let mut binding = json!({
        "apiVersion": version, "kind": "ClusterRoleBinding", "metadata": metadata,
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role, "name": name},
        "subjects": [user_subject(user)],
    });
    if bound.is_cluster_role {
        let mut rules = rules;
        rules["metadata"]["namespace"] = Value::Null;
        put(&Api::<ClusterRole>::all(admin.clone()), &name, &rules).await?;
    } else {
        let namespace = bound.namespace.as_deref().context("a Role is in a namespace")?;
        put(&Api::<Role>::namespaced(admin.clone(), namespace), &name, &rules).await?;
    }
    if let Some(namespace) = &bound.namespace {
        binding["kind"] = json!("RoleBinding");
        put(
            &Api::<RoleBinding>::namespaced(admin.clone(), namespace),
            &name,
            &binding,
        )
        .await
    } else {
        put(&Api::<ClusterRoleBinding>::all(admin.clone()), &name, &binding).await
    }
}

async fn put<K>(api: &Api<K>, name: &str, object: &Value) -> Result<()>
where
    K: Clone + Debug + DeserializeOwned,
{
    let params = PatchParams::apply(apply::FIELD_MANAGER).force();
    api.patch(name, &params, &Patch::Apply(object)).await?;
    Ok(())
}

fn named(name: &str) -> ObjectMeta {
    ObjectMeta {
        name: Some(name.to_owned()),
        ..ObjectMeta::default()
    }
}

fn role(name: &str) -> RoleRef {
    RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "ClusterRole".to_owned(),
        name: name.to_owned(),
    }
}

fn user_subject(name: &str) -> Subject {
    Subject {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "User".to_owned(),
        name: name.to_owned(),
        namespace: None,
    }
}

/// Waits until the first thing that the rule grants is allowed.
async fn until_granted(client: &Client, namespace: Option<&str>, rule: &PolicyRule) -> Result<()> {
    let first = |all: Option<&Vec<String>>| all.and_then(|all| all.first()).cloned();
    let resource = first(rule.resources.as_ref()).unwrap_or_default();
    let (resource, subresource) = resource
        .split_once('/')
        .map_or((resource.as_str(), None), |(r, s)| (r, Some(s)));
    let asked = ResourceAttributes {
        namespace: namespace.map(str::to_owned),
        verb: rule.verbs.first().cloned(),
        group: first(rule.api_groups.as_ref()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        name: first(rule.resource_names.as_ref()),
        ..ResourceAttributes::default()
    };
    until_allowed(client, asked).await
}

async fn until_allowed(client: &Client, asked: ResourceAttributes) -> Result<()> {
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(asked),
            ..Default::default()
        },
        ..SelfSubjectAccessReview::default()
    };
    let reviews: Api<SelfSubjectAccessReview> = Api::all(client.clone());
    wait_for("the API server to see a new binding", RBAC_LIMIT, async || {
        let answer = reviews.create(&PostParams::default(), &review).await?;
        Ok(answer.status.is_some_and(|status| status.allowed).then_some(()))
    })
    .await
}
