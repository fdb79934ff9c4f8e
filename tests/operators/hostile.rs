//! What tenants, other writers and odd Secrets make of it.

use anyhow::{Result, ensure};
use k8s_openapi::ByteString;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::core::v1::Secret;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use crate::world::{LIMIT, PULL, World, config};

/// Writes of another writer.
const WRITES: usize = 1_000;

/// Holds: S6, S7.
#[tokio::test]
async fn what_no_catalog_gave_and_where_nothing_is_listed_nothing_goes() -> Result<()> {
    let world = World::start("nothing", 2).await?;
    let team = world.team().to_owned();
    // In a namespace that is not listed.
    let other = world.plane.namespace("nothing-other").await?;
    world.install(&other, "etcd", "main", "etcd").await?;
    // A version made by hand that names an account of others.
    world.write_account(&team, "deployer", &[]).await?;
    world.write_version(&team, "by-hand", "deployer").await?;
    // A Subscription to a catalog of the tenant's own, which names a Secret of the platform's name.
    let mut own = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
        "metadata": {"name": "main", "namespace": team},
        "spec": {"sourceType": "grpc", "address": "127.0.0.1:1", "secrets": [PULL]},
    });
    world.apply(own.take()).await?;
    world.write_account(&team, "own", &[]).await?;
    world.write_version(&team, "own", "own").await?;
    world
        .apply(json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": "own", "namespace": team},
            "spec": {"name": "own", "channel": "stable", "source": "main", "sourceNamespace": team},
        }))
        .await?;
    let status = json!({"status": {"installedCSV": "own", "lastUpdated": "2026-01-01T00:00:00Z"}});
    let api = world.olm("Subscription", "subscriptions", &team);
    api.patch_status("own", &PatchParams::default(), &Patch::Merge(&status))
        .await?;
    // Copies of versions of another namespace are ignored.
    world.write_version(&team, "copied", "copied").await?;
    let label = json!({"metadata": {"labels": {"olm.copiedFrom": "operators"}}});
    let versions = world.olm("ClusterServiceVersion", "clusterserviceversions", &team);
    versions
        .patch("copied", &PatchParams::default(), &Patch::Merge(&label))
        .await?;
    world.write_account(&team, "copied", &[]).await?;
    world.subscribe(&team, "copied", "main", "copied").await?;

    world.until_seen().await?;
    world.until_no_copy(&team).await?;
    world.until_no_copy(&other).await?;
    for account in ["deployer", "own", "copied"] {
        ensure!(world.entries(&team, account).await?.is_empty(), "{account}");
    }
    let there = world.requests().await?;
    ensure!(
        there.iter().all(|request| request.namespace != other),
        "nothing is even read there"
    );
    world.passed_with_its_rights()
}

/// Holds: S9.
#[tokio::test]
async fn a_secret_that_has_the_copys_name_is_left_alone_and_both_are_told() -> Result<()> {
    let world = World::start("conflict", 2).await?;
    let team = world.team().to_owned();
    let name = world.copy(PULL);
    world
        .apply(json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": team}, "stringData": {"a": "b"},
        }))
        .await?;
    let before = world.secrets(&team).get_metadata(&name).await?.resource_version();
    world.install(&team, "etcd", "main", "etcd").await?;
    let said = world
        .until_conditions(&["Subscription etcd PullSecretNameConflict"])
        .await?;
    ensure!(said.contains(&name), "{said}");
    let note = world.until_event(&team, "etcd", "PullSecretNameConflict").await?;
    ensure!(note.contains(&name), "{note}");
    world.write_secret(PULL, "2").await?;
    world.until_seen().await?;
    ensure!(
        world.entries(&team, "etcd").await?.is_empty(),
        "no link leads to what is not ours"
    );
    ensure!(world.secrets(&team).get_metadata(&name).await?.resource_version() == before);
    world
        .secrets(&team)
        .delete(&name, &DeleteParams::default())
        .await?;
    world.until_copied(&team, PULL, "2").await?;
    world
        .until_entries(&team, "etcd", std::slice::from_ref(&name))
        .await?;
    world.until_conditions(&[]).await?;
    world.passed_with_its_rights()
}

/// What binds an admission policy that refuses to change, or to make, this kind in a namespace.
fn refusing(namespace: &str, resource: &str, operation: &str) -> [Value; 2] {
    let name = format!("no-{resource}-{namespace}");
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name},
        "spec": {
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "resourceRules": [{
                    "apiGroups": [""], "apiVersions": ["v1"], "operations": [operation], "resources": [resource],
                }],
            },
            "validations": [{"expression": "false", "message": "canary-policy"}],
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    });
    [policy, binding]
}

