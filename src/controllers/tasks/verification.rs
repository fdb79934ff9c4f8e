//! A success that waits for the word of a registry, and what a pass is told of it.

use crate::plan::task::outcome::{JobReport, PodNote};
use crate::plan::task::proof::{Inquiry, Proof};

/// A success that waits for the word of a registry.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The Job as it was read.
    pub report: JobReport,
    /// The last word of its pods.
    pub note: Option<PodNote>,
    /// What is asked.
    pub inquiry: Inquiry,
}

/// What a pass is told of a question.
#[derive(Debug)]
pub struct Answer {
    /// When it was first asked, and what came of it.
    pub proof: Proof,
    /// What was known when it was asked, where there is an answer.
    pub claim: Option<Box<Claim>>,
}
