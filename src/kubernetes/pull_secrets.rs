//! Calls for copies of pull Secrets of OLM's catalogs, and for what is linked to them.
//!
//! Every write names the object that it is meant for: a UID, a resource version, or that there is none. So of two processes that
//! write at once one gets a conflict, and no Lease is needed.

mod pods;
mod record;

use std::collections::BTreeMap;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Request as HttpRequest;
use k8s_openapi::api::core::v1::{Namespace, Secret, ServiceAccount};
use kube::api::{DeleteParams, GetParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::Request;
use kube::{Client, Resource};
use serde::Deserialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::base::metrics::Metrics;
use crate::kubernetes::apply::{
    CallError, OBJECT_MAX, SecretBody, TransportStage, done, fetch, found, json_patch, lean_write, log_call,
};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{
    LinkChange, ObservedAccount, ObservedCopy, PullSecretContent, PullSecretState, WantedCopy, content_of,
};
use crate::plan::pull_secrets::ownership::CopyMarks;

/// Field manager of these writes: by it a process knows when a ServiceAccount was linked, after a restart too.
pub const COPY_MANAGER: &str = "renderhub-pull-secrets";
/// Name of the ConfigMap in which it writes down which namespaces it used, and what is wrong.
pub const RECORD: &str = "renderhub-pull-secrets";
/// Longest a call may take.
const DEADLINE: Duration = Duration::from_secs(30);

/// A Secret as it was read.
#[derive(Debug)]
pub struct ReadPullSecret {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// What is in it.
    pub state: PullSecretState,
    /// What it says of itself; `None` where it is no copy.
    pub marks: Option<CopyMarks>,
    /// The value that a kubelet reads; `None` where it has none.
    pub value: Option<PullSecretValue>,
}

impl ReadPullSecret {
    /// Whether this is in it.
    #[must_use]
    pub fn is(&self, content: PullSecretContent) -> bool {
        self.state == PullSecretState::Usable(content)
    }
}

/// The value of a pull Secret. It is wiped when it is dropped, and says nothing of itself.
#[derive(Clone)]
pub struct PullSecretValue(Zeroizing<Vec<u8>>);

impl std::fmt::Debug for PullSecretValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PullSecretValue")
    }
}

impl From<Vec<u8>> for PullSecretValue {
    fn from(bytes: Vec<u8>) -> Self {
        Self(Zeroizing::new(bytes))
    }
}

impl PullSecretValue {
    /// Its bytes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Calls for copies of pull Secrets.
#[derive(Clone)]
pub struct PullSecretClient {
    client: Client,
    metrics: Metrics,
}

impl PullSecretClient {
    /// Calls by this client.
    #[must_use]
    pub fn new(client: Client, metrics: Metrics) -> Self {
        Self { client, metrics }
    }

    /// UID of a namespace.
    ///
    /// # Errors
    /// It is not there, or cannot be read.
    pub async fn namespace_uid(&self, namespace: &str) -> Result<String, CallError> {
        let request =
            Request::new(Namespace::url_path(&(), None)).get_metadata(namespace, &GetParams::default());
        let written = self.written("get", "namespaces", request).await?;
        Ok(written.uid)
    }

    /// Reads a Secret; `None` where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read_secret(&self, key: &ObjectKey) -> Result<Option<ReadPullSecret>, CallError> {
        let request = of::<Secret>(&key.namespace).get(&key.name, &GetParams::default());
        let Some(body) = found(self.call("get", "secrets", request, OBJECT_MAX).await)? else {
            return Ok(None);
        };
        let secret = SecretBody::new(body.to_vec()).whole().ok_or(UNREADABLE)?;
        let meta = &secret.metadata;
        let version = meta
            .resource_version
            .as_ref()
            .and_then(|version| version.parse().ok());
        let content = content_of(&secret);
        let value = content
            .ok()
            .and_then(|content| secret.data.as_ref()?.get(content.key));
        Ok(Some(ReadPullSecret {
            uid: meta.uid.clone().ok_or(UNREADABLE)?,
            version: version.ok_or(UNREADABLE)?,
            state: content.map_or_else(PullSecretState::Faulty, PullSecretState::Usable),
            marks: CopyMarks::read(meta),
            value: value.map(|value| PullSecretValue::from(value.0.clone())),
        }))
    }

