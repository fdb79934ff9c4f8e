//! A hub checks its surroundings before it starts: each mistake is made for real, named with its check and its fix, and
//! corrected.

#[path = "preflight/command.rs"]
mod command;
#[path = "preflight/later.rs"]
mod later;
#[path = "preflight/pipeline.rs"]
mod pipeline;
#[path = "preflight/tenants.rs"]
mod tenants;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authorization::v1::{SelfSubjectAccessReview, SelfSubjectAccessReviewSpec};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Namespace, ResourceQuota};
use k8s_openapi::api::networking::v1::NetworkPolicy;
use k8s_openapi::api::rbac::v1::PolicyRule;
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::{JobScheduled, JobSucceeded};
use renderhub::plan::preflight::permissions::{PermissionScope, excess};
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::{Hub, wait_for};
use serde_json::{Value, json};
use support::instances::{findings, refused};
use support::{DIGEST, EVERYWHERE, LIMIT, Stage, job_name_of, plane};

/// Variable by which a hub of a test leaves checks out.
const SKIP: &str = "RENDERHUB_SKIP_PREFLIGHT";

trait Preflight {
    /// Starts a hub that must refuse for exactly these checks; returns its log.
    async fn refuses(&mut self, checks: &[&str]) -> Result<String>;
    /// Starts a hub that must become ready, and ends it again.
    async fn starts(&mut self, env: &[(&str, &str)]) -> Result<()>;
    /// Waits until the hub's user may, or may not any more, do this in the rendering namespace.
    async fn until_allowed(&self, is_allowed: bool, verb: &str, group: &str, resource: &str) -> Result<()>;
    /// Lays labels over those of the rendering namespace; `null` removes one.
    async fn label(&self, labels: Value) -> Result<()>;
}

impl Preflight for Stage {
    async fn refuses(&mut self, checks: &[&str]) -> Result<String> {
        let hub = self.spawn_hub(&self.hub_user.kubeconfig()?)?;
        refused(&hub, checks).await
    }

    async fn starts(&mut self, env: &[(&str, &str)]) -> Result<()> {
        let hub = self.spawn_hub_with(&self.hub_user.kubeconfig()?, env)?;
        hub.wait_ready().await?;
        let ended = hub.sigterm(LIMIT).await?;
        ensure!(ended.code() == Some(0), "{}", hub.log());
        Ok(())
    }

    async fn until_allowed(&self, is_allowed: bool, verb: &str, group: &str, resource: &str) -> Result<()> {
        let api: Api<SelfSubjectAccessReview> = Api::all(self.hub_user.client().await?);
        let attributes = json!({
            "namespace": self.scope.rendering, "verb": verb, "group": group, "resource": resource,
        });
        let asked = SelfSubjectAccessReview {
            spec: SelfSubjectAccessReviewSpec {
                resource_attributes: Some(serde_json::from_value(attributes)?),
                ..SelfSubjectAccessReviewSpec::default()
            },
            ..SelfSubjectAccessReview::default()
        };
        wait_for("the right to be in force", LIMIT, async || {
            let answer = api.create(&PostParams::default(), &asked).await?;
            let allowed = answer.status.is_some_and(|status| status.allowed);
            Ok((allowed == is_allowed).then_some(()))
        })
        .await
    }

    async fn label(&self, labels: Value) -> Result<()> {
        let api: Api<Namespace> = Api::all(self.admin.clone());
        let patch = Patch::Merge(json!({"metadata": {"labels": labels}}));
        api.patch(&self.scope.rendering, &PatchParams::default(), &patch)
            .await?;
        Ok(())
    }
}

// === M3: the rendering namespace guards what is in it ===

const ENFORCE: &str = "pod-security.kubernetes.io/enforce";

