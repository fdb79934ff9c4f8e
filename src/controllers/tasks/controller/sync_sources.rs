//! What must be seen whole before anything is decided.

use std::collections::HashSet;
use std::sync::Arc;

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

/// Everything that must be seen whole before anything is decided.
pub(super) fn unsynced_sources(scopes: Vec<TaskWatchScope>, crosses_namespaces: bool) -> HashSet<SyncSource> {
    let others = [
        SyncSource::Jobs,
        SyncSource::Pods,
        SyncSource::Secrets,
        SyncSource::Catalog,
        SyncSource::Ledger,
    ];
    let grants = tenants(&scopes)
        .filter(|_| crosses_namespaces)
        .map(SyncSource::Grants)
        .collect::<Vec<_>>();
    let tasks = scopes.into_iter().map(SyncSource::Tasks);
    tasks.chain(others).chain(grants).collect()
}
