//! The verdict on a registry: whether its credential can be used for its host.

#![warn(clippy::wildcard_enum_match_arm)]

use k8s_openapi::api::core::v1::Secret;

use crate::api::ClusterRegistrySpec;
use crate::api::basic_auth;
use crate::api::conditions::{ConditionType, Reason, Wanted};
use crate::api::docker_config::DockerConfig;
use crate::api::oci::{RegistryHost, RepositoryPrefix};

use super::catalog::{Credential, unserved};

/// Judges the Secret of this name that is to be used for the host.
#[must_use]
pub fn credential(name: Option<&str>, hostname: &str, secret: Option<&Secret>) -> Credential {
    let Some(name) = name else {
        return Credential::Anonymous;
    };
    let Some(secret) = secret else {
        return Credential::Missing;
    };
    match secret.type_.as_deref() {
        Some("kubernetes.io/basic-auth") if holds_pair(secret) => Credential::BasicAuth(name.to_owned()),
        Some("kubernetes.io/dockerconfigjson") if covers(secret, hostname) => {
            Credential::DockerConfig(name.to_owned())
        }
        _ => Credential::Invalid,
    }
}

fn holds_pair(secret: &Secret) -> bool {
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|v| v.0.as_slice());
    value("username")
        .zip(value("password"))
        .is_some_and(|(username, password)| basic_auth::parse(username, password).is_ok())
}

fn covers(secret: &Secret, hostname: &str) -> bool {
    let bytes = secret.data.as_ref().and_then(|d| d.get(".dockerconfigjson"));
    let config = bytes.and_then(|b| DockerConfig::parse(&b.0).ok());
    let host: Option<RegistryHost> = hostname.parse().ok();
    config
        .zip(host)
        .is_some_and(|(config, host)| matches!(config.lookup(&host), Ok(Some(_))))
}

/// The `Ready` condition of a registry.
#[must_use]
pub fn ready(spec: &ClusterRegistrySpec, credential: &Credential) -> Wanted {
    let (reason, message) = if spec.hostname.parse::<RegistryHost>().is_err() {
        (
            Reason::InvalidSpec,
            "hostname is no registry host; write host or host:port without a scheme",
        )
    } else if unserved(spec).is_some() {
        (
            Reason::FeatureDisabled,
            "targetPullSecretName is not served by this hub; leave it out",
        )
    } else if !has_usable_prefix(spec) {
        (
            Reason::InvalidSpec,
            "repositoryPrefix is no OCI repository prefix",
        )
    } else {
        match credential {
            Credential::Missing => (
                Reason::PushSecretNotFound,
                "the Secret does not exist in the rendering namespace; make it there",
            ),
            Credential::Invalid => (
                Reason::PushSecretInvalid,
                "the Secret must be of type kubernetes.io/basic-auth with username and password, or \
                 kubernetes.io/dockerconfigjson with an entry for the hostname",
            ),
            Credential::Anonymous => (Reason::Ready, "tasks push anonymously"),
            Credential::BasicAuth(_) | Credential::DockerConfig(_) => {
                (Reason::Ready, "tasks push with the Secret")
            }
        }
    };
    Wanted {
        type_: ConditionType::Ready,
        status: reason == Reason::Ready,
        reason,
        message: message.to_owned(),
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

    fn judged(secret: &Secret) -> Credential {
        credential(Some("s"), "registry.test:5000", Some(secret))
    }

    #[test]
    fn only_a_supported_type_is_usable() {
        let pair = [("username", "u"), ("password", "p")];
        assert_eq!(judged(&secret(BASIC, &pair)), Credential::BasicAuth("s".into()));
        assert_eq!(judged(&secret("Opaque", &pair)), Credential::Invalid);
        assert_eq!(judged(&secret(DOCKER, &pair)), Credential::Invalid);
        assert_eq!(judged(&secret(BASIC, &pair[..1])), Credential::Invalid);
        assert_eq!(judged(&Secret::default()), Credential::Invalid);
        let host = "registry.test:5000";
        assert_eq!(credential(Some("s"), host, None), Credential::Missing);
        assert_eq!(credential(None, host, None), Credential::Anonymous);
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
                Credential::BasicAuth("s".into())
            } else {
                Credential::Invalid
            };
            assert_eq!(verdict, expected, "{username:?}");
        }
    }

    #[test]
    fn dockers_file_must_cover_the_host() {
        let (good, bad) = (r#"{"username":"u","password":"p"}"#, r#"{"auth":"!!"}"#);
        for (ours, others, usable) in [
            (good, "{}", true),
            (good, bad, true),
            ("{}", good, false),
            (bad, good, false),
            ("", good, false),
        ] {
            let file = format!(r#"{{"auths":{{"registry.test:5000":{ours},"other.test":{others}}}}}"#);
            let expected = if usable {
                Credential::DockerConfig("s".into())
            } else {
                Credential::Invalid
            };
            let verdict = judged(&secret(DOCKER, &[(".dockerconfigjson", &file)]));
            assert_eq!(verdict, expected, "{file}");
        }
    }

    #[test]
    fn ready_says_what_to_mend() {
        let table = [
            (Credential::Anonymous, true, Reason::Ready),
            (Credential::BasicAuth("s".into()), true, Reason::Ready),
            (Credential::Missing, false, Reason::PushSecretNotFound),
            (Credential::Invalid, false, Reason::PushSecretInvalid),
        ];
        for (credential, status, reason) in table {
            let wanted = ready(&spec(Some("s")), &credential);
            assert_eq!((wanted.status, wanted.reason), (status, reason), "{credential:?}");
        }
        let bad_host = ClusterRegistrySpec {
            hostname: "https://x".into(),
            ..spec(None)
        };
        assert_eq!(
            ready(&bad_host, &Credential::Anonymous).reason,
            Reason::InvalidSpec
        );
    }
}
