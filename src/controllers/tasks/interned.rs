//! One copy of each of many equal things, for as long as there is a user of it.

use std::borrow::Borrow;
use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;

/// Entries that are looked through for ones without a user, at the least.
const SLACK: usize = 64;

/// The one copy of each thing. A tenant names what it likes in each of its tasks, so an entry goes with its last user: at once
/// where that gives it back, else when the table has grown to twice what was used.
#[derive(Debug)]
pub struct Interned<T: ?Sized> {
    all: HashSet<Arc<T>>,
    /// How many entries there are when those without a user are looked for.
    sweep_at: usize,
}

impl<T: ?Sized> Default for Interned<T> {
    fn default() -> Self {
        Self {
            all: HashSet::new(),
            sweep_at: SLACK,
        }
    }
}

impl<T: ?Sized + Hash + Eq> Interned<T> {
    /// The one copy of a thing.
    pub fn intern(&mut self, thing: impl Borrow<T> + Into<Arc<T>>) -> Arc<T> {
        if let Some(known) = self.all.get(thing.borrow()) {
            return Arc::clone(known);
        }
        if self.all.len() >= self.sweep_at {
            self.all.retain(|one| Arc::strong_count(one) > 1);
            self.sweep_at = (2 * self.all.len()).max(SLACK);
            self.all.shrink_to(self.sweep_at);
        }
        let thing: Arc<T> = thing.into();
        self.all.insert(Arc::clone(&thing));
        thing
    }

    /// Takes back what a user had of it; the last one takes the entry along.
    pub fn release(&mut self, copy: Option<Arc<T>>) {
        if let Some(copy) = copy {
            self.remove_last(&copy);
        }
    }

    /// The same where the last user goes on with what it has of it.
    pub fn remove_last(&mut self, copy: &Arc<T>) {
        // The other one is the table's own.
        if Arc::strong_count(copy) <= 2 {
            self.all.remove(&**copy);
        }
    }

    /// How many things there are.
    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.all.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_things_are_one_and_go_with_their_last_user() {
        let mut names = Interned::<str>::default();
        let (a, same, other) = (names.intern("a"), names.intern("a"), names.intern("b"));
        assert!(Arc::ptr_eq(&a, &same) && names.len() == 2);
        names.release(Some(a));
        assert_eq!(names.len(), 2, "one is left");
        names.release(Some(same));
        names.release(None);
        assert_eq!(names.len(), 1);
        names.release(Some(other));
        assert_eq!(names.len(), 0);
    }

    #[test]
    fn what_no_user_gave_back_goes_before_the_table_doubles() {
        let mut names = Interned::<str>::default();
        let kept: Vec<_> = (0..100).map(|n| names.intern(format!("kept-{n}"))).collect();
        for n in 0..10_000 {
            drop(names.intern(format!("{n}")));
            assert!(names.len() <= 2 * kept.len() + SLACK, "{}", names.len());
        }
        for (n, name) in kept.iter().enumerate() {
            assert!(Arc::ptr_eq(name, &names.intern(format!("kept-{n}"))), "{name}");
        }
    }
}
