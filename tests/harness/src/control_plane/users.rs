//! Users of a control plane: certificates of its own authority, and `ServiceAccounts` with short-lived tokens.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::authorization::v1::{
    ResourceAttributes, SelfSubjectAccessReview, SelfSubjectAccessReviewSpec,
};
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{
    ClusterRole, ClusterRoleBinding, PolicyRule, RoleBinding, RoleRef, Subject,
};
use kube::api::{ObjectMeta, PostParams};
use kube::{Api, Client};

use super::ControlPlane;
use crate::identity::{Endpoint, Identity, Proof, Token};
use crate::pki::Authority;
use crate::{rundir, wait_for};

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
        until_allowed(
            &identity.client().await?,
            Some(namespace),
            "create",
            "",
            "configmaps",
        )
        .await?;
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
        let probe = rules.iter().find_map(concrete_right);
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
        if let Some((verb, group, resource)) = probe {
            until_allowed(&identity.client().await?, None, &verb, &group, &resource).await?;
        }
        Ok(identity)
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

/// A (verb, group, resource) that the rule grants without naming objects, to ask the API server about.
fn concrete_right(rule: &PolicyRule) -> Option<(String, String, String)> {
    if rule
        .resource_names
        .as_ref()
        .is_some_and(|names| !names.is_empty())
    {
        return None;
    }
    let group = rule.api_groups.as_ref()?.first()?.clone();
    let resource = rule.resources.as_ref()?.first()?.clone();
    Some((rule.verbs.first()?.clone(), group, resource))
}

async fn until_allowed(
    client: &Client,
    ns: Option<&str>,
    verb: &str,
    group: &str,
    resource: &str,
) -> Result<()> {
    let (resource, subresource) = resource
        .split_once('/')
        .map_or((resource, None), |(r, s)| (r, Some(s)));
    let attributes = ResourceAttributes {
        namespace: ns.map(str::to_owned),
        verb: Some(verb.to_owned()),
        group: Some(group.to_owned()),
        resource: Some(resource.to_owned()),
        subresource: subresource.map(str::to_owned),
        ..ResourceAttributes::default()
    };
    let review = SelfSubjectAccessReview {
        spec: SelfSubjectAccessReviewSpec {
            resource_attributes: Some(attributes),
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
