//! One reconcile over one task: decide, do the step, and decide again with what it brought, until there is nothing to do.

use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;
use tokio::sync::mpsc;

use crate::api::RegistrySpec;
use crate::api::labels::REGISTRY_HOST;
use crate::api::names::{TaskKind, job_name};
use crate::controllers::pull_copies::PullCopies;
use crate::controllers::verify::Verifier;
use crate::kubernetes::apply::HubClient;
use crate::kubernetes::events::EventRecorder;
use crate::kubernetes::pod_results::PodResults;
use crate::kubernetes::tenant::{IdentityError, TenantSessions, look_up};
use crate::kubernetes::write_fence::WriteFence;
use crate::plan::platform::catalog::{Catalog, CopiedCredentials};
use crate::plan::platform::feature_gates::FeatureGates;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::registry::judge_credential;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::pull_secrets::pull_failure::{ObservedPull, PullReport};
use crate::plan::remote::lost_cluster::{RemoteLeftovers, TaskTimeouts};
use crate::plan::remote::site::RemoteTarget;
use crate::plan::task::job::{JobPlacement, overdue_at};
use crate::plan::task::job_state::PodTermination;
use crate::plan::task::model::Task;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::status_seal::SealKey;
use crate::plan::task::tenant::{
    MissingReference, NamedDestination, PushAccess, ReadIdentity, TenantDestination, TenantReference,
    no_account,
};
use crate::plan::task::verification::VerificationState;
use crate::plan::task::{JobState, ObservedTask, ReconcileStep, StepReason, decide};
use crate::remote::SiteClients;

use super::index::TaskView;
use super::outcome::{JobUpdate, ReconcileError, ReconcileOutcome, SecretUpdate};

mod create;
mod job;
mod pull_secrets;
mod remote;
mod statuses;

/// More steps than any life has; a plan that does not settle is an error, not a loop.
const MAX_STEPS: usize = 16;

/// What every reconcile needs.
pub struct ReconcileContext {
    /// Calls to the API server.
    pub hub_client: HubClient,
    /// What they go through, as do those to other clusters.
    pub fence: WriteFence,
    /// Events for people.
    pub events: EventRecorder,
    /// Termination messages of pods.
    pub pod_results: PodResults,
    /// Which pull Secrets are where.
    pub pull_copies: PullCopies,
    /// The namespace of the Secrets that classes name; without one they are where the Jobs run.
    pub pull_secret_namespace: Option<String>,
    /// Where Jobs run.
    pub hub_placement: JobPlacement,
    /// What statuses are sealed with.
    pub key: Arc<SealKey>,
    /// The sessions in which tenants' objects are read.
    pub sessions: Arc<TenantSessions>,
    /// What the platform lets tenants' references do.
    pub tenancy: TenancyPolicy,
    /// Ways to other clusters.
    pub site_clients: Arc<dyn SiteClients>,
    /// Features that are turned on.
    pub feature_gates: FeatureGates,
    /// How long the hub waits for a lost cluster.
    pub timeouts: TaskTimeouts,
    /// Asks registries what they hold.
    pub verifier: Verifier,
    /// Renderer classes whose Jobs may not be accepted any more.
    pub dry_run_requests: mpsc::Sender<String>,
    /// Images that are not pulled, or are again.
    pub pull_reports: mpsc::Sender<PullReport>,
}

/// Passes over a task until nothing is left to do now.
pub async fn reconcile(
    context: Arc<ReconcileContext>,
    offers: PlatformView,
    view: TaskView,
    has_slot: bool,
) -> ReconcileOutcome {
    let leftovers = view.remote.leftovers();
    let mut pass = Reconciler {
        context: &context,
        offers: &offers,
        view,
        pod_termination: None,
        image_pull: ObservedPull::Unseen,
        verification: None,
        tenant_destination: None,
        vouched: None,
        copied_credentials: None,
        target: None,
        placement: context.hub_placement.clone(),
        leftovers,
        has_slot,
        outcome: ReconcileOutcome::default(),
    };
    pass.take_verification_reply();
    if let Err(error) = pass.run().await {
        pass.outcome.error = Some(error);
    }
    pass.outcome.create_blocked = pass.view.create_blocked;
    let task = pass.view.task.as_ref().filter(|_| pass.target.is_some());
    pass.outcome.overdue_at = task.and_then(|task| overdue_at(task, &pass.view.job, &offers.catalog));
    let (error, held) = (pass.outcome.error, pass.outcome.create_blocked);
    tracing::debug!(
        error = error.map(ReconcileError::kind),
        stage = error.and_then(ReconcileError::stage),
        held = held.map(tracing::field::debug),
        "a pass over a task ends"
    );
    pass.outcome
}

