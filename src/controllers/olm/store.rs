//! What the watches showed, as far as a decision rests on it.

use std::collections::{BTreeMap, HashMap};

use super::decoded::{account, catalog, copy, copy_as_read, copy_named, csv, named, source, subscription};
use super::listing::Listing;
use super::watches::OlmEvent;
use crate::kubernetes::pull_secrets::ReadPullSecret;
use crate::kubernetes::watch::{CatalogEvent, DestinationEvent};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{
    NamespaceGrant, ObservedAccount, ObservedCatalog, ObservedCopy, ObservedCsv, ObservedNamespace,
    ObservedOlm, ObservedSource, ObservedSubscription, PullSecretState,
};
use crate::plan::pull_secrets::ownership::copy_name;

/// What the watches showed.
#[derive(Debug, Default)]
pub(super) struct OlmStore {
    /// What a decision rests on.
    pub observed: ObservedOlm,
    destinations: HashMap<String, Destination>,
    catalogs: HashMap<String, CatalogNamespace>,
}

/// A namespace that copies may go to.
#[derive(Debug, Default)]
struct Destination {
    /// Whether the watches said anything about it yet.
    is_known: bool,
    subscriptions: Listing<ObservedSubscription>,
    csvs: Listing<ObservedCsv>,
    accounts: Listing<ObservedAccount>,
    copies: Listing<ObservedCopy>,
    /// What is known while something is not listed yet.
    unlisted: ObservedNamespace,
}

#[derive(Debug, Default)]
struct CatalogNamespace {
    is_known: bool,
    catalogs: Listing<ObservedCatalog>,
    sources: Listing<ObservedSource>,
    known_catalogs: BTreeMap<String, ObservedCatalog>,
    known_sources: BTreeMap<String, ObservedSource>,
}

impl OlmStore {
    /// A store of these namespaces, of which nothing is known.
    pub fn new(destinations: &[String], catalogs: &[String]) -> Self {
        let mut store = Self::default();
        for name in destinations {
            store.destinations.insert(name.clone(), Destination::default());
        }
        for name in catalogs {
            store.catalogs.insert(name.clone(), CatalogNamespace::default());
            store.observed.catalog_namespaces.insert(name.clone(), false);
        }
        store
    }

    /// Whether each namespace was listed, or refused.
    pub fn is_settled(&self) -> bool {
        self.destinations.values().all(|namespace| namespace.is_known)
            && self.catalogs.values().all(|namespace| namespace.is_known)
    }

    /// Takes in what a watch shows.
    pub fn handle(&mut self, event: OlmEvent) {
        match event {
            OlmEvent::Destination(namespace, event) => self.handle_destination(&namespace, event),
            OlmEvent::Catalogs(namespace, event) => self.handle_catalogs(&namespace, event),
        }
    }

    fn handle_destination(&mut self, name: &str, event: DestinationEvent) {
        let Some(lists) = self.destinations.get_mut(name) else {
            return;
        };
        if matches!(event, DestinationEvent::Refused) {
            *lists = Destination {
                is_known: true,
                ..Destination::default()
            };
            self.observed.namespaces.remove(name);
            self.observed.unreadable.insert(name.to_owned());
            return;
        }
        let listed = self.observed.namespaces.get_mut(name);
        let is_new = listed.is_none();
        lists.handle(listed, event);
        if is_new && lists.is_listed() {
            lists.is_known = true;
            let seen = std::mem::take(&mut lists.unlisted);
            self.observed.namespaces.insert(name.to_owned(), seen);
            self.observed.unreadable.remove(name);
        }
    }

    fn handle_catalogs(&mut self, name: &str, event: CatalogEvent) {
        let Some(lists) = self.catalogs.get_mut(name) else {
            return;
        };
        match event {
            CatalogEvent::Refused => {
                *lists = CatalogNamespace {
                    is_known: true,
                    ..CatalogNamespace::default()
                };
                self.observed.catalog_namespaces.insert(name.to_owned(), false);
            }
            CatalogEvent::Catalog(event) => {
                lists
                    .catalogs
                    .handle(&mut lists.known_catalogs, event, named, |object, _| {
                        catalog(object)
                    });
            }
            CatalogEvent::Source(event) => {
                lists
                    .sources
                    .handle(&mut lists.known_sources, event, named, |object, known| {
                        source(&object, known)
                    });
            }
        }
        if lists.catalogs.is_listed() && lists.sources.is_listed() {
            lists.is_known = true;
            self.observed.catalog_namespaces.insert(name.to_owned(), true);
        }
        self.publish_catalogs(name);
    }

    /// Puts what is known of a namespace of catalogs where decisions find it.
    fn publish_catalogs(&mut self, name: &str) {
        let Some(lists) = self.catalogs.get(name) else {
            return;
        };
        let observed = &mut self.observed;
        observed.catalogs.retain(|key, _| key.namespace != name);
        observed.sources.retain(|key, _| key.namespace != name);
        for (catalog, known) in &lists.known_catalogs {
            for secret in &known.secrets {
                observed
                    .copy_names
                    .insert(copy_name(&ObjectKey::new(name, secret)));
            }
            observed
                .catalogs
                .insert(ObjectKey::new(name, catalog), known.clone());
        }
        for (secret, known) in &lists.known_sources {
            observed
                .sources
                .insert(ObjectKey::new(name, secret), known.clone());
        }
    }