/// Holds: M3.
#[tokio::test]
async fn a_namespace_that_does_not_enforce_restricted_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("pss", &[]).await?;
    for level in [json!("baseline"), Value::Null] {
        stage.label(json!({ENFORCE: level})).await?;
        let said = stage.refuses(&["pod-security"]).await?;
        ensure!(said.contains("kubectl label namespace"), "{said}");
    }
    stage.starts(&[(SKIP, " pod-security,")]).await?;
    // To leave out another check is no help.
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &[(SKIP, "network-policy")])?;
    refused(&hub, &["pod-security"]).await?;
    stage.label(json!({ENFORCE: "restricted"})).await?;
    stage.starts(&[]).await?;
    stage.passed();
    Ok(())
}

/// Holds: M3.
#[tokio::test]
async fn a_namespace_that_denies_nothing_by_default_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("deny", &[]).await?;
    let api: Api<NetworkPolicy> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    let allow = json!({"spec": {"egress": [{}]}});
    api.patch("default-deny", &PatchParams::default(), &Patch::Merge(&allow))
        .await?;
    let said = stage.refuses(&["network-policy"]).await?;
    ensure!(
        said.contains("Egress") && !said.contains("default: Ingress"),
        "{said}"
    );
    api.delete("default-deny", &DeleteParams::default()).await?;
    stage.refuses(&["network-policy"]).await?;
    stage.starts(&[(SKIP, "network-policy")]).await?;
    let deny: NetworkPolicy = serde_json::from_value(json!({
        "metadata": {"name": "deny"}, "spec": {"podSelector": {}, "policyTypes": ["Ingress", "Egress"]},
    }))?;
    api.create(&PostParams::default(), &deny).await?;
    stage.starts(&[]).await?;
    stage.passed();
    Ok(())
}

