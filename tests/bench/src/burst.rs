//! A burst: all tasks are there when the hub, or the bare writer, starts.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use renderhub_harness::process::Process;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Hub, wait_for};
use serde::Serialize;

use crate::audit::Requests;
use crate::measure::{Memory, cpu_seconds, memory, number};
use crate::world::World;

/// What all bursts of a world brought.
#[derive(Debug, Serialize)]
pub struct Burst {
    /// Tasks in a burst.
    pub tasks: usize,
    /// The hub's bursts.
    pub hub: Vec<Run>,
    /// The bare writer's.
    pub bare: Vec<Run>,
    /// The hub's requests of each verb and resource, over all bursts and tasks.
    pub requests_per_task: BTreeMap<String, f64>,
    /// The hub's memory after its last burst.
    pub memory: Memory,
}

/// One burst.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Run {
    /// From the first write's arrival at the API server to the last one's answer.
    pub tasks_per_second: f64,
    /// CPU time of the hub or writer, start included.
    pub cpu_seconds: f64,
    /// CPU time of kube-apiserver meanwhile.
    pub apiserver_cpu_seconds: f64,
    /// Writes on tasks, config Secrets and Jobs.
    pub writes: usize,
    /// Reads of one of them, or of a task's pods.
    pub reads: usize,
}

impl Burst {
    /// The mean of a figure over runs.
    pub fn mean(runs: &[Run], figure: impl Fn(&Run) -> f64) -> f64 {
        runs.iter().map(figure).sum::<f64>() / number(runs.len().max(1))
    }

    /// The hub's pace as a part of the bare writer's.
    pub fn ratio(&self) -> f64 {
        let pace = |runs| Self::mean(runs, |run| run.tasks_per_second);
        pace(&self.hub) / pace(&self.bare)
    }

    /// A figure of the hub for each task.
    pub fn per_task(&self, figure: impl Fn(&Run) -> f64) -> f64 {
        Self::mean(&self.hub, figure) / number(self.tasks)
    }
}

/// Runs bursts alternately, so that a machine that becomes slower or faster does so for both.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(world: &World, rounds: usize) -> Result<Burst> {
    let (mut hub, mut bare) = (Vec::new(), Vec::new());
    let (mut counts, mut peak) = (BTreeMap::<String, usize>::new(), None);
    for round in 0..rounds {
        for is_hub in [round % 2 == 1, round % 2 == 0] {
            if !is_hub {
                bare.push(burst_of_bare_writer(world).await?);
                continue;
            }
            let (run, requests, memory) = burst_of_hub(world).await?;
            hub.push(run);
            peak = Some(memory);
            for (action, count) in requests.counts {
                *counts.entry(action).or_default() += count;
            }
        }
    }
    let all = number(world.burst_tasks * rounds);
    Ok(Burst {
        tasks: world.burst_tasks,
        hub,
        bare,
        requests_per_task: counts
            .into_iter()
            .map(|(action, n)| (action, number(n) / all))
            .collect(),
        memory: peak.context("no burst of the hub")?,
    })
}

async fn burst_of_hub(world: &World) -> Result<(Run, Requests, Memory)> {
    let tasks = world.create_tasks(world.burst_tasks).await?;
    let audit = world.plane.audit()?;
    let (begin, server) = (audit.mark().await?, Server::look(world)?);
    let progress = Progress::start(format!("the hub's burst of {} tasks", tasks.len()));
    let finisher = world.spawn_finisher()?;
    let hub = world.spawn_hub()?;
    until_all_done(world, &hub, &finisher, tasks.len()).await?;
    drop(progress);
    let (apiserver_cpu_seconds, cpu_seconds) = (server.used()?, cpu_seconds(&hub.pid().to_string())?);
    let memory = memory(hub.pid())?;
    drop((hub, finisher));
    let requests = Requests::since(audit, begin, &world.hub_user).await?;
    world.remove_tasks(&tasks).await?;
    let run = Run {
        tasks_per_second: requests.pace(tasks.len())?,
        cpu_seconds,
        apiserver_cpu_seconds,
        writes: requests.writes,
        reads: requests.reads,
    };
    Ok((run, requests, memory))
}

