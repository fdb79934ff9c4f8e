//! The checks of a cluster that are made once for each credential, before anything runs there.

#![warn(clippy::wildcard_enum_match_arm)]

use http::{HeaderValue, Method, Request, header};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kubernetes::apply::CallError;
use crate::plan::remote::health::{ConnectionFault, KubernetesVersion, OLDEST};
use crate::plan::remote::site::{ClusterName, Site};
use crate::remote::client::{RemoteClient, WatchEnd};
use crate::remote::settings::HubNamespaceLookup;

/// A namespace of every cluster; its UID differs from cluster to cluster.
const KUBE_SYSTEM: &str = "kube-system";
const ACCESS_REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const SELF_REVIEWS: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// Why a cluster cannot be used, and the call that failed, if one did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ConnectionCheckError {
    pub(super) fault: ConnectionFault,
    pub(super) call: Option<CallError>,
}

impl From<ConnectionFault> for ConnectionCheckError {
    fn from(fault: ConnectionFault) -> Self {
        Self { fault, call: None }
    }
}

impl From<CallError> for ConnectionCheckError {
    fn from(call: CallError) -> Self {
        Self {
            fault: fault_of(call),
            call: Some(call),
        }
    }
}

impl From<WatchEnd> for ConnectionCheckError {
    fn from(end: WatchEnd) -> Self {
        match end {
            WatchEnd::Call(call) => call.into(),
            WatchEnd::Lost => ConnectionFault::Unreachable.into(),
            WatchEnd::TooLong | WatchEnd::TooMuch | WatchEnd::Unreadable | WatchEnd::Expired => {
                ConnectionFault::Unusable.into()
            }
        }
    }
}

/// Asks a cluster for its version, and whether it is the hub's own.
pub(super) async fn check_cluster(
    client: &RemoteClient,
    own: &HubNamespaceLookup,
) -> Result<KubernetesVersion, ConnectionCheckError> {
    let answer = client.probe().await?;
    let version = version(&answer).ok_or(ConnectionFault::Incompatible)?;
    if version < OLDEST {
        return Err(ConnectionFault::Incompatible.into());
    }
    // A user that may not read this namespace is checked again for each site.
    look_up_namespace(client, None, KUBE_SYSTEM, own).await?;
    Ok(version)
}

/// Checks one site: it is not on the hub's own cluster, impersonation of its user takes effect, and a tenant's kubeconfig is
/// not allowed everything.
pub(super) async fn check_site(
    client: &RemoteClient,
    site: &Site,
    user: Option<&HeaderValue>,
    own: &HubNamespaceLookup,
) -> Result<(), ConnectionCheckError> {
    match site.cluster {
        ClusterName::Own(_) => check_not_cluster_admin(client).await?,
        ClusterName::Platform(_) => {}
    }
    if let Some(user) = user {
        check_impersonation(client, user).await?;
    }
    check_not_own_cluster(client, user, &site.namespace, own).await
}

/// What a namespace shows about its cluster.
enum NamespaceEvidence {
    /// The cluster is not the hub's own.
    Other,
    /// Nothing: the cluster has no such namespace.
    Missing,
    /// Nothing: the user may not read the namespace.
    Hidden,
}

/// The documented Role lets the hub read the site's namespace. A user that may read no namespace is refused, because the hub
/// cannot recognise whether that cluster is its own.
async fn check_not_own_cluster(
    client: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    own: &HubNamespaceLookup,
) -> Result<(), ConnectionCheckError> {
    let found = look_up_namespace(client, user, namespace, own).await?;
    if matches!(found, NamespaceEvidence::Other) {
        return Ok(());
    }
    match (found, look_up_namespace(client, None, KUBE_SYSTEM, own).await?) {
        // Every real cluster has `kube-system`, so its absence proves nothing.
        (_, NamespaceEvidence::Missing) | (NamespaceEvidence::Hidden, NamespaceEvidence::Other) => {
            return Ok(());
        }
        (NamespaceEvidence::Missing, _) => return Err(ConnectionFault::NoNamespace.into()),
        (NamespaceEvidence::Hidden | NamespaceEvidence::Other, _) => {}
    }
    // A user without any rights gets the fault that names the missing right.
    match may_access_jobs(client, user, namespace, "watch").await? {
        Some(true) => Err(ConnectionFault::Unrecognised.into()),
        Some(false) | None => Err(ConnectionFault::Forbidden.into()),
    }
}

