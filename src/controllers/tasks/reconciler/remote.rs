//! What a reconcile needs to know and to do where its task runs on another cluster than the hub's.

#![warn(clippy::wildcard_enum_match_arm)]

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;

use crate::api::conditions::Reason;
use crate::api::names::{is_uid, job_name};
use crate::kubernetes::apply::{ApiTransport, CallError, TaskObjectClient, TransportStage};
use crate::kubernetes::events::{EventMessage, EventSubject};
use crate::kubernetes::watch::{JobMetadata, job_metadata};
use crate::plan::platform::catalog::{CopiedCredentials, CopyRequest};
use crate::plan::remote::ledger::{OrphanRecord, record_orphan};
use crate::plan::remote::lost_cluster::RemoteLeftovers;
use crate::plan::remote::placement::target;
use crate::plan::remote::site::{JobSiteState, KnownSite, Site, SiteState};
use crate::plan::task::adoption::{ObjectCreator, maker};
use crate::plan::task::job::JobPlacement;
use crate::plan::task::job_state::CompletionHint;
use crate::plan::task::model::Task;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::login;
use crate::plan::task::{CreateBlocked, CreatePermission};

use super::super::outcome::ReconcileError;
use super::{ReconcileContext, Reconciler};

/// ServiceAccount of pods on other clusters: it is in every namespace, and the pods hold no token of it.
const REMOTE_ACCOUNT: &str = "default";

impl ReconcileContext {
    /// Calls to the objects at a site, while that is up.
    #[must_use]
    pub fn objects_at(&self, site: &Site) -> Option<TaskObjectClient> {
        let transport = self.site_clients.client(site)?;
        let hub_id = self.hub_placement.hub_id.clone();
        Some(TaskObjectClient::new(
            transport,
            None,
            site.namespace.clone(),
            hub_id,
        ))
    }

    /// The way to a site for one reconcile, where there is one.
    ///
    /// # Errors
    /// When it is worth trying again, where the site may not be asked now.
    pub fn transport_for(&self, site: Option<&KnownSite>) -> Result<Option<Arc<dyn ApiTransport>>, Instant> {
        site.filter(|known| known.state == SiteState::Up)
            .map_or(Ok(None), |known| self.site_clients.reserve(&known.site))
    }
}

