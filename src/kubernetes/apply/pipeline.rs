//! Calls for the objects of the pipeline: tasks and versions of Targets are made and deleted, statuses are written.

use http::Request as HttpRequest;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::ObjectMeta;
use kube::core::Request;
use serde::Serialize;

use crate::api::labels::{GROUP, TARGET_FINALIZER, TARGET_SEAL, VERSION, pipeline_labels};
use crate::api::pipeline::Target;
use crate::kubernetes::object::{LeanObject, version_of};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::task::finalizer_summary::FinalizerSummary;

use super::client::HubClient;
use super::error::{CallError, done, in_place};
use super::response::{create, delete, manager, written_version};
use super::transport::ResponseLimit;
use super::transport_stage::TransportStage;
use super::write_request::{finalizer_patch, json_patch, status_patch};

/// An object to be made.
#[derive(Clone, Debug)]
pub struct NewObject<'a, S> {
    /// Its namespace and name.
    pub key: &'a ObjectKey,
    /// Value of its label [`PIPELINE`](crate::api::labels::PIPELINE).
    pub label: &'static str,
    /// The Target, by name and UID, with which it goes.
    pub target: Option<(&'a str, &'a str)>,
    /// Value of its annotation [`TARGET_SEAL`].
    pub seal: Option<String>,
    /// Its spec.
    pub spec: &'a S,
}

/// A Target as it was seen, whose finalizers are to be changed.
#[derive(Clone, Debug)]
pub struct SeenTarget {
    /// The object.
    pub key: ObjectKey,
    /// Its UID.
    pub uid: String,
    /// Its version.
    pub version: u64,
    /// Its finalizers.
    pub finalizers: FinalizerSummary,
}

/// An object that was made.
#[derive(Clone, Debug)]
pub struct CreatedObject {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
}

/// A status to be written.
#[derive(Clone, Copy, Debug)]
pub struct StatusWrite<'a, T> {
    /// The object.
    pub key: &'a ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// The resource version that an object of which the hub alone writes each field has: a PUT of its status costs the API server less
    /// than a patch. `None` is any version, of an object whose other managers keep their fields with a patch alone.
    pub resource_version: Option<u64>,
    /// The whole status.
    pub status: &'a T,
}

/// An object by its spec.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectWithSpec<'a, S> {
    api_version: &'a str,
    kind: &'a str,
    metadata: ObjectMeta,
    spec: &'a S,
}

/// An object by its status.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ObjectWithStatus<'a, T> {
    api_version: &'a str,
    kind: &'a str,
    metadata: SeenMetadata<'a>,
    status: &'a T,
}

/// Metadata that names an object in one of its versions.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenMetadata<'a> {
    namespace: &'a str,
    name: &'a str,
    uid: &'a str,
    resource_version: &'a str,
}

impl<S: Serialize> NewObject<'_, S> {
    /// The object as it is sent.
    ///
    /// # Errors
    /// Its spec cannot be written as JSON.
    pub fn body<K: Resource<DynamicType = ()>>(self) -> serde_json::Result<Vec<u8>> {
        let owner = self.target.map(|(name, uid)| OwnerReference {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "Target".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        });
        let metadata = ObjectMeta {
            name: Some(self.key.name.clone()),
            labels: Some(pipeline_labels(self.label)),
            annotations: self.seal.map(|seal| [(TARGET_SEAL.to_owned(), seal)].into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        serde_json::to_vec(&ObjectWithSpec {
            api_version: &K::api_version(&()),
            kind: &K::kind(&()),
            metadata,
            spec: self.spec,
        })
    }
}

impl<T: Serialize> StatusWrite<'_, T> {
    /// The request that makes the change: to no other object of the name.
    ///
    /// # Errors
    /// The status cannot be written as JSON.
    pub fn http_request<K: Resource<DynamicType = ()>>(
        &self,
    ) -> Result<HttpRequest<Vec<u8>>, kube::core::request::Error> {
        let requests = Request::new(K::url_path(&(), Some(&self.key.namespace)));
        let Some(version) = self.resource_version else {
            return status_patch(&requests, &self.key.name, self.uid, self.status);
        };
        let object = ObjectWithStatus {
            api_version: &K::api_version(&()),
            kind: &K::kind(&()),
            metadata: SeenMetadata {
                namespace: &self.key.namespace,
                name: &self.key.name,
                uid: self.uid,
                resource_version: &version.to_string(),
            },
            status: self.status,
        };
        let body = serde_json::to_vec(&object).map_err(kube::core::request::Error::SerializeBody)?;
        requests.replace_subresource("status", &self.key.name, &create(false), body)
    }

    /// The verb of that request.
    const fn verb(&self) -> &'static str {
        if self.resource_version.is_some() {
            "update"
        } else {
            "patch"
        }
    }
}