/// What others than the tenant of a task offer it.
#[derive(Clone, Debug)]
pub struct PlatformView {
    /// The platform.
    pub catalog: Arc<Catalog>,
    /// Other namespaces.
    pub grants: Arc<ReferenceGrantIndex>,
}

/// One run over one task.
pub(super) struct Reconciler<'a> {
    context: &'a ReconcileContext,
    offers: &'a PlatformView,
    pub(super) view: TaskView,
    pub(super) pod_termination: Option<PodTermination>,
    /// What its pods wait for.
    image_pull: ObservedPull,
    /// The state of the verification.
    pub(super) verification: Option<VerificationState>,
    /// What the task's own destination turned out to be.
    tenant_destination: Option<Result<TenantDestination, Refusal>>,
    /// Whether the hub may act as the task's ServiceAccount.
    vouched: Option<Result<(), Refusal>>,
    /// The platform's credentials that are copied to another cluster.
    copied_credentials: Option<Result<CopiedCredentials, Refusal>>,
    /// Where its Job runs, as its spec says.
    target: Option<Result<RemoteTarget, Refusal>>,
    /// The same, as its objects need it.
    placement: JobPlacement,
    leftovers: RemoteLeftovers,
    has_slot: bool,
    pub(super) outcome: ReconcileOutcome,
}

