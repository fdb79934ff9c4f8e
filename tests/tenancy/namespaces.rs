//! A namespace that the platform lists by name is the one that had the name when the grant was first used: a recreated or
//! relabelled namespace inherits nothing until the platform grants it again.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use k8s_openapi::api::core::v1::Namespace;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::{Api, ApiResource, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Resource, ResourceExt};
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::{ClusterRegistry, RenderTask, RendererClass};
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};
use support::api::GRANTED_KINDS;
use support::{LIMIT, Stage, message_of};

const NOT_ALLOWED: &str = "RegistryNotAllowed";
const NO_CLASS: &str = "RendererClassNotFound";

trait Namespaces {
    fn namespaces(&self) -> Api<Namespace>;
    /// UID of the tenant's namespace.
    async fn tenant_uid(&self) -> Result<String>;
    /// Deletes the tenant's namespace with all that is in it, and makes another one of the same name and labels. Its UID.
    async fn recreate_namespace(&self) -> Result<String>;
    async fn delete_namespace(&self) -> Result<()>;
    /// Makes the tenant's namespace, and gives the hub its rights there, as an installer that runs again does.
    async fn make_namespace(&self, labels: &BTreeMap<String, String>) -> Result<()>;
    /// Puts a label on the tenant's namespace, as a careless role lets its tenant do.
    async fn relabel_namespace(&self) -> Result<()>;
    /// What is recorded for the stage's registry.
    async fn recorded(&self) -> Result<BTreeMap<String, String>>;
    /// Waits until the record of the stage's registry is so.
    async fn until_recorded(&self, wanted: &[(&str, &str)]) -> Result<()>;
    /// Makes or changes a class of the stage's own.
    async fn put_own_class(&self, allowed: &[&str]) -> Result<()>;
    async fn until_class_recorded(&self, wanted: Option<&str>) -> Result<()>;
    /// Submits a task that is refused for this reason; the task and the message.
    async fn refused_with(&self, name: &str, spec: Value, reason: &str) -> Result<(RenderTask, String)>;
    /// Waits until the registry or class says, or does not say any more, that the tenant's namespace was recreated.
    async fn tells<K: Resource<DynamicType = ()>>(&self, names_it: bool) -> Result<()>;
}

impl Namespaces for Stage {
    fn namespaces(&self) -> Api<Namespace> {
        Api::all(self.admin.clone())
    }

    async fn tenant_uid(&self) -> Result<String> {
        let namespace = self.namespaces().get_metadata(&self.scope.tenant).await?;
        namespace.metadata.uid.context("a namespace has a UID")
    }

    async fn recreate_namespace(&self) -> Result<String> {
        let before = self.namespaces().get(&self.scope.tenant).await?;
        self.delete_namespace().await?;
        self.make_namespace(before.labels()).await?;
        let now = self.tenant_uid().await?;
        assert_ne!(Some(&now), before.metadata.uid.as_ref());
        Ok(now)
    }

    async fn delete_namespace(&self) -> Result<()> {
        // The hub's rights in a namespace go with it, and it keeps on asking.
        self.allow_forbidden();
        let (api, name) = (self.namespaces(), self.scope.tenant.as_str());
        api.delete(name, &DeleteParams::default()).await?;
        wait_for("the namespace to be gone", LIMIT, async || {
            Ok(api.get_metadata_opt(name).await?.is_none().then_some(()))
        })
        .await
    }

    async fn make_namespace(&self, labels: &BTreeMap<String, String>) -> Result<()> {
        let namespace = json!({"metadata": {"name": self.scope.tenant, "labels": labels}});
        let namespace = serde_json::from_value(namespace)?;
        self.namespaces()
            .create(&PostParams::default(), &namespace)
            .await?;
        self.renew_rights().await
    }

    async fn relabel_namespace(&self) -> Result<()> {
        let label = Patch::Merge(json!({"metadata": {"labels": {"renderhub.dev/granted": "true"}}}));
        let api = self.namespaces();
        api.patch(&self.scope.tenant, &PatchParams::default(), &label)
            .await?;
        Ok(())
    }

    async fn recorded(&self) -> Result<BTreeMap<String, String>> {
        let api: Api<ClusterRegistry> = Api::all(self.admin.clone());
        let status = api.get(&self.scope.tenant).await?.status;
        Ok(status.unwrap_or_default().namespaces)
    }

