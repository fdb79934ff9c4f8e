//! Each bound of the schema on a real API server: what is at it is taken, what is beyond it is refused.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::Result;
use kube::Client;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use renderhub_harness::ControlPlane;
use serde_json::{Value, json};
use support::api::{KINDS, api, full, install_crds, merge, object, release};

/// The control plane that the tests share; no policy is needed for what is made anew.
async fn client() -> Result<Client> {
    static INSTALLED: tokio::sync::OnceCell<()> = tokio::sync::OnceCell::const_new();
    let plane = ControlPlane::shared().await?;
    INSTALLED.get_or_try_init(|| install_crds(plane)).await?;
    plane.admin().client().await
}

/// Whether the API server takes the object, or its refusal.
async fn verdict(client: &Client, value: &Value) -> Result<Result<(), String>> {
    let kind = value["kind"].as_str().unwrap_or_default();
    let dry_run = PostParams {
        dry_run: true,
        ..PostParams::default()
    };
    match api(client, kind).create(&dry_run, &object(value.clone())).await {
        Ok(_) => Ok(Ok(())),
        Err(kube::Error::Api(status)) if status.code == 422 => Ok(Err(status.message.clone())),
        Err(other) => Err(other.into()),
    }
}

// === every bound of the schema ===

/// A value at a path, whether the API server should accept it, and a part of the refusal if not.
struct Probe {
    path: Vec<String>,
    value: Value,
    is_legal: bool,
}

/// The probes of a node and all below it, with `example` as what a valid object has there.
fn probes(schema: &Value, path: &[String], example: &Value, found: &mut Vec<Probe>) {
    let mut probe = |value: Value, is_legal: bool| {
        let path = path.to_vec();
        found.push(Probe {
            path,
            value,
            is_legal,
        });
    };
    let bound = |key: &str| schema[key].as_i64().or_else(|| whole(&schema[key]));
    let text = |length: i64| json!(text_for(path, usize::try_from(length).unwrap()));
    if schema["enum"].is_array() {
        probe(json!("Nonsense"), false);
    } else if let Some(most) = bound("maxLength") {
        probe(text(most), true);
        probe(text(most + 1), false);
        if bound("minLength").is_some_and(|least| least > 0) {
            probe(json!(""), false);
        }
    }
    if let (Some(least), Some(most)) = (bound("minimum"), bound("maximum")) {
        for (value, is_legal) in [(least, true), (least - 1, false), (most, true), (most + 1, false)] {
            probe(json!(value), is_legal);
        }
    }
    if let Some(most) = bound("maxItems") {
        probe(list(&example[0], most), true);
        probe(list(&example[0], most + 1), false);
    }
    if let Some(most) = bound("maxProperties") {
        let (_, element) = example.as_object().unwrap().iter().next().unwrap();
        probe(map((0..most).map(|n| format!("key-{n}")), element), true);
        probe(map((0..=most).map(|n| format!("key-{n}")), element), false);
        let longest = longest_key(schema);
        probe(map(["k".repeat(longest)].into_iter(), element), true);
        probe(map(["k".repeat(longest + 1)].into_iter(), element), false);
    }
    below(schema, path, example, found);
}

/// The probes of the fields or elements that the example has.
fn below(schema: &Value, path: &[String], example: &Value, found: &mut Vec<Probe>) {
    let child = |name: &str| [path, &[name.to_owned()]].concat();
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        if let Some(value) = example.get(name) {
            probes(field, &child(name), value, found);
        }
    }
    if schema["items"].is_object() {
        probes(&schema["items"], &child("0"), &example[0], found);
    }
    if schema["additionalProperties"].is_object() {
        let (name, value) = example.as_object().unwrap().iter().next().unwrap();
        probes(&schema["additionalProperties"], &child(name), value, found);
    }
}

/// A bound that the schema holds as a fraction.
fn whole(bound: &Value) -> Option<i64> {
    let bound = bound.as_f64().filter(|b| b.fract() == 0.0)?;
    #[expect(clippy::cast_possible_truncation, reason = "it is a small whole number")]
    Some(bound as i64)
}

/// Longest key of a map, as its rule has it.
fn longest_key(schema: &Value) -> usize {
    let rule = schema["x-kubernetes-validations"][0]["rule"].as_str().unwrap();
    rule.trim_end_matches(')')
        .rsplit(' ')
        .next()
        .unwrap()
        .parse()
        .unwrap()
}

