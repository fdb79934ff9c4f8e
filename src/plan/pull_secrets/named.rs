//! The pull Secrets that a class names: what became of each, and what is said of it.

use super::copy::{PullCopyId, PullSecretFault};
use super::image_repository::ImageRepository;
use crate::api::RendererClassSpec;
use crate::api::conditions::{ConditionType, DesiredCondition, Reason};

/// A pull Secret that a class names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedPullSecret {
    /// Its name in the hub's release namespace.
    pub name: String,
    /// The copy of it for the image of the class.
    pub copy: Result<PullCopyId, PullSecretFault>,
    /// Whether the rendering namespace has a Secret of the name that no hub made; it is used in place of a copy.
    pub is_by_hand: bool,
}

impl NamedPullSecret {
    /// The Secrets that a class names before they are read: a Job names them all the same, and reads them itself.
    #[must_use]
    pub fn unread(spec: &RendererClassSpec) -> Vec<Self> {
        let unread = |name: &str| Self {
            name: name.to_owned(),
            copy: Err(PullSecretFault::Unread),
            is_by_hand: false,
        };
        names(spec).into_iter().map(unread).collect()
    }

    fn fault(&self) -> Option<PullSecretFault> {
        self.copy.as_ref().err().copied().filter(|_| !self.is_by_hand)
    }

    /// What became of the Secret, for the platform operator.
    fn outcome(&self, host: &str) -> String {
        let name = &self.name;
        match self.fault() {
            Some(fault) => format!("{name} ({})", phrase(fault, host)),
            None if self.is_by_hand => format!("{name} (the one in the rendering namespace, as it is)"),
            None => format!("{name} (has {host})"),
        }
    }

    /// What a pod was given for it: a copy, or its name. Of a name only a read would tell whether there is such a Secret where the pod is;
    /// of the rendering namespace the hub knows it.
    fn outcome_in_pod(&self, host: &str, is_copied: bool, is_on_hub: bool) -> String {
        let name = &self.name;
        if is_on_hub && self.is_by_hand && !is_copied {
            return format!("{name} (the one in the rendering namespace, as it is)");
        }
        let or_by_hand = if is_on_hub {
            ""
        } else {
            "; one that was made by hand on the cluster is used as it is"
        };
        match self.copy {
            Ok(_) if is_copied => format!("{name} (has {host})"),
            Ok(_) => {
                format!("{name} (could not be copied when the Job was made, and can be now{or_by_hand})")
            }
            Err(fault) if is_on_hub => format!("{name} ({})", phrase(fault, host)),
            Err(PullSecretFault::Missing) => {
                format!("{name} (does not exist in the hub's release namespace{or_by_hand})")
            }
            Err(fault) => format!("{name} ({}{or_by_hand})", phrase(fault, host)),
        }
    }
}

/// The names of the Secrets that a class names, each once, in their order.
#[must_use]
pub fn names(spec: &RendererClassSpec) -> Vec<&str> {
    let mut all: Vec<&str> = Vec::new();
    for secret in &spec.image_pull_secrets {
        if !secret.name.is_empty() && !all.contains(&secret.name.as_str()) {
            all.push(&secret.name);
        }
    }
    all
}

fn phrase(fault: PullSecretFault, host: &str) -> String {
    let words = match fault {
        PullSecretFault::Missing => {
            "does not exist, neither in the hub's release namespace nor where the Jobs run"
        }
        PullSecretFault::AnotherType => {
            "is of another type than kubernetes.io/dockerconfigjson and kubernetes.io/dockercfg"
        }
        PullSecretFault::Undecodable => "has an entry that the kubelet cannot decode",
        PullSecretFault::TooLarge => "would be a copy larger than 64 KiB",
        PullSecretFault::NoEntry => return format!("has no entry for {host}"),
        PullSecretFault::Unread => "could not be read yet; the hub tries again",
    };
    words.to_owned()
}

/// The secrets in the order in which they are in the pod, each with what became of it.
#[must_use]
pub fn outcomes(image: &str, named: &[NamedPullSecret]) -> String {
    of_each(image, named, NamedPullSecret::outcome)
}

/// The same for a pod that names these by their own names, and not by the name of a copy.
#[must_use]
pub fn outcomes_in_pod(
    image: &str,
    named: &[NamedPullSecret],
    uncopied: &[String],
    is_on_hub: bool,
) -> String {
    of_each(image, named, |secret, host| {
        secret.outcome_in_pod(host, !uncopied.contains(&secret.name), is_on_hub)
    })
}

fn of_each(
    image: &str,
    named: &[NamedPullSecret],
    outcome: impl Fn(&NamedPullSecret, &str) -> String,
) -> String {
    let repository = ImageRepository::of(image);
    let host = repository
        .as_ref()
        .map_or("the image's host", ImageRepository::host);
    let all: Vec<String> = named.iter().map(|secret| outcome(secret, host)).collect();
    all.join(", ")
}

