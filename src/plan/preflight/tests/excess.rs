//! Rights of the hub beyond what it needs.

use k8s_openapi::api::authorization::v1::ResourceRule;

use super::super::permissions::{PermissionScope, excess};
use super::*;

fn rule(group: &str, resource: &str, verb: &str) -> ResourceRule {
    of(json!({"apiGroups": [group], "resources": [resource], "verbs": [verb]}))
}

#[test]
fn rights_beyond_need_are_named_by_where_they_reach() {
    let reported = |rule: &ResourceRule, reach| excess(std::slice::from_ref(rule), reach).into_iter().next();
    let get_secrets = rule("", "secrets", "get");
    assert_eq!(reported(&get_secrets, PermissionScope::Rendering), None);
    assert_eq!(
        reported(&get_secrets, PermissionScope::Anywhere).as_deref(),
        Some("get secrets")
    );
    let mint = rule("", "serviceaccounts/token", "create");
    assert_eq!(
        reported(&mint, PermissionScope::Anywhere).as_deref(),
        Some("create serviceaccounts/token")
    );
    let named = ResourceRule {
        resource_names: Some(vec!["builder".to_owned()]),
        ..mint
    };
    assert_eq!(reported(&named, PermissionScope::Anywhere), None);
    for (group, resource, verb) in [
        ("", "users", "impersonate"),
        ("", "secrets", "update"),
        ("batch", "jobs", "update"),
        ("rbac.authorization.k8s.io", "roles", "escalate"),
        ("", "*", "get"),
        ("*", "secrets", "get"),
        ("", "secrets", "*"),
    ] {
        assert!(
            reported(&rule(group, resource, verb), PermissionScope::Rendering).is_some(),
            "{group} {resource} {verb}"
        );
    }
    assert_eq!(
        reported(
            &rule("authorization.k8s.io", "selfsubjectaccessreviews", "create"),
            PermissionScope::Anywhere
        ),
        None
    );
}

#[test]
fn kubeconfigs_are_read_where_they_are_and_never_made() {
    let reported = |verb: &str, reach| {
        let found = excess(&[rule("", "secrets", verb)], reach);
        found.into_iter().next()
    };
    for verb in ["get", "list", "watch"] {
        assert_eq!(reported(verb, PermissionScope::Kubeconfigs), None, "{verb}");
    }
    assert_eq!(reported("create", PermissionScope::Rendering), None);
    let made = reported("create", PermissionScope::Kubeconfigs);
    assert_eq!(made.as_deref(), Some("create secrets"));
}

#[test]
fn more_rights_than_needed_warn_and_cluster_admin_is_called_by_its_name() {
    let with = |rule: ResourceRule, is_single_tenant| PreflightFacts {
        is_single_tenant,
        own_rules: Ok(HubPermissions {
            rendering: vec![rule.clone()],
            kubeconfigs: vec![rule.clone()],
            elsewhere: vec![rule],
        }),
        ..good()
    };
    let reported = |facts: &PreflightFacts| {
        let findings = judge(facts, &BTreeSet::new());
        findings
            .into_iter()
            .find(|f| f.check == PreflightCheck::OwnRights)
            .unwrap()
    };
    let admin = reported(&with(rule("*", "*", "*"), false));
    assert_eq!(admin.result, CheckResult::Warning);
    assert!(admin.message.contains("cluster-admin"), "{}", admin.message);
    assert_eq!(reported(&with(rule("*", "*", "*"), true)).result, CheckResult::Ok);
    let wide = reported(&with(rule("", "secrets", "get"), false));
    assert_eq!(wide.message, "the hub may do more than it needs: get secrets");
    let writes = PreflightFacts {
        own_rules: Ok(HubPermissions {
            kubeconfigs: vec![rule("", "secrets", "create")],
            ..HubPermissions::default()
        }),
        ..good()
    };
    assert_eq!(
        reported(&writes).message,
        "the hub may do more than it needs: create secrets"
    );
}