/// A list of different elements.
fn list(element: &Value, length: i64) -> Value {
    let numbered = |n: i64| match element {
        Value::String(_) => json!(format!("n{n}")),
        object => {
            let mut object = object.clone();
            if object.get("name").is_some() {
                object["name"] = json!(format!("n{n}"));
            }
            object
        }
    };
    (0..length).map(numbered).collect()
}

fn map(keys: impl Iterator<Item = String>, value: &Value) -> Value {
    Value::Object(keys.map(|key| (key, value.clone())).collect())
}

/// Text of a length that fits the pattern at a path.
fn text_for(path: &[String], length: usize) -> String {
    let field = path.last().unwrap().as_str();
    let parent = path.iter().rev().nth(1).map_or("", String::as_str);
    let (start, letter) = match (parent, field) {
        ("chart", "version") => ("1.0.0-", "a"),
        (_, "tokenRealm") => ("https://", "a"),
        (_, "kind") => ("", "A"),
        ("limits" | "requests", _) => ("", "1"),
        _ => ("", "a"),
    };
    let text = start.to_owned() + &letter.repeat(length - start.len());
    match field {
        // Labels of a host name have at most 63 characters.
        "baseURL" | "hostname" => text
            .char_indices()
            .map(|(at, c)| if at % 60 == 59 && at + 1 < length { '.' } else { c })
            .collect(),
        _ => text,
    }
}

/// The object with the value, and with what the rules tie to it.
fn applied(whole: &Value, probe: &Probe) -> Value {
    let mut object = whole.clone();
    let pointer = format!("/{}", probe.path.join("/"));
    let input = match whole["kind"].as_str() {
        Some("ComponentVersion") => "/spec",
        _ => "/spec/config/release/input",
    };
    *object.pointer_mut(&pointer).unwrap() = probe.value.clone();
    let text = probe.value.as_str().unwrap_or_default();
    if pointer.ends_with("/chart/name") {
        object["spec"]["repository"] = json!(format!("t/{text}"));
    } else if pointer.ends_with("/chart/version") {
        object["spec"]["tag"] = json!(text);
    } else if pointer.ends_with("/entrypoint/resourceName") {
        let resources = &mut object.pointer_mut(input).unwrap()["resources"];
        let resource = resources.as_object().unwrap().values().next().unwrap().clone();
        *resources = json!({ text: resource });
    } else if pointer == format!("{input}/resources") {
        let name = probe.value.as_object().unwrap().keys().next().unwrap();
        object.pointer_mut(input).unwrap()["entrypoint"]["resourceName"] = json!(name);
    }
    object
}

/// Whether a rule ties the field to another one, which a probe of this object would break.
fn is_tied(whole: &Value, path: &[String]) -> bool {
    let type_ = whole["spec"]["config"]["type"].as_str();
    let is_chart = type_.is_some_and(|type_| type_ != "other");
    let field = path.last().map(String::as_str);
    match field {
        Some("repository" | "tag") => path.len() == 2 && is_chart,
        Some("type") => path.len() == 3 && is_chart,
        _ => false,
    }
}

/// Jobs may run in the namespace, and would be looked for in another one.
#[tokio::test]
async fn of_a_cluster_all_but_the_namespace_of_its_jobs_can_be_changed() -> Result<()> {
    let clusters = api(&client().await?, "RenderCluster");
    let mut cluster = full::cluster();
    cluster["metadata"]["name"] = json!("moved");
    let made = clusters.create(&PostParams::default(), &object(cluster)).await?;
    let change = async |spec: Value| {
        let patch = Patch::Merge(json!({ "spec": spec }));
        let answer = clusters.patch("moved", &PatchParams::default(), &patch).await;
        answer.map_err(|error| error.to_string())
    };
    let refused = change(json!({ "renderNamespace": "b" })).await.unwrap_err();
    assert!(refused.contains("renderNamespace cannot be changed"), "{refused}");
    let other =
        json!({ "suspend": false, "maxActiveJobs": null, "kubeConfig": { "secretRef": { "name": "b" } } });
    let changed = change(other).await.unwrap();
    assert_eq!(made.metadata.uid, changed.metadata.uid);
    clusters.delete("moved", &DeleteParams::default()).await?;
    Ok(())
}

