//! Where the destination of a task comes from, and what has to be read for it.

use super::missing::uncrossed;
use super::read_identity::{ReadIdentity, identity_of};
use super::reference::{NamedDestination, TenantReference};
use super::tenant_destination::TenantDestination;
use crate::api::conditions::Reason;
use crate::api::labels::GROUP;
use crate::api::names::TaskKind;
use crate::api::{RegistryKind, RegistrySpec, RenderTaskSpec};
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::model::Task;
use crate::plan::task::referrer::ReferrerKind;
use crate::plan::task::refusal::Refusal;

/// Where the destination of a task comes from.
#[derive(Clone, Debug)]
pub enum DestinationSource {
    /// From the platform.
    Platform,
    /// From the task alone.
    Given(TenantDestination),
    /// From the platform, or from the task alone, once it is known that the hub may act as the ServiceAccount that the task names.
    Vouched(ReadIdentity, Option<TenantDestination>),
    /// From what it names.
    Read(TenantReference),
}

/// The grants that count for a task.
#[derive(Clone, Copy, Debug)]
pub struct ReferrerGrants<'a> {
    /// All grants that the hub sees.
    pub index: &'a ReferenceGrantIndex,
    /// The kinds of which some count.
    pub referrer: ReferrerKind,
}

impl ReferrerGrants<'_> {
    fn allow(&self, from: &str, to: &str, registry: &str) -> bool {
        let is_granted = |kind| {
            self.index
                .admits((kind, from), to, (GROUP, "Registry", Some(registry)))
        };
        is_granted("RenderTask") || self.referrer == ReferrerKind::Target && is_granted("Target")
    }
}

/// Where the destination of a task comes from.
///
/// # Errors
/// Why nothing is read: no identity, or a reference that leaves the namespace without a grant.
pub fn wanted(
    task: &Task,
    spec: &RenderTaskSpec,
    tenancy: &TenancyPolicy,
    grants: ReferrerGrants<'_>,
) -> Result<DestinationSource, Refusal> {
    let of_platform = task.id.kind == TaskKind::ClusterRenderTask;
    if of_platform && spec.service_account_name.is_some() {
        return Err(invalid("a ClusterRenderTask cannot have a serviceAccountName"));
    }
    let (named, namespace) = match (&spec.registry_ref, &spec.base_url) {
        (Some(named), _) if named.kind == RegistryKind::ClusterRegistry => {
            return vouched(task, spec, tenancy, None);
        }
        (Some(_), _) if of_platform => {
            return Err(invalid(
                "a ClusterRenderTask cannot name a Registry, only a ClusterRegistry or baseURL",
            ));
        }
        (Some(named), _) => (
            NamedDestination::Registry(named.name.clone()),
            named.namespace.as_ref().unwrap_or(&task.id.namespace),
        ),
        (None, Some(host)) => {
            let own = host_of(spec, host);
            tenancy.vet(task, &own, false)?;
            if own.push_secret_ref.is_none() {
                return vouched(task, spec, tenancy, Some(TenantDestination::anonymous(own)));
            }
            (NamedDestination::Host(Box::new(own)), &task.id.namespace)
        }
        (None, None) => return Err(invalid("registryRef is missing; name a registry")),
    };
    let crosses = *namespace != task.id.namespace;
    let may_cross = |name| tenancy.crosses_namespaces && grants.allow(&task.id.namespace, namespace, name);
    if crosses && !named.registry().is_some_and(may_cross) {
        return Err(uncrossed(tenancy));
    }
    Ok(DestinationSource::Read(TenantReference {
        identity: identity_of(&task.id, spec, tenancy)?,
        namespace: namespace.clone(),
        crosses,
        named,
    }))
}

/// A destination for which nothing is read. A ServiceAccount that is named counts all the same: a misspelt one is found by the
/// first task that names it, and not by the first that needs it.
fn vouched(
    task: &Task,
    spec: &RenderTaskSpec,
    tenancy: &TenancyPolicy,
    own: Option<TenantDestination>,
) -> Result<DestinationSource, Refusal> {
    // A kubeconfig is read as the account, which shows the same.
    if spec.service_account_name.is_some() && spec.kube_config.is_none() {
        return Ok(DestinationSource::Vouched(
            identity_of(&task.id, spec, tenancy)?,
            own,
        ));
    }
    Ok(own.map_or(DestinationSource::Platform, DestinationSource::Given))
}

/// The registry that a task describes by itself.
fn host_of(spec: &RenderTaskSpec, host: &str) -> RegistrySpec {
    RegistrySpec {
        hostname: host.to_owned(),
        plain_http: spec.plain_http,
        push_secret_ref: spec.push_secret_ref.clone(),
        ..RegistrySpec::default()
    }
}

fn invalid(what: &str) -> Refusal {
    Refusal::new(Reason::InvalidSpec, format!("{what}; make a new task"))
}
