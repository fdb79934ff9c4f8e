//! Calls for the ConfigMap in which the program writes down which namespaces it used, and what is wrong.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{GetParams, Patch};
use serde::Deserialize;
use serde_json::json;

use super::{NamesByKey, PullSecretClient, RECORD, UNREADABLE, bytes, created, of, patched};
use crate::kubernetes::apply::{CallError, OBJECT_MAX, found};

impl PullSecretClient {
    /// The data of the ConfigMap; empty where there is none.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read_record(&self, namespace: &str) -> Result<NamesByKey, CallError> {
        #[derive(Deserialize)]
        struct Data {
            #[serde(default)]
            data: Option<NamesByKey>,
        }
        let request = of::<ConfigMap>(namespace).get(RECORD, &GetParams::default());
        let Some(body) = found(self.call("get", "configmaps", request, OBJECT_MAX).await)? else {
            return Ok(BTreeMap::new());
        };
        let read: Data = serde_json::from_slice(&body).map_err(|_| UNREADABLE)?;
        Ok(read.data.unwrap_or_default())
    }

    /// Writes these keys; others stay.
    ///
    /// # Errors
    /// They are not written.
    pub async fn write_record(&self, namespace: &str, data: &NamesByKey) -> Result<(), CallError> {
        let body = json!({"data": data});
        let request = of::<ConfigMap>(namespace).patch(RECORD, &patched(), &Patch::Merge(&body));
        match self.call("patch", "configmaps", request, 0).await {
            Err(CallError::NotFound) => {}
            answer => return answer.map(drop),
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": RECORD},
            "data": data,
        });
        let request = of::<ConfigMap>(namespace).create(&created(), bytes(&body));
        self.call("create", "configmaps", request, 0).await.map(drop)
    }
}
