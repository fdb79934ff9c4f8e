//! What must be seen whole before anything is decided.

use std::collections::HashSet;
use std::sync::Arc;

use tokio::sync::watch;

use crate::kubernetes::watch::{TaskWatchScope, tenants};

/// Something that must be seen whole before anything is decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SyncSource {
    Tasks(TaskWatchScope),
    Jobs,
    Pods,
    Secrets,
    Catalog,
    Ledger,
    /// Grants of a namespace, or of all.
    Grants(Option<Arc<str>>),
}

/// What was seen whole, and what was not yet.
pub(super) struct CacheSync {
    pub(super) unsynced: HashSet<SyncSource>,
    /// The number of task scopes, and those that the hub may not list.
    scopes: usize,
    refused: HashSet<TaskWatchScope>,
    /// Says that the hub is ready, once everything was seen.
    pub(super) ready: watch::Sender<bool>,
}

impl CacheSync {
    /// Nothing was seen yet.
    pub(super) fn new(
        scopes: &[TaskWatchScope],
        crosses_namespaces: bool,
        ready: watch::Sender<bool>,
    ) -> Self {
        let others = [
            SyncSource::Jobs,
            SyncSource::Pods,
            SyncSource::Secrets,
            SyncSource::Catalog,
            SyncSource::Ledger,
        ];
        let grants = tenants(scopes)
            .filter(|_| crosses_namespaces)
            .map(SyncSource::Grants);
        let tasks = scopes.iter().cloned().map(SyncSource::Tasks);
        Self {
            unsynced: tasks.chain(others).chain(grants).collect(),
            scopes: scopes.len(),
            refused: HashSet::new(),
            ready,
        }
    }

    /// Whether everything was seen.
    pub(super) fn is_complete(&self) -> bool {
        self.unsynced.is_empty()
    }

    /// Whether sweeps may begin: the first list of Secrets is made when all else is known, to be compared with it.
    pub(super) fn may_sweep(&self) -> bool {
        self.unsynced.iter().all(|source| *source == SyncSource::Secrets)
    }

    /// Counts a source as seen; returns whether it was the last one.
    pub(super) fn mark(&mut self, source: &SyncSource) -> bool {
        self.unsynced.remove(source) && self.is_complete()
    }

    /// The tasks of a scope were listed.
    pub(super) fn allow(&mut self, scope: &TaskWatchScope) {
        self.refused.remove(scope);
    }

    /// The hub may not list the tasks of a scope; returns whether it starts without them. A deleted namespace took the hub's
    /// rights in it along, so the hub does not wait for it, unless it may list no scope at all.
    pub(super) fn refuse(&mut self, scope: &TaskWatchScope) -> bool {
        let source = SyncSource::Tasks(scope.clone());
        if scope.namespace.is_none() || !self.unsynced.contains(&source) {
            return false;
        }
        self.refused.insert(scope.clone());
        self.refused.len() < self.scopes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::names::TaskKind;

    fn scope(namespace: Option<&str>) -> TaskWatchScope {
        TaskWatchScope {
            kind: TaskKind::RenderTask,
            namespace: namespace.map(Into::into),
        }
    }

    fn sync(scopes: &[TaskWatchScope]) -> CacheSync {
        CacheSync::new(scopes, true, watch::channel(false).0)
    }

    #[test]
    fn the_hub_starts_without_scopes_that_it_may_not_list_but_not_without_any() {
        let (a, b) = (scope(Some("a")), scope(Some("b")));
        let mut both = sync(&[a.clone(), b.clone()]);
        assert!(both.refuse(&a) && !both.refuse(&b));
        both.allow(&a);
        assert!(both.refuse(&b), "the other one can be listed again");
        both.mark(&SyncSource::Tasks(b.clone()));
        assert!(!both.refuse(&b), "it was seen");
        let mut all = sync(&[scope(None)]);
        assert!(!all.refuse(&scope(None)));
    }

    #[test]
    fn the_last_source_is_the_one_that_counts_and_secrets_wait_for_the_others() {
        let mut sync = sync(&[scope(Some("a"))]);
        let sources: Vec<_> = sync.unsynced.iter().cloned().collect();
        let (secrets, others): (Vec<_>, Vec<_>) =
            sources.into_iter().partition(|s| *s == SyncSource::Secrets);
        assert!(others.contains(&SyncSource::Grants(Some("a".into()))));
        for source in others {
            assert!(!sync.may_sweep() && !sync.mark(&source));
        }
        assert!(sync.may_sweep() && !sync.is_complete());
        assert!(sync.mark(&secrets[0]) && sync.is_complete());
        assert!(!sync.mark(&secrets[0]), "once");
    }
}
