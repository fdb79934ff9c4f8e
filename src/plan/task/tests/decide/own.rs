//! Destinations of the tenant's own: which account reads them, and what a task waits for.

#![expect(clippy::too_many_lines, reason = "tables")]

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{Situation, at, every_host};
use crate::api::RegistrySpec;
use crate::api::basic_auth;
use crate::api::conditions::Reason;
use crate::api::names::TaskKind;
use crate::plan::platform::catalog::{CertificateSource, CredentialState};
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::ReconcileStep;
use crate::plan::task::job::manifests;
use crate::plan::task::referrer::ReferrerKind;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::{
    DestinationSource, MissingReference, PushAccess, ReadIdentity, ReferrerGrants, ServiceAccount,
    TenantCredential, TenantDestination, TenantReference, no_account, wanted,
};
use crate::plan::task::tests::{place, spec_with, task_in, task_of};

mod credential;

const PASSWORD: &str = "tenants-own-password";

fn situation(changes: Value) -> Situation {
    Situation::of(task_of(spec_with(changes)))
}

/// A task that names a registry of its own, as `builder`.
fn of_registry() -> Value {
    json!({"registryRef": {"kind": "Registry", "name": "mine"}, "serviceAccountName": "builder"})
}

/// A task that describes its own registry.
fn of_host() -> Value {
    json!({"registryRef": null, "baseURL": "registry.mine:5000", "pushSecretRef": {"name": "push"},
        "serviceAccountName": "builder"})
}

fn own(changes: Value) -> TenantDestination {
    let mut spec = json!({"hostname": "registry.mine:5000", "pushSecretRef": {"name": "push"}});
    super::super::overlay(&mut spec, changes);
    let spec: RegistrySpec = serde_json::from_value(spec).unwrap();
    TenantDestination {
        spec,
        access: PushAccess::Copied(TenantCredential {
            credential: basic_auth::pair("me", PASSWORD).unwrap(),
            version: "u/1".to_owned(),
        }),
        certificates: Some("pem".to_owned()),
    }
}

fn builder() -> ReadIdentity {
    ReadIdentity::ServiceAccount(ServiceAccount::new("team-a", "builder").unwrap())
}

/// Holds: I3.
#[test]
fn nothing_is_read_as_the_hub_without_an_account() {
    let safe = every_host();
    let filled = TenancyPolicy {
        default_service_account: Some("builder".to_owned()),
        ..every_host()
    };
    let single = TenancyPolicy {
        is_single_tenant: true,
        ..every_host()
    };
    let denied = Err(Reason::RBACDenied);
    let table = [
        (&safe, json!("builder"), Ok(builder())),
        (&safe, json!(null), denied.clone()),
        (&safe, json!(""), denied.clone()),
        (&safe, json!(" "), denied.clone()),
        (&safe, json!("x:y"), denied.clone()),
        (
            &safe,
            json!("a\r\nImpersonate-Group: system:masters"),
            denied.clone(),
        ),
        (&safe, json!("../kube-system"), denied.clone()),
        (&filled, json!(null), Ok(builder())),
        (&filled, json!(""), denied.clone()),
        (&single, json!(null), Ok(ReadIdentity::Hub)),
        (&single, json!("builder"), Ok(builder())),
        (&single, json!(""), denied),
    ];
    for (tenancy, account, expected) in table {
        for mut changes in [of_registry(), of_host()] {
            changes["serviceAccountName"] = account.clone();
            let asking = situation(changes).with(|s| s.tenancy = tenancy.clone());
            let found = match asking.ask(|o| {
                let grants = ReferrerGrants {
                    index: o.grants,
                    referrer: o.referrer,
                };
                wanted(o.task, o.task.decoded.spec.as_ref().unwrap(), o.tenancy, grants)
            }) {
                Ok(DestinationSource::Read(reference)) => Ok(reference.identity),
                Ok(other) => panic!("{other:?}"),
                Err(refusal) => Err(refusal.reason),
            };
            assert_eq!(found, expected, "{account} {tenancy:?}");
        }
    }
}

/// Holds: B32.
#[test]
fn a_service_account_that_is_named_counts_where_nothing_is_read() {
    let host = json!({"registryRef": null, "baseURL": "registry.mine"});
    for mut changes in [json!({}), host] {
        assert_eq!(situation(changes.clone()).label(), "create", "none is named");
        changes["serviceAccountName"] = json!("builder");
        let named = || situation(changes.clone());
        let vouch = format!("vouch for {:?}", builder());
        for (situation, expected) in [
            (named(), vouch.as_str()),
            (named().with(|s| s.has_slot = false), "rest in line"),
            (named().with(|s| s.vouched = Some(Ok(()))), "create"),
            (
                named().with(|s| s.vouched = Some(Err(no_account(&builder())))),
                "write Pending RBACDenied",
            ),
        ] {
            assert_eq!(situation.label(), expected);
        }
    }
}

