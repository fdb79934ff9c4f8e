//! The chart's rights are the ones a hub uses: each of them by something it does, and no other. And with them it can impersonate
//! only the accounts that the chart names.
//!
//! The other half, that a hub lacks none of them, is shown by every test with a hub: it runs with the chart's rights, and fails
//! if anything was forbidden.

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use kube::{Client, ResourceExt};
use renderhub::api::ClusterRenderTask;
use renderhub::api::RenderTask;
use renderhub::api::labels::HUB_ID;
use renderhub::api::names::{TaskUid, job_name};
use renderhub_harness::finish::{self, Outcome};
use renderhub_harness::rights::{Bound, Grant};
use renderhub_harness::{AuditLevel, ControlPlane, Rights, apply, audit, wait_for};
use serde_json::{Value, json};
use support::record::raw;
use support::tenant::BUILDER;
use support::{DIGEST, EVERYWHERE, LIMIT, Stage, plane};
use tokio::sync::{Mutex, OnceCell};

#[path = "rights/elsewhere.rs"]
mod elsewhere;
#[path = "rights/identity.rs"]
mod identity;
#[path = "rights/pipeline.rs"]
mod pipeline;
#[path = "pipeline/scene.rs"]
#[allow(dead_code, reason = "a part of what the tests of the pipeline need")]
mod scene;

/// A control plane that cannot stream lists, as older ones: `list` is a right that a hub needs there. With the policies, which
/// ask for the right to act as a hub.
async fn old_plane() -> Result<&'static ControlPlane> {
    static PLANE: OnceCell<ControlPlane> = OnceCell::const_new();
    let start = || async {
        let plane = ControlPlane::builder()
            .with_audit(AuditLevel::Metadata)
            .without_job_controller()
            .with_apiserver_arg("--feature-gates=WatchList=false")
            .start()
            .await?;
        for file in plane::files("crds")?.into_iter().chain(plane::files("policies")?) {
            plane.apply_file(&file).await?;
        }
        plane::keep_rights_in_dying_namespaces(&plane).await?;
        until_policies_know_the_kinds(&plane).await?;
        anyhow::Ok(plane)
    };
    PLANE.get_or_try_init(start).await
}

/// Until then the API server answers with 503 to every client that makes a task.
async fn until_policies_know_the_kinds(plane: &ControlPlane) -> Result<()> {
    let admin = plane.admin().client().await?;
    let dry_run = PostParams {
        dry_run: true,
        field_manager: None,
    };
    for kind in [raw::<RenderTask>(), raw::<ClusterRenderTask>()] {
        let api: Api<DynamicObject> = match kind.kind.as_str() {
            "RenderTask" => Api::namespaced_with(admin.clone(), "default", &kind),
            _ => Api::all_with(admin.clone(), &kind),
        };
        let nothing = DynamicObject::new("nothing", &kind);
        wait_for("the policies to know the kinds", LIMIT, async || {
            let answer = api.create(&dry_run, &nothing).await;
            let is_unknown = matches!(answer, Err(kube::Error::Api(status)) if status.code == 503);
            Ok((!is_unknown).then_some(()))
        })
        .await?;
    }
    Ok(())
}

/// One of the two kinds of tasks on a stage.
struct Tasks<'a> {
    stage: &'a Stage,
    api: Api<DynamicObject>,
    is_clusters: bool,
}

impl<'a> Tasks<'a> {
    fn of_tenant(stage: &'a Stage) -> Self {
        let api = Api::namespaced_with(stage.admin.clone(), &stage.scope.tenant, &raw::<RenderTask>());
        Self {
            stage,
            api,
            is_clusters: false,
        }
    }

    fn of_platform(stage: &'a Stage) -> Self {
        let api = Api::all_with(stage.admin.clone(), &raw::<ClusterRenderTask>());
        Self {
            stage,
            api,
            is_clusters: true,
        }
    }

    /// Submits a task with these fields laid over; the name of its Job.
    async fn submit(&self, name: &str, spec: Value) -> Result<String> {
        let name = format!("{name}-{}", self.stage.scope.shard);
        let mut task = self.stage.task(&name);
        if self.is_clusters {
            task["kind"] = json!("ClusterRenderTask");
            task["metadata"] = json!({"name": name});
        }
        for (key, value) in spec.as_object().context("no object")? {
            task["spec"][key] = value.clone();
        }
        let task: DynamicObject = serde_json::from_value(task)?;
        let made = self.api.create(&PostParams::default(), &task).await?;
        Ok(job_name(&name, &TaskUid::new(&made.uid().unwrap_or_default())))
    }

    async fn complete(&self, job: &str) -> Result<()> {
        let jobs = self.stage.jobs();
        let job = wait_for("the Job", LIMIT, async || Ok(jobs.get_opt(job).await?)).await?;
        let said = json!({"phase": "Push", "reason": "Pushed", "digest": DIGEST}).to_string();
        finish::end_job(&self.stage.admin, &job, &Outcome::Complete(said)).await
    }

