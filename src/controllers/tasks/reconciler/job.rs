//! How far the Job of a task is.

use std::time::Instant;

use k8s_openapi::api::core::v1::Pod;

use crate::kubernetes::apply::CallError;
use crate::kubernetes::watch::pod_task;
use crate::plan::task::JobState;
use crate::plan::task::job_state::{JobProgress, ObservedJob, PodTermination, read_job, read_pod};
use crate::plan::task::model::Task;

use super::super::outcome::{JobUpdate, ReconcileError};
use super::super::task_record::ReadJob;
use super::Reconciler;

impl Reconciler<'_> {
    /// Learns how far the Job is: from its watch where that showed its end, else by a read.
    pub(super) async fn read_job(&mut self, task: &Task, name: &str) -> Result<(), ReconcileError> {
        let uid = self.view.job.uid();
        let is_it = |job: &ReadJob| job.metadata.name == name && uid == Some(job.report.uid.as_str());
        let shown = self.view.ended_job.as_ref().is_some_and(is_it);
        let found = match self.view.ended_job.take().filter(|_| shown) {
            Some(ended) => Some(ended),
            None => self.fetch_job(task, name).await?,
        };
        let Some(ReadJob {
            metadata,
            report,
            asked,
        }) = found
        else {
            (self.view.job, self.outcome.job) = (JobState::Gone, JobUpdate::Absent);
            return Ok(());
        };
        self.pod_termination = self.pod_result(&report).await?;
        if self.pod_termination.is_some() {
            self.report_image_pull(task, None);
        }
        (self.view.job, self.outcome.job) = (JobState::Read(report), JobUpdate::Read(metadata, asked));
        Ok(())
    }

    /// Reads the Job; `None` where there is none of the task's.
    async fn fetch_job(&mut self, task: &Task, name: &str) -> Result<Option<ReadJob>, ReconcileError> {
        let asked = Instant::now();
        let Some(mut job) = self.objects()?.get_job(name).await? else {
            return Ok(None);
        };
        self.mark_again(task, name, &mut job.metadata).await?;
        let own = self.own_mark(&job.metadata, job.hint);
        let metadata = own.filter(|mark| mark.task == self.view.id.uid);
        let report = read_job(&job.metadata, &job.status);
        Ok(metadata.zip(report).map(|(metadata, report)| ReadJob {
            metadata,
            report,
            asked,
        }))
    }

    /// The termination message of the pod that ended the Job: from the watch, or read where the pod's event is late.
    async fn pod_result(&self, report: &ObservedJob) -> Result<Option<PodTermination>, ReconcileError> {
        let has_succeeded = match report.progress {
            JobProgress::Running => return Ok(None),
            JobProgress::Complete(_) => true,
            JobProgress::Failed(..) => false,
        };
        let uid = &self.view.id.uid;
        if report.attempts == 0 {
            return Ok(self.context.pod_results.get(uid));
        }
        let shown = self.context.pod_results.get(uid);
        if let Some(note) = shown.filter(|note| report.is_told_by(note)) {
            return Ok(Some(note));
        }
        let fits = |note: &PodTermination| note.succeeded == has_succeeded;
        let is_own = |pod: &Pod| pod_task(&pod.metadata).is_some();
        let look = |pod: &Pod| read_pod(pod).filter(|note| is_own(pod) && fits(note));
        let notes = self.objects()?.list_pods(uid, look).await;
        if self.target.is_some() && matches!(notes, Err(CallError::Forbidden)) {
            tracing::warn!(
                task = %uid,
                cluster = self.placement.cluster,
                "a cluster forbids the hub to list the pods of a Job that ended, so its task stays as it is; give its user the documented Role"
            );
        }
        Ok(notes?.into_iter().max_by_key(|note| note.created))
    }
}
