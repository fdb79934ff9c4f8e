//! The generated files are those of the types, and the schema leaves nothing unsaid and nothing unbounded.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::Command;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use proptest::prelude::*;
use renderhub::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, Profile, RegistryBinding, Release, ReleaseBinding, Target,
};
use renderhub::api::{
    ClusterRegistry, ClusterRenderTask, QueuePolicy, ReferenceGrant, Registry, RenderCluster, RenderTask,
    RendererClass, custom_resource_definitions,
};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use support::programs;

/// Nodes that hold any JSON: their size is bounded by the request alone, and the hub refuses what no Secret can hold.
const FREE_FORM: &[&str] = &[
    "spec.config.bootstrap.input.userdata",
    "spec.config.release.values",
    "spec.profiles[].userdata",
    "spec.userdata",
    "spec.values",
];
/// Objects that keep fields the hub does not know, because another renderer may.
const OPEN: &str = "spec.config";

#[test]
fn generated_files_are_those_of_the_types() {
    let root = Path::new(programs::ROOT);
    let made = tempfile::tempdir().unwrap();
    let docs = made.path().join("api.md");
    let status = Command::new(programs::crdgen())
        .arg("--docs")
        .arg(&docs)
        .arg(made.path())
        .status()
        .unwrap();
    assert!(status.success());
    let files = root.join("charts/renderhub/files");
    for dir in ["crds", "policies"] {
        let (made, kept) = (names(&made.path().join(dir)), names(&files.join(dir)));
        assert_eq!(made, kept, "charts/renderhub/files/{dir}: run `make crds`");
        assert!(!made.is_empty());
    }
    for name in ["crds", "policies"].iter().flat_map(|dir| {
        names(&files.join(dir))
            .into_iter()
            .map(move |name| format!("{dir}/{name}"))
    }) {
        same(&made.path().join(&name), &files.join(&name));
    }
    same(&docs, &root.join("docs/api.md"));
}

fn names(dir: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

fn same(made: &Path, kept: &Path) {
    let read = |path: &Path| std::fs::read_to_string(path).unwrap();
    assert!(
        read(made) == read(kept),
        "{} is not what the types say: run `make crds`",
        kept.display()
    );
}

/// A node of a schema, with its path.
struct Node<'a> {
    path: String,
    schema: &'a Value,
    /// Whether it is a field, which has a name and so needs a description.
    is_field: bool,
}

/// Every node below the spec and status of a kind.
fn nodes(schema: &Value) -> Vec<Node<'_>> {
    let mut found = Vec::new();
    walk("", schema, false, &mut found);
    found
}

fn walk<'a>(path: &str, schema: &'a Value, is_field: bool, found: &mut Vec<Node<'a>>) {
    found.push(Node {
        path: path.to_owned(),
        schema,
        is_field,
    });
    let dot = if path.is_empty() { "" } else { "." };
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        walk(&format!("{path}{dot}{name}"), child, true, found);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", ".*")] {
        if schema[key].is_object() {
            walk(&format!("{path}{suffix}"), &schema[key], false, found);
        }
    }
}

/// Kind and schema of every CRD.
fn kinds() -> Vec<(String, Value)> {
    custom_resource_definitions()
        .into_iter()
        .map(|crd| (crd.spec.names.kind.clone(), schema(&crd)))
        .collect()
}

fn schema(crd: &CustomResourceDefinition) -> Value {
    let version = &crd.spec.versions[0];
    let schema = version.schema.as_ref().unwrap().open_api_v3_schema.as_ref();
    serde_json::to_value(schema.unwrap()).unwrap()
}

#[test]
fn every_field_is_described() {
    for (kind, schema) in kinds() {
        assert!(schema["description"].as_str().is_some_and(|text| text.len() > 20));
        for node in nodes(&schema).iter().filter(|node| node.is_field) {
            let text = node.schema["description"].as_str().unwrap_or_default();
            assert!(
                text.ends_with('.') && text.len() > 8,
                "{kind} {}: {text:?}",
                node.path
            );
        }
    }
}

