//! Charts of earlier versions, which registries are asked for before a Target goes back to such a version.
//!
//! What a registry said is remembered as long as a Target that is on its way back rests on it, and no longer: so a Target that is pinned
//! anew asks anew, and one that has arrived asks nothing.

mod answers;
mod question;

pub use answers::{
    CONTENTS, CONTENTS_OF_NAMESPACE, ChartAnswer, ChartAnswers, FoundChart, NextQuestions, QUESTIONS,
    QUESTIONS_OF_NAMESPACE,
};
pub use question::{
    ChartQuestion, ChartSources, LookupFailure, LookupRequest, MAX_SOURCES, is_allowed, lookup_request,
    made_of, sources,
};