/// The condition on the pull Secrets of a class; `None` where it names none.
#[must_use]
pub fn condition(image: &str, named: &[NamedPullSecret]) -> Option<DesiredCondition> {
    if named.is_empty() {
        return None;
    }
    let reason = reason(named);
    let outcomes = outcomes(image, named);
    let message = match reason {
        Reason::Resolved => format!("the image is pulled with {outcomes}"),
        Reason::PullSecretWithoutHost => format!(
            "no pull Secret of the class has an entry for the host of its image: {outcomes}; add it to one of them in the hub's release \
             namespace: the next Job uses it"
        ),
        _ => format!(
            "a pull Secret of the class cannot be used: {outcomes}; correct it in the hub's release namespace: the next Job uses it"
        ),
    };
    let (type_, holds) = (ConditionType::PullSecretsResolved, reason == Reason::Resolved);
    Some(DesiredCondition::new(type_, holds, reason, message))
}

fn reason(named: &[NamedPullSecret]) -> Reason {
    let faults = || named.iter().filter_map(NamedPullSecret::fault);
    let is_pulled = named.iter().any(|secret| secret.fault().is_none());
    if faults().any(|fault| fault == PullSecretFault::Missing) {
        return Reason::PullSecretNotFound;
    }
    if faults().any(|fault| fault != PullSecretFault::NoEntry) {
        return Reason::PullSecretInvalid;
    }
    // Of several Secrets each may have hosts of its own.
    if is_pulled {
        Reason::Resolved
    } else {
        Reason::PullSecretWithoutHost
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::ByteString;
    use k8s_openapi::api::core::v1::Secret;

    use super::*;
    use crate::api::PullSecretEntries;
    use crate::api::names::HubId;
    use crate::plan::pull_secrets::copy::PullCopy;

    fn id() -> PullCopyId {
        let file = br#"{"auths":{"registry.example.com":{"auth":"dTpw"}}}"#;
        let source = Secret {
            type_: Some("kubernetes.io/dockerconfigjson".to_owned()),
            data: Some([(".dockerconfigjson".to_owned(), ByteString(file.to_vec()))].into()),
            ..Secret::default()
        };
        let hub = HubId::new("main", "0f5a4e0c-0001").unwrap();
        let image = ImageRepository::of("registry.example.com/renderer:1").unwrap();
        PullCopy::of(&hub, &source, &image, PullSecretEntries::Needed)
            .unwrap()
            .id()
            .clone()
    }

    fn named(name: &str, fault: Option<PullSecretFault>, is_by_hand: bool) -> NamedPullSecret {
        NamedPullSecret {
            name: name.to_owned(),
            copy: fault.map_or_else(|| Ok(id()), Err),
            is_by_hand,
        }
    }

    #[expect(clippy::too_many_lines, reason = "one line a case")]
    #[test]
    fn a_class_says_which_of_its_secrets_has_the_host_and_what_is_wrong_with_the_others() {
        use PullSecretFault::{AnotherType, Missing, NoEntry, TooLarge, Undecodable};
        let (good, hand) = (named("a", None, false), named("b", Some(Missing), true));
        for (all, reason, words) in [
            (
                vec![good.clone()],
                Reason::Resolved,
                "a (has registry.example.com)",
            ),
            (
                vec![hand.clone(), good.clone()],
                Reason::Resolved,
                "b (the one in the rendering namespace",
            ),
            (
                vec![good.clone(), named("c", Some(NoEntry), false)],
                Reason::Resolved,
                "c (has no entry for registry.example.com)",
            ),
            (
                vec![named("c", Some(NoEntry), false)],
                Reason::PullSecretWithoutHost,
                "add it to one of them",
            ),
            (
                vec![good.clone(), named("c", Some(Missing), false)],
                Reason::PullSecretNotFound,
                "c (does not exist",
            ),
            (
                vec![named("c", Some(AnotherType), false)],
                Reason::PullSecretInvalid,
                "another type",
            ),
            (
                vec![named("c", Some(Undecodable), false)],
                Reason::PullSecretInvalid,
                "cannot decode",
            ),
            (
                vec![named("c", Some(TooLarge), false)],
                Reason::PullSecretInvalid,
                "64 KiB",
            ),
        ] {
            let said = condition("registry.example.com/renderer:1", &all).unwrap();
            assert_eq!(
                (said.reason, said.status),
                (reason, reason == Reason::Resolved),
                "{}",
                said.message
            );
            assert!(said.message.contains(words), "{}", said.message);
        }
        assert_eq!(condition("registry.example.com/renderer:1", &[]), None);
    }
}
