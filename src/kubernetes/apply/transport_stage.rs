//! How far a call came that brought no answer: by the types of the errors that it ended with, never by their text.

use std::error::Error;
use std::{fmt, io};

use crate::kubernetes::write_fence::NameResolutionError;

/// How far a call came that brought no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TransportStage {
    /// The name of the server has no address, or the answer came too late.
    Resolve,
    /// No connection to an address of the server came about.
    Connect,
    /// The server does not present the expected certificate, or does not speak TLS.
    Tls,
    /// The connection ended before an answer began, or what began is not HTTP.
    Send,
    /// The connection ended in the middle of an answer.
    Body,
    /// The answer is whole, and not what was asked for.
    Decode,
    /// The hub gave the call up: its connection was lost or closed, or another one took its place.
    Canceled,
    /// The hub could not make the request, or took an answer for what it is not: a bug.
    Internal,
}

impl TransportStage {
    /// Every stage, in the order in which a call comes to them.
    pub const ALL: [Self; 8] = [
        Self::Resolve,
        Self::Connect,
        Self::Tls,
        Self::Send,
        Self::Body,
        Self::Decode,
        Self::Canceled,
        Self::Internal,
    ];

    /// The stage as a log and a metric label have it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Resolve => "resolve",
            Self::Connect => "connect",
            Self::Tls => "tls",
            Self::Send => "send",
            Self::Body => "body",
            Self::Decode => "decode",
            Self::Canceled => "canceled",
            Self::Internal => "internal",
        }
    }

    /// How far a call of kube's client came.
    #[must_use]
    pub fn of(error: &kube::Error) -> Self {
        match error {
            kube::Error::Service(cause) => Self::of_causes(cause.as_ref()),
            kube::Error::HyperError(cause) => Self::of_causes(cause),
            kube::Error::SerdeError(_) | kube::Error::FromUtf8(_) => Self::Decode,
            kube::Error::ReadEvents(_) | kube::Error::LinesCodecMaxLineLengthExceeded => Self::Body,
            _ => Self::Internal,
        }
    }

    /// By an error and what caused it. Below hyper there is a connection; what fails before is the socket or TLS.
    fn of_causes(first: &(dyn Error + 'static)) -> Self {
        let (mut next, mut is_connected, mut is_of_socket) = (Some(first), false, None);
        while let Some(error) = next {
            if error.is::<NameResolutionError>() {
                return Self::Resolve;
            }
            if error.is::<rustls::Error>() {
                return Self::Tls;
            }
            is_connected |= error.is::<hyper::Error>();
            next = match error.downcast_ref::<io::Error>() {
                // Its `source` leaves out the error that it holds.
                Some(held) => {
                    is_of_socket = Some(is_of_a_socket(held));
                    held.get_ref().map(|inner| inner as &(dyn Error + 'static))
                }
                None => error.source(),
            };
        }
        match is_of_socket {
            Some(true) if !is_connected => Self::Connect,
            Some(false) if !is_connected => Self::Tls,
            _ => Self::Send,
        }
    }
}

/// Whether the operating system reported it, or the connection timed out; a broken TLS handshake has no code.
fn is_of_a_socket(error: &io::Error) -> bool {
    error.raw_os_error().is_some() || error.kind() == io::ErrorKind::TimedOut
}

impl fmt::Display for TransportStage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