    async fn until_recorded(&self, wanted: &[(&str, &str)]) -> Result<()> {
        let wanted: BTreeMap<_, _> = wanted
            .iter()
            .map(|(name, uid)| ((*name).to_owned(), (*uid).to_owned()))
            .collect();
        wait_for(&format!("the record to be {wanted:?}"), LIMIT, async || {
            Ok((self.recorded().await? == wanted).then_some(()))
        })
        .await
    }

    async fn put_own_class(&self, allowed: &[&str]) -> Result<()> {
        let spec = json!({"image": "renderer.test/r:1", "allowedNamespaces": allowed});
        self.put_class(&self.scope.tenant, spec).await
    }

    async fn until_class_recorded(&self, wanted: Option<&str>) -> Result<()> {
        let (api, name): (Api<RendererClass>, _) = (Api::all(self.admin.clone()), &self.scope.tenant);
        wait_for(&format!("the class to record {wanted:?}"), LIMIT, async || {
            let status = api.get(name).await?.status.unwrap_or_default();
            Ok((status.namespaces.get(name).map(String::as_str) == wanted).then_some(()))
        })
        .await
    }

    async fn refused_with(&self, name: &str, spec: Value, reason: &str) -> Result<(RenderTask, String)> {
        let task = self.submit_with(name, spec).await?;
        let status = self.condition(&task, JobScheduled, "False", reason).await?;
        assert_eq!(self.objects(&task).await?, (false, false));
        Ok((task, message_of(&status, JobScheduled).to_owned()))
    }

    async fn tells<K: Resource<DynamicType = ()>>(&self, names_it: bool) -> Result<()> {
        let kind = ApiResource::erase::<K>(&());
        let api: Api<DynamicObject> = Api::all_with(self.admin.clone(), &kind);
        wait_for(
            &format!("{} to name it: {names_it}", kind.kind),
            LIMIT,
            async || {
                let object = api.get(&self.scope.tenant).await?;
                let conditions = object.data["status"]["conditions"].as_array();
                let ready = conditions.and_then(|all| all.iter().find(|c| c["type"] == "Ready"));
                let message = ready.and_then(|ready| ready["message"].as_str());
                let is_so = message.is_some_and(|text| text.contains(&self.scope.tenant) == names_it);
                Ok(is_so.then_some(()))
            },
        )
        .await
    }
}

