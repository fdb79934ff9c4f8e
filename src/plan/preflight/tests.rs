use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::rbac::v1::RoleBinding;
use serde_json::{Value, json};

use super::namespace::ENFORCE;
use super::tenants::{RIGHTS, RestrictedPermission, TenantPermissions, subjects};
use super::*;
use crate::api::ClusterRegistrySpec;

mod excess;
mod pipeline;
mod tenants;

const HUB: &str = "system:serviceaccount:renderhub-system:renderhub";

fn of<T: serde::de::DeserializeOwned>(value: Value) -> T {
    serde_json::from_value(value).unwrap()
}

/// Everything as the chart makes it.
fn good() -> PreflightFacts {
    PreflightFacts {
        rendering: "rendering".to_owned(),
        is_single_tenant: false,
        user: Some(HUB.to_owned()),
        namespace: Ok(Some(BTreeMap::from([(
            ENFORCE.to_owned(),
            "restricted".to_owned(),
        )]))),
        has_tasks: Ok(false),
        rights: Ok(TenantPermissions::default()),
        bindings: Ok(vec![binding(&json!({
            "kind": "ServiceAccount", "name": "renderhub", "namespace": "renderhub-system",
        }))]),
        policies: Ok(vec![of(
            json!({"podSelector": {}, "policyTypes": ["Ingress", "Egress"]}),
        )]),
        quotas: Ok(vec![of(json!({"hard": {"pods": "300"}}))]),
        own_rules: Ok(HubPermissions::default()),
        pipeline: Ok(Some(PipelineFacts::default())),
        registries: Ok(vec![registry("shop", "{namespace}/", &["team-a"])]),
    }
}

fn binding(subject: &Value) -> RoleBinding {
    of(json!({
        "metadata": {"name": "bound"}, "subjects": [subject],
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "some"},
    }))
}

fn registry(name: &str, prefix: &str, allowed: &[&str]) -> (String, ClusterRegistrySpec) {
    let spec = json!({"hostname": "registry.test", "repositoryPrefix": prefix, "allowedNamespaces": allowed});
    (name.to_owned(), of(spec))
}

fn verdict(facts: &PreflightFacts, check: PreflightCheck) -> CheckResult {
    let findings = judge(facts, &BTreeSet::new());
    findings
        .into_iter()
        .find(|finding| finding.check == check)
        .unwrap()
        .result
}

/// Asserts the result of a check when one fact is other than it should be.
fn assert_verdict(check: PreflightCheck, expected: CheckResult, change: impl FnOnce(&mut PreflightFacts)) {
    let mut facts = good();
    change(&mut facts);
    let findings = judge(&facts, &BTreeSet::new());
    for finding in findings {
        let wanted = if finding.check == check {
            expected
        } else {
            CheckResult::Ok
        };
        assert_eq!(finding.result, wanted, "{finding:?}");
        assert_eq!(finding.fix.is_empty(), wanted == CheckResult::Ok, "{finding:?}");
    }
}

#[test]
fn what_the_chart_makes_is_well() {
    for finding in judge(&good(), &BTreeSet::new()) {
        assert_eq!(finding.result, CheckResult::Ok, "{finding:?}");
    }
}

#[test]
fn each_name_is_one_check() {
    for check in PreflightCheck::ALL {
        assert_eq!(PreflightCheck::named(check.as_str()), Some(check));
    }
    assert_eq!(PreflightCheck::named("pods"), None);
}

#[test]
fn each_mistake_is_found_and_nothing_else() {
    use CheckResult::{Refused, Warning};
    use PreflightCheck::{
        NetworkPolicy, PodSecurity, RegistryScope, RenderingNamespace, ResourceQuota, TenantTasks,
    };
    assert_verdict(RenderingNamespace, Refused, |f| {
        f.rendering = "kube-public".to_owned();
    });
    assert_verdict(RenderingNamespace, Refused, |f| {
        f.registries = Ok(vec![registry("shop", "x/", &["rendering"])]);
    });
    assert_verdict(TenantTasks, Refused, |f| f.has_tasks = Ok(true));
    for level in ["baseline", "privileged", ""] {
        assert_verdict(PodSecurity, Refused, |f| {
            f.namespace = Ok(Some(BTreeMap::from([(ENFORCE.to_owned(), level.to_owned())])));
        });
    }
    assert_verdict(PodSecurity, Refused, |f| f.namespace = Ok(Some(BTreeMap::new())));
    assert_verdict(NetworkPolicy, Refused, |f| f.policies = Ok(Vec::new()));
    assert_verdict(ResourceQuota, Refused, |f| f.quotas = Ok(Vec::new()));
    assert_verdict(ResourceQuota, Refused, |f| {
        f.quotas = Ok(vec![of(json!({"hard": {"services": "1"}}))]);
    });
    assert_verdict(RegistryScope, Warning, |f| {
        f.registries = Ok(vec![registry("open", "", &["*"]), registry("shop", "x/", &["*"])]);
    });
}

