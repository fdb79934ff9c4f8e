//! A rotation of the pull Secret of renderers while Jobs run on many clusters: each next Job has to name the copy of then.

use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use kube::api::{ListParams, Patch, PatchParams};
use renderhub::api::labels::TASK_UID;
use renderhub_harness::Rights;
use renderhub_harness::progress::Progress;
use serde_json::json;

use crate::options::{Options, Rate};
use crate::remote::follow::Follower;
use crate::remote::load::{Made, Target, load};
use crate::remote::options::PER_SECOND;
use crate::remote::stage::{LOOPBACK, Stage, until_connected};

/// Namespace of the Secret.
const NAMESPACE: &str = "default";
/// The Secret that the hub's renderer names.
const PULL: &str = "renderer-pull";
/// The renderer's image, of whose host the Secret has an entry.
const IMAGE: &str = "registry.test/renderer:1";
/// How long a Job runs: long enough that all of a load are there at once.
const RUNS: Duration = Duration::from_secs(15);

/// The result.
pub struct ClusterRotation {
    /// Clusters.
    pub clusters: usize,
    /// Those whose next Job did not name a copy of the new Secret, and tasks that failed.
    pub failed: usize,
}

/// Measures it.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(options: &Options, count: usize) -> Result<ClusterRotation> {
    let stage = Stage::start_with(options, rights).await?;
    write_secret(&stage, "first").await?;
    let clusters = stage.clusters("pulls", count).await?;
    for cluster in &clusters {
        let kubeconfig = cluster.identity.kubeconfig_text()?;
        stage
            .register(&cluster.name, &cluster.namespace, &kubeconfig)
            .await?;
    }
    let flags = [
        LOOPBACK.to_owned(),
        format!("--pull-secret-namespace={NAMESPACE}"),
        format!("--renderer-image-pull-secrets={PULL}"),
        format!("--renderer-image={IMAGE}"),
    ];
    let hub = stage.world.spawn_hub_with(&flags)?;
    hub.wait_ready().await?;
    until_connected(&hub, count, Duration::from_millis(100)).await?;
    let follower = Follower::start(&stage, RUNS).await?;
    let _progress = Progress::start(format!("a rotation on {count} clusters"));
    let rate = Rate {
        per_second: PER_SECOND,
        tasks: count,
    };
    let target = |number: usize| Target::There(clusters[number].name.clone());
    let before = load(&stage.world, rate, 0, target).await?;
    let mut failed = not_named(&stage, &follower, &before, "first").await?;
    write_secret(&stage, "second").await?;
    let after = load(&stage.world, rate, count, target).await?;
    failed += not_named(&stage, &follower, &after, "second").await?;
    failed += follower.failed(&[before, after].concat()).await;
    stage.end(hub).await?;
    Ok(ClusterRotation {
        clusters: count,
        failed,
    })
}

/// The hub's rights with the pull Secrets in another namespace than its Jobs.
async fn rights(rendering: &str) -> Result<Rights> {
    let values = [
        format!("renderingNamespace.name={rendering}"),
        format!("clusters.namespace={rendering}"),
        format!("renderer.pullSecretNamespace={NAMESPACE}"),
    ];
    Rights::of_chart(&values).await
}

fn auth(value: &str) -> String {
    STANDARD.encode(format!("user:{value}"))
}

async fn write_secret(stage: &Stage, value: &str) -> Result<()> {
    let host = IMAGE.split('/').next().context("a host")?;
    let config = json!({"auths": {host: {"auth": auth(value)}}}).to_string();
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": PULL, "namespace": NAMESPACE}, "stringData": {".dockerconfigjson": config},
    });
    let api: Api<Secret> = Api::namespaced(stage.world.admin.clone(), NAMESPACE);
    let apply = PatchParams::apply("bench").force();
    api.patch(PULL, &apply, &Patch::Apply(&secret)).await?;
    Ok(())
}

/// Tasks whose Job does not name a copy with this value; waits for the Jobs.
async fn not_named(stage: &Stage, follower: &Follower, made: &[Made], value: &str) -> Result<usize> {
    follower.to_job(&made.iter().collect::<Vec<_>>()).await?;
    let mut failed = 0;
    for made in made {
        let Target::There(namespace) = &made.target else {
            continue;
        };
        let jobs: Api<Job> = Api::namespaced(stage.admin.clone(), namespace);
        let of_task = ListParams::default().labels(&format!("{TASK_UID}={}", made.task.id.uid.as_str()));
        let job = jobs.list(&of_task).await?.items.pop();
        let pod = job.and_then(|job| job.spec?.template.spec);
        let named = pod.and_then(|pod| Some(pod.image_pull_secrets?.first()?.name.clone()));
        let secrets: Api<Secret> = Api::namespaced(stage.admin.clone(), namespace);
        let copy = match named {
            Some(name) => secrets.get_opt(&name).await?,
            None => None,
        };
        let content = copy.and_then(|copy| copy.data?.remove(".dockerconfigjson"));
        let content = content.map(|content| String::from_utf8_lossy(&content.0).into_owned());
        failed += usize::from(!content.is_some_and(|content| content.contains(&auth(value))));
    }
    Ok(failed)
}
