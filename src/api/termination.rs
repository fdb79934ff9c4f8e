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

/// What a reason means for another attempt.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TerminationOutcome {
    /// None is needed.
    Success,
    /// The same input fails in the same way each time.
    Permanent,
    /// Another attempt may succeed.
    Transient,
}

macro_rules! termination_reasons {
    ($($(#[$doc:meta])* $name:ident: $outcome:ident, $sentence:literal;)+) => {
        /// Why a renderer container ended; a closed list, safe to show to a tenant.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum TerminationReason { $($(#[$doc])* $name),+ }

        impl TerminationReason {
            /// Every reason, for tables and documentation checks.
            pub const ALL: [Self; [$(Self::$name),+].len()] = [$(Self::$name),+];

            /// The value in the message and in a metric label.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name)),+ }
            }

            /// One sentence for `status.failure.message`: the hub's own text, never a foreign string.
            #[must_use]
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$name => $sentence),+ }
            }

            const fn outcome(self) -> TerminationOutcome {
                match self { $(Self::$name => TerminationOutcome::$outcome),+ }
            }
        }
    };
}

termination_reasons! {
    /// The chart archive was written.
    Rendered: Success, "the chart was rendered";
    /// The chart was uploaded and the registry confirmed its digest.
    Pushed: Success, "the chart was pushed";
    /// The tag already held exactly this chart; nothing was uploaded.
    AlreadyExists: Success, "the registry already holds exactly this chart";
    /// The configuration cannot be read, parsed or rendered.
    BadConfig: Permanent, "the configuration cannot be parsed or rendered";
    /// The configuration or the destination is not the one that the Job was made for.
    InputReplaced: Permanent, "the task's config Secret holds something else than the hub wrote into it; ask the platform operator";
    /// The configuration or the chart exceeds a size limit.
    ChartTooLarge: Permanent, "the configuration or the chart is too large";
    /// The chart archive is missing, not a regular file, or not a chart.
    BadArchive: Permanent, "the chart archive is missing or not a chart";
    /// The credential files cannot be read or parsed, or hold no credential for the registry.
    BadCredentials: Permanent, "the push credential cannot be read or is not for the registry";
    /// The destination is not an OCI reference, is on another registry, or does not match the chart's name and version.
    BadDestination: Permanent, "the destination is not valid or does not match the chart's name and version";
    /// The registry does not accept the credential (401).
    Unauthorized: Permanent, "the registry does not accept the push credential";
    /// The registry does not allow this push to a client that sent it no credential (401 or 403).
    CredentialRequired: Permanent, "the registry does not allow this push without a credential, and none was sent to it";
    /// The registry accepts the credential but not this push (403).
    Forbidden: Permanent, "the push credential may not push to this repository";
    /// The tag exists with other content, or does not hold the chart right after its upload.
    TagConflict: Permanent, "the tag already exists with other content";
    /// The registry cannot be reached: DNS, connection, TLS, the authorities to trust, or deadline.
    RegistryUnreachable: Transient, "the registry cannot be reached";
    /// The registry answered with an error or with something that is not the OCI protocol.
    RegistryRefused: Transient, "the registry refused the push";
    /// The registry stored something else than what was pushed.
    DigestMismatch: Transient, "the registry stored something else than what was pushed";
    /// The registry redirected an authenticated call, or pointed an upload at another origin.
    RedirectRefused: Permanent, "the registry redirected the push elsewhere, which is not followed";
    /// The registry's token service is not one that may receive the credential.
    RealmRefused: Permanent, "the registry's token service is not allowed to receive the credential";
    /// None of the above: a bug, or a broken machine.
    Internal: Transient, "the renderer failed";
}

impl TerminationReason {
    /// Whether the container did what it was asked to.
    #[must_use]
    pub const fn is_success(self) -> bool {
        matches!(self.outcome(), TerminationOutcome::Success)
    }

    /// Whether the same input fails in the same way each time.
    #[must_use]
    pub const fn is_permanent(self) -> bool {
        matches!(self.outcome(), TerminationOutcome::Permanent)
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
    #[serde(
        default,
        rename = "credentialSent",
        skip_serializing_if = "std::ops::Not::not"
    )]
    pub credential_sent: bool,
}

impl Termination {
    const fn new(phase: TerminationPhase, reason: TerminationReason, digest: Option<Digest>) -> Self {
        Self {
            phase,
            reason,
            digest,
            credential_sent: false,
        }
    }

    /// `Rendered`, the only success of the render phase.
    #[must_use]
    pub const fn rendered() -> Self {
        Self::new(TerminationPhase::Render, TerminationReason::Rendered, None)
    }

    /// A chart that this run uploaded.
    #[must_use]
    pub const fn pushed(digest: Digest) -> Self {
        Self::new(TerminationPhase::Push, TerminationReason::Pushed, Some(digest))
    }

    /// A chart that was already there, byte for byte.
    #[must_use]
    pub const fn already_exists(digest: Digest) -> Self {
        Self::new(
            TerminationPhase::Push,
            TerminationReason::AlreadyExists,
            Some(digest),
        )
    }

    /// A failure; a success reason becomes `Internal`, because a success needs more than a reason.
    #[must_use]
    pub const fn failed(phase: TerminationPhase, reason: TerminationReason) -> Self {
        let is_success = reason.is_success();
        let reason = if is_success {
            TerminationReason::Internal
        } else {
            reason
        };
        Self::new(phase, reason, None)
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
        serde_json::to_string(self).unwrap_or_default()
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
