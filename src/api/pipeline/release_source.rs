//! What puts a Release on a Target, as one text: a fleet has one for each Release of each Target, and an API server works on each value.

use serde::{Deserialize, Serialize};

/// What put a Release on a Target; as a text `KIND/NAME`, or `KIND/NAMESPACE/NAME` with a namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Deserialize, Serialize)]
#[serde(from = "String", into = "String")]
pub struct ReleaseSource {
    /// Namespace of the object, where it is another than the Target's.
    pub namespace: String,
    /// Name of the object.
    pub name: String,
    /// Kind of the object.
    pub kind: ReleaseSourceKind,
}

/// Kind of what puts a Release on a Target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseSourceKind {
    /// For one Target.
    ReleaseBinding,
    /// For every Target with certain labels.
    Profile,
}

impl ReleaseSourceKind {
    /// Every kind.
    const ALL: [Self; 2] = [Self::ReleaseBinding, Self::Profile];

    /// The kind as Kubernetes names it.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ReleaseBinding => "ReleaseBinding",
            Self::Profile => "Profile",
        }
    }
}

impl ReleaseSource {
    fn read(text: &str) -> Option<Self> {
        let (kind, key) = text.split_once('/')?;
        let kind = ReleaseSourceKind::ALL
            .into_iter()
            .find(|one| one.as_str() == kind)?;
        let (namespace, name) = match key.split_once('/') {
            Some(("", _)) => return None,
            Some(pair) => pair,
            None => ("", key),
        };
        (!name.is_empty() && !name.contains('/')).then(|| Self {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            kind,
        })
    }
}

/// A text of another form, which only a status without a seal can hold, names a binding that no namespace has.
impl From<String> for ReleaseSource {
    fn from(text: String) -> Self {
        Self::read(&text).unwrap_or(Self {
            namespace: String::new(),
            name: String::new(),
            kind: ReleaseSourceKind::ReleaseBinding,
        })
    }
}

impl From<ReleaseSource> for String {
    fn from(source: ReleaseSource) -> Self {
        let slash = if source.namespace.is_empty() { "" } else { "/" };
        [source.kind.as_str(), "/", &source.namespace, slash, &source.name].concat()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_source_is_read_as_it_was_written(
            namespace in "([a-z]([-a-z0-9]{0,8}[a-z0-9])?)?",
            name in "[a-z]([-.a-z0-9]{0,8}[a-z0-9])?",
            number in 0_usize..2,
        ) {
            let source = ReleaseSource { namespace, name, kind: ReleaseSourceKind::ALL[number] };
            prop_assert_eq!(ReleaseSource::from(String::from(source.clone())), source);
        }

        #[test]
        fn what_is_read_is_written_as_it_was(text in "(Profile|ReleaseBinding|Target|)[/a-z]{0,8}") {
            let source = ReleaseSource::from(text.clone());
            if !source.name.is_empty() {
                prop_assert_eq!(String::from(source), text);
            }
        }
    }

    #[test]
    fn a_text_that_names_no_source_names_no_object() {
        for text in [
            "",
            "Profile",
            "Profile/",
            "profile/a",
            "Profile//a",
            "Profile/a/",
            "Profile/a/b/c",
            "Target/a",
            "/a",
        ] {
            let ReleaseSource { namespace, name, .. } = text.to_owned().into();
            assert_eq!((namespace.as_str(), name.as_str()), ("", ""), "{text}");
        }
    }
}
