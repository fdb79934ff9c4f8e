//! Which destination and renderer a task gets, or why it gets none.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::copied_credentials::CopyRequest;
use super::credential::{CertificateSource, CredentialState};
use super::offers::{CatalogClass, CatalogCluster, CatalogRegistry};
use super::resolved::ResolvedTask;
use crate::api::conditions::Reason;
use crate::api::names::{TaskKind, job_name};
use crate::api::oci::{OciReference, RegistryHost, Repository, RepositoryPrefix, Tag};
use crate::api::{AllowedNamespace, RenderTaskSpec};
use crate::plan::platform::namespaces::{NamespaceUids, is_allowed};
use crate::plan::queue::NamespaceWeights;
use crate::plan::remote::site::RemoteTarget;
use crate::plan::task::model::{Task, TaskId};
use crate::plan::task::refusal::Refusal;
use crate::plan::task::tenant::tenant_destination::{PushAccess, TenantDestination};
use crate::plan::task::validate::check_size;

/// What the platform offers.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Registries by name.
    pub registries: BTreeMap<String, CatalogRegistry>,
    /// Renderer classes by name.
    pub classes: BTreeMap<String, CatalogClass>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, CatalogCluster>,
    /// The weight of each namespace in the queue.
    pub weights: Arc<NamespaceWeights>,
    /// The renderer where no class is named and none is the default.
    pub fallback: CatalogClass,
    /// UID, as it is now, of each namespace that some list names and that exists.
    pub namespaces: NamespaceUids,
}

impl Catalog {
    /// The destination and renderer of a task; `own` is the destination where it is not the platform's, `target` the place
    /// where it is not the hub.
    ///
    /// # Errors
    /// Why the task gets none: the first of registry, namespace, repository, credential, class and cluster that refuses.
    pub fn resolve(
        &self,
        task: &Task,
        spec: &RenderTaskSpec,
        own: Option<&TenantDestination>,
        target: Option<&RemoteTarget>,
    ) -> Result<ResolvedTask, Refusal> {
        let mut resolved = match own {
            Some(own) => self.with_own(task, spec, own)?,
            None => self.with_platforms(task, spec)?,
        };
        if let Some(target) = target {
            let registry = spec.registry_ref.as_ref().filter(|_| own.is_none());
            self.may_be_copied(&resolved, registry.map(|named| named.name.as_str()), target)?;
            if matches!(target, RemoteTarget::Own(_)) {
                // The platform's Secrets do not exist there, and their names are secret.
                resolved.class.image_pull_secrets.clear();
                resolved.pull_secrets.clear();
            }
        }
        Ok(resolved)
    }

    /// Whether the credential may go to another cluster: a tenant's own may, the platform's only to a cluster of the
    /// platform's that lists its registry.
    fn may_be_copied(
        &self,
        resolved: &ResolvedTask,
        registry: Option<&str>,
        target: &RemoteTarget,
    ) -> Result<(), Refusal> {
        if resolved.login.is_some() || resolved.credential == CredentialState::Anonymous {
            return Ok(());
        }
        let cluster = match target {
            RemoteTarget::Platform(name) => self.clusters.get(name),
            RemoteTarget::Own(_) => None,
        };
        let lists = |name: &str| cluster.is_some_and(|c| c.spec.registries.iter().any(|r| r == name));
        if registry.is_some_and(lists) {
            return Ok(());
        }
        let message = match target {
            RemoteTarget::Platform(_) => {
                "the platform's credential for this registry may not be copied to the RenderCluster; ask the platform operator to list the \
                 registry in its spec.registries, or make a new task with another registry or cluster"
            }
            RemoteTarget::Own(_) => {
                "the platform's credentials never go to a tenant's cluster; make a new task with a registry of your own"
            }
        };
        Err(Refusal::new(Reason::CredentialsNotAllowedOnCluster, message))
    }

    /// The cluster of this name, if it is for the task's namespace.
    #[must_use]
    pub fn cluster(&self, name: &str, task: &Task) -> Option<&CatalogCluster> {
        let cluster = self.clusters.get(name)?;
        self.admits(&cluster.spec.allowed_namespaces, &cluster.recorded, &task.id)
            .then_some(cluster)
    }

    fn with_platforms(&self, task: &Task, spec: &RenderTaskSpec) -> Result<ResolvedTask, Refusal> {
        let registry = self.registry(task, spec)?;
        let (reference, prefix) = destination(
            &registry.spec.hostname,
            &registry.spec.repository_prefix,
            task,
            spec,
        )?;
        let credential = usable(&registry.credential)?;
        let class = self.class(task, spec)?;
        Ok(ResolvedTask {
            reference,
            prefix,
            plain_http: registry.spec.plain_http,
            credential,
            token_realm: registry.spec.token_realm.clone(),
            ca: registry
                .spec
                .ca_config_map_ref
                .as_ref()
                .map(|r| CertificateSource::ConfigMap(r.name.clone(), r.key.clone())),
            login: None,
            class: class.spec.clone(),
            pull_secrets: class.pull_secrets.clone(),
            pull_copies: Vec::new(),
        })
    }