async fn look_up_namespace(
    client: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    own: &HubNamespaceLookup,
) -> Result<NamespaceEvidence, ConnectionCheckError> {
    let request = request(
        Method::GET,
        &format!("/api/v1/namespaces/{namespace}"),
        Vec::new(),
    )?;
    match client.send(request, user).await {
        Ok(answer) => {
            let found = uid(&answer).ok_or(ConnectionFault::Unusable)?;
            let is_ours = own(namespace).is_some_and(|uid| uid == found);
            if is_ours {
                Err(ConnectionFault::SelfTarget.into())
            } else {
                Ok(NamespaceEvidence::Other)
            }
        }
        Err(CallError::NotFound) => Ok(NamespaceEvidence::Missing),
        Err(CallError::Forbidden) => Ok(NamespaceEvidence::Hidden),
        Err(call) => Err(call.into()),
    }
}

/// Whether the user has lost the right to use this verb on Jobs there; `false` where the cluster does not answer.
pub(super) async fn has_lost_right(
    client: &RemoteClient,
    site: &Site,
    user: Option<&HeaderValue>,
    verb: &'static str,
) -> bool {
    matches!(
        may_access_jobs(client, user, &site.namespace, verb).await,
        Ok(Some(false))
    )
}

/// Whether the user may use this verb on Jobs there; `None` where it may not ask.
async fn may_access_jobs(
    client: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    verb: &'static str,
) -> Result<Option<bool>, ConnectionCheckError> {
    let jobs = json!({"group": "batch", "resource": "jobs", "verb": verb, "namespace": namespace});
    review_access(client, user, &jobs).await
}

/// Whether the user may do this, by a `SelfSubjectAccessReview`; `None` where it may not create one.
async fn review_access(
    client: &RemoteClient,
    user: Option<&HeaderValue>,
    attributes: &Value,
) -> Result<Option<bool>, ConnectionCheckError> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    });
    match client.send(post_request(ACCESS_REVIEWS, &body)?, user).await {
        Ok(answer) => Ok(Some(is_allowed(&answer).ok_or(ConnectionFault::Unusable)?)),
        Err(CallError::Forbidden) => Ok(None),
        Err(call) => Err(call.into()),
    }
}

async fn check_impersonation(client: &RemoteClient, user: &HeaderValue) -> Result<(), ConnectionCheckError> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = client
        .send(post_request(SELF_REVIEWS, &body)?, Some(user))
        .await?;
    if username(&answer).is_some_and(|name| name.as_bytes() == user.as_bytes()) {
        Ok(())
    } else {
        Err(ConnectionFault::ImpersonationNotEffective.into())
    }
}

/// Checks the kubeconfig's own user: with all rights it could impersonate any other user.
async fn check_not_cluster_admin(client: &RemoteClient) -> Result<(), ConnectionCheckError> {
    let everything = json!({"group": "*", "resource": "*", "verb": "*", "version": "*"});
    match review_access(client, None, &everything).await? {
        Some(true) => Err(ConnectionFault::Overprivileged.into()),
        // A cluster admin may create this review, so a refusal shows that the user is none.
        Some(false) | None => Ok(()),
    }
}

fn post_request(path: &str, body: &Value) -> Result<Request<Vec<u8>>, ConnectionFault> {
    let body = serde_json::to_vec(body).map_err(|_| ConnectionFault::Unusable)?;
    request(Method::POST, path, body)
}