/// Has the API server refuse to change, or to make, this kind in a namespace, and waits until it does, or does no more.
async fn refuse(world: &World, resource: &str, operation: &str, is_refused: bool) -> Result<()> {
    let team = world.team();
    for object in refusing(team, resource, operation) {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        if is_refused {
            world.apply(object).await?;
        } else if object["kind"] == "ValidatingAdmissionPolicy" {
            let api: Api<ValidatingAdmissionPolicy> = Api::all(world.admin.clone());
            api.delete(&name, &DeleteParams::default()).await?;
        } else {
            let api: Api<ValidatingAdmissionPolicyBinding> = Api::all(world.admin.clone());
            api.delete(&name, &DeleteParams::default()).await?;
        }
    }
    let probe = json!({"metadata": {"name": "probe"}});
    let (secrets, accounts) = (world.secrets(team), world.accounts(team));
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    let patch = PatchParams {
        dry_run: true,
        ..PatchParams::default()
    };
    let change = json!({"metadata": {"labels": {"probe": "probe"}}});
    wait_for("the API server to decide so", LIMIT, async || {
        let is_done = if resource == "secrets" {
            let probe: Secret = serde_json::from_value(probe.clone())?;
            secrets.create(&dry_run, &probe).await.is_ok()
        } else {
            accounts
                .patch("etcd", &patch, &Patch::Merge(&change))
                .await
                .is_ok()
        };
        Ok((is_done != is_refused).then_some(()))
    })
    .await
}

/// Holds: S9.
#[tokio::test]
async fn what_the_api_server_refuses_is_said_and_tried_again_after_growing_pauses() -> Result<()> {
    let world = World::start("refused", 2).await?;
    let team = world.team().to_owned();
    world.write_account(&team, "etcd", &[]).await?;
    for (name, resource, operation, verb) in [
        ("first", "secrets", "CREATE", "create"),
        ("second", "serviceaccounts", "UPDATE", "patch"),
    ] {
        refuse(&world, resource, operation, true).await?;
        let begin = world.mark().await?;
        world.write_version(&team, name, "etcd").await?;
        world.subscribe(&team, name, "main", name).await?;
        let said = world
            .until_conditions(&[&format!("Subscription {name} CreateRefused")])
            .await?;
        let note = world.until_event(&team, name, "CreateRefused").await?;
        ensure!(said.contains(&team) && note.contains(&team), "{said} {note}");
        ensure!(
            !said.contains("canary") && !note.contains("canary"),
            "{said} {note}"
        );
        // Others are served meanwhile, and it is not tried as fast as the API server answers.
        world.until_seen().await?;
        let all = world.plane.audit()?.since_with(begin, world.user.name()).await?;
        let tried = all
            .iter()
            .filter(|event| (event.verb.as_str(), event.resource.as_str()) == (verb, resource))
            .filter(|event| event.namespace == team && event.stage == "ResponseComplete");
        let tried = tried.count();
        ensure!((4..=30).contains(&tried), "{tried} attempts");
        refuse(&world, resource, operation, false).await?;
        world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
        world.until_conditions(&[]).await?;
        world.remove_subscription(&team, name).await?;
        world.remove_version(&team, name).await?;
        world.until_no_copy(&team).await?;
        world.until_entries(&team, "etcd", &[]).await?;
    }
    // What can be done is done beside a copy that is refused: with another Secret in its place the one of before goes.
    world.install(&team, "third", "main", "etcd").await?;
    world.until_entries(&team, "etcd", &[world.copy(PULL)]).await?;
    refuse(&world, "secrets", "CREATE", true).await?;
    world.write_secret("more", "1").await?;
    world.write_catalog("main", &["more"]).await?;
    world.until_no_copy(&team).await?;
    world.until_entries(&team, "etcd", &[]).await?;
    world
        .until_conditions(&["Subscription third CreateRefused"])
        .await?;
    refuse(&world, "secrets", "CREATE", false).await?;
    world.until_entries(&team, "etcd", &[world.copy("more")]).await?;
    world.until_conditions(&[]).await?;
    // A refusal is forgotten where another writer has done what was refused, and nothing is left to write.
    refuse(&world, "serviceaccounts", "UPDATE", true).await?;
    world.write_catalog("main", &["more", PULL]).await?;
    world
        .until_conditions(&["Subscription third CreateRefused"])
        .await?;
    world
        .accounts(&team)
        .delete("etcd", &DeleteParams::default())
        .await?;
    let copies = [world.copy("more"), world.copy(PULL)];
    world
        .write_account(&team, "etcd", &[&copies[0], &copies[1]])
        .await?;
    world.until_conditions(&[]).await?;
    world.passed()
}

