//! Which namespaces get a copy where more need one than can have it.

use std::collections::BTreeMap;

use super::complaint::PullSecretComplaint;
use super::needs::{Catalogs, NamespaceNeeds};
use super::observed::ObservedOlm;
use crate::api::conditions::Reason;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::ownership::copy_name;

/// Takes off what is beyond the bound: of each source first the namespaces that have a copy already keep it, then those whose names
/// come first get one.
pub(super) fn bound_destinations(
    all: &mut BTreeMap<&String, NamespaceNeeds>,
    observed: &ObservedOlm,
    catalogs: &Catalogs<'_>,
    most: usize,
) -> Vec<PullSecretComplaint> {
    let mut needing: BTreeMap<ObjectKey, Vec<(bool, String)>> = BTreeMap::new();
    for (namespace, needs) in &*all {
        for source in needs.of_sources.keys() {
            let copies = observed.namespaces.get(*namespace).map(|seen| &seen.copies);
            let copy = copies.and_then(|copies| copies.get(&copy_name(source)));
            let is_new = copy.is_none_or(|copy| copy.marks.is_none());
            let places = needing.entry(source.clone()).or_default();
            places.push((is_new, (*namespace).clone()));
        }
    }
    let mut complaints = Vec::new();
    for (source, mut places) in needing {
        if places.len() <= most {
            continue;
        }
        places.sort_unstable();
        let count = places.len();
        for (_, namespace) in places.split_off(most) {
            if let Some(needs) = all.get_mut(&namespace) {
                needs.of_sources.remove(&source);
            }
        }
        let note = format!(
            "{count} namespaces need a copy of Secret {}, and {most} get one (--max-destinations)",
            source.name
        );
        complaints.extend(catalogs.naming(&source).map(|subject| PullSecretComplaint {
            subject,
            reason: Reason::PullSecretLimitExceeded,
            note: note.clone(),
        }));
    }
    complaints
}
