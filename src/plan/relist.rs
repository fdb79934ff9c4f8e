//! Mark and sweep of watch lists: an object that the list of its scope does not show is gone once that list ends.

use std::collections::HashMap;
use std::hash::Hash;

/// The number of the list that showed an object last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelistMark(u32);

/// The number of the current list of each scope; a scope is what one watch covers.
#[derive(Clone, Debug)]
pub struct Relists<S>(HashMap<S, RelistMark>);

impl<S> Default for Relists<S> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<S: Hash + Eq> Relists<S> {
    /// A new list of the scope begins: the marks of its objects are stale until the list shows them.
    pub fn begin(&mut self, scope: S) {
        let mark = self.0.entry(scope).or_default();
        *mark = RelistMark(mark.0.wrapping_add(1));
    }

    /// The mark of an object of the scope that a list or an event shows now.
    #[must_use]
    pub fn mark(&self, scope: &S) -> RelistMark {
        self.0.get(scope).copied().unwrap_or_default()
    }

    /// Forgets a scope of which no object is left.
    pub fn forget(&mut self, scope: &S) {
        self.0.remove(scope);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_makes_the_marks_of_its_scope_stale_and_of_no_other() {
        let mut lists = Relists::default();
        let (a, b) = (lists.mark(&"a"), lists.mark(&"b"));
        lists.begin("a");
        assert!(lists.mark(&"a") != a && lists.mark(&"b") == b);
        lists.begin("b");
        lists.forget(&"b");
        assert_eq!(lists.mark(&"b"), b);
    }
}