async fn burst_of_bare_writer(world: &World) -> Result<Run> {
    let tasks = world.create_tasks(world.burst_tasks).await?;
    let audit = world.plane.audit()?;
    let (begin, server) = (audit.mark().await?, Server::look(world)?);
    let progress = Progress::start(format!("the bare writer's burst of {} tasks", tasks.len()));
    let writer = world.spawn_bare()?;
    let status = writer.wait(patience(tasks.len())).await?;
    ensure!(
        status.success(),
        "the bare writer failed:\n{}",
        writer.log_tail(20)
    );
    drop(progress);
    let apiserver_cpu_seconds = server.used()?;
    let cpu_seconds = writer
        .log()
        .trim()
        .parse()
        .context("the bare writer did not say what it used")?;
    let requests = Requests::since(audit, begin, &world.bare_user).await?;
    world.remove_tasks(&tasks).await?;
    Ok(Run {
        tasks_per_second: requests.pace(tasks.len())?,
        cpu_seconds,
        apiserver_cpu_seconds,
        // The finisher's patch, which it makes itself, is not a hub's.
        writes: requests.writes - tasks.len(),
        reads: requests.reads,
    })
}

/// Waits until every task succeeded and nothing of them is left.
///
/// # Errors
/// If one fails, a process ends, or it takes too long.
pub async fn until_all_done(world: &World, hub: &Hub, finisher: &Process, tasks: usize) -> Result<()> {
    let waited = wait_for("the hub to be done", patience(tasks), async || {
        if let Err(ended) = finisher.check_running() {
            return Ok(Some(Err(ended)));
        }
        if let Some(status) = hub.exit_status() {
            return Ok(Some(Err(anyhow::anyhow!(
                "the hub ended ({status}):\n{}",
                hub.log()
            ))));
        }
        let metrics = hub.metrics().await?;
        let (succeeded, failed) = (in_phase(&metrics, "succeeded"), in_phase(&metrics, "failed"));
        let is_done = succeeded == tasks && world.is_cleared().await?;
        if failed > 0 {
            return Ok(Some(Err(anyhow::anyhow!("{failed} tasks failed"))));
        }
        // Looking costs the hub and the API server a little, so it is not done more often.
        if !is_done {
            tokio::time::sleep(Duration::from_millis(150)).await;
            bail!("{succeeded} of {tasks} tasks succeeded");
        }
        Ok(Some(Ok(())))
    });
    waited.await.with_context(|| tail(&hub.log()))?
}

/// The end of a log, for an error.
pub fn tail(log: &str) -> String {
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(10)..].join("\n")
}

/// How many tasks are in a phase, by a hub's metrics.
pub fn in_phase(metrics: &str, phase: &str) -> usize {
    let line = format!("renderhub_tasks{{phase=\"{phase}\"}} ");
    let count = metrics.lines().find_map(|text| text.strip_prefix(&line));
    count.and_then(|count| count.parse().ok()).unwrap_or(0)
}

/// Two tasks a second is a twentieth of what a small machine does.
pub fn patience(tasks: usize) -> Duration {
    Duration::from_secs(60) + Duration::from_millis(500) * u32::try_from(tasks).unwrap_or(u32::MAX)
}

/// The API server's CPU time at the start of something.
pub struct Server {
    pid: String,
    before: f64,
}

impl Server {
    /// Looks at it now.
    ///
    /// # Errors
    /// If it does not run.
    pub fn look(world: &World) -> Result<Self> {
        let pid = world.apiserver_pid()?.to_string();
        let before = cpu_seconds(&pid)?;
        Ok(Self { pid, before })
    }

    /// What it used since then.
    ///
    /// # Errors
    /// If it does not run.
    pub fn used(&self) -> Result<f64> {
        Ok(cpu_seconds(&self.pid)? - self.before)
    }
}

#[cfg(test)]
mod tests {
    use renderhub::base::metrics::{Metrics, PhaseLabel};

    use super::*;

    #[test]
    fn a_phase_is_read_from_metrics_as_the_hub_writes_them() {
        let (metrics, registry) = Metrics::new();
        let label = PhaseLabel { phase: "succeeded" };
        metrics.tasks.get_or_create(&label).set(42);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
        let count = |phase| in_phase(&text, phase);
        assert_eq!((count("succeeded"), count("failed")), (42, 0));
    }

    #[test]
    fn the_ratio_is_that_of_the_mean_paces() {
        let run = |tasks_per_second| Run {
            tasks_per_second,
            cpu_seconds: 1.0,
            apiserver_cpu_seconds: 1.0,
            writes: 12,
            reads: 2,
        };
        let burst = Burst {
            tasks: 2,
            hub: vec![run(30.0), run(40.0)],
            bare: vec![run(45.0), run(55.0)],
            requests_per_task: BTreeMap::new(),
            memory: memory(std::process::id()).unwrap(),
        };
        assert!((burst.ratio() - 0.7).abs() < 1e-9);
        assert!((burst.per_task(|run| number(run.writes)) - 6.0).abs() < 1e-9);
    }
}
