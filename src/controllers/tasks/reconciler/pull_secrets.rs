//! The Secrets that the image of a Job is pulled with: found or made where the Job runs, before the Job is.

use std::sync::Arc;
use std::time::Instant;

use k8s_openapi::api::core::v1::{LocalObjectReference, Pod};

use crate::controllers::pull_copies::{PullCopyHold, TakenPullSecret, UsedPullSecret, read_copy};
use crate::kubernetes::apply::CallError;
use crate::plan::platform::catalog::ResolvedTask;
use crate::plan::pull_secrets::copy::{PullCopy, PullCopyId, PullSecretFault};
use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::pull_secrets::pull_failure::{ObservedPull, PullFailure, PullReport, after_report};
use crate::plan::remote::site::RemoteTarget;
use crate::plan::task::model::Task;

use super::super::outcome::ReconcileError;
use super::super::task_record::JobLocation;
use super::Reconciler;

/// What a pod names for a pull Secret of its class.
enum PodPullSecret {
    /// The Secret that has the name itself there.
    Named,
    /// The same name, although there is no such Secret, or none that can be pulled with: the class says so.
    Unusable,
    /// A copy, which stays as long as the hold.
    Copied(PullCopyId, PullCopyHold),
    /// Nothing: the API server refuses the copy, which is recorded.
    Refused,
}

impl Reconciler<'_> {
    /// Puts the names of the Secrets into the pod, in the order of the class; the copies among them stay as long as what is returned
    /// is held. `None` where a copy is refused, which is recorded.
    pub(super) async fn ensure_pull_secrets(
        &mut self,
        task: &Task,
        resolved: &mut ResolvedTask,
    ) -> Result<Option<Vec<PullCopyHold>>, ReconcileError> {
        if resolved.pull_secrets.is_empty() {
            return Ok(Some(Vec::new()));
        }
        let (mut names, mut holds) = (Vec::new(), Vec::new());
        let (place, secrets) = (self.location(), resolved.pull_secrets.clone());
        for named in secrets {
            let name = match self.pull_secret(task, &place, &named, resolved).await? {
                PodPullSecret::Refused => return Ok(None),
                PodPullSecret::Named | PodPullSecret::Unusable => named.name,
                PodPullSecret::Copied(copy, hold) => {
                    holds.push(hold);
                    let name = copy.object_name();
                    resolved.pull_copies.push(copy);
                    name
                }
            };
            names.push(LocalObjectReference { name });
        }
        resolved.class.image_pull_secrets = names;
        Ok(Some(holds))
    }

    /// Reads what the pods of a task's Job wait for, and reports it to the class. A cluster that lets the hub read no pods says nothing.
    pub(super) async fn look_at_pods(&mut self, task: &Task) -> Result<(), ReconcileError> {
        let objects = self.objects()?;
        let spec = task.decoded.spec.as_ref();
        let class = spec.and_then(|spec| self.offers.catalog.class_of(spec));
        let named = class.map_or(&[][..], |class| &class.pull_secrets);
        let of_pod = |pod: &Pod| PullFailure::of(pod, named);
        let waiting = match objects.list_pods(&task.id.uid, of_pod).await {
            Err(CallError::Forbidden) => Vec::new(),
            read => read?,
        };
        let failure = waiting.into_iter().next();
        self.report_image_pull(task, failure.clone());
        self.image_pull = failure.map_or(ObservedPull::Pulled, ObservedPull::Failing);
        Ok(())
    }

    /// Reports to the class what became of its image; that it is pulled only where it was not. What finds the channel full is reported by
    /// the next look.
    pub(super) fn report_image_pull(&self, task: &Task, failure: Option<PullFailure>) {
        // The platform's classes say nothing of a tenant's own cluster.
        let is_tenants = matches!(&self.target, Some(Ok(RemoteTarget::Own(_))));
        let Some(spec) = task.decoded.spec.as_ref().filter(|_| !is_tenants) else {
            return;
        };
        let catalog = &self.offers.catalog;
        let class = catalog.class_name(spec);
        let report = PullReport {
            class: class.map(str::to_owned),
            cluster: self.placement.cluster.clone(),
            failure,
        };
        let known = catalog
            .class_of(spec)
            .and_then(|class| class.pull_failure.clone());
        if after_report(known.clone(), &report) != known {
            _ = self.context.pull_reports.try_send(report);
        }
    }

    fn location(&self) -> JobLocation {
        let site = self.view.remote.site.as_ref().filter(|_| self.target.is_some());
        site.map(|known| Arc::clone(&known.site))
    }

    async fn pull_secret(
        &mut self,
        task: &Task,
        place: &JobLocation,
        named: &NamedPullSecret,
        resolved: &ResolvedTask,
    ) -> Result<PodPullSecret, ReconcileError> {
        let copies = self.context.pull_copies.clone();
        // Read for each Job: the watch may be behind, and a Job with the password of before waits until its deadline.
        let copy = self.read_copy(named, resolved).await?;
        let id = copy.as_ref().map(|copy| copy.id().clone());
        let named = &NamedPullSecret {
            copy: id.ok_or(PullSecretFault::Missing),
            ..named.clone()
        };
        match copies.take(place, named, Instant::now()) {
            Some(TakenPullSecret::ByHand) => return Ok(PodPullSecret::Named),
            Some(TakenPullSecret::Copy(copy, hold)) => return Ok(PodPullSecret::Copied(copy, hold)),
            None => {}
        }
        let made = self.make_copy(task, place, named, copy).await?;
        let used = match &made {
            PodPullSecret::Named => UsedPullSecret::ByHand,
            PodPullSecret::Copied(copy, _) => UsedPullSecret::Copy(copy.clone()),
            PodPullSecret::Unusable | PodPullSecret::Refused => return Ok(made),
        };
        copies.remember(place, named, used, Instant::now());
        Ok(made)
    }

    async fn make_copy(
        &mut self,
        task: &Task,
        place: &JobLocation,
        named: &NamedPullSecret,
        copy: Option<PullCopy>,
    ) -> Result<PodPullSecret, ReconcileError> {
        let objects = self.objects()?;
        let is_by_hand = match place {
            // The hub's own rendering namespace is watched.
            None => named.is_by_hand,
            Some(_) => objects.get_secret_metadata(&named.name).await?.is_some(),
        };
        if is_by_hand {
            return Ok(PodPullSecret::Named);
        }
        let Some(copy) = copy else {
            return Ok(PodPullSecret::Unusable);
        };
        let hold = self.context.pull_copies.hold(place, copy.id());
        let hold = hold.ok_or(CallError::Conflict)?;
        let manifest = copy.manifest(objects.hub_id(), objects.namespace(), &named.name);
        match objects.create_secret(&manifest).await {
            // One that exists is immutable, and has its content in its name.
            Err(declined) if declined.error != CallError::AlreadyExists => {
                self.not_created(task, &declined, false)?;
                Ok(PodPullSecret::Refused)
            }
            Ok(_) | Err(_) => Ok(PodPullSecret::Copied(copy.id().clone(), hold)),
        }
    }

    /// The copy of the Secret as it is now; `None` where nothing can be pulled with it any more, which the class says.
    async fn read_copy(
        &self,
        named: &NamedPullSecret,
        resolved: &ResolvedTask,
    ) -> Result<Option<PullCopy>, ReconcileError> {
        let (hub_client, namespace) = (
            &self.context.hub_client,
            self.context.pull_secret_namespace.as_deref(),
        );
        let read = read_copy(hub_client, namespace, &resolved.class, &named.name).await?;
        Ok(read.ok())
    }
}
