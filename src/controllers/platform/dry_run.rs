//! Asks the hub's own API server whether it would accept the Jobs of each renderer class, and tells the platform operator where
//! it would not.
//!
//! A class is tried when it changes, when a task's Job was refused, and from time to time while it is refused: admission policies
//! and webhooks are nothing that the hub watches. One is tried at a time, beside the loop, because a webhook may take its time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::api::RendererClassSpec;
use crate::api::conditions::Reason;
use crate::kubernetes::apply::{CallError, CreateError, HubClient};
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::platform::class::refused;
use crate::plan::queue::backoff::Backoff;
use crate::plan::task::admission_rejection::AdmissionRejection;
use crate::plan::task::job::{JobPlacement, specimen};

use super::store::PlatformStore;

/// Shortest pause between two trials of one class.
const PAUSE: Duration = Duration::from_secs(5);

/// What trials need.
#[derive(Debug)]
pub struct DryRunContext {
    placement: JobPlacement,
    events: EventRecorder,
    doubts: mpsc::Receiver<String>,
}

impl DryRunContext {
    /// Trials for Jobs that run in this place, told in `events`; `doubts` are the classes of tasks whose Job was refused.
    #[must_use]
    pub const fn new(place: JobPlacement, events: EventRecorder, doubts: mpsc::Receiver<String>) -> Self {
        Self {
            placement: place,
            events,
            doubts,
        }
    }
}

/// What came of a trial.
#[derive(Debug)]
pub(super) struct DryRunResult {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) answer: Result<(), CreateError>,
}

/// The trials of all classes.
#[derive(Default)]
pub(super) struct ClassDryRuns {
    check: Option<DryRunContext>,
    /// When a class is tried next.
    due: BTreeMap<String, Instant>,
    /// When it was tried last.
    last: BTreeMap<String, Instant>,
    /// Classes that were not tried since they changed.
    open: BTreeSet<String>,
    /// What keeps Jobs from being accepted.
    rejections: BTreeMap<String, AdmissionRejection>,
    backoff: Backoff<String>,
    running: Option<BoxFuture<'static, DryRunResult>>,
}

impl ClassDryRuns {
    pub(super) fn begin(&mut self, check: DryRunContext) {
        self.check = Some(check);
    }

    /// A class is new, or its spec is.
    pub(super) fn put(&mut self, name: &str) {
        self.forget(name);
        if self.check.is_some() {
            self.due.insert(name.to_owned(), Instant::now());
            self.open.insert(name.to_owned());
        }
    }

    pub(super) fn forget(&mut self, name: &str) {
        self.due.remove(name);
        self.last.remove(name);
        self.open.remove(name);
        self.rejections.remove(name);
        self.backoff.clear(&name.to_owned());
    }

