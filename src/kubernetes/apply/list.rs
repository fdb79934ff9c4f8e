//! Objects of hubs as lists show them, page by page: only the fields that the hub uses, also where a server is not trusted.

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::Secret;
use kube::Resource;
use kube::api::{ListParams, ObjectMeta};
use serde::Deserialize;

use crate::api::labels::{all_objects, others_objects, own_pull_copies};
use crate::api::names::is_uid;
use crate::kubernetes::object::LeanObject;
use crate::kubernetes::object::lean::{BoundedItem, BoundedList, ShortText};
use crate::plan::pull_secrets::copy::PullCopyId;
use crate::plan::task::adoption::{ObjectCreator, maker};
use crate::plan::task::job_state::CompletionHint;

use super::client::HubClient;
use super::error::CallError;
use super::objects::TaskObjectClient;
use super::transport::ResponseLimit;
use super::transport_stage::TransportStage;

/// Objects in a page of a list.
pub(crate) const PAGE: u32 = 500;
/// Longest mark for the next page that is sent back: far longer than any that an API server gives.
const NEXT_MAX: usize = 4_096;

/// An object of a hub, by its metadata.
#[derive(Clone, Debug)]
pub struct ListedObject {
    /// The metadata that is used.
    pub meta: ObjectMeta,
    /// What they say of the end of a Job.
    pub hint: CompletionHint,
}

/// One page of a list.
#[derive(Debug)]
pub struct ListPage {
    /// The objects of hubs of this cluster on it.
    pub items: Vec<ListedObject>,
    /// The mark for the next one; none on the last.
    pub next: Option<String>,
    /// Objects that carry a hub's labels, and whose name or UID is none.
    pub illegible: usize,
}

/// The kinds that are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListKind {
    /// The Jobs that other hubs of this cluster made.
    OthersJobs,
    /// The config Secrets that hubs of this cluster made, this one and others.
    Secrets,
    /// The copies of pull Secrets that this hub made.
    PullCopies,
}

/// The objects on a page, and the mark for the next one. `None` where it is no list, or one of more objects than were asked
/// for, or its mark is too long.
#[must_use]
pub fn read(body: &[u8]) -> Option<(impl Iterator<Item = ListedObject> + use<>, Option<String>)> {
    let page = LeanPage::read(body).filter(|page| !page.is_too_long())?;
    let next = page.next().map(ToOwned::to_owned);
    Some((page.objects(), next))
}

/// A page of a list as a server sends it.
#[derive(Deserialize)]
pub(crate) struct LeanPage {
    #[serde(default)]
    metadata: LeanListMetadata,
    items: Option<BoundedList<LeanObject>>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct LeanListMetadata {
    resource_version: Option<ShortText>,
    #[serde(rename = "continue")]
    next: Option<ShortText<NEXT_MAX>>,
}

impl BoundedItem for LeanObject {
    const MOST: usize = PAGE as usize;
}

impl LeanPage {
    /// Decodes a page; `None` where it is no list, or its mark for the next one is too long.
    pub(crate) fn read(body: &[u8]) -> Option<Self> {
        let page: Self = serde_json::from_slice(body).ok()?;
        let mark = page.metadata.next.as_ref();
        mark.is_none_or(|mark| mark.0.is_some()).then_some(page)
    }

    /// Whether it has more objects than the hub asks for; those are not kept.
    pub(crate) fn is_too_long(&self) -> bool {
        self.items.as_ref().is_some_and(|items| items.is_cut)
    }

    /// The resource version of the list, as the server says it.
    pub(crate) fn version(&self) -> Option<&str> {
        self.metadata.resource_version.as_ref()?.0.as_deref()
    }

    /// The mark for the next page; `None` on the last one.
    pub(crate) fn next(&self) -> Option<&str> {
        let mark = self.metadata.next.as_ref()?.0.as_deref();
        mark.filter(|mark| !mark.is_empty())
    }

    /// The objects on it, one at a time.
    pub(crate) fn objects(self) -> impl Iterator<Item = ListedObject> + use<> {
        let items = self.items.unwrap_or_default().kept.into_iter();
        items.map(|object| {
            let (meta, hint) = object.metadata.read();
            ListedObject { meta, hint }
        })
    }
}

impl TaskObjectClient {
    /// One page of the objects that hubs of this cluster made, the first one or the one after a mark. Illegal names and UIDs are
    /// dropped.
    ///
    /// # Errors
    /// The page cannot be read.
    pub async fn list(&self, listing: ListKind, next: Option<&str>) -> Result<ListPage, CallError> {
        match listing {
            ListKind::OthersJobs => {
                let labels = others_objects(self.hub_id());
                self.next_page::<Job>("jobs", &labels, next).await
            }
            ListKind::Secrets => self.next_page::<Secret>("secrets", &all_objects(), next).await,
            ListKind::PullCopies => {
                let labels = own_pull_copies(self.hub_id());
                self.next_page::<Secret>("secrets", &labels, next).await
            }
        }
    }

