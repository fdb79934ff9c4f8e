//! As which identity the hub reads what a task names.
//!
//! What depends on the kind of identity is a method here; `kubernetes::tenant::identity` obtains the credential for each kind.

use crate::api::RenderTaskSpec;
use crate::api::conditions::Reason;
use crate::api::names::{TaskKind, is_dns_label, is_dns_subdomain};
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::model::TaskId;
use crate::plan::task::refusal::Refusal;

/// A ServiceAccount by the namespace of its task and its name; both are legal names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ServiceAccount {
    namespace: String,
    name: String,
}

impl ServiceAccount {
    /// The account; `None` where either part is no legal name, so that nothing can slip into a path or a header.
    #[must_use]
    pub fn new(namespace: &str, name: &str) -> Option<Self> {
        (is_dns_label(namespace) && is_dns_subdomain(name)).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        })
    }

    /// Its namespace.
    #[must_use]
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its name as a user of the API server.
    #[must_use]
    pub fn username(&self) -> String {
        format!("system:serviceaccount:{}:{}", self.namespace, self.name)
    }
}

/// As whom the hub reads what a task names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadIdentity {
    /// The task's ServiceAccount.
    ServiceAccount(ServiceAccount),
    /// The hub itself, for the platform's own tasks and where one team owns the cluster.
    Hub,
}

/// An identity as the ledger records it: namespace and name of a ServiceAccount; `None` for the hub itself.
pub(in crate::plan) type RecordedIdentity = Option<[String; 2]>;

impl ReadIdentity {
    /// The user that requests to a tenant's cluster impersonate; `None` where they impersonate no user.
    #[must_use]
    pub fn user(&self) -> Option<String> {
        match self {
            Self::ServiceAccount(account) => Some(account.username()),
            Self::Hub => None,
        }
    }

    /// The namespace that it is of, if it is of one.
    #[must_use]
    pub fn namespace(&self) -> Option<&str> {
        match self {
            Self::ServiceAccount(account) => Some(account.namespace()),
            Self::Hub => None,
        }
    }

    /// As the tenant knows it, for a message.
    #[must_use]
    pub fn described(&self) -> String {
        match self {
            Self::ServiceAccount(account) => format!("the task's ServiceAccount \"{}\"", account.name()),
            Self::Hub => "the hub".to_owned(),
        }
    }

    /// The identity for the ledger.
    #[must_use]
    pub(in crate::plan) fn to_record(&self) -> RecordedIdentity {
        match self {
            Self::ServiceAccount(account) => Some([account.namespace(), account.name()].map(str::to_owned)),
            Self::Hub => None,
        }
    }

    /// The identity that the ledger recorded; `None` where the record has a name that is not legal.
    #[must_use]
    pub(in crate::plan) fn from_record(record: RecordedIdentity) -> Option<Self> {
        match record {
            Some([namespace, name]) => ServiceAccount::new(&namespace, &name).map(Self::ServiceAccount),
            None => Some(Self::Hub),
        }
    }
}

/// The identity as which a task's references are read. Without a ServiceAccount nothing is read.
pub(in crate::plan) fn identity_of(
    task: &TaskId,
    spec: &RenderTaskSpec,
    tenancy: &TenancyPolicy,
) -> Result<ReadIdentity, Refusal> {
    if task.kind == TaskKind::ClusterRenderTask {
        return Ok(ReadIdentity::Hub);
    }
    identity_in(&task.namespace, spec.service_account_name.as_deref(), tenancy)
}

/// The identity as which references in a namespace are read, where what refers names this ServiceAccount or none.
pub(in crate::plan) fn identity_in(
    namespace: &str,
    account: Option<&str>,
    tenancy: &TenancyPolicy,
) -> Result<ReadIdentity, Refusal> {
    match account.or(tenancy.default_service_account.as_deref()) {
        Some(name) => ServiceAccount::new(namespace, name)
            .map(ReadIdentity::ServiceAccount)
            .ok_or_else(|| {
                let message = "serviceAccountName is not a name that Kubernetes allows for a ServiceAccount; make a new task";
                Refusal::new(Reason::RBACDenied, message)
            }),
        None if tenancy.is_single_tenant => Ok(ReadIdentity::Hub),
        None => Err(Refusal::new(
            Reason::RBACDenied,
            "serviceAccountName is missing; make a new task that names a ServiceAccount with the right to read the Registry, Secret or \
             kubeconfig that the task names",
        )),
    }
}
