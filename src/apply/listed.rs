//! Objects of hubs as lists show them: what is looked at of each and nothing else, whatever a server that is not trusted puts
//! there.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ManagedFieldsEntry, Time};
use kube::api::ObjectMeta;
use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use crate::api::labels::{
    CHART_URL, HUB_ID, MANAGED_BY, SPEC_HASH, TASK_KIND, TASK_NAME, TASK_NAMESPACE, TASK_UID,
};
use crate::plan::outcome::{EndHint, end_hint};

use super::PAGE;

/// Labels and annotations that are kept.
const KNOWN: [&str; 8] = [
    MANAGED_BY,
    HUB_ID,
    TASK_UID,
    TASK_KIND,
    TASK_NAMESPACE,
    TASK_NAME,
    SPEC_HASH,
    CHART_URL,
];
/// Longest text that is kept; the longest is where a chart goes.
const TEXT_MAX: usize = 2_048;
/// Longest record of who wrote which field that is looked into.
const FIELDS_MAX: usize = 64 << 10;

/// An object of a hub, by its metadata.
#[derive(Clone, Debug)]
pub struct Found {
    /// What of the metadata is looked at.
    pub meta: ObjectMeta,
    /// What they say of the end of a Job.
    pub hint: EndHint,
}

impl Found {
    /// Bytes that it takes, roughly.
    pub(super) fn weight(&self) -> usize {
        let maps = [&self.meta.labels, &self.meta.annotations];
        let texts = maps.into_iter().flatten().flatten();
        texts.map(|(key, value)| key.len() + value.len()).sum::<usize>() + size_of::<Self>()
    }
}

/// One page of a list, and the mark for the next one. `None` where it is no list, or one of more objects than were asked for.
#[must_use]
pub fn read(body: &[u8]) -> Option<(Vec<Found>, Option<String>)> {
    let page: Page<'_> = serde_json::from_slice(body).ok()?;
    let next = page.metadata.next.filter(|mark| !mark.is_empty());
    let items = page.items.unwrap_or_default();
    (!items.is_too_long).then(|| (items.kept.into_iter().map(Item::found).collect(), next))
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(default)]
    metadata: PageMeta,
    #[serde(borrow)]
    items: Option<Items<'a>>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Default)]
struct Items<'a> {
    kept: Vec<Item<'a>>,
    is_too_long: bool,
}

#[derive(Deserialize)]
struct Item<'a> {
    #[serde(borrow, default)]
    metadata: Lean<'a>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Lean<'a> {
    name: Option<Text>,
    uid: Option<Text>,
    resource_version: Option<Text>,
    creation_timestamp: Option<Time>,
    labels: Option<Known>,
    annotations: Option<Known>,
    #[serde(borrow)]
    managed_fields: Option<&'a RawValue>,
}

impl Item<'_> {
    fn found(self) -> Found {
        let lean = self.metadata;
        let fields = lean.managed_fields.filter(|raw| raw.get().len() <= FIELDS_MAX);
        let fields: Option<Vec<ManagedFieldsEntry>> =
            fields.and_then(|raw| serde_json::from_str(raw.get()).ok());
        let text = |text: Option<Text>| text.and_then(|text| text.0);
        Found {
            hint: end_hint(fields.as_deref()),
            meta: ObjectMeta {
                name: text(lean.name),
                uid: text(lean.uid),
                resource_version: text(lean.resource_version),
                creation_timestamp: lean.creation_timestamp,
                labels: lean.labels.map(|known| known.0),
                annotations: lean.annotations.map(|known| known.0),
                ..ObjectMeta::default()
            },
        }
    }
}

/// A text, or nothing where it is too long to be kept.
struct Text(Option<String>);

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<'de, str>::deserialize(deserializer)?;
        Ok(Self((text.len() <= TEXT_MAX).then(|| text.into_owned())))
    }
}

/// Labels or annotations, those that are known.
struct Known(BTreeMap<String, String>);

