//! One pass over one task: decide, do the step, and decide again with what it brought, until there is nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::labels::{DESTINATION, FINALIZER, HUB_ID, SPEC_HASH, TASK_UID};
use crate::apply::{CallError, Calls};
use crate::events::Events;
use crate::names::job_name;
use crate::notes::Notes;
use crate::plan::catalog::{Catalog, Resolved};
use crate::plan::job::{Manifests, Place, manifests};
use crate::plan::outcome::{EndHint, JobReport, PodNote, Verdict, read_job, read_pod};
use crate::plan::seal::SealKey;
use crate::plan::task::Task;
use crate::plan::{Held, JobState, Observed, Step, decide};
use crate::watch::{JobMark, job_mark, pod_task};

use super::index::View;
use super::outcome::{JobNews, Outcome, SecretNews, WorkError};

mod statuses;

/// More steps than any life has; a plan that does not settle is an error, not a loop.
const MAX_STEPS: usize = 16;

/// Longest wait for the event of a pod whose Job is known to have ended; they are written within moments.
const LATE_NOTE: Duration = Duration::from_millis(500);

/// What every pass needs.
#[derive(Debug)]
pub struct Context {
    /// Calls to the API server.
    pub calls: Calls,
    /// Events for people.
    pub events: Events,
    /// Last words of pods.
    pub notes: Notes,
    /// Where Jobs run.
    pub place: Place,
    /// What statuses are sealed with.
    pub key: SealKey,
}

/// Passes over a task until nothing is left to do now.
pub async fn work(context: Arc<Context>, catalog: Arc<Catalog>, view: View, has_slot: bool) -> Outcome {
    let mut pass = Pass {
        context: &context,
        catalog: &catalog,
        view,
        note: None,
        has_slot,
        outcome: Outcome::default(),
    };
    if let Err(error) = pass.run().await {
        pass.outcome.error = Some(error);
    }
    pass.outcome.held = pass.view.held;
    pass.outcome
}

struct Pass<'a> {
    context: &'a Context,
    catalog: &'a Catalog,
    view: View,
    note: Option<PodNote>,
    has_slot: bool,
    outcome: Outcome,
}

