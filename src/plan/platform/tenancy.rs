//! What the platform lets tenants' references do.

#![warn(clippy::wildcard_enum_match_arm)]

use std::str::FromStr;

use crate::api::conditions::Reason;
use crate::api::names::TaskKind;
use crate::api::oci::{OciError, RegistryHost};
use crate::api::termination::TerminationReason;
use crate::api::{RegistryKind, RegistrySpec, RenderTaskSpec};

use crate::plan::task::job_state::PodTermination;
use crate::plan::task::model::Task;
use crate::plan::task::refusal::Refusal;

/// How far a task's references reach, and which account reads them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenancyPolicy {
    /// ServiceAccount in the task's namespace for tasks that name none.
    pub default_service_account: Option<String>,
    /// Whether a `ReferenceGrant` can let a reference leave the task's namespace.
    pub crosses_namespaces: bool,
    /// Whether the hub reads as itself what a task without a ServiceAccount names.
    pub is_single_tenant: bool,
    /// Hosts of the registries of their own that tenants may name.
    pub own_hosts: TenantRegistryHosts,
}

impl TenancyPolicy {
    /// Whether the platform lets a task push to this registry, which a tenant named. Its token service is checked as well: the
    /// renderer connects there too.
    ///
    /// # Errors
    /// The reason; it names the host only where that is in the task's own namespace.
    pub fn vet(&self, task: &Task, spec: &RegistrySpec, crosses: bool) -> Result<(), Refusal> {
        // A value that is no host is refused as such, wherever hosts are read.
        if task.id.kind == TaskKind::ClusterRenderTask || spec.hostname.parse::<RegistryHost>().is_err() {
            return Ok(());
        }
        self.refused_host(spec).map_or(Ok(()), |(what, host)| {
            let shown_host = match host.parse::<RegistryHost>() {
                Ok(host) if !crosses => host.as_str().to_owned(),
                _ => "this host".to_owned(),
            };
            Err(Refusal::new(
                Reason::RegistryNotAllowed,
                format!(
                    "the platform does not let tasks {what} {shown_host} by a registry of their own; make a new task that names a \
                     ClusterRegistry, or ask the platform operator to add the host to tenancy.ownRegistries.hosts"
                ),
            ))
        })
    }

    /// Whether the platform lets tenants name this registry, and its token service.
    #[must_use]
    pub fn admits(&self, spec: &RegistrySpec) -> bool {
        self.refused_host(spec).is_none()
    }

    /// A host of the registry that tenants may not name, and what it would be used for.
    fn refused_host<'s>(&self, spec: &'s RegistrySpec) -> Option<(&'static str, &'s str)> {
        let realm = spec.token_realm.as_deref();
        let named = [
            Some(("push to", spec.hostname.as_str())),
            realm.map(|url| ("ask for tokens at", host_of(url))),
        ];
        let mut named = named.into_iter().flatten();
        named.find(|(_, host)| !self.own_hosts.admit(host))
    }

    /// Whether a failure is reported without its cause: the pod asked a host that a tenant chose, and the host never asked for a
    /// credential of the tenant's, so that it may be any host that the pod reaches.
    #[must_use]
    pub fn hides(&self, task: &Task, note: Option<&PodTermination>) -> bool {
        let Some(said) = note.and_then(|note| note.message.as_ref()) else {
            return false;
        };
        let is_theirs = |spec: &RenderTaskSpec| {
            let named = spec.registry_ref.as_ref();
            let is_platforms = named.is_some_and(|named| named.kind == RegistryKind::ClusterRegistry);
            // On a cluster of the tenant's own, the pod reaches what the tenant reaches anyway.
            !is_platforms && spec.kube_config.is_none()
        };
        let is_chosen =
            task.id.kind == TaskKind::RenderTask && task.decoded.spec.as_deref().is_none_or(is_theirs);
        is_chosen && !self.is_single_tenant && !said.credential_sent && reveals_host(said.reason)
    }
}

