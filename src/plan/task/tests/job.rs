//! The manifests: their whole shape as files, and what is in the Secret.

use std::path::PathBuf;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::PodSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

use super::{at, class, place, platform, registry, spec_with, task_of};
use crate::api::conditions::Reason;
use crate::plan::platform::catalog::{Catalog, CredentialState};
use crate::plan::task::job::{TaskManifests, manifests, overdue_at, specimen};
use crate::plan::task::job_state::{JobProgress, JobState, ObservedJob};
use crate::plan::task::model::Task;

mod limits;
mod tenants;

/// The manifests of a task that the catalog serves.
fn made(catalog: &Catalog, task: &Task) -> TaskManifests {
    let resolved = catalog
        .resolve(task, task.decoded.spec.as_ref().unwrap(), None, None)
        .unwrap();
    manifests(&place(), task, &resolved)
}

fn offering(mut class_changes: Value, registry_changes: Value, credential: CredentialState) -> Catalog {
    class_changes["allowedNamespaces"] = json!(["*"]);
    let mut catalog = platform();
    catalog.fallback = class(class_changes, false);
    catalog
        .registries
        .insert("main".to_owned(), registry(registry_changes, credential));
    catalog
}

fn basic() -> CredentialState {
    CredentialState::BasicAuth("push".to_owned())
}

fn docker() -> CredentialState {
    CredentialState::DockerConfig("push".to_owned())
}

/// Compares with `golden/<name>.json`; with `UPDATE_GOLDEN` set it is written instead, to be read in the diff.
fn golden(name: &str, found: &Value) {
    let path =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/task/tests/golden/{name}.json"));
    let text = format!("{}\n", serde_json::to_string_pretty(found).unwrap());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        text == expected,
        "not as in {}; UPDATE_GOLDEN=1 writes:\n{text}",
        path.display()
    );
}

#[test]
fn what_is_tried_is_the_job_of_the_class() {
    let class = class(
        json!({"nodeSelector": {"pool": "render"}, "backoffLimit": 7}),
        false,
    )
    .spec;
    let job = specimen(&place(), &class).unwrap();
    let spec = job.spec.unwrap();
    assert_eq!(spec.backoff_limit, Some(7));
    let pod = spec.template.spec.unwrap();
    assert_eq!(pod.node_selector.unwrap()["pool"], "render");
    assert_eq!(job.metadata.namespace.as_deref(), Some("rendering"));
    assert!(
        job.metadata
            .labels
            .unwrap()
            .contains_key("renderhub.dev/task-uid")
    );
}

#[test]
fn the_manifests_are_as_recorded() {
    let single = || json!({"mode": "Single", "command": ["/bin/foreign"], "args": ["render"]});
    let trusted = || json!({"caConfigMapRef": {"name": "trust"}, "tokenRealm": "https://auth.test/token"});
    let placed = json!({
        "imagePullPolicy": "Always", "imagePullSecrets": [{"name": "pull"}], "args": ["--verbose"],
        "nodeSelector": {"pool": "render"}, "priorityClassName": "low", "runtimeClassName": "gvisor",
        "tolerations": [{"key": "render", "operator": "Exists"}], "caConfigMapName": "class-trust",
        "backoffLimit": 0, "activeDeadlineSeconds": 30,
        "resources": {"limits": {"memory": "1Gi"}},
    });
    let table = [
        ("split-basic-auth", offering(json!({}), json!({}), basic())),
        ("split-docker-config", offering(json!({}), json!({}), docker())),
        (
            "split-anonymous-plain-http",
            offering(json!({}), json!({"plainHTTP": true}), CredentialState::Anonymous),
        ),
        ("split-ca-token-realm", offering(json!({}), trusted(), basic())),
        ("split-whole-class", offering(placed, json!({}), docker())),
        ("single-basic-auth", offering(single(), json!({}), basic())),
        (
            "single-docker-config-plain-http",
            offering(single(), json!({"plainHTTP": true}), docker()),
        ),
        ("single-ca", offering(single(), trusted(), docker())),
        (
            "single-own-entrypoint",
            offering(json!({"mode": "Single"}), json!({}), CredentialState::Anonymous),
        ),
    ];
    for (name, catalog) in table {
        golden(
            name,
            &serde_json::to_value(made(&catalog, &super::task()).job).unwrap(),
        );
    }
    let secret = made(&platform(), &super::task()).secret;
    golden("config-secret", &serde_json::to_value(secret).unwrap());
}

