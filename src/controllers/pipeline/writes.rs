//! The writes of the pipeline's workers, each with what the store takes in of it.

use std::sync::Arc;

use kube::Resource;

use crate::api::RenderTask;
use crate::api::pipeline::{HydratedTarget, HydratedTargetSpec, HydratedTargetStatus, Target, TargetStatus};
use crate::kubernetes::apply::{CallError, HubClient, SeenTarget, StatusWrite};
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pipeline::decide::NewTask;
use crate::plan::pipeline::decide::SeenObject;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::reports::PipelineReport;
use crate::plan::pipeline::sealed_status::{SealedStatus, sealed};
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::status_seal::SealKey;

use super::status_write::NamespaceStatusWrite;

/// What was written, so that the store has it before the watch shows it.
#[derive(Debug)]
pub(super) enum Written {
    Task(ObjectKey, String, Arc<NewTask>),
    Version(ObjectKey, String, Box<HydratedTargetSpec>),
    TargetStatus(ObjectKey, Box<TargetStatus>, Option<u64>),
    TargetFinalizers(ObjectKey, FinalizerSummary, Option<u64>),
    VersionStatus(ObjectKey, Box<HydratedTargetStatus>, Option<u64>),
    TaskGone(ObjectKey),
    VersionGone(ObjectKey),
    NamespaceStatus(NamespaceStatusWrite, Option<u64>),
}

/// Makes the writes of one worker.
#[derive(Clone, Debug)]
pub(super) struct PipelineWriter {
    pub client: HubClient,
    pub seal_key: Arc<SealKey>,
    pub events: EventRecorder,
}

impl PipelineWriter {
    /// Writes the status of a Target.
    pub async fn write_target(
        &self,
        target: &SeenTarget,
        status: &TargetStatus,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let seen = (target.key.clone(), target.uid.clone());
        let version = self
            .write_status::<Target, _>("targets/status", &seen, status)
            .await?;
        let status = Box::new(status.clone());
        written.push(Written::TargetStatus(seen.0, status, version));
        Ok(())
    }

    /// Writes the status of a version, if it is still the one that was seen.
    pub async fn write_version(
        &self,
        (seen, status): &(SeenObject, HydratedTargetStatus),
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let resource = "hydratedtargets/status";
        let version = self
            .write_status::<HydratedTarget, _>(resource, seen, status)
            .await?;
        let status = Box::new(status.clone());
        written.push(Written::VersionStatus(seen.0.clone(), status, version));
        Ok(())
    }

    /// Writes a status with its seal; returns the new resource version.
    async fn write_status<K: Resource<DynamicType = ()>, T: SealedStatus + Sync>(
        &self,
        resource: &'static str,
        (key, uid): &SeenObject,
        status: &T,
    ) -> Result<Option<u64>, CallError> {
        let status = &sealed(&self.seal_key, uid, status);
        self.client
            .write_pipeline_status::<K, _>(resource, StatusWrite { key, uid, status })
            .await
    }

    /// Deletes tasks, each if it is still the one that was seen.
    pub async fn delete_tasks(
        &self,
        tasks: &[SeenObject],
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        for (key, uid) in tasks {
            self.client
                .delete_pipeline_object::<RenderTask>("rendertasks", key, uid)
                .await?;
            written.push(Written::TaskGone(key.clone()));
        }
        Ok(())
    }

    /// Deletes versions, each if it is still the one that was seen.
    pub async fn delete_versions(
        &self,
        versions: &[SeenObject],
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        for (key, uid) in versions {
            self.client
                .delete_pipeline_object::<HydratedTarget>("hydratedtargets", key, uid)
                .await?;
            written.push(Written::VersionGone(key.clone()));
        }
        Ok(())
    }

    /// Records an event on an object of a kind.
    pub fn record(&self, kind: &'static str, (key, uid): &SeenObject, report: &PipelineReport) {
        self.events.record(EventMessage {
            subject: EventSubject::Pipeline(kind, key.clone(), uid.clone()),
            is_warning: report.is_warning,
            reason: report.reason,
            note: report.note.clone(),
        });
    }
}
