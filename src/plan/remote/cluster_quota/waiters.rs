//! Who waits for a place, in the order of requests.
//!
//! Tasks can name kubeconfigs without end, so no step looks at all that wait.

use std::collections::{BTreeSet, HashMap};
use std::hash::Hash;
use std::ops::Bound;
use std::time::Instant;

/// Where a waiter stands: those with a lower number came before.
pub(super) type WaiterNumber = u64;

/// The queue of waiters.
#[derive(Debug)]
pub(super) struct QuotaWaiters<K> {
    next: WaiterNumber,
    numbers: HashMap<K, WaiterNumber>,
    waiters: HashMap<WaiterNumber, QuotaWaiter<K>>,
    /// No namespace has an empty queue.
    namespaces: HashMap<String, NamespaceWaiters>,
    /// Waiters to which no spare place is handed over before a time that is not over.
    not_due: BTreeSet<(Instant, WaiterNumber)>,
}

#[derive(Debug)]
struct QuotaWaiter<K> {
    namespace: String,
    key: K,
    not_before: Instant,
}

/// The waiters of a namespace.
#[derive(Debug, Default)]
struct NamespaceWaiters {
    all: BTreeSet<WaiterNumber>,
    /// Those to which a spare place may be handed over.
    due: BTreeSet<WaiterNumber>,
}

impl<K: Hash + Eq + Clone> QuotaWaiters<K> {
    pub(super) fn new() -> Self {
        Self {
            next: 0,
            numbers: HashMap::new(),
            waiters: HashMap::new(),
            namespaces: HashMap::new(),
            not_due: BTreeSet::new(),
        }
    }

    pub(super) fn has(&self, key: &K) -> bool {
        self.numbers.contains_key(key)
    }

    /// Adds the last waiter, to which no spare place is handed over before then.
    pub(super) fn push(&mut self, namespace: &str, key: &K, not_before: Instant) {
        let number = self.next;
        self.next += 1;
        self.numbers.insert(key.clone(), number);
        let waiter = QuotaWaiter {
            namespace: namespace.to_owned(),
            key: key.clone(),
            not_before,
        };
        self.waiters.insert(number, waiter);
        let queue = self.namespaces.entry(namespace.to_owned()).or_default();
        queue.all.insert(number);
        self.not_due.insert((not_before, number));
    }

    /// Removes a waiter, if it is one.
    pub(super) fn remove(&mut self, key: &K) {
        if let Some(number) = self.numbers.get(key).copied() {
            self.take(number);
        }
    }

    /// Removes the waiter at a number; returns its namespace and key.
    pub(super) fn take(&mut self, number: WaiterNumber) -> Option<(String, K)> {
        let waiter = self.waiters.remove(&number)?;
        self.numbers.remove(&waiter.key);
        self.not_due.remove(&(waiter.not_before, number));
        if let Some(queue) = self.namespaces.get_mut(&waiter.namespace) {
            queue.all.remove(&number);
            queue.due.remove(&number);
            if queue.all.is_empty() {
                self.namespaces.remove(&waiter.namespace);
            }
        }
        Some((waiter.namespace, waiter.key))
    }

    /// Counts those whose time has come as due.
    pub(super) fn wake(&mut self, now: Instant) {
        while let Some((not_before, number)) = self.not_due.pop_first() {
            if not_before > now {
                self.not_due.insert((not_before, number));
                return;
            }
            let waiter = self.waiters.get(&number);
            let queue = waiter.and_then(|waiter| self.namespaces.get_mut(&waiter.namespace));
            if let Some(queue) = queue {
                queue.due.insert(number);
            }
        }
    }

    /// The earliest time after `now` at which one becomes due.
    pub(super) fn next_due(&self, now: Instant) -> Option<Instant> {
        let later = (Bound::Excluded((now, WaiterNumber::MAX)), Bound::Unbounded);
        self.not_due.range(later).next().map(|(time, _)| *time)
    }

    /// The first waiter of each namespace.
    pub(super) fn first(&self) -> impl Iterator<Item = (&str, WaiterNumber)> {
        self.namespaces
            .iter()
            .filter_map(|(namespace, queue)| Some((namespace.as_str(), *queue.all.first()?)))
    }

    /// The first waiter of each namespace to which a spare place may be handed over.
    pub(super) fn first_due(&self) -> impl Iterator<Item = (&str, WaiterNumber)> {
        self.namespaces
            .iter()
            .filter_map(|(namespace, queue)| Some((namespace.as_str(), *queue.due.first()?)))
    }
}