/// Holds: M3.
#[tokio::test]
async fn a_namespace_without_a_bound_is_refused() -> Result<()> {
    let mut stage = Stage::without_hub("quota", &[]).await?;
    let api: Api<ResourceQuota> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    api.delete("renderers", &DeleteParams::default()).await?;
    stage.refuses(&["resource-quota"]).await?;
    let quota =
        |hard: Value| serde_json::from_value(json!({"metadata": {"name": "bound"}, "spec": {"hard": hard}}));
    api.create(&PostParams::default(), &quota(json!({"services": "1"}))?)
        .await?;
    stage.refuses(&["resource-quota"]).await?;
    stage.starts(&[(SKIP, "resource-quota")]).await?;
    api.delete("bound", &DeleteParams::default()).await?;
    api.create(&PostParams::default(), &quota(json!({"requests.cpu": "4"}))?)
        .await?;
    stage.starts(&[]).await?;
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn every_mistake_is_reported_at_once() -> Result<()> {
    let mut stage = Stage::without_hub("all", &[]).await?;
    // A namespace as `kubectl create namespace` makes it.
    stage.scope.rendering = stage.plane.namespace("bare").await?;
    stage.give_rights(&[]).await?;
    stage
        .refuses(&["pod-security", "network-policy", "resource-quota"])
        .await?;
    let three = "pod-security,network-policy,resource-quota";
    stage.starts(&[(SKIP, three)]).await?;
    stage.allow_forbidden();
    stage.scope.rendering = "does-not-exist".to_owned();
    let most = format!("{three},tenant-tasks,tenant-rights,role-bindings");
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &[(SKIP, &most)])?;
    let said = refused(&hub, &["rendering-namespace"]).await?;
    ensure!(said.contains("does not exist"), "{said}");
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn what_the_hub_may_not_see_is_refused_and_what_only_warns_is_not() -> Result<()> {
    let mut stage = Stage::without_hub("blind", &[]).await?;
    for (resource, group, verb, check) in [
        ("networkpolicies", "networking.k8s.io", "list", "network-policy"),
        ("resourcequotas", "", "list", "resource-quota"),
        (
            "rolebindings",
            "rbac.authorization.k8s.io",
            "list",
            "role-bindings",
        ),
        (
            "localsubjectaccessreviews",
            "authorization.k8s.io",
            "create",
            "tenant-rights",
        ),
    ] {
        stage.grant(|other| other != resource).await?;
        stage.until_allowed(false, verb, group, resource).await?;
        let said = stage.refuses(&[check]).await?;
        ensure!(said.contains("is not known") && said.contains(resource), "{said}");
        stage.grant(|_| true).await?;
        stage.until_allowed(true, verb, group, resource).await?;
    }
    stage.grant(|other| other != "leases").await?;
    stage
        .until_allowed(false, "list", "coordination.k8s.io", "leases")
        .await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    ensure!(hub.wait_exit(LIMIT).await?.code() == Some(1));
    ensure!(hub.log().contains("leases cannot be listed"), "{}", hub.log());
    stage.passed();
    Ok(())
}

// === M2: the hub's own rights ===

/// Holds: M2.
#[tokio::test]
async fn a_hub_that_may_do_everything_says_so_unless_one_team_owns_the_cluster() -> Result<()> {
    let mut stage = Stage::without_hub("rights", &[]).await?;
    let everything = PolicyRule {
        api_groups: Some(vec!["*".to_owned()]),
        resources: Some(vec!["*".to_owned()]),
        verbs: vec!["*".to_owned()],
        ..PolicyRule::default()
    };
    let admin = stage
        .plane
        .user_with_rules("cluster-admin", vec![everything])
        .await?;
    let hub = stage.spawn_hub(&admin.kubeconfig()?)?;
    hub.wait_ready().await?;
    let warned = findings(&hub, "WARN")?;
    let own: Vec<_> = warned
        .iter()
        .filter(|(check, ..)| check == "own-rights")
        .collect();
    ensure!(
        own.len() == 1 && own[0].1.contains("cluster-admin"),
        "{}",
        hub.log()
    );
    let shown = r#"renderhub_preflight_findings{check="own-rights",result="warning"} 1"#;
    ensure!(hub.metrics().await?.lines().any(|line| line == shown));
    drop(hub);
    let hub = stage.spawn_hub_with(&admin.kubeconfig()?, &[("RENDERHUB_SINGLE_TENANT", "true")])?;
    hub.wait_ready().await?;
    let warned = findings(&hub, "WARN")?;
    ensure!(
        warned.iter().all(|(check, ..)| check != "own-rights"),
        "{}",
        hub.log()
    );
    stage.passed();
    Ok(())
}

/// The hub must not warn of what the chart gives it.
///
/// Holds: M2.
#[tokio::test]
async fn the_chart_gives_the_hub_no_right_that_it_would_warn_of() -> Result<()> {
    let (helm, chart) = (Helm::new()?, helm::renderhub_chart());
    let chart = chart.to_str().context("the path is no text")?;
    let apart = "clusters.namespace=kubeconfigs";
    for more in [
        &["--set", apart][..],
        &["--set", "controller.watchNamespaces={a,b}"],
        &[
            "--set",
            "pipeline.enabled=true,controller.noCrossNamespaceRefs=false",
        ],
        &[
            "--set",
            "pipeline.enabled=true,controller.noCrossNamespaceRefs=false,controller.watchNamespaces={a,b}",
            "--set",
            "controller.catalogNamespaces={c}",
        ],
    ] {
        let words = ["template", "renderhub", chart, "--namespace", "hub"];
        let text = helm.run(&[&words[..], more].concat()).await?;
        let objects: Vec<Value> = serde_saphyr::from_multiple(&text)?;
        let is_hubs = |o: &&Value| {
            let name = o["metadata"]["name"].as_str().unwrap_or_default();
            let is_role = o["kind"] == "Role" || o["kind"] == "ClusterRole";
            is_role && !name.ends_with("-edit") && !name.ends_with("-view")
        };
        let mut looked_at = 0;
        for role in objects.iter().filter(is_hubs) {
            let reach = match role["metadata"]["namespace"].as_str() {
                Some("renderhub-rendering") => PermissionScope::Rendering,
                Some("kubeconfigs" | "hub") => PermissionScope::Kubeconfigs,
                _ => PermissionScope::Anywhere,
            };
            let rules = serde_json::from_value::<Vec<_>>(role["rules"].clone())?;
            looked_at += rules.len();
            let more = excess(&rules, reach);
            ensure!(more.is_empty(), "{}: {more:?}", role["metadata"]["name"]);
        }
        ensure!(looked_at > 10, "only {looked_at} rules were looked at");
    }
    Ok(())
}

// === M6: relaxed settings are reported ===

/// Every way to be less strict.
const RELAXED: [(&str, &str); 7] = [
    ("RENDERHUB_SINGLE_TENANT", "true"),
    ("RENDERHUB_NO_CROSS_NAMESPACE_REFS", "false"),
    ("RENDERHUB_TENANT_IDENTITY", "impersonate"),
    ("RENDERHUB_DEFAULT_SERVICE_ACCOUNT", "builder"),
    ("RENDERHUB_CLUSTER_ALLOW_CIDRS", "127.0.0.0/8"),
    (
        "RENDERHUB_FEATURE_GATES",
        "ExternalClusterReferenceCrossNamespace=true",
    ),
    (SKIP, "resource-quota, registry-scope"),
];
/// What the hub calls them.
const SETTINGS: [&str; 9] = [
    "single-tenant",
    "cross-namespace-refs",
    "default-service-account",
    "tenant-identity-impersonate",
    "cluster-allow-cidrs",
    "feature-gate-external-cluster-reference",
    "feature-gate-external-cluster-reference-cross-namespace",
    "skip-preflight-resource-quota",
    "skip-preflight-registry-scope",
];

/// A stage's hub lists every host by default.
const NO_HOSTS: &str = "--own-registry-hosts=";

/// Fields of the line that a hub starts with.
fn first_line(hub: &Hub) -> Result<Value> {
    let log = hub.log();
    let lines = log
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let first = lines.into_iter().find(|line| !line["relaxed"].is_null());
    first.with_context(|| format!("no such line:\n{log}"))
}

/// Holds: M6.
#[tokio::test]
async fn every_relaxed_setting_is_in_one_line_and_in_a_metric() -> Result<()> {
    let mut stage = Stage::with_flags("strict", &[NO_HOSTS]).await?;
    let strict = first_line(stage.hub())?;
    assert_eq!(
        (&strict["level"], &strict["mode"]),
        (&json!("INFO"), &json!("multi-tenant"))
    );
    assert_eq!(
        (&strict["tenant_identity"], &strict["relaxed"]),
        (&json!("token"), &json!("nothing"))
    );
    let metrics = stage.hub().metrics().await?;
    ensure!(!metrics.contains("renderhub_relaxed_settings{"), "{metrics}");
    // A hub with the chart's rights has no more than it needs.
    let own = r#"renderhub_preflight_findings{check="own-rights",result="ok"} 1"#;
    ensure!(metrics.lines().any(|line| line == own), "{metrics}");
    stage.kill_hub();

    stage
        .give_rights(&["controller.noCrossNamespaceRefs=false"])
        .await?;
    let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, &RELAXED)?;
    hub.wait_ready().await?;
    let line = first_line(&hub)?;
    assert_eq!(
        (&line["level"], &line["mode"]),
        (&json!("WARN"), &json!("single-tenant"))
    );
    assert_eq!(line["relaxed"], SETTINGS.join(","));
    let metrics = hub.metrics().await?;
    for setting in SETTINGS {
        let shown = format!("renderhub_relaxed_settings{{setting=\"{setting}\"}} 1");
        ensure!(metrics.lines().any(|line| line == shown), "{shown}");
    }
    let mode = r#"renderhub_mode{mode="single-tenant",tenant_identity="impersonate"} 1"#;
    ensure!(metrics.lines().any(|line| line == mode), "{metrics}");
    stage.passed();
    Ok(())
}

