//! What a tenant makes large, and in whatever part of a task, costs the hub none of the memory that others' tasks need.

use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use futures::{StreamExt, TryStreamExt, stream};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams, DynamicObject, Patch, PatchParams, PostParams};
use renderhub::api::RenderTask;
use renderhub::api::labels::FINALIZER;
use renderhub_harness::hub::AS_INSTALLED;
use renderhub_harness::{Hub, turn, wait_for};
use serde_json::{Value, json};

use support::proxy::Proxy;
use support::record::{condition_of, raw};
use support::{LIMIT, Stage};

/// Tasks with more than a megabyte of metadata each.
const LARGE: usize = 70;
/// Tasks in a list that takes more than one page.
const LISTED: usize = 40;
/// Tasks of 100,000 values each.
const MANY: usize = 6;
/// Half of the memory that the chart lets a hub have, in KiB.
const MOST: u64 = 128 << 10;
/// Writes of the test in flight, each of more than a megabyte.
const AT_ONCE: usize = 4;

/// The most memory that the hub has held so far, in KiB.
fn peak(hub: &Hub) -> Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", hub.pid()))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    Ok(line
        .and_then(|line| line.trim().strip_suffix(" kB"))
        .context("no VmHWM")?
        .parse()?)
}

trait Large: Sized {
    /// A stage whose hub runs as the chart installs it.
    async fn installed(prefix: &str) -> Result<Self>;
    fn any_tasks(&self) -> Api<DynamicObject>;
    /// Submits tasks as they are; none is decoded and made anew on its way.
    async fn submit_all(&self, tasks: impl Iterator<Item = Value>) -> Result<Vec<String>>;
    /// Waits until the condition of each of the tasks says that it does not start, and why.
    async fn refused(&self, names: &[String], reason: &str) -> Result<()>;
    /// A task of reasonable size runs and ends.
    async fn serves(&self, name: &str) -> Result<()>;
}

impl Large for Stage {
    async fn installed(prefix: &str) -> Result<Self> {
        let mut stage = Self::without_hub(prefix, &[]).await?;
        stage.make_registry().await?;
        let hub = stage.spawn_hub_with(&stage.hub_user.kubeconfig()?, AS_INSTALLED)?;
        hub.wait_ready().await?;
        stage.hub = Some(hub);
        Ok(stage)
    }

    fn any_tasks(&self) -> Api<DynamicObject> {
        Api::namespaced_with(self.admin.clone(), &self.scope.tenant, &raw::<RenderTask>())
    }

    async fn submit_all(&self, tasks: impl Iterator<Item = Value>) -> Result<Vec<String>> {
        let api = self.any_tasks();
        stream::iter(tasks.map(|task| {
            let api = api.clone();
            async move {
                let task: DynamicObject = serde_json::from_value(task)?;
                anyhow::Ok(api.create(&PostParams::default(), &task).await?.name_any())
            }
        }))
        .buffer_unordered(AT_ONCE)
        .try_collect()
        .await
    }

