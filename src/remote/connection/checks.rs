//! What is asked of a cluster once for each credential, before anything runs there.

#![warn(clippy::wildcard_enum_match_arm)]

use http::{HeaderValue, Method, Request, header};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::kubernetes::apply::CallError;
use crate::plan::remote::health::{ConnectionFault, KubernetesVersion, OLDEST};
use crate::plan::remote::site::{ClusterName, Site};
use crate::remote::client::{RemoteClient, WatchEnd};
use crate::remote::settings::HubNamespaceLookup;

/// Every cluster has it, under a UID of its own.
const EVERYWHERE: &str = "kube-system";
const ACCESS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
const WHO_AM_I: &str = "/apis/authentication.k8s.io/v1/selfsubjectreviews";

/// What speaks against a cluster, and the call that showed it, where one failed.
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
        let call = match end {
            WatchEnd::Call(call) => Some(call),
            WatchEnd::Lost
            | WatchEnd::TooLong
            | WatchEnd::TooMuch
            | WatchEnd::Unreadable
            | WatchEnd::Expired => None,
        };
        Self {
            fault: fault_of_watch(end),
            call,
        }
    }
}

/// Asks a cluster for its version, and whether it is the hub's own.
pub(super) async fn greet(
    link: &RemoteClient,
    own: &HubNamespaceLookup,
) -> Result<KubernetesVersion, ConnectionCheckError> {
    let answer = link.probe().await?;
    let version = version(&answer).ok_or(ConnectionFault::Incompatible)?;
    if version < OLDEST {
        return Err(ConnectionFault::Incompatible.into());
    }
    // Who may not look there is looked at once more for each site.
    sign(link, None, EVERYWHERE, own).await?;
    Ok(version)
}

/// Asks what must hold for one site: it is not the hub's, its user is who arrives there, and a tenant's kubeconfig may not
/// do everything.
pub(super) async fn admit(
    link: &RemoteClient,
    site: &Site,
    user: Option<&HeaderValue>,
    own: &HubNamespaceLookup,
) -> Result<(), ConnectionCheckError> {
    match site.cluster {
        ClusterName::Own(_) => not_almighty(link).await?,
        ClusterName::Platform(_) => {}
    }
    if let Some(user) = user {
        arrives(link, user).await?;
    }
    not_the_hub(link, user, &site.namespace, own).await
}

/// What a namespace tells of the cluster it is in.
enum NamespaceEvidence {
    /// It is not the hub's.
    Other,
    /// Nothing: it has no such namespace.
    Missing,
    /// Nothing: it must not be looked at.
    Hidden,
}

/// The documented Role lets the hub look at its own namespace. Who may look at none cannot tell the cluster from the hub's
/// own, and so is refused, wherever it leads.
async fn not_the_hub(
    link: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    own: &HubNamespaceLookup,
) -> Result<(), ConnectionCheckError> {
    let there = sign(link, user, namespace, own).await?;
    if matches!(there, NamespaceEvidence::Other) {
        return Ok(());
    }
    match (there, sign(link, None, EVERYWHERE, own).await?) {
        // A server that has not even that one says nothing by it.
        (_, NamespaceEvidence::Missing) | (NamespaceEvidence::Hidden, NamespaceEvidence::Other) => {
            return Ok(());
        }
        (NamespaceEvidence::Missing, _) => return Err(ConnectionFault::NoNamespace.into()),
        (NamespaceEvidence::Hidden | NamespaceEvidence::Other, _) => {}
    }
    // Who may do nothing at all is told of that.
    match may(link, user, namespace, "watch").await? {
        Some(true) => Err(ConnectionFault::Unrecognised.into()),
        Some(false) | None => Err(ConnectionFault::Forbidden.into()),
    }
}

async fn sign(
    link: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    own: &HubNamespaceLookup,
) -> Result<NamespaceEvidence, ConnectionCheckError> {
    let request = request(
        Method::GET,
        &format!("/api/v1/namespaces/{namespace}"),
        Vec::new(),
    )?;
    match link.send(request, user).await {
        Ok(answer) => {
            let there = uid(&answer).ok_or(ConnectionFault::Unusable)?;
            let is_ours = own(namespace).is_some_and(|uid| uid == there);
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

/// Whether the user has lost the right to do this with Jobs there. A cluster that does not answer the question says nothing.
pub(super) async fn has_lost_right(
    link: &RemoteClient,
    site: &Site,
    user: Option<&HeaderValue>,
    verb: &'static str,
) -> bool {
    matches!(may(link, user, &site.namespace, verb).await, Ok(Some(false)))
}

/// Whether the user may do this with Jobs there, by the cluster's own word; `None` where it may not even ask.
async fn may(
    link: &RemoteClient,
    user: Option<&HeaderValue>,
    namespace: &str,
    verb: &'static str,
) -> Result<Option<bool>, ConnectionCheckError> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {
            "group": "batch", "resource": "jobs", "verb": verb, "namespace": namespace,
        }},
    });
    match link.send(post(ACCESS, &body)?, user).await {
        Ok(answer) => Ok(Some(is_allowed(&answer).ok_or(ConnectionFault::Unusable)?)),
        Err(CallError::Forbidden) => Ok(None),
        Err(call) => Err(call.into()),
    }
}

async fn arrives(link: &RemoteClient, user: &HeaderValue) -> Result<(), ConnectionCheckError> {
    let body = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"});
    let answer = link.send(post(WHO_AM_I, &body)?, Some(user)).await?;
    if who(&answer).is_some_and(|who| who.as_bytes() == user.as_bytes()) {
        Ok(())
    } else {
        Err(ConnectionFault::ImpersonationNotEffective.into())
    }
}

/// As the kubeconfig's own user: whoever may do everything could be made to act as anybody.
async fn not_almighty(link: &RemoteClient) -> Result<(), ConnectionCheckError> {
    let body = json!({
        "apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": {"group": "*", "resource": "*", "verb": "*", "version": "*"}},
    });
    match link.send(post(ACCESS, &body)?, None).await {
        Ok(answer) => match is_allowed(&answer) {
            Some(false) => Ok(()),
            Some(true) => Err(ConnectionFault::Overprivileged.into()),
            None => Err(ConnectionFault::Unusable.into()),
        },
        // Who may do everything may ask this too.
        Err(CallError::Forbidden) => Ok(()),
        Err(call) => Err(call.into()),
    }
}

fn post(path: &str, body: &Value) -> Result<Request<Vec<u8>>, ConnectionFault> {
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

fn who(answer: &[u8]) -> Option<String> {
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

/// What a failed call says of the cluster.
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

/// What the end of a watch says of the cluster.
const fn fault_of_watch(end: WatchEnd) -> ConnectionFault {
    match end {
        WatchEnd::Lost => ConnectionFault::Unreachable,
        WatchEnd::Call(call) => fault_of(call),
        WatchEnd::TooLong | WatchEnd::TooMuch | WatchEnd::Unreadable | WatchEnd::Expired => {
            ConnectionFault::Unusable
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_for_one_thing_and_must_have_it() {
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
        assert_eq!(who(review).as_deref(), Some("me"));
        assert_eq!(who(br#"{"status":{}}"#), None);
        assert_eq!(is_allowed(br#"{"status":{"allowed":true}}"#), Some(true));
        assert_eq!(is_allowed(br#"{"status":{"allowed":"false"}}"#), None);
    }
}
