//! Makes Jobs of another hub of the cluster this hub's own, so that its watch shows them from then on.
//!
//! Nothing waits for it: a task whose Job still carries the other hub's id is worked on all the same. Only the end of such a
//! Job is seen by the next sweep, and not at once.

use crate::apply::{CallError, Objects};
use crate::metrics::Metrics;
use crate::names::TaskUid;
use crate::plan::adoption::{Maker, maker};

/// Times that a Job which changes meanwhile is tried, until the next sweep.
const TRIES: usize = 4;

/// A Job that is to be taken over.
#[derive(Debug)]
pub struct Takeover {
    /// The task that it serves.
    pub task: TaskUid,
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// The version of it that was judged.
    pub version: String,
}

/// Takes the Jobs over; what cannot be taken over now is found by the next sweep again.
pub async fn take_over(objects: &Objects, metrics: &Metrics, jobs: Vec<Takeover>) {
    for job in jobs {
        match adopt(objects, &job).await {
            Ok(true) => {
                metrics.adopted_jobs.inc();
                tracing::info!(task = %job.task, "took over a Job of another hub");
            }
            Ok(false) => {}
            Err(CallError::Forbidden | CallError::Unauthorized) => {
                tracing::warn!(
                    "the hub may not patch Jobs there: what another hub started goes on, and its end is seen by a sweep"
                );
                return;
            }
            Err(error) => tracing::warn!(
                task = %job.task,
                error = error.kind(),
                stage = error.stage(),
                "a Job of another hub was not taken over; the next sweep tries again"
            ),
        }
    }
}

/// Takes a Job over; `false` where it is gone, or not the one that was judged.
async fn adopt(objects: &Objects, job: &Takeover) -> Result<bool, CallError> {
    let mut version = job.version.clone();
    for _ in 0..TRIES {
        match objects.adopt_job(&job.name, &job.uid, &version).await {
            Ok(()) => return Ok(true),
            Err(CallError::NotFound) => return Ok(false),
            Err(CallError::Conflict) => {}
            Err(error) => return Err(error),
        }
        // Its own controller writes to it while it runs.
        let Some(found) = objects.get_job_metadata(&job.name).await? else {
            return Ok(false);
        };
        let is_the_one = found.uid.as_deref() == Some(&job.uid);
        if !is_the_one || maker(objects.hub_id(), &found) != Maker::Kin {
            return Ok(false);
        }
        version = found.resource_version.unwrap_or_default();
    }
    Err(CallError::Conflict)
}
