//! What must be seen whole before anything is decided.

use std::collections::HashSet;
use std::sync::Arc;

use crate::kubernetes::watch::{Scope, tenants};

/// Something that must be seen whole before anything is decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Source {
    Tasks(Scope),
    Jobs,
    Pods,
    Secrets,
    Catalog,
    Ledger,
    /// Grants of a namespace, or of all.
    Grants(Option<Arc<str>>),
}

/// Everything that must be seen whole before anything is decided.
pub(super) fn unseen(scopes: Vec<Scope>, crosses_namespaces: bool) -> HashSet<Source> {
    let others = [
        Source::Jobs,
        Source::Pods,
        Source::Secrets,
        Source::Catalog,
        Source::Ledger,
    ];
    let grants = tenants(&scopes)
        .filter(|_| crosses_namespaces)
        .map(Source::Grants)
        .collect::<Vec<_>>();
    let tasks = scopes.into_iter().map(Source::Tasks);
    tasks.chain(others).chain(grants).collect()
}
