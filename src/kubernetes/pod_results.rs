//! The termination messages of ended pods: written by their watch, read by workers, removed with the pod.
//!
//! The watches of pods and of Jobs are two streams, so a worker that sees an ended Job may be ahead of its pod; it can wait here
//! for the message, for a moment.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dashmap::DashMap;
use tokio::sync::Notify;

use crate::api::names::TaskUid;
use crate::plan::task::job_state::PodTermination;

/// Termination messages by task. Cheap to clone; clones share.
#[derive(Clone, Debug, Default)]
pub struct PodResults(Arc<PodResultsInner>);

#[derive(Debug, Default)]
struct PodResultsInner {
    notes: DashMap<TaskUid, PodTermination>,
    arrived: Notify,
    /// The number of waits, those that began since it was last read, and a signal for that.
    waiting: AtomicUsize,
    beginners: Mutex<Vec<TaskUid>>,
    began: Notify,
    /// Whether waits end at once.
    is_hurried: AtomicBool,
}

/// One that waits, until it is dropped.
struct PodResultsWaiter<'a>(&'a PodResultsInner);

impl<'a> PodResultsWaiter<'a> {
    fn begin(inner: &'a PodResultsInner, task: &TaskUid) -> Self {
        inner.waiting.fetch_add(1, Ordering::Relaxed);
        inner.lock_begun().push(task.clone());
        inner.began.notify_one();
        Self(inner)
    }
}

impl PodResultsInner {
    fn lock_begun(&self) -> MutexGuard<'_, Vec<TaskUid>> {
        self.beginners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for PodResultsWaiter<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

impl PodResults {
    /// Stores the message of a pod, unless a younger pod of the task has one already.
    pub fn put(&self, task: TaskUid, note: PodTermination) {
        if self.get(&task).is_none_or(|known| known.created <= note.created) {
            self.0.notes.insert(task, note);
        }
        self.0.arrived.notify_waiters();
    }

    /// Forgets the message of a pod that is gone.
    pub fn remove(&self, task: &TaskUid, pod_uid: &str) {
        self.0.notes.remove_if(task, |_, note| note.pod_uid == pod_uid);
    }

    /// Forgets everything; a new list follows.
    pub fn clear(&self) {
        self.0.notes.clear();
    }

    /// The latest message of a task's pods.
    #[must_use]
    pub fn get(&self, task: &TaskUid) -> Option<PodTermination> {
        self.0.notes.get(task).map(|note| note.value().clone())
    }

    /// The latest message of a task's pods that fits, waiting for it no longer than `limit`.
    pub async fn wait(
        &self,
        task: &TaskUid,
        limit: Duration,
        fits: impl Fn(&PodTermination) -> bool,
    ) -> Option<PodTermination> {
        if let Some(note) = self.get(task).filter(&fits) {
            return Some(note);
        }
        let _waiting = PodResultsWaiter::begin(&self.0, task);
        let arrives = async {
            loop {
                let mut arrived = std::pin::pin!(self.0.arrived.notified());
                // Listening starts before the look, so that nothing arrives unheard between the two.
                arrived.as_mut().enable();
                if let Some(note) = self.get(task).filter(&fits) {
                    return Some(note);
                }
                if self.0.is_hurried.load(Ordering::Acquire) {
                    return None;
                }
                arrived.await;
            }
        };
        tokio::time::timeout(limit, arrives).await.ok().flatten()
    }

    /// Ends every wait, now and from now on: the hub stops, and another instance waits for its Lease.
    pub fn cancel_waits(&self) {
        self.0.is_hurried.store(true, Ordering::Release);
        self.0.arrived.notify_waiters();
    }

    /// The number of waits; they need no worker.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.0.waiting.load(Ordering::Relaxed)
    }

    /// Returns the tasks whose passes began to wait since the last call, once there is one.
    pub async fn wait_began(&self) -> Vec<TaskUid> {
        self.0.began.notified().await;
        std::mem::take(&mut *self.0.lock_begun())
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::Timestamp;

    use super::*;

    fn note(pod: &str, second: i64, succeeded: bool) -> PodTermination {
        PodTermination {
            pod_uid: pod.to_owned(),
            created: Timestamp::from_second(second).unwrap(),
            succeeded,
            exit_code: None,
            message: None,
            stop: None,
        }
    }

    #[test]
    fn the_youngest_pod_speaks_and_only_its_own_end_silences_it() {
        let (notes, task) = (PodResults::default(), TaskUid::new("t"));
        notes.put(task.clone(), note("b", 2, true));
        notes.put(task.clone(), note("a", 1, false));
        notes.remove(&task, "a");
        assert_eq!(notes.get(&task), Some(note("b", 2, true)));
        notes.remove(&task, "b");
        assert_eq!(notes.get(&task), None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_word_that_comes_later_is_heard_and_silence_ends() {
        let (notes, task) = (PodResults::default(), TaskUid::new("t"));
        notes.put(task.clone(), note("a", 1, false));
        let limit = Duration::from_secs(1);
        let waiter = tokio::spawn({
            let (notes, task) = (notes.clone(), task.clone());
            async move { notes.wait(&task, limit, |n| n.succeeded).await }
        });
        assert_eq!(notes.wait_began().await, [TaskUid::new("t")]);
        assert_eq!(notes.waiting(), 1);
        notes.put(task.clone(), note("b", 2, true));
        assert_eq!(waiter.await.unwrap(), Some(note("b", 2, true)));
        assert_eq!(notes.waiting(), 0);
        assert_eq!(notes.wait(&TaskUid::new("other"), limit, |_| true).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_when_the_hub_stops() {
        let (notes, task) = (PodResults::default(), TaskUid::new("t"));
        let begun = tokio::time::Instant::now();
        let waiter = tokio::spawn({
            let (notes, task) = (notes.clone(), task.clone());
            async move { notes.wait(&task, Duration::from_secs(60), |_| true).await }
        });
        notes.wait_began().await;
        notes.cancel_waits();
        assert_eq!(waiter.await.unwrap(), None);
        assert_eq!(notes.wait(&task, Duration::from_secs(60), |_| true).await, None);
        // A stored message is still returned.
        notes.put(task.clone(), note("a", 1, true));
        let limit = Duration::from_secs(60);
        assert_eq!(notes.wait(&task, limit, |_| true).await, Some(note("a", 1, true)));
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
