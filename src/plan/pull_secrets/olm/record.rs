//! The record of namespaces by UID: a name was listed for the namespace that had it when it was first used.

use std::collections::BTreeMap;

use crate::api::names::is_dns_label;

/// UIDs of the namespaces that copies went to, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NamespaceRecord(BTreeMap<String, String>);

/// What the record says of a namespace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordedNamespace {
    /// Nothing: it was not used yet.
    Unrecorded,
    /// It is the one that was used first.
    Same,
    /// It was deleted and made again since.
    Recreated,
}

impl NamespaceRecord {
    /// The record in the data of a ConfigMap: each key that can be the name of a namespace, with its UID.
    #[must_use]
    pub fn of(data: BTreeMap<String, String>) -> Self {
        let names = data.into_iter().filter(|(name, _)| is_dns_label(name));
        Self(names.collect())
    }

    /// Whether a namespace with this UID is the one that was recorded.
    #[must_use]
    pub fn check(&self, namespace: &str, uid: &str) -> RecordedNamespace {
        match self.0.get(namespace) {
            None => RecordedNamespace::Unrecorded,
            Some(recorded) if recorded == uid => RecordedNamespace::Same,
            Some(_) => RecordedNamespace::Recreated,
        }
    }

    /// Notes namespaces that were written down.
    pub fn note(&mut self, written: BTreeMap<String, String>) {
        self.0.extend(written);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_the_namespace_that_had_it_first() {
        let data =
            [("team", "1"), ("conditions.json", "2")].map(|(key, uid)| (key.to_owned(), uid.to_owned()));
        let mut record = NamespaceRecord::of(BTreeMap::from(data));
        let table = [
            ("team", "1", RecordedNamespace::Same),
            ("team", "2", RecordedNamespace::Recreated),
            ("other", "2", RecordedNamespace::Unrecorded),
            ("conditions.json", "2", RecordedNamespace::Unrecorded),
        ];
        for (namespace, uid, expected) in table {
            assert_eq!(record.check(namespace, uid), expected, "{namespace} {uid}");
        }
        record.note(BTreeMap::from([("other".to_owned(), "2".to_owned())]));
        assert_eq!(record.check("other", "2"), RecordedNamespace::Same);
        assert_eq!(record.check("other", "3"), RecordedNamespace::Recreated);
    }
}