/// Holds: T8.
#[tokio::test]
async fn a_recreated_namespace_is_refused_until_it_is_granted_again() -> Result<()> {
    let mut stage = Stage::without_hub("again", &[]).await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_registry().await?;
    stage.put_own_class(&[&tenant]).await?;
    stage.start_hub().await?;
    let classed = json!({"rendererClassName": tenant});
    let first = stage.submit_with("first", classed.clone()).await?;
    stage
        .condition(&first, JobScheduled, "True", "JobScheduled")
        .await?;
    let old = stage.tenant_uid().await?;
    stage.until_recorded(&[(&tenant, &old)]).await?;
    stage.until_class_recorded(Some(&old)).await?;

    // A label grants nothing and takes nothing away.
    stage.relabel_namespace().await?;
    stage.barrier().await?;
    assert_eq!(
        stage.recorded().await?,
        BTreeMap::from([(tenant.clone(), old.clone())])
    );

    stage.delete(&first).await?;
    let new = stage.recreate_namespace().await?;
    let (second, message) = stage.refused_with("second", classed, NOT_ALLOWED).await?;
    stage.tells::<ClusterRegistry>(true).await?;
    // No client can see from the outside that the name was granted once.
    stage
        .put_registry(json!({"allowedNamespaces": ["somebody-else"]}))
        .await?;
    stage.until_recorded(&[]).await?;
    let (_, unlisted) = stage.refused_with("unlisted", json!({}), NOT_ALLOWED).await?;
    assert_eq!(message, unlisted);

    // The registry grants the name again; the class still means the old namespace.
    stage.put_registry(json!({"allowedNamespaces": [tenant]})).await?;
    stage.until_recorded(&[(&tenant, &new)]).await?;
    stage.condition(&second, JobScheduled, "False", NO_CLASS).await?;
    stage.tells::<RendererClass>(true).await?;
    stage.tells::<ClusterRegistry>(false).await?;
    stage.put_own_class(&["somebody-else"]).await?;
    stage.until_class_recorded(None).await?;
    stage.put_own_class(&[&tenant]).await?;
    stage
        .condition(&second, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.until_class_recorded(Some(&new)).await?;
    stage.passed();
    Ok(())
}

/// Holds: T8.
#[tokio::test]
async fn a_namespace_that_was_recreated_while_the_hub_was_gone_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("asleep", &[]).await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_registry().await?;
    stage.start_hub().await?;
    stage.barrier().await?;
    let old = stage.tenant_uid().await?;
    stage.kill_hub();
    let new = stage.recreate_namespace().await?;
    let waiting = stage.submit(stage.task("waiting")).await?;
    stage.start_hub().await?;
    stage
        .condition(&waiting, JobScheduled, "False", NOT_ALLOWED)
        .await?;
    stage.relabel_namespace().await?;
    stage.refused_with("relabelled", json!({}), NOT_ALLOWED).await?;
    stage.restart_hub().await?;
    stage.refused_with("restarted", json!({}), NOT_ALLOWED).await?;
    stage.until_recorded(&[(&tenant, &old)]).await?;

    // A grant in the same change is seen as well, and one to every namespace needs no record.
    stage.put_registry(json!({"allowedNamespaces": []})).await?;
    stage.put_registry(json!({"allowedNamespaces": [tenant]})).await?;
    stage
        .condition(&waiting, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.until_recorded(&[(&tenant, &new)]).await?;
    stage.put_registry(json!({"allowedNamespaces": ["*"]})).await?;
    stage.until_recorded(&[]).await?;
    stage.recreate_namespace().await?;
    let open = stage.submit(stage.task("open")).await?;
    stage
        .condition(&open, JobScheduled, "True", "JobScheduled")
        .await?;
    assert_eq!(stage.recorded().await?, BTreeMap::new());
    stage.passed();
    Ok(())
}

trait Records {
    /// Writes the record of the stage's own object of a kind, as a careless role lets a user do; returns the record after it.
    async fn put_record(&self, plural: &str, namespaces: &Value) -> Result<Value>;
    /// Waits until the record of the stage's own object of a kind is that the tenant's namespace has this UID.
    async fn until_record(&self, plural: &str, uid: &str) -> Result<()>;
}

impl Records for Stage {
    async fn put_record(&self, plural: &str, namespaces: &Value) -> Result<Value> {
        let forged = json!({"status": {"namespaces": namespaces}});
        let path = format!(
            "/apis/renderhub.dev/v1alpha1/{plural}/{}/status",
            self.scope.tenant
        );
        let request = http::Request::patch(path)
            .header("content-type", "application/merge-patch+json")
            .body(forged.to_string().into_bytes())?;
        let answer: Value = self.admin.request(request).await?;
        Ok(answer["status"]["namespaces"].clone())
    }

    async fn until_record(&self, plural: &str, uid: &str) -> Result<()> {
        let tenant = &self.scope.tenant;
        let wanted = json!({ tenant: uid });
        wait_for(&format!("{plural} to record {uid}"), LIMIT, async || {
            let path = format!("/apis/renderhub.dev/v1alpha1/{plural}/{tenant}");
            let request = http::Request::get(path).body(Vec::new())?;
            let found: Value = self.admin.request(request).await?;
            Ok((found["status"]["namespaces"] == wanted).then_some(()))
        })
        .await
    }
}

/// Holds: B12.
#[tokio::test]
async fn a_record_that_no_hub_wrote_grants_nothing_and_is_put_right() -> Result<()> {
    let stage = Stage::new("forged").await?;
    let tenant = stage.scope.tenant.clone();
    stage.put_own_class(&[&tenant]).await?;
    let cluster = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderCluster", "metadata": {"name": tenant},
        "spec": {
            "kubeConfig": {"secretRef": {"name": tenant}}, "renderNamespace": "renders", "allowedNamespaces": [tenant],
        },
    });
    apply::object(&stage.admin, cluster).await?;
    let old = stage.tenant_uid().await?;
    for plural in &*GRANTED_KINDS {
        stage.until_record(plural, &old).await?;
    }
    let new = stage.recreate_namespace().await?;
    for plural in &*GRANTED_KINDS {
        for forged in [json!({ &tenant: new }), json!(null)] {
            let stands = stage.put_record(plural, &forged).await?;
            assert_ne!(
                stands,
                json!({ &tenant: old }),
                "nothing keeps a user from writing here"
            );
            stage.until_record(plural, &old).await?;
        }
    }
    stage.refused_with("shop", json!({}), NOT_ALLOWED).await?;
    stage.passed();
    Ok(())
}