fn request(method: Method, path: &str, body: Vec<u8>) -> Result<Request<Vec<u8>>, ConnectionFault> {
    let json = HeaderValue::from_static("application/json");
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header(header::ACCEPT, json.clone())
        .header(header::CONTENT_TYPE, json)
        .body(body);
    request.map_err(|_| ConnectionFault::Unusable)
}

fn version(answer: &[u8]) -> Option<KubernetesVersion> {
    #[derive(Deserialize)]
    struct VersionResponse<'a> {
        #[serde(borrow)]
        major: &'a str,
        #[serde(borrow)]
        minor: &'a str,
    }
    let info: VersionResponse = serde_json::from_slice(answer).ok()?;
    KubernetesVersion::parse(info.major, info.minor)
}

fn uid(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct UidResponse {
        metadata: UidMetadata,
    }
    #[derive(Deserialize)]
    struct UidMetadata {
        uid: String,
    }
    let object: UidResponse = serde_json::from_slice(answer).ok()?;
    Some(object.metadata.uid)
}

fn username(answer: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Status {
        user_info: User,
    }
    #[derive(Deserialize)]
    struct User {
        username: String,
    }
    let review: Review = serde_json::from_slice(answer).ok()?;
    Some(review.status.user_info.username)
}

fn is_allowed(answer: &[u8]) -> Option<bool> {
    #[derive(Deserialize)]
    struct Review {
        status: Status,
    }
    #[derive(Deserialize)]
    struct Status {
        allowed: bool,
    }
    let review: Review = serde_json::from_slice(answer).ok()?;
    Some(review.status.allowed)
}

/// The fault that a failed call shows.
const fn fault_of(call: CallError) -> ConnectionFault {
    match call {
        CallError::Unauthorized => ConnectionFault::Unauthorized,
        CallError::Forbidden => ConnectionFault::Forbidden,
        CallError::NotFound => ConnectionFault::Incompatible,
        CallError::TooLarge => ConnectionFault::Unusable,
        CallError::Barred => ConnectionFault::Denied,
        CallError::AlreadyExists
        | CallError::Conflict
        | CallError::Invalid
        | CallError::Crowded
        | CallError::Timeout
        | CallError::Code(_)
        | CallError::Transport(_)
        | CallError::NoClaim => ConnectionFault::Unreachable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn responses_are_decoded_only_with_their_required_field() {
        let of = |major, minor| Some(KubernetesVersion { major, minor });
        let table: [(&[u8], Option<KubernetesVersion>); 7] = [
            (br#"{"major":"1","minor":"36","gitVersion":"v1.36.3"}"#, of(1, 36)),
            (br#"{"major":"1","minor":"29+"}"#, of(1, 29)),
            (br#"{"major":"1","minor":"9"}"#, of(1, 9)),
            (br#"{"major":"one","minor":"29"}"#, None),
            (br#"{"major":"1","minor":""}"#, None),
            (br#"{"major":1,"minor":29}"#, None),
            (b"<html>", None),
        ];
        for (answer, expected) in table {
            assert_eq!(version(answer), expected);
        }
        assert!(of(1, 9) < Some(OLDEST), "a version is no decimal fraction");
        assert!(of(1, 100) > Some(OLDEST));
        assert_eq!(uid(br#"{"metadata":{"uid":"u"}}"#).as_deref(), Some("u"));
        assert_eq!(uid(br#"{"metadata":{}}"#), None);
        let review = br#"{"status":{"userInfo":{"username":"me"}}}"#;
        assert_eq!(username(review).as_deref(), Some("me"));
        assert_eq!(username(br#"{"status":{}}"#), None);
        assert_eq!(is_allowed(br#"{"status":{"allowed":true}}"#), Some(true));
        assert_eq!(is_allowed(br#"{"status":{"allowed":"false"}}"#), None);
    }
}