// === M7: a backup brings tasks back under other UIDs ===

/// Holds: M7.
#[tokio::test]
async fn restored_tasks_run_once_more_and_never_take_up_their_old_jobs() -> Result<()> {
    let mut stage = Stage::with_flags("restore", &["--gc-interval=1s"]).await?;
    let old = stage.submit(stage.task("shop")).await?;
    let old_job = stage.job_of(&old).await?;
    stage
        .condition(&old, JobScheduled, "True", "JobScheduled")
        .await?;
    stage.kill_hub();
    let new = restore(&stage, &old, &old_job).await?;
    stage.start_hub().await?;
    let job = stage.complete(&new).await?;
    assert_ne!(job.name_any(), old_job.name_any());
    let done = stage
        .condition(&new, JobSucceeded, "True", "JobSucceeded")
        .await?;
    assert_eq!(done.digest.as_deref(), Some(DIGEST));
    assert_eq!(done.job_ref.and_then(|r| r.uid), job.uid());
    assert_eq!(stage.successes("create jobs", &job_name_of(&new)).await?, 1);
    wait_for("the old objects to be swept", LIMIT, async || {
        Ok((stage.objects(&old).await? == (false, false)).then_some(()))
    })
    .await?;
    for status in stage.history(&new).await? {
        ensure!(
            status.job_ref.is_none_or(|r| r.name != old_job.name_any()),
            "the old Job was taken up"
        );
    }
    stage.passed();
    Ok(())
}

