//! The account that reads what a task names.

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

/// Who reads what a task names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ReadIdentity {
    /// The task's ServiceAccount.
    ServiceAccount(ServiceAccount),
    /// The hub itself, for the platform's own tasks and where one team owns the cluster.
    Hub,
}

/// The account that reads a task's references. Without a ServiceAccount nothing is read.
pub(in crate::plan) fn reader(
    task: &TaskId,
    spec: &RenderTaskSpec,
    tenancy: &TenancyPolicy,
) -> Result<ReadIdentity, Refusal> {
    if task.kind == TaskKind::ClusterRenderTask {
        return Ok(ReadIdentity::Hub);
    }
    reader_in(&task.namespace, spec.service_account_name.as_deref(), tenancy)
}

/// The account that reads references in a namespace, where what refers names this one or none.
pub(in crate::plan) fn reader_in(
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
