//! The renderer: configuration → Helm chart → OCI registry.
//!
//! Two halves that never meet in one process when the hub runs them: `render` reads a tenant's configuration and holds no
//! credential, `push` holds the credential and treats the chart as opaque bytes (it reads six quoted strings of `Chart.yaml`
//! that the registry's manifest repeats). Both together are the one-shot command line.

pub mod chart;
pub mod config;
pub mod document;
pub mod yaml;
