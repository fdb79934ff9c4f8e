//! Carries out what was decided about a version that waits for the deletion of its charts.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedTargetStatus, PruneFailure};
use crate::controllers::prune::{PruneError, Pruner};
use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::decide::VersionRecord;
use crate::plan::pipeline::prune::{GivenUp, PruneStep, after_failure};
use crate::plan::pipeline::reports::PipelineReport;

use super::writes::PipelineWriter;

/// Work for one version.
pub(super) struct PruneWork {
    /// The version, with the status that it has.
    pub record: VersionRecord,
    /// Name of the Target and number of the version, for people.
    pub target: String,
    pub version: i64,
    pub step: PruneStep,
    /// What it is done with.
    pub writer: PipelineWriter,
    pub pruner: Pruner,
}

impl PruneWork {
    /// Does what was decided.
    pub async fn run(self) -> Result<(), CallError> {
        match &self.step {
            PruneStep::Wait(_) => Ok(()),
            PruneStep::Delete => self.delete().await,
            PruneStep::GiveUp(why) => self.give_up(*why).await,
            PruneStep::Fail(failure) => self.failed(*failure).await,
            PruneStep::Ask(request) => match self.pruner.prune(request).await {
                Ok(deleted) => {
                    let (key, _) = &self.record.seen;
                    tracing::info!(
                        namespace = key.namespace,
                        target_name = self.target,
                        version = self.version,
                        deleted,
                        "the charts of a version that is not kept were deleted from their registry"
                    );
                    self.delete().await
                }
                Err(PruneError::Registry(failure)) => self.failed(failure).await,
                Err(PruneError::Call(error)) => Err(error),
            },
        }
    }

    async fn delete(&self) -> Result<(), CallError> {
        self.writer
            .delete_versions(std::slice::from_ref(&self.record.seen))
            .await
    }

    /// Records a failed attempt, or gives the charts up.
    async fn failed(&self, failure: PruneFailure) -> Result<(), CallError> {
        let progress = self.record.status.prune.as_ref();
        let next = progress.and_then(|progress| after_failure(progress, failure, Timestamp::now()));
        let Some(next) = next else {
            return self.give_up(GivenUp::Failed(failure)).await;
        };
        let status = HydratedTargetStatus {
            prune: Some(next),
            ..self.record.status.clone()
        };
        let record = VersionRecord {
            status,
            ..self.record.clone()
        };
        self.writer.write_version_status(&record).await
    }

    async fn give_up(&self, why: GivenUp) -> Result<(), CallError> {
        self.delete().await?;
        let (key, _) = &self.record.seen;
        let why = why.explained();
        tracing::warn!(
            namespace = key.namespace,
            target_name = self.target,
            version = self.version,
            why,
            "the charts of a version that is not kept were left in their registry"
        );
        let report = PipelineReport {
            is_warning: true,
            reason: Reason::PruneGivenUp,
            note: format!(
                "charts of version {} of the Target {} were left in their registry, because {why}; delete them there, or leave them",
                self.version, self.target
            ),
        };
        self.writer.record("HydratedTarget", &self.record.seen, &report);
        Ok(())
    }
}