/// Whether a termination message reveals what the host of the registry does.
const fn reveals_host(said: TerminationReason) -> bool {
    match said {
        TerminationReason::Unauthorized
        | TerminationReason::CredentialRequired
        | TerminationReason::Forbidden
        | TerminationReason::RegistryUnreachable
        | TerminationReason::RegistryRefused
        | TerminationReason::DigestMismatch
        | TerminationReason::RedirectRefused
        | TerminationReason::RealmRefused => true,
        // A conflict comes only from a host that speaks the registries' protocol, and so would a success.
        TerminationReason::TagConflict
        | TerminationReason::Rendered
        | TerminationReason::Pushed
        | TerminationReason::AlreadyExists
        | TerminationReason::BadConfig
        | TerminationReason::InputReplaced
        | TerminationReason::ChartTooLarge
        | TerminationReason::BadArchive
        | TerminationReason::BadCredentials
        | TerminationReason::BadDestination
        | TerminationReason::Internal => false,
    }
}

/// The host and port of a URL; what is no URL stays as it is, and is no host.
fn host_of(url: &str) -> &str {
    let (_, rest) = url.split_once("://").unwrap_or(("", url));
    rest.split(['/', '?', '#']).next().unwrap_or(rest)
}

/// Hosts of registries, as the platform operator lists them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TenantRegistryHosts(Vec<HostPattern>);

impl TenantRegistryHosts {
    /// Hosts that match one of these.
    #[must_use]
    pub const fn of(patterns: Vec<HostPattern>) -> Self {
        Self(patterns)
    }

    /// Every host.
    #[must_use]
    pub fn any() -> Self {
        Self(vec![HostPattern::Any])
    }

    /// Whether no host is listed.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a host is among them.
    fn admit(&self, host: &str) -> bool {
        let host = host.parse::<RegistryHost>();
        self.0.iter().any(|pattern| pattern.matches(host.as_ref().ok()))
    }
}

/// One entry: a host with its port as tasks write it, all hosts below a name, or every host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HostPattern {
    /// `*`.
    Any,
    /// `*.example.com` or `*.example.com:5000`, without the star.
    Below(String),
    /// `registry.example.com` or `registry.example.com:5000`.
    Exact(RegistryHost),
}

impl HostPattern {
    /// Whether a host, or what is none, matches.
    fn matches(&self, host: Option<&RegistryHost>) -> bool {
        match self {
            Self::Any => true,
            Self::Below(suffix) => host.is_some_and(|host| host.as_str().ends_with(suffix)),
            Self::Exact(exact) => host == Some(exact),
        }
    }
}

