//! Whose a copy of a pull secret is.
//!
//! A Secret is a copy of this program's if it has the label, names its source, and has the name that follows from that source. None
//! of the three is enough alone: labels can be forged, and a name can be taken.

use std::collections::{BTreeMap, BTreeSet};

use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::api::labels::{
    COPIED_FOR, COPIED_FOR_OLM, COPY_OPERATORS, COPY_SOURCE, COPY_SOURCE_UID, MANAGED_BY, MANAGED_BY_VALUE,
};
use crate::api::names::{hex, is_dns_label};
use crate::plan::pipeline::object::ObjectKey;

/// What the name of each copy starts with.
const PREFIX: &str = "olm-pull-";
/// Hex digits of the source's hash in a name: 64 bits, out of reach for a birthday collision or a forger.
const HASH_DIGITS: usize = 16;
/// Operators of one copy; a namespace has 64 Subscriptions that are served, and each some versions of its operator.
const MAX_USERS: usize = 512;
/// What a copy's name has of its source's at most, so that all of it is a DNS label.
const READABLE: usize = 63 - PREFIX.len() - 1 - HASH_DIGITS;

/// Name of the copy of a Secret: `olm-pull-<its name, cut>-<16 hex of SHA-256(namespace/name)>`.
#[must_use]
pub fn copy_name(original: &ObjectKey) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
    let readable: String = original.name.chars().map(legal).take(READABLE).collect();
    let readable = readable.trim_matches('-').to_ascii_lowercase();
    let dash = if readable.is_empty() { "" } else { "-" };
    let hash = hex(&Sha256::digest(original.to_string().as_bytes())[..HASH_DIGITS / 2]);
    format!("{PREFIX}{readable}{dash}{hash}")
}

/// Whether a name has the form of a copy's.
#[must_use]
pub fn is_copy_name(name: &str) -> bool {
    let Some(rest) = name.strip_prefix(PREFIX).filter(|_| is_dns_label(name)) else {
        return false;
    };
    let hash = rest.rsplit('-').next().unwrap_or_default();
    hash.len() == HASH_DIGITS
        && hash
            .bytes()
            .all(|c| c.is_ascii_digit() || (b'a'..=b'f').contains(&c))
}

/// An operator that a copy was made for.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CopyUser {
    /// Name of the `CatalogSource`; its namespace is that of the copy's source.
    pub catalog: String,
    /// UID of the `ClusterServiceVersion`.
    pub csv_uid: String,
}

/// What a copy says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyMarks {
    /// What it is a copy of.
    pub source: ObjectKey,
    /// UID of that.
    pub source_uid: String,
    /// The operators that it was made for.
    pub users: BTreeSet<CopyUser>,
}

impl CopyMarks {
    /// The marks of a Secret; `None` where it is no copy of this program's.
    #[must_use]
    pub fn read(meta: &ObjectMeta) -> Option<Self> {
        let label = |key: &str| meta.labels.as_ref()?.get(key).map(String::as_str);
        let annotation = |key: &str| meta.annotations.as_ref()?.get(key).map(String::as_str);
        if label(MANAGED_BY) != Some(MANAGED_BY_VALUE) || label(COPIED_FOR) != Some(COPIED_FOR_OLM) {
            return None;
        }
        let (namespace, name) = annotation(COPY_SOURCE)?.split_once('/')?;
        let source = ObjectKey::new(namespace, name);
        let source_uid = annotation(COPY_SOURCE_UID).filter(|uid| !uid.is_empty())?;
        if meta.name.as_deref() != Some(copy_name(&source).as_str()) {
            return None;
        }
        let users = annotation(COPY_OPERATORS).unwrap_or_default();
        // The program never makes a copy with so many, and what it keeps of each would be many times its text.
        if users.split(',').count() > MAX_USERS {
            return None;
        }
        let users = users.split(',').filter_map(|user| user.split_once('='));
        Some(Self {
            source,
            source_uid: source_uid.to_owned(),
            users: users
                .map(|(catalog, uid)| CopyUser {
                    catalog: catalog.to_owned(),
                    csv_uid: uid.to_owned(),
                })
                .collect(),
        })
    }

    /// The labels of the copy.
    #[must_use]
    pub fn labels() -> BTreeMap<&'static str, &'static str> {
        BTreeMap::from([(MANAGED_BY, MANAGED_BY_VALUE), (COPIED_FOR, COPIED_FOR_OLM)])
    }

