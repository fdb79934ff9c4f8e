//! Calls for the objects of the pipeline: tasks and versions of Targets are made and deleted, statuses are written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::Resource;
use kube::api::{ObjectMeta, Patch, PostParams};
use kube::core::Request;
use serde::Serialize;
use serde_json::json;

use crate::api::labels::{
    FIELD_MANAGER, GROUP, MANAGED_BY, MANAGED_BY_VALUE, PIPELINE, TARGET_SEAL, VERSION,
};
use crate::plan::pipeline::object::ObjectKey;

use super::client::HubClient;
use super::error::{CallError, done, found};
use super::get::CreatedObject;
use super::response::{WriteResponse, delete, manager};
use super::transport::ResponseLimit;
use super::transport_stage::TransportStage;

/// An object to be made.
#[derive(Clone, Debug)]
pub struct NewObject<'a, S> {
    /// Its namespace and name.
    pub key: &'a ObjectKey,
    /// Value of its label [`PIPELINE`].
    pub label: &'static str,
    /// The Target, by name and UID, with which it goes.
    pub target: Option<(&'a str, &'a str)>,
    /// Value of its annotation [`TARGET_SEAL`].
    pub seal: Option<String>,
    /// Its spec.
    pub spec: &'a S,
}

/// A status to be written.
#[derive(Clone, Copy, Debug)]
pub struct StatusWrite<'a, T> {
    /// The object.
    pub key: &'a ObjectKey,
    /// Its UID.
    pub uid: &'a str,
    /// The whole status.
    pub status: &'a T,
}

impl HubClient {
    /// Makes an object of the pipeline; returns its UID.
    ///
    /// # Errors
    /// [`CallError::AlreadyExists`] when one of the name exists, made by any client.
    pub async fn create_pipeline_object<K: Resource<DynamicType = ()>, S: Serialize + Sync>(
        &self,
        resource: &'static str,
        new: NewObject<'_, S>,
    ) -> Result<String, CallError> {
        let owner = new.target.map(|(name, uid)| OwnerReference {
            api_version: format!("{GROUP}/{VERSION}"),
            kind: "Target".to_owned(),
            name: name.to_owned(),
            uid: uid.to_owned(),
            controller: Some(true),
            block_owner_deletion: None,
        });
        let labels = [(MANAGED_BY, MANAGED_BY_VALUE), (PIPELINE, new.label)];
        let metadata = ObjectMeta {
            name: Some(new.key.name.clone()),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .into(),
            ),
            annotations: new.seal.map(|seal| [(TARGET_SEAL.to_owned(), seal)].into()),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let object = json!({
            "apiVersion": K::api_version(&()), "kind": K::kind(&()), "metadata": metadata, "spec": new.spec,
        });
        let body = serde_json::to_vec(&object).map_err(|_| CallError::Transport(TransportStage::Internal))?;
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let request = Request::new(K::url_path(&(), Some(&new.key.namespace))).create(&parameters, body);
        let made: CreatedObject = self.send("create", resource, request).await?;
        made.uid().ok_or(CallError::Transport(TransportStage::Decode))
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

    /// Writes the whole status of an object of the pipeline; the new resource version, or `None` where the object is gone.
    ///
    /// # Errors
    /// [`CallError::Conflict`] when another object has the name now.
    pub async fn write_pipeline_status<K: Resource<DynamicType = ()>, T: Serialize + Sync>(
        &self,
        resource: &'static str,
        write: StatusWrite<'_, T>,
    ) -> Result<Option<u64>, CallError> {
        let body = json!([
            {"op": "replace", "path": "/metadata/uid", "value": write.uid},
            {"op": "add", "path": "/status", "value": write.status},
        ]);
        let patch = Patch::Json::<()>(
            serde_json::from_value(body).map_err(|_| CallError::Transport(TransportStage::Internal))?,
        );
        let request = Request::new(K::url_path(&(), Some(&write.key.namespace)));
        let request = request.patch_subresource("status", &write.key.name, &manager(), &patch);
        let answer: Option<WriteResponse> = found(self.send("patch", resource, request).await)?;
        Ok(answer.and_then(|answer| answer.metadata.resource_version.parse().ok()))
    }
}
