//! The quota of the page about limits, as the API server takes it.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::core::v1::ResourceQuota;
use kube::api::{Api, PostParams};
use kube::core::Status;
use renderhub::api::RenderTask;
use renderhub_harness::wait_for;

use support::programs;
use support::{LIMIT, Stage};

/// The first YAML on a page.
fn yaml_of(page: &str) -> Result<String> {
    let path = Path::new(programs::ROOT).join(page);
    let text = std::fs::read_to_string(path)?;
    let (_, rest) = text.split_once("```yaml\n").context("no YAML on the page")?;
    Ok(rest
        .split_once("```")
        .context("the YAML does not end")?
        .0
        .to_owned())
}

/// The refusal of a task beyond the quota. Kubernetes may count once more what it saw before the last task was made, and then takes one
/// too many; it counts that one too.
async fn refusal_of_one_more(stage: &Stage) -> Result<Status> {
    let number = AtomicU32::new(3);
    wait_for("a task to be refused", LIMIT, async || {
        let number = number.fetch_add(1, Ordering::Relaxed);
        ensure!(number < 8, "the quota takes as many as are made");
        let name = format!("task-{number}");
        let task: RenderTask = serde_json::from_value(stage.task(&name))?;
        match stage.tasks().create(&PostParams::default(), &task).await {
            Ok(_) => Ok(None),
            Err(kube::Error::Api(status)) => Ok(Some(*status)),
            Err(error) => Err(error.into()),
        }
    })
    .await
}

/// Holds: D1.
#[tokio::test]
async fn a_tenant_with_a_quota_gets_a_condition_when_it_is_used_up() -> Result<()> {
    let stage = Stage::without_hub("quota", &[]).await?;
    let mut quota: ResourceQuota = serde_saphyr::from_str(&yaml_of("docs/how-to/limit-a-tenant.md")?)?;
    quota.metadata.namespace = None;
    let counted = "count/rendertasks.renderhub.dev";
    let hard = quota.spec.as_mut().and_then(|spec| spec.hard.as_mut());
    let most = hard.and_then(|hard| hard.get_mut(counted)).context("a count")?;
    assert!(most.0.parse::<u32>()? > 0);
    // As on the page, with a number that a test can reach.
    most.0 = "2".to_owned();
    let quotas: Api<ResourceQuota> = Api::namespaced(stage.admin.clone(), &stage.scope.tenant);
    let name = quota.metadata.name.clone().context("a name")?;
    quotas.create(&PostParams::default(), &quota).await?;
    // Kubernetes discovers new kinds every 30 seconds, waits as long for lists of them, and counts this quota in its next period.
    let counted_at_least = async |least: u32| {
        wait_for("the quota to be counted", LIMIT * 4, async || {
            let status = quotas.get(&name).await?.status.unwrap_or_default();
            let used = status.used.and_then(|used| used.get(counted).cloned());
            let used = used.map(|used| used.0.parse::<u32>()).transpose()?;
            Ok(used.filter(|used| *used >= least))
        })
        .await
    };
    counted_at_least(0).await?;
    for name in ["first", "second"] {
        stage.submit(stage.task(name)).await?;
    }
    counted_at_least(2).await?;
    let status = refusal_of_one_more(&stage).await?;
    assert_eq!(status.code, 403);
    for word in ["exceeded quota", name.as_str(), counted, "used", "limited"] {
        assert!(status.message.contains(word), "{}", status.message);
    }
    stage.passed();
    Ok(())
}