    /// The annotations of the copy.
    #[must_use]
    pub fn annotations(&self) -> BTreeMap<&'static str, String> {
        let users = self.users.iter();
        let users: Vec<String> = users
            .map(|user| format!("{}={}", user.catalog, user.csv_uid))
            .collect();
        BTreeMap::from([
            (COPY_SOURCE, self.source.to_string()),
            (COPY_SOURCE_UID, self.source_uid.clone()),
            (COPY_OPERATORS, users.join(",")),
        ])
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marks(source: &ObjectKey) -> CopyMarks {
        let user = |catalog: &str, uid: &str| CopyUser {
            catalog: catalog.to_owned(),
            csv_uid: uid.to_owned(),
        };
        CopyMarks {
            source: source.clone(),
            source_uid: "u-1".to_owned(),
            users: BTreeSet::from([user("a", "1"), user("b.c", "2")]),
        }
    }

    fn metadata(source: &ObjectKey) -> ObjectMeta {
        let text = |(key, value): (&str, String)| (key.to_owned(), value);
        let labels = CopyMarks::labels().into_iter();
        ObjectMeta {
            name: Some(copy_name(source)),
            labels: Some(
                labels
                    .map(|(key, value)| (key.to_owned(), value.to_owned()))
                    .collect(),
            ),
            annotations: Some(marks(source).annotations().into_iter().map(text).collect()),
            ..ObjectMeta::default()
        }
    }

    proptest! {
        #[test]
        fn a_name_is_legal_and_of_its_source_alone(
            namespace in "[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?",
            name in "[a-z0-9]([a-z0-9.-]{0,250}[a-z0-9])?",
        ) {
            let source = ObjectKey::new(&namespace, &name);
            let copy = copy_name(&source);
            prop_assert!(is_copy_name(&copy), "{copy}");
            prop_assert_ne!(&copy, &copy_name(&ObjectKey::new(&format!("{namespace}x"), &name)));
            prop_assert_ne!(&copy, &copy_name(&ObjectKey::new(&namespace, &format!("{name}x"))));
            prop_assert_eq!(CopyMarks::read(&metadata(&source)), Some(marks(&source)));
        }
    }

    #[test]
    fn a_secret_is_ours_only_with_label_source_and_the_name_that_follows() {
        let source = ObjectKey::new("olm", "pull");
        let forged: [fn(&mut ObjectMeta); 7] = [
            |meta| meta.name = Some("registry-credentials".to_owned()),
            |meta| meta.name = Some(copy_name(&ObjectKey::new("olm", "other"))),
            |meta| meta.labels = None,
            |meta| _ = meta.labels.as_mut().unwrap().remove(COPIED_FOR),
            |meta| {
                _ = meta
                    .labels
                    .as_mut()
                    .unwrap()
                    .insert(MANAGED_BY.to_owned(), "Helm".to_owned());
            },
            |meta| meta.annotations = None,
            |meta| _ = meta.annotations.as_mut().unwrap().remove(COPY_SOURCE_UID),
        ];
        for (number, forge) in forged.iter().enumerate() {
            let mut meta = metadata(&source);
            assert!(CopyMarks::read(&meta).is_some());
            forge(&mut meta);
            assert_eq!(CopyMarks::read(&meta), None, "{number}");
        }
        for name in [
            "pull",
            "olm-pull-",
            "olm-pull-x",
            "olm-pull-x-0123456789abcdeg",
            "olm-pull-X-0123456789abcdef",
        ] {
            assert!(!is_copy_name(name), "{name}");
        }
        assert!(is_copy_name("olm-pull-0123456789abcdef"));
    }

    /// Holds: F6.
    #[test]
    fn a_copy_of_too_many_operators_is_not_ours() {
        let source = ObjectKey::new("catalogs", "pull");
        for (count, is_ours) in [(MAX_USERS, true), (MAX_USERS + 1, false)] {
            let users: Vec<String> = (0..count).map(|number| format!("a={number}")).collect();
            let mut meta = metadata(&source);
            let annotations = meta.annotations.as_mut().unwrap();
            annotations.insert(COPY_OPERATORS.to_owned(), users.join(","));
            let read = CopyMarks::read(&meta);
            assert_eq!(read.map(|marks| marks.users.len()), is_ours.then_some(count));
        }
    }
}
