//! The building blocks of lean types: of a server's response only the fields that the hub uses are kept, and of those only so
//! much.
//!
//! The decoder skips every other value in place, so that decoding takes no more memory than the response has bytes, however many
//! small values it has.

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{OwnerReference, Time};
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use crate::api::labels::{
    CHART_URL, DESTINATION, HUB_ID, MANAGED_BY, PULL_COPY, SPEC_HASH, TASK_KIND, TASK_NAME, TASK_NAMESPACE,
    TASK_UID,
};
use crate::plan::task::job_state::CompletionHint;

/// Labels that are kept.
const LABELS: [&str; 4] = [MANAGED_BY, HUB_ID, TASK_UID, PULL_COPY];
/// Annotations that are kept.
const ANNOTATIONS: [&str; 6] = [
    TASK_KIND,
    TASK_NAMESPACE,
    TASK_NAME,
    SPEC_HASH,
    DESTINATION,
    CHART_URL,
];
/// Longest name, UID, version, label or annotation that is kept: that of a DNS subdomain.
pub(crate) const TEXT_MAX: usize = 253;
/// Longest place of a chart that is kept.
pub(crate) const URL_MAX: usize = 2_048;

/// A text, or nothing where it is longer than is kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct ShortText<const MAX: usize = TEXT_MAX>(pub(crate) Option<String>);

impl<'de, const MAX: usize> Deserialize<'de> for ShortText<MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        BoundedTextVisitor(MAX).deserialize(deserializer).map(Self)
    }
}

/// Reads a text of at most so many bytes.
struct BoundedTextVisitor(usize);

impl<'de> DeserializeSeed<'de> for BoundedTextVisitor {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Option<String>, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for BoundedTextVisitor {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a text")
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Option<String>, E> {
        Ok((text.len() <= self.0).then(|| text.to_owned()))
    }
}

/// What a list may keep of its items.
pub(crate) trait BoundedItem {
    /// Most items that are kept.
    const MOST: usize;

    /// Whether the item is used.
    fn is_kept(&self) -> bool {
        true
    }
}

/// The first items of a list that are used.
#[derive(Debug)]
pub(crate) struct BoundedList<T> {
    pub(crate) kept: Vec<T>,
    /// Whether there are items besides those that were read.
    pub(crate) is_cut: bool,
}

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            is_cut: false,
        }
    }
}

impl<'de, T: Deserialize<'de> + BoundedItem> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct BoundedListVisitor<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de> + BoundedItem> Visitor<'de> for BoundedListVisitor<T> {
            type Value = BoundedList<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedList<T>, A::Error> {
                let mut few = BoundedList::default();
                while few.kept.len() < T::MOST
                    && let Some(item) = list.next_element::<T>()?
                {
                    if item.is_kept() {
                        few.kept.push(item);
                    }
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    few.is_cut = true;
                }
                Ok(few)
            }
        }
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

/// Labels or, where they are `NOTES`, annotations: those with known keys.
#[derive(Debug)]
struct KnownLabels<const NOTES: bool>(BTreeMap<String, String>);

impl<'de, const NOTES: bool> Deserialize<'de> for KnownLabels<NOTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KnownLabelsVisitor<const NOTES: bool>;
        impl<'de, const NOTES: bool> Visitor<'de> for KnownLabelsVisitor<NOTES> {
            type Value = KnownLabels<NOTES>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KnownLabels<NOTES>, A::Error> {
                let mut known = BTreeMap::new();
                while let Some(KnownLabelKey::<NOTES>(key)) = map.next_key()? {
                    let Some(key) = key else {
                        map.next_value::<IgnoredAny>()?;
                        continue;
                    };
                    let most = if key == CHART_URL { URL_MAX } else { TEXT_MAX };
                    if let Some(value) = map.next_value_seed(BoundedTextVisitor(most))? {
                        known.insert(key.to_owned(), value);
                    } else {
                        // Of a key that comes twice the last value counts, as for every other decoder.
                        known.remove(key);
                    }
                }
                Ok(KnownLabels(known))
            }
        }
        deserializer.deserialize_map(KnownLabelsVisitor::<NOTES>)
    }
}

/// A key of labels or annotations, if it is one that is known.
struct KnownLabelKey<const NOTES: bool>(Option<&'static str>);

impl<'de, const NOTES: bool> Deserialize<'de> for KnownLabelKey<NOTES> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KnownLabelKeyVisitor<const NOTES: bool>;
        impl<const NOTES: bool> Visitor<'_> for KnownLabelKeyVisitor<NOTES> {
            type Value = KnownLabelKey<NOTES>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a key")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<KnownLabelKey<NOTES>, E> {
                let known: &[&'static str] = if NOTES { &ANNOTATIONS } else { &LABELS };
                Ok(KnownLabelKey(known.iter().copied().find(|known| *known == text)))
            }
        }
        deserializer.deserialize_str(KnownLabelKeyVisitor::<NOTES>)
    }
}

/// Which fields of a Job's status were set, over all entries of its managed fields.
#[derive(Debug, Default)]
struct ManagedStatusFields {
    is_empty: bool,
    has_completion_time: bool,
    has_conditions: bool,
}

impl ManagedStatusFields {
    /// What they say of the end of the Job.
    const fn hint(&self) -> CompletionHint {
        if self.is_empty {
            return CompletionHint::Now;
        }
        CompletionHint::of(self.has_completion_time, self.has_conditions)
    }
}

