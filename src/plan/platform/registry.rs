//! The verdict on a registry: whether its credential can be used for its host.

#![warn(clippy::wildcard_enum_match_arm)]

use k8s_openapi::api::core::v1::Secret;

use crate::api::ClusterRegistrySpec;
use crate::api::basic_auth::SecretHostMatch;
use crate::api::conditions::{ConditionType, DesiredCondition, Reason};
use crate::api::oci::{RegistryHost, RepositoryPrefix};

use super::catalog::CredentialState;
use crate::plan::task::tenant::tenant_credential::{BASIC_AUTH, basic_credential};

/// Judges the Secret of this name that is to be used for the host.
#[must_use]
pub fn credential(name: Option<&str>, hostname: &str, secret: Option<&Secret>) -> CredentialState {
    let Some(name) = name else {
        return CredentialState::Anonymous;
    };
    let Some(secret) = secret else {
        return CredentialState::Missing;
    };
    match secret
        .type_
        .as_deref()
        .filter(|_| basic_credential(secret, hostname).is_some())
    {
        None => CredentialState::Invalid,
        Some(BASIC_AUTH) => CredentialState::BasicAuth(name.to_owned()),
        Some(_) => CredentialState::DockerConfig(name.to_owned()),
    }
}

/// The verdict on a registry's Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialVerdict {
    /// What it is, or why it cannot be used.
    pub credential: CredentialState,
    /// Whether it is used although it does not say which host it is for.
    pub is_unbound: bool,
}

/// Judges the credential of a registry, and whether its Secret says for which host it is. A file of docker's says it by its
/// entries.
#[must_use]
pub fn judge_credential(name: Option<&str>, hostname: &str, secret: Option<&Secret>) -> CredentialVerdict {
    let credential = credential(name, hostname, secret);
    let is_pair = matches!(credential, CredentialState::BasicAuth(_));
    let named = secret.map(|secret| SecretHostMatch::of(secret.metadata.annotations.as_ref(), hostname));
    CredentialVerdict {
        is_unbound: is_pair && named != Some(SecretHostMatch::Same),
        credential,
    }
}

/// The `Ready` condition of a registry.
#[must_use]
pub fn ready(spec: &ClusterRegistrySpec, judged: &CredentialVerdict) -> DesiredCondition {
    let (reason, message) = if spec.hostname.parse::<RegistryHost>().is_err() {
        (
            Reason::InvalidSpec,
            "hostname is not a registry host; write host or host:port without a scheme",
        )
    } else if !has_usable_prefix(spec) {
        (
            Reason::InvalidSpec,
            "repositoryPrefix is not the beginning of an OCI repository, such as {namespace}/; correct it",
        )
    } else {
        healthy_message(judged)
    };
    DesiredCondition::new(ConditionType::Ready, reason == Reason::Ready, reason, message)
}

/// The message about a registry without other faults.
const fn healthy_message(judged: &CredentialVerdict) -> (Reason, &'static str) {
    match judged.credential {
        CredentialState::Missing => (
            Reason::PushSecretNotFound,
            "the Secret that pushSecretRef names does not exist in the rendering namespace; make it there",
        ),
        CredentialState::Invalid => (
            Reason::PushSecretInvalid,
            "the Secret that pushSecretRef names must be of type kubernetes.io/basic-auth with username and password, and its annotation \
             renderhub.dev/registry-host must name the hostname, or of type kubernetes.io/dockerconfigjson with an entry \
             for the hostname",
        ),
        CredentialState::Anonymous => (Reason::Ready, "tasks push anonymously"),
        CredentialState::BasicAuth(_) if judged.is_unbound => (
            Reason::Ready,
            "tasks push with the Secret; it does not say which host it is for: give it the annotation \
             renderhub.dev/registry-host with the hostname, which a later version requires",
        ),
        CredentialState::BasicAuth(_) | CredentialState::DockerConfig(_) => {
            (Reason::Ready, "tasks push with the Secret")
        }
    }
}

