//! What a hub serves, and what two of them have in common.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest, Sha256};

use crate::api::labels::{WATCH_NAMESPACES, WATCH_NAMESPACES_SHA256};
use crate::api::names::hex;

/// Most namespaces that are written down; a list of them must fit an annotation.
pub(super) const MAX_LISTED: usize = 1000;

/// The namespaces that a hub serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NamespaceScope {
    /// All there are.
    All,
    /// These.
    Only {
        /// Their names; of a long list, the first.
        names: BTreeSet<String>,
        /// SHA-256 of all names, sorted and joined by commas, in hex.
        digest: String,
    },
}

/// What two hubs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScopeOverlap {
    /// One of them serves all namespaces.
    Everything,
    /// These namespaces.
    Names(Vec<String>),
    /// Unknown, because a list is too long to be recorded.
    Unknown,
}

impl NamespaceScope {
    /// The set of these; none is all.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        if names.is_empty() {
            return Self::All;
        }
        let digest = digest(&names);
        Self::Only { names, digest }
    }

    /// The names that it lists.
    pub fn names(&self) -> impl Iterator<Item = &String> {
        let names = match self {
            Self::All => None,
            Self::Only { names, .. } => Some(names),
        };
        names.into_iter().flatten()
    }

    /// Whether a namespace is in it, or may be, because the list is too long to be written down.
    #[must_use]
    pub fn may_hold(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only { names, digest } => names.contains(namespace) || !Self::is_whole(names, digest),
        }
    }

    fn is_whole(names: &BTreeSet<String>, digest: &str) -> bool {
        self::digest(names) == digest
    }

    /// What two sets have in common; `None` where nothing.
    #[must_use]
    pub fn meets(&self, other: &Self) -> Option<ScopeOverlap> {
        let (
            Self::Only {
                names: a,
                digest: of_a,
            },
            Self::Only {
                names: b,
                digest: of_b,
            },
        ) = (self, other)
        else {
            return Some(ScopeOverlap::Everything);
        };
        let common: Vec<String> = a.intersection(b).cloned().collect();
        if !common.is_empty() {
            return Some(ScopeOverlap::Names(common));
        }
        let is_known = Self::is_whole(a, of_a) && Self::is_whole(b, of_b);
        (!is_known).then_some(ScopeOverlap::Unknown)
    }

    pub(super) fn annotations(&self) -> [(String, String); 2] {
        let (list, digest) = match self {
            Self::All => (String::new(), String::new()),
            Self::Only { names, digest } => {
                let listed: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
                (listed.join(","), digest.clone())
            }
        };
        [
            (WATCH_NAMESPACES.to_owned(), list),
            (WATCH_NAMESPACES_SHA256.to_owned(), digest),
        ]
    }

    /// The scope in a record; an empty one means all namespaces.
    pub(super) fn of(annotations: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        let names: BTreeSet<String> = value(WATCH_NAMESPACES)
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            return Self::All;
        }
        let digest = value(WATCH_NAMESPACES_SHA256).to_owned();
        Self::Only { names, digest }
    }
}

fn digest(names: &BTreeSet<String>) -> String {
    let joined = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    hex(&Sha256::digest(joined.as_bytes()))
}
