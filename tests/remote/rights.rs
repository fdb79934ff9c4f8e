//! Rights that are missing on another cluster, or were removed there: the messages to the operators and the tenant, and that a
//! right that comes back lets the work go on by itself.

use anyhow::{Context, Result};
use k8s_openapi::api::events::v1::Event;
use k8s_openapi::api::rbac::v1::Role;
use k8s_openapi::jiff::{SignedDuration, Timestamp};
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use renderhub::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded, Ready, Stalled};
use renderhub_harness::remote::ACCOUNT;
use renderhub_harness::{apply, wait_for};
use serde_json::{Value, json};

use support::away::{Cluster, LOOPBACK, another, away};
use support::own::OWN_GATE;
use support::{LIMIT, Stage, has, message_of};

/// The message of the condition `Connected` of a cluster, once it is so.
async fn connected(stage: &Stage, cluster: &str, status: &str, reason: &str) -> Result<String> {
    let seen = stage.connected(cluster, status, reason).await?;
    let conditions = seen.status.unwrap_or_default().conditions;
    Ok(conditions.first().context("it was waited for")?.message.clone())
}

/// Gives the Role on the other cluster these rules.
async fn rules(cluster: &Cluster<'_>, rules: Value) -> Result<()> {
    let role: Api<Role> = Api::namespaced(cluster.admin.clone(), &cluster.remote.namespace);
    let patch = Patch::Merge(json!({"rules": rules}));
    role.patch(ACCOUNT, &PatchParams::default(), &patch).await?;
    Ok(())
}

/// What the documented Role lets the hub do with Jobs.
const JOBS: [&str; 6] = ["create", "get", "list", "watch", "patch", "delete"];
/// The same with Secrets.
const SECRETS: [&str; 4] = ["create", "get", "list", "delete"];

/// The rules of the documented Role, with these verbs.
fn all(jobs: &[&str], secrets: &[&str]) -> Value {
    json!([
        {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": jobs},
        {"apiGroups": [""], "resources": ["secrets"], "verbs": secrets},
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["get"]},
    ])
}

/// Events about a cluster, by reason.
async fn events(stage: &Stage, cluster: &str) -> Result<Vec<String>> {
    let events: Api<Event> = Api::namespaced(stage.admin.clone(), "default");
    let all = events.list(&ListParams::default()).await?.items;
    let of_it = all.into_iter().filter(|event| {
        let regarding = event.regarding.as_ref();
        regarding.is_some_and(|of| {
            of.kind.as_deref() == Some("RenderCluster") && of.name.as_deref() == Some(cluster)
        })
    });
    Ok(of_it.filter_map(|event| event.reason).collect())
}

