//! The termination message: the last output of a renderer container.
//!
//! The renderer writes it to `/dev/termination-log`; the hub reads it from the pod's status. It crosses a trust boundary (the
//! owner of the render cluster controls the text), so it holds enumerated values and a digest only, and [`Termination::parse`]
//! drops everything that does not fit exactly.

use serde::{Deserialize, Serialize};

use super::oci::Digest;

/// Longest message in bytes that is read; the renderer's are below 160.
pub const MAX_BYTES: usize = 1024;

/// Exit code of a container that no second attempt can help; the Job then fails at once instead of after its retries.
pub const PERMANENT_FAILURE: u8 = 2;

/// The half of the work that a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TerminationPhase {
    /// Configuration to chart archive, in the container without a credential.
    Render,
    /// Chart archive to registry, in the container that holds the credential.
    Push,
}

impl TerminationPhase {
    /// The value in the message and in `status.failure.phase`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Render => "Render",
            Self::Push => "Push",
        }
    }
}

/// Why a renderer container ended; a closed list, safe to show to a tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum TerminationReason {
    /// The chart archive was written.
    Rendered,
    /// The chart was uploaded and the registry confirmed its digest.
    Pushed,
    /// The tag already held exactly this chart; nothing was uploaded.
    AlreadyExists,
    /// The configuration cannot be read, parsed or rendered.
    BadConfig,
    /// The configuration or the destination is not the one that the Job was made for.
    InputReplaced,
    /// The configuration or the chart exceeds a size limit.
    ChartTooLarge,
    /// The chart archive is missing, not a regular file, or not a chart.
    BadArchive,
    /// The credential files cannot be read or parsed, or hold no credential for the registry.
    BadCredentials,
    /// The destination is not an OCI reference, is on another registry, or does not match the chart's name and version.
    BadDestination,
    /// The registry does not accept the credential (401).
    Unauthorized,
    /// The registry does not allow this push to a client that sent it no credential (401 or 403).
    CredentialRequired,
    /// The registry accepts the credential but not this push (403).
    Forbidden,
    /// The tag exists with other content, or does not hold the chart right after its upload.
    TagConflict,
    /// The registry cannot be reached: DNS, connection, TLS, the authorities to trust, or deadline.
    RegistryUnreachable,
    /// The registry answered with an error or with something that is not the OCI protocol.
    RegistryRefused,
    /// The registry stored something else than what was pushed.
    DigestMismatch,
    /// The registry redirected an authenticated call, or pointed an upload at another origin.
    RedirectRefused,
    /// The registry's token service is not one that may receive the credential.
    RealmRefused,
    /// None of the above: a bug, or a broken machine.
    Internal,
}

impl TerminationReason {
    /// Every reason, for tables and documentation checks.
    pub const ALL: [Self; 19] = [
        Self::Rendered,
        Self::Pushed,
        Self::AlreadyExists,
        Self::BadConfig,
        Self::InputReplaced,
        Self::ChartTooLarge,
        Self::BadArchive,
        Self::BadCredentials,
        Self::BadDestination,
        Self::Unauthorized,
        Self::CredentialRequired,
        Self::Forbidden,
        Self::TagConflict,
        Self::RegistryUnreachable,
        Self::RegistryRefused,
        Self::DigestMismatch,
        Self::RedirectRefused,
        Self::RealmRefused,
        Self::Internal,
    ];