/// A reference to a Secret has no namespace, so it means the one of the object; the one that has is behind a gate of its own.
///
/// Holds: C7.
#[test]
fn no_kind_can_name_a_secret_of_another_namespace() {
    let mut elsewhere = Vec::new();
    let mut named = 0;
    for (kind, schema) in kinds() {
        for Node { path, .. } in nodes(&schema) {
            let mut parts = path.rsplit('.');
            let (last, before) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let is_secrets = |part: &str| part.to_lowercase().contains("secret");
            named += usize::from(is_secrets(last));
            // What the hub says in a status is no reference of a tenant's.
            if path.starts_with("spec.") && is_secrets(before) && last.to_lowercase().contains("namespace") {
                elsewhere.push(format!("{kind} {path}"));
            }
        }
    }
    assert!(named > 10, "{named}");
    assert_eq!(
        elsewhere,
        [
            "RenderTask spec.kubeConfig.secretRef.namespace",
            "ClusterRenderTask spec.kubeConfig.secretRef.namespace",
        ]
    );
}

/// Holds: T5.
#[test]
fn every_string_list_map_and_number_is_bounded() {
    for (kind, schema) in kinds() {
        for Node { path, schema, .. } in nodes(&schema) {
            let has = |key: &str| !schema[key].is_null();
            let bounded = match schema["type"].as_str() {
                Some("string") => has("maxLength") || has("enum") || schema["format"] == "date-time",
                Some("array") => has("maxItems") && has("items"),
                Some("object") if has("additionalProperties") => {
                    has("maxProperties")
                        && schema["x-kubernetes-validations"]
                            .to_string()
                            .contains("size(key)")
                }
                Some("object") => has("properties"),
                Some("integer") => has("minimum") && (has("maximum") || path.ends_with("bservedGeneration")),
                Some("boolean") => true,
                None if schema["x-kubernetes-int-or-string"] == true => {
                    has("maxLength") && (has("pattern") || has("maximum") && has("x-kubernetes-validations"))
                }
                None => FREE_FORM.contains(&path.as_str()),
                Some(other) => panic!("{kind} {path}: a {other} has no bounds in this test"),
            };
            assert!(bounded, "{kind} {path}: {schema}");
        }
    }
}

/// Holds: T4.
#[test]
fn only_the_configuration_keeps_what_is_not_known() {
    for (kind, schema) in kinds() {
        for Node { path, schema, .. } in nodes(&schema) {
            let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
            let in_config = path.starts_with(OPEN);
            let is_map = !schema["additionalProperties"].is_null();
            let is_free_form = FREE_FORM.contains(&path.as_str());
            let expected = is_free_form || in_config && !is_map && schema["type"] == "object";
            assert_eq!(open, expected, "{kind} {path}");
            assert!(
                schema["nullable"].is_null(),
                "{kind} {path}: a null is an absent field"
            );
            assert!(
                !in_config || schema["default"].is_null(),
                "{kind} {path}: config is verbatim"
            );
        }
    }
}

#[test]
fn both_tasks_have_one_schema() {
    let kinds = kinds();
    let parts = |wanted: &str| {
        let (_, schema) = kinds.iter().find(|(kind, _)| kind == wanted).unwrap();
        schema["properties"].clone()
    };
    assert_eq!(parts("RenderTask"), parts("ClusterRenderTask"));
    for wanted in ["RenderTask", "ClusterRenderTask", "HydratedTarget"] {
        let (_, schema) = kinds.iter().find(|(kind, _)| kind == wanted).unwrap();
        let rules = schema["x-kubernetes-validations"].to_string();
        assert!(
            rules.contains("|| self.spec == oldSelf.spec"),
            "{wanted}: {rules}"
        );
    }
}

