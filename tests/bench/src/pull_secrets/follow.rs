//! How long the program takes to follow one change while everything else rests.

use std::time::Instant;

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Secret, ServiceAccount};
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams};
use renderhub::api::olm::olm_resource;
use renderhub::kubernetes::pull_secrets::RECORD;
use renderhub::plan::pipeline::object::ObjectKey;
use renderhub::plan::pull_secrets::ownership::copy_name;
use renderhub_harness::progress::Progress;
use renderhub_harness::rights::RELEASE_NAMESPACE;
use renderhub_harness::wait_for;
use serde_json::json;

use super::fleet::{CATALOGS, LIMIT, OperatorFleet, PULL, make_account, make_team, write_secret};

/// A second Secret for the list of a catalog.
const MORE: &str = "more";
/// Times that each change is made; the longest counts.
const ROUNDS: usize = 3;

/// A change, and the longest that the program took to follow it.
pub struct FollowedChange {
    pub what: &'static str,
    /// Key of the figure.
    pub key: &'static str,
    pub seconds: f64,
}

impl OperatorFleet {
    /// Makes one change after the other, and waits until the program has followed it.
    ///
    /// # Errors
    /// If something cannot be changed, or is not followed.
    pub async fn follow_all(&self) -> Result<Vec<FollowedChange>> {
        let _progress = Progress::start("one change after the other");
        write_secret(&self.admin, MORE, "more").await?;
        let mut all = [
            ("an edited list of Secrets, seconds", "edited_list_seconds", 0.0),
            ("a deleted copy, seconds", "deleted_copy_seconds", 0.0),
            (
                "a ServiceAccount made again, seconds",
                "recreated_account_seconds",
                0.0,
            ),
            (
                "a namespace made again and granted, seconds",
                "returned_namespace_seconds",
                0.0_f64,
            ),
        ];
        for _ in 0..ROUNDS {
            let took = [
                self.edit_list(&[PULL, MORE])
                    .await?
                    .max(self.edit_list(&[PULL]).await?),
                self.delete_copy().await?,
                self.recreate_account().await?,
            ];
            for ((_, _, longest), took) in all.iter_mut().zip(took) {
                *longest = longest.max(took);
            }
        }
        // Its rights are those of 500 namespaces, so once.
        all[3].2 = self.return_namespace().await?;
        let followed = |(what, key, seconds)| FollowedChange { what, key, seconds };
        Ok(all.into_iter().map(followed).collect())
    }

    /// Until each namespace of a catalog has the copies and links of its list.
    async fn edit_list(&self, secrets: &[&str]) -> Result<f64> {
        let resource = olm_resource("CatalogSource", "catalogsources");
        let api: Api<DynamicObject> = Api::namespaced_with(self.admin.clone(), CATALOGS, &resource);
        let begin = Instant::now();
        let patch = Patch::Merge(json!({"spec": {"secrets": secrets}}));
        api.patch("catalog-0", &PatchParams::default(), &patch).await?;
        for name in self.namespaces.iter().step_by(self.catalogs) {
            for account in ["controller", "webhook"] {
                self.until_entries(name, account, secrets).await?;
            }
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    async fn delete_copy(&self) -> Result<f64> {
        let copies: Api<Secret> = Api::namespaced(self.admin.clone(), &self.namespaces[0]);
        let name = copy_name(&ObjectKey::new(CATALOGS, PULL));
        let begin = Instant::now();
        copies.delete(&name, &DeleteParams::default()).await?;
        wait_for("the copy", LIMIT, async || {
            Ok(copies.get_metadata_opt(&name).await?)
        })
        .await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    async fn recreate_account(&self) -> Result<f64> {
        let namespace = &self.namespaces[0];
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), namespace);
        accounts.delete("webhook", &DeleteParams::default()).await?;
        let begin = Instant::now();
        make_account(&self.admin, namespace, "webhook").await?;
        self.until_entries(namespace, "webhook", &[PULL]).await?;
        Ok(begin.elapsed().as_secs_f64())
    }

    /// From the moment at which the platform operator grants a namespace that was made again.
    async fn return_namespace(&self) -> Result<f64> {
        let name = &self.namespaces[0];
        let namespaces: Api<Namespace> = Api::all(self.admin.clone());
        namespaces.delete(name, &DeleteParams::default()).await?;
        wait_for("the namespace to be gone", LIMIT, async || {
            Ok(namespaces.get_metadata_opt(name).await?.is_none().then_some(()))
        })
        .await?;
        make_team(&self.admin, name, 0).await?;
        self.renew_rights().await?;
        let records: Api<ConfigMap> = Api::namespaced(self.admin.clone(), RELEASE_NAMESPACE);
        wait_for("the program to see that it is another one", LIMIT, async || {
            let said = records.get(RECORD).await?.data.unwrap_or_default();
            let is_said = said.values().any(|value| value.contains("NamespaceRecreated"));
            Ok(is_said.then_some(()))
        })
        .await?;
        let begin = Instant::now();
        let grant = Patch::Merge(json!({"data": {name: null}}));
        records.patch(RECORD, &PatchParams::default(), &grant).await?;
        for account in ["controller", "webhook"] {
            self.until_entries(name, account, &[PULL]).await?;
        }
        Ok(begin.elapsed().as_secs_f64())
    }

    async fn until_entries(&self, namespace: &str, account: &str, secrets: &[&str]) -> Result<()> {
        let accounts: Api<ServiceAccount> = Api::namespaced(self.admin.clone(), namespace);
        wait_for("the links", LIMIT, async || {
            let entries = accounts
                .get(account)
                .await?
                .image_pull_secrets
                .unwrap_or_default();
            Ok((entries.len() == secrets.len()).then_some(()))
        })
        .await
    }
}
