//! What tasks may use besides what is theirs: the catalog of the platform, and what tenants allow in their namespaces.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::kubernetes::watch::{ObservedGrant, WatchChange};
use crate::plan::platform::catalog::Catalog;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;

use super::super::reconciler::PlatformView;
use super::cache_sync::SyncSource;
use crate::controllers::platform::PublishedCatalog;

/// Time in which changes of tenants' registries and grants are gathered.
const SETTLE: Duration = Duration::from_millis(500);

/// The catalog, the grants, and the namespaces in which something of a tenant changed.
pub(super) struct PlatformOffers {
    pub(super) published: watch::Receiver<PublishedCatalog>,
    /// References that namespaces allow.
    grants: Arc<ReferenceGrantIndex>,
    /// Namespaces in which a tenant changed an object that tasks may wait for, and when those tasks are requeued.
    dirty: HashSet<String>,
    pub(super) due: Option<Instant>,
}

impl PlatformOffers {
    /// What is published here, and no grant yet.
    pub(super) fn new(published: watch::Receiver<PublishedCatalog>) -> Self {
        Self {
            published,
            grants: Arc::default(),
            dirty: HashSet::new(),
            due: None,
        }
    }

    /// The catalog as it was published last.
    pub(super) fn catalog(&self) -> Arc<Catalog> {
        self.published.borrow().clone().unwrap_or_default()
    }

    /// What a reconcile that begins now reads.
    pub(super) fn view(&self) -> PlatformView {
        PlatformView {
            catalog: self.catalog(),
            grants: Arc::clone(&self.grants),
        }
    }

    /// Takes in a change of a grant; returns the source that was seen whole with it.
    pub(super) fn handle_grant_event(
        &mut self,
        scope: Option<Arc<str>>,
        change: WatchChange<ObservedGrant, ObservedGrant>,
    ) -> Option<SyncSource> {
        let grants = Arc::make_mut(&mut self.grants);
        match change {
            WatchChange::Restart => grants.begin_list(scope),
            WatchChange::Seen(grant) => {
                grants.put(&scope, &grant.namespace, &grant.uid, grant.spec);
                self.mark_dirty(grant.namespace);
            }
            WatchChange::Gone(grant) => {
                grants.remove(&grant.namespace, &grant.uid);
                self.mark_dirty(grant.namespace);
            }
            WatchChange::Synced => {
                for namespace in grants.end_list(&scope) {
                    self.mark_dirty(namespace);
                }
                return Some(SyncSource::Grants(scope));
            }
        }
        None
    }

    /// Something of a tenant changed in this namespace. Tasks that wait for it look again soon, and not each time: a tenant
    /// that changes things without end keeps only its own tasks busy, and those within measure.
    pub(super) fn mark_dirty(&mut self, namespace: String) {
        if self.dirty.is_empty() {
            self.due = Some(Instant::now() + SETTLE);
        }
        self.dirty.insert(namespace);
    }

    /// The namespaces in which something changed, once that is due.
    pub(super) fn take_dirty(&mut self, now: Instant) -> Option<HashSet<String>> {
        self.due.take_if(|due| *due <= now)?;
        Some(std::mem::take(&mut self.dirty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_of_tenants_are_gathered_from_the_first_on() {
        let mut offers = PlatformOffers::new(watch::channel(None).1);
        offers.mark_dirty("a".to_owned());
        let due = offers.due.unwrap();
        offers.mark_dirty("b".to_owned());
        offers.mark_dirty("a".to_owned());
        assert_eq!(offers.due, Some(due), "the first one counts");
        assert_eq!(offers.take_dirty(due.checked_sub(SETTLE).unwrap()), None);
        let both = ["a", "b"].map(str::to_owned);
        assert_eq!(offers.take_dirty(due), Some(both.into()));
        assert_eq!((offers.due, offers.take_dirty(due)), (None, None));
    }
}
