//! What of an object is decoded, what is kept, and what that costs.

use allocation_counter::{AllocationInfo, measure};
use serde_json::json;

use super::kept_labels::MAX_LABELS;
use super::*;
use crate::api::conditions::Reason;
use crate::api::labels::{FINALIZER, PIPELINE};
use crate::api::pipeline::{
    ComponentVersionSpec, PipelineStatus, ProfileSpec, ProfileStatus, ReleaseSpec, ReleaseStatus,
};
use crate::plan::pipeline::object_map::NamesOthers as _;
use crate::plan::task::validate::validate;

/// Most bytes of an object that an API server stores.
const LARGEST: usize = 1_500_000;

fn spec() -> Value {
    json!({
        "config": {"type": "slides"}, "repository": "team-a/talk", "tag": "1", "registryRef": {"name": "main"},
    })
}

fn object(metadata: &Value, spec: &Value) -> String {
    let mut whole = json!({
        "apiVersion": "renderhub.dev/v1alpha1", "kind": "RenderTask", "spec": spec,
        "metadata": {"name": "talk", "namespace": "team-a", "uid": "t1", "resourceVersion": "7", "generation": 1},
    });
    for (key, value) in metadata.as_object().into_iter().flatten() {
        whole["metadata"][key] = value.clone();
    }
    whole.to_string()
}

/// The task, and what it took to decode and takes to keep.
fn read(text: &str) -> (Task, AllocationInfo) {
    let mut task = None;
    let info = measure(|| {
        let object: SlimObject = serde_json::from_str(text).unwrap();
        task = object.into_task(TaskKind::RenderTask, None);
    });
    (task.unwrap(), info)
}

fn bytes(of: u64) -> usize {
    usize::try_from(of).unwrap()
}

/// Names as long as an API server takes them, as many as fit into an object.
fn long_names() -> Vec<String> {
    let (prefix, suffix) = (vec!["p".repeat(63); 3].join("."), "s".repeat(55));
    (0..LARGEST / 260)
        .map(|n| format!("{prefix}/{suffix}{n:07}"))
        .collect()
}

/// Holds: B3.
#[test]
#[expect(clippy::too_many_lines, reason = "it lists what is tried")]
fn of_metadata_only_the_names_are_kept_and_finalizers_are_counted() {
    let names = long_names();
    let map: serde_json::Map<_, _> = names.iter().map(|name| (name.clone(), json!("v"))).collect();
    let owners: Vec<_> = names
        .iter()
        .map(|name| json!({"apiVersion": "v1", "kind": "Pod", "name": name, "uid": "u"}))
        .collect();
    let managed: Vec<_> = names
        .iter()
        .map(|name| json!({"manager": name, "fieldsV1": {"f:a": {}}}))
        .collect();
    let mut finalizers = names.clone();
    finalizers.insert(5, FINALIZER.to_owned());
    for (field, value) in [
        ("finalizers", json!(finalizers)),
        ("labels", json!(map)),
        ("annotations", json!(map)),
        ("ownerReferences", json!(owners)),
        ("managedFields", json!(managed)),
        ("generateName", json!("n".repeat(LARGEST))),
        ("selfLink", json!("n".repeat(LARGEST))),
        ("unknown", json!({"a": names})),
    ] {
        let text = object(&json!({field: value}), &spec());
        assert!(text.len() > LARGEST - 100_000, "{field}");
        let (task, info) = read(&text);
        let kept = usize::try_from(info.bytes_current).unwrap();
        println!(
            "{field}: {} bytes are read, {} at once, {kept} kept",
            text.len(),
            info.bytes_max
        );
        assert!(
            kept <= task.kept_bytes() && kept < 8 << 10,
            "{field}: {kept} are kept, {} counted",
            task.kept_bytes()
        );
        assert!(info.bytes_max < 64 << 10, "{field}: {info:?}");
        let counted = if field == "finalizers" { names.len() + 1 } else { 0 };
        assert_eq!(
            (task.finalizers.count, task.has_finalizer()),
            (counted, counted > 0),
            "{field}"
        );
    }
}

