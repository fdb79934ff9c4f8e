//! What a task names that is not the platform's: as whom it is read, and the destination that comes of it.
//!
//! [`wanted`] says what to read; whoever reads it has the rights of the task's ServiceAccount and no others.

#![warn(clippy::wildcard_enum_match_arm)]

use std::fmt;

use k8s_openapi::api::core::v1::Secret;
use secrecy::ExposeSecret as _;

use crate::api::basic_auth::{self, NamedHost};
use crate::api::conditions::Reason;
use crate::api::docker_config::{self, DockerConfig};
use crate::api::names::{TaskKind, is_dns_label, is_dns_subdomain};
use crate::api::oci::RegistryHost;
use crate::api::{RegistryKind, RegistrySpec, RenderTaskSpec};

use crate::plan::platform::catalog::{Credential, Refusal};
use crate::plan::platform::grants::Grants;
use crate::plan::platform::tenancy::Tenancy;
use crate::plan::task::model::{Task, TaskId};

mod missing;

pub use missing::{Missing, crossing, no_account, uncrossed};
use missing::{SOON, quoted};

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
pub enum Reader {
    /// The task's ServiceAccount.
    ServiceAccount(ServiceAccount),
    /// The hub itself, for the platform's own tasks and where one team owns the cluster.
    Hub,
}

impl Named {
    /// The name of the registry; none where a host is named, whose Secret is in the task's own namespace.
    fn registry(&self) -> Option<&str> {
        match self {
            Self::Registry(name) => Some(name),
            Self::Host(_) => None,
        }
    }
}

/// What a task names.
#[derive(Clone, Debug)]
pub enum Named {
    /// A `Registry`.
    Registry(String),
    /// A host, given in the task, with a Secret.
    Host(RegistrySpec),
}

/// Something to read before a task can start.
#[derive(Clone, Debug)]
pub struct Reference {
    /// As whom.
    pub reader: Reader,
    /// Namespace of all that is named; empty for the rendering namespace.
    pub namespace: String,
    /// Whether that is another namespace than the task's: then nothing is told of what is there.
    pub crosses: bool,
    /// What is named.
    pub named: Named,
}

/// A credential that a tenant owns, and which state of its Secret it was read from.
#[derive(Clone, Debug)]
pub struct Login {
    /// User name and password.
    pub credential: docker_config::Credential,
    /// UID and version of the Secret.
    pub version: String,
}

/// What a destination of the task's own is pushed to with.
#[derive(Clone, Debug)]
pub enum Access {
    /// Nothing.
    Anonymous,
    /// A Secret of the rendering namespace, mounted in place.
    Mounted(Credential),
    /// A tenant's credential, copied into the task's own config Secret.
    Copied(Login),
}

/// A destination that is not the platform's.
#[derive(Clone)]
pub struct Own {
    /// The registry.
    pub spec: RegistrySpec,
    /// What it is pushed to with.
    pub access: Access,
    /// Its certificates.
    pub certificates: Option<String>,
}

impl Own {
    /// A registry that takes pushes from all.
    const fn anonymous(spec: RegistrySpec) -> Self {
        Self {
            spec,
            access: Access::Anonymous,
            certificates: None,
        }
    }

    /// Bytes that are copied into the config Secret.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let login = match &self.access {
            Access::Copied(login) => {
                login.credential.username.len() + login.credential.password.expose_secret().len()
            }
            Access::Anonymous | Access::Mounted(_) => 0,
        };
        login + self.certificates.as_ref().map_or(0, String::len)
    }
}

impl fmt::Debug for Own {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Own")
            .field("spec", &self.spec)
            .finish_non_exhaustive()
    }
}

/// Where the destination of a task comes from.
#[derive(Clone, Debug)]
pub enum Wanted {
    /// From the platform.
    Platform,
    /// From the task alone.
    Given(Own),
    /// From the platform, or from the task alone, once it is known that the hub may act as the ServiceAccount that the task names.
    Vouched(Reader, Option<Own>),
    /// From what it names.
    Read(Reference),
}