    /// The value in the message and in a metric label.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rendered => "Rendered",
            Self::Pushed => "Pushed",
            Self::AlreadyExists => "AlreadyExists",
            Self::BadConfig => "BadConfig",
            Self::InputReplaced => "InputReplaced",
            Self::ChartTooLarge => "ChartTooLarge",
            Self::BadArchive => "BadArchive",
            Self::BadCredentials => "BadCredentials",
            Self::BadDestination => "BadDestination",
            Self::Unauthorized => "Unauthorized",
            Self::CredentialRequired => "CredentialRequired",
            Self::Forbidden => "Forbidden",
            Self::TagConflict => "TagConflict",
            Self::RegistryUnreachable => "RegistryUnreachable",
            Self::RegistryRefused => "RegistryRefused",
            Self::DigestMismatch => "DigestMismatch",
            Self::RedirectRefused => "RedirectRefused",
            Self::RealmRefused => "RealmRefused",
            Self::Internal => "Internal",
        }
    }

    /// Whether the container did what it was asked to.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self, Self::Rendered | Self::Pushed | Self::AlreadyExists)
    }

    /// Whether the same input fails in the same way each time.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(
            self,
            Self::BadConfig
                | Self::InputReplaced
                | Self::ChartTooLarge
                | Self::BadArchive
                | Self::BadCredentials
                | Self::BadDestination
                | Self::Unauthorized
                | Self::CredentialRequired
                | Self::Forbidden
                | Self::TagConflict
                | Self::RedirectRefused
                | Self::RealmRefused
        )
    }

    /// One sentence for `status.failure.message`: the hub's own text, never a foreign string.
    #[must_use]
    pub const fn sentence(self) -> &'static str {
        match self {
            Self::Rendered => "the chart was rendered",
            Self::Pushed => "the chart was pushed",
            Self::AlreadyExists => "the registry already holds exactly this chart",
            Self::BadConfig => "the configuration cannot be parsed or rendered",
            Self::InputReplaced => {
                "the task's config Secret holds something else than the hub wrote into it; ask the platform operator"
            }
            Self::ChartTooLarge => "the configuration or the chart is too large",
            Self::BadArchive => "the chart archive is missing or not a chart",
            Self::BadCredentials => "the push credential cannot be read or is not for the registry",
            Self::BadDestination => {
                "the destination is not valid or does not match the chart's name and version"
            }
            Self::Unauthorized => "the registry does not accept the push credential",
            Self::CredentialRequired => {
                "the registry does not allow this push without a credential, and none was sent to it"
            }
            Self::Forbidden => "the push credential may not push to this repository",
            Self::TagConflict => "the tag already exists with other content",
            Self::RegistryUnreachable => "the registry cannot be reached",
            Self::RegistryRefused => "the registry refused the push",
            Self::DigestMismatch => "the registry stored something else than what was pushed",
            Self::RedirectRefused => "the registry redirected the push elsewhere, which is not followed",
            Self::RealmRefused => "the registry's token service is not allowed to receive the credential",
            Self::Internal => "the renderer failed",
        }
    }
}

/// The termination message, `{"phase":"Push","reason":"Pushed","digest":"sha256:…"}`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Termination {
    /// The half of the work.
    pub phase: TerminationPhase,
    /// How it ended.
    pub reason: TerminationReason,
    /// Digest of the manifest under the tag; there for `Pushed` and `AlreadyExists`, and only for them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<Digest>,
    /// Whether the registry, or its token service, was sent the credential before a push failed.
    #[serde(default, rename = "credentialSent", skip_serializing_if = "is_false")]
    pub credential_sent: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
const fn is_false(value: &bool) -> bool {
    !*value
}

impl Termination {
    /// `Rendered`, the only success of the render phase.
    #[must_use]
    pub const fn rendered() -> Self {
        Self {
            phase: TerminationPhase::Render,
            reason: TerminationReason::Rendered,
            digest: None,
            credential_sent: false,
        }
    }

    /// A chart that this run uploaded.
    #[must_use]
    pub const fn pushed(digest: Digest) -> Self {
        Self {
            phase: TerminationPhase::Push,
            reason: TerminationReason::Pushed,
            digest: Some(digest),
            credential_sent: false,
        }
    }

    /// A chart that was already there, byte for byte.
    #[must_use]
    pub const fn already_exists(digest: Digest) -> Self {
        Self {
            phase: TerminationPhase::Push,
            reason: TerminationReason::AlreadyExists,
            digest: Some(digest),
            credential_sent: false,
        }
    }

    /// A failure; a success reason becomes `Internal`, because a success needs more than a reason.
    #[must_use]
    pub const fn failed(phase: TerminationPhase, reason: TerminationReason) -> Self {
        let reason = if reason.is_success() {
            TerminationReason::Internal
        } else {
            reason
        };
        Self {
            phase,
            reason,
            digest: None,
            credential_sent: false,
        }
    }

