//! What is to be done for a Target.
//!
//! First the chart of each Release, by a task that Targets of a namespace share. Once all of them are pushed, a version that
//! records the content. Then the chart of that version. So a version means one content from the moment it exists, and a hub
//! that is killed anywhere goes on by looking.

mod again;
mod decision;
mod draft;
mod order;
mod releases;
mod rollback;
mod salts;
mod staging;
mod teardown;
mod versions;

pub use decision::{
    CreateRefusal, FinalizerChange, FollowUp, NeededTasks, NewTask, SeenObject, TargetDecision, TargetInput,
    VersionRecord,
};
pub use order::decide;
pub use teardown::TEARDOWN_LIMIT;