/// The task is gone and comes back from a backup: the same name and spec, finalizers included, another UID. Its Job and config
/// Secret are still there, and the Job ends with a digest that no hub may accept.
async fn restore(stage: &Stage, old: &RenderTask, old_job: &Job) -> Result<RenderTask> {
    let strip = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    stage
        .tasks()
        .patch("shop", &PatchParams::default(), &strip)
        .await?;
    stage.tasks().delete("shop", &DeleteParams::default()).await?;
    let mut task = stage.task("shop");
    task["metadata"]["finalizers"] = json!(old.finalizers());
    let new: RenderTask = stage.submit(task).await?;
    assert_ne!(new.uid(), old.uid());
    let old_word =
        json!({"phase": "Push", "reason": "Pushed", "digest": format!("sha256:{}", "f".repeat(64))});
    finish::pod_for_job(
        &stage.admin,
        old_job,
        &[Exit::new("renderer", 0, old_word.to_string())],
    )
    .await?;
    finish::complete_job(&stage.admin, &stage.scope.rendering, &old_job.name_any()).await?;
    Ok(new)
}

/// Holds: M4.
#[tokio::test]
async fn a_registry_open_to_every_namespace_and_cluster_is_warned_of() -> Result<()> {
    let mut stage = Stage::without_hub("open", &[EVERYWHERE]).await?;
    stage
        .put_registry(json!({"allowedNamespaces": ["*"], "repositoryPrefix": ""}))
        .await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    hub.wait_ready().await?;
    let warned = findings(&hub, "WARN")?;
    let found = warned
        .iter()
        .any(|(check, message, _)| check == "registry-scope" && message.contains(&stage.scope.tenant));
    ensure!(found, "{}", hub.log());
    let shown = r#"renderhub_preflight_findings{check="registry-scope",result="warning"} 1"#;
    ensure!(hub.metrics().await?.lines().any(|line| line == shown));
    stage.passed();
    Ok(())
}

/// Whose control plane a test may fill with what others would trip over.
async fn own_stage(prefix: &str, flags: &[&str]) -> Result<Stage> {
    Stage::on(plane::own_plane(&["crds"]).await?, prefix, flags).await
}
