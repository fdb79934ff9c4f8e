//! What the pipeline knows of the tasks that it made.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;
use crate::plan::queue::backoff::BackoffPolicy;

use super::object::ObjectKey;
use super::object_map::NamedKind;
use super::objects::PipelineObjects;
use super::task_state::{PipelineTask, PipelineTaskState};

/// What separates a task's name from the number of its attempt.
const ATTEMPT: &str = "-r";

/// A task that should be there, and what became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum TaskProgress<'o> {
    /// It has to be made, under this name.
    Missing(String),
    /// It waits or runs.
    Running,
    /// It waits for something that a person may have to mend.
    Blocked(Reason),
    /// Its chart is pushed.
    Succeeded {
        /// Digest of the chart.
        digest: Option<&'o str>,
        /// When it was pushed.
        at: Timestamp,
    },
    /// It failed, and is replaced then; never where another attempt would fail the same way.
    Failed(Reason, Option<Timestamp>),
    /// Another task has its name.
    Taken,
}

/// The attempts at a task that are there.
#[derive(Clone, Debug, Default)]
pub struct Attempts<'o> {
    /// The one that counts, with its number.
    last: Option<(u32, &'o ObjectKey, &'o PipelineTask)>,
    /// Those before it.
    older: Vec<(&'o ObjectKey, &'o PipelineTask)>,
}

impl<'o> Attempts<'o> {
    /// The attempts at a task; `base` is the name of the first.
    #[must_use]
    pub fn of(objects: &'o PipelineObjects, namespace: &str, base: &str) -> Self {
        let mut found = Self::default();
        for (key, task) in named(objects, namespace, base) {
            if let Some(number) = attempt_number(&key.name, base) {
                found.add((number, key, task));
            }
        }
        found
    }

    fn add(&mut self, next: (u32, &'o ObjectKey, &'o PipelineTask)) {
        let number = next.0;
        let before = match self.last {
            Some((last, ..)) if last > number => Some(next),
            _ => self.last.replace(next).filter(|(before, ..)| *before < number),
        };
        self.older.extend(before.map(|(_, key, task)| (key, task)));
    }

    /// What became of the task: of its last attempt. `base` is the name of the first.
    #[must_use]
    pub fn progress(&self, base: &str, spec_hash: &str, now: Timestamp) -> TaskProgress<'o> {
        let Some((attempt, _, task)) = self.last else {
            return TaskProgress::Missing(base.to_owned());
        };
        if task.spec_hash != spec_hash {
            return TaskProgress::Taken;
        }
        let next = || TaskProgress::Missing(attempt_name(base, attempt + 1));
        match &task.state {
            _ if task.deleting => next(),
            PipelineTaskState::Running => TaskProgress::Running,
            PipelineTaskState::Blocked(reason) => TaskProgress::Blocked(*reason),
            PipelineTaskState::Succeeded { digest, at } => TaskProgress::Succeeded {
                digest: digest.as_deref(),
                at: *at,
            },
            PipelineTaskState::Failed {
                reason,
                is_final: true,
                ..
            } => TaskProgress::Failed(*reason, None),
            PipelineTaskState::Failed { reason, at, .. } => {
                let due = retry_due(*at, attempt);
                let failed = TaskProgress::Failed(*reason, Some(due));
                if due <= now { next() } else { failed }
            }
        }
    }

    /// The attempts before the last one that are not being deleted: they serve no purpose any more.
    pub fn older(&self) -> impl Iterator<Item = (&'o ObjectKey, &'o str)> + use<'_, 'o> {
        let known = self.older.iter().filter(|(_, task)| !task.deleting);
        known.map(|(key, task)| (*key, task.uid.as_str()))
    }
}