fn has_usable_prefix(spec: &ClusterRegistrySpec) -> bool {
    spec.repository_prefix
        .replace("{namespace}", "namespace")
        .parse::<RepositoryPrefix>()
        .is_ok()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use k8s_openapi::ByteString;
    use serde_json::json;

    use super::*;
    use crate::api::basic_auth;

    fn spec(secret: Option<&str>) -> ClusterRegistrySpec {
        let mut spec = json!({"hostname": "registry.test:5000"});
        if let Some(name) = secret {
            spec["pushSecretRef"] = json!({"name": name});
        }
        serde_json::from_value(spec).unwrap()
    }

    fn secret(type_: &str, data: &[(&str, &str)]) -> Secret {
        let data = data
            .iter()
            .map(|(k, v)| ((*k).to_owned(), ByteString(v.as_bytes().to_vec())));
        Secret {
            type_: Some(type_.to_owned()),
            data: Some(data.collect::<BTreeMap<_, _>>()),
            ..Secret::default()
        }
    }

    const BASIC: &str = "kubernetes.io/basic-auth";
    const DOCKER: &str = "kubernetes.io/dockerconfigjson";

    fn judged(secret: &Secret) -> CredentialState {
        credential(Some("s"), "registry.test:5000", Some(secret))
    }

    #[test]
    fn only_a_supported_type_is_usable() {
        let pair = [("username", "u"), ("password", "p")];
        assert_eq!(
            judged(&secret(BASIC, &pair)),
            CredentialState::BasicAuth("s".into())
        );
        assert_eq!(judged(&secret("Opaque", &pair)), CredentialState::Invalid);
        assert_eq!(judged(&secret(DOCKER, &pair)), CredentialState::Invalid);
        assert_eq!(judged(&secret(BASIC, &pair[..1])), CredentialState::Invalid);
        assert_eq!(judged(&Secret::default()), CredentialState::Invalid);
        let host = "registry.test:5000";
        assert_eq!(credential(Some("s"), host, None), CredentialState::Missing);
        assert_eq!(credential(None, host, None), CredentialState::Anonymous);
    }

    /// Holds: B18.
    #[test]
    fn a_pair_that_names_another_host_is_not_used_and_one_that_names_none_is_warned_of() {
        let pair = secret(BASIC, &[("username", "u"), ("password", "p")]);
        let host = "registry.test:5000";
        let reported = |named: Option<&str>| {
            let mut secret = pair.clone();
            secret.metadata.annotations =
                named.map(|host| [(crate::api::labels::REGISTRY_HOST.to_owned(), host.to_owned())].into());
            let judged = judge_credential(Some("s"), host, Some(&secret));
            assert_eq!(judged.credential, credential(Some("s"), host, Some(&secret)));
            let wanted = ready(&spec(Some("s")), &judged);
            (wanted.reason, wanted.message)
        };
        let (reason, message) = reported(Some(host));
        assert_eq!((reason, &*message), (Reason::Ready, "tasks push with the Secret"));
        let (reason, message) = reported(None);
        assert_eq!(reason, Reason::Ready);
        assert!(message.contains("renderhub.dev/registry-host"), "{message}");
        for another in ["old.test:5000", "registry.test", "https://registry.test:5000", ""] {
            let (reason, message) = reported(Some(another));
            assert_eq!(reason, Reason::PushSecretInvalid, "{another}");
            assert!(!message.contains("old.test"), "{message}");
        }
        // Docker's file names its hosts itself, and nothing is to be warned of.
        let entry = r#"{"auths":{"registry.test:5000":{"username":"u","password":"p"}}}"#;
        let docker = judge_credential(
            Some("s"),
            host,
            Some(&secret(DOCKER, &[(".dockerconfigjson", entry)])),
        );
        assert!(!docker.is_unbound && docker.credential == CredentialState::DockerConfig("s".into()));
        assert!(
            !judge_credential(None, host, None).is_unbound
                && !judge_credential(Some("s"), host, None).is_unbound
        );
    }

    #[test]
    fn a_pair_is_judged_as_the_renderer_reads_it() {
        let long = "p".repeat(basic_auth::MAX_BYTES + 1);
        for (username, password, usable) in [
            ("u", "p:w", true),
            ("u\n", "p\r\n", true),
            ("u", "", false),
            ("u", "\n", false),
            ("\r\n", "p", false),
            ("user:name", "p", false),
            ("u", &long, false),
        ] {
            let verdict = judged(&secret(BASIC, &[("username", username), ("password", password)]));
            let expected = if usable {
                CredentialState::BasicAuth("s".into())
            } else {
                CredentialState::Invalid
            };
            assert_eq!(verdict, expected, "{username:?}");
        }
    }

    #[test]
    fn dockers_file_must_cover_the_host() {
        let (good, bad) = (r#"{"username":"u","password":"p"}"#, r#"{"auth":"!!"}"#);
        for (own, others, usable) in [
            (good, "{}", true),
            (good, bad, true),
            ("{}", good, false),
            (bad, good, false),
            ("", good, false),
        ] {
            let file = format!(r#"{{"auths":{{"registry.test:5000":{own},"other.test":{others}}}}}"#);
            let expected = if usable {
                CredentialState::DockerConfig("s".into())
            } else {
                CredentialState::Invalid
            };
            let verdict = judged(&secret(DOCKER, &[(".dockerconfigjson", &file)]));
            assert_eq!(verdict, expected, "{file}");
        }
    }

    fn bound(credential: CredentialState) -> CredentialVerdict {
        CredentialVerdict {
            credential,
            is_unbound: false,
        }
    }

    #[test]
    fn ready_says_what_to_correct() {
        let table = [
            (CredentialState::Anonymous, true, Reason::Ready),
            (CredentialState::BasicAuth("s".into()), true, Reason::Ready),
            (CredentialState::Missing, false, Reason::PushSecretNotFound),
            (CredentialState::Invalid, false, Reason::PushSecretInvalid),
        ];
        for (credential, status, reason) in table {
            let wanted = ready(&spec(Some("s")), &bound(credential.clone()));
            assert_eq!((wanted.status, wanted.reason), (status, reason), "{credential:?}");
        }
        let bad_host = ClusterRegistrySpec {
            hostname: "https://x".into(),
            ..spec(None)
        };
        assert_eq!(
            ready(&bad_host, &bound(CredentialState::Anonymous)).reason,
            Reason::InvalidSpec
        );
    }
}