/// Holds: S10.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn beside_another_writer_of_the_same_list_no_entry_is_lost() -> Result<()> {
    let world = World::start("writers", 1).await?;
    let team = world.team().to_owned();
    world.write_account(&team, "etcd", &["first"]).await?;
    world.write_version(&team, "etcd", "etcd").await?;
    // The other one puts entries in front and takes them off again, each time in the version that it read.
    let api = world.accounts(&team);
    let other = tokio::spawn(async move {
        for number in 0..WRITES {
            loop {
                let mut account = api.get("etcd").await?;
                let list = account.image_pull_secrets.get_or_insert_default();
                if number % 2 == 0 {
                    list.insert(0, serde_json::from_value(json!({"name": "theirs"}))?);
                } else {
                    list.retain(|entry| entry.name != "theirs");
                }
                match api.replace("etcd", &PostParams::default(), &account).await {
                    Ok(_) => break,
                    Err(kube::Error::Api(status)) if status.code == 409 => {}
                    Err(error) => return Err(anyhow::Error::from(error)),
                }
            }
        }
        anyhow::Ok(())
    });
    // Links come and go meanwhile.
    for round in 0..8 {
        world.subscribe(&team, "etcd", "main", "etcd").await?;
        wait_for("our entry", LIMIT, async || {
            let entries = world.entries(&team, "etcd").await?;
            Ok(entries.contains(&world.copy(PULL)).then_some(()))
        })
        .await?;
        let secrets: &[&str] = if round % 2 == 0 { &[] } else { &[PULL] };
        world.write_catalog("main", secrets).await?;
        if secrets.is_empty() {
            wait_for("our entry to be gone", LIMIT, async || {
                let entries = world.entries(&team, "etcd").await?;
                Ok((!entries.contains(&world.copy(PULL))).then_some(()))
            })
            .await?;
            world.write_catalog("main", &[PULL]).await?;
        }
    }
    other.await??;
    world
        .until_entries(&team, "etcd", &["first".to_owned(), world.copy(PULL)])
        .await?;
    world.passed_with_its_rights()
}

/// Holds: S11.
#[tokio::test]
async fn odd_secrets_are_not_copied_and_the_catalog_is_told() -> Result<()> {
    let world = World::start("odd", 2).await?;
    let team = world.team().to_owned();
    let secrets = world.secrets(&world.catalogs);
    let secret = |name: &str, kind: &str, key: &str, value: Vec<u8>| Secret {
        metadata: kube::api::ObjectMeta {
            name: Some(name.to_owned()),
            ..kube::api::ObjectMeta::default()
        },
        type_: Some(kind.to_owned()),
        data: Some([(key.to_owned(), ByteString(value))].into()),
        ..Secret::default()
    };
    let post = PostParams::default();
    secrets
        .create(
            &post,
            &secret("opaque", "Opaque", ".dockerconfigjson", b"{}".to_vec()),
        )
        .await?;
    // As large as a Secret can be: it is a pull Secret like any other.
    let (start, end) = ("{\"auths\":{}", "}");
    let large = format!("{start}{}{end}", " ".repeat((1 << 20) - start.len() - end.len()));
    let kind = "kubernetes.io/dockerconfigjson";
    secrets
        .create(
            &post,
            &secret("large", kind, ".dockerconfigjson", large.clone().into_bytes()),
        )
        .await?;
    world
        .write_catalog("main", &["opaque", "large", "away", PULL])
        .await?;
    world.install(&team, "etcd", "main", "etcd").await?;
    world
        .until_conditions(&[
            "CatalogSource main PullSecretNotFound",
            "CatalogSource main PullSecretInvalid",
        ])
        .await?;
    world
        .until_event(&world.catalogs, "main", "PullSecretInvalid")
        .await?;
    world
        .until_event(&world.catalogs, "main", "PullSecretNotFound")
        .await?;
    world.until_copied(&team, PULL, "1").await?;
    let copy = wait_for("the large copy", LIMIT, async || {
        Ok(world.secrets(&team).get_opt(&world.copy("large")).await?)
    })
    .await?;
    ensure!(copy.data.unwrap_or_default()[".dockerconfigjson"].0 == large.into_bytes());
    ensure!(
        world.entries(&team, "etcd").await?.len() == 2,
        "what is copied is linked, and nothing else"
    );
    // A Secret that became one to pull with.
    secrets.delete("opaque", &DeleteParams::default()).await?;
    world.write_secret("opaque", "9").await?;
    world.until_copied(&team, "opaque", "9").await?;
    world
        .until_conditions(&["CatalogSource main PullSecretNotFound"])
        .await?;
    ensure!(!world.recorded().await?["conditions.json"].contains(&config("1")));
    world.passed_with_its_rights()
}

/// Holds: S12.
#[tokio::test]
async fn two_processes_at_once_only_lose_races() -> Result<()> {
    let mut world = World::start("two", 2).await?;
    world.spawn().await?;
    for team in world.teams.clone() {
        world.install(&team, "etcd", "main", "etcd").await?;
    }
    for value in ["2", "3", "4"] {
        world.write_secret(PULL, value).await?;
        for team in &world.teams {
            world.until_copied(team, PULL, value).await?;
            world.until_entries(team, "etcd", &[world.copy(PULL)]).await?;
        }
    }
    for team in &world.teams {
        world.remove_subscription(team, "etcd").await?;
        world.remove_version(team, "etcd").await?;
        world.until_no_copy(team).await?;
        world.until_entries(team, "etcd", &[]).await?;
    }
    world.passed_with_its_rights()
}