impl HubClient {
    /// Makes an object of the pipeline.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, made by any client.
    pub async fn create_pipeline_object<K: Resource<DynamicType = ()>, S: Serialize + Sync>(
        &self,
        resource: &'static str,
        new: NewObject<'_, S>,
    ) -> Result<CreatedObject, CallError> {
        let path = K::url_path(&(), Some(&new.key.namespace));
        let body = new.body::<K>();
        let body = body.map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let request = Request::new(path).create(&create(false), body);
        let made: LeanObject = self.objects.write("create", resource, request).await?;
        let metadata = made.metadata.read().0;
        let version = version_of(&metadata);
        let created = metadata.uid.zip(version);
        created
            .map(|(uid, version)| CreatedObject { uid, version })
            .ok_or(CallError::Transport(TransportStage::Decode))
    }

    /// Deletes an object of the pipeline, if it is still the one with this UID.
    ///
    /// # Errors
    /// It cannot be deleted.
    pub async fn delete_pipeline_object<K: Resource<DynamicType = ()>>(
        &self,
        resource: &'static str,
        key: &ObjectKey,
        uid: &str,
    ) -> Result<(), CallError> {
        let request = Request::new(K::url_path(&(), Some(&key.namespace))).delete(&key.name, &delete(uid));
        let answer = self
            .objects
            .exchange("delete", resource, request, ResponseLimit::Status);
        done(answer.await)
    }

    /// Puts the hub's finalizer on a Target, or takes it off; the new resource version, or `None` where the Target is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when the Target changed since it was seen.
    pub async fn patch_target_finalizer(
        &self,
        target: &SeenTarget,
        is_wanted: bool,
    ) -> Result<Option<u64>, CallError> {
        let (key, version) = (&target.key, target.version.to_string());
        let seen = (target.uid.as_str(), version.as_str(), target.finalizers);
        let Some(operations) = finalizer_patch(TARGET_FINALIZER, seen, is_wanted) else {
            return Ok(Some(target.version));
        };
        let targets = Request::new(Target::url_path(&(), Some(&key.namespace)));
        let request = json_patch(&targets, None, &key.name, &manager(), &operations);
        written_version(in_place(self.objects.write("patch", "targets", request).await))
    }

    /// Writes the whole status of an object of the pipeline; the new resource version, or `None` where the object is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when another object has the name now, or the object another version than the one that is wanted.
    pub async fn write_pipeline_status<K: Resource<DynamicType = ()>, T: Serialize + Sync>(
        &self,
        resource: &'static str,
        write: StatusWrite<'_, T>,
    ) -> Result<Option<u64>, CallError> {
        let request = write.http_request::<K>();
        written_version(self.objects.write(write.verb(), resource, request).await)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::pipeline::HydratedTarget;

    #[test]
    fn a_status_is_patched_or_put_in_a_version() {
        let key = ObjectKey::new("team-a", "edge-v1");
        let write = |resource_version| {
            let write = StatusWrite {
                key: &key,
                uid: "u",
                resource_version,
                status: &json!({"digest": "sha256:1"}),
            };
            (write.verb(), write.http_request::<HydratedTarget>().unwrap())
        };
        let status_path = "/apis/renderhub.dev/v1alpha1/namespaces/team-a/hydratedtargets/edge-v1/status";
        let (verb, patch) = write(None);
        assert_eq!(
            (verb, patch.method(), patch.uri().path()),
            ("patch", &Method::PATCH, status_path)
        );
        let (verb, replace) = write(Some(7));
        assert_eq!(
            (verb, replace.method(), replace.uri().path()),
            ("update", &Method::PUT, status_path)
        );
        assert_eq!(replace.uri().query(), Some("&fieldManager=renderhub"));
        let sent: Value = serde_json::from_slice(replace.body()).unwrap();
        let expected = json!({
            "apiVersion": "renderhub.dev/v1alpha1",
            "kind": "HydratedTarget",
            "metadata": {"namespace": "team-a", "name": "edge-v1", "uid": "u", "resourceVersion": "7"},
            "status": {"digest": "sha256:1"},
        });
        assert_eq!(sent, expected);
    }
}
