//! Why a command fails, for the terminal and for the termination message.

use std::path::PathBuf;

use super::archive::NotAChart;
use super::chart::ChartTooLarge;
use super::config::ConfigError;
use super::credentials::CredentialError;
use super::document::DocumentError;
use super::error::PushError;
use super::file::FileError;
use super::tls::TlsError;
use crate::api::input_hashes::{CONFIG_SHA256, URL_SHA256};
use crate::api::oci::OciError;
use crate::api::termination::{Termination, TerminationPhase, TerminationReason};

/// Why a command fails. Texts hold nothing of the input.
#[derive(Debug, thiserror::Error)]
pub enum RendererError {
    /// The configuration file cannot be read.
    #[error("failed to read config-file {}: {error}", .path.display())]
    ReadConfig {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: FileError,
    },
    /// No configuration file was named.
    #[error("config-file is required: renderhub-renderer [flags] CONFIG-FILE, or try '--help'")]
    NoConfig,
    /// The configuration is not the one that the Job names.
    #[error("config-file is not the one that {CONFIG_SHA256} names")]
    ConfigReplaced,
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
    Push(#[from] PushCommandError),
    /// SIGTERM or SIGINT.
    #[error("interrupted")]
    Interrupted(TerminationPhase),
    /// The machine does not let the program run.
    #[error("failed to start")]
    Start,
}

/// Why a chart cannot be pushed.
#[derive(Debug, thiserror::Error)]
pub enum PushCommandError {
    /// No destination.
    #[error("registry reference is required")]
    NoReference,
    /// The file with the destination cannot be read.
    #[error("failed to read url-file {}: {error}", .path.display())]
    UrlFile {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: FileError,
    },
    /// The destination is not the one that the Job names.
    #[error("url-file is not the one that {URL_SHA256} names")]
    UrlReplaced,
    /// The destination is not one.
    #[error("failed to parse reference: {0}")]
    Reference(#[from] OciError),
    /// The destination is on another registry than the one named.
    #[error("destination is not on the registry named")]
    OtherRegistry,
    /// The destination's repository is outside of the prefix named.
    #[error("destination is not within the repository prefix named")]
    OtherRepository,
    /// The destination is not the chart's.
    #[error(
        "failed to push chart to registry: strict mode enabled, ref basename and tag must match the chart name and version"
    )]
    Strict,
    /// The archive cannot be read.
    #[error("failed to read chart archive {}: {error}", .path.display())]
    ReadArchive {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        error: FileError,
    },
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
    #[error("failed to push chart to registry: {error}")]
    Registry {
        /// Why.
        #[source]
        error: PushError,
        /// Whether it was sent the credential.
        credential_sent: bool,
    },
}

impl RendererError {
    /// The termination message for the hub.
    #[must_use]
    pub fn termination(&self) -> Termination {
        use TerminationReason::{BadConfig, ChartTooLarge, InputReplaced, Internal};
        let (phase, reason) = match self {
            Self::ReadConfig {
                error: FileError::TooLarge,
                ..
            }
            | Self::Chart { .. } => (TerminationPhase::Render, ChartTooLarge),
            Self::Config(ConfigError::Document(DocumentError::TooLarge) | ConfigError::ChartText) => {
                (TerminationPhase::Render, ChartTooLarge)
            }
            // An I/O error says nothing about the input, and a second attempt may be on a better machine.
            Self::ReadConfig {
                error: FileError::Other,
                ..
            }
            | Self::Package
            | Self::Write(_)
            | Self::Start => (TerminationPhase::Render, Internal),
            Self::ConfigReplaced => (TerminationPhase::Render, InputReplaced),
            Self::ReadConfig { .. } | Self::NoConfig | Self::Config(_) => {
                (TerminationPhase::Render, BadConfig)
            }
            Self::Interrupted(phase) => (*phase, Internal),
            Self::Push(failure) => (TerminationPhase::Push, failure.reason()),
        };
        Termination {
            credential_sent: matches!(self, Self::Push(failure) if failure.is_credential_sent()),
            ..Termination::failed(phase, reason)
        }
    }
}

impl PushCommandError {
    const fn reason(&self) -> TerminationReason {
        use TerminationReason::{BadArchive, BadDestination, ChartTooLarge, Internal};
        match self {
            Self::UrlFile {
                error: FileError::Other,
                ..
            }
            | Self::ReadArchive {
                error: FileError::Other,
                ..
            }
            | Self::Tls(TlsError::Setup)
            | Self::Manifest => Internal,
            Self::UrlReplaced => TerminationReason::InputReplaced,
            Self::NoReference
            | Self::UrlFile { .. }
            | Self::Reference(_)
            | Self::OtherRegistry
            | Self::OtherRepository
            | Self::Strict => BadDestination,
            Self::ReadArchive {
                error: FileError::TooLarge,
                ..
            } => ChartTooLarge,
            Self::ReadArchive { .. } | Self::NotAChart(_) => BadArchive,
            Self::Credential(_) => TerminationReason::BadCredentials,
            // What is missing is trust in the registry, as where its certificate is not trusted.
            Self::Tls(_) => TerminationReason::RegistryUnreachable,
            Self::Registry { error, .. } => error.reason(),
        }
    }

    const fn is_credential_sent(&self) -> bool {
        matches!(
            self,
            Self::Registry {
                credential_sent: true,
                ..
            }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machine_that_cannot_read_is_no_fault_of_the_input() {
        for (failure, phase) in [
            (
                RendererError::ReadConfig {
                    path: "x".into(),
                    error: FileError::Other,
                },
                TerminationPhase::Render,
            ),
            (
                PushCommandError::UrlFile {
                    path: "x".into(),
                    error: FileError::Other,
                }
                .into(),
                TerminationPhase::Push,
            ),
            (
                PushCommandError::ReadArchive {
                    path: "x".into(),
                    error: FileError::Other,
                }
                .into(),
                TerminationPhase::Push,
            ),
        ] {
            let message = failure.termination();
            assert_eq!(
                message,
                Termination::failed(phase, TerminationReason::Internal),
                "{failure}"
            );
            assert!(!message.reason.is_permanent(), "{failure}");
        }
    }

    #[test]
    fn certificates_are_no_credentials() {
        for (failure, reason) in [
            (
                TlsError::Unreadable(FileError::NotFound),
                TerminationReason::RegistryUnreachable,
            ),
            (TlsError::NoCertificate, TerminationReason::RegistryUnreachable),
            (TlsError::NoRoots, TerminationReason::RegistryUnreachable),
            (TlsError::Setup, TerminationReason::Internal),
        ] {
            let message = RendererError::from(PushCommandError::from(failure)).termination();
            assert_eq!(
                message,
                Termination::failed(TerminationPhase::Push, reason),
                "{failure}"
            );
        }
    }
}
