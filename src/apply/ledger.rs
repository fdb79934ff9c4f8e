//! The ConfigMap in which the hub keeps what no object of its tasks says.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::ConfigMap;
use kube::api::{GetParams, ObjectMeta, Patch, PostParams};
use serde_json::{Value, json};

use crate::api::labels::{FIELD_MANAGER, MANAGED_BY, MANAGED_BY_VALUE};
use crate::plan::ledger::Changes;

use super::error::found;
use super::{CallError, Calls, manager};

impl Calls {
    /// Everything that is kept; nothing where there is no ledger yet.
    ///
    /// # Errors
    /// Whatever keeps it from being read.
    pub async fn read_ledger(&self) -> Result<BTreeMap<String, String>, CallError> {
        let request = self
            .objects
            .own::<ConfigMap>()
            .get(&self.ledger(), &GetParams::default());
        let read: Option<ConfigMap> = found(self.send("get", "configmaps", request).await)?;
        Ok(read.and_then(|map| map.data).unwrap_or_default())
    }

    /// Writes and removes entries, and leaves the others alone.
    ///
    /// # Errors
    /// Whatever keeps it from being written.
    pub async fn write_ledger(&self, changes: &Changes) -> Result<(), CallError> {
        let body = Patch::Merge(json!({"data": changes}));
        let request = self
            .objects
            .own::<ConfigMap>()
            .patch(&self.ledger(), &manager(), &body);
        match self.send::<Value>("patch", "configmaps", request).await {
            Err(CallError::NotFound) => self.create_ledger(changes).await,
            answer => answer.map(|_| ()),
        }
    }

    async fn create_ledger(&self, changes: &Changes) -> Result<(), CallError> {
        let kept = changes
            .iter()
            .filter_map(|(key, value)| Some((key, value.as_ref()?)));
        let map = ConfigMap {
            metadata: ObjectMeta {
                name: Some(self.ledger()),
                labels: Some([(MANAGED_BY.to_owned(), MANAGED_BY_VALUE.to_owned())].into()),
                ..ObjectMeta::default()
            },
            data: Some(kept.map(|(key, value)| (key.clone(), value.clone())).collect()),
            ..ConfigMap::default()
        };
        let body = serde_json::to_vec(&map).map_err(|_| CallError::Transport)?;
        let parameters = PostParams {
            dry_run: false,
            field_manager: Some(FIELD_MANAGER.to_owned()),
        };
        let request = self.objects.own::<ConfigMap>().create(&parameters, body);
        self.send::<Value>("create", "configmaps", request)
            .await
            .map(|_| ())
    }

    fn ledger(&self) -> String {
        format!("renderhub-ledger-{}", self.hub_id())
    }
}