/// Where the destination of a task comes from.
///
/// # Errors
/// Why nothing is read: no identity, or a reference that leaves the namespace without a grant.
pub fn wanted(
    task: &Task,
    spec: &RenderTaskSpec,
    tenancy: &Tenancy,
    grants: &Grants,
) -> Result<Wanted, Refusal> {
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
            Named::Registry(named.name.clone()),
            named.namespace.as_ref().unwrap_or(&task.id.namespace),
        ),
        (None, Some(host)) => {
            let own = host_of(spec, host);
            tenancy.vet(task, &own, false)?;
            if own.push_secret_ref.is_none() {
                return vouched(task, spec, tenancy, Some(Own::anonymous(own)));
            }
            (Named::Host(own), &task.id.namespace)
        }
        (None, None) => return Err(invalid("registryRef is missing; name a registry")),
    };
    let crosses = *namespace != task.id.namespace;
    let may_cross = |name| tenancy.crosses_namespaces && grants.allows(&task.id.namespace, namespace, name);
    if crosses && !named.registry().is_some_and(may_cross) {
        return Err(uncrossed(tenancy));
    }
    Ok(Wanted::Read(Reference {
        reader: reader(&task.id, spec, tenancy)?,
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
    tenancy: &Tenancy,
    own: Option<Own>,
) -> Result<Wanted, Refusal> {
    // A kubeconfig is read as the account, which shows the same.
    if spec.service_account_name.is_some() && spec.kube_config.is_none() {
        return Ok(Wanted::Vouched(reader(&task.id, spec, tenancy)?, own));
    }
    Ok(own.map_or(Wanted::Platform, Wanted::Given))
}

/// The registry that a task describes by itself.
fn host_of(spec: &RenderTaskSpec, host: &str) -> RegistrySpec {
    RegistrySpec {
        hostname: host.to_owned(),
        plain_http: spec.plain_http,
        push_secret_ref: spec.push_secret_ref.clone(),
        repository_prefix: None,
        token_realm: None,
        ca_config_map_ref: None,
    }
}

/// As whom a task's references are read. Nobody is not somebody: without a ServiceAccount nothing is read.
pub(in crate::plan) fn reader(
    task: &TaskId,
    spec: &RenderTaskSpec,
    tenancy: &Tenancy,
) -> Result<Reader, Refusal> {
    if task.kind == TaskKind::ClusterRenderTask {
        return Ok(Reader::Hub);
    }
    let named = spec
        .service_account_name
        .as_ref()
        .or(tenancy.default_service_account.as_ref());
    match named {
        Some(name) => ServiceAccount::new(&task.namespace, name)
            .map(Reader::ServiceAccount)
            .ok_or_else(|| {
                let message = "serviceAccountName is not a name that Kubernetes allows for a ServiceAccount; make a new task";
                Refusal::new(Reason::RBACDenied, message)
            }),
        None if tenancy.is_single_tenant => Ok(Reader::Hub),
        None => Err(Refusal::new(
            Reason::RBACDenied,
            "serviceAccountName is missing; make a new task that names a ServiceAccount with the right to read the Registry, Secret or \
             kubeconfig that the task names",
        )),
    }
}

fn invalid(what: &str) -> Refusal {
    Refusal::new(Reason::InvalidSpec, format!("{what}; make a new task"))
}

/// The credential for exactly this host that a tenant's Secret holds.
///
/// # Errors
/// What to mend, where it has another type or nothing usable for the host.
pub fn login(secret: &Secret, hostname: &str) -> Result<Login, Refusal> {
    let value = |key: &str| secret.data.as_ref()?.get(key).map(|v| v.0.as_slice());
    let named = NamedHost::of(secret.metadata.annotations.as_ref(), hostname);
    let credential = match secret.type_.as_deref() {
        Some("kubernetes.io/basic-auth") if named == NamedHost::Another => None,
        Some("kubernetes.io/basic-auth") => value("username")
            .zip(value("password"))
            .and_then(|(username, password)| basic_auth::parse(username, password).ok()),
        Some("kubernetes.io/dockerconfigjson") => {
            let config = value(".dockerconfigjson").and_then(|bytes| DockerConfig::parse(bytes).ok());
            let host: Option<RegistryHost> = hostname.parse().ok();
            config
                .zip(host)
                .and_then(|(config, host)| config.lookup(&host).ok().flatten().cloned())
        }
        _ => None,
    };
    let meta = &secret.metadata;
    let version = [&meta.uid, &meta.resource_version].map(|part| part.as_deref().unwrap_or_default());
    let login = credential.map(|credential| Login {
        credential,
        version: version.join("/"),
    });
    login.ok_or_else(|| {
        let name = quoted(secret.metadata.name.as_deref().unwrap_or_default());
        Refusal::new(
            Reason::PushSecretInvalid,
            format!(
                "the push Secret{name} cannot be used for the registry's host: it must be of type kubernetes.io/basic-auth with \
                 username and password, with no other host in the annotation renderhub.dev/registry-host, or of type \
                 kubernetes.io/dockerconfigjson with an entry for the host; correct it: {SOON}"
            ),
        )
    })
}
