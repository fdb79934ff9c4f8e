//! Carries out what was decided about a version that waits for the deletion of its charts.

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::Reason;
use crate::api::pipeline::{HydratedTargetStatus, PruneFailure};
use crate::controllers::prune::{PruneError, Pruner};
use crate::kubernetes::apply::CallError;
use crate::plan::pipeline::decide::{FollowUp, VersionRecord};
use crate::plan::pipeline::prune::{GivenUp, PruneStep, after_failure};
use crate::plan::pipeline::reports::PipelineReport;

use super::work::WorkOutcome;
use super::writes::PipelineWriter;

/// Work for one version.
pub(super) struct PruneWork {
    /// The version, with the status that it has.
    pub record: VersionRecord,
    /// Name of the Target and number of the version, for people.
    pub target: String,
    pub version: i64,
    pub step: PruneStep,
}

/// What the work is done with.
#[derive(Clone)]
pub(super) struct PruneTools {
    pub writer: PipelineWriter,
    pub pruner: Pruner,
}

impl PruneWork {
    /// Does what was decided.
    pub async fn run(self, tools: PruneTools) -> WorkOutcome {
        WorkOutcome {
            result: self.work(&tools).await,
            follow_up: FollowUp::AtOnce,
            refusal: None,
        }
    }

    async fn work(&self, tools: &PruneTools) -> Result<(), CallError> {
        match &self.step {
            PruneStep::Wait(_) => Ok(()),
            PruneStep::Delete => self.delete(tools).await,
            PruneStep::GiveUp(why) => self.give_up(tools, *why).await,
            PruneStep::Fail(failure) => self.failed(tools, *failure).await,
            PruneStep::Ask(request) => match tools.pruner.prune(request).await {
                Ok(deleted) => {
                    let (key, _) = &self.record.seen;
                    tracing::info!(
                        namespace = key.namespace,
                        target_name = self.target,
                        version = self.version,
                        deleted,
                        "the charts of a version that is not kept were deleted from their registry"
                    );
                    self.delete(tools).await
                }
                Err(PruneError::Registry(failure)) => self.failed(tools, failure).await,
                Err(PruneError::Call(error)) => Err(error),
            },
        }
    }

    async fn delete(&self, tools: &PruneTools) -> Result<(), CallError> {
        tools
            .writer
            .delete_versions(std::slice::from_ref(&self.record.seen))
            .await
    }

    /// Records a failed attempt, or gives the charts up.
    async fn failed(&self, tools: &PruneTools, failure: PruneFailure) -> Result<(), CallError> {
        let progress = self.record.status.prune.as_ref();
        let next = progress.and_then(|progress| after_failure(progress, failure, Timestamp::now()));
        let Some(next) = next else {
            return self.give_up(tools, GivenUp::Failed(failure)).await;
        };
        let status = HydratedTargetStatus {
            prune: Some(next),
            ..self.record.status.clone()
        };
        let record = VersionRecord {
            status,
            ..self.record.clone()
        };
        tools.writer.write_version_status(&record).await
    }

    async fn give_up(&self, tools: &PruneTools, why: GivenUp) -> Result<(), CallError> {
        self.delete(tools).await?;
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
        tools.writer.record("HydratedTarget", &self.record.seen, &report);
        Ok(())
    }
}