    /// Whether nothing is to be said of a class before it was tried.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.open.contains(name)
    }

    /// What keeps the class's Jobs from being accepted.
    pub(super) fn objection(&self, name: &str) -> Option<&AdmissionRejection> {
        self.rejections.get(name)
    }

    /// A Job of the class was refused.
    fn doubt(&mut self, name: &str) {
        let now = Instant::now();
        let due = self.last.get(name).map_or(now, |last| *last + PAUSE).max(now);
        let due = self.due.get(name).map_or(due, |known| due.min(*known));
        self.due.insert(name.to_owned(), due);
    }

    /// Waits for the end of a trial, and begins those that are due.
    pub(super) async fn next(
        &mut self,
        classes: &PlatformStore<RendererClassSpec>,
        calls: &HubClient,
    ) -> DryRunResult {
        loop {
            if self.running.is_none() {
                self.start(classes, calls);
            }
            let due = self.due.values().min().filter(|_| self.running.is_none());
            let wake = due.copied().map(sleep_until);
            let doubts = self.check.as_mut().map(|check| check.doubts.recv());
            tokio::select! {
                Some(tried) = OptionFuture::from(self.running.as_mut()) => {
                    self.running = None;
                    return tried;
                }
                Some(Some(name)) = OptionFuture::from(doubts) => self.doubt(&name),
                Some(()) = OptionFuture::from(wake) => {}
                else => std::future::pending().await,
            }
        }
    }

    fn start(&mut self, classes: &PlatformStore<RendererClassSpec>, calls: &HubClient) {
        let now = Instant::now();
        let Some(check) = &self.check else { return };
        while let Some(name) = self
            .due
            .iter()
            .find(|(_, due)| **due <= now)
            .map(|(name, _)| name.clone())
        {
            self.due.remove(&name);
            let Some(class) = classes.get(&name) else { continue };
            let job = class
                .spec
                .as_ref()
                .and_then(|spec| specimen(&check.placement, spec));
            let Some(job) = job else { continue };
            self.last.insert(name.clone(), now);
            let (uid, generation) = (class.uid.clone(), class.generation);
            let objects = calls.objects().clone();
            self.running = Some(Box::pin(async move {
                let answer = objects.try_job(&job).await;
                DryRunResult {
                    name,
                    uid,
                    generation,
                    answer,
                }
            }));
            return;
        }
    }

    /// Takes in what came of a trial; whether the verdict on the class is another one now.
    pub(super) fn judge(&mut self, name: &str, answer: Result<(), CreateError>) -> bool {
        self.open.remove(name);
        let old = self.rejections.get(name).cloned();
        let key = name.to_owned();
        match answer {
            Ok(()) => {
                self.backoff.clear(&key);
                self.rejections.remove(name);
            }
            Err(CreateError {
                rejection: Some(objection),
                ..
            }) => {
                self.again(name);
                self.rejections.insert(key, objection);
            }
            // The class is not to blame, or the API server says no more; the next Job that is refused has it tried again.
            Err(CreateError {
                error: CallError::Forbidden | CallError::Invalid | CallError::NotFound,
                ..
            }) if old.is_none() => {}
            Err(_) => self.again(name),
        }
        self.rejections.get(name) != old.as_ref()
    }

    fn again(&mut self, name: &str) {
        let pause = self.backoff.failed(&name.to_owned()).max(PAUSE);
        self.due.insert(name.to_owned(), Instant::now() + pause);
    }

    /// Tells the platform operator of another verdict on a class.
    pub(super) fn tell_verdict(&self, name: &str, uid: String) {
        let objection = self.objection(name);
        let (reason, note) = if let Some(objection) = objection {
            tracing::warn!(class = name, why = %objection, "the API server does not accept the Jobs of this renderer class; its tasks wait");
            (Reason::JobRefused, refused(objection))
        } else {
            tracing::info!(
                class = name,
                "the API server accepts the Jobs of this renderer class again"
            );
            let note = "the API server accepts the Jobs of this class again";
            (Reason::Ready, note.to_owned())
        };
        if let Some(check) = &self.check {
            check.events.record(EventMessage {
                subject: EventSubject::Class(name.to_owned(), uid),
                is_warning: objection.is_some(),
                reason,
                note,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denied(name: &str) -> Result<(), CreateError> {
        Err(CreateError {
            error: CallError::Invalid,
            rejection: Some(AdmissionRejection::Policy(name.to_owned())),
        })
    }

    fn seconds_until(trials: &ClassDryRuns, name: &str) -> Option<u64> {
        let due = trials.due.get(name)?;
        Some(due.duration_since(Instant::now()).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_class_is_tried_again_at_growing_pauses_and_another_when_a_job_was_refused() {
        let mut trials = ClassDryRuns::default();
        assert!(trials.judge("a", denied("p")), "it is news");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pauses.extend(seconds_until(&trials, "a"));
            assert!(!trials.judge("a", denied("p")), "it is no news");
        }
        assert!(
            pauses[0] == 5 && pauses[11] > 100 && pauses.iter().all(|pause| *pause <= 300),
            "{pauses:?}"
        );
        assert!(trials.judge("a", denied("q")), "another policy is news");
        trials.due.clear();
        assert!(trials.judge("a", Ok(())) && trials.objection("a").is_none());
        assert_eq!(seconds_until(&trials, "a"), None);
        // Something else that is wrong says nothing of the class, and nothing of it is asked again.
        assert!(!trials.judge("a", Err(CallError::Forbidden.into())));
        assert_eq!(seconds_until(&trials, "a"), None);
        assert!(!trials.judge("a", Err(CallError::Timeout.into())));
        assert_eq!(seconds_until(&trials, "a"), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn doubts_without_end_cost_a_trial_every_few_seconds() {
        let mut trials = ClassDryRuns::default();
        trials.doubt("a");
        assert_eq!(seconds_until(&trials, "a"), Some(0));
        trials.last.insert("a".to_owned(), Instant::now());
        trials.due.clear();
        trials.doubt("a");
        trials.doubt("a");
        assert_eq!(seconds_until(&trials, "a"), Some(5));
    }
}
