//! Tasks that arrive one by one, here or on other clusters.

use std::time::{Duration, Instant};

use anyhow::Result;
use futures::{StreamExt, TryStreamExt};
use renderhub::plan::task::model::Task;

use super::stage::placed;
use crate::options::Rate;
use crate::world::World;

/// Where a task is to run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Target {
    /// On the hub's own cluster.
    Here,
    /// On this `RenderCluster`.
    There(String),
    /// On a `RenderCluster` that is dead.
    Dead(String),
}

/// A task that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// The task.
    pub task: Task,
    /// Where it is to run.
    pub target: Target,
    /// When the API server answered its creation.
    pub answered: Instant,
}

/// Creates tasks at a rate that does not slow down when the answers do; `first` is the number of tasks that were made before.
///
/// # Errors
/// If the API server refuses one.
pub async fn load(
    world: &World,
    rate: Rate,
    first: usize,
    target: impl Fn(usize) -> Target,
) -> Result<Vec<Made>> {
    let begin = Instant::now();
    let one = |number: u32| {
        let place = usize::try_from(number).map(&target);
        async move {
            let target = place?;
            let cluster = match &target {
                Target::Here => None,
                Target::There(name) | Target::Dead(name) => Some(name.as_str()),
            };
            let at = begin + Duration::from_secs(1) * number / rate.per_second;
            tokio::time::sleep_until(at.into()).await;
            let task = world
                .create_task_with(first + usize::try_from(number)?, &placed(cluster))
                .await?;
            let answered = Instant::now();
            anyhow::Ok(Made {
                task,
                target,
                answered,
            })
        }
    };
    futures::stream::iter(0..u32::try_from(rate.tasks)?)
        .map(one)
        .buffer_unordered(rate.tasks.max(1))
        .try_collect()
        .await
}