impl Reconciler<'_> {
    async fn run(&mut self) -> Result<(), ReconcileError> {
        for _ in 0..MAX_STEPS {
            let Some(task) = self.task().await? else {
                self.outcome.is_gone = true;
                return Ok(());
            };
            self.resolve_site(&task);
            let step = self.decide(&task);
            if let ReconcileStep::Rest {
                wake,
                wants_slot,
                waits_for,
                wants_site,
            } = step
            {
                (self.outcome.wake, self.outcome.wants_slot) = (wake, wants_slot);
                (self.outcome.waits_for, self.outcome.remote.wants_site) = (waits_for, wants_site);
                self.outcome.remote.was_reached = self.site().is_reached();
                // Any other wait is for something else than the registry.
                let is_of_success = matches!(self.view.job, JobState::Read(_)) && self.site().is_reached();
                self.outcome.verify_again = wake.filter(|_| is_of_success);
                return Ok(());
            }
            let is_last = matches!(step, ReconcileStep::DeleteTask);
            self.execute(&task, step).await?;
            if is_last || self.outcome.is_gone || self.outcome.pending_verification.is_some() {
                return Ok(());
            }
        }
        Err(ReconcileError::Unsettled)
    }

    async fn task(&mut self) -> Result<Option<Arc<Task>>, ReconcileError> {
        if self.view.task.is_none() {
            let read = self.context.hub_client.get_task(&self.view.id).await?;
            let read = read.map(|task| Arc::new(self.believe(task)));
            (self.view.task, self.outcome.task) = (read.clone(), read);
        }
        Ok(self.view.task.clone())
    }

    fn decide(&self, task: &Task) -> ReconcileStep {
        let observed = ObservedTask {
            now: Timestamp::now(),
            task,
            job: &self.view.job,
            secret: self.view.secret.as_deref(),
            pod_termination: self.pod_termination.as_ref(),
            image_pull: &self.image_pull,
            verification: self.verification.as_ref(),
            catalog: &self.offers.catalog,
            tenancy: &self.context.tenancy,
            grants: &self.offers.grants,
            tenant_destination: self.tenant_destination.as_ref(),
            impersonation: self.vouched.as_ref(),
            placement: &self.placement,
            rendering: &self.context.hub_placement.namespace,
            target: self.target.as_ref(),
            site: self.site(),
            leftovers: self.leftovers,
            copied_credentials: self.copied_credentials.as_ref(),
            gates: &self.context.feature_gates,
            timeouts: self.context.timeouts,
            has_slot: self.has_slot,
            has_waited: self.view.has_waited,
            waiting_beside: self.view.waiting_beside,
            blocked: self.view.create_blocked,
            referrer: self.context.key.referrer(task),
            is_forged: self.view.is_forged && self.view.may_restore,
            removal: self.view.removal,
        };
        let step = decide(&observed);
        tracing::debug!(
            step = step.as_str(),
            why = StepReason::of(&observed, &step).as_str(),
            wake = step.wake().map(tracing::field::display),
            "the next step of a task"
        );
        step
    }

    async fn execute(&mut self, task: &Arc<Task>, step: ReconcileStep) -> Result<(), ReconcileError> {
        let calls = &self.context.hub_client;
        let name = job_name(&task.id.name, &task.id.uid);
        match step {
            ReconcileStep::AddFinalizer => {
                let (version, finalizers) = calls.add_finalizer(task).await?;
                self.apply_change(task, version, |t| t.finalizers = finalizers);
            }
            ReconcileStep::RemoveFinalizer => {
                let left = calls.remove_finalizer(task).await?;
                self.apply_change(task, task.resource_version.clone(), |t| t.finalizers = left);
            }
            ReconcileStep::DeleteTask => {
                calls.delete_task(&task.id).await?;
                // What follows, the finalizer's work, starts with the event of the deletion.
                self.outcome.is_gone = !task.has_finalizer();
                self.apply_change(task, task.resource_version.clone(), |t| t.deleting = true);
            }
            ReconcileStep::Load(copies) => {
                self.copied_credentials = Some(self.load_credentials(&copies).await?);
            }
            ReconcileStep::Abandon => self.record_leftovers(task).await?,
            ReconcileStep::Vouch(identity) => self.vouched = Some(self.check_identity(&identity).await?),
            ReconcileStep::LookUp(reference) => {
                self.tenant_destination = Some(self.look_up(task, &reference).await?);
            }
            ReconcileStep::Create(resolved) => {
                self.create(task, *resolved).await?;
                self.look_for_rights(task).await?;
            }
            ReconcileStep::ReadJob => self.read_job(task, &name).await?,
            ReconcileStep::LookAtPods => self.look_at_pods(task).await?,
            ReconcileStep::Verify(request) => self.put_aside(*request),
            ReconcileStep::WriteStatus(status) => self.write_status(task, *status).await?,
            ReconcileStep::RestoreStatus => self.restore_status(task).await?,
            ReconcileStep::DeleteJob(uid) => self.delete_job(&name, uid).await?,
            ReconcileStep::DeleteSecret(uid) => self.delete_secret(&name, &uid).await?,
            ReconcileStep::Rest { .. } => {}
        }
        Ok(())
    }

    async fn delete_job(&mut self, name: &str, uid: String) -> Result<(), ReconcileError> {
        let answer = self.objects()?.delete_job(name, &uid).await;
        if self.was_removed(answer)? {
            (self.view.job, self.outcome.job) = (JobState::Gone, JobUpdate::Deleted(uid));
        }
        Ok(())
    }

    async fn delete_secret(&mut self, name: &str, uid: &str) -> Result<(), ReconcileError> {
        let answer = self.objects()?.delete_secret(name, uid).await;
        if self.was_removed(answer)? {
            (self.view.secret, self.outcome.secret) = (None, SecretUpdate::Deleted);
        }
        Ok(())
    }

    /// Applies a change that the hub itself made.
    fn apply_change(&mut self, task: &Arc<Task>, version: String, change: impl FnOnce(&mut Task)) {
        let mut task = Task::clone(task);
        task.resource_version = version;
        change(&mut task);
        let task = Arc::new(task);
        (self.view.task, self.outcome.task) = (Some(Arc::clone(&task)), Some(task));
    }

    /// The destination that a task names. A platform's own task names a Secret in the namespace of the platform's credentials.
    async fn look_up(
        &self,
        task: &Task,
        reference: &TenantReference,
    ) -> Result<Result<TenantDestination, Refusal>, ReconcileError> {
        if task.id.kind == TaskKind::RenderTask {
            return Ok(look_up(&self.context.sessions, reference).await?);
        }
        let NamedDestination::Host(spec) = &reference.named else {
            return Ok(Err(reference.refusal(MissingReference::Registry)));
        };
        let secret = match &spec.push_secret_ref {
            Some(named) => self.context.hub_client.get_secret(&named.name).await?,
            None => None,
        };
        let named = spec.push_secret_ref.as_ref();
        let judged = judge_credential(named.map(|n| n.name.as_str()), &spec.hostname, secret.as_deref());
        if judged.is_unbound {
            tracing::warn!(task = %task.id.uid, annotation = REGISTRY_HOST, "the task's push Secret does not say which host it is for");
        }
        Ok(Ok(TenantDestination {
            spec: RegistrySpec::clone(spec),
            access: PushAccess::Mounted(judged.credential),
            certificates: None,
        }))
    }

    /// Whether the hub may act as the identity that a task names.
    async fn check_identity(&self, identity: &ReadIdentity) -> Result<Result<(), Refusal>, ReconcileError> {
        match self.context.sessions.session(identity).await {
            Ok(_) => Ok(Ok(())),
            Err(IdentityError::Denied) => Ok(Err(no_account(identity))),
            Err(IdentityError::Call(error)) => Err(error.into()),
        }
    }
}
