//! `docs/security/tenant-fields.md` has a row for each field of a task that a tenant can fill: what bounds it, what is beyond,
//! what the hub keeps of it, and which test holds that. It is made of the schema and of the lists below.
//!
//! `UPDATE_DOCS=1 cargo test --workspace --test docs` writes the page.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use renderhub::plan::task::finalizer_summary::MAX_FINALIZERS;
use renderhub::plan::task::validate::{MAX_CONFIG_BYTES, MAX_VALUES};
use serde_json::Value;

use super::{read, root};

const PAGE: &str = "docs/security/tenant-fields.md";

const INTRODUCTION: &str = "\
# What a tenant can fill

<!-- Made by `UPDATE_DOCS=1 cargo test --workspace --test docs` from tests/docs/tenant_fields.rs and from the schema. -->

Each field of a task, with what bounds it. A tenant may fill every one of them, by a careless role also the status. An object is 1.5 MiB
at the most, which the API server sees to; the hub reads objects of tenants in pages of 8, or one by one where the server streams its lists,
and decodes one after the other. What it keeps of whole tasks counts in one budget, by the bytes that are kept:
[what the hub remembers](../concepts/memory.md).
";

/// What is so of one field, or of all below it where it ends in `.*`.
struct Filled {
    path: &'static str,
    /// What the hub keeps of it.
    kept: &'static str,
    /// What bounds it where the schema does not.
    bound: Option<Bound>,
}

/// What the hub itself sees to.
struct Bound {
    most: fn() -> String,
    beyond: &'static str,
    /// File that holds it.
    place: &'static str,
    /// File and function of the test.
    test: (&'static str, &'static str),
}

const NOTHING: &str = "nothing";
const WITH_THE_TASK: &str = "while the task waits or runs";

const fn by_schema(path: &'static str, kept: &'static str) -> Filled {
    Filled {
        path,
        kept,
        bound: None,
    }
}

const fn by_hub(
    path: &'static str,
    kept: &'static str,
    most: fn() -> String,
    beyond: &'static str,
    place: &'static str,
    test: (&'static str, &'static str),
) -> Filled {
    Filled {
        path,
        kept,
        bound: Some(Bound {
            most,
            beyond,
            place,
            test,
        }),
    }
}

/// Metadata that the hub does not read.
const fn skipped(path: &'static str) -> Filled {
    by_hub(
        path,
        NOTHING,
        || "none: it is skipped where the object is read".to_owned(),
        "it costs the time to skip it",
        "src/kubernetes/object.rs",
        (
            "src/kubernetes/object/tests.rs",
            "of_metadata_only_the_names_are_kept_and_finalizers_are_counted",
        ),
    )
}

/// Metadata that the API server writes or bounds itself.
const fn by_server(path: &'static str, kept: &'static str, most: fn() -> String) -> Filled {
    by_hub(
        path,
        kept,
        most,
        "the API server refuses the task, or writes the field itself",
        "the API server",
        (
            "src/kubernetes/object/tests.rs",
            "of_metadata_only_the_names_are_kept_and_finalizers_are_counted",
        ),
    )
}

fn free_form() -> String {
    format!("{MAX_VALUES} values in the whole spec; {MAX_CONFIG_BYTES} bytes of `config` as JSON")
}

const FREE_FORM_TEST: (&str, &str) = (
    "src/kubernetes/object/tests.rs",
    "a_spec_of_too_many_values_is_not_decoded_and_gets_a_condition",
);

/// Free-form parts of the configuration, which no schema looks into.
const fn open(path: &'static str) -> Filled {
    by_hub(
        path,
        "as text, in `config`",
        free_form,
        "the task gets the reason `ConfigTooLarge`, and does not start",
        "src/plan/task/validate.rs",
        FREE_FORM_TEST,
    )
}