#[test]
fn a_namespace_that_does_not_exist_is_said_first() {
    let mut facts = good();
    facts.namespace = Ok(None);
    let first = judge(&facts, &BTreeSet::new()).remove(0);
    assert_eq!(
        (first.check, first.result),
        (PreflightCheck::RenderingNamespace, CheckResult::Refused)
    );
    assert!(first.message.contains("does not exist"));
    assert_eq!(verdict(&facts, PreflightCheck::PodSecurity), CheckResult::Refused);
}

/// Policies of a namespace, and whether they deny by default.
fn policies_and_verdicts() -> Vec<(Value, bool)> {
    let both = json!(["Ingress", "Egress"]);
    vec![
        (json!([{"podSelector": {}, "policyTypes": both}]), true),
        (json!([{"policyTypes": both}]), true),
        (
            json!([{"podSelector": {}, "policyTypes": ["Ingress"]}, {"podSelector": {}, "policyTypes": ["Egress"]}]),
            true,
        ),
        // What is allowed by name is allowed.
        (
            json!([{"podSelector": {}, "policyTypes": both, "egress": [{"ports": [{"port": 443}]}]}]),
            true,
        ),
        (
            json!([
                {"podSelector": {}, "policyTypes": both},
                {"podSelector": {"matchLabels": {"app": "mirror"}}, "policyTypes": ["Egress"], "egress": [{}]},
            ]),
            true,
        ),
        (json!([{"podSelector": {}, "policyTypes": ["Ingress"]}]), false),
        (json!([{"podSelector": {}, "policyTypes": ["Egress"]}]), false),
        (json!([{"podSelector": {}}]), false),
        (
            json!([{"podSelector": {"matchLabels": {"app": "x"}}, "policyTypes": both}]),
            false,
        ),
        (
            json!([{"podSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}, "policyTypes": both}]),
            false,
        ),
        // Policies add up, so one that allows everything undoes the others.
        (
            json!([{"podSelector": {}, "policyTypes": both}, {"podSelector": {}, "policyTypes": ["Egress"], "egress": [{}]}]),
            false,
        ),
        (
            json!([{"podSelector": {}, "policyTypes": both, "ingress": [{"from": []}]}]),
            false,
        ),
    ]
}

#[test]
fn only_a_policy_for_every_pod_and_both_directions_denies_by_default() {
    for (policies, is_denied) in policies_and_verdicts() {
        let mut facts = good();
        facts.policies = Ok(of(policies.clone()));
        let expected = if is_denied {
            CheckResult::Ok
        } else {
            CheckResult::Refused
        };
        assert_eq!(
            verdict(&facts, PreflightCheck::NetworkPolicy),
            expected,
            "{policies}"
        );
    }
}

#[test]
fn a_fact_that_is_withheld_refuses_unless_it_could_only_warn() {
    for why in [FactError::Forbidden, FactError::Unreadable] {
        let facts = PreflightFacts {
            namespace: Err(why),
            has_tasks: Err(why),
            rights: Err(why),
            bindings: Err(why),
            policies: Err(why),
            quotas: Err(why),
            own_rules: Err(why),
            pipeline: Err(why),
            registries: Err(why),
            ..good()
        };
        for finding in judge(&facts, &BTreeSet::new()) {
            let only_warns = matches!(
                finding.check,
                PreflightCheck::OwnRights | PreflightCheck::RegistryScope | PreflightCheck::Pipeline
            );
            let expected = if only_warns {
                CheckResult::Warning
            } else {
                CheckResult::Refused
            };
            assert_eq!(finding.result, expected, "{finding:?}");
            assert_eq!(
                finding.fix.contains("--skip-preflight"),
                finding.check.can_be_skipped(),
                "{finding:?}"
            );
        }
    }
}

#[test]
fn a_skipped_check_is_reported_as_skipped() {
    let mut facts = good();
    facts.quotas = Err(FactError::NotAsked);
    facts.policies = Ok(Vec::new());
    let findings = judge(&facts, &BTreeSet::from([PreflightCheck::ResourceQuota]));
    let of_check = |check| findings.iter().find(|f| f.check == check).unwrap().result;
    assert_eq!(of_check(PreflightCheck::ResourceQuota), CheckResult::Skipped);
    assert_eq!(of_check(PreflightCheck::NetworkPolicy), CheckResult::Refused);
}

#[test]
fn strangers_are_distinguished_from_the_platforms_own() {
    let account = |namespace: &str| json!({"kind": "ServiceAccount", "name": "x", "namespace": namespace});
    let user = |name: &str| json!({"kind": "User", "name": name});
    let group = |name: &str| json!({"kind": "Group", "name": name});
    let table = [
        (account("renderhub-system"), true),
        (account("rendering"), true),
        (account("team-a"), false),
        (json!({"kind": "ServiceAccount", "name": "x"}), false),
        (user(HUB), true),
        (user("system:kube-controller-manager"), true),
        (user("system:serviceaccount:rendering:x"), true),
        (user("system:serviceaccount:team-a:x"), false),
        (user("system:anonymous"), false),
        (user("alice"), false),
        (group("system:masters"), true),
        (group("system:serviceaccounts:rendering"), true),
        (group("system:serviceaccounts:team-a"), false),
        (group("system:serviceaccounts"), false),
        (group("system:authenticated"), false),
        (group("system:unauthenticated"), false),
        (group("developers"), false),
        (json!({"kind": "Robot", "name": "x"}), false),
    ];
    for (subject, is_ours) in table {
        let result_of = |binding| {
            let mut facts = good();
            facts.bindings = Ok(vec![binding]);
            verdict(&facts, PreflightCheck::RoleBindings)
        };
        let bare = [CheckResult::Refused, CheckResult::Ok][usize::from(is_ours)];
        assert_eq!(result_of(binding(&subject)), bare, "{subject}");
        let mut marked = binding(&subject);
        let mark = (crate::api::labels::PLATFORM_ACCESS.to_owned(), "true".to_owned());
        marked.metadata.annotations = Some(BTreeMap::from([mark]));
        assert_eq!(result_of(marked), CheckResult::Ok, "{subject}");
        // The chart of another hub made it.
        let mut charts = binding(&subject);
        let label = ("app.kubernetes.io/part-of".to_owned(), "renderhub".to_owned());
        charts.metadata.labels = Some(BTreeMap::from([label]));
        assert_eq!(result_of(charts), CheckResult::Ok, "{subject}");
    }
}

#[test]
fn what_others_chose_is_shown_safely_and_briefly() {
    assert_eq!(shown("a\nb\u{1b}[31m"), "a\\nb\\u{1b}[31m");
    assert_eq!(shown(&"x".repeat(1000)).len(), 100);
    let many: Vec<String> = (0..8).map(|n| n.to_string()).collect();
    assert_eq!(some_of(&many), "0, 1, 2, 3, 4 and 3 more");
}

#[test]
fn the_table_is_readable() {
    let mut facts = good();
    facts.quotas = Ok(Vec::new());
    facts.registries = Ok(Vec::new());
    let findings: Vec<PreflightFinding> = judge(&facts, &BTreeSet::from([PreflightCheck::PodSecurity]))
        .into_iter()
        .filter(|f| {
            matches!(
                f.check,
                PreflightCheck::PodSecurity | PreflightCheck::ResourceQuota | PreflightCheck::RegistryScope
            )
        })
        .collect();
    let expected = "\
CHECK                RESULT   WHAT                                               FIX
pod-security         skipped  not looked at, as --skip-preflight says
resource-quota       refused  no ResourceQuota of rendering bounds pods, Jobs,   make one, as the chart does; or
                              CPU or memory                                      --skip-preflight=resource-quota
registry-scope       ok       0 ClusterRegistries, none open to everybody
";
    assert_eq!(table::render(&findings), expected);
}
