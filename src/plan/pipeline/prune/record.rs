//! When a version is not kept any more, and how often the deletion of its charts is tried.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::pipeline::{HydratedTargetStatus, PruneFailure, PruneProgress};
use crate::api::time::whole_seconds;
use crate::plan::pipeline::history::{StoredVersion, is_kept, is_pushed};
use crate::plan::pipeline::object::{ObjectKey, within};
use crate::plan::pipeline::objects::PipelineObjects;
use crate::plan::queue::backoff::BackoffPolicy;

/// Attempts at the charts of a version, after which they are given up.
pub const ATTEMPTS: i32 = 10;
/// Time after which the charts of a version are given up, unless an attempt at them is due.
pub const GIVEN_UP_AFTER: SignedDuration = SignedDuration::from_hours(24);
/// Most versions of a namespace that wait for the deletion of their charts; the oldest beyond are given up.
pub const RECORDS: usize = 1_000;
/// Age of a version without a Target at which it is believed: a watch of Targets may be behind that of versions.
const ORPHANED_AFTER: SignedDuration = SignedDuration::from_mins(10);

/// What is done with a version that is not kept any more.
#[derive(Clone, Debug, PartialEq)]
pub enum Retirement {
    /// The object is deleted.
    Delete,
    /// The object gets this status, and stays until its charts are deleted.
    Record(Box<HydratedTargetStatus>),
}

/// What is done with a version that is not kept any more, of a Target with this ServiceAccount.
#[must_use]
pub fn retire(version: &StoredVersion, account: Option<&str>, is_pruned: bool, now: Timestamp) -> Retirement {
    if !is_pruned {
        return Retirement::Delete;
    }
    let progress = PruneProgress {
        since: whole_seconds(now),
        service_account_name: account.map(str::to_owned),
        attempts: 0,
        failure: None,
        next_attempt: None,
    };
    Retirement::Record(Box::new(HydratedTargetStatus {
        prune: Some(progress),
        ..version.status.clone()
    }))
}

/// Versions of a namespace whose Target is gone.
#[derive(Debug, Default)]
pub struct OrphanedVersions<'o> {
    /// Those that are not kept any more.
    pub versions: Vec<(&'o ObjectKey, &'o StoredVersion)>,
    /// When others are old enough to be believed.
    pub look_again: Option<Timestamp>,
}

/// The versions of a namespace whose Target is gone. Where another Target has its name, they stay until that has pushed a version,
/// because its cluster still has theirs.
#[must_use]
pub fn orphaned<'o>(
    namespace: &'o str,
    objects: &'o PipelineObjects,
    now: Timestamp,
) -> OrphanedVersions<'o> {
    let mut found = OrphanedVersions::default();
    let kept = within(&objects.hydrated_targets, namespace).filter(|(_, version)| is_kept(version));
    for (key, version) in kept.filter(|(_, version)| has_no_target(namespace, version, objects)) {
        // One that no watch has shown was made just now.
        let made = if version.is_shown() { version.created } else { now };
        let due = made.saturating_add(ORPHANED_AFTER).unwrap_or(now);
        if due > now {
            found.look_again = Some(found.look_again.map_or(due, |known| known.min(due)));
        } else {
            found.versions.push((key, version));
        }
    }
    found
}

fn has_no_target(namespace: &str, version: &StoredVersion, objects: &PipelineObjects) -> bool {
    let Some(spec) = &version.spec else {
        return false;
    };
    let target = objects.targets.get(&ObjectKey::new(namespace, &spec.target_name));
    target.is_none_or(|target| {
        let has_pushed = || {
            let mut versions = within(&objects.hydrated_targets, namespace);
            versions.any(|(_, other)| {
                let is_its = other
                    .spec
                    .as_ref()
                    .is_some_and(|other| other.target_uid == target.uid);
                is_its && is_pushed(other)
            })
        };
        target.uid != spec.target_uid && (target.deleting || has_pushed())
    })
}

/// The progress after one more attempt that failed; `None` where the charts are given up.
#[must_use]
pub fn after_failure(
    progress: &PruneProgress,
    failure: PruneFailure,
    now: Timestamp,
) -> Option<PruneProgress> {
    let attempts = progress.attempts.saturating_add(1);
    if attempts >= ATTEMPTS || is_over(progress, now) {
        return None;
    }
    let wait = BackoffPolicy::CHART.longest_wait(attempts.unsigned_abs());
    Some(PruneProgress {
        attempts,
        failure: Some(failure),
        next_attempt: Some(whole_seconds(now.saturating_add(wait).unwrap_or(now))),
        ..progress.clone()
    })
}

/// Why charts are left in their registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GivenUp {
    /// More versions of the namespace wait than are kept for that.
    TooMany,
    /// A task for one of the charts was there all the time.
    TaskExists,
    /// The version cannot be decoded.
    Undecodable,
    /// The last of the attempts failed.
    Failed(PruneFailure),
}

impl GivenUp {
    /// The same for people.
    #[must_use]
    pub const fn explained(self) -> &'static str {
        match self {
            Self::TooMany => "more versions of this namespace wait for that than the hub keeps",
            Self::TaskExists => "a RenderTask for one of them was there all the time",
            Self::Undecodable => "this version of the hub cannot read what is in it",
            Self::Failed(failure) => why(failure),
        }
    }
}

const fn why(failure: PruneFailure) -> &'static str {
    match failure {
        PruneFailure::NotGranted => {
            "the registry does not exist, or may not be used from this namespace any more"
        }
        PruneFailure::NoCredential => {
            "the registry's Secret or certificates cannot be used, or may not be read as the Target's ServiceAccount"
        }
        PruneFailure::Refused => "the registry does not let the credential delete manifests",
        PruneFailure::Unreachable => "the registry did not answer in time",
        PruneFailure::BadAnswer => "the registry answered with something else than registries do",
        PruneFailure::Failed => {
            "it did not work; of a registry that a tenant named and that asked for no credential the hub says no more"
        }
    }
}

/// When the time of a version is over.
pub(super) fn ends(progress: &PruneProgress) -> Timestamp {
    let since = progress.since.0;
    since.saturating_add(GIVEN_UP_AFTER).unwrap_or(since)
}

/// Whether the time of a version is over.
pub(super) fn is_over(progress: &PruneProgress, now: Timestamp) -> bool {
    ends(progress) <= now
}
