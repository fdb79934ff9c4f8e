//! The writes of the pipeline's workers, each with what the store takes in of it.

use std::sync::Arc;

use crate::api::RenderTask;
use crate::api::pipeline::{HydratedTarget, HydratedTargetSpec, OmitsOwnNamespace as _};
use crate::kubernetes::apply::{CallError, CreatedObject, HubClient, StatusWrite};
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pipeline::decide::{NewTask, SeenObject, VersionRecord};
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::reports::PipelineReport;
use crate::plan::pipeline::sealed_status::sealed;
use crate::plan::pipeline::shared_parts::SharedParts;
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::status_seal::SealKey;

use super::kind::PipelineKind;

/// Puts a status where it belongs.
pub(super) type PutStatus = Box<dyn FnOnce(&mut PipelineObjects, &mut SharedParts) + Send>;

/// What was written, so that the store has it before the watch shows it.
pub(super) enum Written {
    Task(ObjectKey, String, Arc<NewTask>),
    Version(ObjectKey, CreatedObject, Box<HydratedTargetSpec>),
    TargetFinalizers(ObjectKey, FinalizerSummary, Option<u64>),
    Status(PutStatus),
    TaskGone(ObjectKey),
    VersionGone(ObjectKey),
}

impl Written {
    /// The status of an object of a kind, with the version that the write made.
    pub fn status<K: PipelineKind>((key, uid): SeenObject, status: K::Status, version: Option<u64>) -> Self {
        Self::Status(Box::new(move |objects, parts| {
            let known = K::map_mut(objects).get_mut(&key);
            if let Some(mut object) = known.filter(|known| known.uid == uid) {
                object.take_in(version, |object| object.status = status);
                K::Spec::complete(&mut object, &key.namespace, parts);
            }
        }))
    }
}

/// Makes the writes of one worker.
#[derive(Clone, Debug)]
pub(super) struct PipelineWriter {
    pub client: HubClient,
    pub seal_key: Arc<SealKey>,
    pub events: EventRecorder,
}

impl PipelineWriter {
    /// Writes a status, with its seal if it has one, to the object that was seen and to no other of the name.
    pub async fn write_status<K: PipelineKind>(
        &self,
        seen: &SeenObject,
        status: &K::Status,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        self.write::<K>((seen, None), status, written).await
    }

    /// Writes the status of a version, which the hub alone writes, to the object as it was seen.
    pub async fn write_version_status(
        &self,
        record: &VersionRecord,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let seen = (&record.seen, Some(record.resource_version));
        self.write::<HydratedTarget>(seen, &record.status, written).await
    }

    async fn write<K: PipelineKind>(
        &self,
        (seen, resource_version): (&SeenObject, Option<u64>),
        status: &K::Status,
        written: &mut Vec<Written>,
    ) -> Result<(), CallError> {
        let (key, uid) = seen;
        let mut written_status = status.clone();
        written_status.leave_out(&key.namespace);
        let write = StatusWrite {
            key,
            uid,
            resource_version,
            status: &sealed(&self.seal_key, uid, &written_status),
        };
        let writing = self
            .client
            .write_pipeline_status::<K, _>(K::STATUS_RESOURCE, write);
        let version = writing.await?;
        written.push(Written::status::<K>(seen.clone(), status.clone(), version));
        Ok(())
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