    /// Reads a message; `None` for anything too long, malformed, unknown, or not consistent with itself.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() > MAX_BYTES {
            return None;
        }
        serde_json::from_str::<Self>(text)
            .ok()
            .filter(Self::is_consistent)
    }

    /// The message as one line of JSON, below 160 bytes.
    #[must_use]
    pub fn to_json(&self) -> String {
        let Self {
            phase,
            reason,
            digest,
            credential_sent,
        } = self;
        let head = format!(r#"{{"phase":"{}","reason":"{}""#, phase.as_str(), reason.as_str());
        match digest {
            Some(digest) => format!(r#"{head},"digest":"{digest}"}}"#),
            None if *credential_sent => format!(r#"{head},"credentialSent":true}}"#),
            None => format!("{head}}}"),
        }
    }

    fn is_consistent(&self) -> bool {
        if self.credential_sent && (self.phase == TerminationPhase::Render || self.reason.is_success()) {
            return false;
        }
        match self.reason {
            TerminationReason::Rendered => self.phase == TerminationPhase::Render && self.digest.is_none(),
            TerminationReason::Pushed | TerminationReason::AlreadyExists => {
                self.phase == TerminationPhase::Push && self.digest.is_some()
            }
            _ => self.digest.is_none(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digest() -> Digest {
        Digest::of(b"chart")
    }

    /// Holds: E4.
    #[test]
    fn every_message_we_write_is_one_we_read() {
        let mut all = vec![
            Termination::rendered(),
            Termination::pushed(digest()),
            Termination::already_exists(digest()),
        ];
        for phase in [TerminationPhase::Render, TerminationPhase::Push] {
            all.extend(
                TerminationReason::ALL
                    .iter()
                    .map(|reason| Termination::failed(phase, *reason)),
            );
        }
        all.push(Termination {
            credential_sent: true,
            ..Termination::failed(TerminationPhase::Push, TerminationReason::Forbidden)
        });
        for message in all {
            let text = message.to_json();
            assert!(text.len() < 160);
            assert_eq!(Termination::parse(&text), Some(message.clone()), "{text}");
            assert_eq!(serde_json::to_string(&message).unwrap(), text);
        }
    }

    #[test]
    fn words_are_the_ones_serde_uses() {
        for reason in TerminationReason::ALL {
            assert_eq!(
                serde_json::to_string(&reason).unwrap(),
                format!("\"{}\"", reason.as_str())
            );
            assert!(!reason.sentence().is_empty());
        }
    }

    /// Holds: E4.
    #[test]
    fn a_success_is_never_made_from_a_failure() {
        for reason in [
            TerminationReason::Rendered,
            TerminationReason::Pushed,
            TerminationReason::AlreadyExists,
        ] {
            assert_eq!(
                Termination::failed(TerminationPhase::Push, reason).reason,
                TerminationReason::Internal
            );
        }
    }

    /// Holds: E4.
    #[test]
    fn whatever_does_not_fit_is_dropped() {
        let hex = "a".repeat(64);
        let cases = [
            String::new(),
            "null".into(),
            "Pushed".into(),
            r#"{"phase":"Push"}"#.into(),
            r#"{"phase":"Push","reason":"Pushed"}"#.into(),
            r#"{"phase":"Push","reason":"Hacked"}"#.into(),
            r#"{"phase":"Push","reason":"Internal","message":"token"}"#.into(),
            r#"{"phase":"Push","phase":"Push","reason":"Internal"}"#.into(),
            format!(r#"{{"phase":"Push","reason":"Pushed","digest":"sha512:{hex}"}}"#),
            format!(
                r#"{{"phase":"Push","reason":"Pushed","digest":"sha256:{}"}}"#,
                &hex[1..]
            ),
            format!(
                r#"{{"phase":"Push","reason":"Pushed","digest":"sha256:{}"}}"#,
                hex.to_uppercase()
            ),
            format!(r#"{{"phase":"Render","reason":"Pushed","digest":"sha256:{hex}"}}"#),
            format!(r#"{{"phase":"Push","reason":"Internal","digest":"sha256:{hex}"}}"#),
            r#"{"phase":"Push","reason":"Rendered"}"#.into(),
            r#"{"phase":"Render","reason":"Internal","credentialSent":true}"#.into(),
            r#"{"phase":"Push","reason":"Internal","credentialSent":"yes"}"#.into(),
            format!(
                r#"{{"phase":"Push","reason":"Internal"}}{}"#,
                " ".repeat(MAX_BYTES)
            ),
            r#"{"phase":"Push","reason":"Internal"} {}"#.into(),
        ];
        for text in cases {
            assert_eq!(Termination::parse(&text), None, "{text}");
        }
    }
}
