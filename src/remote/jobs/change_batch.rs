//! The changes of one batch, one for each Job, and the Jobs that a watch remembers.

use std::collections::HashMap;

use crate::api::names::TaskUid;
use crate::kubernetes::watch::{JobMetadata, WatchChange};
use crate::remote::memory_budget::{MemoryBudget, MemoryShare};

/// Bytes that a Job takes besides its texts: in this inventory, and in the task controller's index.
const JOB_OVERHEAD: usize = 1 << 10;

/// The Jobs that a list or a watch showed, by task, with their share of the memory budget.
#[derive(Debug)]
pub(super) struct JobInventory {
    jobs: HashMap<TaskUid, JobInventoryEntry>,
    share: MemoryShare,
}

#[derive(Debug)]
struct JobInventoryEntry {
    uid: Box<str>,
    weight: usize,
}

impl JobInventory {
    pub(super) fn new(budget: &MemoryBudget) -> Self {
        Self {
            jobs: HashMap::new(),
            share: budget.share(),
        }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.jobs = HashMap::new();
        self.share.hold(0);
    }

    /// Remembers a Job; `false` where there are more than `max`, or the memory budget is used up.
    pub(super) fn remember(&mut self, job: &JobMetadata, max: usize) -> bool {
        let entry = JobInventoryEntry {
            uid: job.uid.as_str().into(),
            weight: weight(job),
        };
        if !self.share.grow(entry.weight) {
            return false;
        }
        if let Some(before) = self.jobs.insert(job.task.clone(), entry) {
            self.share.shrink(before.weight);
        }
        self.jobs.len() <= max
    }

    /// Forgets a Job; `false` where another one, or none, is known for its task.
    pub(super) fn forget(&mut self, job: &JobMetadata) -> bool {
        let is_known = self
            .jobs
            .get(&job.task)
            .is_some_and(|known| *known.uid == *job.uid);
        if let Some(entry) = is_known.then(|| self.jobs.remove(&job.task)).flatten() {
            self.share.shrink(entry.weight);
        }
        is_known
    }
}

fn weight(job: &JobMetadata) -> usize {
    let texts = [job.task.as_str(), &job.name, &job.uid, &job.spec_hash];
    let url = job.chart_url.as_deref().map_or(0, str::len);
    JOB_OVERHEAD + url + texts.into_iter().map(str::len).sum::<usize>()
}

/// Changes in their order, of each Job only the last. A Job that is created after a deletion does not replace the deletion.
#[derive(Debug, Default)]
pub(super) struct ChangeBatch {
    changes: Vec<WatchChange<JobMetadata>>,
    at: HashMap<TaskUid, usize>,
}

impl ChangeBatch {
    pub(super) fn seen(&mut self, job: JobMetadata) {
        if let Some(WatchChange::Seen(before)) = self.last(&job.task) {
            *before = job;
            return;
        }
        self.at.insert(job.task.clone(), self.changes.len());
        self.changes.push(WatchChange::Seen(job));
    }

    pub(super) fn gone(&mut self, task: TaskUid) {
        if let Some(change) = self.last(&task) {
            *change = WatchChange::Gone(task);
            return;
        }
        self.at.insert(task.clone(), self.changes.len());
        self.changes.push(WatchChange::Gone(task));
    }

    fn last(&mut self, task: &TaskUid) -> Option<&mut WatchChange<JobMetadata>> {
        self.changes.get_mut(*self.at.get(task)?)
    }

    pub(super) fn into_changes(self) -> Vec<WatchChange<JobMetadata>> {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::task::job_state::CompletionHint;

    fn job(task: &str, uid: &str, hint: CompletionHint) -> JobMetadata {
        JobMetadata {
            task: TaskUid::new(task),
            name: format!("render-{task}"),
            uid: uid.to_owned(),
            spec_hash: String::new(),
            chart_url: None,
            hint,
            ended: None,
        }
    }

    #[test]
    fn a_batch_keeps_the_last_event_of_each_job_and_its_deletion() {
        let mut batch = ChangeBatch::default();
        for hint in [CompletionHint::No, CompletionHint::Soon, CompletionHint::Now] {
            batch.seen(job("a", "1", hint));
            batch.seen(job("b", "2", hint));
        }
        batch.gone(TaskUid::new("a"));
        batch.seen(job("a", "3", CompletionHint::No));
        batch.seen(job("a", "3", CompletionHint::Soon));
        batch.gone(TaskUid::new("c"));
        let changes: Vec<String> = batch
            .into_changes()
            .into_iter()
            .map(|change| match change {
                WatchChange::Seen(job) => format!("{} {} {:?}", job.task, job.uid, job.hint),
                WatchChange::Gone(task) => format!("{task} gone"),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(changes, ["a gone", "b 2 Now", "a 3 Soon", "c gone"]);
    }

    #[test]
    fn only_a_known_job_can_be_forgotten_even_beyond_the_limit() {
        let budget = MemoryBudget::new(10 * JOB_OVERHEAD);
        let mut known = JobInventory::new(&budget);
        assert!(known.remember(&job("a", "1", CompletionHint::No), 1));
        assert!(
            known.remember(&job("a", "2", CompletionHint::No), 1),
            "it replaces the first"
        );
        assert!(
            !known.forget(&job("a", "1", CompletionHint::No)),
            "it was replaced before"
        );
        assert!(
            !known.forget(&job("b", "1", CompletionHint::No)),
            "it was never there"
        );
        assert!(
            !known.remember(&job("b", "3", CompletionHint::No), 1),
            "one too many"
        );
        assert!(
            known.forget(&job("a", "2", CompletionHint::No))
                && known.forget(&job("b", "3", CompletionHint::No))
        );
        assert_eq!(budget.used(), 0);
    }

    /// Holds: B9.
    #[test]
    fn a_watch_remembers_as_many_jobs_as_leave_memory_for_others() {
        let budget = MemoryBudget::new(40 * JOB_OVERHEAD);
        let mut greedy = JobInventory::new(&budget);
        let mut other = JobInventory::new(&budget.of_connection());
        let remember = |known: &mut JobInventory, n: usize| {
            known.remember(&job(&n.to_string(), "u", CompletionHint::No), 1_000)
        };
        let most = (0..1_000).take_while(|n| remember(&mut greedy, *n)).count();
        assert!((15..20).contains(&most), "{most}");
        assert!(
            (0..5).all(|n| remember(&mut other, n)),
            "a small holder gets its share"
        );
        assert!(
            (0..5).all(|n| remember(&mut other, n)),
            "shown again it costs no more"
        );
        greedy.clear();
        drop(other);
        assert_eq!(budget.used(), 0);
    }
}
