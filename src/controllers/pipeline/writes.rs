//! The writes of the pipeline's workers, each with what the store takes in of it.

use std::sync::Arc;

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::api::RenderTask;
use crate::api::pipeline::{HydratedTarget, HydratedTargetSpec, OmitsKnownNames as _};
use crate::kubernetes::apply::{CallError, CreatedObject, HubClient, StatusWrite};
use crate::kubernetes::events::{EventMessage, EventRecorder, EventSubject};
use crate::plan::pipeline::concerned::Concerned;
use crate::plan::pipeline::decide::{FollowUp, NewTask, SeenObject, VersionRecord};
use crate::plan::pipeline::names::PipelineSpec as _;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::pipeline::reports::PipelineReport;
use crate::plan::pipeline::sealed_status::sealed;
use crate::plan::pipeline::shared_parts::SharedParts;
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::status_seal::SealKey;

use super::kind::PipelineKind;

/// Puts a status where it belongs: on the object of this key. Returns whom it concerns.
pub(super) type PutStatus =
    Box<dyn FnOnce(&ObjectKey, &mut PipelineObjects, &mut SharedParts) -> Concerned + Send>;

/// What was written, so that the store has it before the watch shows it.
pub(super) enum Written {
    /// A task with its UID, and whether anything follows from it for the Targets that it is for.
    Task(ObjectKey, String, Arc<NewTask>, FollowUp),
    Version(ObjectKey, CreatedObject, Box<HydratedTargetSpec>),
    TargetFinalizers(ObjectKey, FinalizerSummary, Option<u64>),
    Status(ObjectKey, PutStatus),
    TaskGone(ObjectKey),
    VersionGone(ObjectKey),
}

impl Written {
    /// The status of an object of a kind, with the version that the write made.
    pub fn status<K: PipelineKind>((key, uid): SeenObject, status: K::Status, version: Option<u64>) -> Self {
        let put: PutStatus = Box::new(move |key, objects, parts| {
            let known = K::map_mut(objects).get_mut(key);
            if let Some(mut object) = known.filter(|known| known.uid == uid) {
                object.take_in(version, |object| object.status = status);
                K::Spec::complete_status(&mut object.status, &key.namespace, parts);
            }
            // That of a version may say that its charts are to be deleted, or that those of another Target may be; that of a Target,
            // that it waits for room.
            let may_leave = K::STATUS_KIND.is_none();
            Concerned {
                leftovers: may_leave.then(|| key.namespace.clone()),
                ..Concerned::default()
            }
        });
        Self::Status(key, put)
    }

    /// The namespace of the object.
    pub fn namespace(&self) -> &str {
        let (Self::Task(key, ..)
        | Self::Version(key, ..)
        | Self::TargetFinalizers(key, ..)
        | Self::Status(key, _)
        | Self::TaskGone(key)
        | Self::VersionGone(key)) = self;
        &key.namespace
    }
}

/// Makes the writes of one worker.
#[derive(Clone, Debug)]
pub(super) struct PipelineWriter {
    pub client: HubClient,
    pub seal_key: Arc<SealKey>,
    pub events: EventRecorder,
    /// Takes what is written as soon as it is. Each needs an answer of the API server, so no more waits there than workers write while
    /// the loop decides.
    pub written: mpsc::UnboundedSender<Written>,
    /// Cancelled once the hub stops: writes that the next instance may make as well are not begun then.
    pub stopping: CancellationToken,
}

impl PipelineWriter {
    /// Says what was written. Once the loop has ended, nothing rests on it any more.
    pub fn say(&self, written: Written) {
        _ = self.written.send(written);
    }

    /// Writes a status, with its seal if it has one, to the object that was seen and to no other of the name.
    pub async fn write_status<K: PipelineKind>(
        &self,
        seen: &SeenObject,
        status: &K::Status,
    ) -> Result<(), CallError> {
        self.write::<K>((seen, None), status).await
    }

    /// Writes the status of a version, which the hub alone writes, to the object as it was seen.
    pub async fn write_version_status(&self, record: &VersionRecord) -> Result<(), CallError> {
        let seen = (&record.seen, Some(record.resource_version));
        self.write::<HydratedTarget>(seen, &record.status).await
    }

    async fn write<K: PipelineKind>(
        &self,
        (seen, resource_version): (&SeenObject, Option<u64>),
        status: &K::Status,
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
        self.say(Written::status::<K>(seen.clone(), status.clone(), version));
        Ok(())
    }

    /// Deletes tasks, each if it is still the one that was seen.
    pub async fn delete_tasks(&self, tasks: &[SeenObject]) -> Result<(), CallError> {
        for (key, uid) in tasks {
            self.client
                .delete_pipeline_object::<RenderTask>("rendertasks", key, uid)
                .await?;
            self.say(Written::TaskGone(key.clone()));
        }
        Ok(())
    }

    /// Deletes versions, each if it is still the one that was seen.
    pub async fn delete_versions(&self, versions: &[SeenObject]) -> Result<(), CallError> {
        for (key, uid) in versions {
            self.client
                .delete_pipeline_object::<HydratedTarget>("hydratedtargets", key, uid)
                .await?;
            self.say(Written::VersionGone(key.clone()));
        }
        Ok(())
    }

    /// Records an event on an object of a kind.
    pub fn record(&self, kind: &'static str, (key, uid): &SeenObject, report: &PipelineReport) {
        self.events.record(EventMessage {
            subject: EventSubject::Object(kind, key.clone(), uid.clone()),
            is_warning: report.is_warning,
            reason: report.reason,
            note: report.note.clone(),
        });
    }
}