impl Pass<'_> {
    async fn run(&mut self) -> Result<(), WorkError> {
        for _ in 0..MAX_STEPS {
            let Some(task) = self.task().await? else {
                self.outcome.is_gone = true;
                return Ok(());
            };
            let step = self.decide(&task);
            if let Step::Rest { wake, wants_slot } = step {
                (self.outcome.wake, self.outcome.wants_slot) = (wake, wants_slot);
                return Ok(());
            }
            let is_last = matches!(step, Step::DeleteTask);
            self.act(&task, step).await?;
            if is_last || self.outcome.is_gone {
                return Ok(());
            }
        }
        Err(WorkError::Unsettled)
    }

    async fn task(&mut self) -> Result<Option<Arc<Task>>, WorkError> {
        if self.view.task.is_none() {
            let read = self.context.calls.get_task(&self.view.id).await?;
            let read = read.map(|task| Arc::new(self.believe(task)));
            (self.view.task, self.outcome.task) = (read.clone(), read);
        }
        Ok(self.view.task.clone())
    }

    fn decide(&self, task: &Task) -> Step {
        decide(&Observed {
            now: Timestamp::now(),
            task,
            job: &self.view.job,
            secret: self.view.secret.as_deref(),
            note: self.note.as_ref(),
            catalog: self.catalog,
            place: &self.context.place,
            has_slot: self.has_slot,
            has_waited: self.view.has_waited,
            held: self.view.held,
            is_forged: self.view.is_forged && self.view.may_restore,
        })
    }

    async fn act(&mut self, task: &Arc<Task>, step: Step) -> Result<(), WorkError> {
        let calls = &self.context.calls;
        let name = job_name(&task.id.name, &task.id.uid);
        match step {
            Step::AddFinalizer => {
                let version = calls.add_finalizer(task).await?;
                self.changed(task, version, |t| t.finalizers.push(FINALIZER.to_owned()));
            }
            Step::RemoveFinalizer => {
                calls.remove_finalizer(task).await?;
                self.changed(task, task.resource_version.clone(), |t| {
                    t.finalizers.retain(|f| f != FINALIZER);
                });
            }
            Step::DeleteTask => {
                calls.delete_task(&task.id).await?;
                // What follows, the finalizer's work, starts with the event of the deletion.
                self.outcome.is_gone = !task.is_finalized();
                self.changed(task, task.resource_version.clone(), |t| t.deleting = true);
            }
            Step::Create(resolved) => self.create(task, &resolved).await?,
            Step::ReadJob => self.read_job(&name).await?,
            Step::WriteStatus(status) => self.write_status(task, *status).await?,
            Step::RestoreStatus => self.restore_status(task).await?,
            Step::DeleteJob(uid) => {
                calls.delete_job(&name, &uid).await?;
                self.view.job = JobState::Gone;
                self.outcome.job = JobNews::Deleted(uid);
            }
            Step::DeleteSecret(uid) => {
                calls.delete_secret(&name, &uid).await?;
                (self.view.secret, self.outcome.secret) = (None, SecretNews::Deleted);
            }
            Step::Rest { .. } => {}
        }
        Ok(())
    }

    /// Takes in a change that the hub itself made.
    fn changed(&mut self, task: &Arc<Task>, version: String, change: impl FnOnce(&mut Task)) {
        let mut task = Task::clone(task);
        task.resource_version = version;
        change(&mut task);
        let task = Arc::new(task);
        (self.view.task, self.outcome.task) = (Some(Arc::clone(&task)), Some(task));
    }

    async fn create(&mut self, task: &Arc<Task>, resolved: &Resolved) -> Result<(), WorkError> {
        let Manifests { secret, job } = manifests(&self.context.place, task, resolved);
        // Also where a Secret is known: it may be of an earlier attempt, with another destination.
        let created = self.context.calls.create_secret(&secret).await;
        let Some(uid) = self.created_secret(task, &secret, created).await? else {
            return Ok(());
        };
        (self.view.secret, self.outcome.secret) = (Some(uid.clone()), SecretNews::Known(uid));
        let created = self.context.calls.create_job(&job).await;
        let mark = match created {
            Ok(uid) => job_mark(&ObjectMeta {
                uid: Some(uid),
                managed_fields: None,
                ..job.metadata.clone()
            })
            .map(|mark| JobMark {
                hint: EndHint::No,
                ..mark
            }),
            Err(CallError::AlreadyExists) => self.existing_job(task, &job.metadata).await?,
            Err(CallError::Invalid) => {
                self.view.held = Some(Held::JobRefused);
                return Ok(());
            }
            Err(CallError::Forbidden | CallError::NotFound) => {
                self.view.held = Some(Held::NotAdmitted);
                return Ok(());
            }
            Err(error) => return Err(error.into()),
        };
        let Some(mark) = mark else { return Ok(()) };
        self.view.job = JobState::Seen {
            uid: mark.uid.clone(),
            spec_hash: mark.spec_hash.clone(),
            chart_url: mark.chart_url.clone(),
            may_have_ended: mark.hint != EndHint::No,
        };
        self.outcome.job = JobNews::Known(mark);
        Ok(())
    }

    /// UID of the config Secret: the one just made, or one that is provably ours and has the same destination.
    async fn created_secret(
        &mut self,
        task: &Task,
        wanted: &Secret,
        created: Result<String, CallError>,
    ) -> Result<Option<String>, WorkError> {
        match created {
            Ok(uid) => return Ok(Some(uid)),
            Err(CallError::AlreadyExists) => {}
            Err(CallError::Forbidden | CallError::NotFound) => {
                self.view.held = Some(Held::NotAdmitted);
                return Ok(None);
            }
            Err(error) => return Err(error.into()),
        }
        let calls = &self.context.calls;
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        // What went between the two calls is made anew by the next pass.
        let found = calls
            .get_secret_metadata(name)
            .await?
            .ok_or(CallError::Conflict)?;
        let Some(uid) = found.uid.clone().filter(|_| self.is_ours(task, &found)) else {
            self.view.held = Some(Held::NameConflict);
            return Ok(None);
        };
        if has_same(DESTINATION, &found, &wanted.metadata) {
            return Ok(Some(uid));
        }
        // No Job uses it, because one would have been found; a Job never gets it with a credential of now.
        calls.delete_secret(name, &uid).await?;
        Ok(Some(calls.create_secret(wanted).await?))
    }

    /// The Job that has the name, if it is provably ours.
    async fn existing_job(&mut self, task: &Task, wanted: &ObjectMeta) -> Result<Option<JobMark>, WorkError> {
        let name = wanted.name.as_deref().unwrap_or_default();
        let found = self
            .context
            .calls
            .get_job(name)
            .await?
            .ok_or(CallError::Conflict)?
            .metadata;
        let mark = job_mark(&found).filter(|_| self.is_ours(task, &found));
        if mark.is_none() {
            self.view.held = Some(Held::NameConflict);
        }
        Ok(mark)
    }

    /// Whether an object carries this hub's mark for exactly this task and spec.
    fn is_ours(&self, task: &Task, meta: &ObjectMeta) -> bool {
        let label = |key: &str| meta.labels.as_ref().and_then(|l| l.get(key)).map(String::as_str);
        let hash = meta.annotations.as_ref().and_then(|a| a.get(SPEC_HASH));
        label(HUB_ID) == Some(self.context.place.hub_id.as_str())
            && label(TASK_UID) == Some(task.id.uid.as_str())
            && hash.is_some_and(|hash| *hash == task.spec_hash)
    }

    async fn read_job(&mut self, name: &str) -> Result<(), WorkError> {
        let asked = Instant::now();
        let job = self.context.calls.get_job(name).await?;
        let mark = job
            .as_ref()
            .and_then(|j| job_mark(&j.metadata))
            .filter(|m| m.task == self.view.id.uid);
        if let (Some(mark), Some(report)) = (mark, job.as_ref().and_then(read_job)) {
            self.note = self.last_word(&report).await?;
            (self.view.job, self.outcome.job) = (JobState::Read(report), JobNews::Read(mark, asked));
        } else {
            (self.view.job, self.outcome.job) = (JobState::Gone, JobNews::Absent);
        }
        Ok(())
    }

    /// The word of the pod that ended the Job: as noted, else, where a pod did end and its event is late, as read.
    async fn last_word(&self, report: &JobReport) -> Result<Option<PodNote>, WorkError> {
        let has_succeeded = match report.verdict {
            Verdict::Running => return Ok(None),
            Verdict::Complete(_) => true,
            Verdict::Failed(..) => false,
        };
        let uid = &self.view.id.uid;
        if report.attempts == 0 {
            return Ok(self.context.notes.get(uid));
        }
        let fits = |note: &PodNote| note.succeeded == has_succeeded;
        if let Some(note) = self.context.notes.wait(uid, LATE_NOTE, fits).await {
            return Ok(Some(note));
        }
        let pods = self.context.calls.list_pods(uid).await?;
        let own = pods.iter().filter(|pod| pod_task(&pod.metadata).is_some());
        let notes = own.filter_map(read_pod).filter(fits);
        Ok(notes.max_by_key(|note| note.created))
    }
}

/// Whether two objects agree on an annotation.
fn has_same(annotation: &str, a: &ObjectMeta, b: &ObjectMeta) -> bool {
    let of = |meta: &ObjectMeta| {
        meta.annotations
            .as_ref()
            .and_then(|all| all.get(annotation))
            .cloned()
    };
    of(a).is_some() && of(a) == of(b)
}
