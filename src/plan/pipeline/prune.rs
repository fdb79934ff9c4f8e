//! Versions that are not kept any more, and the charts in registries that no version names.
//!
//! The version itself is the record: where its registry prunes, the object stays until its charts are deleted there, or until that is
//! given up. Nothing waits for it.

mod charts;
mod deletions;
mod record;
mod step;

pub use charts::{PrunableChart, still_allowed};
pub use deletions::ChartDeletions;
pub use record::{
    ATTEMPTS, GIVEN_UP_AFTER, GivenUp, OrphanedVersions, RECORDS, Retirement, after_failure, orphaned, retire,
};
pub use step::{
    PlatformRegistry, PruneAccess, PruneInput, PruneRecord, PruneRequest, PruneStep, is_pruned, next_step,
    records, registry_access, registry_of,
};
