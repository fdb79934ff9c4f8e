//! One pass over one task: decide, do the step, and decide again with what it brought, until there is nothing to do.

use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

use crate::api::labels::REGISTRY_HOST;
use crate::api::names::{TaskKind, job_name};
use crate::controllers::verify::Verifier;
use crate::kubernetes::apply::Calls;
use crate::kubernetes::events::Events;
use crate::kubernetes::gate::Gate;
use crate::kubernetes::notes::Notes;
use crate::kubernetes::tenant::{Identities, IdentityError, look_up};
use crate::kubernetes::watch::pod_task;
use crate::plan::platform::catalog::{Carried, Catalog, Refusal};
use crate::plan::platform::gates::Gates;
use crate::plan::platform::grants::Grants;
use crate::plan::platform::registry::judge;
use crate::plan::platform::tenancy::Tenancy;
use crate::plan::remote::lost::{Leftovers, Patience};
use crate::plan::remote::placement::Target;
use crate::plan::task::job::Place;
use crate::plan::task::model::Task;
use crate::plan::task::outcome::{JobReport, PodNote, Verdict, read_job, read_pod};
use crate::plan::task::proof::Proof;
use crate::plan::task::seal::SealKey;
use crate::plan::task::tenant::{Access, Missing, Named, Own, Reader, Reference, no_account};
use crate::plan::task::{JobState, Observed, Step, Why, decide};
use crate::remote::Seats;

use super::index::View;
use super::outcome::{JobNews, Outcome, SecretNews, WorkError};

mod abroad;
mod claims;
mod create;
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
    /// What they go through, as do those to other clusters.
    pub gate: Gate,
    /// Events for people.
    pub events: Events,
    /// Last words of pods.
    pub notes: Notes,
    /// Where Jobs run.
    pub place: Place,
    /// What statuses are sealed with.
    pub key: SealKey,
    /// Who reads what tenants name.
    pub identities: Arc<Identities>,
    /// What the platform lets tenants' references do.
    pub tenancy: Tenancy,
    /// Ways to other clusters.
    pub seats: Arc<dyn Seats>,
    /// Features that are turned on.
    pub gates: Gates,
    /// How long the hub waits for a lost cluster.
    pub patience: Patience,
    /// Asks registries what they hold.
    pub verifier: Verifier,
    /// Renderer classes whose Jobs may not be accepted any more.
    pub doubts: mpsc::Sender<String>,
}

/// Passes over a task until nothing is left to do now.
pub async fn work(context: Arc<Context>, offers: Offers, view: View, has_slot: bool) -> Outcome {
    let leftovers = view.abroad.leftovers();
    let mut pass = Pass {
        context: &context,
        offers: &offers,
        view,
        note: None,
        proof: None,
        own: None,
        vouched: None,
        carried: None,
        target: None,
        place: context.place.clone(),
        leftovers,
        has_slot,
        outcome: Outcome::default(),
    };
    pass.take_answer();
    if let Err(error) = pass.run().await {
        pass.outcome.error = Some(error);
    }
    pass.outcome.held = pass.view.held;
    let (error, held) = (pass.outcome.error, pass.outcome.held);
    tracing::debug!(
        error = error.map(WorkError::kind),
        stage = error.and_then(WorkError::stage),
        held = held.map(tracing::field::debug),
        "a pass over a task ends"
    );
    pass.outcome
}

/// What others than the tenant of a task offer it.
#[derive(Clone, Debug)]
pub struct Offers {
    /// The platform.
    pub catalog: Arc<Catalog>,
    /// Other namespaces.
    pub grants: Arc<Grants>,
}