    /// Makes a copy.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] where a Secret has the name.
    pub async fn create_copy(
        &self,
        key: &ObjectKey,
        wanted: &WantedCopy,
        value: &PullSecretValue,
    ) -> Result<ObservedCopy, CallError> {
        let body = json!({
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {
                "name": key.name,
                "labels": CopyMarks::labels(),
                "annotations": wanted.marks.annotations(),
            },
            "type": wanted.content.kind,
            "data": {wanted.content.key: STANDARD.encode(&*value.0)},
        });
        let request = of::<Secret>(&key.namespace).create(&created(), bytes(&body));
        let written = self.written("create", "secrets", request).await?;
        Ok(written.copy(wanted))
    }

    /// Changes the copy with this UID.
    ///
    /// # Errors
    /// [`CallError::Conflict`] where another Secret has the name.
    pub async fn change_copy(
        &self,
        key: &ObjectKey,
        uid: &str,
        wanted: &WantedCopy,
        value: &PullSecretValue,
    ) -> Result<ObservedCopy, CallError> {
        let body = json!({
            "metadata": {"uid": uid, "labels": CopyMarks::labels(), "annotations": wanted.marks.annotations()},
            "data": {wanted.content.key: STANDARD.encode(&*value.0)},
        });
        let request = of::<Secret>(&key.namespace).patch(&key.name, &patched(), &Patch::Merge(&body));
        let written = self.written("patch", "secrets", request).await?;
        Ok(written.copy(wanted))
    }

    /// Deletes the copy with this UID. One that is gone counts as deleted.
    ///
    /// # Errors
    /// [`CallError::Conflict`] where another Secret has the name.
    pub async fn delete_copy(&self, key: &ObjectKey, uid: &str) -> Result<(), CallError> {
        let parameters = DeleteParams::default().preconditions(Preconditions {
            uid: Some(uid.to_owned()),
            resource_version: None,
        });
        let request = of::<Secret>(&key.namespace).delete(&key.name, &parameters);
        done(self.call("delete", "secrets", request, 0).await)
    }

    /// Changes the list of a ServiceAccount in the version that the change is for.
    ///
    /// # Errors
    /// [`CallError::Conflict`] or [`CallError::Invalid`] where it has another version by now.
    pub async fn link(
        &self,
        namespace: &str,
        account: &str,
        change: &LinkChange,
    ) -> Result<ObservedAccount, CallError> {
        let accounts = of::<ServiceAccount>(namespace);
        let request = json_patch(&accounts, None, account, &patched(), &operations(change));
        let body = self.call("patch", "serviceaccounts", request, OBJECT_MAX).await?;
        let account: ServiceAccount = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        ObservedAccount::of(&account, COPY_MANAGER).ok_or(UNREADABLE)
    }

    /// Makes a call of which only the metadata of the answer is read.
    async fn written(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
    ) -> Result<AnsweredMetadata, CallError> {
        let body = self.call(verb, resource, lean_write(request), OBJECT_MAX).await?;
        let written: MetadataAnswer = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        Ok(written.metadata)
    }

    async fn call(
        &self,
        verb: &'static str,
        resource: &'static str,
        request: Result<HttpRequest<Vec<u8>>, kube::core::request::Error>,
        max: usize,
    ) -> Result<Bytes, CallError> {
        let request = request.map_err(|_| INTERNAL)?;
        let answer = tokio::time::timeout(DEADLINE, fetch(&self.client, request, max)).await;
        let answer = answer.unwrap_or(Err(CallError::Timeout));
        let code = answer.as_ref().map_or_else(|error| error.code(), |_| 200);
        log_call(verb, resource, code, answer.as_ref().err().copied());
        self.metrics.call(verb, resource, code);
        answer
    }
}