impl Reconciler<'_> {
    /// Resolves where the task's Job runs.
    pub(super) fn resolve_site(&mut self, task: &Task) {
        let spec = task.decoded.spec.as_ref();
        let target = spec.and_then(|spec| target(&task.id, spec, &self.context.tenancy).transpose());
        self.target = target;
        if let Some(KnownSite { site, .. }) = &self.view.remote.site {
            self.placement = JobPlacement {
                hub_id: self.context.hub_placement.hub_id.clone(),
                cluster: Some(site.cluster.to_string()),
                namespace: site.namespace.clone(),
                service_account: REMOTE_ACCOUNT.to_owned(),
            };
        }
    }

    /// The state of the Job's site.
    pub(in crate::controllers::tasks) fn site(&self) -> JobSiteState<'_> {
        match (&self.target, &self.view.remote.site) {
            (None, _) => JobSiteState::Hub,
            (Some(_), None) => JobSiteState::Unasked,
            (Some(_), Some(known)) => JobSiteState::At(&known.state, known.times),
        }
    }

    /// Calls to where the Job runs.
    pub(super) fn objects(&self) -> Result<TaskObjectClient, ReconcileError> {
        if self.target.is_none() {
            return Ok(self.context.hub_client.objects().clone());
        }
        let known = self.view.remote.site.as_ref();
        let site = &known.ok_or(ReconcileError::NotConnected)?.site;
        let way = self.view.remote.way.clone().ok_or(ReconcileError::NotConnected)?;
        let hub_id = self.context.hub_placement.hub_id.clone();
        Ok(TaskObjectClient::new(way, None, site.namespace.clone(), hub_id))
    }

    /// The UID of something that was made. One of another cluster is repeated only where it looks like one.
    pub(super) fn checked_uid(&self, uid: String) -> Result<String, ReconcileError> {
        if self.target.is_none() || is_uid(&uid) {
            Ok(uid)
        } else {
            Err(CallError::Transport(TransportStage::Decode).into())
        }
    }

    /// The Job's metadata. Values of another cluster are checked, and only those of the hub's own form are repeated.
    pub(super) fn own_mark(&self, metadata: &ObjectMeta, hint: CompletionHint) -> Option<JobMetadata> {
        let mark = job_metadata(metadata, hint)?;
        if self.target.is_none() {
            return Some(mark);
        }
        let is_a_hubs = maker(&self.context.hub_placement.hub_id, metadata) != ObjectCreator::Foreign;
        (is_uid(&mark.uid) && is_a_hubs).then_some(mark)
    }

    /// Whether something was removed. Objects that a cluster does not let the hub remove count as out of reach, so that no
    /// deletion waits for rights for ever.
    pub(super) fn was_removed(&mut self, answer: Result<(), CallError>) -> Result<bool, ReconcileError> {
        let reason = match answer {
            Ok(()) => return Ok(true),
            Err(CallError::Forbidden) => Reason::Forbidden,
            Err(CallError::Unauthorized) => Reason::Unauthorized,
            Err(error) => return Err(error.into()),
        };
        let Some(known) = self.view.remote.site.as_mut().filter(|_| self.target.is_some()) else {
            return Err(CallError::Forbidden.into());
        };
        (known.state, known.times.lost_since) = (SiteState::down(reason), Timestamp::now());
        Ok(false)
    }

    /// Checks whether another cluster refuses objects because the hub may not create them there: it answers a used-up quota with
    /// the same code. On the hub's own cluster the preflight checked the rights.
    pub(super) async fn look_for_rights(&mut self, task: &Task) -> Result<(), ReconcileError> {
        if self.target.is_none() || self.view.create_blocked != Some(CreateBlocked::NotAdmitted) {
            return Ok(());
        }
        let objects = self.objects()?;
        for right in [CreatePermission::Secrets, CreatePermission::Jobs] {
            if objects.lacks(right).await {
                let (cluster, what) = (self.placement.cluster.as_deref(), right.resource().1);
                tracing::warn!(task = %task.id.uid, cluster, what, "the hub may not create these on a cluster; it is tried again");
                self.view.create_blocked = Some(CreateBlocked::Forbidden(right));
                break;
            }
        }
        Ok(())
    }

    /// Reads the platform's credentials that are copied to another cluster.
    pub(super) async fn load_credentials(
        &self,
        copies: &CopyRequest,
    ) -> Result<Result<CopiedCredentials, Refusal>, ReconcileError> {
        let calls = &self.context.hub_client;
        let mut carried = CopiedCredentials {
            login: None,
            certificates: None,
        };
        if let Some((name, host)) = &copies.secret {
            let secret = calls.get_secret(name).await?;
            let Some(login) = secret.and_then(|secret| login(&secret, host).ok()) else {
                return Ok(Err(CopyRequest::without_secret()));
            };
            carried.login = Some(login);
        }
        if let Some((name, key)) = &copies.certificates {
            let map = calls.get_config_map(name).await?;
            let bundle = map.and_then(|map| map.data?.remove(key));
            let Some(bundle) = bundle.filter(|text| CopyRequest::fits(text)) else {
                return Ok(Err(CopyRequest::without_certificates()));
            };
            carried.certificates = Some(bundle);
        }
        Ok(Ok(carried))
    }

    /// Records in the ledger what may be left on an unreached cluster, as far as there is space, and reports it.
    pub(super) async fn record_leftovers(&mut self, task: &Arc<Task>) -> Result<(), ReconcileError> {
        let Some(KnownSite { site, .. }) = &self.view.remote.site else {
            self.leftovers = RemoteLeftovers::WrittenDown;
            return Ok(());
        };
        let recorded =
            |object: &Option<crate::api::TaskObjectReference>| object.as_ref().and_then(|o| o.uid.clone());
        let orphan = OrphanRecord {
            site: Arc::unwrap_or_clone(Arc::clone(site)),
            task: task.id.uid.clone(),
            tenant: task.id.namespace.clone(),
            name: job_name(&task.id.name, &task.id.uid),
            job_uid: self
                .view
                .job
                .uid()
                .map(str::to_owned)
                .or_else(|| recorded(&task.status.job_ref)),
            secret_uid: self
                .view
                .secret
                .clone()
                .or_else(|| recorded(&task.status.config_secret_ref)),
            since: Timestamp::now(),
        };
        let hub_client = &self.context.hub_client;
        let written = hub_client.write_ledger(&record_orphan(&orphan)).await?;
        self.outcome.remote.forgotten = written.forgotten;
        self.leftovers = RemoteLeftovers::WrittenDown;
        let is_recorded = written.refused == 0;
        self.context.events.record(EventMessage {
            subject: EventSubject::Task(task.id.clone()),
            is_warning: true,
            reason: Reason::TeardownForced,
            note: forced_deletion_note(is_recorded, &orphan.name),
        });
        tracing::warn!(task = %task.id.uid, is_recorded, "finalizer removed: the cluster is unreachable");
        self.outcome.remote.orphan = is_recorded.then(|| Box::new(orphan));
        Ok(())
    }
}

/// The message about a task that was deleted without its cluster.
fn forced_deletion_note(is_recorded: bool, name: &str) -> String {
    if is_recorded {
        return "the task was deleted although its cluster could not be reached; its Job and Secret may be left there; the hub has \
                recorded them, and removes them when it reaches the cluster again"
            .to_owned();
    }
    format!(
        "the task was deleted although its cluster could not be reached; its Job and Secret may be left there; the hub has not \
         recorded them, because too many of this namespace are recorded already: when the cluster is back, delete the Job and the \
         Secret {name} there, if they are still there"
    )
}
