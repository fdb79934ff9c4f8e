//! Clusters that tenants bring: behind a gate, read and used as the task's account, and without anything of the platform's.

use anyhow::Result;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use renderhub_harness::remote::ACCOUNT;
use renderhub_harness::wait_for;
use serde_json::{Value, json};

use support::away::{LOOPBACK, another, away};
use support::own::{CROSS_GATE, OWN_GATE};
use support::tenant::{BUILDER, OWN, account};
use support::{LIMIT, Stage, job_name_of};

#[tokio::test]
async fn with_the_gate_closed_the_kubeconfig_is_not_read() -> Result<()> {
    let stage = Stage::with_builder("closed", &[LOOPBACK]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let task = stage
        .submit_own("shop", &cluster.remote.namespace, json!({}))
        .await?;
    stage
        .condition(&task, JobScheduled, "False", "FeatureDisabled")
        .await?;
    stage.barrier().await?;
    assert_eq!(stage.readers().await?, [""; 0]);
    assert_eq!(cluster.requests().await?.len(), 0);
    stage.passed();
    Ok(())
}

/// Holds: C2, I4, I5.
#[tokio::test]
async fn a_tenants_own_cluster_is_used_as_the_tasks_account_only() -> Result<()> {
    let stage = Stage::with_builder("own", &[LOOPBACK, OWN_GATE]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let there = cluster.remote.namespace.clone();
    let task = stage.submit_own("shop", &there, json!({})).await?;
    cluster.job_of(&task).await?;
    let secret = cluster.secrets().get(&job_name_of(&task)).await?;
    assert_eq!(
        secret.data.unwrap_or_default()["password"].0,
        OWN.as_bytes(),
        "the tenant's credential goes along"
    );
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    cluster.cleared(&task).await?;
    let builder = account(&stage.scope.tenant, BUILDER);
    let requests = cluster.requests().await?;
    let on_objects = requests.iter().filter(|e| e.namespace == there);
    let (mut seen, groups) = (0, format!("system:serviceaccounts:{}", stage.scope.tenant));
    for event in on_objects {
        assert_eq!(event.impersonated_user.as_ref(), Some(&builder), "{}", event.uri);
        for group in &event.impersonated_groups {
            let is_own = ["system:serviceaccounts", "system:authenticated"].contains(&group.as_str());
            assert!(is_own || *group == groups, "{group}");
        }
        seen += 1;
    }
    assert!(seen >= 6, "a watch, a list, four writes: {seen}");
    let readers = stage.readers().await?;
    assert!(
        !readers.is_empty() && readers.iter().all(|user| *user == builder),
        "{readers:?}"
    );
    stage.hub_read_nothing_itself(&stage.scope.tenant).await?;
    stage.passed();
    Ok(())
}

/// Holds: C2.
#[tokio::test]
async fn nothing_of_the_platforms_goes_to_a_tenants_cluster() -> Result<()> {
    let stage = Stage::with_builder("never", &[LOOPBACK, OWN_GATE]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let there = cluster.remote.namespace.clone();
    let platforms = json!({"registryRef": {"name": stage.scope.tenant}});
    let task = stage.submit_own("platforms", &there, platforms).await?;
    stage
        .condition(&task, JobScheduled, "False", "CredentialsNotAllowedOnCluster")
        .await?;
    // Nor while the cluster is connected for another task.
    let own = stage.submit_own("own", &there, json!({})).await?;
    cluster.complete(&own).await?;
    stage
        .condition(&own, JobSucceeded, "True", "JobSucceeded")
        .await?;
    cluster.cleared(&own).await?;
    let name = job_name_of(&task);
    let events = cluster.requests().await?;
    assert!(events.iter().all(|e| e.name != name), "nothing of it was sent");
    let status = stage.tasks().get("platforms").await?.status.unwrap_or_default();
    assert!(support::has(
        &status,
        JobScheduled,
        "False",
        "CredentialsNotAllowedOnCluster"
    ));
    stage.passed();
    Ok(())
}

/// Holds: I3, T9.
#[tokio::test]
async fn who_may_not_read_a_kubeconfig_does_not_reach_its_cluster() -> Result<()> {
    let stage = Stage::with_builder("unread", &[LOOPBACK, OWN_GATE]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let there = cluster.remote.namespace.clone();
    stage.make_account(&stage.scope.tenant, "nobody").await?;
    stage
        .let_hub_become(&stage.scope.tenant, "nobody", "create")
        .await?;
    let nobody = stage
        .submit_own(
            "nobody",
            &there,
            json!({"serviceAccountName": "nobody", "registryRef": null, "baseURL": "registry.mine:5000"}),
        )
        .await?;
    stage
        .condition(&nobody, JobScheduled, "False", "RBACDenied")
        .await?;
    let unsaid = stage
        .submit_own(
            "unsaid",
            &there,
            json!({"serviceAccountName": null, "registryRef": null, "baseURL": "registry.mine:5000"}),
        )
        .await?;
    stage
        .condition(&unsaid, JobScheduled, "False", "RBACDenied")
        .await?;
    assert_eq!(cluster.requests().await?.len(), 0, "nobody connected");
    stage.passed();
    Ok(())
}

/// Holds: T9.
#[tokio::test]
async fn another_namespaces_kubeconfig_needs_the_other_gate_and_a_grant() -> Result<()> {
    let flags = [LOOPBACK, CROSS_GATE, "--no-cross-namespace-refs=false"];
    let mut stage = Stage::with_builder("cross", &flags).await?;
    let owner = stage.plane.namespace("owner").await?;
    stage.also_watch(&owner).await?;
    stage.restart_hub().await?;
    let cluster = stage.bring(away().await?, &owner).await?;
    let named = json!({"kubeConfig": {"secretRef": {"name": "own-cluster", "namespace": owner}}});
    let task = stage.submit_own("shop", &cluster.remote.namespace, named).await?;
    stage
        .condition(&task, JobScheduled, "False", "CrossNamespaceRefDenied")
        .await?;
    stage.lend(&owner).await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_deletion_does_not_wait_for_a_kubeconfig_that_is_gone() -> Result<()> {
    let flags = [LOOPBACK, OWN_GATE, "--orphan-grace-period=0s"];
    let stage = Stage::with_builder("bereft", &flags).await?;
    let plane = another().await?;
    let cluster = stage.bring(&plane, &stage.scope.tenant).await?;
    let task = stage
        .submit_own("shop", &cluster.remote.namespace, json!({}))
        .await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let tenants: Api<k8s_openapi::api::core::v1::Secret> =
        Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    let kept = tenants.get("own-cluster").await?.data.unwrap_or_default()["value"]
        .0
        .clone();
    tenants.delete("own-cluster", &DeleteParams::default()).await?;
    // What runs there can be neither seen nor removed as soon as that was noticed.
    wait_for("the hub to notice", LIMIT, async || {
        let metrics = stage.hub().metrics().await?;
        Ok((!metrics.contains("renderhub_cluster_connected{")).then_some(()))
    })
    .await?;
    stage.delete(&task).await?;
    assert!(cluster.jobs().get_opt(&job_name_of(&task)).await?.is_some());
    let ledger = stage.ledger().await?;
    assert!(
        ledger.iter().any(|(key, _)| key.starts_with("orphan.")),
        "{ledger:?}"
    );
    stage
        .put_own_kubeconfig(&stage.scope.tenant, &String::from_utf8(kept)?)
        .await?;
    cluster.cleared(&task).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_kubeconfig_that_is_not_safe_leads_nowhere() -> Result<()> {
    let stage = Stage::with_builder("unsafe", &[LOOPBACK, OWN_GATE]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let good = away()
        .await?
        .service_account(&cluster.remote.namespace, ACCOUNT)
        .await?
        .kubeconfig_text()?;
    let marker = tempfile::tempdir()?;
    let file = marker.path().join("canary-executed");
    let exec = json!({"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/touch",
        "args": [file], "interactiveMode": "Never"}});
    let mut document: Value = serde_saphyr::from_str(&good)?;
    document["users"][0]["user"] = exec;
    stage
        .put_own_kubeconfig(&stage.scope.tenant, &document.to_string())
        .await?;
    let task = stage
        .submit_own("shop", &cluster.remote.namespace, json!({}))
        .await?;
    stage
        .condition(&task, JobScheduled, "False", "InsecureKubeconfig")
        .await?;
    assert!(!file.exists(), "nothing was run");
    // Corrected, it starts by itself.
    stage.put_own_kubeconfig(&stage.scope.tenant, &good).await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    let failed = stage
        .tasks()
        .get(&task.name_any())
        .await?
        .status
        .unwrap_or_default();
    assert!(!support::has(&failed, JobFailed, "True", "JobLost"));
    stage.passed();
    Ok(())
}