    /// Removes a task behind the hub's back.
    async fn snatch(&self, name: &str) -> Result<()> {
        let name = format!("{name}-{}", self.stage.scope.shard);
        let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
        self.api.patch(&name, &PatchParams::default(), &none).await?;
        self.api.delete(&name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Waits until neither the task nor anything of it exists.
    async fn removed(&self, name: &str, job: &str) -> Result<()> {
        let name = format!("{name}-{}", self.stage.scope.shard);
        wait_for(&format!("{name} and all of it to be gone"), LIMIT, async || {
            let task = self.api.get_opt(&name).await?.is_none();
            let job_is_gone = self.stage.jobs().get_opt(job).await?.is_none();
            let secret_is_gone = self.stage.secrets().get_opt(job).await?.is_none();
            Ok((task && job_is_gone && secret_is_gone).then_some(()))
        })
        .await
    }
}

/// Everything that a hub does, so that it needs each of its rights.
async fn do_everything(stage: &mut Stage, kubeconfigs: &str, is_everywhere: bool) -> Result<()> {
    stage.make_registry().await?;
    let class = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass",
        "metadata": {"name": stage.scope.shard}, "spec": {"image": "renderer.test/own:1"}});
    apply::object(&stage.admin, class).await?;
    // An event reports a class that cannot work.
    let too_much = json!({"requests": {"cpu": "2"}, "limits": {"cpu": "1"}});
    let refused = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "RendererClass",
        "metadata": {"name": format!("{}-refused", stage.scope.shard)}, "spec": {"image": "renderer.test/own:1", "resources": too_much}});
    apply::object(&stage.admin, refused).await?;
    let tenant = stage.scope.tenant.clone();
    stage.make_account(&tenant, BUILDER).await?;
    let resources = ["secrets", "configmaps", "registries"];
    stage.let_read(&tenant, &tenant, BUILDER, &resources).await?;
    stage.make_own_secret(&tenant, "own-push").await?;
    stage.make_own_registry(&tenant, "own").await?;
    stage.start_hub().await?;

    own_registry(stage).await?;
    fail(stage).await?;
    take_over(stage).await?;
    elsewhere::render(stage, kubeconfigs).await?;
    life_of(&Tasks::of_tenant(stage)).await?;
    let left = leave(&Tasks::of_tenant(stage)).await?;
    let platforms = if is_everywhere {
        life_of(&Tasks::of_platform(stage)).await?;
        Some(leave(&Tasks::of_platform(stage)).await?)
    } else {
        None
    };
    stage.kill_hub();
    Tasks::of_tenant(stage).snatch("left").await?;
    if platforms.is_some() {
        Tasks::of_platform(stage).snatch("left").await?;
    }
    stage.start_hub().await?;
    Tasks::of_tenant(stage).removed("left", &left).await?;
    if let Some(left) = platforms {
        Tasks::of_platform(stage).removed("left", &left).await?;
    }
    touch_the_lease(stage).await
}

/// Another client writes to the hub's Lease, so that the hub has to read it before it can renew it.
async fn touch_the_lease(stage: &Stage) -> Result<()> {
    let leases: Api<Lease> = Api::namespaced(stage.admin.clone(), &stage.scope.rendering);
    let name = format!("renderhub-{}", stage.hub_id().await?);
    let note = Patch::Merge(json!({"metadata": {"annotations": {"somebody": "was here"}}}));
    leases.patch(&name, &PatchParams::default(), &note).await?;
    Ok(())
}