/// A status without a seal is believed when a hub starts, so its texts are matched.
#[test]
fn the_texts_of_a_status_are_matched_unless_it_has_a_seal() {
    let mut sealed = Vec::new();
    for (kind, schema) in kinds() {
        let status = &schema["properties"]["status"];
        if status.is_null() {
            continue;
        }
        let is_matched = |node: &Node<'_>| {
            !node.schema["pattern"].is_null() || !node.schema["x-kubernetes-validations"].is_null()
        };
        let is_sealed = !status["properties"]["seal"].is_null();
        let is_one_unit = status["x-kubernetes-map-type"] == "atomic";
        assert_eq!(
            is_one_unit, is_sealed,
            "{kind}: the hub alone writes it, and whole"
        );
        assert_eq!(nodes(status).iter().any(is_matched), !is_sealed, "{kind}");
        sealed.extend(is_sealed.then_some(kind));
    }
    sealed.sort();
    assert_eq!(
        sealed,
        ["ClusterRenderTask", "HydratedTarget", "RenderTask", "Target"]
    );
}

/// Plural and short name of every kind, in the order in which they are documented.
const NAMES: [(&str, &str); 16] = [
    ("rendertasks", "rt"),
    ("clusterrendertasks", "crt"),
    ("clusterregistries", "creg"),
    ("rendererclasses", "rcls"),
    ("renderclusters", "rcl"),
    ("queuepolicies", "qp"),
    ("registries", "reg"),
    ("referencegrants", "rgrant"),
    ("targets", "tgt"),
    ("releases", "rel"),
    ("releasebindings", "rlb"),
    ("profiles", "prf"),
    ("registrybindings", "rgb"),
    ("components", "comp"),
    ("componentversions", "cv"),
    ("hydratedtargets", "ht"),
];

/// The node at the path of a column; no value where there is none.
fn at_path<'s>(schema: &'s Value, path: &str) -> &'s Value {
    let mut node = schema;
    for (number, part) in path.split(['[', ']']).enumerate() {
        // What is in brackets chooses items of a list.
        if number % 2 == 1 {
            node = &node["items"];
            continue;
        }
        for name in part.split('.').filter(|name| !name.is_empty()) {
            node = &node["properties"][name];
        }
    }
    node
}

#[test]
fn every_kind_is_found_and_shown() {
    let short: Vec<(String, Vec<String>)> = custom_resource_definitions()
        .into_iter()
        .map(|crd| {
            let whole = schema(&crd);
            let names = crd.spec.names;
            assert_eq!(names.categories.unwrap(), ["renderhub"]);
            let version = &crd.spec.versions[0];
            let has_status = version.subresources.as_ref().is_some_and(|s| s.status.is_some());
            let none = ["Registry", "ReferenceGrant", "QueuePolicy"];
            let has_none = none.contains(&names.kind.as_str());
            assert_eq!(has_status, !has_none, "{}", names.kind);
            let columns = version.additional_printer_columns.as_ref().unwrap();
            assert_eq!(
                columns.iter().filter(|c| c.name == "Age").count(),
                1,
                "{}",
                names.kind
            );
            // The schema of a CRD says nothing of metadata.
            for column in columns.iter().filter(|c| !c.json_path.starts_with(".metadata.")) {
                let shown = at_path(&whole, &column.json_path);
                assert!(shown.is_object(), "{} {}", names.kind, column.json_path);
            }
            (names.plural, names.short_names.unwrap())
        })
        .collect();
    assert_eq!(
        short,
        NAMES.map(|(plural, short)| (plural.to_owned(), vec![short.to_owned()]))
    );
}

/// Any JSON of moderate size.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        "\\PC{0,12}".prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map("\\PC{0,6}", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}

