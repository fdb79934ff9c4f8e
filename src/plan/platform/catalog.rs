//! What the platform offers: registries with the verdict on their credential, and renderer classes.
//!
//! [`Catalog::resolve`] answers which destination and renderer a task gets, or why it gets none.

#![warn(clippy::wildcard_enum_match_arm)]

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::api::conditions::Reason;
use crate::api::names::{TaskKind, job_name};
use crate::api::oci::{Reference, RegistryHost, Repository, RepositoryPrefix, Tag};
use crate::api::{
    AllowedNamespace, ClusterRegistrySpec, RenderClusterSpec, RenderTaskSpec, RendererClassSpec,
};

use super::namespaces::{Uids, is_allowed};
use crate::plan::queue::Weights;
use crate::plan::remote::placement::Target;
use crate::plan::task::model::{Task, TaskId};
use crate::plan::task::tenant::{Access, Login, Own};
use crate::plan::task::validate::MAX_CONFIG_BYTES;

/// Why a task cannot start, for its tenant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The enumerated reason.
    pub reason: Reason,
    /// What is wrong and what to do; only our words and the tenant's own names.
    pub message: String,
}

impl Refusal {
    /// A refusal with its message.
    #[must_use]
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
        }
    }
}

/// What is known of a registry's credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The registry names none.
    Anonymous,
    /// A `kubernetes.io/basic-auth` Secret of this name.
    BasicAuth(String),
    /// A `kubernetes.io/dockerconfigjson` Secret of this name, with an entry for the host.
    DockerConfig(String),
    /// The Secret does not exist.
    Missing,
    /// The Secret has another type, or no usable entry for the host.
    Invalid,
}

/// A registry and the verdict on its credential.
#[derive(Clone, Debug)]
pub struct Registry {
    /// As the platform wrote it.
    pub spec: ClusterRegistrySpec,
    /// The credential it is pushed to with.
    pub credential: Credential,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: Uids,
}

/// A renderer class by name.
#[derive(Clone, Debug)]
pub struct Class {
    /// As the platform wrote it.
    pub spec: RendererClassSpec,
    /// Whether tasks that name no class get it.
    pub is_default: bool,
    /// Whether the API server would not accept its Jobs, when it was asked last.
    pub is_refused: bool,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: Uids,
}

/// A cluster of the platform's.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// As the platform wrote it.
    pub spec: RenderClusterSpec,
    /// UID of the object: another one of its name is another cluster.
    pub uid: String,
    /// Generation of the spec.
    pub generation: i64,
    /// UID of each namespace it lists, as recorded at first use.
    pub recorded: Uids,
}

/// Where a registry's certificates are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// In this ConfigMap of the rendering namespace, under this key.
    ConfigMap(String, String),
    /// A tenant's, to be put into the config Secret.
    Copied(String),
}

/// Where a task's chart goes, and who makes it.
#[derive(Clone, Debug)]
pub struct Resolved {
    /// The full reference that is pushed to.
    pub reference: Reference,
    /// Where on that host the credential may push for this task: the registry's prefix with the namespace filled in.
    pub prefix: RepositoryPrefix,
    /// Whether it is reached over plain HTTP.
    pub plain_http: bool,
    /// The credential of the push.
    pub credential: Credential,
    /// Token service of another origin that the registry may send the pusher to.
    pub token_realm: Option<String>,
    /// The registry's certificates.
    pub ca: Option<Certificates>,
    /// A tenant's credential, which goes into the config Secret.
    pub login: Option<Login>,
    /// The renderer.
    pub class: RendererClassSpec,
}

mod cargo;
mod classes;
mod offered;

pub use cargo::{Cargo, Carried};

