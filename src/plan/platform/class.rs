//! The verdict on a renderer class: whether it can be used, and how well it keeps the credential from tenants' input.

use crate::api::conditions::{ConditionType, DesiredCondition, Reason};
use crate::api::{RendererClassSpec, RendererMode};

use crate::plan::pull_secrets::named::{self, NamedPullSecret};
use crate::plan::pull_secrets::pull_failure::ClassPullFailure;
use crate::plan::task::admission_rejection::AdmissionRejection;

use super::undecodable::undecodable;

/// The conditions of a class; `None` is a spec that this hub cannot decode. The objection is what keeps its Jobs from being
/// accepted.
#[must_use]
pub fn conditions(
    spec: Option<&RendererClassSpec>,
    objection: Option<&AdmissionRejection>,
) -> Vec<DesiredCondition> {
    let Some(spec) = spec else {
        return vec![undecodable(": tasks of the class wait until then")];
    };
    let ready = match objection {
        Some(objection) => DesiredCondition::new(
            ConditionType::Ready,
            false,
            Reason::JobRefused,
            refused(objection),
        ),
        None => ready(spec),
    };
    vec![ready, isolated(spec.mode)]
}

/// The message to the platform operator about a class whose Jobs are refused.
#[must_use]
pub fn refused(objection: &AdmissionRejection) -> String {
    let mend = match objection {
        AdmissionRejection::Field(_) => "correct the class",
        AdmissionRejection::Policy(_) | AdmissionRejection::Webhook(_) => {
            "change the class or what denies it"
        }
        AdmissionRejection::SilentWebhook(_) => "make it answer, or remove it",
    };
    format!(
        "the API server does not accept the Jobs of this class: {objection}; {mend}; its tasks wait and start by themselves"
    )
}

/// The conditions about the image of a class.
pub fn of_image(
    image: &str,
    named: &[NamedPullSecret],
    failure: Option<&ClassPullFailure>,
) -> impl Iterator<Item = DesiredCondition> {
    let failure = failure.map(|failure| failure.condition(image, named));
    named::condition(image, named).into_iter().chain(failure)
}

/// The conditions that a class with these does not have.
#[must_use]
pub fn unsaid(wanted: &[DesiredCondition]) -> Vec<ConditionType> {
    let is_wanted = |type_: &ConditionType| wanted.iter().any(|wanted| wanted.type_ == *type_);
    let all = [
        ConditionType::Isolated,
        ConditionType::PullSecretsResolved,
        ConditionType::ImagePulled,
    ];
    all.into_iter().filter(|type_| !is_wanted(type_)).collect()
}

fn ready(spec: &RendererClassSpec) -> DesiredCondition {
    let message = if spec.mode == RendererMode::Single && spec.allowed_namespaces.is_empty() {
        "the class serves the platform's own tasks alone; list namespaces in allowedNamespaces to serve tenants"
    } else {
        "tasks can use the class"
    };
    DesiredCondition::new(ConditionType::Ready, true, Reason::Ready, message)
}

fn isolated(mode: RendererMode) -> DesiredCondition {
    let (status, reason, message) = match mode {
        RendererMode::Split => (
            true,
            Reason::SeparateContainers,
            "what a tenant wrote is read in a container without the push credential",
        ),
        RendererMode::Single => (
            false,
            Reason::SharedContainer,
            "one container reads what a tenant wrote and holds the push credential, so a tenant that makes it run other code has the \
             credential; use an image that you trust with it, list only namespaces that you trust, give their registry a \
             credential that can push nowhere else, or use mode Split",
        ),
    };
    DesiredCondition::new(ConditionType::Isolated, status, reason, message)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn said(spec: &Value) -> Vec<(ConditionType, bool, Reason)> {
        let spec: RendererClassSpec = serde_json::from_value(spec.clone()).unwrap();
        let all = conditions(Some(&spec), None).into_iter();
        all.map(|wanted| (wanted.type_, wanted.status, wanted.reason))
            .collect()
    }

    #[test]
    fn mode_single_is_usable_and_says_that_it_is_weaker() {
        let ready = (ConditionType::Ready, true, Reason::Ready);
        let isolated = (ConditionType::Isolated, true, Reason::SeparateContainers);
        let shared = (ConditionType::Isolated, false, Reason::SharedContainer);
        assert_eq!(said(&json!({"image": "a.test/b:1"})), [ready, isolated]);
        assert_eq!(
            said(&json!({"image": "a.test/b:1", "mode": "Split"})),
            [ready, isolated]
        );
        assert_eq!(
            said(&json!({"image": "a.test/b:1", "mode": "Single"})),
            [ready, shared]
        );
    }

    /// Holds: B28.
    #[test]
    fn a_class_whose_jobs_are_not_accepted_says_why() {
        let name = || "deny.example.com".to_owned();
        for (objection, words) in [
            (
                AdmissionRejection::Field("spec.template".to_owned()),
                ["field spec.template ", "correct the class"],
            ),
            (
                AdmissionRejection::Policy(name()),
                [
                    "ValidatingAdmissionPolicy deny.example.com denies",
                    "what denies it",
                ],
            ),
            (
                AdmissionRejection::Webhook(name()),
                ["admission webhook deny.example.com denies", "what denies it"],
            ),
            (
                AdmissionRejection::SilentWebhook(name()),
                [
                    "admission webhook deny.example.com does not answer",
                    "make it answer",
                ],
            ),
        ] {
            let all = conditions(Some(&RendererClassSpec::default()), Some(&objection));
            let [ready, isolated] = &all[..] else {
                unreachable!("two conditions")
            };
            assert_eq!(
                (ready.type_, ready.status, ready.reason),
                (ConditionType::Ready, false, Reason::JobRefused)
            );
            assert!(
                words.iter().all(|word| ready.message.contains(word)),
                "{}",
                ready.message
            );
            assert_eq!(isolated.type_, ConditionType::Isolated);
        }
    }

    #[test]
    fn a_class_that_serves_no_tenant_says_so() {
        for (spec, serves_none) in [
            (json!({"image": "a", "mode": "Single"}), true),
            (
                json!({"image": "a", "mode": "Single", "allowedNamespaces": ["team-a"]}),
                false,
            ),
            (json!({"image": "a"}), false),
        ] {
            let spec: RendererClassSpec = serde_json::from_value(spec).unwrap();
            assert_eq!(ready(&spec).message.contains("allowedNamespaces"), serves_none);
        }
    }

    #[test]
    fn of_a_class_that_cannot_be_decoded_nothing_is_said_but_that() {
        let [wanted] = &conditions(None, None)[..] else {
            unreachable!("one condition")
        };
        assert_eq!((wanted.status, wanted.reason), (false, Reason::InvalidSpec));
        let unsaid_of = |spec: Option<&RendererClassSpec>| unsaid(&conditions(spec, None));
        assert!(unsaid_of(None).contains(&ConditionType::Isolated));
        assert!(!unsaid_of(Some(&RendererClassSpec::default())).contains(&ConditionType::Isolated));
    }
}