    /// Whether a Job of any hub names a copy of a pull Secret.
    ///
    /// # Errors
    /// The Jobs cannot be read.
    pub async fn has_job_with(&self, copy: &PullCopyId) -> Result<bool, CallError> {
        let one = ListParams::default().labels(&copy.job_label()).limit(1);
        let request = self.own::<Job>().list_metadata(&one);
        let body = self
            .exchange("list", "jobs", request, ResponseLimit::Page)
            .await?;
        let (mut jobs, _) = read(&body).ok_or(CallError::Transport(TransportStage::Decode))?;
        Ok(jobs.next().is_some())
    }

    async fn next_page<K>(
        &self,
        resource: &'static str,
        labels: &str,
        next: Option<&str>,
    ) -> Result<ListPage, CallError>
    where
        K: Resource<DynamicType = ()>,
    {
        let mut parameters = ListParams::default().labels(labels).limit(PAGE);
        parameters.continue_token = next.map(str::to_owned);
        let request = self.own::<K>().list_metadata(&parameters);
        let body = self
            .exchange("list", resource, request, ResponseLimit::Page)
            .await?;
        let (all, next) = read(&body).ok_or(CallError::Transport(TransportStage::Decode))?;
        let (mut found, mut illegible) = (Vec::new(), 0);
        for object in all {
            let is_legible = self.is_home() || object.meta.uid.as_deref().is_some_and(is_uid);
            if !is_legible {
                illegible += 1;
            } else if maker(self.hub_id(), &object.meta) != ObjectCreator::Foreign
                || PullCopyId::of_object(&object.meta).is_some()
            {
                found.push(object);
            }
        }
        Ok(ListPage {
            items: found,
            next,
            illegible,
        })
    }
}

impl HubClient {
    /// All objects of a kind in the rendering namespace.
    ///
    /// # Errors
    /// A page cannot be read.
    pub async fn list_all(&self, listing: ListKind) -> Result<Vec<ListedObject>, CallError> {
        let mut page = self.objects().list(listing, None).await?;
        let mut all = page.items;
        while let Some(next) = page.next {
            page = self.objects().list(listing, Some(&next)).await?;
            all.append(&mut page.items);
        }
        Ok(all)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::labels::{CHART_URL, HUB_ID, TASK_UID};
    use crate::kubernetes::object::lean::{TEXT_MAX, URL_MAX};

    fn page(items: &Value, next: &str) -> Option<(Vec<ListedObject>, Option<String>)> {
        let page = json!({"metadata": {"resourceVersion": "7", "continue": next}, "items": items});
        read(page.to_string().as_bytes()).map(|(found, next)| (found.collect(), next))
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
        assert_eq!(
            (found[0].hint, next.as_deref()),
            (CompletionHint::No, Some("more"))
        );
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
        assert_eq!(page(&ended, "").unwrap().0[0].hint, CompletionHint::Now);
        assert_eq!(page(&ended, "").unwrap().1, None);
    }

    /// Holds: H5, B9.
    #[test]
    fn a_page_that_is_longer_than_was_asked_for_is_none_and_long_texts_are_not_kept() {
        let full = vec![json!({}); PAGE as usize];
        assert_eq!(page(&json!(full), "").unwrap().0.len(), PAGE as usize);
        assert!(page(&json!(vec![json!({}); PAGE as usize + 1]), "").is_none());
        assert!(page(&json!([]), &"x".repeat(NEXT_MAX + 1)).is_none());
        let mut long = job(&json!({}));
        long["metadata"]["labels"][HUB_ID] = json!("x".repeat(TEXT_MAX + 1));
        long["metadata"]["name"] = json!("x".repeat(TEXT_MAX + 1));
        long["metadata"]["annotations"][CHART_URL] = json!("x".repeat(URL_MAX));
        let (found, _) = page(&json!([long]), "").unwrap();
        let meta = &found[0].meta;
        assert!(meta.name.is_none() && !meta.labels.as_ref().unwrap().contains_key(HUB_ID));
        assert_eq!(meta.annotations.as_ref().unwrap()[CHART_URL].len(), URL_MAX);
        for body in [
            "",
            "{}x",
            "[]",
            r#"{"items": 1}"#,
            r#"{"items": [{"metadata": {"labels": []}}]}"#,
        ] {
            assert!(read(body.as_bytes()).is_none(), "{body}");
        }
        let of = |body: &[u8]| read(body).unwrap().0.count();
        assert_eq!((of(b"{}"), of(br#"{"items": null}"#)), (0, 0));
    }
}