impl FromStr for HostPattern {
    type Err = OciError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "*" {
            return Ok(Self::Any);
        }
        match text.strip_prefix("*.") {
            None => text.parse().map(Self::Exact),
            Some(name) if name.starts_with('[') => Err(OciError::Host),
            Some(name) => {
                let host: RegistryHost = name.parse()?;
                Ok(Self::Below(format!(".{}", host.as_str())))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::termination::{Termination, TerminationPhase};
    use crate::plan::task::tests::{spec_with, task_of};

    fn tenancy(hosts: &[&str]) -> TenancyPolicy {
        let patterns = hosts.iter().map(|host| host.parse().unwrap()).collect();
        TenancyPolicy {
            own_hosts: TenantRegistryHosts::of(patterns),
            ..TenancyPolicy::default()
        }
    }

    fn registry(host: &str, realm: &Value) -> RegistrySpec {
        serde_json::from_value(json!({"hostname": host, "tokenRealm": realm})).unwrap()
    }

    /// Holds: B25.
    #[test]
    fn a_host_is_used_where_the_platform_lists_it() {
        let task = task_of(spec_with(json!({})));
        let exact = ["registry.example.com:5000"];
        for (hosts, host, is_allowed) in [
            (&[][..], "registry.example.com", false),
            (&["*"], "registry.example.com", true),
            (&["*"], "10.0.0.1:8080", true),
            (&exact, "registry.example.com:5000", true),
            (&exact, "Registry.Example.COM:5000", true),
            (&exact, "registry.example.com", false),
            (&exact, "registry.example.com:443", false),
            (&exact, "a.registry.example.com:5000", false),
            (&["*.example.com"], "a.example.com", true),
            (&["*.example.com"], "a.b.example.com", true),
            (&["*.example.com"], "example.com", false),
            (&["*.example.com"], "evilexample.com", false),
            (&["*.example.com"], "a.example.com.evil", false),
            (&["*.example.com"], "a.example.com:22", false),
            (&["*.example.com:22"], "a.example.com:22", true),
            (&["one.test", "[::1]:5000"], "[::1]:5000", true),
        ] {
            let found = tenancy(hosts).vet(&task, &registry(host, &json!(null)), false);
            assert_eq!(found.is_ok(), is_allowed, "{hosts:?} {host}");
        }
        for text in ["", "*.", "**", "*.*", "a.*.com", "https://a", "*.[::1]", "a/b"] {
            assert!(text.parse::<HostPattern>().is_err(), "{text}");
        }
    }

    /// Holds: B25.
    #[test]
    fn a_token_service_is_a_host_too() {
        let task = task_of(spec_with(json!({})));
        let tenancy = tenancy(&["r.example.com", "t.example.com:8443"]);
        for (realm, is_allowed) in [
            (json!(null), true),
            (json!("https://r.example.com/token"), true),
            (json!("https://t.example.com:8443/token?a=b"), true),
            (json!("https://t.example.com/token"), false),
            (json!("https://10.0.0.1:8443/token"), false),
            (json!("https://r.example.com@10.0.0.1/"), false),
            (json!("https://r.example.com\\@10.0.0.1/"), false),
            (json!("https://"), false),
        ] {
            let found = tenancy.vet(&task, &registry("r.example.com", &realm), false);
            assert_eq!(found.is_ok(), is_allowed, "{realm}");
        }
    }

    #[test]
    fn a_refusal_names_the_host_and_whom_to_ask_but_nothing_of_another_namespace() {
        let task = task_of(spec_with(json!({})));
        let refusal_of = |crosses| {
            let refusal = TenancyPolicy::default()
                .vet(&task, &registry("r.example.com:5000", &json!(null)), crosses)
                .unwrap_err();
            assert_eq!(refusal.reason, Reason::RegistryNotAllowed);
            assert!(
                refusal.message.contains("platform operator"),
                "{}",
                refusal.message
            );
            refusal.message
        };
        assert!(refusal_of(false).contains("r.example.com:5000"));
        assert!(!refusal_of(true).contains("r.example.com"));
        let mut platforms = task;
        platforms.id.kind = TaskKind::ClusterRenderTask;
        let found = TenancyPolicy::default().vet(&platforms, &registry("r", &json!(null)), false);
        assert_eq!(found, Ok(()), "the platform's own tasks are bound by no list");
    }

    /// Holds: B26.
    #[test]
    fn what_a_host_does_is_reported_to_the_owner_of_the_credential_it_was_sent() {
        let own = task_of(spec_with(
            json!({"registryRef": null, "baseURL": "registry.mine"}),
        ));
        let platforms = task_of(spec_with(json!({})));
        let at_home = json!({"registryRef": null, "baseURL": "registry.mine", "kubeConfig": {"secretRef": {"name": "k"}}});
        let at_home = task_of(spec_with(at_home));
        let single = TenancyPolicy {
            is_single_tenant: true,
            ..TenancyPolicy::default()
        };
        let many = TenancyPolicy::default();
        let note = |message: Termination| PodTermination {
            pod_uid: "p".to_owned(),
            created: crate::plan::task::tests::at(0),
            succeeded: false,
            exit_code: Some(1),
            message: Some(message),
            stop: None,
        };
        for reason in TerminationReason::ALL
            .into_iter()
            .filter(|reason| !reason.is_success())
        {
            let word = Termination::failed(TerminationPhase::Push, reason);
            let sent = note(Termination {
                credential_sent: true,
                ..word.clone()
            });
            let unsent = note(word);
            let is_hosts = reveals_host(reason);
            assert_eq!(many.hides(&own, Some(&unsent)), is_hosts, "{reason:?}");
            assert!(!many.hides(&own, Some(&sent)), "{reason:?}");
            assert!(!many.hides(&platforms, Some(&unsent)), "{reason:?}");
            assert!(!many.hides(&at_home, Some(&unsent)), "{reason:?}");
            assert!(!single.hides(&own, Some(&unsent)), "{reason:?}");
        }
    }
}
