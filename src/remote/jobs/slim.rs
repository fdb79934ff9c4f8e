//! Decodes of Jobs only the few fields that the hub uses, and checks the shape of each.
//!
//! Other fields are skipped, so that a page of a list or a line of a watch takes no more memory than its own bytes.

use std::fmt;

use serde::de::{IgnoredAny, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::labels;
use crate::api::names::{HubId, TaskUid, hex, is_dns_label, is_name_of, is_uid};
use crate::kubernetes::apply::lean::ManagedStatusFields;
use crate::kubernetes::watch::JobMetadata;
use crate::plan::task::job_state::CompletionHint;

/// Most Jobs on one page of a list. A longer page is refused, as the hub did not request it.
pub(super) const PAGE: usize = 500;
/// Longest URL of a chart.
const URL_MAX: usize = 2_048;
/// Longest resource version.
const VERSION_MAX: usize = 64;
/// Longest continue token.
const CONTINUE_MAX: usize = 4_096;

/// Selects the Jobs of one hub in one namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobFilter<'a> {
    pub(super) hub: &'a HubId,
    pub(super) namespace: &'a str,
}

/// One page of a list.
#[derive(Debug, Deserialize)]
pub(super) struct JobPage {
    metadata: JobPageMetadata,
    #[serde(default)]
    items: Option<JobItems>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct JobPageMetadata {
    resource_version: Option<String>,
    #[serde(rename = "continue")]
    next: Option<String>,
}

#[derive(Debug, Default)]
struct JobItems {
    kept: Vec<WatchObject>,
    is_too_long: bool,
}

/// One line of a watch.
#[derive(Debug, Deserialize)]
pub(super) struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: WatchObject,
}

/// A Job by its metadata, or the status with which a watch ends.
#[derive(Debug, Deserialize)]
struct WatchObject {
    #[serde(default)]
    metadata: Option<SlimJobMetadata>,
    code: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct SlimJobMetadata {
    name: Option<String>,
    namespace: Option<String>,
    uid: Option<String>,
    resource_version: Option<String>,
    labels: Option<JobLabels>,
    annotations: Option<JobAnnotations>,
    managed_fields: Option<ManagedStatusFields>,
}

#[derive(Debug, Deserialize)]
struct JobLabels {
    #[serde(rename = "app.kubernetes.io/managed-by")]
    managed_by: Option<String>,
    #[serde(rename = "renderhub.dev/hub-id")]
    hub_id: Option<String>,
    #[serde(rename = "renderhub.dev/task-uid")]
    task_uid: Option<String>,
}

#[derive(Debug, Deserialize)]
struct JobAnnotations {
    #[serde(rename = "renderhub.dev/spec-hash")]
    spec_hash: Option<String>,
    #[serde(rename = "renderhub.dev/chart-url")]
    chart_url: Option<String>,
}

/// The continue token of a page is too long.
#[derive(Debug)]
pub(super) struct BadContinueToken;

/// The event in a line of a watch.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum WatchLineEvent {
    /// A Job is there, new or changed.
    There(JobMetadata),
    /// A Job is gone.
    Gone(JobMetadata),
    /// The event does not concern the hub.
    Nothing,
    /// The resource version is too old; all Jobs have to be listed again.
    TooOld,
    /// The server ends the watch for another reason.
    Ended,
    /// The line is no event.
    Unreadable,
}

impl JobPage {
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Resource version of the list, at which a watch continues.
    pub(super) fn version(&self) -> Option<String> {
        version(self.metadata.resource_version.as_deref())
    }

    /// Continue token of the next page, `None` on the last one.
    ///
    /// # Errors
    /// If it is longer than [`CONTINUE_MAX`].
    pub(super) fn next(&self) -> Result<Option<&str>, BadContinueToken> {
        match self.metadata.next.as_deref() {
            Some(next) if next.len() > CONTINUE_MAX => Err(BadContinueToken),
            next => Ok(next.filter(|next| !next.is_empty())),
        }
    }

    /// Whether it has more Jobs than the hub requested.
    pub(super) fn is_too_long(&self) -> bool {
        self.items.as_ref().is_some_and(|items| items.is_too_long)
    }

    /// The hub's Jobs on it.
    pub(super) fn jobs(self, view: JobFilter<'_>) -> impl Iterator<Item = JobMetadata> {
        let items = self.items.unwrap_or_default().kept.into_iter();
        items.filter_map(move |item| item.metadata?.into_job(view))
    }
}

impl WatchLine {
    /// The event in a line, and the resource version after it.
    pub(super) fn parse(line: &[u8], view: JobFilter<'_>) -> (WatchLineEvent, Option<String>) {
        let Ok(Self { kind, object }) = serde_json::from_slice(line) else {
            return (WatchLineEvent::Unreadable, None);
        };
        if kind == "ERROR" {
            let is_old = object.code == Some(410);
            return (
                if is_old {
                    WatchLineEvent::TooOld
                } else {
                    WatchLineEvent::Ended
                },
                None,
            );
        }
        let Some(meta) = object.metadata else {
            return (WatchLineEvent::Unreadable, None);
        };
        let version = version(meta.resource_version.as_deref());
        let event = match kind.as_str() {
            "ADDED" | "MODIFIED" => meta
                .into_job(view)
                .map_or(WatchLineEvent::Nothing, WatchLineEvent::There),
            "DELETED" => meta
                .into_job(view)
                .map_or(WatchLineEvent::Nothing, WatchLineEvent::Gone),
            "BOOKMARK" => WatchLineEvent::Nothing,
            _ => WatchLineEvent::Unreadable,
        };
        (event, version)
    }
}

