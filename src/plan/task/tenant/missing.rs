//! The messages about objects that a task names and that do not exist, or may not be read.

use crate::api::conditions::Reason;

use super::read_identity::ReadIdentity;
use super::reference::TenantReference;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::task::refusal::Refusal;

/// What keeps something from being read; names are those that the tenant gave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MissingReference<'a> {
    /// The `Registry` does not exist.
    Registry,
    /// The Secret of this name does not exist.
    Secret(&'a str),
    /// The certificates do not exist in the `ConfigMap` of this name.
    Certificates(&'a str),
    /// The ServiceAccount does not exist, or the hub may not act as it.
    Account,
    /// The ServiceAccount may not read the object of this kind and name.
    Right(&'static str, &'a str),
}

impl TenantReference {
    /// The message about an object that the identity did not find, or may not read.
    #[must_use]
    pub fn refusal(&self, missing: MissingReference<'_>) -> Refusal {
        if self.crosses {
            return crossing();
        }
        let reason = match missing {
            MissingReference::Registry | MissingReference::Certificates(_) => Reason::RegistryNotFound,
            MissingReference::Secret(_) => Reason::PushSecretNotFound,
            MissingReference::Account | MissingReference::Right(..) => Reason::RBACDenied,
        };
        Refusal::new(reason, self.message(missing))
    }

    fn message(&self, missing: MissingReference<'_>) -> String {
        match missing {
            MissingReference::Registry => format!(
                "the Registry{} does not exist in the task's namespace; the task starts by itself once it does",
                self.named.registry().map(quoted).unwrap_or_default()
            ),
            MissingReference::Secret(name) => format!(
                "the push Secret{} does not exist in the task's namespace; make it there: {SOON}",
                quoted(name)
            ),
            MissingReference::Certificates(name) => format!(
                "the ConfigMap{} with the registry's certificates, or the key in it, does not exist, or is larger than 256 KiB; correct \
                 it: {SOON}",
                quoted(name)
            ),
            MissingReference::Account => no_account(&self.identity).message,
            MissingReference::Right(what, name) => format!(
                "{} may not get the {what}{} that the task names; give it that right: {SOON}",
                self.identity.described(),
                quoted(name)
            ),
        }
    }
}

/// One answer for every reference that leaves its namespace and leads nowhere, so that no tenant learns what is there.
#[must_use]
pub fn crossing() -> Refusal {
    Refusal::new(
        Reason::CrossNamespaceRefDenied,
        "the reference to another namespace is not allowed, or what it names does not exist there; it needs a ReferenceGrant \
         there, and rights there for the task's ServiceAccount",
    )
}

/// The message about a ServiceAccount that the hub cannot act as. Without the right, the API server does not show whether the
/// account exists.
#[must_use]
pub fn no_account(identity: &ReadIdentity) -> Refusal {
    Refusal::new(
        Reason::RBACDenied,
        format!(
            "{} does not exist, or the hub may not act as it; make it, or ask the platform operator to let the hub act as it",
            identity.described()
        ),
    )
}

/// The message about a reference to another namespace without a grant, or where this hub allows none.
#[must_use]
pub fn uncrossed(tenancy: &TenancyPolicy) -> Refusal {
    if tenancy.crosses_namespaces {
        return crossing();
    }
    Refusal::new(
        Reason::CrossNamespaceRefDenied,
        "this hub lets no reference leave the task's namespace, whatever ReferenceGrants there are; make a new task that names \
         what is in its own namespace, or ask the platform operator to allow it (--no-cross-namespace-refs=false)",
    )
}

/// When a task is retried that waits for an object that the hub does not watch.
pub(super) const SOON: &str =
    "the task starts by itself, within five minutes at the latest, and at once when the task is annotated";

/// A name for a sentence, after the kind that it names.
pub(super) fn quoted(name: &str) -> String {
    format!(" \"{name}\"")
}
