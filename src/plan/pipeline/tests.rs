//! The decisions of the pipeline, on objects as a server would have them.

mod decide;
mod history;
mod resolve;
mod task;
mod world;
