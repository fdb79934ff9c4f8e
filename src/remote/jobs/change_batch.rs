//! What a watch saw since the loop was told last, once for each Job, and the Jobs that are there.

use std::collections::HashMap;

use crate::api::names::TaskUid;
use crate::kubernetes::watch::{JobMetadata, WatchChange};
use crate::remote::memory_budget::{MemoryBudget, MemoryShare};

/// Bytes that a Job takes besides its texts: here, and as the engine remembers it for as long as it is here.
const MARK: usize = 1 << 10;

/// The Jobs that a list or a watch showed, by their tasks, with their share of the room.
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
    pub(super) fn new(room: &MemoryBudget) -> Self {
        Self {
            jobs: HashMap::new(),
            share: room.share(),
        }
    }

    /// Forgets all of them.
    pub(super) fn clear(&mut self) {
        self.jobs = HashMap::new();
        self.share.hold(0);
    }

    /// Notes a Job. `false` where there are more than `max`, or no room for it.
    pub(super) fn note(&mut self, mark: &JobMetadata, max: usize) -> bool {
        let noted = JobInventoryEntry {
            uid: mark.uid.as_str().into(),
            weight: weight(mark),
        };
        if !self.share.grow(noted.weight) {
            return false;
        }
        if let Some(before) = self.jobs.insert(mark.task.clone(), noted) {
            self.share.shrink(before.weight);
        }
        self.jobs.len() <= max
    }

    /// Forgets a Job; `false` where another one, or none, was noted.
    pub(super) fn forget(&mut self, mark: &JobMetadata) -> bool {
        let is_noted = self.jobs.get(&mark.task).is_some_and(|job| *job.uid == *mark.uid);
        if let Some(job) = is_noted.then(|| self.jobs.remove(&mark.task)).flatten() {
            self.share.shrink(job.weight);
        }
        is_noted
    }
}

fn weight(mark: &JobMetadata) -> usize {
    let texts = [mark.task.as_str(), &mark.name, &mark.uid, &mark.spec_hash];
    let url = mark.chart_url.as_deref().map_or(0, str::len);
    MARK + url + texts.into_iter().map(str::len).sum::<usize>()
}

/// Changes in their order, of each Job only the last. What follows the end of a Job is kept apart from it.
#[derive(Debug, Default)]
pub(super) struct ChangeBatch {
    changes: Vec<WatchChange<JobMetadata>>,
    at: HashMap<TaskUid, usize>,
}

impl ChangeBatch {
    pub(super) fn seen(&mut self, mark: JobMetadata) {
        if let Some(WatchChange::Seen(before)) = self.last(&mark.task) {
            *before = mark;
            return;
        }
        self.at.insert(mark.task.clone(), self.changes.len());
        self.changes.push(WatchChange::Seen(mark));
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

    fn mark(task: &str, uid: &str, hint: CompletionHint) -> JobMetadata {
        JobMetadata {
            task: TaskUid::new(task),
            name: format!("render-{task}"),
            uid: uid.to_owned(),
            spec_hash: String::new(),
            chart_url: None,
            hint,
        }
    }

    #[test]
    fn of_each_job_the_last_word_counts_and_its_end_is_not_lost() {
        let mut batch = ChangeBatch::default();
        for hint in [CompletionHint::No, CompletionHint::Soon, CompletionHint::Now] {
            batch.seen(mark("a", "1", hint));
            batch.seen(mark("b", "2", hint));
        }
        batch.gone(TaskUid::new("a"));
        batch.seen(mark("a", "3", CompletionHint::No));
        batch.seen(mark("a", "3", CompletionHint::Soon));
        batch.gone(TaskUid::new("c"));
        let told: Vec<String> = batch
            .into_changes()
            .into_iter()
            .map(|change| match change {
                WatchChange::Seen(mark) => format!("{} {} {:?}", mark.task, mark.uid, mark.hint),
                WatchChange::Gone(task) => format!("{task} gone"),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(told, ["a gone", "b 2 Now", "a 3 Soon", "c gone"]);
    }

    #[test]
    fn only_the_job_that_was_there_can_go_and_no_number_of_them_is_too_large_to_say_so() {
        let room = MemoryBudget::new(10 * MARK);
        let mut known = JobInventory::new(&room);
        assert!(known.note(&mark("a", "1", CompletionHint::No), 1));
        assert!(
            known.note(&mark("a", "2", CompletionHint::No), 1),
            "it replaces the first"
        );
        assert!(
            !known.forget(&mark("a", "1", CompletionHint::No)),
            "that one went before"
        );
        assert!(
            !known.forget(&mark("b", "1", CompletionHint::No)),
            "it was never there"
        );
        assert!(
            !known.note(&mark("b", "3", CompletionHint::No), 1),
            "one too many"
        );
        assert!(
            known.forget(&mark("a", "2", CompletionHint::No))
                && known.forget(&mark("b", "3", CompletionHint::No))
        );
        assert_eq!(room.used(), 0);
    }

    /// Holds: B9.
    #[test]
    fn a_watch_remembers_as_many_jobs_as_leave_room_for_others() {
        let room = MemoryBudget::new(40 * MARK);
        let (mut greedy, mut other) = (JobInventory::new(&room), JobInventory::new(&room));
        let note = |known: &mut JobInventory, n: usize| {
            known.note(&mark(&n.to_string(), "u", CompletionHint::No), 1_000)
        };
        let most = (0..1_000).take_while(|n| note(&mut greedy, *n)).count();
        assert!((15..20).contains(&most), "{most}");
        assert!((0..5).all(|n| note(&mut other, n)), "what needs little finds it");
        assert!(
            (0..5).all(|n| note(&mut other, n)),
            "shown again it costs no more"
        );
        greedy.clear();
        drop(other);
        assert_eq!(room.used(), 0);
    }
}
