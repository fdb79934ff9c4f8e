//! Several hubs on one cluster, each with a list of namespaces: one dies, one namespace moves, and every task is done once.

#![allow(
    clippy::too_many_lines,
    reason = "each test tells one story from its beginning to its end"
)]

#[path = "shards/ends.rs"]
mod ends;
#[path = "shards/fleet.rs"]
mod fleet;
#[path = "shards/hubs.rs"]
mod hubs;
#[path = "shards/proof.rs"]
mod proof;
#[path = "shards/results.rs"]
mod results;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use renderhub::api::RenderTask;
use renderhub_harness::{turn, wait_for};

use ends::{Ends, digest_of};
use fleet::Fleet;
use hubs::Hubs;
use results::{Outcome, Results};
use support::job_name_of;

/// All tasks: a third of each namespace's on the hubs' own cluster, a third on either of two others.
const TASKS: usize = 3_000;
/// Their namespaces, a third of them each hub's.
const NAMESPACES: usize = 30;
/// Tasks that are done when the first hub is killed.
const BEFORE: usize = TASKS / 6;
/// What a hub has at work at once for one namespace, and so the Jobs that run in the one that moves.
const HELD: usize = 32;
/// The hub that a namespace leaves, the one it comes to, and the one that is killed.
const FIRST: usize = 0;
const SECOND: usize = 1;
const THIRD: usize = 2;
/// Longest until the test can go on, at any point.
const LIMIT: Duration = Duration::from_secs(400);

/// Three hubs, each with ten namespaces; 3,000 tasks come. One hub is killed, and another instance takes its place. Meanwhile a
/// namespace moves from the first hub to the second one: half of what runs there ends while neither looks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_of_3000_tasks_is_done_once_although_a_hub_dies_and_a_namespace_moves() -> Result<()> {
    let _turn = turn().await?;
    let clock = Clock::start();
    let fleet = Arc::new(Box::pin(Fleet::new(NAMESPACES)).await?);
    let mut hubs = Hubs::new(&fleet);
    let mut lists = fleet.namespaces.chunks(NAMESPACES / 3).map(<[String]>::to_vec);
    let [first, second, third] = [(); 3].map(|()| lists.next().unwrap_or_default());
    let moving = first.last().cloned().unwrap_or_default();
    for (name, list) in [("first", &first), ("second", &second), ("third", &third)] {
        hubs.add(name, list).await?;
    }
    clock.tell("the hubs are ready");
    let (ends, results) = (Ends::start(&fleet, &moving), Results::start(&fleet.admin));
    let submitting = tokio::spawn({
        let fleet = Arc::clone(&fleet);
        async move { fleet.submit(TASKS).await }
    });
    until(&hubs, "some tasks to be done", || {
        Ok(results.ended() >= BEFORE && ends.held()? == HELD)
    })
    .await?;
    clock.tell("some tasks are done");

    hubs.kill_and_replace(THIRD)?;
    hubs.stop(FIRST).await?;
    let kept: Vec<String> = first.iter().filter(|name| **name != moving).cloned().collect();
    hubs.restart_for(FIRST, &kept).await?;
    ends.end_held(HELD / 2).await?;
    hubs.stop(SECOND).await?;
    let gained = [second, vec![moving]].concat();
    hubs.restart_for(SECOND, &gained).await?;
    ends.release().await?;
    clock.tell("a namespace has moved");

    let tasks = submitting.await??;
    clock.tell("all tasks are made");
    until(&hubs, "every task to be done", || {
        ensure!(results.ended() == TASKS, results.waiting());
        Ok(true)
    })
    .await?;
    clock.tell("all tasks are done");
    hubs.until_cleared().await?;
    for shard in [FIRST, SECOND, THIRD] {
        hubs.stop(shard).await?;
    }
    clock.tell("nothing is left of them");

    assert_eq!(
        proof::refused(&fleet, &hubs.shards)?,
        [""; 0],
        "a right is missing"
    );
    done_once(&fleet, &tasks, &ends, &results).await?;
    let strays = proof::strays(&fleet, &hubs.shards).await?;
    assert!(
        strays.is_empty(),
        "{} requests, such as {:#?}",
        strays.len(),
        &strays[..strays.len().min(10)]
    );
    for shard in &hubs.shards {
        let requests = proof::at_home(&fleet, shard).await?;
        assert!(requests > TASKS / 3, "{requests} requests prove nothing");
    }
    clock.tell("the audit logs are read");
    Ok(())
}

/// Every task has one Job, on its cluster and on no other, and one result, which is that of this Job.
async fn done_once(fleet: &Fleet, tasks: &[RenderTask], ends: &Ends, results: &Results) -> Result<()> {
    let mut made = Vec::new();
    for site in &fleet.sites {
        made.push(proof::jobs_made(site).await?);
    }
    let total: usize = made.iter().flat_map(BTreeMap::values).sum();
    let (jobs, outcomes) = (ends.jobs(), results.all());
    let mut wrong = Vec::new();
    for (number, task) in tasks.iter().enumerate() {
        let (name, uid) = (job_name_of(task), task.uid().unwrap_or_default());
        let times: Vec<usize> = made
            .iter()
            .map(|jobs| jobs.get(&name).copied().unwrap_or(0))
            .collect();
        let expected: Vec<usize> = (0..fleet.sites.len())
            .map(|site| usize::from(site == fleet.site_of(number)))
            .collect();
        let (jobs, outcomes) = (jobs.get(&uid), outcomes.get(&uid));
        let is_right = |outcome: &Outcome| {
            let is_its = jobs.is_some_and(|jobs| outcome.job.as_ref().is_some_and(|job| jobs.contains(job)));
            let digest = ends.has_digest(&uid).then(|| digest_of(&uid));
            outcome.is_success && is_its && outcome.digest == digest
        };
        let is_one = jobs.is_some_and(|jobs| jobs.len() == 1)
            && outcomes.is_some_and(|all| all.len() == 1 && all.iter().all(is_right));
        if times != expected || !is_one {
            wrong.push(format!(
                "task {number}: made {times:?}, not {expected:?}; {jobs:?}, {outcomes:?}"
            ));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} tasks: {:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(10)]
    );
    assert_eq!(total, tasks.len(), "Jobs of nobody's task");
    Ok(())
}

/// Waits as long as all hubs run.
async fn until(hubs: &Hubs, what: &str, is_so: impl Fn() -> Result<bool>) -> Result<()> {
    let waited = wait_for(what, LIMIT, async || {
        Ok(match hubs.all_run() {
            Err(ended) => Some(Err(ended)),
            Ok(()) => is_so()?.then_some(Ok(())),
        })
    });
    waited.await.with_context(|| hubs.described())?
}

/// Says how long each part took.
struct Clock(Instant);

impl Clock {
    fn start() -> Self {
        Self(Instant::now())
    }

    fn tell(&self, what: &str) {
        println!("{what} after {:.1} s", self.0.elapsed().as_secs_f64());
    }
}
