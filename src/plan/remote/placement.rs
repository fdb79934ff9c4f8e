//! Where a task's Job runs: on the hub's cluster, on a cluster of the platform, or on a cluster of the tenant.

#![warn(clippy::wildcard_enum_match_arm)]

use crate::api::RenderTaskSpec;
use crate::api::conditions::Reason;
use crate::api::names::{TaskKind, is_dns_label, is_dns_subdomain};

use super::site::{ClusterName, RemoteTarget, Site, TenantKubeconfig};
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::feature_gates::{FeatureGate, FeatureGates};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::model::{Task, TaskId};
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::missing::uncrossed;
use crate::plan::task::tenant::read_identity::identity_of;

impl RemoteTarget {
    /// The site, if it is known: in the namespace where the Job was created, else in the one that the RenderCluster names.
    #[must_use]
    pub fn site(&self, there: Option<&str>, catalog: &Catalog) -> Option<Site> {
        match self {
            Self::Own(site) => Some(site.clone()),
            Self::Platform(name) => {
                let offered = || Some(catalog.clusters.get(name)?.spec.render_namespace.as_str());
                Some(Site {
                    cluster: ClusterName::Platform(name.clone()),
                    namespace: there.or_else(offered)?.to_owned(),
                })
            }
        }
    }
}

/// Checks that the feature gates allow the spec.
///
/// # Errors
/// The spec uses a feature whose gate is closed.
pub fn open(task: &TaskId, spec: &RenderTaskSpec, gates: &FeatureGates) -> Result<(), Refusal> {
    let Some(named) = spec.kube_config.as_ref().map(|config| &config.secret_ref) else {
        return Ok(());
    };
    let crosses = named
        .namespace
        .as_ref()
        .is_some_and(|there| *there != task.namespace);
    let gate = if crosses {
        FeatureGate::ExternalClusterReferenceCrossNamespace
    } else {
        FeatureGate::ExternalClusterReference
    };
    if gates.is_open(gate) {
        return Ok(());
    }
    let message = format!(
        "kubeConfig needs the feature gate {}, which is off; ask the platform operator, or make a new task without it",
        gate.as_str()
    );
    Err(Refusal::new(Reason::FeatureDisabled, message))
}

/// The cluster that the spec names; `None` is the hub's own.
///
/// # Errors
/// The spec names no identity that may read the kubeconfig, or a name is invalid.
pub fn target(
    task: &TaskId,
    spec: &RenderTaskSpec,
    tenancy: &TenancyPolicy,
) -> Result<Option<RemoteTarget>, Refusal> {
    if let Some(name) = &spec.cluster_name {
        return Ok(Some(RemoteTarget::Platform(name.clone())));
    }
    let Some(named) = spec.kube_config.as_ref().map(|config| &config.secret_ref) else {
        return Ok(None);
    };
    if task.kind == TaskKind::ClusterRenderTask {
        let message = "a ClusterRenderTask cannot use kubeConfig; make a new one that names a RenderCluster in clusterName";
        return Err(Refusal::new(Reason::InvalidSpec, message));
    }
    let namespace = named.namespace.as_ref().unwrap_or(&task.namespace);
    let there = spec.deployment_namespace.as_ref().unwrap_or(&task.namespace);
    let are_legal = is_dns_label(namespace) && is_dns_label(there) && is_dns_subdomain(&named.name);
    if !are_legal {
        let message =
            "a name in kubeConfig or deploymentNamespace is not one that Kubernetes allows; make a new task";
        return Err(Refusal::new(Reason::InvalidSpec, message));
    }
    Ok(Some(RemoteTarget::Own(Site {
        cluster: ClusterName::Own(TenantKubeconfig {
            identity: identity_of(task, spec, tenancy)?,
            namespace: namespace.clone(),
            name: named.name.clone(),
            key: named.key.clone(),
            crosses: *namespace != task.namespace,
        }),
        namespace: there.clone(),
    })))
}

/// Checks whether a task may start at its target.
///
/// # Errors
/// A grant is missing, or the RenderCluster is disconnected or suspended. A cluster that is not for this namespace gives the
/// same error as one that does not exist.
pub fn admit(
    task: &Task,
    target: &RemoteTarget,
    catalog: &Catalog,
    grants: &ReferenceGrantIndex,
    tenancy: &TenancyPolicy,
) -> Result<(), Refusal> {
    match target {
        RemoteTarget::Platform(name) => {
            let cluster = catalog
                .cluster(name, task)
                .ok_or_else(|| catalog.no_cluster(task))?;
            if cluster.spec.disconnect {
                let message = "the platform operator has disconnected the cluster; the task starts by itself once it is connected \
                               again";
                return Err(Refusal::new(Reason::WaitingForCluster, message));
            }
            if cluster.spec.suspend {
                let message = "the platform operator has suspended the cluster; the task starts by itself once it is resumed";
                return Err(Refusal::new(Reason::WaitingForCluster, message));
            }
            Ok(())
        }
        RemoteTarget::Own(site) => {
            let own = match &site.cluster {
                ClusterName::Own(own) => own,
                ClusterName::Platform(_) => return Ok(()),
            };
            let is_granted = || {
                let (from, secret) = (
                    ("RenderTask", &*task.id.namespace),
                    ("", "Secret", Some(&*own.name)),
                );
                tenancy.crosses_namespaces && grants.admits(from, &own.namespace, secret)
            };
            if own.crosses && !is_granted() {
                return Err(uncrossed(tenancy));
            }
            Ok(())
        }
    }
}
