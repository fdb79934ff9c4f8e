//! Makes Jobs of another hub of the cluster this hub's own, so that its watch shows them from then on.
//!
//! Nothing waits for it: a task whose Job still carries the other hub's id is worked on all the same. Only the end of such a
//! Job is seen by the next sweep, and not at once.

use tokio_util::sync::CancellationToken;

use crate::api::names::TaskUid;
use crate::base::metrics::Metrics;
use crate::controllers::stopping::unless_stopped;
use crate::kubernetes::apply::{CallError, TaskObjectClient};
use crate::plan::task::adoption::{ObjectCreator, maker};

/// Times that a Job which changes meanwhile is tried, until the next sweep.
const TRIES: usize = 4;

/// A Job that is to be taken over.
#[derive(Debug)]
pub struct JobAdoption {
    /// The task that it serves.
    pub task: TaskUid,
    /// Name of the Job.
    pub name: String,
    /// UID of the Job.
    pub uid: String,
    /// The version of it that was judged.
    pub version: String,
}

/// Takes the Jobs over, until the hub stops; what cannot be taken over now is found by the next sweep again.
pub async fn take_over(
    objects: &TaskObjectClient,
    metrics: &Metrics,
    jobs: Vec<JobAdoption>,
    stop: &CancellationToken,
) {
    for job in unless_stopped(jobs, stop) {
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
                kind = error.kind(),
                stage = error.stage(),
                "a Job of another hub was not taken over; the next sweep tries again"
            ),
        }
    }
}

/// Takes a Job over; `false` where it is gone, or not the one that was judged.
async fn adopt(objects: &TaskObjectClient, job: &JobAdoption) -> Result<bool, CallError> {
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
        if !is_the_one || maker(objects.hub_id(), &found) != ObjectCreator::Kin {
            return Ok(false);
        }
        version = found.resource_version.unwrap_or_default();
    }
    Err(CallError::Conflict)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    use bytes::Bytes;
    use futures::future::BoxFuture;
    use serde_json::{Value, json};

    use super::*;
    use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, TASK_UID};
    use crate::api::names::{HubId, job_name};
    use crate::kubernetes::apply::{ApiTransport, ResponseLimit};

    /// A cluster whose Job changes before so many of the writes, and the versions that were written over.
    #[derive(Debug)]
    struct Busy {
        changes: AtomicUsize,
        written: Mutex<Vec<String>>,
    }

    impl Busy {
        fn patch(&self, body: &[u8]) -> Result<Bytes, CallError> {
            let patch: Value = serde_json::from_slice(body).unwrap();
            let version = patch["metadata"]["resourceVersion"].as_str().unwrap();
            self.written.lock().unwrap().push(version.to_owned());
            let left = self
                .changes
                .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1));
            left.map_or(Ok(Bytes::new()), |_| Err(CallError::Conflict))
        }
    }

    impl ApiTransport for Busy {
        fn send(
            &self,
            request: http::Request<Vec<u8>>,
            _: ResponseLimit,
        ) -> BoxFuture<'_, Result<Bytes, CallError>> {
            let answer = if request.method() == http::Method::PATCH {
                self.patch(request.body())
            } else {
                let version = self.written.lock().unwrap().len().to_string();
                let job = json!({"metadata": {"name": takeover().name, "uid": "j1", "resourceVersion": version, "labels": {
                    MANAGED_BY: MANAGED_BY_VALUE, HUB_ID: "other-0f5a4e0c", TASK_UID: "t1",
                }}});
                Ok(job.to_string().into())
            };
            Box::pin(async move { answer })
        }
    }

    fn takeover() -> JobAdoption {
        let task = TaskUid::new("t1");
        JobAdoption {
            name: job_name("shop", &task),
            task,
            uid: "j1".to_owned(),
            version: "0".to_owned(),
        }
    }

    #[tokio::test]
    async fn a_job_that_changes_meanwhile_is_tried_a_few_times_and_again_by_the_next_sweep() {
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        // How often it changes, and the writes and the Jobs taken over after each of two sweeps.
        for (changes, first, second) in [
            (0, (1, 1), (2, 2)),
            (TRIES - 1, (TRIES, 1), (TRIES + 1, 2)),
            (TRIES, (TRIES, 0), (TRIES + 1, 1)),
            (2 * TRIES, (TRIES, 0), (2 * TRIES, 0)),
        ] {
            let transport = Arc::new(Busy {
                changes: AtomicUsize::new(changes),
                written: Mutex::default(),
            });
            let objects = TaskObjectClient::new(transport.clone(), None, "jobs".to_owned(), hub.clone());
            let (metrics, _) = Metrics::new();
            for (writes, taken) in [first, second] {
                take_over(&objects, &metrics, vec![takeover()], &CancellationToken::new()).await;
                let written = transport.written.lock().unwrap().len();
                let adopted = metrics.adopted_jobs.get();
                assert_eq!((written, adopted), (writes, taken), "{changes} changes");
            }
            let written = transport.written.lock().unwrap();
            let first: Vec<_> = (0..first.0).map(|version| version.to_string()).collect();
            assert!(
                written.starts_with(&first),
                "each over what was read last: {written:?}"
            );
        }
    }
}
