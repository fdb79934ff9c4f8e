//! The record of namespaces by UID: a name was listed for the namespace that had it when it was first used.

use std::collections::BTreeMap;

use super::observed::NamespaceGrant;

/// UIDs of the namespaces that copies went to, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRecord(pub BTreeMap<String, String>);

/// Whether a namespace with this UID is the one that was recorded; with what is to be recorded, where nothing is yet.
#[must_use]
pub fn grant_of(record: &NamespaceRecord, namespace: &str, uid: &str) -> (NamespaceGrant, bool) {
    match record.0.get(namespace) {
        None => (NamespaceGrant::Granted, true),
        Some(recorded) if recorded == uid => (NamespaceGrant::Granted, false),
        Some(_) => (NamespaceGrant::Recreated, false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_namespace_that_had_it_first() {
        let record = NamespaceRecord(BTreeMap::from([("team".to_owned(), "1".to_owned())]));
        let table = [
            ("team", "1", NamespaceGrant::Granted, false),
            ("team", "2", NamespaceGrant::Recreated, false),
            ("other", "2", NamespaceGrant::Granted, true),
        ];
        for (namespace, uid, grant, is_new) in table {
            assert_eq!(
                grant_of(&record, namespace, uid),
                (grant, is_new),
                "{namespace} {uid}"
            );
        }
    }
}
