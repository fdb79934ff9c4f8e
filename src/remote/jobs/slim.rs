//! Decodes of a watched Job only the few fields that the hub uses, and checks the shape of each.

use kube::api::ObjectMeta;
use serde::Deserialize;

use crate::api::names::{HubId, is_uid, unhex};
use crate::kubernetes::object::lean::LeanMetadata;
use crate::kubernetes::watch::{JobMetadata, job_metadata};
use crate::plan::task::adoption::{ObjectCreator, maker};
use crate::plan::task::job_state::CompletionHint;

/// Longest resource version.
const VERSION_MAX: usize = 64;

/// Selects the Jobs of one hub in one namespace.
#[derive(Clone, Copy, Debug)]
pub(super) struct JobFilter<'a> {
    pub(super) hub: &'a HubId,
    pub(super) namespace: &'a str,
}

impl JobFilter<'_> {
    /// The Job, if it is one of the hub's in this namespace: the server may ignore the label selector.
    pub(super) fn job(self, meta: &ObjectMeta, hint: CompletionHint) -> Option<JobMetadata> {
        let is_own =
            maker(self.hub, meta) == ObjectCreator::Own && meta.namespace.as_deref() == Some(self.namespace);
        let job = is_own.then(|| job_metadata(meta, hint))?;
        let job = job.filter(|job| is_uid(&job.uid) && is_uid(job.task.as_str()))?;
        let has_hash = unhex(&job.spec_hash).is_some();
        let is_url = |url: &String| url.bytes().all(|byte| byte.is_ascii_graphic());
        Some(JobMetadata {
            spec_hash: if has_hash { job.spec_hash } else { String::new() },
            chart_url: job.chart_url.filter(is_url),
            ..job
        })
    }
}

/// One line of a watch.
#[derive(Deserialize)]
pub(super) struct WatchLine {
    #[serde(rename = "type")]
    kind: String,
    object: WatchObject,
}

/// A Job by its metadata, or the status with which a watch ends.
#[derive(Deserialize)]
struct WatchObject {
    metadata: Option<LeanMetadata>,
    code: Option<i64>,
}

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

impl WatchLine {
    /// The event in a line, and the resource version after it.
    pub(super) fn parse(line: &[u8], view: JobFilter<'_>) -> (WatchLineEvent, Option<String>) {
        let Ok(Self { kind, object }) = serde_json::from_slice(line) else {
            return (WatchLineEvent::Unreadable, None);
        };
        if kind == "ERROR" {
            let event = match object.code {
                Some(410) => WatchLineEvent::TooOld,
                _ => WatchLineEvent::Ended,
            };
            return (event, None);
        }
        let Some((meta, hint)) = object.metadata.map(LeanMetadata::read) else {
            return (WatchLineEvent::Unreadable, None);
        };
        let job = |event: fn(JobMetadata) -> WatchLineEvent| {
            view.job(&meta, hint).map_or(WatchLineEvent::Nothing, event)
        };
        let event = match kind.as_str() {
            "ADDED" | "MODIFIED" => job(WatchLineEvent::There),
            "DELETED" => job(WatchLineEvent::Gone),
            "BOOKMARK" => WatchLineEvent::Nothing,
            _ => WatchLineEvent::Unreadable,
        };
        (event, version(meta.resource_version.as_deref()))
    }
}

/// A resource version that can be sent back.
pub(super) fn version(text: Option<&str>) -> Option<String> {
    let is_one = |text: &&str| {
        (1..=VERSION_MAX).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    text.filter(is_one).map(ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::api::names::{TaskUid, job_name};

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
    fn a_job_is_decoded_as_by_the_decoder_of_whole_objects() {
        let fields = [
            (json!([]), CompletionHint::Now),
            (Value::Null, CompletionHint::Now),
            (json!([{"fieldsV1": {"f:spec": {}}}, {}]), CompletionHint::No),
            (
                json!([{"fieldsV1": {"f:status": {"f:conditions": {}}}}]),
                CompletionHint::Soon,
            ),
            (
                json!([{"fieldsV1": {"f:status": {"f:active": {}}}}, {"fieldsV1": {"f:status": {"f:completionTime": {}}}}]),
                CompletionHint::Now,
            ),
        ];
        for (managed, hint) in fields {
            let mut metadata = full();
            metadata["managedFields"] = managed;
            let whole: ObjectMeta = serde_json::from_value(metadata.clone()).unwrap();
            let theirs = job_metadata(&whole, hint).unwrap();
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