struct Pass<'a> {
    context: &'a Context,
    offers: &'a Offers,
    view: View,
    note: Option<PodNote>,
    /// What is known of the registry's word on it.
    proof: Option<Proof>,
    /// What the task's own destination turned out to be.
    own: Option<Result<Own, Refusal>>,
    /// Whether the hub may act as the task's ServiceAccount.
    vouched: Option<Result<(), Refusal>>,
    /// What of the platform's goes along to another cluster.
    carried: Option<Result<Carried, Refusal>>,
    /// Where its Job runs, as its spec says.
    target: Option<Result<Target, Refusal>>,
    /// The same, as its objects need it.
    place: Place,
    leftovers: Leftovers,
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
            self.find_place(&task);
            let step = self.decide(&task);
            if let Step::Rest {
                wake,
                wants_slot,
                waits_for,
                wants_site,
            } = step
            {
                (self.outcome.wake, self.outcome.wants_slot) = (wake, wants_slot);
                (self.outcome.waits_for, self.outcome.abroad.wants_site) = (waits_for, wants_site);
                self.outcome.abroad.was_reached = self.site().is_reached();
                return Ok(());
            }
            let is_last = matches!(step, Step::DeleteTask);
            self.act(&task, step).await?;
            if is_last || self.outcome.is_gone || self.outcome.claim.is_some() {
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
        let observed = Observed {
            now: Timestamp::now(),
            task,
            job: &self.view.job,
            secret: self.view.secret.as_deref(),
            note: self.note.as_ref(),
            proof: self.proof.as_ref(),
            catalog: &self.offers.catalog,
            tenancy: &self.context.tenancy,
            grants: &self.offers.grants,
            own: self.own.as_ref(),
            vouched: self.vouched.as_ref(),
            place: &self.place,
            rendering: &self.context.place.namespace,
            target: self.target.as_ref(),
            site: self.site(),
            leftovers: self.leftovers,
            carried: self.carried.as_ref(),
            gates: &self.context.gates,
            patience: self.context.patience,
            has_slot: self.has_slot,
            has_waited: self.view.has_waited,
            waiting_beside: self.view.waiting_beside,
            held: self.view.held,
            is_forged: self.view.is_forged && self.view.may_restore,
            removal: self.view.removal,
        };
        let step = decide(&observed);
        tracing::debug!(
            step = step.as_str(),
            why = Why::of(&observed, &step).as_str(),
            wake = step.wake().map(tracing::field::display),
            "the next step of a task"
        );
        step
    }

    async fn act(&mut self, task: &Arc<Task>, step: Step) -> Result<(), WorkError> {
        let calls = &self.context.calls;
        let name = job_name(&task.id.name, &task.id.uid);
        match step {
            Step::AddFinalizer => {
                let (version, finalizers) = calls.add_finalizer(task).await?;
                self.changed(task, version, |t| t.finalizers = finalizers);
            }
            Step::RemoveFinalizer => {
                let left = calls.remove_finalizer(task).await?;
                self.changed(task, task.resource_version.clone(), |t| t.finalizers = left);
            }
            Step::DeleteTask => {
                calls.delete_task(&task.id).await?;
                // What follows, the finalizer's work, starts with the event of the deletion.
                self.outcome.is_gone = !task.is_finalized();
                self.changed(task, task.resource_version.clone(), |t| t.deleting = true);
            }
            Step::Load(cargo) => self.carried = Some(self.load(&cargo).await?),
            Step::Abandon => self.abandon(task).await?,
            Step::Vouch(reader) => self.vouched = Some(self.vouch(&reader).await?),
            Step::LookUp(reference) => self.own = Some(self.look_up(task, &reference).await?),
            Step::Create(resolved) => {
                self.create(task, &resolved).await?;
                self.look_for_rights(task).await?;
            }
            Step::ReadJob => self.read_job(task, &name).await?,
            Step::Verify(inquiry) => self.claim(*inquiry),
            Step::WriteStatus(status) => self.write_status(task, *status).await?,
            Step::RestoreStatus => self.restore_status(task).await?,
            Step::DeleteJob(uid) => self.delete_job(&name, uid).await?,
            Step::DeleteSecret(uid) => self.delete_secret(&name, &uid).await?,
            Step::Rest { .. } => {}
        }
        Ok(())
    }

    async fn delete_job(&mut self, name: &str, uid: String) -> Result<(), WorkError> {
        let answer = self.objects()?.delete_job(name, &uid).await;
        if self.was_removed(answer)? {
            (self.view.job, self.outcome.job) = (JobState::Gone, JobNews::Deleted(uid));
        }
        Ok(())
    }

    async fn delete_secret(&mut self, name: &str, uid: &str) -> Result<(), WorkError> {
        let answer = self.objects()?.delete_secret(name, uid).await;
        if self.was_removed(answer)? {
            (self.view.secret, self.outcome.secret) = (None, SecretNews::Deleted);
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

    /// The destination that a task names. A platform's own task names a Secret beside the platform's credentials.
    async fn look_up(&self, task: &Task, reference: &Reference) -> Result<Result<Own, Refusal>, WorkError> {
        if task.id.kind == TaskKind::RenderTask {
            return Ok(look_up(&self.context.identities, reference).await?);
        }
        let Named::Host(spec) = &reference.named else {
            return Ok(Err(reference.refusal(Missing::Registry)));
        };
        let secret = match &spec.push_secret_ref {
            Some(named) => self.context.calls.get_secret(&named.name).await?,
            None => None,
        };
        let named = spec.push_secret_ref.as_ref();
        let judged = judge(named.map(|n| n.name.as_str()), &spec.hostname, secret.as_deref());
        if judged.is_unbound {
            tracing::warn!(task = %task.id.uid, annotation = REGISTRY_HOST, "the task's push Secret does not say which host it is for");
        }
        Ok(Ok(Own {
            spec: spec.clone(),
            access: Access::Mounted(judged.credential),
            certificates: None,
        }))
    }

    /// Whether the hub may act as whom a task names.
    async fn vouch(&self, reader: &Reader) -> Result<Result<(), Refusal>, WorkError> {
        match self.context.identities.session(reader).await {
            Ok(_) => Ok(Ok(())),
            Err(IdentityError::Denied) => Ok(Err(no_account(reader))),
            Err(IdentityError::Call(error)) => Err(error.into()),
        }
    }

    async fn read_job(&mut self, task: &Task, name: &str) -> Result<(), WorkError> {
        let asked = Instant::now();
        let mut job = self.objects()?.get_job(name).await?;
        if let Some(job) = &mut job {
            self.mark_again(task, name, &mut job.meta).await?;
        }
        let mark = job
            .as_ref()
            .and_then(|job| self.own_mark(&job.meta, job.hint))
            .filter(|m| m.task == self.view.id.uid);
        let report = job.as_ref().and_then(|job| read_job(&job.meta, &job.status));
        if let (Some(mark), Some(report)) = (mark, report) {
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
        let is_own = |pod: &Pod| pod_task(&pod.metadata).is_some();
        let look = |pod: &Pod| read_pod(pod).filter(|note| is_own(pod) && fits(note));
        let notes = self.objects()?.list_pods(uid, look).await?;
        Ok(notes.into_iter().max_by_key(|note| note.created))
    }
}