/// An answer that is not what was asked for.
const UNREADABLE: CallError = CallError::Transport(TransportStage::Decode);
/// A request that cannot be put together.
const INTERNAL: CallError = CallError::Transport(TransportStage::Internal);

/// The answer to a write.
#[derive(Deserialize)]
struct MetadataAnswer {
    metadata: AnsweredMetadata,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct AnsweredMetadata {
    uid: String,
    resource_version: String,
}

impl AnsweredMetadata {
    fn copy(self, wanted: &WantedCopy) -> ObservedCopy {
        ObservedCopy {
            uid: self.uid,
            version: self.resource_version.parse().unwrap_or_default(),
            marks: Some(wanted.marks.clone()),
            content: Some(wanted.content),
        }
    }
}

/// A change of a list as operations on one version of the ServiceAccount. Each entry that goes is tested, too.
fn operations(change: &LinkChange) -> Vec<Value> {
    let mut all = vec![
        json!({"op": "test", "path": "/metadata/uid", "value": change.uid}),
        json!({"op": "test", "path": "/metadata/resourceVersion", "value": change.version.to_string()}),
    ];
    for (place, name) in &change.removed {
        let path = format!("/imagePullSecrets/{place}");
        all.push(json!({"op": "test", "path": path, "value": {"name": name}}));
        all.push(json!({"op": "remove", "path": path}));
    }
    let entries: Vec<Value> = change.added.iter().map(|name| json!({"name": name})).collect();
    if change.is_first {
        all.push(json!({"op": "add", "path": "/imagePullSecrets", "value": entries}));
    } else {
        all.extend(
            entries
                .iter()
                .map(|entry| json!({"op": "add", "path": "/imagePullSecrets/-", "value": entry})),
        );
    }
    all
}

fn of<K: Resource<DynamicType = ()>>(namespace: &str) -> Request {
    Request::new(K::url_path(&(), Some(namespace)))
}

fn bytes(json: &Value) -> Vec<u8> {
    json.to_string().into_bytes()
}

fn created() -> PostParams {
    PostParams {
        dry_run: false,
        field_manager: Some(COPY_MANAGER.to_owned()),
    }
}

fn patched() -> PatchParams {
    PatchParams {
        field_manager: Some(COPY_MANAGER.to_owned()),
        ..PatchParams::default()
    }
}

/// Names by key.
type NamesByKey = BTreeMap<String, String>;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_is_changed_in_one_version_and_by_places_that_are_tested() {
        let change = LinkChange {
            uid: "u".to_owned(),
            version: 7,
            is_first: false,
            removed: vec![(3, "c".to_owned()), (1, "b".to_owned())],
            added: vec!["d".to_owned()],
        };
        let paths: Vec<String> = operations(&change)
            .iter()
            .map(|operation| {
                format!(
                    "{} {}",
                    operation["op"].as_str().unwrap(),
                    operation["path"].as_str().unwrap()
                )
            })
            .collect();
        let expected = [
            "test /metadata/uid",
            "test /metadata/resourceVersion",
            "test /imagePullSecrets/3",
            "remove /imagePullSecrets/3",
            "test /imagePullSecrets/1",
            "remove /imagePullSecrets/1",
            "add /imagePullSecrets/-",
        ];
        assert_eq!(paths, expected);
        let first = LinkChange {
            is_first: true,
            removed: Vec::new(),
            ..change
        };
        let last = operations(&first).pop().unwrap();
        assert_eq!(
            last,
            json!({"op": "add", "path": "/imagePullSecrets", "value": [{"name": "d"}]})
        );
    }

    #[test]
    fn a_value_says_nothing_of_itself() {
        let value = PullSecretValue::from(b"canary".to_vec());
        assert_eq!(format!("{value:?}"), "PullSecretValue");
        assert_eq!((value.len(), value.is_empty()), (6, false));
    }
}
