//! One tenant's odd object stops nobody else's task.

mod support;

use anyhow::Result;
use http::Request;
use kube::ResourceExt;
use kube::api::ListParams;
use renderhub::api::conditions::ConditionType::JobScheduled;
use renderhub_harness::finish::{self, Exit};
use renderhub_harness::wait_for;
use serde_json::{Value, json};
use support::{DIGEST, LIMIT, Stage};

/// Deeper than the 128 levels that `serde_json` reads into a value.
const DEPTH: usize = 200;

/// Stands in a task for what is too deep to be built as a value.
const PLACEHOLDER: &str = "too deep";

/// Objects in each other, as text.
fn nested(depth: usize) -> String {
    "{\"f:a\":".repeat(depth) + "{}" + &"}".repeat(depth)
}

impl Stage {
    fn path(&self, name: &str) -> String {
        let namespace = &self.scope.tenant;
        format!("/apis/renderhub.dev/v1alpha1/namespaces/{namespace}/rendertasks{name}")
    }

    /// Makes the task, with the placeholder `depth` levels deep, and without reading the answer: no value could hold it.
    async fn submit_deep(&self, task: &Value, depth: usize) -> Result<()> {
        let text = task
            .to_string()
            .replace(&format!("\"{PLACEHOLDER}\""), &nested(depth));
        let request = Request::post(self.path("")).header("content-type", "application/json");
        self.admin.request_text(request.body(text.into_bytes())?).await?;
        Ok(())
    }

    /// Waits until the text of the task has the word.
    async fn shows(&self, name: &str, word: &str) -> Result<()> {
        wait_for(&format!("{name} to show {word}"), LIMIT, async || {
            let request = Request::get(self.path(&format!("/{name}"))).body(Vec::new())?;
            let text = self.admin.request_text(request).await?;
            Ok(text.contains(&format!("\"{word}\"")).then_some(()))
        })
        .await
    }

    /// Deletes the task and waits until the hub lets it go.
    async fn delete_deep(&self, name: &str) -> Result<()> {
        let path = self.path(&format!("/{name}"));
        self.admin
            .request_text(Request::delete(&path).body(Vec::new())?)
            .await?;
        self.gone(name).await
    }

    async fn gone(&self, name: &str) -> Result<()> {
        let path = self.path(&format!("/{name}"));
        wait_for(&format!("{name} to be gone"), LIMIT, async || {
            let answer = self
                .admin
                .request_text(Request::get(&path).body(Vec::new())?)
                .await;
            Ok(matches!(answer, Err(kube::Error::Api(status)) if status.code == 404).then_some(()))
        })
        .await
    }

    fn deep_values(&self, name: &str) -> Value {
        let mut task = self.task(name);
        task["spec"]["config"]["release"]["values"] = json!(PLACEHOLDER);
        task
    }

    /// A task whose maker claims to own fields that do not exist; the API server stores the claim.
    fn deep_metadata(&self, name: &str) -> Value {
        let mut task = self.task(name);
        task["metadata"]["managedFields"] = json!([{
            "apiVersion": "renderhub.dev/v1alpha1", "fieldsType": "FieldsV1", "manager": "odd", "operation": "Apply",
            "time": "2026-01-01T00:00:00Z", "fieldsV1": { "f:metadata": { "f:annotations": PLACEHOLDER } },
        }]);
        task
    }
}

#[tokio::test]
async fn a_task_too_deep_to_read_gets_its_own_condition_and_stops_nobody() -> Result<()> {
    let mut stage = Stage::without_hub("poison", &[]).await?;
    stage.make_registry().await?;
    stage
        .submit_deep(&stage.deep_values("deep-before"), DEPTH)
        .await?;
    stage
        .submit_deep(&stage.deep_values("abyss-before"), 3000)
        .await?;
    stage
        .submit_deep(&stage.deep_metadata("odd-before"), DEPTH)
        .await?;
    stage.start_hub().await?;
    stage.submit_deep(&stage.deep_values("deep-after"), DEPTH).await?;
    stage
        .submit_deep(&stage.deep_metadata("odd-after"), DEPTH)
        .await?;
    let good = stage.submit(stage.task("good")).await?;
    stage
        .condition(&good, JobScheduled, "True", "JobScheduled")
        .await?;
    for deep in ["deep-before", "abyss-before", "deep-after"] {
        stage.shows(deep, "InvalidSpec").await?;
    }
    // Only its metadata is odd, so it is served as any other.
    for odd in ["odd-before", "odd-after"] {
        stage.shows(odd, "JobScheduled").await?;
    }
    for name in ["deep-before", "abyss-before", "odd-before"] {
        stage.delete_deep(name).await?;
    }
    stage.passed();
    Ok(())
}

#[tokio::test]
async fn a_task_with_odd_metadata_is_served_to_its_end() -> Result<()> {
    let stage = Stage::new("odd").await?;
    let mut task = stage.deep_metadata("odd");
    task["spec"]["ttlSecondsAfterFinished"] = json!(0);
    stage.submit_deep(&task, DEPTH).await?;
    let job = wait_for("the Job", LIMIT, async || {
        Ok(stage.jobs().list(&ListParams::default()).await?.items.pop())
    })
    .await?;
    let message = json!({ "phase": "Push", "reason": "Pushed", "digest": DIGEST }).to_string();
    finish::pod_for_job(&stage.admin, &job, &[Exit::new("renderer", 0, message)]).await?;
    finish::complete_job(&stage.admin, &stage.scope.rendering, &job.name_any()).await?;
    stage.gone("odd").await?;
    stage.passed();
    Ok(())
}
