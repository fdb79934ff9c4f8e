//! Flags of the objects that failed tasks leave for people to read.

use std::time::Duration;

use clap::Args;

use super::error::SettingsError;
use super::parse::duration;
use crate::plan::task::retention::{FailedJobLimits, KEPT_FAILURES, KEPT_FAILURES_OF_NAMESPACE};

/// How many failed Jobs are kept, and how long.
#[derive(Debug, Args)]
pub struct FailedJobArgs {
    /// Failed Jobs, each with its config Secret, that are kept on a cluster; beyond them the oldest of the namespace with the
    /// most go.
    #[arg(long, env = "RENDERHUB_KEEP_FAILED_JOBS", default_value_t = KEPT_FAILURES)]
    pub keep_failed_jobs: usize,
    /// The same for the tasks of one namespace.
    #[arg(long, env = "RENDERHUB_KEEP_FAILED_JOBS_PER_NAMESPACE", default_value_t = KEPT_FAILURES_OF_NAMESPACE)]
    pub keep_failed_jobs_per_namespace: usize,
    /// Longest that a failed Job is kept whatever the task's failedJobTTL says, such as 0s, 30m or 24h.
    #[arg(long, env = "RENDERHUB_MAX_FAILED_JOB_TTL", default_value = "24h", value_parser = duration)]
    pub max_failed_job_ttl: Duration,
}

impl FailedJobArgs {
    pub(super) fn settings(&self) -> Result<FailedJobLimits, SettingsError> {
        let kept = FailedJobLimits {
            per_namespace: self.keep_failed_jobs_per_namespace,
            total: self.keep_failed_jobs,
        };
        if kept.per_namespace > kept.total {
            return Err(SettingsError::KeptContradict);
        }
        Ok(kept)
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::jiff::SignedDuration;

    use super::super::tests::settings;
    use super::*;
    use crate::plan::task::retention::KEPT_AT_MOST;

    /// Holds: B4.
    #[test]
    fn what_is_kept_is_bounded_unless_a_flag_says_more() {
        let found = settings(&[]).unwrap();
        assert_eq!(found.limits.keep_failed, FailedJobLimits::default());
        let longest = SignedDuration::try_from(found.max_failed_job_ttl).unwrap();
        assert_eq!(longest, KEPT_AT_MOST);
        let flags = ["--keep-failed-jobs=5", "--keep-failed-jobs-per-namespace=0"];
        let none = FailedJobLimits {
            per_namespace: 0,
            total: 5,
        };
        assert_eq!(settings(&flags).unwrap().limits.keep_failed, none);
        let wrong = settings(&["--keep-failed-jobs=99"]).unwrap_err();
        assert_eq!(wrong, SettingsError::KeptContradict);
    }
}
