//! What the watches know.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::jiff::Timestamp;

use super::content::{PullSecretContent, SourceFault};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::ownership::{CopyMarks, is_copy_name};

/// How much is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PullSecretLimits {
    /// Namespaces with a copy of one source.
    pub destinations: usize,
    /// Subscriptions of one namespace.
    pub subscriptions: usize,
    /// Pull secrets of one `CatalogSource`.
    pub secrets: usize,
}

impl PullSecretLimits {
    /// The bounds with this many namespaces for one source.
    #[must_use]
    pub const fn with_destinations(destinations: usize) -> Self {
        Self {
            destinations,
            subscriptions: 64,
            // People name one or two.
            secrets: 16,
        }
    }
}

/// All that the watches know.
#[derive(Clone, Debug, Default)]
pub struct ObservedOlm {
    /// The namespaces that catalogs may be in; true where its catalogs and Secrets were listed.
    pub catalog_namespaces: BTreeMap<String, bool>,
    /// The catalogs there.
    pub catalogs: BTreeMap<ObjectKey, ObservedCatalog>,
    /// The Secrets there, those that no catalog names included.
    pub sources: BTreeMap<ObjectKey, ObservedSource>,
    /// The namespaces that copies may go to, as far as they were listed.
    pub namespaces: BTreeMap<String, ObservedNamespace>,
    /// Namespaces that copies may go to and that are not there, or that the program may not read.
    pub unreadable: BTreeSet<String>,
    /// Names of copies of Secrets of the catalog namespaces that were there, or named, at some time.
    pub copy_names: BTreeSet<String>,
}

/// A `CatalogSource`.
#[derive(Clone, Debug)]
pub struct ObservedCatalog {
    /// Its UID.
    pub uid: String,
    /// Names of pull secrets, as it lists them.
    pub secrets: Vec<String>,
}

/// A Secret in a namespace of catalogs.
#[derive(Clone, Debug)]
pub struct ObservedSource {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// What is in it.
    pub state: PullSecretState,
}

/// What is known of the content of a Secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PullSecretState {
    /// It was not read in this version.
    Unread,
    /// It can be copied.
    Usable(PullSecretContent),
    /// It cannot.
    Faulty(SourceFault),
}

/// Whether a namespace is the one that was listed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum NamespaceGrant {
    /// It is, as far as is known: before a copy is made there the namespace is read.
    #[default]
    Granted,
    /// It was deleted and made again since.
    Recreated,
}

/// A namespace that copies may go to.
#[derive(Clone, Debug, Default)]
pub struct ObservedNamespace {
    /// Whether it is the one that was listed.
    pub grant: NamespaceGrant,
    /// Whether the API server refuses what is to be written there.
    pub is_refused: bool,
    /// Subscriptions by name.
    pub subscriptions: BTreeMap<String, ObservedSubscription>,
    /// `ClusterServiceVersions` by name.
    pub csvs: BTreeMap<String, ObservedCsv>,
    /// `ServiceAccounts` by name.
    pub accounts: BTreeMap<String, ObservedAccount>,
    /// Secrets with the name of a copy, by name: whosever they are.
    pub copies: BTreeMap<String, ObservedCopy>,
    /// Pods that wait for an image, by name.
    pub pods: BTreeMap<String, ObservedPod>,
}

/// A `Subscription`.
#[derive(Clone, Debug)]
pub struct ObservedSubscription {
    /// Its UID.
    pub uid: String,
    /// The `CatalogSource` that it names.
    pub catalog: ObjectKey,
    /// Names of the `ClusterServiceVersions` that OLM says it has.
    pub csvs: BTreeSet<String>,
}

/// A `ClusterServiceVersion`.
#[derive(Clone, Debug)]
pub struct ObservedCsv {
    /// Its UID.
    pub uid: String,
    /// Whether it is the copy of one of another namespace.
    pub is_copied: bool,
    /// The ServiceAccount of each of its Deployments, by the name of the Deployment.
    pub deployments: BTreeMap<String, String>,
}

/// A ServiceAccount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ObservedAccount {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// How many entries its `imagePullSecrets` has.
    pub entries: usize,
    /// Those of them that have the name of a copy, by their place from 0.
    pub copies: BTreeMap<usize, String>,
    /// When this program changed it last, by the clock of the API server.
    pub linked_at: Option<Timestamp>,
}

/// Entries of a ServiceAccount's `imagePullSecrets`; a kubelet tries each for every image.
const MAX_ENTRIES: usize = 1_024;

impl ObservedAccount {
    /// What is known of a ServiceAccount of which this manager may have written the list; `None` of one whose list is too long.
    #[must_use]
    pub fn of(account: &ServiceAccount, manager: &str) -> Option<Self> {
        let meta = &account.metadata;
        let list = account.image_pull_secrets.as_deref().unwrap_or_default();
        if list.len() > MAX_ENTRIES {
            return None;
        }
        let named = list
            .iter()
            .enumerate()
            .filter(|(_, secret)| is_copy_name(&secret.name));
        let mut managers = meta.managed_fields.iter().flatten();
        let written = managers.find(|entry| entry.manager.as_deref() == Some(manager));
        Some(Self {
            uid: meta.uid.clone()?,
            version: meta.resource_version.as_ref()?.parse().ok()?,
            entries: list.len(),
            copies: named
                .map(|(place, secret)| (place, secret.name.clone()))
                .collect(),
            linked_at: written.and_then(|entry| Some(entry.time.as_ref()?.0)),
        })
    }
}

/// A Secret with the name of a copy.
#[derive(Clone, Debug)]
pub struct ObservedCopy {
    /// Its UID.
    pub uid: String,
    /// Its resource version.
    pub version: u64,
    /// What it says of itself; `None` where it is not ours.
    pub marks: Option<CopyMarks>,
    /// What is in it; `None` where it was not read in this version.
    pub content: Option<PullSecretContent>,
}

/// A pod that waits for an image.
#[derive(Clone, Debug)]
pub struct ObservedPod {
    /// Its UID.
    pub uid: String,
    /// When it was made.
    pub created: Option<Timestamp>,
    /// Its ServiceAccount.
    pub account: String,
    /// Name and UID of the `ReplicaSet` that owns it.
    pub replica_set: (String, String),
    /// The copies that it may pull with.
    pub copies: BTreeSet<String>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Holds: F6.
    #[test]
    fn an_account_of_too_many_entries_is_left_alone() {
        for (count, is_known) in [(MAX_ENTRIES, true), (MAX_ENTRIES + 1, false)] {
            let entry = json!({"name": "olm-pull-a-0123456789abcdef"});
            let account = json!({
                "metadata": {"name": "operator", "uid": "u", "resourceVersion": "1"}, "imagePullSecrets": vec![entry; count],
            });
            let account: ServiceAccount = serde_json::from_value(account).unwrap();
            let known = ObservedAccount::of(&account, "manager");
            assert_eq!(known.map(|known| known.copies.len()), is_known.then_some(count));
        }
    }
}
