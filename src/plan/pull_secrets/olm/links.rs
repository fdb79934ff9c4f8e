//! How the `imagePullSecrets` of one ServiceAccount change. The list is atomic, so a writer of it writes the place of each entry:
//! entries of others are never among those that are named here.

use std::collections::BTreeSet;

use super::observed::ObservedAccount;

/// A change of the `imagePullSecrets` of a ServiceAccount, which holds for one version of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkChange {
    /// UID of the ServiceAccount.
    pub uid: String,
    /// Version of it that the places are from.
    pub version: u64,
    /// Whether it has no list yet.
    pub is_first: bool,
    /// Entries that go, with their places from 0, the last first.
    pub removed: Vec<(usize, String)>,
    /// Entries that come to the end.
    pub added: Vec<String>,
}

impl LinkChange {
    /// The change without the entries of these copies; `None` where nothing is left of it.
    #[must_use]
    pub fn without(&self, unwritten: &BTreeSet<&str>) -> Option<Self> {
        let mut left = self.clone();
        left.added.retain(|name| !unwritten.contains(name.as_str()));
        (!left.added.is_empty() || !left.removed.is_empty()).then_some(left)
    }
}

/// The change that gives a ServiceAccount these copies, and takes off those that may go; `None` where there is nothing to change.
#[must_use]
pub fn link_change(
    account: &ObservedAccount,
    wanted: &BTreeSet<String>,
    may_go: impl Fn(&str) -> bool,
) -> Option<LinkChange> {
    let (mut found, mut removed) = (BTreeSet::new(), Vec::new());
    for (place, copy) in &account.copies {
        let is_wanted = wanted.contains(copy);
        // The second of two equal entries says nothing that the first does not.
        if (is_wanted && !found.insert(copy)) || (!is_wanted && may_go(copy)) {
            removed.push((*place, copy.clone()));
        }
    }
    removed.reverse();
    let added: Vec<String> = wanted
        .iter()
        .filter(|copy| !found.contains(copy))
        .cloned()
        .collect();
    if removed.is_empty() && added.is_empty() {
        return None;
    }
    Some(LinkChange {
        uid: account.uid.clone(),
        version: account.version,
        is_first: account.entries == 0,
        removed,
        added,
    })
}