    fn with_own(
        &self,
        task: &Task,
        spec: &RenderTaskSpec,
        own: &TenantDestination,
    ) -> Result<ResolvedTask, Refusal> {
        check_size(task, own.bytes())?;
        let prefix = own.spec.repository_prefix.as_deref().unwrap_or_default();
        let (reference, prefix) = destination(&own.spec.hostname, prefix, task, spec)?;
        let (credential, login) = match &own.access {
            PushAccess::Anonymous => (CredentialState::Anonymous, None),
            PushAccess::Mounted(credential) => (usable(credential)?, None),
            PushAccess::Copied(login) => {
                // The config Secret has the name of the Job.
                let copy = job_name(&task.id.name, &task.id.uid);
                (CredentialState::BasicAuth(copy), Some(login.clone()))
            }
        };
        let class = self.class(task, spec)?;
        Ok(ResolvedTask {
            reference,
            prefix,
            plain_http: own.spec.plain_http.unwrap_or_default(),
            credential,
            token_realm: own.spec.token_realm.clone(),
            ca: own.certificates.clone().map(CertificateSource::Copied),
            login,
            class: class.spec.clone(),
            pull_secrets: class.pull_secrets.clone(),
            pull_copies: Vec::new(),
        })
    }

    /// The registry that a task names. One that is not for its namespace reads the same as one that does not exist.
    fn registry(&self, task: &Task, spec: &RenderTaskSpec) -> Result<&CatalogRegistry, Refusal> {
        let name = spec.registry_ref.as_ref().map_or("", |named| &named.name);
        let found = self.registries.get(name);
        let serving =
            found.filter(|found| self.admits(&found.spec.allowed_namespaces, &found.recorded, &task.id));
        serving.ok_or_else(|| self.no_registry(task))
    }

    pub(in crate::plan) fn admits(
        &self,
        allowed: &[AllowedNamespace],
        recorded: &NamespaceUids,
        task: &TaskId,
    ) -> bool {
        let current = self.namespaces.get(&task.namespace);
        is_allowed(allowed, recorded, current, task)
    }
}

/// A credential that a push can be made with.
fn usable(credential: &CredentialState) -> Result<CredentialState, Refusal> {
    match credential {
        CredentialState::Missing => Err(Refusal::new(
            Reason::PushSecretNotFound,
            "the Secret with the registry's push credential does not exist; ask the platform operator to make it: the task then starts by \
             itself",
        )),
        CredentialState::Invalid => Err(CopyRequest::without_secret()),
        CredentialState::Anonymous | CredentialState::BasicAuth(_) | CredentialState::DockerConfig(_) => {
            Ok(credential.clone())
        }
    }
}

/// Where repositories of a task begin, by the prefix of its registry.
pub(super) fn granted(prefix: &str, task: &TaskId) -> String {
    // The platform's own tasks have no namespace, so a prefix made of one cannot bind them.
    if task.kind == TaskKind::ClusterRenderTask && prefix.contains("{namespace}") {
        String::new()
    } else {
        prefix.replace("{namespace}", &task.namespace)
    }
}

/// The full reference, if the repository lies within the prefix that the registry grants, and that prefix for the task.
pub(in crate::plan) fn destination(
    hostname: &str,
    prefix: &str,
    task: &Task,
    spec: &RenderTaskSpec,
) -> Result<(OciReference, RepositoryPrefix), Refusal> {
    let invalid = |what: &str| Refusal::new(Reason::InvalidSpec, format!("{what}; make a new task"));
    let repository: Repository = spec
        .repository
        .parse()
        .map_err(|_| invalid("repository is not the name of an OCI repository, such as team/chart"))?;
    let tag: Tag = spec
        .tag
        .parse()
        .map_err(|_| invalid("tag is not an OCI tag, such as 1.0.0"))?;
    let host: RegistryHost = hostname.parse().map_err(|_| {
        Refusal::new(
            Reason::RegistryNotFound,
            "the registry's hostname is not a host such as registry.example.com:5000; correct it in the Registry, or for a \
             ClusterRegistry ask the platform operator to",
        )
    })?;
    let prefix = granted(prefix, &task.id);
    let granted = prefix.parse::<RepositoryPrefix>().ok();
    let granted = granted.filter(|granted| repository.is_within(granted));
    let granted = granted.ok_or_else(|| {
        let message = format!("repository must start with {prefix} on this registry; make a new task");
        Refusal::new(Reason::RepositoryNotAllowed, message)
    })?;
    let reference = OciReference {
        host,
        repository,
        tag,
    };
    Ok((reference, granted))
}
