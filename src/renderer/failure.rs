//! Why a command fails, for the terminal and for the termination message.

use super::archive::NotAChart;
use super::chart::ChartTooLarge;
use super::config::ConfigError;
use super::credentials::CredentialError;
use super::document::DocumentError;
use super::error::PushError;
use super::file::FileError;
use super::tls::TlsError;
use crate::api::oci::OciError;
use crate::api::termination::{Phase, Reason, Termination};

/// Why a command fails. Texts hold our own words only.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// The configuration file cannot be read.
    #[error("failed to read config-file: {0}")]
    ReadConfig(#[source] FileError),
    /// The configuration cannot be used.
    #[error(transparent)]
    Config(ConfigError),
    /// The chart is too large.
    #[error("failed to render {kind}: {source}")]
    Chart {
        /// `release` or `bootstrap`.
        kind: &'static str,
        /// Which file.
        source: ChartTooLarge,
    },
    /// The chart cannot be packed.
    #[error("failed to package chart")]
    Package,
    /// The chart cannot be written.
    #[error("failed to write chart: {0}")]
    Write(#[source] FileError),
    /// The chart cannot be pushed.
    #[error("failed to push result: {0}")]
    Push(#[from] PushFailure),
    /// SIGTERM or SIGINT.
    #[error("interrupted")]
    Interrupted(Phase),
    /// The machine does not let the program run.
    #[error("failed to start")]
    Start,
}

/// Why a chart cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushFailure {
    /// No destination.
    #[error("registry reference is required")]
    NoReference,
    /// The file with the destination cannot be read.
    #[error("failed to read url-file: {0}")]
    UrlFile(#[source] FileError),
    /// The destination is not one.
    #[error("failed to parse reference: {0}")]
    Reference(#[from] OciError),
    /// The destination is not the chart's.
    #[error(
        "failed to push chart to registry: strict mode enabled, ref basename and tag must match the chart name and version"
    )]
    Strict,
    /// The archive cannot be read.
    #[error("failed to read chart archive: {0}")]
    ReadArchive(#[source] FileError),
    /// The archive is not a chart.
    #[error(transparent)]
    NotAChart(#[from] NotAChart),
    /// The credential cannot be read.
    #[error(transparent)]
    Credential(#[from] CredentialError),
    /// No TLS connection can be trusted.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// The manifest cannot be built.
    #[error("failed to build manifest")]
    Manifest,
    /// The registry.
    #[error("failed to push chart to registry: {0}")]
    Registry(#[from] PushError),
}

impl Failure {
    /// What the hub is told.
    #[must_use]
    pub fn termination(&self) -> Termination {
        use Reason::{BadArchive, BadConfig, ChartTooLarge, Internal};
        let (phase, reason) = match self {
            Self::ReadConfig(FileError::TooLarge) | Self::Chart { .. } => (Phase::Render, ChartTooLarge),
            Self::Config(ConfigError::Document(DocumentError::TooLarge) | ConfigError::ChartText) => {
                (Phase::Render, ChartTooLarge)
            }
            Self::ReadConfig(_) | Self::Config(_) => (Phase::Render, BadConfig),
            Self::Package | Self::Write(_) | Self::Start => (Phase::Render, Internal),
            Self::Interrupted(phase) => (*phase, Internal),
            Self::Push(failure) => (
                Phase::Push,
                match failure {
                    PushFailure::NoReference
                    | PushFailure::UrlFile(_)
                    | PushFailure::Reference(_)
                    | PushFailure::Strict => Reason::BadDestination,
                    PushFailure::ReadArchive(FileError::TooLarge) => ChartTooLarge,
                    PushFailure::ReadArchive(_) | PushFailure::NotAChart(_) => BadArchive,
                    PushFailure::Credential(_) | PushFailure::Tls(_) => Reason::BadCredentials,
                    PushFailure::Manifest => Internal,
                    PushFailure::Registry(error) => error.reason(),
                },
            ),
        };
        Termination::failed(phase, reason)
    }
}
