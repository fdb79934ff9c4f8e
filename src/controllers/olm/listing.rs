//! One kind of one namespace as a watch shows it.

use std::collections::BTreeMap;

use kube::runtime::watcher::Event;

/// How far a watch is with its list.
#[derive(Debug)]
pub(super) struct Listing<T> {
    is_listed: bool,
    /// What came of a list that is not at its end.
    incoming: Option<BTreeMap<String, T>>,
}

impl<T> Default for Listing<T> {
    fn default() -> Self {
        Self {
            is_listed: false,
            incoming: None,
        }
    }
}

impl<T> Listing<T> {
    /// Whether all that was there was seen.
    pub fn is_listed(&self) -> bool {
        self.is_listed
    }

    /// Takes an event into what is known. `read` makes of an object its name and what is kept of it, with what was kept before.
    pub fn handle<K>(
        &mut self,
        known: &mut BTreeMap<String, T>,
        event: Event<K>,
        name: impl Fn(&K) -> Option<String>,
        read: impl Fn(K, Option<&T>) -> Option<T>,
    ) {
        match event {
            Event::Init => self.incoming = Some(BTreeMap::new()),
            Event::InitDone => {
                if let Some(all) = self.incoming.take() {
                    *known = all;
                }
                self.is_listed = true;
            }
            Event::InitApply(object) => {
                let Some(name) = name(&object) else { return };
                if let (Some(kept), Some(incoming)) = (read(object, known.get(&name)), &mut self.incoming) {
                    incoming.insert(name, kept);
                }
            }
            Event::Apply(object) => {
                let Some(name) = name(&object) else { return };
                if let Some(kept) = read(object, known.get(&name)) {
                    known.insert(name, kept);
                }
            }
            Event::Delete(object) => {
                if let Some(name) = name(&object) {
                    known.remove(&name);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_list_does_not_show_is_gone_at_its_end_and_not_before() {
        let (mut listing, mut known) = (
            Listing::default(),
            BTreeMap::from([("a", 1), ("b", 2)].map(|(n, v)| (n.to_owned(), v))),
        );
        let mut handle = |listing: &mut Listing<i32>, event: Event<(&str, i32)>| {
            listing.handle(
                &mut known,
                event,
                |(name, _)| Some((*name).to_owned()),
                |(_, value), before| Some(value.max(before.copied().unwrap_or_default())),
            );
            known.clone().into_iter().collect::<Vec<_>>()
        };
        let is = |all: &[(&str, i32)]| -> Vec<(String, i32)> {
            all.iter().map(|(n, v)| ((*n).to_owned(), *v)).collect()
        };
        assert_eq!(handle(&mut listing, Event::Init), is(&[("a", 1), ("b", 2)]));
        assert_eq!(
            handle(&mut listing, Event::InitApply(("a", 0))),
            is(&[("a", 1), ("b", 2)])
        );
        assert!(!listing.is_listed());
        assert_eq!(
            handle(&mut listing, Event::InitDone),
            is(&[("a", 1)]),
            "the newer one stays"
        );
        assert!(listing.is_listed());
        assert_eq!(
            handle(&mut listing, Event::Apply(("c", 3))),
            is(&[("a", 1), ("c", 3)])
        );
        assert_eq!(handle(&mut listing, Event::Delete(("a", 1))), is(&[("c", 3)]));
    }
}