#[test]
fn what_a_task_names_is_read_with_a_slot_in_hand() {
    let look = format!("look up as {:?}", builder());
    for changes in [of_registry(), of_host()] {
        assert_eq!(situation(changes.clone()).label(), look);
        let waiting = situation(changes).with(|s| s.has_slot = false);
        assert_eq!(waiting.label(), "rest in line");
    }
    let anonymous = json!({"registryRef": null, "baseURL": "registry.mine"});
    assert_eq!(
        situation(anonymous).label(),
        "create",
        "nothing is named, nothing is read"
    );
}

/// Holds: B25.
#[test]
fn nothing_is_read_or_made_for_a_host_that_is_not_listed() {
    for changes in [
        of_host(),
        json!({"registryRef": null, "baseURL": "registry.mine"}),
    ] {
        let unlisted = situation(changes).with(|s| s.tenancy = TenancyPolicy::default());
        assert_eq!(unlisted.label(), "write Pending RegistryNotAllowed");
    }
    let read = situation(of_registry()).with(|s| s.own = Some(Ok(own(json!({})))));
    assert_eq!(read.label(), "create");
    let unlisted = read.with(|s| s.tenancy = TenancyPolicy::default());
    assert_eq!(unlisted.label(), "write Pending RegistryNotAllowed");
}

#[test]
fn what_the_tenant_can_correct_is_retried_and_the_pauses_double() {
    let refusal = Refusal::new(Reason::PushSecretNotFound, "it does not exist");
    let mut refused = situation(of_host()).with(|s| s.own = Some(Err(refusal.clone())));
    assert_eq!(refused.label(), "write Pending PushSecretNotFound");
    let ReconcileStep::WriteStatus(status) = refused.step() else {
        panic!("a refusal is recorded")
    };
    refused.task.status = *status;
    // Every five seconds for two minutes, then after as long as it has been refused.
    for (now, until) in [(100, 105), (110, 115), (215, 220), (220, 340), (5000, 5300)] {
        refused.now = at(now);
        assert_eq!(refused.label(), format!("rest until {until} for team-a"));
    }
    // The more tasks of the namespace wait, the less often each is retried.
    for (beside, until) in [(9, 105), (10, 110), (99, 150), (100_000, 400)] {
        (refused.now, refused.waiting_beside) = (at(100), beside);
        assert_eq!(refused.label(), format!("rest until {until} for team-a"));
    }
}

/// Holds: T9.
#[test]
fn another_namespace_needs_a_grant_and_tells_nothing() {
    let mut changes = of_registry();
    changes["registryRef"]["namespace"] = json!("team-b");
    let grant_of = |of: &str, from: &str, kind: &str, name: Option<&str>| {
        let to = json!({"group": "renderhub.dev", "kind": kind, "name": name});
        let from = json!({"group": "renderhub.dev", "kind": of, "namespace": from});
        serde_json::from_value(json!({"from": [from], "to": [to]})).unwrap()
    };
    let grant = |from: &str, kind: &str, name: Option<&str>| grant_of("RenderTask", from, kind, name);
    let look = format!("look up as {:?}", builder());
    let denied = "write Pending CrossNamespaceRefDenied";
    let table = [
        ("team-b", grant("team-a", "Registry", None), true, look.as_str()),
        ("team-b", grant("team-a", "Registry", Some("mine")), true, &look),
        ("team-b", grant("team-a", "Registry", Some("other")), true, denied),
        ("team-b", grant("team-c", "Registry", None), true, denied),
        ("team-b", grant("team-a", "Secret", None), true, denied),
        ("team-a", grant("team-a", "Registry", None), true, denied),
        ("team-b", grant("team-a", "Registry", None), false, denied),
    ];
    for (namespace, spec, crosses_namespaces, expected) in table {
        let situation = situation(changes.clone()).with(|s| {
            s.tenancy.crosses_namespaces = crosses_namespaces;
            s.grants.put(&None, namespace, "g", Some(spec));
        });
        assert_eq!(situation.label(), expected, "{namespace}");
    }
    // A grant to Targets counts for what the hub made for them, and for no task of a tenant's.
    let to_targets = grant_of("Target", "team-a", "Registry", None);
    for (grant, referrer, expected) in [
        (&to_targets, ReferrerKind::Target, look.as_str()),
        (&to_targets, ReferrerKind::RenderTask, denied),
        (&grant("team-c", "Registry", None), ReferrerKind::Target, denied),
    ] {
        let situation = situation(changes.clone()).with(|s| {
            s.tenancy.crosses_namespaces = true;
            s.referrer = referrer;
            s.grants.put(&None, "team-b", "g", Some(grant.clone()));
        });
        assert_eq!(situation.label(), expected, "{referrer:?}");
    }
    let reference = TenantReference {
        identity: builder(),
        namespace: "team-b".to_owned(),
        crosses: true,
        named: crate::plan::task::tenant::NamedDestination::Registry("mine".to_owned()),
    };
    let reported = |crosses_namespaces| {
        let situation =
            situation(changes.clone()).with(|s| s.tenancy.crosses_namespaces = crosses_namespaces);
        let ReconcileStep::WriteStatus(status) = situation.step() else {
            panic!("a refusal is recorded")
        };
        *status
    };
    let status = reported(true);
    // Where the hub lets no reference leave, no grant helps, and it says so.
    let flag = |c: &Condition| c.message.contains("--no-cross-namespace-refs=false");
    assert!(reported(false).conditions.iter().all(flag) && !status.conditions.iter().any(flag));
    for missing in [
        MissingReference::Registry,
        MissingReference::Secret("push"),
        MissingReference::Account,
        MissingReference::Right("Secret", "push"),
    ] {
        let refusal = reference.refusal(missing);
        assert_eq!(refusal.reason, Reason::CrossNamespaceRefDenied);
        assert!(
            status
                .conditions
                .iter()
                .any(|c| c.message.starts_with(&refusal.message)),
            "{missing:?} reads like a missing grant"
        );
    }
}

