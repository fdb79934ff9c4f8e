//! What differs between what should be there and what is there.

use std::collections::{BTreeMap, BTreeSet};

use super::links::{LinkChange, link_change};
use super::observed::{NamespaceGrant, ObservedCopy, ObservedNamespace, ObservedOlm};
use super::wanted::{PullSecretPlan, WantedCopy};
use crate::plan::pipeline::object::ObjectKey;

/// A copy to make, or to change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyWrite {
    /// Its name.
    pub name: String,
    /// What it should be.
    pub wanted: WantedCopy,
    /// UID of the copy that is there; `None` where there is none.
    pub existing: Option<String>,
    /// Whether that one has to go first, because the type of a Secret cannot be changed.
    pub replaces: bool,
}

/// A copy to delete.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyDeletion {
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
}

/// What is to be written in one namespace, in this order: copies, links, deletions.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceChanges {
    /// Copies to make or change.
    pub copies: Vec<CopyWrite>,
    /// `ServiceAccounts` to change, by name.
    pub links: Vec<(String, LinkChange)>,
    /// Copies to delete.
    pub deletions: Vec<CopyDeletion>,
}

impl NamespaceChanges {
    fn is_empty(&self) -> bool {
        self.copies.is_empty() && self.links.is_empty() && self.deletions.is_empty()
    }
}

/// What is to be written, by namespace; namespaces where there is nothing to write are left out.
#[must_use]
pub fn changes(observed: &ObservedOlm, plan: &PullSecretPlan) -> BTreeMap<String, NamespaceChanges> {
    let mut all = BTreeMap::new();
    for (namespace, seen) in &observed.namespaces {
        if seen.grant == NamespaceGrant::Recreated {
            continue;
        }
        let here = Here {
            observed,
            plan,
            namespace,
            seen,
        };
        let changes = NamespaceChanges {
            copies: here.copies(),
            links: here.links(),
            deletions: here.deletions(),
        };
        if !changes.is_empty() {
            all.insert(namespace.clone(), changes);
        }
    }
    all
}

struct Here<'a> {
    observed: &'a ObservedOlm,
    plan: &'a PullSecretPlan,
    namespace: &'a String,
    seen: &'a ObservedNamespace,
}

impl Here<'_> {
    fn key(&self, name: &str) -> ObjectKey {
        ObjectKey::new(self.namespace, name)
    }

    fn copies(&self) -> Vec<CopyWrite> {
        let first = self.key("");
        let wanted = self.plan.copies.range(first..);
        let wanted = wanted.take_while(|(key, _)| key.namespace == *self.namespace);
        wanted
            .filter_map(|(key, wanted)| write(&key.name, wanted, self.seen.copies.get(&key.name)))
            .collect()
    }

    /// The change of each ServiceAccount that lacks an entry that it should have, or has one of this program's that it should not.
    fn links(&self) -> Vec<(String, LinkChange)> {
        let nothing = BTreeSet::new();
        let mut all = Vec::new();
        for (name, account) in &self.seen.accounts {
            let wanted = self.plan.links.get(&self.key(name)).unwrap_or(&nothing);
            let change = link_change(account, wanted, |copy| self.may_unlink(copy));
            all.extend(change.map(|change| (name.clone(), change)));
        }
        all
    }

    /// Whether an entry with this name may be taken off: it leads to a copy of a Secret of the catalogs that this program looks after,
    /// and not to a copy that another one made.
    fn may_unlink(&self, copy: &str) -> bool {
        let key = self.key(copy);
        if self.plan.held_links.contains(&key) {
            return false;
        }
        let is_ours = self.seen.copies.get(copy).and_then(|there| self.is_known(there));
        is_ours.unwrap_or_else(|| self.observed.copy_names.contains(copy))
    }

    /// Whether a copy is of a catalog namespace that is known; `None` where it is no copy of this program's.
    fn is_known(&self, copy: &ObservedCopy) -> Option<bool> {
        let marks = copy.marks.as_ref()?;
        let namespaces = &self.observed.catalog_namespaces;
        Some(namespaces.get(&marks.source.namespace).copied().unwrap_or(false))
    }

    fn deletions(&self) -> Vec<CopyDeletion> {
        let is_over = |(name, copy): &(&String, &ObservedCopy)| {
            let key = self.key(name);
            let stays = self.plan.copies.contains_key(&key) || self.plan.held.contains(&key);
            !stays && !self.plan.held_links.contains(&key) && self.is_known(copy) == Some(true)
        };
        let over = self.seen.copies.iter().filter(is_over);
        over.map(|(name, copy)| CopyDeletion {
            name: name.clone(),
            uid: copy.uid.clone(),
        })
        .collect()
    }
}

/// What makes the copy what it should be; `None` where it is, and where it was not read yet.
fn write(name: &str, wanted: &WantedCopy, there: Option<&ObservedCopy>) -> Option<CopyWrite> {
    let write = |wanted: WantedCopy, existing: Option<String>, replaces| CopyWrite {
        name: name.to_owned(),
        wanted,
        existing,
        replaces,
    };
    let Some(there) = there else {
        return Some(write(wanted.clone(), None, false));
    };
    let (marks, content) = (there.marks.as_ref()?, there.content.as_ref()?);
    let is_same = *content == wanted.content
        && marks.source_uid == wanted.marks.source_uid
        && wanted.marks.users.is_subset(&marks.users);
    if is_same {
        return None;
    }
    let mut wanted = wanted.clone();
    if wanted.marks.users.is_empty() {
        wanted.marks.users.clone_from(&marks.users);
    }
    let replaces = content.kind != wanted.content.kind;
    Some(write(wanted, Some(there.uid.clone()), replaces))
}
