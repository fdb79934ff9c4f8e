//! Verdicts on what tenants may do in the rendering namespace.
//!
//! Two questions find it out with rights in that namespace alone. A `LocalSubjectAccessReview` answers for groups and
//! accounts that stand for tenants, whatever grants them the right, a `ClusterRoleBinding` included. The bindings in the
//! namespace itself show everybody else who was let in.

use std::collections::BTreeMap;

use k8s_openapi::api::rbac::v1::{RoleBinding, Subject as Bound};

use super::{Check, Facts, Finding, shown, some_of, unknown};
use crate::api::labels::{PART_OF, PART_OF_VALUE, PLATFORM_ACCESS};

/// What user names of `ServiceAccounts` start with.
const ACCOUNT: &str = "system:serviceaccount:";
/// What the group of the `ServiceAccounts` of a namespace starts with.
const ACCOUNTS: &str = "system:serviceaccounts:";
/// Namespaces in one question.
const TOGETHER: usize = 100;
/// Default `ServiceAccounts` that are asked about one by one.
const ACCOUNTS_ASKED: usize = 32;

/// A right that nobody but the platform may have where the credentials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Right {
    /// The verb.
    pub verb: &'static str,
    /// API group; empty for the core.
    pub group: &'static str,
    /// Plural name.
    pub resource: &'static str,
    /// Empty where the right is on the resource itself.
    pub subresource: &'static str,
}

const fn right(
    verb: &'static str,
    group: &'static str,
    resource: &'static str,
    subresource: &'static str,
) -> Right {
    Right {
        verb,
        group,
        resource,
        subresource,
    }
}