/// Holds: T5.
#[tokio::test]
async fn each_bound_holds() -> Result<()> {
    let client = client().await?;
    let mut seen = std::collections::BTreeSet::new();
    for whole in full::all() {
        assert_eq!(verdict(&client, &whole).await?, Ok(()), "{whole}");
        let kind = whole["kind"].as_str().unwrap();
        let (schema, mut all) = (spec_schema(kind), Vec::new());
        probes(&schema, &["spec".to_owned()], &whole["spec"], &mut all);
        // Of a number or a percentage, a rule leaves less room than the length does.
        let is_percentage = |probe: &&Probe| {
            probe.is_legal && probe.path.last().is_some_and(|field| field == "maxUnavailable")
        };
        let free = all.iter().filter(|probe| !is_tied(&whole, &probe.path));
        for probe in free.filter(|probe| !is_percentage(probe)) {
            let path = probe.path.join(".");
            let size = probe.value.to_string().len();
            let answer = verdict(&client, &applied(&whole, probe)).await?;
            assert_eq!(
                answer.is_ok(),
                probe.is_legal,
                "{kind} {path}, {size} bytes: {answer:?}"
            );
            seen.insert(format!("{kind} {}", generic(&schema, &probe.path)));
        }
    }
    for crd in renderhub::api::custom_resource_definitions() {
        let kind = crd.spec.names.kind.as_str();
        // The hub alone writes it.
        if kind == "HydratedTarget" {
            continue;
        }
        let mut bounded = Vec::new();
        bounded_paths(&spec_schema(kind), "spec", &mut bounded);
        for path in bounded {
            assert!(
                seen.contains(&format!("{kind} {path}")),
                "{kind} {path} has a bound that was not tried"
            );
        }
    }
    Ok(())
}

fn spec_schema(kind: &str) -> Value {
    let crds = renderhub::api::custom_resource_definitions();
    let crd = crds.iter().find(|crd| crd.spec.names.kind == kind).unwrap();
    let schema = crd.spec.versions[0]
        .schema
        .as_ref()
        .unwrap()
        .open_api_v3_schema
        .as_ref();
    serde_json::to_value(&schema.unwrap().properties.as_ref().unwrap()["spec"]).unwrap()
}

/// The path with `*` for each element of a list or map.
fn generic(schema: &Value, path: &[String]) -> String {
    let mut node = schema;
    let mut text = path[0].clone();
    for part in &path[1..] {
        let field = &node["properties"][part];
        let (name, next) = if field.is_object() {
            (part.as_str(), field)
        } else if node["items"].is_object() {
            ("*", &node["items"])
        } else {
            ("*", &node["additionalProperties"])
        };
        text = format!("{text}.{name}");
        node = next;
    }
    text
}

fn bounded_paths(schema: &Value, path: &str, found: &mut Vec<String>) {
    let keys = ["maxLength", "maximum", "maxItems", "maxProperties", "enum"];
    if keys.iter().any(|key| !schema[*key].is_null()) {
        found.push(path.to_owned());
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        bounded_paths(field, &format!("{path}.{name}"), found);
    }
    for key in ["items", "additionalProperties"] {
        if schema[key].is_object() {
            bounded_paths(&schema[key], &format!("{path}.*"), found);
        }
    }
}

// === rules between fields, and patterns ===

