//! Creates the config Secret and the Job of a task, and adopts a Job of its earlier attempt where it is provably the task's.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Secret;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::api::ObjectMeta;

use crate::api::conditions::Reason;
use crate::api::labels::{HUB_ID, MANAGED_BY, MANAGED_BY_VALUE, TASK_UID};
use crate::api::zeroized::ZeroizedSecret;
use crate::kubernetes::apply::{CallError, CreateError};
use crate::kubernetes::watch::{JobMetadata, job_metadata};
use crate::plan::platform::catalog::ResolvedTask;
use crate::plan::task::admission_rejection::AdmissionRejection;
use crate::plan::task::adoption::{ObjectCreator, is_its, maker};
use crate::plan::task::job::{TaskManifests, manifests};
use crate::plan::task::job_state::CompletionHint;
use crate::plan::task::model::Task;
use crate::plan::task::{CreateBlocked, JobState};

use super::super::outcome::{JobUpdate, ReconcileError, SecretUpdate};
use super::Reconciler;

impl Reconciler<'_> {
    pub(super) async fn create(
        &mut self,
        task: &Arc<Task>,
        mut resolved: ResolvedTask,
    ) -> Result<(), ReconcileError> {
        // Held until the Job is there, by which a sweep sees that they are used.
        let Some(_held) = self.ensure_pull_secrets(task, &mut resolved).await? else {
            return Ok(());
        };
        let TaskManifests { secret, job } = manifests(&self.placement, task, &resolved);
        // It may hold a login.
        let secret = ZeroizedSecret::from(secret);
        let objects = self.objects()?;
        self.outcome.remote.was_sent = true;
        // Also where a Secret is known: it may be of an earlier attempt, with another destination.
        let created = objects.create_secret(&secret).await;
        let Some(uid) = self.created_secret(task, &secret, created).await? else {
            return Ok(());
        };
        let uid = self.checked_uid(uid)?;
        (self.view.secret, self.outcome.secret) = (Some(uid.clone()), SecretUpdate::Known(uid));
        let created = objects.create_job(&job).await;
        let mark = match created {
            Ok(uid) => mark_of(&job.metadata, self.checked_uid(uid)?),
            Err(declined) if declined.error == CallError::AlreadyExists => {
                self.existing_job(task, &job.metadata).await?
            }
            Err(declined) => return self.not_created(task, &declined, true),
        };
        let Some(mark) = mark else { return Ok(()) };
        self.view.job = JobState::Seen {
            uid: mark.uid.clone(),
            spec_hash: mark.spec_hash.clone(),
            chart_url: mark.chart_url.clone(),
            may_have_ended: mark.hint != CompletionHint::No,
        };
        self.outcome.job = JobUpdate::Known(mark);
        Ok(())
    }

    /// UID of the config Secret: of the one just created, which replaces any that is provably the hub's; or, where the Job exists
    /// already, of the one that the Job uses.
    async fn created_secret(
        &mut self,
        task: &Task,
        wanted: &Secret,
        created: Result<String, CreateError>,
    ) -> Result<Option<String>, ReconcileError> {
        match created {
            Ok(uid) => return Ok(Some(uid)),
            Err(declined) if declined.error == CallError::AlreadyExists => {}
            Err(declined) => return self.not_created(task, &declined, false).map(|()| None),
        }
        let objects = self.objects()?;
        let name = wanted.metadata.name.as_deref().unwrap_or_default();
        // What was deleted between the two calls is created again by the next reconcile.
        let found = objects
            .get_secret_metadata(name)
            .await?
            .ok_or(CallError::Conflict)?;
        let Some(uid) = found.uid.clone().filter(|_| self.is_own_object(task, &found)) else {
            self.view.create_blocked = Some(CreateBlocked::NameConflict);
            return Ok(None);
        };
        // The answer to the creation of a Job may have been lost, and its pod be about to read the Secret.
        if objects.get_job(name).await?.is_some() {
            return Ok(Some(uid));
        }
        // Its marks say nothing of its content: it may be of an earlier attempt with another destination, or of another writer.
        objects.delete_secret(name, &uid).await?;
        let created = objects.create_secret(wanted).await;
        Ok(Some(created.map_err(|declined| declined.error)?))
    }

    /// Records what keeps an object from being created, unless it was only a failed call.
    pub(super) fn not_created(
        &mut self,
        task: &Task,
        declined: &CreateError,
        is_job: bool,
    ) -> Result<(), ReconcileError> {
        let is_denied = declined.rejection.is_some() || (is_job && declined.error == CallError::Invalid);
        let held = match declined.error {
            _ if is_denied => CreateBlocked::JobRefused,
            CallError::Forbidden | CallError::NotFound => CreateBlocked::NotAdmitted,
            error => return Err(error.into()),
        };
        self.view.create_blocked = Some(held);
        if held == CreateBlocked::JobRefused {
            self.report_refusal(task, declined.rejection.as_ref());
        }
        Ok(())
    }

    /// Reports a refusal to the platform operator, once for each task, and requests a dry run of the class.
    fn report_refusal(&self, task: &Task, objection: Option<&AdmissionRejection>) {
        let class = task
            .decoded
            .spec
            .as_ref()
            .and_then(|spec| self.offers.catalog.class_name(spec));
        let is_known = |c: &Condition| c.reason == Reason::JobRefused.as_str();
        if !task.status.conditions.iter().any(is_known) {
            let why = objection.map_or_else(|| "it names no cause".to_owned(), AdmissionRejection::to_string);
            tracing::warn!(
                task = %task.id.uid, class = class.unwrap_or("none, so the hub's own"), why,
                "the API server does not accept the Job of a task, or its config Secret; it is tried again"
            );
        }
        if let Some(class) = class.filter(|_| self.placement.cluster.is_none()) {
            // A class that finds the channel full gets its dry run after the next refusal.
            _ = self.context.dry_run_requests.try_send(class.to_owned());
        }
    }

    /// The Job of the name, if it is provably the hub's.
    async fn existing_job(
        &mut self,
        task: &Task,
        wanted: &ObjectMeta,
    ) -> Result<Option<JobMetadata>, ReconcileError> {
        let name = wanted.name.as_deref().unwrap_or_default();
        let found = self.objects()?.get_job(name).await?.ok_or(CallError::Conflict)?;
        let mark = self
            .own_mark(&found.metadata, found.hint)
            .filter(|_| self.is_own_object(task, &found.metadata));
        if mark.is_none() {
            self.view.create_blocked = Some(CreateBlocked::NameConflict);
        }
        Ok(mark)
    }

    /// Puts the hub's labels back on the Job that was recorded as the task's, where another writer took them: the hub does not
    /// see it any more, and it goes on.
    pub(super) async fn mark_again(
        &self,
        task: &Task,
        name: &str,
        meta: &mut ObjectMeta,
    ) -> Result<(), ReconcileError> {
        let recorded = task.status.job_ref.as_ref().and_then(|job| job.uid.as_deref());
        let is_lost = maker(&self.context.hub_placement.hub_id, meta) == ObjectCreator::Foreign;
        let (Some(uid), Some(version)) = (&meta.uid, &meta.resource_version) else {
            return Ok(());
        };
        if !is_lost || recorded != Some(uid) {
            return Ok(());
        }
        self.objects()?.mark_job(name, uid, version, &task.id.uid).await?;
        let marks = [
            (MANAGED_BY, MANAGED_BY_VALUE),
            (HUB_ID, self.context.hub_placement.hub_id.as_str()),
            (TASK_UID, task.id.uid.as_str()),
        ];
        let labels = meta.labels.get_or_insert_default();
        labels.extend(marks.map(|(key, value)| (key.to_owned(), value.to_owned())));
        tracing::warn!(task = %task.id.uid, job = name, "the Job of a task had lost the hub's labels; they were put back");
        Ok(())
    }

    /// Whether an object is provably of exactly this task and spec, made by this hub or by the one that had the task before.
    fn is_own_object(&self, task: &Task, meta: &ObjectMeta) -> bool {
        is_its(
            &self.context.hub_placement.hub_id,
            meta,
            &task.id,
            &task.decoded.spec_hash,
        )
    }
}

/// A Job that was just made.
fn mark_of(made: &ObjectMeta, uid: String) -> Option<JobMetadata> {
    let made = ObjectMeta {
        uid: Some(uid),
        ..made.clone()
    };
    job_metadata(&made, CompletionHint::No)
}
