//! The subjects that the preflight asks about, and those of their rights by which tenants reach a credential.
//!
//! A `LocalSubjectAccessReview` answers for groups and accounts that represent tenants, whatever grants them the right, a
//! `ClusterRoleBinding` included.

use super::text::shown;

/// What user names of `ServiceAccounts` start with.
pub(super) const ACCOUNT: &str = "system:serviceaccount:";
/// What the group of the `ServiceAccounts` of a namespace starts with.
pub(super) const ACCOUNTS: &str = "system:serviceaccounts:";
/// Namespaces in one question.
const TOGETHER: usize = 100;
/// Default `ServiceAccounts` that are asked about one by one.
const ACCOUNTS_ASKED: usize = 32;

/// A right that only the platform may have where the credentials are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RestrictedPermission {
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
) -> RestrictedPermission {
    RestrictedPermission {
        verb,
        group,
        resource,
        subresource,
    }
}

/// Each is a way to a credential: to read it, to mount it, to look into a pod that has it, to act as an account that may, or to
/// be allowed to do so. Rights that are not of a namespace are checked as well: their holders hold them everywhere.
#[rustfmt::skip]
pub const RIGHTS: [RestrictedPermission; 39] = [
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

impl RestrictedPermission {
    pub(super) fn text(self) -> String {
        let slash = if self.subresource.is_empty() { "" } else { "/" };
        format!("{} {}{slash}{}", self.verb, self.resource, self.subresource)
    }
}

/// A subject that represents tenants.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TenantSubject {
    /// User name; `None` for all members of the groups.
    pub user: Option<String>,
    /// Groups.
    pub groups: Vec<String>,
}

impl TenantSubject {
    fn group(name: &str) -> Self {
        Self {
            user: None,
            groups: vec![name.to_owned()],
        }
    }

    /// All `ServiceAccounts` of these namespaces.
    fn accounts(namespaces: &[String]) -> Self {
        let everywhere = ["system:authenticated", "system:serviceaccounts"].map(str::to_owned);
        let of_each = namespaces.iter().map(|name| format!("{ACCOUNTS}{name}"));
        Self {
            user: None,
            groups: everywhere.into_iter().chain(of_each).collect(),
        }
    }

    fn default_account(namespace: &String) -> Self {
        Self {
            user: Some(format!("{ACCOUNT}{namespace}:default")),
            ..Self::accounts(std::slice::from_ref(namespace))
        }
    }

    /// The subjects to ask about one by one when this one has a right: each of its groups. A user that none of them gives the
    /// right has it itself.
    #[must_use]
    pub fn single_groups(&self) -> Vec<Self> {
        self.groups.iter().map(|group| Self::group(group)).collect()
    }

    pub(super) fn shown_name(&self) -> String {
        let name = self.user.as_ref().or(self.groups.first());
        shown(name.map_or("", String::as_str))
    }
}

/// The subjects to ask about, where tenants have these namespaces: all users, and the `ServiceAccounts` of each namespace. Rights
/// add up, so a question about an account is one about its groups as well. Users have a question of their own all the same, because
/// an API server may deny accounts by a webhook what it allows to users.
#[must_use]
pub fn subjects(namespaces: &[String], hub: Option<&str>) -> Vec<TenantSubject> {
    let (first, others) = namespaces.split_at(namespaces.len().min(ACCOUNTS_ASKED));
    let accounts = first.iter().map(|namespace| {
        let account = TenantSubject::default_account(namespace);
        let is_hub = hub.is_some() && account.user.as_deref() == hub;
        if is_hub {
            TenantSubject::accounts(std::slice::from_ref(namespace))
        } else {
            account
        }
    });
    let together = others.chunks(TOGETHER).map(TenantSubject::accounts);
    let without = namespaces.is_empty().then(|| TenantSubject::accounts(&[]));
    let users = ["system:authenticated", "system:unauthenticated"].map(TenantSubject::group);
    users
        .into_iter()
        .chain(without)
        .chain(accounts)
        .chain(together)
        .collect()
}

/// What was found out about tenants' rights in the rendering namespace.
#[derive(Clone, Debug, Default)]
pub struct TenantPermissions {
    /// The rights that subjects have.
    pub held: Vec<(TenantSubject, RestrictedPermission)>,
    /// Namespaces whose `ServiceAccounts` were asked about.
    pub namespaces: usize,
    /// Whether there may be namespaces of tenants that no review was made for.
    pub is_sample: bool,
    /// Whether there are more tasks than were read for their namespaces.
    pub is_cut: bool,
}
