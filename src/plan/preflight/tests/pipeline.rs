//! What the pipeline lacks.

use k8s_openapi::api::authorization::v1::ResourceRule;

use super::super::needs::{NeededPermission, PipelineNeed, kinds, missing, needed};
use super::*;
use crate::plan::pipeline::references::ReferenceRules;

fn rules(served: &[&str], catalogs: &[&str]) -> ReferenceRules {
    let owned = |names: &[&str]| names.iter().map(ToString::to_string).collect();
    ReferenceRules {
        crosses_namespaces: !catalogs.is_empty(),
        served: owned(served),
        catalogs: owned(catalogs),
        ..ReferenceRules::default()
    }
}

fn texts(need: &PipelineNeed) -> Vec<String> {
    let each = need.permissions.iter();
    each.map(|permission| format!("{} {}", permission.verb, permission.resource))
        .collect()
}

#[test]
fn in_each_namespace_it_needs_what_it_does_there() {
    let all = needed(&rules(&[], &[]));
    assert_eq!((all.len(), &all[0].namespace), (1, &None));
    assert!(!texts(&all[0]).contains(&"list referencegrants".to_owned()));
    let some = needed(&rules(&["a", "b"], &["b", "c"]));
    let places: Vec<_> = some
        .iter()
        .map(|need| need.namespace.as_deref().unwrap())
        .collect();
    assert_eq!(places, ["a", "b", "c"]);
    for permission in [
        "create rendertasks",
        "patch targets/status",
        "watch registries",
        "list referencegrants",
    ] {
        assert!(texts(&some[0]).contains(&permission.to_owned()), "{permission}");
    }
    assert_eq!(
        texts(&some[2]).join(", "),
        "list componentversions, watch componentversions, list profiles, watch profiles, list releases, watch releases, \
         list referencegrants, watch referencegrants"
    );
    let kinds = kinds(&rules(&["a"], &["c"]));
    assert!(kinds.contains("targets") && kinds.contains("referencegrants"));
    assert!(kinds.iter().all(|kind| !kind.contains('/')));
}

/// `tests/rights/pipeline.rs` sees the hub make exactly these writes.
#[test]
fn it_needs_each_write_that_it_makes() {
    let need = &needed(&rules(&["a"], &[]))[0];
    let mut writes = texts(need);
    writes.retain(|text| !text.starts_with("list ") && !text.starts_with("watch "));
    writes.sort();
    assert_eq!(
        writes,
        [
            "create hydratedtargets",
            "create rendertasks",
            "delete hydratedtargets",
            "delete rendertasks",
            "patch components/status",
            "patch componentversions/status",
            "patch profiles/status",
            "patch registrybindings/status",
            "patch releasebindings/status",
            "patch releases/status",
            "patch targets",
            "patch targets/status",
            "update hydratedtargets/status",
        ]
    );
}

#[test]
fn what_no_rule_gives_is_missing() {
    let permission = NeededPermission {
        verb: "list",
        resource: "targets",
    };
    let need = PipelineNeed {
        namespace: None,
        permissions: vec![permission],
    };
    for (rule, is_missing) in [
        (
            json!({"apiGroups": ["renderhub.dev"], "resources": ["targets"], "verbs": ["list"]}),
            false,
        ),
        (
            json!({"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}),
            false,
        ),
        (
            json!({"apiGroups": [""], "resources": ["targets"], "verbs": ["list"]}),
            true,
        ),
        (
            json!({"apiGroups": ["renderhub.dev"], "resources": ["targets/status"], "verbs": ["list"]}),
            true,
        ),
        (
            json!({"apiGroups": ["renderhub.dev"], "resources": ["targets"], "verbs": ["watch"]}),
            true,
        ),
        (
            json!({"apiGroups": ["renderhub.dev"], "resources": ["targets"], "verbs": ["list"], "resourceNames": ["x"]}),
            true,
        ),
    ] {
        let found: ResourceRule = of(rule.clone());
        assert_eq!(!missing(&need, &[found]).is_empty(), is_missing, "{rule}");
    }
}

#[test]
fn what_it_lacks_is_named_and_keeps_no_hub_from_starting() {
    use CheckResult::{Ok as Good, Warning};
    let permission = NeededPermission {
        verb: "create",
        resource: "rendertasks",
    };
    let lacks = |namespace: Option<&str>| PipelineFacts {
        missing_permissions: vec![(namespace.map(str::to_owned), permission)],
        ..PipelineFacts::default()
    };
    let kinds = PipelineFacts {
        missing_kinds: vec!["profiles", "targets"],
        ..lacks(None)
    };
    for (pipeline, result, said) in [
        (Ok(None), Good, "the pipeline is off"),
        (Ok(Some(PipelineFacts::default())), Good, "may do what it has to"),
        (
            Ok(Some(lacks(Some("team-a")))),
            Warning,
            "create rendertasks in team-a",
        ),
        (Ok(Some(lacks(None))), Warning, "rendertasks in the whole cluster"),
        (
            Ok(Some(kinds)),
            Warning,
            "does not serve profiles, targets, so nothing",
        ),
        (Err(FactError::Forbidden), Warning, "is not known"),
    ] {
        let facts = PreflightFacts { pipeline, ..good() };
        let mut findings = judge(&facts, &BTreeSet::new()).into_iter();
        let finding = findings
            .find(|found| found.check == PreflightCheck::Pipeline)
            .unwrap();
        assert_eq!(finding.result, result, "{finding:?}");
        assert!(finding.message.contains(said), "{finding:?}");
    }
}
