//! The renderer: configuration → Helm chart → OCI registry.
//!
//! Two halves that never meet in one process when the hub runs them: `render` reads a tenant's configuration and holds no
//! credential, `push` holds the credential and treats the chart as opaque bytes (it reads six quoted strings of `Chart.yaml`
//! that the registry's manifest repeats). Both together are the one-shot command line.

pub mod archive;
pub mod auth;
pub mod chart;
pub mod cli;
pub mod config;
pub mod credentials;
pub mod deleter;
pub mod document;
pub mod error;
pub mod failure;
pub mod file;
pub mod lookup;
pub mod manifest;
pub mod origin;
pub mod printable_word;
pub mod reader;
pub mod registry;
pub mod run;
pub mod tls;
pub mod transport;
pub mod yaml;