/// Whether a task failed, and its chart was not pushed since: while a later attempt runs, its name says so. `base` is the name of
/// the first.
#[must_use]
pub fn has_failed(objects: &PipelineObjects, namespace: &str, base: &str, spec_hash: &str) -> bool {
    let last = Attempts::of(objects, namespace, base).last;
    last.is_some_and(|(attempt, _, task)| {
        // A tag that is taken is followed by another at once.
        !is_tag_taken(task) && (task.spec_hash != spec_hash || is_failing(attempt > 1, task))
    })
}

/// Whether a task whose name starts so failed, and its chart was not pushed since.
#[must_use]
pub fn has_failed_below(objects: &PipelineObjects, namespace: &str, prefix: &str) -> bool {
    let mut named = named(objects, namespace, prefix);
    named.any(|(key, task)| is_failing(base_name(&key.name) != key.name, task))
}

/// Whether a chart of a Release failed in a namespace, and was not pushed since.
#[must_use]
pub fn release_failed(objects: &PipelineObjects, namespace: &str, release: &ObjectKey) -> bool {
    let mut tasks = objects.tasks.naming_from(namespace, NamedKind::Release, release);
    tasks.any(|(key, task)| !is_tag_taken(task) && is_failing(base_name(&key.name) != key.name, task))
}

fn is_tag_taken(task: &PipelineTask) -> bool {
    matches!(
        &task.state,
        PipelineTaskState::Failed {
            reason: Reason::TagConflict,
            ..
        }
    )
}

fn is_failing(is_later_attempt: bool, task: &PipelineTask) -> bool {
    match &task.state {
        PipelineTaskState::Succeeded { .. } => false,
        PipelineTaskState::Failed { .. } => true,
        PipelineTaskState::Blocked(reason) => is_later_attempt || reason.is_stalled(),
        PipelineTaskState::Running => is_later_attempt,
    }
}

/// When a task whose attempt failed is replaced.
fn retry_due(failed: Timestamp, attempt: u32) -> Timestamp {
    let wait = BackoffPolicy::CHART.longest_wait(attempt);
    failed.saturating_add(wait).unwrap_or(failed)
}

/// The name of an attempt, which is how it survives the hub; the first has the bare name.
fn attempt_name(base: &str, attempt: u32) -> String {
    if attempt == 1 {
        base.to_owned()
    } else {
        format!("{base}{ATTEMPT}{attempt}")
    }
}

/// The tasks whose names start so.
fn named<'o, 'n>(
    objects: &'o PipelineObjects,
    namespace: &'n str,
    start: &'n str,
) -> impl Iterator<Item = (&'o ObjectKey, &'o PipelineTask)> + use<'o, 'n> {
    let first = ObjectKey::new(namespace, start);
    objects
        .tasks
        .range(first..)
        .take_while(move |(key, _)| key.namespace == namespace && key.name.starts_with(start))
}

/// The number of an attempt by its name; `None` where it is no attempt at the task whose first has the name `base`.
fn attempt_number(name: &str, base: &str) -> Option<u32> {
    match name.strip_prefix(base)? {
        "" => Some(1),
        rest => rest.strip_prefix(ATTEMPT)?.parse().ok(),
    }
}

/// The last attempt at a task, and the name of the one that would follow. `base` is the name of the first.
#[must_use]
pub fn last_attempt<'o>(
    objects: &'o PipelineObjects,
    namespace: &str,
    base: &str,
) -> Option<(&'o ObjectKey, &'o PipelineTask, String)> {
    let last = Attempts::of(objects, namespace, base).last;
    last.map(|(attempt, key, task)| (key, task, attempt_name(base, attempt + 1)))
}

/// The tasks that are a Target's alone.
pub fn own_tasks<'o>(
    target: &'o ObjectKey,
    objects: &'o PipelineObjects,
) -> impl Iterator<Item = (&'o ObjectKey, &'o PipelineTask)> {
    objects
        .tasks
        .naming_from(&target.namespace, NamedKind::Target, target)
}

/// The name of the first attempt.
#[must_use]
pub fn base_name(name: &str) -> &str {
    name.rsplit_once(ATTEMPT)
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
        .map_or(name, |(base, _)| base)
}