/// Values that a schema admits, whatever its rules say of them together.
fn admitted(schema: &Value) -> BoxedStrategy<Value> {
    if let Some(words) = schema["enum"].as_array() {
        return prop::sample::select(words.clone()).boxed();
    }
    match schema["type"].as_str() {
        Some("string") if schema["format"] == "date-time" => Just(json!("2026-01-01T00:00:00Z")).boxed(),
        Some("string") => "\\PC{0,20}".prop_map(Value::from).boxed(),
        Some("boolean") => any::<bool>().prop_map(Value::from).boxed(),
        Some("integer") => integers(schema),
        Some("array") => prop::collection::vec(admitted(&schema["items"]), 0..3)
            .prop_map(Value::from)
            .boxed(),
        Some("object") if schema["additionalProperties"].is_object() => {
            let values = admitted(&schema["additionalProperties"]);
            prop::collection::btree_map("\\PC{0,8}", values, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
                .boxed()
        }
        Some("object") => objects(schema),
        _ if schema["x-kubernetes-int-or-string"] == true => {
            prop_oneof![Just(json!(1)), Just(json!("250m"))].boxed()
        }
        _ => any_json().boxed(),
    }
}

/// The bounds themselves, and what is between.
fn integers(schema: &Value) -> BoxedStrategy<Value> {
    let bound = |key: &str, other: i64| match schema[key].as_f64() {
        #[expect(clippy::cast_possible_truncation, reason = "bounds are small whole numbers")]
        Some(bound) => bound as i64,
        None => other,
    };
    let (low, high) = (bound("minimum", i64::MIN), bound("maximum", i64::MAX));
    prop_oneof![Just(low), Just(high), low..=high]
        .prop_map(Value::from)
        .boxed()
}

fn objects(schema: &Value) -> BoxedStrategy<Value> {
    let required: Vec<Value> = schema["required"].as_array().cloned().unwrap_or_default();
    let open = schema["x-kubernetes-preserve-unknown-fields"] == true;
    let none = Map::new();
    let mut object = Just(Map::new()).boxed();
    for (name, child) in schema["properties"].as_object().unwrap_or(&none) {
        let presence = if required.contains(&json!(name)) {
            Just(true).boxed()
        } else {
            any::<bool>().boxed()
        };
        let name = name.clone();
        object = (object, presence, admitted(child))
            .prop_map(move |(mut object, present, value)| {
                if present {
                    object.insert(name.clone(), value);
                }
                object
            })
            .boxed();
    }
    if open {
        object = (object, any_json())
            .prop_map(|(mut object, value)| {
                object.insert("unknownToTheHub".to_owned(), value);
                object
            })
            .boxed();
    }
    object.prop_map(Value::Object).boxed()
}

fn decodes<T: DeserializeOwned>(kind: &str) {
    let (_, schema) = kinds().into_iter().find(|(name, _)| name == kind).unwrap();
    proptest!(ProptestConfig::with_cases(128), |(object in admitted(&schema))| {
        let mut object = object;
        object["apiVersion"] = json!("renderhub.dev/v1alpha1");
        object["kind"] = json!(kind);
        object["metadata"] = json!({ "name": "any" });
        let text = object.to_string();
        let decoded: Result<T, _> = serde_json::from_value(object);
        prop_assert!(decoded.is_ok(), "{:?}: {text}", decoded.err());
    });
}

/// An object that the API server stores and the hub cannot decode would stop the hub for all others.
///
/// Holds: T6.
#[test]
fn the_types_decode_whatever_the_schema_admits() {
    decodes::<RenderTask>("RenderTask");
    decodes::<ClusterRenderTask>("ClusterRenderTask");
    decodes::<ClusterRegistry>("ClusterRegistry");
    decodes::<RendererClass>("RendererClass");
    decodes::<RenderCluster>("RenderCluster");
    decodes::<QueuePolicy>("QueuePolicy");
    decodes::<Registry>("Registry");
    decodes::<ReferenceGrant>("ReferenceGrant");
    decodes::<Target>("Target");
    decodes::<Release>("Release");
    decodes::<ReleaseBinding>("ReleaseBinding");
    decodes::<Profile>("Profile");
    decodes::<RegistryBinding>("RegistryBinding");
    decodes::<Component>("Component");
    decodes::<ComponentVersion>("ComponentVersion");
    decodes::<HydratedTarget>("HydratedTarget");
}
