//! A credential never meets a destination that was resolved at another time: what an earlier attempt left behind is made
//! anew when the registry changed meanwhile.

use anyhow::{Context, Result};
use kube::ResourceExt;
use kube::api::{Api, DynamicObject};
use renderhub::api::RenderTask;
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub::api::labels::{CHART_URL, DESTINATION, SPEC_HASH};
use renderhub::api::names::TaskKind;
use renderhub::plan::task::model::Task;
use serde_json::Value;
use support::record::raw;
use support::{Stage, job_name_of};

/// The hash that the hub gives to the task's spec.
async fn spec_hash(stage: &Stage, task: &RenderTask) -> Result<String> {
    let api: Api<DynamicObject> =
        Api::namespaced_with(stage.admin.clone(), &stage.scope.tenant, &raw::<RenderTask>());
    let stored = api.get(&task.name_any()).await?;
    let spec = stored.data["spec"].clone();
    let task = Task::new(TaskKind::RenderTask, &stored.metadata, spec, Value::Null);
    Ok(task.context("a task with a UID")?.decoded.spec_hash.clone())
}

/// Holds: C1.
#[tokio::test]
async fn a_config_secret_of_an_earlier_destination_is_made_again() -> Result<()> {
    let mut stage = Stage::without_hub("destination", &[]).await?;
    stage.make_registry().await?;
    let task = stage.submit(stage.task("shop")).await?;
    // What a hub leaves that is killed between its Secret and its Job, before the registry moves to another host.
    let hub_id = stage.hub_id().await?;
    let mut marks = stage.marks(&task, &hub_id, &task.uid().context("a UID")?);
    let hash = spec_hash(&stage, &task).await?;
    marks.annotations.insert(SPEC_HASH.to_owned(), hash);
    marks.annotations.insert(DESTINATION.to_owned(), "0".repeat(64));
    let old = stage.forge_secret(&job_name_of(&task), &marks).await?;
    stage.start_hub().await?;
    stage
        .condition(&task, JobScheduled, "True", "JobScheduled")
        .await?;
    let new = stage.secrets().get(&job_name_of(&task)).await?;
    assert_ne!(new.uid(), old.uid());
    let url = format!("oci://registry.test:5000/{}/shop:1.0.0", stage.scope.tenant);
    let written = new.data.clone().unwrap_or_default()["url"].0.clone();
    assert_eq!(String::from_utf8(written)?, url);
    let job = stage.job_of(&task).await?;
    assert_eq!(job.annotations()[CHART_URL], url);
    assert_eq!(job.annotations()[DESTINATION], new.annotations()[DESTINATION]);
    stage.passed();
    Ok(())
}
