//! Which namespaces fall to which of several instances of one hub.
//!
//! Rendezvous hashing: each shard has a weight for each namespace, and the heaviest of those that are there gets it. Who comes
//! takes an even share from everybody, and who goes leaves what he had evenly to the others; nothing else moves.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

pub mod member;
pub mod records;

/// The number of a shard, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Shard(pub u16);

/// The shards among which somebody divides the namespaces.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct View(pub BTreeSet<Shard>);

impl View {
    /// Whose the namespace is; nobody's where there is no shard. The platform's own tasks count as the namespace without a
    /// name.
    #[must_use]
    pub fn owner(&self, namespace: &str) -> Option<Shard> {
        let weight = |shard: &Shard| -> [u8; 32] {
            let digest = Sha256::new_with_prefix(shard.0.to_be_bytes());
            digest.chain_update(namespace.as_bytes()).finalize().into()
        };
        self.0.iter().copied().max_by_key(|shard| weight(shard))
    }
}

/// What an instance may work on now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Owned {
    /// Everything that it watches: nobody else is there.
    All,
    /// What falls to it, as far as nobody else still has it.
    Part {
        /// Which shard it is.
        own: Shard,
        /// Among whom it divides, as it has written down.
        view: View,
        /// What the others have written down.
        others: Vec<(Shard, View)>,
    },
}

impl Owned {
    /// Whether tasks of this namespace may be worked on; of the platform's own tasks it is empty.
    #[must_use]
    pub fn owns(&self, namespace: &str) -> bool {
        match self {
            Self::All => true,
            Self::Part { own, view, others } => {
                let is_others = |(shard, view): &(Shard, View)| view.owner(namespace) == Some(*shard);
                view.owner(namespace) == Some(*own) && !others.iter().any(is_others)
            }
        }
    }

    /// How many instances there are, this one included.
    #[must_use]
    pub fn members(&self) -> usize {
        match self {
            Self::All => 1,
            Self::Part { view, .. } => view.0.len().max(1),
        }
    }
}

#[cfg(test)]
mod tests;
