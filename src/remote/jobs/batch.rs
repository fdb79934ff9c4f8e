//! What a watch saw since the loop was told last, once for each Job, and the Jobs that are there.

use std::collections::HashMap;

use crate::api::names::TaskUid;
use crate::kubernetes::watch::{Change, JobMark};
use crate::remote::room::{Room, Share};

/// Bytes that a Job takes besides its texts: here, and as the engine remembers it for as long as it is here.
const MARK: usize = 1 << 10;

/// The Jobs that a list or a watch showed, by their tasks, with their share of the room.
#[derive(Debug)]
pub(super) struct Known {
    jobs: HashMap<TaskUid, Noted>,
    share: Share,
}

#[derive(Debug)]
struct Noted {
    uid: Box<str>,
    weight: usize,
}

impl Known {
    pub(super) fn new(room: &Room) -> Self {
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
    pub(super) fn note(&mut self, mark: &JobMark, max: usize) -> bool {
        let noted = Noted {
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
    pub(super) fn forget(&mut self, mark: &JobMark) -> bool {
        let is_noted = self.jobs.get(&mark.task).is_some_and(|job| *job.uid == *mark.uid);
        if let Some(job) = is_noted.then(|| self.jobs.remove(&mark.task)).flatten() {
            self.share.shrink(job.weight);
        }
        is_noted
    }
}

fn weight(mark: &JobMark) -> usize {
    let texts = [mark.task.as_str(), &mark.name, &mark.uid, &mark.spec_hash];
    let url = mark.chart_url.as_deref().map_or(0, str::len);
    MARK + url + texts.into_iter().map(str::len).sum::<usize>()
}

/// Changes in their order, of each Job only the last. What follows the end of a Job is kept apart from it.
#[derive(Debug, Default)]
pub(super) struct Batch {
    changes: Vec<Change<JobMark>>,
    at: HashMap<TaskUid, usize>,
}

impl Batch {
    pub(super) fn seen(&mut self, mark: JobMark) {
        if let Some(Change::Seen(before)) = self.last(&mark.task) {
            *before = mark;
            return;
        }
        self.at.insert(mark.task.clone(), self.changes.len());
        self.changes.push(Change::Seen(mark));
    }

    pub(super) fn gone(&mut self, task: TaskUid) {
        if let Some(change) = self.last(&task) {
            *change = Change::Gone(task);
            return;
        }
        self.at.insert(task.clone(), self.changes.len());
        self.changes.push(Change::Gone(task));
    }

    fn last(&mut self, task: &TaskUid) -> Option<&mut Change<JobMark>> {
        self.changes.get_mut(*self.at.get(task)?)
    }

    pub(super) fn into_changes(self) -> Vec<Change<JobMark>> {
        self.changes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::task::outcome::EndHint;

    fn mark(task: &str, uid: &str, hint: EndHint) -> JobMark {
        JobMark {
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
        let mut batch = Batch::default();
        for hint in [EndHint::No, EndHint::Soon, EndHint::Now] {
            batch.seen(mark("a", "1", hint));
            batch.seen(mark("b", "2", hint));
        }
        batch.gone(TaskUid::new("a"));
        batch.seen(mark("a", "3", EndHint::No));
        batch.seen(mark("a", "3", EndHint::Soon));
        batch.gone(TaskUid::new("c"));
        let told: Vec<String> = batch
            .into_changes()
            .into_iter()
            .map(|change| match change {
                Change::Seen(mark) => format!("{} {} {:?}", mark.task, mark.uid, mark.hint),
                Change::Gone(task) => format!("{task} gone"),
                other => format!("{other:?}"),
            })
            .collect();
        assert_eq!(told, ["a gone", "b 2 Now", "a 3 Soon", "c gone"]);
    }

    #[test]
    fn only_the_job_that_was_there_can_go_and_no_number_of_them_is_too_large_to_say_so() {
        let room = Room::new(10 * MARK);
        let mut known = Known::new(&room);
        assert!(known.note(&mark("a", "1", EndHint::No), 1));
        assert!(
            known.note(&mark("a", "2", EndHint::No), 1),
            "it replaces the first"
        );
        assert!(
            !known.forget(&mark("a", "1", EndHint::No)),
            "that one went before"
        );
        assert!(!known.forget(&mark("b", "1", EndHint::No)), "it was never there");
        assert!(!known.note(&mark("b", "3", EndHint::No), 1), "one too many");
        assert!(known.forget(&mark("a", "2", EndHint::No)) && known.forget(&mark("b", "3", EndHint::No)));
        assert_eq!(room.used(), 0);
    }

    /// Holds: B9.
    #[test]
    fn a_watch_remembers_as_many_jobs_as_leave_room_for_others() {
        let room = Room::new(40 * MARK);
        let (mut greedy, mut other) = (Known::new(&room), Known::new(&room));
        let note = |known: &mut Known, n: usize| known.note(&mark(&n.to_string(), "u", EndHint::No), 1_000);
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