/// Each is a way to a credential: to read it, to mount it, to look into a pod that has it, to act as an account that may, or to be
/// let in to do so. What is not of a namespace is asked about all the same: who holds such a right holds it everywhere.
#[rustfmt::skip]
pub const RIGHTS: [Right; 39] = [
    right("get", "", "secrets", ""),
    right("list", "", "secrets", ""),
    right("watch", "", "secrets", ""),
    right("create", "", "secrets", ""),
    // A change is answered with the whole Secret.
    right("update", "", "secrets", ""),
    right("patch", "", "secrets", ""),
    right("get", "", "pods", ""),
    right("create", "", "pods", ""),
    // A pod that runs takes another image.
    right("update", "", "pods", ""),
    right("patch", "", "pods", ""),
    // A WebSocket is opened by GET.
    right("get", "", "pods", "exec"),
    right("create", "", "pods", "exec"),
    right("get", "", "pods", "attach"),
    right("create", "", "pods", "attach"),
    right("get", "", "pods", "portforward"),
    right("create", "", "pods", "portforward"),
    right("get", "", "pods", "log"),
    right("update", "", "pods", "ephemeralcontainers"),
    right("patch", "", "pods", "ephemeralcontainers"),
    right("get", "batch", "jobs", ""),
    right("create", "batch", "jobs", ""),
    right("create", "batch", "cronjobs", ""),
    right("create", "apps", "deployments", ""),
    right("create", "apps", "replicasets", ""),
    right("create", "apps", "statefulsets", ""),
    right("create", "apps", "daemonsets", ""),
    right("create", "", "replicationcontrollers", ""),
    right("create", "", "serviceaccounts", "token"),
    right("impersonate", "", "serviceaccounts", ""),
    right("create", "rbac.authorization.k8s.io", "rolebindings", ""),
    right("update", "rbac.authorization.k8s.io", "rolebindings", ""),
    right("patch", "rbac.authorization.k8s.io", "rolebindings", ""),
    right("create", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    right("update", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    right("patch", "rbac.authorization.k8s.io", "clusterrolebindings", ""),
    right("bind", "rbac.authorization.k8s.io", "roles", ""),
    right("escalate", "rbac.authorization.k8s.io", "roles", ""),
    right("bind", "rbac.authorization.k8s.io", "clusterroles", ""),
    right("escalate", "rbac.authorization.k8s.io", "clusterroles", ""),
];

impl Right {
    fn told(self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

/// Somebody who stands for tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subject {
    /// User name; `None` for whoever is in the groups.
    pub user: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
}

impl Subject {
    fn group(name: &str) -> Self {
        Self {
            user: None,
            groups: vec![name.to_owned()],
        }
    }

    fn default_account(namespace: &str) -> Self {
        let groups = ["system:authenticated", "system:serviceaccounts"].map(str::to_owned);
        Self {
            user: Some(format!("{ACCOUNT}{namespace}:default")),
            groups: groups
                .into_iter()
                .chain([format!("{ACCOUNTS}{namespace}")])
                .collect(),
        }
    }

    /// Whom to ask about one by one when this many together have a right.
    #[must_use]
    pub fn apart(&self) -> Vec<Self> {
        self.groups.iter().map(|group| Self::group(group)).collect()
    }

    fn told(&self) -> String {
        let name = self.user.as_ref().or(self.groups.first());
        shown(name.map_or("", String::as_str))
    }
}

/// Whom to ask about, where tenants have these namespaces: everybody, and the `ServiceAccounts` of each.
#[must_use]
pub fn subjects(namespaces: &[String], hub: Option<&str>) -> Vec<Subject> {
    let everybody = [
        "system:authenticated",
        "system:unauthenticated",
        "system:serviceaccounts",
    ];
    let together = namespaces.chunks(TOGETHER).map(|some| Subject {
        user: None,
        groups: some.iter().map(|name| format!("{ACCOUNTS}{name}")).collect(),
    });
    let accounts = namespaces
        .iter()
        .take(ACCOUNTS_ASKED)
        .map(|name| Subject::default_account(name));
    everybody
        .into_iter()
        .map(Subject::group)
        .chain(together)
        .chain(accounts)
        .filter(|subject| hub.is_none() || subject.user.as_deref() != hub)
        .collect()
}

/// What was found out about tenants' rights in the rendering namespace.
#[derive(Clone, Debug, Default)]
pub struct TenantRights {
    /// Who has which right.
    pub held: Vec<(Subject, Right)>,
    /// Namespaces whose `ServiceAccounts` were asked about.
    pub namespaces: usize,
    /// Whether there may be namespaces of tenants that nobody asked about.
    pub is_sample: bool,
    /// Whether there are more tasks than were looked at for their namespaces.
    pub is_cut: bool,
}

/// Nobody who stands for tenants has a right.
pub(super) fn have_no_right(facts: &Facts) -> Finding {
    let check = Check::TenantRights;
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
        return Finding::ok(
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
    Finding::refused(
        check,
        format!("tenants hold rights in {name}: {}", some_of(&told(&rights.held))),
        format!(
            "take them away (look for ClusterRoleBindings of these subjects, and RoleBindings in {name}); or \
             --skip-preflight={check}"
        ),
    )
}

/// Who may do what, a text for each subject.
fn told(held: &[(Subject, Right)]) -> Vec<String> {
    let mut by_subject: BTreeMap<&Subject, Vec<String>> = BTreeMap::new();
    for (subject, right) in held {
        by_subject.entry(subject).or_default().push(right.told());
    }
    by_subject
        .iter()
        .map(|(subject, rights)| format!("{} may {}", subject.told(), some_of(rights)))
        .collect()
}

/// Each binding lets in a hub, its namespace, or whom the administrator marked as the platform's.
pub(super) fn are_not_bound(facts: &Facts) -> Finding {
    let check = Check::RoleBindings;
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
        return Finding::ok(
            check,
            format!("{} RoleBindings in {name}, none of a stranger", bindings.len()),
        );
    }
    Finding::refused(
        check,
        format!("others have rights in {name}: {}", some_of(&strangers)),
        format!(
            "remove the binding; or, if these are the platform's own people, annotate it \
             {PLATFORM_ACCESS}=true; or --skip-preflight={check}"
        ),
    )
}

/// Whether the binding is of a hub's installation, or its administrator says that its subjects are the platform's. Who can
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