impl SlimJobMetadata {
    /// The Job, if it is one of the hub's in this namespace: the server may ignore the label selector.
    fn into_job(self, view: JobFilter<'_>) -> Option<JobMetadata> {
        let labels = self.labels?;
        let is_ours = labels.hub_id.as_deref() == Some(view.hub.as_str())
            && labels.managed_by.as_deref() == Some(labels::MANAGED_BY_VALUE)
            && self.namespace.as_deref() == Some(view.namespace);
        let task = labels.task_uid.filter(|uid| is_ours && is_uid(uid))?;
        let task = TaskUid::new(&task);
        let name = self
            .name
            .filter(|name| is_dns_label(name) && is_name_of(name, &task))?;
        let (hash, url) = self
            .annotations
            .map_or((None, None), |a| (a.spec_hash, a.chart_url));
        Some(JobMetadata {
            task,
            name,
            uid: self.uid.filter(|uid| is_uid(uid))?,
            spec_hash: hash.filter(|hash| is_hash(hash)).unwrap_or_default(),
            chart_url: url.filter(|url| is_url(url)),
            hint: self
                .managed_fields
                .map_or(CompletionHint::Now, |managed| managed.hint()),
        })
    }
}

fn is_hash(text: &str) -> bool {
    text.len() == hex(&[0; 32]).len() && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

fn is_url(text: &str) -> bool {
    text.len() <= URL_MAX && text.bytes().all(|byte| byte.is_ascii_graphic())
}

fn version(text: Option<&str>) -> Option<String> {
    let is_one = |text: &&str| {
        (1..=VERSION_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    text.filter(is_one).map(ToOwned::to_owned)
}

impl<'de> Deserialize<'de> for JobItems {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct JobItemsVisitor;
        impl<'de> Visitor<'de> for JobItemsVisitor {
            type Value = JobItems;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JobItems, A::Error> {
                let mut items = JobItems::default();
                while items.kept.len() < PAGE
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
        deserializer.deserialize_seq(JobItemsVisitor)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::job_name;
    use crate::kubernetes::watch::job_metadata;

    const TASK: &str = "0f5a4e0c-0001-4000-8000-000000000001";
    const JOB: &str = "1c9e2f60-0002-4000-8000-000000000002";

    fn full() -> Value {
        json!({
            "name": job_name("shop", &TaskUid::new(TASK)), "namespace": "render", "uid": JOB, "resourceVersion": "7",
            "labels": {"renderhub.dev/task-uid": TASK, "renderhub.dev/hub-id": "main-0f5a4e0c",
                "app.kubernetes.io/managed-by": "renderhub"},
            "annotations": {"renderhub.dev/spec-hash": "ab".repeat(32), "renderhub.dev/chart-url": "oci://r/x:1"},
            "managedFields": [{"manager": "hub", "fieldsV1": {"f:spec": {}}}],
        })
    }

    fn read(metadata: &Value) -> WatchLineEvent {
        let hub = HubId::new("main", "0f5a4e0c").unwrap();
        let view = JobFilter {
            hub: &hub,
            namespace: "render",
        };
        let line = json!({"object": {"metadata": metadata}, "type": "ADDED"}).to_string();
        WatchLine::parse(line.as_bytes(), view).0
    }

    #[test]
    fn a_job_is_decoded_as_by_the_watch_of_the_hubs_own_cluster() {
        let fields = [
            json!([]),
            Value::Null,
            json!([{"fieldsV1": {"f:spec": {}}}, {}]),
            json!([{"fieldsV1": {"f:status": {"f:conditions": {}}}}]),
            json!([{"fieldsV1": {"f:status": {"f:active": {}}}}, {"fieldsV1": {"f:status": {"f:completionTime": {}}}}]),
        ];
        for managed in fields {
            let mut metadata = full();
            metadata["managedFields"] = managed;
            let theirs = job_metadata(&serde_json::from_value(metadata.clone()).unwrap()).unwrap();
            assert_eq!(read(&metadata), WatchLineEvent::There(theirs), "{metadata}");
        }
    }

    /// Holds: H5.
    #[test]
    fn a_job_with_a_uid_that_no_api_server_gives_is_none() {
        assert!(matches!(read(&full()), WatchLineEvent::There(_)));
        let odd = [
            "j1".to_owned(),
            JOB.to_uppercase(),
            "z".repeat(36),
            "0".repeat(37),
            String::new(),
        ];
        for uid in odd {
            let (mut of_job, mut of_task) = (full(), full());
            of_job["uid"] = json!(uid);
            of_task["labels"]["renderhub.dev/task-uid"] = json!(uid);
            of_task["name"] = json!(job_name("shop", &TaskUid::new(&uid)));
            for metadata in [of_job, of_task] {
                assert_eq!(read(&metadata), WatchLineEvent::Nothing, "{metadata}");
            }
        }
    }

    /// Holds: H4.
    #[test]
    fn fields_of_an_invalid_shape_are_dropped() {
        let long = "a".repeat(3_000);
        for (annotation, value) in [
            ("renderhub.dev/spec-hash", json!("canary")),
            ("renderhub.dev/spec-hash", json!("zz".repeat(32))),
            ("renderhub.dev/chart-url", json!(long)),
            ("renderhub.dev/chart-url", json!("oci://r/x:1\n\u{1b}[31m")),
        ] {
            let mut metadata = full();
            metadata["annotations"][annotation] = value;
            let WatchLineEvent::There(job) = read(&metadata) else {
                panic!("{metadata}");
            };
            let is_dropped = job.spec_hash.is_empty() || job.chart_url.is_none();
            assert!(is_dropped, "{job:?}");
        }
        for odd in ["", "1 2", "1\n", &"1".repeat(65)] {
            assert_eq!(version(Some(odd)), None, "{odd:?}");
        }
        assert_eq!(version(Some("123")).as_deref(), Some("123"));
    }
}
