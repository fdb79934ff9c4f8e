//! Mark and sweep of watch lists: an object that the list of its scope does not show is gone once that list ends.
//!
//! [`ShownKeys`] keeps the marks beside any map, and only until the list ends. A record of which there are tens of thousands has room
//! for a mark of its own, a [`RelistMark`], which takes less memory than its key in a set.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::hash::Hash;

/// The keys that each list under way has shown so far; a scope is what one watch covers.
#[derive(Clone, Debug)]
pub struct ShownKeys<S, K>(HashMap<S, HashSet<K>>);

impl<S, K> Default for ShownKeys<S, K> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<S: Hash + Eq, K: Hash + Ord + Clone> ShownKeys<S, K> {
    /// A new list of the scope begins; what an unfinished one has shown counts no more.
    pub fn begin(&mut self, scope: S) {
        self.0.insert(scope, HashSet::new());
    }

    /// A list or an event shows an object of the scope.
    pub fn add<Q: ToOwned<Owned = K> + ?Sized>(&mut self, scope: &S, key: &Q) {
        if let Some(shown) = self.0.get_mut(scope) {
            shown.insert(key.to_owned());
        }
    }

    /// The list of the scope ended: whether an object of the scope is gone.
    pub fn finish(&mut self, scope: &S) -> impl Fn(&K) -> bool + use<S, K> {
        let shown = self.0.remove(scope);
        move |key| shown.as_ref().is_some_and(|shown| !shown.contains(key))
    }

    /// The list of the scope ended: removes the objects of the scope that are gone, and returns their keys.
    pub fn sweep<V>(
        &mut self,
        scope: &S,
        known: &mut BTreeMap<K, V>,
        is_covered: impl Fn(&K) -> bool,
    ) -> Vec<K> {
        let is_gone = self.finish(scope);
        let gone = known.keys().filter(|key| is_covered(key) && is_gone(key));
        let gone: Vec<K> = gone.cloned().collect();
        for key in &gone {
            known.remove(key);
        }
        gone
    }
}

/// The number of the list that showed an object last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RelistMark(u32);

/// The number of the current list of each scope; a scope is what one watch covers.
#[derive(Clone, Debug)]
pub struct Relists<S> {
    lists: HashMap<S, RelistMark>,
    /// The newest list of all, so that no mark is given twice, not even to a scope that was forgotten.
    newest: RelistMark,
}

impl<S> Default for Relists<S> {
    fn default() -> Self {
        Self {
            lists: HashMap::new(),
            newest: RelistMark::default(),
        }
    }
}

impl<S: Hash + Eq> Relists<S> {
    /// A new list of the scope begins: the marks of its objects are stale until the list shows them.
    pub fn begin(&mut self, scope: S) {
        self.newest = RelistMark(self.newest.0.wrapping_add(1));
        self.lists.insert(scope, self.newest);
    }

    /// The mark of an object of the scope that a list or an event shows now.
    #[must_use]
    pub fn mark(&self, scope: &S) -> RelistMark {
        self.lists.get(scope).copied().unwrap_or_default()
    }

    /// Forgets a scope that is watched no more.
    pub fn forget(&mut self, scope: &S) {
        self.lists.remove(scope);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a watch of one of two scopes shows of one of eight objects; those with even numbers are in the first scope.
    #[derive(Clone, Copy, Debug)]
    enum Shown {
        Begin(usize),
        Seen(usize, u8),
        Gone(usize),
        Finish(usize),
    }

    fn shown() -> impl Strategy<Value = Shown> {
        prop_oneof![
            2 => (0..2usize).prop_map(Shown::Begin),
            6 => (0..8usize, any::<u8>()).prop_map(|(key, value)| Shown::Seen(key, value)),
            2 => (0..8usize).prop_map(Shown::Gone),
            2 => (0..2usize).prop_map(Shown::Finish),
        ]
    }

    /// Objects of which each list builds a map of its own, which takes the place of the one before once the list ends.
    #[derive(Default)]
    struct Rebuilt {
        known: [BTreeMap<usize, u8>; 2],
        incoming: [Option<BTreeMap<usize, u8>>; 2],
    }

    impl Rebuilt {
        fn take(&mut self, event: Shown) {
            match event {
                Shown::Begin(scope) => self.incoming[scope] = Some(BTreeMap::new()),
                Shown::Seen(key, value) => self.maps(key % 2).for_each(|map| _ = map.insert(key, value)),
                Shown::Gone(key) => self.maps(key % 2).for_each(|map| _ = map.remove(&key)),
                Shown::Finish(scope) => {
                    if let Some(all) = self.incoming[scope].take() {
                        self.known[scope] = all;
                    }
                }
            }
        }

        fn maps(&mut self, scope: usize) -> impl Iterator<Item = &mut BTreeMap<usize, u8>> {
            std::iter::once(&mut self.known[scope]).chain(&mut self.incoming[scope])
        }

        fn all(&self) -> BTreeMap<usize, u8> {
            self.known
                .iter()
                .flatten()
                .map(|(key, value)| (*key, *value))
                .collect()
        }
    }

    proptest! {
        #[test]
        fn the_objects_are_those_of_a_map_that_each_list_builds_anew(events in vec(shown(), 0..60)) {
            let (mut rebuilt, mut known, mut lists) = (Rebuilt::default(), BTreeMap::new(), ShownKeys::default());
            for event in events {
                let before = rebuilt.all();
                rebuilt.take(event);
                match event {
                    Shown::Begin(scope) => lists.begin(scope),
                    Shown::Seen(key, value) => {
                        lists.add(&(key % 2), &key);
                        known.insert(key, value);
                    }
                    Shown::Gone(key) => _ = known.remove(&key),
                    Shown::Finish(scope) => {
                        let gone = lists.sweep(&scope, &mut known, |key| key % 2 == scope);
                        let left = rebuilt.all();
                        let lost: Vec<usize> =
                            before.into_keys().filter(|key| !left.contains_key(key)).collect();
                        prop_assert_eq!(gone, lost);
                    }
                }
                prop_assert_eq!(&known, &rebuilt.all());
            }
        }
    }

    #[test]
    fn only_a_list_that_began_says_that_something_is_gone() {
        let mut lists: ShownKeys<&str, String> = ShownKeys::default();
        lists.add(&"a", "before");
        assert!(!lists.finish(&"a")(&"other".to_owned()));
        lists.begin("a");
        lists.add(&"a", "shown");
        lists.add(&"b", "of another");
        let is_gone = lists.finish(&"a");
        let cases = [("shown", false), ("before", true), ("of another", true)];
        for (key, expected) in cases {
            assert_eq!(is_gone(&key.to_owned()), expected, "{key}");
        }
        assert!(lists.0.is_empty(), "nothing is kept of a list that ended");
    }

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

    #[test]
    fn what_a_scope_showed_before_it_was_forgotten_is_stale_in_its_next_list() {
        let mut lists = Relists::default();
        lists.begin("a");
        let before = lists.mark(&"a");
        lists.forget(&"a");
        lists.begin("a");
        assert_ne!(lists.mark(&"a"), before);
    }
}
