//! Verdicts on the rights of tenants in the rendering namespace.
//!
//! The hub finds them out with rights in that namespace alone: access reviews of the groups and accounts that represent tenants,
//! and the bindings in the namespace itself, which show all other subjects.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{RoleBinding, Subject as Bound};

use super::check::PreflightCheck;
use super::facts::PreflightFacts;
use super::finding::{PreflightFinding, unknown};
use super::tenants::{ACCOUNT, ACCOUNTS, RestrictedPermission, TenantSubject};
use super::text::{shown, some_of};
use crate::api::labels::{PART_OF, PART_OF_VALUE, PLATFORM_ACCESS};

/// No subject that represents tenants has a right.
pub(super) fn have_no_right(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::TenantRights;
    let name = &facts.rendering;
    let rights = match &facts.rights {
        Err(why) => {
            return unknown(
                check,
                *why,
                &format!("create localsubjectaccessreviews in {name}"),
            );
        }
        Ok(rights) => rights,
    };
    if rights.held.is_empty() {
        let sample = match (rights.is_sample, rights.is_cut) {
            (false, _) => "",
            (true, false) => ", those that registries and tasks name",
            (true, true) => ", those that registries and some of the tasks name",
        };
        return PreflightFinding::ok(
            check,
            format!(
                "asked for everybody and the ServiceAccounts of {} {}{sample}: no right in {name}",
                rights.namespaces,
                if rights.namespaces == 1 {
                    "namespace"
                } else {
                    "namespaces"
                }
            ),
        );
    }
    PreflightFinding::refused(
        check,
        format!("tenants hold rights in {name}: {}", some_of(&texts(&rights.held))),
        format!(
            "take them away (look for ClusterRoleBindings of these subjects, and RoleBindings in {name}); or \
             --skip-preflight={check}"
        ),
    )
}

/// The rights of each subject, as texts.
fn texts(held: &[(TenantSubject, RestrictedPermission)]) -> Vec<String> {
    let mut by_subject: BTreeMap<&TenantSubject, Vec<String>> = BTreeMap::new();
    for (subject, right) in held {
        by_subject.entry(subject).or_default().push(right.text());
    }
    by_subject
        .iter()
        .map(|(subject, rights)| format!("{} may {}", subject.shown_name(), some_of(rights)))
        .collect()
}

/// Each binding is for a hub, its namespace, or a subject that the administrator marked as the platform's.
pub(super) fn are_not_bound(facts: &PreflightFacts) -> PreflightFinding {
    let check = PreflightCheck::RoleBindings;
    let name = &facts.rendering;
    let bindings = match &facts.bindings {
        Err(why) => return unknown(check, *why, &format!("list rolebindings in {name}")),
        Ok(bindings) => bindings,
    };
    let strangers: Vec<String> = bindings
        .iter()
        .filter(|binding| !is_marked(binding))
        .filter_map(|binding| {
            let subject = binding
                .subjects
                .iter()
                .flatten()
                .find(|subject| is_stranger(subject, name, facts.user.as_deref()))?;
            let bound = binding.metadata.name.as_deref().unwrap_or_default();
            Some(format!(
                "RoleBinding {} binds {} {}",
                shown(bound),
                shown(&subject.kind),
                shown(&in_full(subject))
            ))
        })
        .collect();
    if strangers.is_empty() {
        return PreflightFinding::ok(
            check,
            format!("{} RoleBindings in {name}, none of a stranger", bindings.len()),
        );
    }
    PreflightFinding::refused(
        check,
        format!("others have rights in {name}: {}", some_of(&strangers)),
        format!(
            "remove the binding; or, if these are the platform's own people, annotate it \
             {PLATFORM_ACCESS}=true; or --skip-preflight={check}"
        ),
    )
}

/// Whether the binding is of a hub's installation, or its administrator marked its subjects as the platform's. A client that can
/// write either already owns everything in the namespace.
fn is_marked(binding: &RoleBinding) -> bool {
    let says = |all: Option<&BTreeMap<String, String>>, key: &str, value: &str| {
        all.and_then(|all| all.get(key))
            .is_some_and(|found| found == value)
    };
    let meta = &binding.metadata;
    says(meta.labels.as_ref(), PART_OF, PART_OF_VALUE)
        || says(meta.annotations.as_ref(), PLATFORM_ACCESS, "true")
}

fn in_full(subject: &Bound) -> String {
    match (&*subject.kind, &subject.namespace) {
        ("ServiceAccount", Some(namespace)) => format!("{namespace}/{}", subject.name),
        _ => subject.name.clone(),
    }
}

/// Whether a subject is neither the hub, nor a `ServiceAccount` next to it or to the renderer, nor the cluster itself.
fn is_stranger(subject: &Bound, rendering: &str, hub: Option<&str>) -> bool {
    let hub_namespace = hub.and_then(|user| user.strip_prefix(ACCOUNT)?.split(':').next());
    let is_ours = |namespace: &str| namespace == rendering || Some(namespace) == hub_namespace;
    match &*subject.kind {
        "ServiceAccount" => !subject.namespace.as_deref().is_some_and(is_ours),
        "User" => {
            let account = subject
                .name
                .strip_prefix(ACCOUNT)
                .and_then(|rest| rest.split(':').next());
            match account {
                Some(namespace) => !is_ours(namespace),
                None => Some(&*subject.name) != hub && !is_the_clusters(&subject.name),
            }
        }
        "Group" => match subject.name.strip_prefix(ACCOUNTS) {
            Some(namespace) => !is_ours(namespace),
            None => !is_the_clusters(&subject.name),
        },
        _ => true,
    }
}

/// Whether a user or group is a part of the cluster, such as `system:masters` or `system:kube-scheduler`.
fn is_the_clusters(name: &str) -> bool {
    const EVERYBODY: [&str; 4] = [
        "system:anonymous",
        "system:authenticated",
        "system:unauthenticated",
        "system:serviceaccounts",
    ];
    name.starts_with("system:") && !EVERYBODY.contains(&name)
}