impl<'de> Deserialize<'de> for Known {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Only;
        impl<'de> Visitor<'de> for Only {
            type Value = Known;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("labels or annotations")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Known, A::Error> {
                let mut known = BTreeMap::new();
                while let Some(key) = map.next_key::<Cow<'de, str>>()? {
                    if !KNOWN.contains(&&*key) {
                        map.next_value::<IgnoredAny>()?;
                    } else if let Text(Some(value)) = map.next_value()? {
                        known.insert(key.into_owned(), value);
                    }
                }
                Ok(Known(known))
            }
        }
        deserializer.deserialize_map(Only)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Items<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Bounded;
        impl<'de> Visitor<'de> for Bounded {
            type Value = Items<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("objects")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Items<'de>, A::Error> {
                let mut items = Items::default();
                while items.kept.len() < PAGE as usize
                    && let Some(item) = list.next_element()?
                {
                    items.kept.push(item);
                }
                while list.next_element::<IgnoredAny>()?.is_some() {
                    items.is_too_long = true;
                }
                Ok(items)
            }
        }
        deserializer.deserialize_seq(Bounded)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn page(items: &Value, next: &str) -> Option<(Vec<Found>, Option<String>)> {
        let page = json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items});
        read(page.to_string().as_bytes())
    }

    fn job(fields: &Value) -> Value {
        json!({"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": {
            "name": "render-x", "namespace": "rendering", "uid": "j1", "resourceVersion": "12",
            "creationTimestamp": "2026-01-01T00:00:00Z", "ownerReferences": [{"any": "thing"}],
            "labels": {"renderhub.dev/task-uid": "t1", "renderhub.dev/hub-id": "a-0f5a4e0c", "other": "x"},
            "annotations": {"renderhub.dev/spec-hash": "abc", "note": "x"},
            "managedFields": [{"manager": "m", "fieldsV1": {"f:status": fields}}],
        }})
    }

    #[test]
    fn of_an_object_is_kept_what_is_looked_at() {
        let (found, next) = page(&json!([job(&json!({}))]), "more").unwrap();
        let meta = &found[0].meta;
        assert_eq!((found[0].hint, next.as_deref()), (EndHint::No, Some("more")));
        let texts = (
            meta.name.as_deref(),
            meta.uid.as_deref(),
            meta.resource_version.as_deref(),
        );
        assert_eq!(texts, (Some("render-x"), Some("j1"), Some("12")));
        let labels = meta.labels.as_ref().unwrap();
        assert_eq!(labels.keys().collect::<Vec<_>>(), [HUB_ID, TASK_UID]);
        assert_eq!(meta.annotations.as_ref().unwrap().len(), 1);
        assert!(meta.creation_timestamp.is_some() && meta.owner_references.is_none());
        let ended = json!([job(&json!({"f:completionTime": {}, "f:conditions": {}}))]);
        assert_eq!(page(&ended, "").unwrap().0[0].hint, EndHint::Now);
        assert_eq!(page(&ended, "").unwrap().1, None);
    }

    /// Holds: H5.
    #[test]
    fn a_page_that_is_longer_than_was_asked_for_is_none_and_long_texts_are_not_kept() {
        let full = vec![json!({}); PAGE as usize];
        assert_eq!(page(&json!(full), "").unwrap().0.len(), PAGE as usize);
        assert!(page(&json!(vec![json!({}); PAGE as usize + 1]), "").is_none());
        let mut long = job(&json!({}));
        long["metadata"]["labels"][HUB_ID] = json!("x".repeat(TEXT_MAX + 1));
        long["metadata"]["name"] = json!("x".repeat(TEXT_MAX + 1));
        long["metadata"]["managedFields"] = json!([{"manager": "x".repeat(FIELDS_MAX)}]);
        let (found, _) = page(&json!([long]), "").unwrap();
        assert!(found[0].meta.name.is_none() && !found[0].meta.labels.as_ref().unwrap().contains_key(HUB_ID));
        assert_eq!(
            found[0].hint,
            EndHint::Now,
            "what is not looked into is asked for"
        );
        assert!(found[0].weight() < 2 * TEXT_MAX);
        for body in [
            "",
            "{}x",
            "[]",
            r#"{"items": 1}"#,
            r#"{"items": [{"metadata": {"labels": []}}]}"#,
        ] {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
        assert!(read(b"{}").unwrap().0.is_empty() && read(br#"{"items": null}"#).unwrap().0.is_empty());
    }
}