#[tokio::test]
async fn rights_that_are_taken_away_while_connected_are_missed_within_two_probes() -> Result<()> {
    let stage = Stage::with_flags("taken", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    stage.connected(&cluster.name, "True", "Connected").await?;
    let shown = format!("renderhub_cluster_connected{{cluster=\"{}\"}}", cluster.name);
    cluster.remote.revoke().await?;
    let message = connected(&stage, &cluster.name, "False", "Forbidden").await?;
    assert!(message.contains("list and watch Jobs"), "{message}");
    wait_for("the metric that the alert looks at", LIMIT, async || {
        let metrics = stage.hub().metrics().await?;
        Ok(metrics.contains(&format!("{shown} 0")).then_some(()))
    })
    .await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "False", "WaitingForCluster")
        .await?;
    cluster.remote.grant().await?;
    stage.connected(&cluster.name, "True", "Connected").await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    // Each transition is reported once, in an event and in the log; hubs of other tests have no kubeconfig of this cluster, and
    // may report that, so reasons are counted and not events.
    let count = |reasons: &[String], wanted: &str| reasons.iter().filter(|reason| *reason == wanted).count();
    let reasons = wait_for("the events of both connections", LIMIT, async || {
        let reasons = events(&stage, &cluster.name).await?;
        Ok((count(&reasons, "Connected") >= 2).then_some(reasons))
    })
    .await?;
    assert_eq!(count(&reasons, "Forbidden"), 1, "{reasons:?}");
    let log = stage.hub().log();
    let lines = |what: &str| {
        let of_it = log.lines().filter(|line| line.contains(&cluster.name));
        of_it.filter(|line| line.contains(what)).count()
    };
    assert!(lines("a cluster is connected") >= 2);
    // While the rights come back, one look may be refused and the next not, which is another reason.
    assert_eq!(lines("\"reason\":\"Forbidden\""), 1, "{log}");
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_right_that_is_missing_there_is_named_with_its_cluster() -> Result<()> {
    let stage = Stage::with_flags("missing", &[LOOPBACK]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    stage.connected(&cluster.name, "True", "Connected").await?;
    for (name, there, missing) in [
        ("jobs", all(&JOBS[1..], &SECRETS), "create jobs"),
        ("secrets", all(&JOBS, &SECRETS[1..]), "create secrets"),
    ] {
        rules(&cluster, there).await?;
        let task = stage.submit_to(name, &cluster).await?;
        let status = stage.condition(&task, JobScheduled, "False", "Forbidden").await?;
        let message = message_of(&status, JobScheduled);
        assert!(message.contains(missing), "{message}");
        assert!(message.contains(&cluster.name), "{message}");
        rules(&cluster, all(&JOBS, &SECRETS)).await?;
        cluster.complete(&task).await?;
        stage
            .condition(&task, JobSucceeded, "True", "JobSucceeded")
            .await?;
    }
    // The end of a Job is in its pods.
    let task = stage.submit_to("pods", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let mut but_pods = all(&JOBS, &SECRETS);
    but_pods[2]["verbs"] = json!(["get"]);
    rules(&cluster, but_pods).await?;
    cluster.complete(&task).await?;
    wait_for("the log to say which right is missing", LIMIT, async || {
        let log = stage.hub().log();
        let mut said = log.lines().filter(|line| line.contains("list the pods"));
        Ok(said.any(|line| line.contains(&cluster.name)).then_some(()))
    })
    .await?;
    rules(&cluster, all(&JOBS, &SECRETS)).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}

/// A kubeconfig was replaced on a cluster that is connected for longer than it may be lost: its tasks have the whole time.
#[tokio::test]
async fn a_right_that_is_missing_once_a_kubeconfig_is_replaced_is_a_loss_from_then_on() -> Result<()> {
    const LOST: SignedDuration = SignedDuration::from_secs(6);
    let stage = Stage::with_flags("less", &[LOOPBACK, "--cluster-lost-timeout=6s"]).await?;
    let cluster = stage.register(away().await?, json!({})).await?;
    let task = stage.submit_to("shop", &cluster).await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let up = Timestamp::now();
    wait_for("that time", LIMIT, async || {
        Ok((Timestamp::now().duration_since(up) > LOST).then_some(()))
    })
    .await?;
    let but_list = SECRETS.into_iter().filter(|verb| *verb != "list");
    rules(&cluster, all(&JOBS, &but_list.collect::<Vec<_>>())).await?;
    let replaced = Timestamp::now();
    let mut kubeconfig: Value = serde_saphyr::from_str(&cluster.remote.kubeconfig().await?)?;
    // Another token alone would go on with the connections that there are.
    kubeconfig["clusters"][0]["cluster"]["tls-server-name"] = json!("localhost");
    stage
        .put_kubeconfig(&cluster.name, &kubeconfig.to_string())
        .await?;
    let status = stage.condition(&task, JobFailed, "True", "JobLost").await?;
    let mut conditions = status.conditions.into_iter();
    let failed = conditions.find(|condition| condition.type_ == JobFailed.as_str());
    let failed = failed.context("it was waited for")?.last_transition_time.0;
    // A condition has whole seconds.
    let kept = failed.duration_since(replaced) + SignedDuration::from_secs(1);
    assert!(kept >= LOST, "lost {kept:#} after it was replaced");
    cluster.remote.grant().await?;
    cluster.cleared(&task).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_namespace_that_is_not_there_and_an_address_that_is_refused_have_sentences_of_their_own()
-> Result<()> {
    let stage = Stage::with_flags("sentences", &[LOOPBACK]).await?;
    let plane = another().await?;
    let cluster = stage.register(&plane, json!({})).await?;
    // One that may read every namespace, and finds that there is none of the name.
    stage
        .put_kubeconfig("everywhere", &plane.admin().kubeconfig_text()?)
        .await?;
    let missing = format!("{}-missing", cluster.name);
    let mut object = cluster.remote.render_cluster(&missing, "everywhere");
    object["spec"]["renderNamespace"] = json!("no-such-namespace");
    apply::object(&stage.admin, object).await?;
    let message = connected(&stage, &missing, "False", "Forbidden").await?;
    assert!(
        message.contains("does not have the namespace that spec.renderNamespace names"),
        "{message}"
    );
    // The hub's own policy, and nothing of a server's text.
    let mut document: Value = serde_saphyr::from_str(&cluster.remote.kubeconfig().await?)?;
    document["clusters"][0]["cluster"]["server"] = json!("https://169.254.169.254:443");
    stage.put_kubeconfig("refused", &document.to_string()).await?;
    let refused = format!("{}-refused", cluster.name);
    apply::object(&stage.admin, cluster.remote.render_cluster(&refused, "refused")).await?;
    let message = connected(&stage, &refused, "False", "Unreachable").await?;
    assert!(
        message.contains("does not connect to the address") && message.contains("--cluster-allow-cidrs"),
        "{message}"
    );
    stage.passed();
    Ok(())
}

/// Registers a cluster with this kubeconfig; the task's condition says why it does not connect, and it starts once that is
/// corrected.
async fn refused(stage: &Stage, kubeconfig: &str, reason: &str, is_stalled: bool) -> Result<()> {
    let plane = away().await?;
    let cluster = stage.bring(plane, &stage.scope.tenant).await?;
    let there = &cluster.remote.namespace;
    stage.put_own_kubeconfig(&stage.scope.tenant, kubeconfig).await?;
    let task = stage.submit_own("shop", there, json!({})).await?;
    let status = stage.condition(&task, Ready, "False", reason).await?;
    assert_eq!(has(&status, Stalled, "True", reason), is_stalled);
    for condition in &status.conditions {
        assert!(!condition.message.contains("by itself"), "{}", condition.message);
    }
    let good = plane.service_account(there, ACCOUNT).await?.kubeconfig_text()?;
    stage.put_own_kubeconfig(&stage.scope.tenant, &good).await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    Ok(())
}

/// Holds: I3.
#[tokio::test]
async fn why_a_tenants_cluster_does_not_connect_is_on_its_task() -> Result<()> {
    let flags = [LOOPBACK, OWN_GATE];
    let plane = away().await?;
    let stage = Stage::with_builder("mighty", &flags).await?;
    refused(
        &stage,
        &plane.admin().kubeconfig_text()?,
        "InsecureKubeconfig",
        true,
    )
    .await?;
    stage.passed();
    let stage = Stage::with_builder("stranger", &flags).await?;
    let stranger = plane.user("nobody-there", &[])?.kubeconfig_text()?;
    refused(&stage, &stranger, "Forbidden", false).await?;
    stage.passed();
    let stage = Stage::with_builder("home", &flags).await?;
    let home = stage.hub_user.kubeconfig_text()?;
    refused(&stage, &home, "SelfTarget", true).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_key_that_is_called_like_the_file_is_named_to_the_tenant() -> Result<()> {
    let stage = Stage::with_builder("key", &[LOOPBACK, OWN_GATE]).await?;
    let cluster = stage.bring(away().await?, &stage.scope.tenant).await?;
    let good = away()
        .await?
        .service_account(&cluster.remote.namespace, ACCOUNT)
        .await?
        .kubeconfig_text()?;
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "own-cluster", "namespace": stage.scope.tenant},
        "stringData": {"own.kubeconfig": good}, "data": {"value": null},
    });
    apply::object(&stage.admin, secret).await?;
    let task = stage
        .submit_own("shop", &cluster.remote.namespace, json!({}))
        .await?;
    let status = stage
        .condition(&task, JobScheduled, "False", "KubeconfigNotFound")
        .await?;
    let message = message_of(&status, JobScheduled);
    assert!(
        message.contains("the Secret own-cluster") && message.contains("neither a key value nor value.yaml"),
        "{message}"
    );
    stage.put_own_kubeconfig(&stage.scope.tenant, &good).await?;
    cluster.complete(&task).await?;
    stage
        .condition(&task, JobSucceeded, "True", "JobSucceeded")
        .await?;
    stage.passed();
    Ok(())
}
