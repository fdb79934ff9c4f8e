//! What becomes of a task: from its submission to its removal, on a real API server.

#[path = "tasks/crash.rs"]
mod crash;
#[path = "tasks/deletion.rs"]
mod deletion;
#[path = "tasks/destination.rs"]
mod destination;
#[path = "tasks/life.rs"]
mod life;
#[path = "tasks/ownership.rs"]
mod ownership;
#[path = "tasks/process.rs"]
mod process;
#[path = "tasks/refusals.rs"]
mod refusals;
#[path = "tasks/retention.rs"]
mod retention;
#[path = "tasks/verify.rs"]
mod verify;