/// Holds: T8.
#[tokio::test]
async fn hubs_that_share_a_registry_keep_each_others_records() -> Result<()> {
    let mut ours = Stage::without_hub("ours", &[]).await?;
    let mut theirs = Stage::without_hub("theirs", &[]).await?;
    let (our, their) = (ours.scope.tenant.clone(), theirs.scope.tenant.clone());
    for stage in [&ours, &theirs] {
        stage.make_push_secret("push").await?;
    }
    // It is named like our tenant; both tenants may push to it.
    let shared = json!({"pushSecretRef": {"name": "push"}, "allowedNamespaces": [our, their]});
    ours.put_registry(shared.clone()).await?;
    ours.start_hub().await?;
    theirs.start_hub().await?;
    let (our_uid, their_uid) = (ours.tenant_uid().await?, theirs.tenant_uid().await?);
    ours.until_recorded(&[(&our, &our_uid), (&their, &their_uid)])
        .await?;
    let of_ours = json!({"registryRef": {"name": our}});
    let both = [
        ours.submit_with("shop", of_ours.clone()).await?,
        theirs.submit_with("shop", of_ours.clone()).await?,
    ];
    ours.condition(&both[0], JobScheduled, "True", "JobScheduled")
        .await?;
    theirs
        .condition(&both[1], JobScheduled, "True", "JobScheduled")
        .await?;

    // Each name is the business of the hub that watches it.
    theirs.delete(&both[1]).await?;
    theirs.kill_hub();
    ours.put_registry(json!({"pushSecretRef": {"name": "push"}, "allowedNamespaces": []}))
        .await?;
    ours.until_recorded(&[(&their, &their_uid)]).await?;
    let new = theirs.recreate_namespace().await?;
    ours.put_registry(shared).await?;
    ours.until_recorded(&[(&our, &our_uid), (&their, &their_uid)])
        .await?;
    theirs.start_hub().await?;
    theirs.refused_with("again", of_ours, NOT_ALLOWED).await?;
    assert_ne!(new, their_uid);
    ours.until_recorded(&[(&our, &our_uid), (&their, &their_uid)])
        .await?;

    // What one says of its namespaces outlasts what the other says of the registry.
    let registries: Api<ClusterRegistry> = Api::all(ours.admin.clone());
    let mentions_theirs = async || {
        wait_for("the registry to mention their namespace", LIMIT, async || {
            let registry = registries.get(&our).await?;
            let status = registry.status.unwrap_or_default();
            let is_newest = status.observed_generation == registry.metadata.generation;
            let mentions = |ready: &&Condition| ready.type_ == "Ready" && ready.message.contains(&their);
            let mentioned = is_newest.then(|| status.conditions.iter().find(mentions).map(drop));
            Ok(mentioned.flatten())
        })
        .await
    };
    mentions_theirs().await?;
    theirs.kill_hub();
    ours.put_registry(json!({"pushSecretRef": {"name": "push"}, "allowedNamespaces": [their, our]}))
        .await?;
    mentions_theirs().await?;
    ours.passed();
    theirs.passed();
    Ok(())
}

/// Holds: T8.
#[tokio::test]
async fn a_namespace_that_is_listed_before_it_exists_is_granted_when_it_does() -> Result<()> {
    let stage = Stage::new("early").await?;
    let tenant = stage.scope.tenant.clone();
    let uid = stage.tenant_uid().await?;
    stage.until_recorded(&[(&tenant, &uid)]).await?;
    // Off the list while it is gone, and back on it before the next one of the name exists.
    stage.delete_namespace().await?;
    stage.put_registry(json!({"allowedNamespaces": []})).await?;
    stage.until_recorded(&[]).await?;
    stage.put_registry(json!({"allowedNamespaces": [tenant]})).await?;
    stage.make_namespace(&BTreeMap::new()).await?;
    let task = stage.submit(stage.task("shop")).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    stage
        .until_recorded(&[(&tenant, &stage.tenant_uid().await?)])
        .await?;
    stage.passed();
    Ok(())
}
