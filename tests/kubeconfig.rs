//! A kubeconfig is hostile input: what is accepted of one, what is refused, and that none of its text is ever repeated.
//!
//! The keys and certificates in `tests/kubeconfig/pem` were made for these tests and open nothing.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]
#![expect(clippy::too_many_lines, reason = "a table of refusals is as long as it is")]

#[path = "kubeconfig/addresses.rs"]
mod addresses;
#[path = "kubeconfig/ambiguous.rs"]
mod ambiguous;
#[path = "kubeconfig/bombs.rs"]
mod bombs;
#[path = "kubeconfig/corpus.rs"]
mod corpus;
#[path = "kubeconfig/differential.rs"]
mod differential;
#[path = "kubeconfig/documents.rs"]
mod documents;
#[path = "kubeconfig/edits.rs"]
mod edits;
#[path = "kubeconfig/incomplete.rs"]
mod incomplete;
#[path = "kubeconfig/silence.rs"]
mod silence;
#[path = "kubeconfig/targets.rs"]
mod targets;
#[path = "kubeconfig/tools.rs"]
mod tools;
#[path = "kubeconfig/unsafe_fields.rs"]
mod unsafe_fields;