#[derive(Deserialize)]
struct LeanManagedFieldsEntry {
    #[serde(rename = "fieldsV1")]
    fields: Option<ManagedFields>,
}

#[derive(Deserialize)]
struct ManagedFields {
    #[serde(rename = "f:status")]
    status: Option<StatusFields>,
}

#[derive(Deserialize)]
struct StatusFields {
    #[serde(rename = "f:completionTime")]
    completion_time: Option<IgnoredAny>,
    #[serde(rename = "f:conditions")]
    conditions: Option<IgnoredAny>,
}

impl<'de> Deserialize<'de> for ManagedStatusFields {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ManagedFieldsVisitor;
        impl<'de> Visitor<'de> for ManagedFieldsVisitor {
            type Value = ManagedStatusFields;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<ManagedStatusFields, A::Error> {
                let mut managed = ManagedStatusFields {
                    is_empty: true,
                    ..ManagedStatusFields::default()
                };
                while let Some(entry) = list.next_element::<LeanManagedFieldsEntry>()? {
                    managed.is_empty = false;
                    let status = entry.fields.and_then(|fields| fields.status);
                    managed.has_completion_time |=
                        status.as_ref().is_some_and(|s| s.completion_time.is_some());
                    managed.has_conditions |= status.is_some_and(|s| s.conditions.is_some());
                }
                Ok(managed)
            }
        }
        deserializer.deserialize_seq(ManagedFieldsVisitor)
    }
}

/// Metadata of an object.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeanMetadata {
    name: Option<ShortText>,
    namespace: Option<ShortText>,
    uid: Option<ShortText>,
    resource_version: Option<ShortText>,
    creation_timestamp: Option<Time>,
    labels: Option<KnownLabels<false>>,
    annotations: Option<KnownLabels<true>>,
    owner_references: Option<BoundedList<LeanOwnerReference>>,
    managed_fields: Option<ManagedStatusFields>,
}

/// The Job that controls a pod.
#[derive(Debug, Deserialize)]
struct LeanOwnerReference {
    kind: Option<ShortText>,
    name: Option<ShortText>,
    controller: Option<bool>,
}

impl BoundedItem for LeanOwnerReference {
    const MOST: usize = 1;

    fn is_kept(&self) -> bool {
        let kind = self.kind.as_ref().and_then(|kind| kind.0.as_deref());
        self.controller == Some(true) && kind == Some("Job")
    }
}

impl LeanOwnerReference {
    fn into_reference(self) -> Option<OwnerReference> {
        Some(OwnerReference {
            kind: self.kind?.0?,
            name: self.name?.0?,
            controller: self.controller,
            ..OwnerReference::default()
        })
    }
}

impl LeanMetadata {
    /// The metadata, and what they say of the end of a Job.
    pub(crate) fn read(self) -> (ObjectMeta, CompletionHint) {
        let text = |text: Option<ShortText>| text.and_then(|text| text.0);
        let owner = self
            .owner_references
            .and_then(|owners| owners.kept.into_iter().next());
        let owner = owner.and_then(LeanOwnerReference::into_reference);
        let meta = ObjectMeta {
            name: text(self.name),
            namespace: text(self.namespace),
            uid: text(self.uid),
            resource_version: text(self.resource_version),
            creation_timestamp: self.creation_timestamp,
            labels: self.labels.map(|known| known.0),
            annotations: self.annotations.map(|known| known.0),
            owner_references: owner.map(|owner| vec![owner]),
            ..ObjectMeta::default()
        };
        let hint = self
            .managed_fields
            .map_or(CompletionHint::Now, |managed| managed.hint());
        (meta, hint)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn the_hint_follows_the_fields_that_were_written() {
        let entry = |fields: Value| json!([{"manager": "m", "operation": "Update", "fieldsV1": fields}]);
        let status = |fields: Value| entry(json!({"f:status": fields}));
        let table = [
            (entry(json!({"f:metadata": {}})), CompletionHint::No),
            (
                status(json!({"f:active": {}, "f:startTime": {}})),
                CompletionHint::No,
            ),
            (status(json!({"f:conditions": {}})), CompletionHint::Soon),
            (
                status(json!({"f:conditions": {}, "f:completionTime": {}})),
                CompletionHint::Now,
            ),
            (status(json!({"f:completionTime": {}})), CompletionHint::Now),
            // A name that only looks like a status field elsewhere.
            (
                entry(json!({"f:spec": {"f:completionTime": {}, "f:conditions": {}}})),
                CompletionHint::No,
            ),
            (json!([{"manager": "m"}]), CompletionHint::No),
            (json!([]), CompletionHint::Now),
            // A server that hides the fields costs a read, not a result.
            (Value::Null, CompletionHint::Now),
        ];
        for (entries, hint) in table {
            let text = json!({"name": "x", "managedFields": entries}).to_string();
            let metadata: LeanMetadata = serde_json::from_str(&text).unwrap();
            assert_eq!(metadata.read().1, hint, "{text}");
        }
    }

    #[test]
    fn a_note_is_kept_up_to_its_bound_and_the_place_of_a_chart_up_to_a_longer_one() {
        for (key, most) in [(CHART_URL, URL_MAX), (TASK_NAME, TEXT_MAX)] {
            let kept = |bytes: usize| {
                let KnownLabels::<true>(known) =
                    serde_json::from_str(&json!({key: "x".repeat(bytes)}).to_string()).unwrap();
                known.get(key).map(String::len)
            };
            assert_eq!((kept(most), kept(most + 1)), (Some(most), None), "{key}");
        }
    }
}