/// A task whose Job fails and goes after its time to live.
async fn fail(stage: &Stage) -> Result<()> {
    let task = stage.submit_with("failed", json!({"failedJobTTL": 1})).await?;
    let exit = finish::Exit::new("render", 2, r#"{"phase":"Render","reason":"BadConfig"}"#);
    stage.fail(&task, exit, "PodFailurePolicy").await?;
    stage.cleared(&task).await
}

/// A Job that another hub of the cluster has made, as far as its label says: it becomes this hub's again.
async fn take_over(stage: &Stage) -> Result<()> {
    let task = stage.submit(stage.task("moved")).await?;
    let (jobs, name) = (stage.jobs(), stage.job_of(&task).await?.name_any());
    let own = stage.hub_id().await?;
    let (_, cluster) = own.rsplit_once('-').context("an id has two parts")?;
    let other = Patch::Merge(json!({"metadata": {"labels": {HUB_ID: format!("gone-{cluster}")}}}));
    jobs.patch(&name, &PatchParams::default(), &other).await?;
    wait_for("the Job to be the hub's again", LIMIT, async || {
        let job = jobs.get(&name).await?;
        Ok(job
            .labels()
            .get(HUB_ID)
            .is_some_and(|id| *id == own)
            .then_some(()))
    })
    .await?;
    stage.complete(&task).await?;
    stage.cleared(&task).await
}

/// A task that is done and removes itself.
async fn life_of(tasks: &Tasks<'_>) -> Result<()> {
    let job = tasks
        .submit("done", json!({"ttlSecondsAfterFinished": 0}))
        .await?;
    tasks.complete(&job).await?;
    tasks.removed("done", &job).await
}

/// A task whose Job runs.
async fn leave(tasks: &Tasks<'_>) -> Result<String> {
    let job = tasks.submit("left", json!({})).await?;
    let jobs = tasks.stage.jobs();
    wait_for("the Job", LIMIT, async || Ok(jobs.get_opt(&job).await?)).await?;
    Ok(job)
}

/// A task that names what is the tenant's own, read as the tenant's `ServiceAccount`.
async fn own_registry(stage: &Stage) -> Result<()> {
    let tasks = Tasks::of_tenant(stage);
    let spec = json!({"registryRef": {"kind": "Registry", "name": "own"}, "serviceAccountName": BUILDER});
    let job = tasks.submit("own", spec).await?;
    tasks.complete(&job).await
}

/// A right that no request needs by itself: the admission policies ask for it when the hub writes a status.
fn is_asked_by_policies(grant: &Grant) -> bool {
    (grant.resource.as_str(), grant.verb.as_str()) == ("hubs", "act")
}

/// Every request of the stage's hub, those that are still answered included.
async fn requests(stage: &Stage) -> Result<Vec<audit::Event>> {
    let mut events = stage.plane.audit()?.since(audit::Mark::START).await?;
    events.retain(|event| event.user == stage.hub_user.name());
    Ok(events)
}

/// One hub at a time on the old plane: what is the platform's, each would keep, and the second would have nothing to do.
static ALONE: Mutex<()> = Mutex::const_new(());

/// Runs a hub with these flags through everything and compares what it may with what it did. Its kubeconfigs are in a
/// namespace of their own, or in the rendering namespace.
async fn every_right_is_used(prefix: &str, flags: &[&str], kubeconfigs: Option<&str>) -> Result<()> {
    let _alone = ALONE.lock().await;
    let place = kubeconfigs.map(|namespace| format!("--cluster-namespace={namespace}"));
    let mut flags_of_hub = [flags, &["--gc-interval=1s", elsewhere::REACH]].concat();
    flags_of_hub.extend(place.as_deref());
    let mut stage = Stage::on(old_plane().await?, prefix, &flags_of_hub).await?;
    stage.let_hub_be(&[BUILDER]).await?;
    let kubeconfigs = kubeconfigs.unwrap_or(&stage.scope.rendering).to_owned();
    do_everything(&mut stage, &kubeconfigs, flags.contains(&EVERYWHERE)).await?;
    let rights = stage.rights.clone();
    let listed = |unused: &std::collections::BTreeSet<Grant>| {
        let left = unused.iter().filter(|grant| !is_asked_by_policies(grant));
        left.map(ToString::to_string).collect::<Vec<_>>()
    };
    // What is done from time to time may be still to come.
    wait_for("every right of the chart to be used", LIMIT, async || {
        let unused = listed(&rights.unused(&requests(&stage).await?));
        ensure!(
            unused.is_empty(),
            "the chart gives what no hub needs: {unused:#?}"
        );
        Ok(Some(()))
    })
    .await?;
    let seen = listed(&planted(rights)?.unused(&requests(&stage).await?));
    assert_eq!(
        seen,
        ["list secrets in the cluster"],
        "a right too many is not seen"
    );
    stage.passed();
    Ok(())
}

/// The same with a right too many.
fn planted(mut rights: Rights) -> Result<Rights> {
    let rules = json!([{"apiGroups": [""], "resources": ["secrets"], "verbs": ["list"]}]);
    rights.bound.push(Bound {
        namespace: None,
        role: "planted".to_owned(),
        is_cluster_role: true,
        labels: json!({}),
        rules: serde_json::from_value(rules)?,
    });
    Ok(rights)
}

/// Holds: I1.
#[tokio::test]
async fn a_hub_of_all_namespaces_uses_every_right_it_has() -> Result<()> {
    every_right_is_used("all", &[EVERYWHERE], None).await
}

/// Holds: I1.
#[tokio::test]
async fn a_hub_of_some_namespaces_uses_every_right_it_has() -> Result<()> {
    let kubeconfigs = old_plane().await?.namespace("kubeconfigs").await?;
    every_right_is_used(
        "some",
        &["--no-cross-namespace-refs=false", "--tenant-identity=impersonate"],
        Some(&kubeconfigs),
    )
    .await
}

/// The one right that the audit log does not show: without it the policies keep the hub from writing a status.
#[tokio::test]
async fn a_hub_that_may_not_act_as_one_writes_no_status() -> Result<()> {
    let _alone = ALONE.lock().await;
    let mut stage = Stage::on(old_plane().await?, "act", &[]).await?;
    stage.make_registry().await?;
    stage.grant(|resource| resource != "hubs").await?;
    let hub = stage.spawn_hub(&stage.hub_user.kubeconfig()?)?;
    stage.hub = Some(hub);
    let is_refused =
        |event: &audit::Event| event.action() == "patch clusterregistries/status" && event.code == 403;
    wait_for("a refused status", LIMIT, async || {
        Ok(requests(&stage).await?.iter().any(is_refused).then_some(()))
    })
    .await?;
    stage.grant(|_| true).await?;
    stage.hub().wait_ready().await?;
    stage.barrier().await?;
    stage.passed();
    Ok(())
}
