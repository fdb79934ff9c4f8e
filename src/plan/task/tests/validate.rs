//! Each rule refuses what it is there for, and nothing that can be served.

use serde_json::{Value, json};

use super::{spec, spec_with, task_of};
use crate::api::conditions::Reason::{self, ConfigTooLarge, InvalidSpec, SpecMutated};
use crate::plan::task::validate::{MAX_CONFIG_BYTES, validate};

fn refused(spec: Value) -> Option<(Reason, String)> {
    let refusal = validate(&task_of(spec)).err()?;
    Some((refusal.reason, refusal.message))
}

fn bootstrap(name: &str, version: &str) -> Value {
    json!({"type": "bootstrap", "bootstrap": {
        "chart": {"name": name, "version": version},
        "input": {"releases": {}},
    }})
}

#[test]
fn what_can_be_served_is_not_refused() {
    let served = [
        spec(),
        spec_with(json!({"repository": "a/b/c/shop", "failedJobTTL": 0, "ttlSecondsAfterFinished": 0})),
        spec_with(json!({"config": bootstrap("shop", "1.0.0")})),
        spec_with(json!({"config": bootstrap("shop", "1.0.0+build.7"), "tag": "1.0.0_build.7"})),
        // Only the renderer class knows what such a type means, so the hub does not check its chart.
        spec_with(json!({"config": {"type": "slides", "deck": 7}, "repository": "team-a/talk", "tag": "v7"})),
    ];
    for spec in served {
        assert_eq!(refused(spec.clone()), None, "{spec}");
    }
}

#[test]
fn a_task_has_one_place() {
    let kube_config = json!({"secretRef": {"name": "kubeconfig"}});
    let table = [
        (
            json!({"clusterName": "east", "kubeConfig": kube_config}),
            "clusterName",
        ),
        (json!({"deploymentNamespace": "shop"}), "deploymentNamespace"),
        (
            json!({"clusterName": "east", "deploymentNamespace": "shop"}),
            "deploymentNamespace",
        ),
    ];
    for (changes, field) in table {
        let (reason, message) = refused(spec_with(changes)).expect(field);
        assert_eq!(reason, InvalidSpec, "{field}");
        assert!(message.starts_with(field), "{message}");
    }
    for changes in [
        json!({"clusterName": "east"}),
        json!({"kubeConfig": kube_config, "deploymentNamespace": "shop"}),
    ] {
        assert_eq!(refused(spec_with(changes)), None);
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn each_rule_refuses_with_its_reason() {
    let release = |name: &str, version: &str| {
        let mut config = spec()["config"].clone();
        config["release"]["chart"] = json!({"name": name, "version": version});
        json!({"config": config})
    };
    let table = [
        (json!({"registryRef": null}), "registryRef is missing"),
        (json!({"baseURL": "registry.evil"}), "exclude each other"),
        (
            json!({"pushSecretRef": {"name": "push"}}),
            "only for tasks with baseURL",
        ),
        (json!({"plainHTTP": true}), "only for tasks with baseURL"),
        (json!({"plainHTTP": false}), "only for tasks with baseURL"),
        (
            json!({"registryRef": {"name": "main", "namespace": "kube-system"}}),
            "is only for kind Registry",
        ),
        (
            json!({"config": {"type": "release"}}),
            "config.release is missing",
        ),
        (
            json!({"config": {"type": "bootstrap"}}),
            "config.bootstrap is missing",
        ),
        (json!({"repository": "team-a/other"}), "last segment"),
        (json!({"repository": "team-a/shop/"}), "last segment"),
        (json!({"repository": "TEAM-A/shop"}), "last segment"),
        (json!({"repository": "team-a/../shop"}), "last segment"),
        (json!({"tag": "1.0.1"}), "tag must equal"),
        (json!({"tag": "-1.0.0"}), "tag must equal"),
        (release("other", "1.0.0"), "last segment"),
        (release("shop", "1.0.0+x"), "tag must equal"),
        (json!({"config": bootstrap("other", "1.0.0")}), "last segment"),
        // What the Rust type cannot decode, whatever a loosened schema let through.
        (json!({"tag": 7}), "cannot read the spec"),
        (json!({"repository": null}), "cannot read the spec"),
        (json!({"config": "release"}), "cannot read the spec"),
    ];
    for (changes, part) in table {
        let (found, message) = refused(spec_with(changes.clone())).expect("the spec is wrong");
        assert_eq!(found, InvalidSpec, "{changes}");
        assert!(message.contains(part), "{changes}: {message}");
        assert!(message.contains("make a new task"), "{message}");
    }
}

/// Holds: T5.
#[test]
fn a_configuration_fits_a_secret_or_is_refused() {
    let sized = |bytes: usize| {
        let empty = spec_with(json!({"config": {"type": "slides", "deck": ""}}));
        let overhead = empty["config"].to_string().len();
        spec_with(json!({"config": {"type": "slides", "deck": "x".repeat(bytes - overhead)}}))
    };
    assert_eq!(refused(sized(MAX_CONFIG_BYTES)), None);
    assert_eq!(refused(sized(MAX_CONFIG_BYTES + 1)).unwrap().0, ConfigTooLarge);
}

#[test]
fn a_changed_spec_is_refused_before_it_is_looked_at() {
    for spec in [
        spec(),
        spec_with(json!({"tag": 7})),
        spec_with(json!({"clusterName": "edge"})),
    ] {
        for generation in [0, 2, i64::MAX] {
            let mut task = task_of(spec.clone());
            task.generation = generation;
            assert_eq!(validate(&task).unwrap_err().reason, SpecMutated, "{generation}");
        }
    }
}

#[test]
fn the_first_rule_that_refuses_wins() {
    let everything_wrong = spec_with(json!({"deploymentNamespace": "x", "registryRef": null, "tag": "2"}));
    assert!(
        refused(everything_wrong)
            .unwrap()
            .1
            .contains("deploymentNamespace")
    );
    let no_registry = spec_with(json!({"registryRef": null, "tag": "2"}));
    assert!(refused(no_registry).unwrap().1.contains("registryRef"));
}

#[test]
fn what_tenants_write_freely_is_kept_as_text_alone() {
    let mut wanted = spec();
    wanted["config"]["release"]["values"] = json!({"a": [1, {"b": null}], "ü": "{{ }}"});
    let task = task_of(wanted.clone());
    let config: Value = serde_json::from_str(&task.decoded.config).unwrap();
    assert_eq!(config, wanted["config"], "the renderer gets all of it");
    let decoded = task
        .decoded
        .spec
        .as_ref()
        .unwrap()
        .config
        .release
        .as_ref()
        .unwrap();
    assert_eq!(decoded.values, None, "decoded it can be a hundred times larger");
    let mut other = wanted;
    other["config"]["release"]["values"]["a"] = json!(2);
    assert_ne!(
        task_of(other).decoded.spec_hash,
        task.decoded.spec_hash,
        "it counts as a part of the spec"
    );
}