/// What the platform offers.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    /// Registries by name.
    pub registries: BTreeMap<String, Registry>,
    /// Renderer classes by name.
    pub classes: BTreeMap<String, Class>,
    /// Clusters by name.
    pub clusters: BTreeMap<String, Cluster>,
    /// How often each namespace gets a turn.
    pub weights: Arc<Weights>,
    /// The renderer where no class is named and none is the default.
    pub fallback: RendererClassSpec,
    /// UID, as it is now, of each namespace that some list names and that exists.
    pub namespaces: Uids,
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
        own: Option<&Own>,
        target: Option<&Target>,
    ) -> Result<Resolved, Refusal> {
        let mut resolved = match own {
            Some(own) => self.with_own(task, spec, own)?,
            None => self.with_platforms(task, spec)?,
        };
        if let Some(target) = target {
            let registry = spec.registry_ref.as_ref().filter(|_| own.is_none());
            self.may_travel(&resolved, registry.map(|named| named.name.as_str()), target)?;
            if matches!(target, Target::Own(_)) {
                // The platform's Secrets are not there, and their names are nobody's business.
                resolved.class.image_pull_secrets.clear();
            }
        }
        Ok(resolved)
    }

    /// Whether the credential may go to another cluster: a tenant's own may, the platform's only to a cluster of the
    /// platform's that lists its registry.
    fn may_travel(
        &self,
        resolved: &Resolved,
        registry: Option<&str>,
        target: &Target,
    ) -> Result<(), Refusal> {
        if resolved.login.is_some() || resolved.credential == Credential::Anonymous {
            return Ok(());
        }
        let cluster = match target {
            Target::Platform(name) => self.clusters.get(name),
            Target::Own(_) => None,
        };
        let lists = |name: &str| cluster.is_some_and(|c| c.spec.registries.iter().any(|r| r == name));
        if registry.is_some_and(lists) {
            return Ok(());
        }
        let message = match target {
            Target::Platform(_) => {
                "the platform's credential for this registry may not be copied to the RenderCluster; ask the platform operator to list the \
                 registry in its spec.registries, or make a new task with another registry or cluster"
            }
            Target::Own(_) => {
                "the platform's credentials never go to a tenant's cluster; make a new task with a registry of your own"
            }
        };
        Err(Refusal::new(Reason::CredentialsNotAllowedOnCluster, message))
    }

    /// The cluster of this name, if it is for the task's namespace.
    #[must_use]
    pub fn cluster(&self, name: &str, task: &Task) -> Option<&Cluster> {
        let cluster = self.clusters.get(name)?;
        self.admits(&cluster.spec.allowed_namespaces, &cluster.recorded, task)
            .then_some(cluster)
    }

    fn with_platforms(&self, task: &Task, spec: &RenderTaskSpec) -> Result<Resolved, Refusal> {
        let registry = self.registry(task, spec)?;
        if let Some(field) = unserved(&registry.spec) {
            let message = format!(
                "the ClusterRegistry sets {field}, which this hub does not support; ask the platform operator to remove it"
            );
            return Err(Refusal::new(Reason::FeatureDisabled, message));
        }
        let (reference, prefix) = destination(
            &registry.spec.hostname,
            &registry.spec.repository_prefix,
            task,
            spec,
        )?;
        let credential = usable(&registry.credential)?;
        Ok(Resolved {
            reference,
            prefix,
            plain_http: registry.spec.plain_http,
            credential,
            token_realm: registry.spec.token_realm.clone(),
            ca: registry
                .spec
                .ca_config_map_ref
                .as_ref()
                .map(|r| Certificates::ConfigMap(r.name.clone(), r.key.clone())),
            login: None,
            class: self.class(task, spec)?.clone(),
        })
    }

    fn with_own(&self, task: &Task, spec: &RenderTaskSpec, own: &Own) -> Result<Resolved, Refusal> {
        if task.config.len() + own.bytes() > MAX_CONFIG_BYTES {
            let message = "the configuration, with the credential and the certificates that are copied beside it, is larger than 1020 KiB; \
                           make a new task with less";
            return Err(Refusal::new(Reason::ConfigTooLarge, message));
        }
        let prefix = own.spec.repository_prefix.as_deref().unwrap_or_default();
        let (reference, prefix) = destination(&own.spec.hostname, prefix, task, spec)?;
        let (credential, login) = match &own.access {
            Access::Anonymous => (Credential::Anonymous, None),
            Access::Mounted(credential) => (usable(credential)?, None),
            Access::Copied(login) => {
                // The config Secret has the name of the Job.
                let copy = job_name(&task.id.name, &task.id.uid);
                (Credential::BasicAuth(copy), Some(login.clone()))
            }
        };
        Ok(Resolved {
            reference,
            prefix,
            plain_http: own.spec.plain_http.unwrap_or_default(),
            credential,
            token_realm: own.spec.token_realm.clone(),
            ca: own.certificates.clone().map(Certificates::Copied),
            login,
            class: self.class(task, spec)?.clone(),
        })
    }

    /// The registry that a task names. One that is not for its namespace reads the same as one that does not exist.
    fn registry(&self, task: &Task, spec: &RenderTaskSpec) -> Result<&Registry, Refusal> {
        let name = spec.registry_ref.as_ref().map_or("", |named| &named.name);
        let found = self.registries.get(name);
        let serving =
            found.filter(|found| self.admits(&found.spec.allowed_namespaces, &found.recorded, task));
        serving.ok_or_else(|| self.no_registry(task))
    }

    fn admits(&self, allowed: &[AllowedNamespace], recorded: &Uids, task: &Task) -> bool {
        let current = self.namespaces.get(&task.id.namespace);
        is_allowed(allowed, recorded, current, &task.id)
    }
}

/// A field of a registry that the schema has and this hub does not serve.
#[must_use]
pub fn unserved(spec: &ClusterRegistrySpec) -> Option<&'static str> {
    spec.target_pull_secret_name
        .as_ref()
        .map(|_| "targetPullSecretName")
}

/// A credential that a push can be made with.
fn usable(credential: &Credential) -> Result<Credential, Refusal> {
    match credential {
        Credential::Missing => Err(Refusal::new(
            Reason::PushSecretNotFound,
            "the Secret with the registry's push credential does not exist; ask the platform operator to make it: the task then starts by \
             itself",
        )),
        Credential::Invalid => Err(Cargo::without_secret()),
        Credential::Anonymous | Credential::BasicAuth(_) | Credential::DockerConfig(_) => {
            Ok(credential.clone())
        }
    }
}

/// Where repositories of a task begin, by the prefix of its registry.
fn granted(prefix: &str, task: &TaskId) -> String {
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
) -> Result<(Reference, RepositoryPrefix), Refusal> {
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
    let reference = Reference {
        host,
        repository,
        tag,
    };
    Ok((reference, granted))
}