#[test]
fn a_refusal_names_the_tenants_own_objects() {
    let reference = TenantReference {
        identity: builder(),
        namespace: "team-a".to_owned(),
        crosses: false,
        named: crate::plan::task::tenant::NamedDestination::Registry("mine".to_owned()),
    };
    for (missing, names) in [
        (MissingReference::Registry, &["Registry \"mine\""][..]),
        (MissingReference::Secret("push"), &["push Secret \"push\""]),
        (MissingReference::Certificates("ca"), &["ConfigMap \"ca\""]),
        (MissingReference::Account, &["ServiceAccount \"builder\""]),
        (
            MissingReference::Right("Secret", "push"),
            &["ServiceAccount \"builder\"", "Secret \"push\""],
        ),
    ] {
        let reported = reference.refusal(missing).message;
        assert!(names.iter().all(|name| reported.contains(name)), "{reported}");
    }
}

#[test]
fn a_running_job_is_left_alone_whatever_becomes_of_its_grant() {
    let mut changes = of_registry();
    changes["registryRef"]["namespace"] = json!("team-b");
    let running = situation(changes).with(|s| s.job = super::seen(&s.task, false));
    assert_eq!(running.label(), "write Running JobScheduled");
}

#[test]
fn what_a_tenants_registry_says_binds_its_tasks() {
    let table = [
        (json!({"repositoryPrefix": "{namespace}/"}), "create"),
        (
            json!({"repositoryPrefix": "charts/"}),
            "write Pending RepositoryNotAllowed",
        ),
        (json!({"hostname": "https://x"}), "write Pending RegistryNotFound"),
    ];
    for (changes, expected) in table {
        let found = situation(of_registry()).with(|s| s.own = Some(Ok(own(changes))));
        assert_eq!(found.label(), expected);
    }
    let mut large = own(json!({}));
    large.certificates = Some("x".repeat(crate::plan::task::validate::MAX_CONFIG_BYTES));
    let found = situation(of_registry()).with(|s| s.own = Some(Ok(large)));
    assert_eq!(found.label(), "write Pending ConfigTooLarge");
}

#[test]
fn the_platforms_own_tasks_name_secrets_beside_the_platforms_credentials() {
    let task = |changes: Value| task_in("", TaskKind::ClusterRenderTask, spec_with(changes));
    let mut changes = of_host();
    changes.as_object_mut().unwrap().remove("serviceAccountName");
    assert_eq!(Situation::of(task(changes.clone())).label(), "look up as Hub");
    let mounted = TenantDestination {
        access: PushAccess::Mounted(CredentialState::BasicAuth("push".to_owned())),
        certificates: None,
        ..own(json!({}))
    };
    let found = Situation::of(task(changes.clone())).with(|s| s.own = Some(Ok(mounted.clone())));
    let ReconcileStep::Create(resolved) = found.step() else {
        panic!("{}", found.label())
    };
    assert_eq!(resolved.credential, CredentialState::BasicAuth("push".to_owned()));
    assert!(resolved.login.is_none(), "nothing is copied");
    let missing = TenantDestination {
        access: PushAccess::Mounted(CredentialState::Missing),
        ..mounted
    };
    let found = Situation::of(task(changes)).with(|s| s.own = Some(Ok(missing)));
    assert_eq!(found.label(), "write Pending PushSecretNotFound");
    for wrong in [of_host(), of_registry()] {
        assert_eq!(Situation::of(task(wrong)).label(), "write Pending InvalidSpec");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// Holds: I2.
    #[test]
    fn no_name_of_an_account_is_more_than_a_name(name in "(\\PC|[\r\n:/]){0,24}|[a-z0-9.-]{1,24}(:|\r\n|/|%0d%0a)?[a-z]{0,8}") {
        let Some(account) = ServiceAccount::new("team-a", &name) else { return Ok(()) };
        let user = account.username();
        let parts: Vec<_> = user.split(':').collect();
        prop_assert_eq!(&parts, &["system", "serviceaccount", "team-a", name.as_str()]);
        let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || ".-".contains(c);
        prop_assert!(!name.is_empty() && name.chars().all(is_plain), "{:?}", name);
    }
}