/// The first that fits a field counts.
#[rustfmt::skip]
const FIELDS: &[Filled] = &[
    by_server("metadata.name", "as long as the task exists", || "253 characters".to_owned()),
    by_server("metadata.namespace", "once, as long as a task is in it or names it", || "63 characters".to_owned()),
    by_server("metadata.uid", "as long as the task exists", || "36 characters".to_owned()),
    by_server("metadata.resourceVersion", "as a number", || "20 digits".to_owned()),
    by_server("metadata.generation", "as a number", || "64 bits".to_owned()),
    by_server("metadata.creationTimestamp", "as a number", || "a time".to_owned()),
    by_server("metadata.deletionTimestamp", "as a number", || "a time".to_owned()),
    by_hub("metadata.finalizers", "how many there are, and the place of the hub's own",
        || format!("{MAX_FINALIZERS} besides the hub's own"),
        "the task gets the reason `InvalidSpec`, and does not start before some are taken off; one that runs goes on; it can be deleted as ever",
        "src/plan/task/finalizer_summary.rs", ("tests/storms/large.rs", "a_megabyte_of_finalizers_on_each_task_costs_others_nothing")),
    skipped("metadata.annotations"),
    by_hub("metadata.labels", "whether `renderhub.dev/pipeline` is among them", || "none: the others are skipped where the object is read".to_owned(),
        "it costs the time to skip them; with that label the pipeline is shown the task", "src/kubernetes/object/kept_labels.rs",
        ("src/kubernetes/object/tests.rs", "of_metadata_only_the_names_are_kept_and_finalizers_are_counted")),
    skipped("metadata.managedFields"),
    skipped("metadata.ownerReferences"),
    skipped("metadata.generateName"),
    skipped("metadata.selfLink"),
    skipped("metadata.deletionGracePeriodSeconds"),
    open("spec.config (fields that the schema does not know)"),
    open("spec.config.release.values"),
    open("spec.config.bootstrap.input.userdata"),
    by_schema("spec.config.release.input.resources.*", "as text, in `config`"),
    by_schema("spec.config.bootstrap.input.releases.*", "as text, in `config`"),
    by_schema("spec.config.*", "as text, in `config`, and decoded while the task waits or runs"),
    by_schema("spec.clusterName", "once for all tasks that name it, as long as one of them exists"),
    by_schema("spec.kubeConfig.*", "once for all tasks that name it, as long as one of them exists"),
    by_schema("spec.deploymentNamespace", "once for all tasks that name it, as long as one of them exists"),
    by_schema("spec.serviceAccountName", "once for all tasks that name it, as long as one of them exists"),
    by_schema("spec.registryRef.namespace", "once for all tasks that wait for it"),
    by_schema("spec.failedJobTTL", "as a time"),
    by_schema("spec.ttlSecondsAfterFinished", "as a time"),
    by_schema("spec.*", WITH_THE_TASK),
    by_schema("status.*", "only what the hub said itself, packed"),
];

/// A leaf, a list or a map of the schema, with the text of its bound.
struct Place {
    path: String,
    most: Option<String>,
}

fn places(path: &str, schema: &Value, found: &mut Vec<Place>) {
    let is = |key: &str| !schema[key].is_null();
    let text = |key: &str| whole(&schema[key]);
    let mut put = |most: Option<String>| {
        let path = path.to_owned();
        found.push(Place { path, most });
    };
    if let Some(words) = schema["enum"].as_array() {
        put(Some(format!("one of {} words", words.len())));
    } else if is("maxLength") {
        put(Some(format!("{} characters", text("maxLength"))));
    } else if is("maxItems") {
        put(Some(format!("{} elements", text("maxItems"))));
    } else if is("maxProperties") {
        put(Some(format!("{} entries", text("maxProperties"))));
    } else if schema["format"] == "date-time" {
        put(Some("a time".to_owned()));
    } else if schema["type"] == "boolean" {
        put(Some("true or false".to_owned()));
    } else if schema["type"] == "integer" && is("maximum") {
        put(Some(format!("{} to {}", text("minimum"), text("maximum"))));
    } else if schema["type"] == "integer" {
        put(Some("64 bits".to_owned()));
    } else if !is("properties") {
        put(None);
    }
    for (name, child) in schema["properties"].as_object().into_iter().flatten() {
        places(&format!("{path}.{name}"), child, found);
    }
    for (key, suffix) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[key].is_object() {
            places(&format!("{path}{suffix}"), &schema[key], found);
        }
    }
}