/// Holds: B3.
#[test]
#[expect(clippy::too_many_lines, reason = "it lists what is tried")]
fn budgets_count_no_less_than_is_kept() {
    let resource = |n: usize| {
        (
            format!("r{n}"),
            json!({"repository": "r", "tag": "", "helm": {"name": "n", "version": "1"}}),
        )
    };
    let resources: serde_json::Map<_, _> = (0..900).map(resource).collect();
    let chart = json!({"name": "talk", "version": "1"});
    let release = json!({"type": "release", "release": {
        "chart": chart, "values": {"text": "x".repeat(100_000), "list": vec![0; 2_000]},
        "input": {"component": {"name": "c"}, "resources": resources, "entrypoint": {"resourceName": "a", "type": "helm"}},
    }});
    let bootstrap = json!({"type": "bootstrap", "bootstrap": {"chart": chart, "input": {"releases": resources, "userdata": "x".repeat(9_000)}}});
    let names = json!({
        "clusterName": "c".repeat(253), "rendererClassName": "c".repeat(253), "serviceAccountName": "c".repeat(253),
        "owner": {"kind": "K".repeat(63), "namespace": "n".repeat(63), "name": "o".repeat(253)},
    });
    for (what, change) in [
        ("little", json!({})),
        ("a release", json!({"config": release})),
        ("a bootstrap", json!({"config": bootstrap})),
        ("names", names),
        (
            "a text",
            json!({"config": {"type": "slides", "deck": "x".repeat(LARGEST)}}),
        ),
        (
            "no task's",
            json!({"repository": 7, "config": {"deck": "x".repeat(LARGEST)}}),
        ),
    ] {
        let mut spec = spec();
        for (key, value) in change.as_object().into_iter().flatten() {
            spec[key] = value.clone();
        }
        let (task, info) = read(&object(&json!({}), &spec));
        let kept = usize::try_from(info.bytes_current).unwrap();
        println!("{what}: {kept} bytes are kept, {} counted", task.kept_bytes());
        assert!(
            kept <= task.kept_bytes(),
            "{what}: {kept} are kept, {} counted",
            task.kept_bytes()
        );
    }
}

/// The most values that a spec may have, in the shape that takes most memory, and as many more.
fn small_things(more: usize) -> Value {
    let mut spec = spec();
    let others = values(&spec.to_string()) + 2;
    let things = (MAX_VALUES - others) / 2 + more;
    spec["config"]["deck"] = json!(vec![json!({"a": 1}); things]);
    spec
}

/// Holds: B11.
#[test]
fn a_spec_of_too_many_values_is_not_decoded_and_gets_a_condition() {
    let (task, info) = read(&object(&json!({}), &small_things(0)));
    println!("{MAX_VALUES} values take {} bytes at once", info.bytes_max);
    assert!(!task.decoded.is_oversized && validate(&task).is_ok());
    assert!(bytes(info.bytes_max) < 4 << 20, "{info:?}");
    let (task, _) = read(&object(&json!({}), &small_things(2)));
    let refusal = validate(&task).unwrap_err();
    assert_eq!(refusal.reason, Reason::ConfigTooLarge);
    assert_eq!(
        refusal.message,
        "the spec has more than 10000 values, keys and list entries counted; make a new task with fewer, such as one string instead of a long list"
    );
    let (task, info) = read(&object(&json!({}), &small_things(100_000)));
    assert!(task.decoded.is_oversized && task.decoded.spec.is_none());
    assert!(bytes(info.bytes_max) < 4 << 20, "{info:?}");
}

