//! Asks the hub's own API server with a dry run whether it accepts the Jobs of each renderer class, and reports where it does not.
//!
//! A dry run follows when a class changes, when the API server refused a task's Job, and at growing intervals while it refuses the
//! class, because the hub watches no admission policies and webhooks. One runs at a time, beside the loop, because a webhook may be
//! slow.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use futures::future::{BoxFuture, OptionFuture};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

use crate::api::RendererClass;
use crate::api::conditions::Reason;
use crate::kubernetes::apply::{CallError, CreateError, HubClient};
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::platform::class::refused;
use crate::plan::queue::backoff::Backoff;
use crate::plan::task::admission_rejection::AdmissionRejection;
use crate::plan::task::job::{JobPlacement, specimen};

use super::kind_store::KindStore;

/// Shortest pause between two dry runs of one class.
const PAUSE: Duration = Duration::from_secs(5);

/// The clients and channels of dry runs.
#[derive(Debug)]
pub struct DryRunContext {
    placement: JobPlacement,
    events: EventRecorder,
    refused_classes: mpsc::Receiver<String>,
}

impl DryRunContext {
    /// Dry runs of Jobs with this placement, reported in `events`; `refused_classes` are the classes of tasks whose Job was
    /// refused.
    #[must_use]
    pub const fn new(
        place: JobPlacement,
        events: EventRecorder,
        refused_classes: mpsc::Receiver<String>,
    ) -> Self {
        Self {
            placement: place,
            events,
            refused_classes,
        }
    }
}

/// The result of a dry run.
#[derive(Debug)]
pub(super) struct DryRunResult {
    pub(super) name: String,
    pub(super) uid: String,
    pub(super) generation: i64,
    pub(super) answer: Result<(), CreateError>,
}

/// The dry runs of all classes.
#[derive(Default)]
pub(super) struct ClassDryRuns {
    check: Option<DryRunContext>,
    /// When the next dry run of a class is due.
    due: BTreeMap<String, Instant>,
    /// When its last dry run began.
    last: BTreeMap<String, Instant>,
    /// Classes without a result since they changed.
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

    /// Queues a class that is new, or whose spec is.
    pub(super) fn add(&mut self, name: &str) {
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

    /// Whether a class has had no result since it changed.
    pub(super) fn is_open(&self, name: &str) -> bool {
        self.open.contains(name)
    }

    /// What keeps the class's Jobs from being accepted.
    pub(super) fn rejection(&self, name: &str) -> Option<&AdmissionRejection> {
        self.rejections.get(name)
    }

    /// A Job of the class was refused.
    fn job_refused(&mut self, name: &str) {
        let now = Instant::now();
        let due = self.last.get(name).map_or(now, |last| *last + PAUSE).max(now);
        let due = self.due.get(name).map_or(due, |known| due.min(*known));
        self.due.insert(name.to_owned(), due);
    }

    /// Waits for the end of a dry run, and begins those that are due.
    pub(super) async fn next(
        &mut self,
        classes: &KindStore<RendererClass>,
        calls: &HubClient,
    ) -> DryRunResult {
        loop {
            if self.running.is_none() {
                self.start(classes, calls);
            }
            let due = self.due.values().min().filter(|_| self.running.is_none());
            let wake = due.copied().map(sleep_until);
            let refused_classes = self.check.as_mut().map(|check| check.refused_classes.recv());
            tokio::select! {
                Some(result) = OptionFuture::from(self.running.as_mut()) => {
                    self.running = None;
                    return result;
                }
                Some(Some(name)) = OptionFuture::from(refused_classes) => self.job_refused(&name),
                Some(()) = OptionFuture::from(wake) => {}
                else => std::future::pending().await,
            }
        }
    }

    fn start(&mut self, classes: &KindStore<RendererClass>, calls: &HubClient) {
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

    /// Records the result of a dry run; returns whether the verdict on the class changed.
    pub(super) fn record_answer(&mut self, name: &str, answer: Result<(), CreateError>) -> bool {
        self.open.remove(name);
        let old = self.rejections.get(name).cloned();
        let key = name.to_owned();
        match answer {
            Ok(()) => {
                self.backoff.clear(&key);
                self.rejections.remove(name);
            }
            Err(CreateError {
                rejection: Some(rejection),
                ..
            }) => {
                self.again(name);
                self.rejections.insert(key, rejection);
            }
            // The class is not at fault, or the API server gives no reason; the next refused Job starts another dry run.
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

    /// Reports a changed verdict on a class to the platform operator.
    pub(super) fn report_verdict(&self, name: &str, uid: String) {
        let rejection = self.rejection(name);
        let (reason, note) = if let Some(rejection) = rejection {
            tracing::warn!(class = name, why = %rejection, "the API server does not accept the Jobs of this renderer class; its tasks wait");
            (Reason::JobRefused, refused(rejection))
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
                subject: EventSubject::Object("RendererClass", ObjectKey::new("", name), uid),
                is_warning: rejection.is_some(),
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

    fn seconds_until(dry_runs: &ClassDryRuns, name: &str) -> Option<u64> {
        let due = dry_runs.due.get(name)?;
        Some(due.duration_since(Instant::now()).as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_refused_class_is_tried_again_at_growing_pauses_and_another_when_a_job_was_refused() {
        let mut dry_runs = ClassDryRuns::default();
        assert!(dry_runs.record_answer("a", denied("p")), "the verdict is new");
        let mut pauses = Vec::new();
        for _ in 0..12 {
            pauses.extend(seconds_until(&dry_runs, "a"));
            assert!(
                !dry_runs.record_answer("a", denied("p")),
                "the verdict is the same"
            );
        }
        assert!(
            pauses[0] == 5 && pauses[11] > 100 && pauses.iter().all(|pause| *pause <= 300),
            "{pauses:?}"
        );
        assert!(
            dry_runs.record_answer("a", denied("q")),
            "another policy is a new verdict"
        );
        dry_runs.due.clear();
        assert!(dry_runs.record_answer("a", Ok(())) && dry_runs.rejection("a").is_none());
        assert_eq!(seconds_until(&dry_runs, "a"), None);
        // Another fault is not the class's, and starts no dry run.
        assert!(!dry_runs.record_answer("a", Err(CallError::Forbidden.into())));
        assert_eq!(seconds_until(&dry_runs, "a"), None);
        assert!(!dry_runs.record_answer("a", Err(CallError::Timeout.into())));
        assert_eq!(seconds_until(&dry_runs, "a"), Some(5));
    }

    #[tokio::test(start_paused = true)]
    async fn endless_refusals_cost_a_dry_run_every_few_seconds() {
        let mut dry_runs = ClassDryRuns::default();
        dry_runs.job_refused("a");
        assert_eq!(seconds_until(&dry_runs, "a"), Some(0));
        dry_runs.last.insert("a".to_owned(), Instant::now());
        dry_runs.due.clear();
        dry_runs.job_refused("a");
        dry_runs.job_refused("a");
        assert_eq!(seconds_until(&dry_runs, "a"), Some(5));
    }
}