#[rustfmt::skip]
fn cross_field_cases() -> Vec<(Value, Option<&'static str>)> {
    let external = || json!({ "registryRef": null, "baseURL": "registry.example" });
    let also = |mut a: Value, b: &Value| { merge(&mut a, b); a };
    let chart = |name: &str, version: &str| json!({ "config": { "release": { "chart": { "name": name, "version": version } } } });
    let kube = || json!({ "kubeConfig": { "secretRef": { "name": "a" } } });
    vec![
        (json!({}), None),
        (external(), None),
        (json!({ "registryRef": null }), Some("exactly one of registryRef and baseURL")),
        (json!({ "baseURL": "registry.example" }), Some("exactly one of registryRef and baseURL")),
        (also(external(), &json!({ "pushSecretRef": { "name": "a" }, "plainHTTP": true })), None),
        (json!({ "pushSecretRef": { "name": "a" } }), Some("pushSecretRef is allowed only with baseURL")),
        (json!({ "plainHTTP": false }), Some("plainHTTP is allowed only with baseURL")),
        (json!({ "registryRef": { "namespace": "a" } }), Some("namespace is allowed only with kind Registry")),
        (json!({ "registryRef": { "kind": "Registry", "namespace": "a" } }), None),
        (json!({ "clusterName": "a" }), None),
        (kube(), None),
        (also(kube(), &json!({ "clusterName": "a" })), Some("clusterName and kubeConfig exclude each other")),
        (also(kube(), &json!({ "deploymentNamespace": "a" })), None),
        (json!({ "deploymentNamespace": "a" }), Some("deploymentNamespace is allowed only with kubeConfig")),
        (json!({ "clusterName": "a", "deploymentNamespace": "a" }), Some("deploymentNamespace is allowed only with kubeConfig")),
        (json!({ "config": { "release": null } }), Some("release is required if type is release")),
        (json!({ "config": { "type": "other" } }), Some("release is required if type is release, and forbidden otherwise")),
        (json!({ "config": { "type": "bootstrap" } }), Some("bootstrap is required if type is bootstrap")),
        (json!({ "config": { "type": "other", "release": null, "anything": [1, { "a": null }] } }), None),
        (json!({ "config": { "release": { "input": { "entrypoint": { "resourceName": "absent" } } } } }), Some("entrypoint.resourceName must be a key of resources")),
        (json!({ "config": { "release": { "input": { "resources": null } } } }), Some("entrypoint.resourceName must be a key of resources")),
        (json!({ "repository": "web" }), None),
        (json!({ "repository": "a/b/web" }), None),
        (json!({ "repository": "team-a/theweb" }), Some("the last segment of repository must equal")),
        (json!({ "repository": "web/team-a" }), Some("the last segment of repository must equal")),
        (json!({ "tag": "1.0.1" }), Some("tag must equal config.release.chart.version")),
        (json!({ "tag": "v1.0.0" }), Some("tag must equal config.release.chart.version")),
        (also(chart("web", "v0.0.7-0123abcd"), &json!({ "tag": "v0.0.7-0123abcd" })), None),
        (also(chart("web", "1.0.0+build.5"), &json!({ "tag": "1.0.0_build.5" })), None),
        (also(chart("web", "1.0.0+build.5"), &json!({ "tag": "1.0.0" })), Some("tag must equal")),
        (chart("web", "01.0.0"), Some("version")),
        (chart("Web", "1.0.0"), Some("name")),
    ]
}

/// A kind, a change that breaks a rule between its fields, and what is said of that.
#[rustfmt::skip]
fn broken_rules() -> [(&'static str, Value, &'static str); 4] {
    [
        ("ComponentVersion", json!({ "entrypoint": { "resourceName": "absent" } }), "entrypoint.resourceName must be a key of resources"),
        ("Target", json!({ "renderRegistryRef": { "kind": "ClusterRegistry" } }), "namespace is allowed only with kind Registry"),
        ("Registry", json!({ "solarSecretRef": { "name": "a" } }), "solarSecretRef is another name of pushSecretRef"),
        ("Registry", json!({ "tokenRealm": "http://auth.example/token" }), "tokenRealm must be https"),
    ]
}

/// The first valid object of a kind.
fn full_of(kind: &str) -> Value {
    full::all()
        .into_iter()
        .find(|whole| whole["kind"] == kind)
        .unwrap()
}

#[tokio::test]
async fn a_rule_between_fields_refuses_what_would_be_taken_without_the_fault() -> Result<()> {
    let client = client().await?;
    for (kind, fault, message) in broken_rules() {
        let mut whole = full_of(kind);
        assert_eq!(verdict(&client, &whole).await?, Ok(()), "{kind}");
        merge(&mut whole["spec"], &fault);
        let answer = verdict(&client, &whole).await?;
        assert!(
            answer.as_ref().is_err_and(|e| e.contains(message)),
            "{kind} {fault}: {answer:?}"
        );
    }
    Ok(())
}

/// Targets have a Release by its unique name, so another name would be another Release.
#[tokio::test]
async fn the_unique_name_of_a_release_is_set_once() -> Result<()> {
    let releases = api(&client().await?, "Release");
    let mut release = full_of("Release");
    release["metadata"]["name"] = json!("named");
    merge(&mut release["spec"], &json!({ "uniqueName": null }));
    releases.create(&PostParams::default(), &object(release)).await?;
    let name = async |name: Value| {
        let patch = Patch::Merge(json!({ "spec": { "uniqueName": name } }));
        let answer = releases.patch("named", &PatchParams::default(), &patch).await;
        answer.map_err(|error| error.to_string())
    };
    name(json!("a")).await.unwrap();
    for other in [json!("b"), json!(null)] {
        let refused = name(other).await.unwrap_err();
        assert!(refused.contains("uniqueName cannot be changed"), "{refused}");
    }
    releases.delete("named", &DeleteParams::default()).await?;
    Ok(())
}