#[test]
fn the_secret_holds_what_the_tenant_wrote_and_where_it_goes() {
    let task = task_of(spec_with(json!({
        "config": {"type": "slides", "deck": {"b": [1, null, "ü\n\"{{ }}\""], "a": 1.5}, "unknown": true},
        "repository": "team-a/talk",
    })));
    let secret = made(&platform(), &task).secret;
    let data = secret.data.unwrap();
    let config: Value = serde_json::from_slice(&data["config.json"].0).unwrap();
    let written: Value = serde_json::from_str(&task.decoded.config).unwrap();
    assert_eq!(config, written);
    assert_eq!(data["url"].0, b"oci://registry.test:5000/team-a/talk:1.0.0");
    assert_eq!((data.len(), secret.immutable), (2, Some(true)));
}

/// Holds: C1.
#[test]
fn the_push_is_bound_to_the_host_the_platform_wrote() {
    let catalog = offering(json!({}), json!({"hostname": "Registry.test:5001"}), docker());
    let job = made(&catalog, &super::task()).job;
    let args = pod(&job).containers[0].args.as_ref().unwrap();
    let bound = args
        .windows(2)
        .any(|pair| pair == ["--registry", "registry.test:5001"]);
    assert!(bound, "{args:?}");
}

/// Holds: C3, B13.
#[test]
fn the_push_is_bound_to_the_prefix_that_the_registry_grants_the_namespace() {
    for (template, prefix) in [
        ("{namespace}/", "--repository-prefix=team-a/"),
        ("{namespace}", "--repository-prefix=team-a"),
        ("team-a/shop", "--repository-prefix=team-a/shop"),
        ("", "--repository-prefix="),
    ] {
        let catalog = offering(json!({}), json!({"repositoryPrefix": template}), docker());
        let job = made(&catalog, &super::task()).job;
        let args = pod(&job).containers[0].args.as_ref().unwrap();
        assert!(args.iter().any(|label| label == prefix), "{args:?}");
        // A foreign renderer in mode Single takes the arguments of that mode and no other.
        let catalog = offering(
            json!({"mode": "Single"}),
            json!({"repositoryPrefix": template}),
            docker(),
        );
        let job = made(&catalog, &super::task()).job;
        let args = pod(&job).containers[0].args.as_ref().unwrap();
        assert!(!args.iter().any(|label| label.contains("prefix")), "{args:?}");
    }
}

#[test]
fn a_job_is_overdue_five_minutes_after_the_deadline_of_its_class() {
    let started = |spec: Value, seconds: i64| {
        let mut task = task_of(spec_with(spec));
        task.status.start_time = Some(Time(at(seconds)));
        task
    };
    for (changes, longest) in [(json!({}), 900), (json!({"activeDeadlineSeconds": 60}), 360)] {
        let catalog = offering(changes, json!({}), basic());
        let waits = task_of(spec_with(json!({})));
        assert_eq!(
            overdue_at(&waits, &JobState::Absent, &catalog),
            None,
            "it has not started"
        );
        let task = started(json!({}), 10);
        let job = |progress| {
            JobState::Read(ObservedJob {
                uid: "job".to_owned(),
                spec_hash: String::new(),
                chart_url: None,
                progress,
                attempts: 0,
                created: None,
            })
        };
        let due = Some(at(10 + longest));
        assert_eq!(overdue_at(&task, &JobState::Absent, &catalog), due);
        assert_eq!(overdue_at(&task, &job(JobProgress::Running), &catalog), due);
        for ended in [JobProgress::Complete(at(20)), JobProgress::Failed(at(20), false)] {
            assert_eq!(overdue_at(&task, &job(ended), &catalog), None, "it has ended");
        }
    }
    let gone = started(json!({"rendererClassName": "gone"}), 0);
    let due = overdue_at(&gone, &JobState::Absent, &platform());
    assert_eq!(due, Some(at(900)), "by the deadline of a class that does not say");
}

fn pod(job: &Job) -> &PodSpec {
    job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}