    async fn refused(&self, names: &[String], reason: &str) -> Result<()> {
        let wanted = Some(("False".to_owned(), reason.to_owned()));
        for name in names {
            wait_for(&format!("{name} to be told {reason}"), LIMIT, async || {
                let task = self.any_tasks().get(name).await?;
                Ok((condition_of(&task, "JobScheduled") == wanted).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    async fn serves(&self, name: &str) -> Result<()> {
        let task = self.submit(self.task(name)).await?;
        self.succeeds(&task).await
    }
}

/// Finalizers of more than a megabyte, the hub's own among them.
fn finalizers() -> Vec<String> {
    let domain = vec!["p".repeat(63); 3].join(".");
    let mut all: Vec<_> = (0..5_000)
        .map(|n| format!("{domain}/{}{n:07}", "s".repeat(55)))
        .collect();
    all.insert(70, FINALIZER.to_owned());
    all
}

/// Holds: B3.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_megabyte_of_finalizers_on_each_task_costs_others_nothing() -> Result<()> {
    let _turn = turn().await?;
    let stage = Stage::installed("finalizers").await?;
    let all = finalizers();
    let tasks = (0..LARGE).map(|number| {
        let mut task = stage.task(&format!("large-{number}"));
        task["metadata"]["finalizers"] = json!(all);
        task
    });
    let names = stage.submit_all(tasks).await?;
    stage.serves("quiet").await?;
    let most = peak(stage.hub())?;
    println!(
        "{LARGE} tasks with {} bytes of finalizers each: at most {most} KiB",
        json!(all).to_string().len()
    );
    assert!(most < MOST, "{most} KiB");
    stage.refused(&names, "InvalidSpec").await?;
    // What the hub put there, or a policy, it takes off, and leaves the others alone.
    let api = stage.any_tasks();
    let others: Vec<_> = all.iter().filter(|name| *name != FINALIZER).cloned().collect();
    api.delete(&names[0], &DeleteParams::default()).await?;
    wait_for("the hub to let go of the task", LIMIT, async || {
        Ok((api.get(&names[0]).await?.finalizers() == others).then_some(()))
    })
    .await?;
    let none = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    for name in &names {
        api.patch(name, &PatchParams::default(), &none).await?;
    }
    // With fewer it starts by itself.
    wait_for("a task that has none any more to start", LIMIT, async || {
        let task = api.get(&names[1]).await?;
        let condition = condition_of(&task, "JobScheduled");
        Ok(condition
            .is_some_and(|(_, reason)| reason != "InvalidSpec")
            .then_some(()))
    })
    .await?;
    assert!(peak(stage.hub())? < MOST, "{} KiB", peak(stage.hub())?);
    stage.passed();
    Ok(())
}

/// Holds: B11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_values_in_each_task_cost_others_nothing() -> Result<()> {
    let _turn = turn().await?;
    let stage = Stage::installed("values").await?;
    let list = json!({"list": vec![json!({"a": 1}); 49_900]});
    let mut names = Vec::new();
    // One after the other: the API server itself takes much more for each than the hub ever did.
    for number in 0..MANY {
        let mut task = stage.task(&format!("many-{number}"));
        task["spec"]["config"]["release"]["values"] = list.clone();
        names.extend(stage.submit_all(std::iter::once(task)).await?);
    }
    stage.serves("quiet").await?;
    let most = peak(stage.hub())?;
    println!("{MANY} tasks of 100,000 values each: at most {most} KiB");
    assert!(most < MOST, "{most} KiB");
    stage.refused(&names, "ConfigTooLarge").await?;
    assert!(peak(stage.hub())? < MOST, "{} KiB", peak(stage.hub())?);
    stage.passed();
    Ok(())
}

/// A server that cannot stream its lists, as those before Kubernetes 1.34.
///
/// Holds: B11.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_list_of_large_tasks_comes_in_pages_that_fit() -> Result<()> {
    let _turn = turn().await?;
    let mut stage = Stage::without_hub("pages", &[]).await?;
    stage.make_registry().await?;
    let tasks = (0..LISTED).map(|number| {
        let mut task = stage.task(&format!("large-{number}"));
        task["spec"]["config"]["release"]["values"] = json!("x".repeat(1_200_000));
        task
    });
    let names = stage.submit_all(tasks).await?;
    let proxy = Proxy::start(stage.hub_user.client().await?).await?;
    let pages = Arc::new(Mutex::new(0));
    let seen = Arc::clone(&pages);
    proxy.lie(move |_, target| {
        if target.contains("/rendertasks?") && !target.contains("watch=true") {
            *seen.lock().ok()? += 1;
        }
        let status = json!({"kind": "Status", "apiVersion": "v1", "status": "Failure", "code": 422});
        target
            .contains("sendInitialEvents=true")
            .then(|| (422, status.to_string().into_bytes()))
    });
    let hub = stage.spawn_hub_with(&proxy.kubeconfig()?, AS_INSTALLED)?;
    hub.wait_ready().await?;
    let most = peak(&hub)?;
    let pages = pages.lock().map_or(0, |pages| *pages);
    println!("{LISTED} tasks of 1.2 MB in {pages} pages: at most {most} KiB");
    stage.hub = Some(hub);
    assert!(most < MOST && pages > 1, "{most} KiB, {pages} pages");
    stage.refused(&names, "ConfigTooLarge").await?;
    stage.serves("quiet").await?;
    assert!(peak(stage.hub())? < MOST, "{} KiB", peak(stage.hub())?);
    stage.passed();
    Ok(())
}