/// Holds: T5.
#[tokio::test]
async fn each_rule_between_fields_holds() -> Result<()> {
    let client = client().await?;
    for kind in KINDS {
        for (patch, refusal) in cross_field_cases() {
            let mut task = release(kind, "cross");
            merge(&mut task["spec"], &patch);
            let answer = verdict(&client, &task).await?;
            match refusal {
                None => assert_eq!(answer, Ok(()), "{kind} {patch}"),
                Some(word) => assert!(
                    answer.as_ref().is_err_and(|e| e.contains(word)),
                    "{kind} {patch}: {answer:?}"
                ),
            }
        }
    }
    let mut registry = full::registry();
    registry["spec"]["tokenRealm"] = json!("http://auth.example/token");
    let answer = verdict(&client, &registry).await?;
    assert!(answer.is_err_and(|e| e.contains("tokenRealm must be https")));
    registry["spec"]["plainHTTP"] = json!(true);
    assert_eq!(verdict(&client, &registry).await?, Ok(()));
    Ok(())
}

/// What a pattern takes and what it refuses.
#[rustfmt::skip]
const SPELLINGS: &[(&str, &[&str], &[&str])] = &[
    ("ClusterRegistry/hostname",
        &["a", "registry.example:5000", "127.0.0.1", "[::1]:443", "xn--a.example", "a:65535"],
        &["https://a", "oci://a", "a/b", "user@a", "A.example", "a:0", "a:65536", "a:", "a b", "a.", ".a", "-a", "a_b", "a\n"]),
    ("ClusterRegistry/repositoryPrefix",
        &["", "{namespace}/", "{namespace}", "solar/{namespace}/", "team-{namespace}/x"],
        &["/", "/a", "a//b", "../", "{Namespace}/", "{name}/", "a/../b", "A/"]),
    ("ClusterRegistry/tokenRealm",
        &["https://auth.example", "https://auth.example:8443/token?service=a"],
        &["auth.example", "ftp://a", "https://user@a/", "https://a/#b", "https://a b", "https:///"]),
    ("RenderTask/repository",
        &["a", "a/b", "a-b/c__d/e.f", "a--b"],
        &["/a", "a/", "a//b", "../a", "a/../b", "A", "a b", "a_-b", "a...b", "a:b", "a@b", "oci://a"]),
    ("RenderTask/tag",
        &["1", "v1.0.0-rc.1", "_a", "A.b-c"],
        &[".1", "-1", "--url", "1+2", "a/b", "a:b", "a b", "ä"]),
    ("RenderTask/rendererClassName", &["a", "a.b-c"], &["A", "a_b", "-a", "a-", "a/b", "..", "a b"]),
    ("RenderTask/serviceAccountName", &["a"], &["a:b", "system:masters", "a\r\nb"]),
];

/// The message of a refusal, where a pattern would mean nothing to most people.
fn said_of(field: &str) -> Option<&'static str> {
    Some(match field {
        "hostname" => "must be a host without scheme or path, in lower case, e.g. registry.example.com:5000",
        "repositoryPrefix" => "must be the beginning of a repository",
        "tokenRealm" => "must be a URL of https or http",
        "repository" => "must be a repository without host and tag",
        "tag" => "must be a tag",
        _ => return None,
    })
}

/// Holds: T5.
#[tokio::test]
async fn each_pattern_takes_and_refuses() -> Result<()> {
    let client = client().await?;
    let mut task = full::tasks("RenderTask")[0].clone();
    task["spec"]["rendererClassName"] = json!("a");
    for (field, legal, illegal) in SPELLINGS {
        let (kind, name) = field.split_once('/').unwrap();
        let mut whole = if kind == "RenderTask" {
            task.clone()
        } else {
            full::registry()
        };
        let all = legal
            .iter()
            .map(|text| (text, true))
            .chain(illegal.iter().map(|text| (text, false)));
        for (text, is_legal) in all {
            whole["spec"][name] = json!(text);
            let answer = verdict(&client, &whole).await?;
            assert_eq!(answer.is_ok(), is_legal, "{field} {text:?}: {answer:?}");
            if let (Some(wanted), Err(refusal)) = (said_of(name), answer) {
                assert!(refusal.contains(wanted), "{field} {text:?}: {refusal}");
            }
        }
    }
    Ok(())
}