/// A bound that the schema may hold as a fraction.
fn whole(bound: &Value) -> String {
    let text = bound.to_string();
    text.strip_suffix(".0").unwrap_or(&text).to_owned()
}

/// Fields of the schema, and those of metadata, which no schema of a custom resource bounds.
fn all() -> Vec<Place> {
    let crds = renderhub::api::custom_resource_definitions();
    let task = crds
        .iter()
        .find(|crd| crd.spec.names.kind == "RenderTask")
        .unwrap();
    let schema = task.spec.versions[0].schema.as_ref().unwrap();
    let schema = serde_json::to_value(schema.open_api_v3_schema.as_ref().unwrap()).unwrap();
    let mut found = Vec::new();
    let metadata = serde_json::to_value(schemars::schema_for!(ObjectMeta)).unwrap();
    for name in metadata["properties"].as_object().unwrap().keys() {
        let path = format!("metadata.{name}");
        found.push(Place { path, most: None });
    }
    let path = "spec.config (fields that the schema does not know)".to_owned();
    found.push(Place { path, most: None });
    for part in ["spec", "status"] {
        places(part, &schema["properties"][part], &mut found);
    }
    found
}

fn filled(path: &str) -> Option<&'static Filled> {
    FIELDS.iter().find(|field| match field.path.strip_suffix(".*") {
        // All below it, and it itself where it is a map or a list.
        Some(start) => path
            .strip_prefix(start)
            .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[', '{'])),
        None => field.path == path,
    })
}

fn page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| field | at most | beyond it | enforced in | the hub keeps | held by |\n|---|---|---|---|---|---|\n");
    for Place { path, most } in all() {
        let field = filled(&path).unwrap_or_else(|| panic!("{path}: say in FIELDS what bounds it"));
        let is_status = path.starts_with("status");
        let (most, beyond, place, test) = match (&field.bound, most) {
            (Some(bound), _) => ((bound.most)(), bound.beyond, bound.place, bound.test),
            (None, Some(most)) if is_status => (
                most,
                "the API server refuses the write; where it does not, the status is not the hub's, and the hub writes its own anew",
                "the schema",
                (
                    "tests/tenancy/status_forgery.rs",
                    "lies_about_a_task_that_waits_are_put_right_and_it_runs_once",
                ),
            ),
            (None, Some(most)) => (
                most,
                "the API server refuses the task",
                "the schema",
                ("tests/api/limits.rs", "each_bound_holds"),
            ),
            (None, None) => panic!("{path}: the schema does not bound it, nor does FIELDS"),
        };
        let (file, function) = test;
        writeln!(
            page,
            "| `{path}` | {most} | {beyond} | {place} | {} | [{file}](../../{file}): `{function}` |",
            field.kept
        )
        .unwrap();
    }
    page
}

/// Holds: B3.
#[test]
fn every_field_that_a_tenant_can_fill_has_a_bound() {
    let made = page();
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(PAGE), &made).unwrap();
    }
    let is_same = std::fs::read_to_string(root().join(PAGE)).is_ok_and(|text| text == made);
    assert!(
        is_same,
        "{PAGE} is outdated: UPDATE_DOCS=1 cargo test --workspace --test docs"
    );
    let paths: BTreeSet<_> = all().into_iter().map(|place| place.path).collect();
    assert!(paths.len() > 80, "only {} fields", paths.len());
    for field in FIELDS {
        let is_used = paths
            .iter()
            .any(|path| filled(path).is_some_and(|one| one.path == field.path));
        assert!(is_used, "{} is no field any more", field.path);
    }
}

#[test]
fn the_tests_that_hold_the_bounds_exist() {
    let tests = FIELDS.iter().filter_map(|field| field.bound.as_ref());
    for (file, function) in tests.map(|bound| bound.test) {
        assert!(
            read(file).contains(&format!("fn {function}(")),
            "{file}: {function}"
        );
    }
}
