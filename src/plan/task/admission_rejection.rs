//! The part of the hub's own API server that refuses an object, by name: a field, an admission policy or a webhook.
//!
//! Only what the API server itself puts into its response is read; the texts of policies and webhooks are ignored.

use std::fmt;

use serde::Deserialize;

/// Longest name, that of a DNS subdomain, and longest path of a field that a message repeats.
const NAME_MAX: usize = 253;

/// Why the API server does not accept an object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AdmissionRejection {
    /// This field of it is not valid.
    Field(String),
    /// A `ValidatingAdmissionPolicy` of this name denies it.
    Policy(String),
    /// An admission webhook of this name denies it.
    Webhook(String),
    /// An admission webhook of this name, which must be asked, does not answer.
    SilentWebhook(String),
}

impl fmt::Display for AdmissionRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(path) => write!(f, "its field {path} is not valid"),
            Self::Policy(name) => write!(f, "the ValidatingAdmissionPolicy {name} denies it"),
            Self::Webhook(name) => write!(f, "the admission webhook {name} denies it"),
            Self::SilentWebhook(name) => write!(f, "the admission webhook {name} does not answer"),
        }
    }
}

#[derive(Deserialize)]
struct RejectionStatus {
    message: Option<String>,
    reason: Option<String>,
    details: Option<RejectionDetails>,
}

#[derive(Deserialize)]
struct RejectionDetails {
    #[serde(default)]
    causes: Vec<RejectionCause>,
}

#[derive(Deserialize)]
struct RejectionCause {
    field: Option<String>,
}

/// What an answer names that is no success; nothing where it is another failure, such as a quota that is used up.
#[must_use]
pub fn read(answer: &[u8]) -> Option<AdmissionRejection> {
    let said: RejectionStatus = serde_json::from_slice(answer).ok()?;
    let message = said.message.unwrap_or_default();
    // Webhooks come first: of such an answer everything behind the name is the webhook's own.
    if let Some(rest) = message.strip_prefix("admission webhook \"") {
        let (name, end) = rest.split_once('"')?;
        return named(name)
            .filter(|_| end.starts_with(" denied the request"))
            .map(AdmissionRejection::Webhook);
    }
    if let Some(rest) = message.strip_prefix("Internal error occurred: failed calling webhook \"") {
        return named(rest.split_once('"')?.0).map(AdmissionRejection::SilentWebhook);
    }
    let (_, behind) = message.split_once('"').unwrap_or_default();
    let (_, behind) = behind.split_once('"').unwrap_or_default();
    if let Some(rest) = behind.strip_prefix(" is forbidden: ValidatingAdmissionPolicy '") {
        return named(rest.split_once('\'')?.0).map(AdmissionRejection::Policy);
    }
    if said.reason.as_deref() != Some("Invalid") {
        return None;
    }
    let causes = said.details.map(|details| details.causes).unwrap_or_default();
    let mut fields = causes.into_iter().filter_map(|cause| cause.field);
    fields
        .find(|field| is_path(field) && field.len() <= NAME_MAX)
        .map(AdmissionRejection::Field)
}

/// A name as objects of Kubernetes have it.
fn named(name: &str) -> Option<String> {
    let is_one =
        |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b':');
    let fits = !name.is_empty() && name.len() <= NAME_MAX && name.bytes().all(is_one);
    fits.then(|| name.to_owned())
}

fn is_path(field: &str) -> bool {
    let is_part =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'[' | b']' | b'/' | b'-' | b'_');
    !field.is_empty() && field.bytes().all(is_part)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// Holds: B28.
    #[expect(clippy::too_many_lines, reason = "one line an answer")]
    #[test]
    fn only_names_that_the_api_server_gives_are_read() {
        let field = "spec.template.spec.initContainers[0].resources.requests";
        let invalid = |causes: Value| {
            json!({"code": 422, "reason": "Invalid", "message": "Job.batch \"x\" is invalid: secret words",
                "details": {"causes": causes}})
        };
        let says = |message: &str| json!({"code": 403, "reason": "Forbidden", "message": message});
        let long = "a".repeat(254);
        let table = [
            (
                invalid(json!([{"field": field, "message": "secret words"}])),
                Some(AdmissionRejection::Field(field.to_owned())),
            ),
            (
                invalid(json!([{"message": "secret words"}, {"field": field}])),
                Some(AdmissionRejection::Field(field.to_owned())),
            ),
            (invalid(json!([])), None),
            (invalid(json!([{"field": "secret words"}])), None),
            (invalid(json!([{"field": long}])), None),
            (
                says(
                    "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'no-jobs' with binding 'b' denied request: secret words",
                ),
                Some(AdmissionRejection::Policy("no-jobs".to_owned())),
            ),
            (
                says(
                    "jobs.batch \"x\" is forbidden: ValidatingAdmissionPolicy 'secret words' denied request",
                ),
                None,
            ),
            (
                says("admission webhook \"deny.example.com\" denied the request: secret words"),
                Some(AdmissionRejection::Webhook("deny.example.com".to_owned())),
            ),
            (
                says(
                    "admission webhook \"deny.example.com\" denied the request: \"x\" is forbidden: ValidatingAdmissionPolicy 'other' no",
                ),
                Some(AdmissionRejection::Webhook("deny.example.com".to_owned())),
            ),
            (
                says("admission webhook \"deny.example.com\" does not support dry run"),
                None,
            ),
            (
                says("Internal error occurred: failed calling webhook \"deny.example.com\": secret words"),
                Some(AdmissionRejection::SilentWebhook("deny.example.com".to_owned())),
            ),
            (
                says("jobs.batch \"x\" is forbidden: exceeded quota: all, requested: count/jobs.batch=1"),
                None,
            ),
            (
                says(
                    "jobs.batch is forbidden: User \"hub\" cannot create resource \"jobs\" in API group \"batch\"",
                ),
                None,
            ),
            (json!({"message": 7}), None),
            (json!([]), None),
        ];
        for (answer, expected) in table {
            let found = read(answer.to_string().as_bytes());
            assert_eq!(found, expected, "{answer}");
            assert!(!found.is_some_and(|found| found.to_string().contains("secret")));
        }
        assert_eq!(read(b"no JSON"), None);
    }
}
