//! Parts that many objects have in common are kept once: the Targets of a fleet have the same Releases.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

use crate::api::pipeline::{HydratedRelease, TargetRelease};

/// Parts of a kind that are known before those that no object has any more are looked for.
const FEW: usize = 1024;

/// The parts that objects have.
#[derive(Debug, Default)]
pub struct SharedParts {
    /// The releases of versions.
    pub(super) hydrated: Parts<HydratedRelease>,
    /// The releases of the statuses of Targets.
    pub(super) listed: Parts<TargetRelease>,
}

/// Parts of one kind. Those that no object has any more are at most as many as the others.
#[derive(Debug)]
pub(super) struct Parts<T> {
    known: HashSet<Arc<T>>,
    /// With so many, those that no object has any more go.
    limit: usize,
}

impl<T> Default for Parts<T> {
    fn default() -> Self {
        Self {
            known: HashSet::new(),
            limit: FEW,
        }
    }
}

impl<T: Eq + Hash> Parts<T> {
    /// Lets this part be the one that is known.
    pub(super) fn share(&mut self, part: &mut Arc<T>) {
        if let Some(known) = self.known.get(part) {
            *part = Arc::clone(known);
            return;
        }
        if self.known.len() >= self.limit {
            self.known.retain(|part| Arc::strong_count(part) > 1);
            self.limit = FEW.max(2 * self.known.len());
        }
        self.known.insert(Arc::clone(part));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_alike_is_kept_once_and_what_no_object_has_any_more_goes() {
        let mut parts = Parts::default();
        let (mut one, mut other) = (Arc::new("shop".to_owned()), Arc::new("shop".to_owned()));
        parts.share(&mut one);
        parts.share(&mut other);
        assert!(Arc::ptr_eq(&one, &other) && parts.known.len() == 1);
        for number in 0..10 * FEW {
            parts.share(&mut Arc::new(number.to_string()));
            assert!(parts.known.len() <= FEW);
        }
        assert!(parts.known.contains(&one));
        // As many as objects have are kept.
        let mut all: Vec<_> = (0..3 * FEW)
            .map(|number| Arc::new(format!("of {number}")))
            .collect();
        for part in &mut all {
            parts.share(part);
        }
        assert!(all.iter().all(|part| parts.known.contains(part)));
    }
}
