//! What tenants may do that leads to a credential.

use super::*;

#[test]
fn rights_of_tenants_are_listed_by_subject() {
    let namespaces: Vec<String> = ["team-a", "team-b"].map(str::to_owned).into();
    let asked = subjects(&namespaces, Some(HUB));
    // All users in two groups, and the default account of each namespace, which is in three.
    assert_eq!(asked.len(), 4);
    assert_eq!(asked[2].single_groups().len(), 3);
    let mut facts = good();
    facts.rights = Ok(TenantPermissions {
        held: vec![
            (asked[0].clone(), RIGHTS[0]),
            (asked[2].clone(), right("create", "pods", "exec")),
        ],
        namespaces: 2,
        is_sample: false,
        is_cut: false,
    });
    let findings = judge(&facts, &BTreeSet::new());
    let finding = findings
        .iter()
        .find(|f| f.check == PreflightCheck::TenantRights)
        .unwrap();
    assert_eq!(
        finding.message,
        "tenants hold rights in rendering: system:authenticated may get secrets, \
         system:serviceaccount:team-a:default may create pods/exec"
    );
}

#[test]
fn one_namespace_is_no_namespaces() {
    for (namespaces, reported) in [(0, " 0 namespaces:"), (1, " 1 namespace:"), (2, " 2 namespaces:")] {
        let mut facts = good();
        facts.rights = Ok(TenantPermissions {
            held: Vec::new(),
            namespaces,
            is_sample: false,
            is_cut: false,
        });
        let findings = judge(&facts, &BTreeSet::new());
        let finding = findings
            .iter()
            .find(|f| f.check == PreflightCheck::TenantRights)
            .unwrap();
        assert!(finding.message.contains(reported), "{}", finding.message);
    }
}

/// The right that is asked about, if it is.
fn right(verb: &str, resource: &str, subresource: &str) -> RestrictedPermission {
    let is_it =
        |r: &&RestrictedPermission| (r.verb, r.resource, r.subresource) == (verb, resource, subresource);
    *RIGHTS.iter().find(is_it).expect("it is asked about")
}

/// Holds: B10.
#[test]
fn every_way_to_a_credential_is_asked_about() {
    for verb in ["get", "list", "watch", "create", "update", "patch"] {
        right(verb, "secrets", "");
    }
    let workloads = [
        "pods",
        "jobs",
        "cronjobs",
        "deployments",
        "replicasets",
        "statefulsets",
        "daemonsets",
        "replicationcontrollers",
    ];
    for resource in workloads {
        right("create", resource, "");
    }
    for subresource in ["exec", "attach", "portforward"] {
        right("get", "pods", subresource);
        right("create", "pods", subresource);
    }
    for verb in ["update", "patch"] {
        right(verb, "pods", "ephemeralcontainers");
        right(verb, "pods", "");
    }
    right("create", "serviceaccounts", "token");
    for resource in ["rolebindings", "clusterrolebindings"] {
        for verb in ["create", "update", "patch"] {
            right(verb, resource, "");
        }
    }
    let all: BTreeSet<_> = RIGHTS
        .iter()
        .map(|r| (r.verb, r.group, r.resource, r.subresource))
        .collect();
    assert_eq!(all.len(), RIGHTS.len(), "none twice");
}

#[test]
fn no_question_is_lost_however_many_namespaces_there_are() {
    for (count, questions) in [(0, 3), (1, 3), (32, 34), (33, 35), (250, 37)] {
        let many: Vec<String> = (0..count).map(|number| format!("n{number}")).collect();
        let asked = subjects(&many, None);
        let groups: BTreeSet<&String> = asked.iter().flat_map(|subject| &subject.groups).collect();
        assert_eq!(groups.len(), 3 + count);
        let users = asked.iter().filter(|subject| subject.user.is_some()).count();
        assert_eq!(users, count.min(32));
        assert_eq!(asked.len(), questions, "for each right");
        // The hub is not asked about itself, but about the other accounts of its namespace.
        let own = "system:serviceaccount:n1:default";
        let others = subjects(&many, Some(own));
        assert!(others.iter().all(|subject| subject.user.as_deref() != Some(own)));
        let groups_without: BTreeSet<&String> = others.iter().flat_map(|subject| &subject.groups).collect();
        assert_eq!(groups_without, groups);
    }
}