    /// The Secrets that catalogs name and that were not read in their version, and the copies.
    pub fn unread(&self) -> Vec<ObjectKey> {
        let named = self.observed.catalogs.iter().flat_map(|(key, catalog)| {
            catalog
                .secrets
                .iter()
                .map(|secret| ObjectKey::new(&key.namespace, secret))
        });
        let is_unread = |key: &ObjectKey| {
            let source = self.observed.sources.get(key);
            source.is_some_and(|source| source.state == PullSecretState::Unread)
        };
        let mut all: Vec<ObjectKey> = named.filter(is_unread).collect();
        for (namespace, seen) in &self.observed.namespaces {
            let unread = seen
                .copies
                .iter()
                .filter(|(_, copy)| copy.marks.is_some() && copy.content.is_none());
            all.extend(unread.map(|(name, _)| ObjectKey::new(namespace, name)));
        }
        all.sort();
        all.dedup();
        all
    }

    /// Secrets of others that have the name of a copy: no watch shows them.
    pub fn foreign(&self) -> Vec<ObjectKey> {
        let all = self.observed.namespaces.iter().flat_map(|(namespace, seen)| {
            let foreign = seen.copies.iter().filter(|(_, copy)| copy.marks.is_none());
            foreign.map(move |(name, _)| ObjectKey::new(namespace, name))
        });
        all.collect()
    }

    /// Namespaces that were made again since they were recorded.
    pub fn recreated(&self) -> Vec<String> {
        let all = self.observed.namespaces.iter();
        let recreated = all.filter(|(_, seen)| seen.grant == NamespaceGrant::Recreated);
        recreated.map(|(name, _)| name.clone()).collect()
    }

    /// Takes in a Secret as it was read.
    pub fn take_read(&mut self, key: &ObjectKey, read: &ReadPullSecret) {
        let lists = self.catalogs.get_mut(&key.namespace);
        if let Some(source) = lists.and_then(|lists| lists.known_sources.get_mut(&key.name))
            && source.version <= read.version
        {
            *source = ObservedSource {
                uid: read.uid.clone(),
                version: read.version,
                state: read.state.clone(),
            };
            self.publish_catalogs(&key.namespace);
        }
        let seen = self.observed.namespaces.get_mut(&key.namespace);
        if let Some(copy) = seen.and_then(|seen| seen.copies.get_mut(&key.name))
            && copy.version <= read.version
        {
            *copy = copy_as_read(read);
        }
    }

    /// Takes in a copy as a worker left it; one that a watch showed later stays.
    pub fn take_copy(&mut self, key: &ObjectKey, copy: ObservedCopy) {
        let Some(seen) = self.observed.namespaces.get_mut(&key.namespace) else {
            return;
        };
        let known = seen.copies.get(&key.name);
        if known.is_none_or(|known| known.version <= copy.version) {
            seen.copies.insert(key.name.clone(), copy);
        }
    }

    /// Takes in a ServiceAccount as a worker left it.
    pub fn take_account(&mut self, key: &ObjectKey, account: ObservedAccount) {
        let Some(seen) = self.observed.namespaces.get_mut(&key.namespace) else {
            return;
        };
        // One that is not known any more was deleted.
        if let Some(known) = seen.accounts.get_mut(&key.name)
            && known.version < account.version
        {
            *known = account;
        }
    }

    /// Takes out a copy that was deleted, or is not there any more.
    pub fn drop_copy(&mut self, key: &ObjectKey, uid: Option<&str>) {
        if let Some(seen) = self.observed.namespaces.get_mut(&key.namespace) {
            let is_it = |copy: &ObservedCopy| uid.is_none_or(|uid| copy.uid == uid);
            if seen.copies.get(&key.name).is_some_and(is_it) {
                seen.copies.remove(&key.name);
            }
        }
    }

    /// Says whether the API server refuses what is to be written in a namespace; whether that is new.
    pub fn set_refused(&mut self, namespace: &str, is_refused: bool) -> bool {
        let seen = self.observed.namespaces.get_mut(namespace);
        seen.is_some_and(|seen| std::mem::replace(&mut seen.is_refused, is_refused) != is_refused)
    }

    /// Namespaces in which the API server refuses what is to be written.
    pub fn refused(&self) -> Vec<String> {
        let all = self.observed.namespaces.iter();
        let refused = all.filter(|(_, seen)| seen.is_refused);
        refused.map(|(name, _)| name.clone()).collect()
    }

    /// Says whether a namespace is the one that was recorded.
    pub fn set_grant(&mut self, namespace: &str, grant: NamespaceGrant) {
        if let Some(seen) = self.observed.namespaces.get_mut(namespace) {
            seen.grant = grant;
        }
    }
}

impl Destination {
    fn is_listed(&self) -> bool {
        self.subscriptions.is_listed()
            && self.csvs.is_listed()
            && self.accounts.is_listed()
            && self.copies.is_listed()
    }

    fn handle(&mut self, listed: Option<&mut ObservedNamespace>, event: DestinationEvent) {
        let seen = listed.unwrap_or(&mut self.unlisted);
        match event {
            DestinationEvent::Subscription(event) => {
                self.subscriptions
                    .handle(&mut seen.subscriptions, event, named, |object, _| {
                        subscription(object)
                    });
            }
            DestinationEvent::Csv(event) => {
                self.csvs
                    .handle(&mut seen.csvs, event, named, |object, _| csv(object));
            }
            DestinationEvent::Account(event) => {
                self.accounts
                    .handle(&mut seen.accounts, event, named, |object, known| {
                        account(&object, known)
                    });
            }
            DestinationEvent::Copy(event) => {
                self.copies
                    .handle(&mut seen.copies, event, copy_named, |object, known| {
                        copy(&object, known)
                    });
            }
            DestinationEvent::Refused => {}
        }
    }
}