#[test]
fn what_a_text_holds_are_no_values() {
    for (text, expected) in [
        ("null", 1),
        (r#"{"a": "[,{,", "b": "\\", "c": "\","}"#, 4),
        // An empty one counts as if it had something in it.
        ("[[1, 2], {}]", 6),
    ] {
        assert_eq!(values(text), expected, "{text}");
    }
    let mut spec = spec();
    spec["config"]["deck"] = json!("a,[b]{c}\"\n".repeat(20_000));
    let (task, _) = read(&object(&json!({}), &spec));
    assert!(validate(&task).is_ok() && task.decoded.config.len() > 200_000);
}

/// Holds: B11.
#[test]
fn text_that_would_be_decoded_as_values_is_not_decoded() {
    let text = format!("[{}0]", "0,".repeat(500_000));
    for key in [RAW_VALUE, "a"] {
        let mut spec = spec();
        spec["config"]["deck"] = json!({ key: text });
        let (task, info) = read(&object(&json!({}), &spec));
        assert_eq!(task.decoded.is_oversized, key == RAW_VALUE);
        assert!(bytes(info.bytes_max) < 8 << 20, "{key}: {info:?}");
    }
    // As a text it is one like any other.
    let mut spec = spec();
    spec["config"]["deck"] = json!([format!("a {RAW_VALUE} of serde_json")]);
    let (task, _) = read(&object(&json!({}), &spec));
    assert!(validate(&task).is_ok());
}

/// Holds: B11.
#[test]
fn a_status_of_too_many_values_is_none_and_says_nothing() {
    let mut whole: Value = serde_json::from_str(&object(&json!({}), &spec())).unwrap();
    whole["status"] = json!({"conditions": vec![json!({"a": 1}); 20_000]});
    let (task, info) = read(&whole.to_string());
    assert!(validate(&task).is_ok() && task.status.conditions.is_empty());
    assert!(bytes(info.bytes_max) < 1 << 20, "{info:?}");
}

/// An object of the pipeline, and what it took to decode and takes to keep.
fn read_labelled<S, T>(labels: &Value, spec: &Value) -> (PipelineObject<S, T>, AllocationInfo)
where
    S: DeserializeOwned,
    T: DeserializeOwned + Default,
{
    let text = object(&json!({"labels": labels}), spec);
    let mut read = None;
    let info = measure(|| {
        let object: LabelledObject = serde_json::from_str(&text).unwrap();
        read = object.into_object();
    });
    (read.unwrap().1, info)
}

fn labels(count: usize) -> Value {
    let labels = (0..count).map(|number| (format!("{number:05}"), json!("")));
    Value::Object(labels.collect())
}

/// Holds: B3, F6.
#[test]
fn labels_without_end_take_no_memory() {
    let spec = json!({"componentVersionRef": {"name": "c"}});
    for (count, are_kept) in [
        (0, true),
        (MAX_LABELS, true),
        (MAX_LABELS + 1, false),
        (150_000, false),
    ] {
        let (release, info) = read_labelled::<ReleaseSpec, ReleaseStatus>(&labels(count), &spec);
        let kept = if are_kept { count } else { 0 };
        assert_eq!(
            (release.labels.len(), release.spec.is_some()),
            (kept, true),
            "{count}"
        );
        assert!(info.bytes_max < 256 << 10, "{count}: {info:?}");
    }
    let text = object(&json!({"labels": labels(MAX_LABELS + 1)}), &spec);
    let object: LabelledObject = serde_json::from_str(&text).unwrap();
    assert!(object.has_too_many_labels() && !object.clone().without_labels().has_too_many_labels());
}

/// Holds: B3, F6.
#[test]
fn objects_of_the_pipeline_count_no_less_than_is_kept() {
    let values: Vec<_> = (0..32).map(|number| format!("{number}")).collect();
    let requirement = |number| json!({"key": format!("k{number}"), "operator": "NotIn", "values": values});
    let requirements: Vec<_> = (0..16).map(requirement).collect();
    let selector = json!({"matchLabels": labels(16), "matchExpressions": requirements});
    let resources = (0..256).map(|number| (format!("{number}"), json!({"repository": "r", "tag": "1"})));
    let resources: serde_json::Map<_, _> = resources.collect();
    let none = labels(0);
    let release = json!({"componentVersionRef": {"name": "c"}, "antiAffinity": selector});
    let (release, info) = read_labelled::<ReleaseSpec, ReleaseStatus>(&labels(MAX_LABELS), &release);
    assert!(release.spec.is_some());
    counts("a Release", release.kept_bytes(), info);
    let profile = json!({"releaseRef": {"name": "r"}, "targetSelector": selector});
    let (profile, info) = read_labelled::<ProfileSpec, ProfileStatus>(&none, &profile);
    assert!(profile.spec.is_some());
    counts("a Profile", profile.kept_bytes(), info);
    let version = json!({
        "componentRef": {"name": "c"}, "tag": "1", "resources": resources,
        "entrypoint": {"resourceName": "1", "type": "helm"},
    });
    let (version, info) = read_labelled::<ComponentVersionSpec, PipelineStatus>(&none, &version);
    assert!(version.spec.is_some());
    counts("a ComponentVersion", version.kept_bytes(), info);
}

fn counts(what: &str, counted: usize, info: AllocationInfo) {
    let kept = bytes(info.bytes_current.try_into().unwrap());
    println!("{what}: {kept} bytes are kept, {counted} counted");
    assert!(
        kept <= counted && counted < 6 * kept,
        "{what}: {kept} are kept, {counted} counted"
    );
}

#[test]
fn a_task_of_the_pipeline_is_known_by_its_label() {
    for (metadata, has_label) in [
        (json!({}), false),
        (json!({"labels": null}), false),
        (json!({"labels": {}}), false),
        (
            json!({"labels": {"another": PIPELINE, "renderhub.dev/other": "shop"}}),
            false,
        ),
        (json!({"labels": {"another": "", PIPELINE: "shop"}}), true),
        (json!({"labels": {PIPELINE: ""}}), true),
        (json!({"annotations": {PIPELINE: "shop"}}), false),
    ] {
        let read: SlimObject = serde_json::from_str(&object(&metadata, &spec())).unwrap();
        assert_eq!(read.has_pipeline_label(), has_label, "{metadata}");
    }
}
