//! The manifests: their whole shape as files, and what no tenant may ever change in them.

use std::path::PathBuf;

use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, PodSpec, VolumeMount};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{at, class, place, platform, registry, spec_with, task_in};
use crate::api::conditions::Reason;
use crate::names::{TaskKind, TaskUid, is_dns_label, job_name};
use crate::plan::catalog::{Catalog, Credential};
use crate::plan::job::{Manifests, manifests};
use crate::plan::task::Task;

mod limits;

/// The manifests of a task that the catalog serves.
fn made(catalog: &Catalog, task: &Task) -> Manifests {
    let resolved = catalog.resolve(task, task.spec.as_ref().unwrap(), None).unwrap();
    manifests(&place(), task, &resolved)
}

fn offering(mut class_changes: Value, registry_changes: Value, credential: Credential) -> Catalog {
    class_changes["allowedNamespaces"] = json!(["*"]);
    let mut catalog = platform();
    catalog.fallback = class(class_changes, false).spec;
    catalog
        .registries
        .insert("main".to_owned(), registry(registry_changes, credential));
    catalog
}

fn basic() -> Credential {
    Credential::BasicAuth("push".to_owned())
}

fn docker() -> Credential {
    Credential::DockerConfig("push".to_owned())
}

/// Compares with `golden/<name>.json`; with `UPDATE_GOLDEN` set it is written instead, to be read in the diff.
fn golden(name: &str, found: &Value) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(format!("src/plan/tests/golden/{name}.json"));
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
            offering(json!({}), json!({"plainHTTP": true}), Credential::Anonymous),
        ),
        ("split-ca-token-realm", offering(json!({}), trusted(), basic())),
        ("split-whole-class", offering(placed, json!({}), docker())),
        ("single-basic-auth", offering(single(), json!({}), basic())),
        (
            "single-docker-config-plain-http",
            offering(single(), json!({"plainHTTP": true}), docker()),
        ),
        ("single-ca", offering(single(), trusted(), docker())),
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
    let task = super::task_of(spec_with(json!({
        "config": {"type": "slides", "deck": {"b": [1, null, "ü\n\"{{ }}\""], "a": 1.5}, "unknown": true},
        "repository": "team-a/talk",
    })));
    let secret = made(&platform(), &task).secret;
    let data = secret.data.unwrap();
    let config: Value = serde_json::from_slice(&data["config.json"].0).unwrap();
    let written: Value = serde_json::from_str(&task.config).unwrap();
    assert_eq!(config, written);
    assert_eq!(data["url"].0, b"oci://registry.test:5000/team-a/talk:1.0.0");
    assert_eq!((data.len(), secret.immutable), (2, Some(true)));
}

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

fn pod(job: &Job) -> &PodSpec {
    job.spec.as_ref().unwrap().template.spec.as_ref().unwrap()
}

fn catalogs() -> impl Strategy<Value = Catalog> {
    let credential = prop_oneof![Just(basic()), Just(docker()), Just(Credential::Anonymous)];
    (any::<[bool; 5]>(), credential).prop_map(|([single, plain, ca, class_ca, realm], credential)| {
        let mut class = json!({"mode": if single { "Single" } else { "Split" }});
        let mut registry = json!({"allowedNamespaces": ["*"], "plainHTTP": plain});
        if class_ca {
            class["caConfigMapName"] = json!("class-trust");
        }
        if ca {
            registry["caConfigMapRef"] = json!({"name": "trust", "key": "root.pem"});
        }
        if realm {
            registry["tokenRealm"] = json!("https://auth.test/token");
        }
        offering(class, registry, credential)
    })
}

/// Any JSON that a tenant may write.
fn free_form() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,20}".prop_map(Value::from),
        Just(json!("--plain-http")),
        Just(json!("$(REGISTRY_PASSWORD)")),
        Just(json!("push")),
    ];
    leaf.prop_recursive(3, 16, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(".{0,8}", inner, 0..4).prop_map(|m| json!(m)),
        ]
    })
}

prop_compose! {
    /// A task as some tenant may submit it.
    fn tenants_task()(
        namespace in "[a-z]([a-z0-9-]{0,20}[a-z0-9])?",
        name in "[a-z0-9]([a-z0-9.-]{0,80}[a-z0-9])?",
        uid in "[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-8[0-9a-f]{3}-[0-9a-f]{12}",
        path in prop::collection::vec("[a-z0-9]{1,9}", 1..4),
        tag in "[A-Za-z0-9_][A-Za-z0-9._-]{0,30}",
        values in free_form(),
        ttl in prop::option::of(0..604_800_i32),
        after in prop::option::of(0..604_800_i32),
        owner in prop::option::of("[a-z]{1,9}"),
    ) -> Task {
        let mut spec = spec_with(json!({
            "config": {"type": "slides", "deck": values},
            "repository": format!("{namespace}/{}", path.join("/")),
            "tag": tag,
        }));
        if let Some(ttl) = ttl {
            spec["failedJobTTL"] = json!(ttl);
        }
        if let Some(after) = after {
            spec["ttlSecondsAfterFinished"] = json!(after);
        }
        if let Some(owner) = owner {
            spec["owner"] = json!({"kind": "Release", "name": owner});
        }
        let mut task = task_in(&namespace, TaskKind::RenderTask, spec);
        task.id.name = name;
        task.id.uid = TaskUid::new(&uid);
        task
    }
}

/// The Job without what may differ between tenants, each of which is checked on the way.
fn anonymous(job: Job, task: &Task) -> Value {
    let name = job_name(&task.id.name, &task.id.uid);
    assert!(is_dns_label(&name));
    let mut job = serde_json::to_value(job).unwrap();
    assert_eq!(job["metadata"]["name"].take(), json!(name));
    let task_uid = json!(task.id.uid.as_str());
    for labels in ["/metadata/labels", "/spec/template/metadata/labels"] {
        let labels = job.pointer_mut(labels).unwrap();
        assert_eq!(labels["renderhub.dev/task-uid"].take(), task_uid);
    }
    let notes = job["metadata"]["annotations"].take();
    assert_eq!(notes["renderhub.dev/task-name"], json!(task.id.name));
    assert_eq!(notes.as_object().unwrap().len(), 6);
    let spec = task.spec.as_ref().unwrap();
    let kept = 86_400 + spec.failed_job_ttl.unwrap_or(0);
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"].take(), json!(kept));
    let pod = job.pointer_mut("/spec/template/spec").unwrap();
    for volume in pod["volumes"].as_array_mut().unwrap() {
        if volume["secret"]["secretName"] == json!(name) {
            volume["secret"]["secretName"].take();
        }
    }
    // In mode Single the destination is an argument, as the renderers of that mode expect it.
    let url = json!(format!(
        "--url=oci://registry.test:5000/{}:{}",
        spec.repository, spec.tag
    ));
    for argument in pod["containers"][0]["args"].as_array_mut().unwrap() {
        if *argument == url {
            argument.take();
        }
    }
    job
}

proptest! {
    #[test]
    fn two_tenants_jobs_differ_in_names_and_marks_alone(
        catalog in catalogs(), one in tenants_task(), other in tenants_task(),
    ) {
        let (a, b) = (made(&catalog, &one).job, made(&catalog, &other).job);
        prop_assert_eq!(anonymous(a, &one), anonymous(b, &other));
    }

    #[test]
    fn in_mode_split_no_byte_of_a_tenant_is_in_a_container(catalog in catalogs(), task in tenants_task()) {
        prop_assume!(catalog.fallback.mode == crate::api::RendererMode::Split);
        let containers = |task: &Task| {
            let job = made(&catalog, task).job;
            let pod = pod(&job);
            serde_json::to_value((&pod.init_containers, &pod.containers)).unwrap()
        };
        prop_assert_eq!(containers(&task), containers(&super::task()));
    }

    #[test]
    fn only_the_tasks_own_secret_and_the_bound_one_are_mounted(catalog in catalogs(), task in tenants_task()) {
        let Manifests { secret, job } = made(&catalog, &task);
        let own = secret.metadata.name.clone().unwrap();
        prop_assert_eq!(&job.metadata.name, &secret.metadata.name);
        let bound = match &catalog.registries["main"].credential {
            Credential::BasicAuth(name) | Credential::DockerConfig(name) => vec![own, name.clone()],
            _ => vec![own],
        };
        for name in secret_names(&serde_json::to_value(&job).unwrap()) {
            prop_assert!(bound.contains(&name), "{}", name);
        }
    }

    #[test]
    fn the_container_that_reads_the_configuration_holds_no_credential(catalog in catalogs(), task in tenants_task()) {
        let job = made(&catalog, &task).job;
        let pod = pod(&job);
        let Some([render]) = pod.init_containers.as_deref() else {
            prop_assert_eq!(catalog.fallback.mode, crate::api::RendererMode::Single);
            return Ok(());
        };
        let mounts = |c: &Container| -> Vec<String> {
            c.volume_mounts.iter().flatten().map(|m| m.name.clone()).collect()
        };
        prop_assert_eq!(mounts(render), ["config", "chart", "render-tmp"]);
        prop_assert_eq!(&render.env, &None);
        let [push] = pod.containers.as_slice() else {
            return Err(TestCaseError::fail("one container pushes"));
        };
        prop_assert!(!mounts(push).contains(&"config".to_owned()));
        prop_assert!(push.volume_mounts.iter().flatten().any(|m| m.name == "chart" && m.read_only == Some(true)));
        prop_assert!(push.env.iter().flatten().all(|v| v.value_from.is_none()), "credentials are files");
    }

    #[test]
    fn every_pod_passes_pod_security_restricted(catalog in catalogs(), task in tenants_task()) {
        let job = made(&catalog, &task).job;
        restricted(pod(&job))?;
    }
}

/// All names of Secrets anywhere in an object.
fn secret_names(value: &Value) -> Vec<String> {
    match value {
        Value::Array(items) => items.iter().flat_map(secret_names).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match (key.as_str(), value) {
                ("secretName", Value::String(name)) => vec![name.clone()],
                ("secretKeyRef" | "secretRef", reference) => {
                    vec![reference["name"].as_str().unwrap().to_owned()]
                }
                (_, inner) => secret_names(inner),
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// <https://kubernetes.io/docs/concepts/security/pod-security-standards/#restricted>, and what renderhub adds to it.
fn restricted(pod: &PodSpec) -> Result<(), TestCaseError> {
    let shared = pod.security_context.as_ref().unwrap();
    let ids = (shared.run_as_user, shared.run_as_group, shared.fs_group);
    prop_assert_eq!(ids, (Some(65_532), Some(65_532), Some(65_532)));
    prop_assert_eq!(shared.run_as_non_root, Some(true));
    prop_assert_eq!(&shared.seccomp_profile.as_ref().unwrap().type_, "RuntimeDefault");
    prop_assert_eq!(pod.automount_service_account_token, Some(false));
    prop_assert_eq!(pod.enable_service_links, Some(false));
    let host = (pod.host_network, pod.host_pid, pod.host_ipc, pod.host_users);
    prop_assert_eq!(host, (None, None, None, None));
    for volume in pod.volumes.iter().flatten() {
        prop_assert!(volume.secret.is_some() || volume.config_map.is_some() || volume.empty_dir.is_some());
        let sized = volume
            .empty_dir
            .as_ref()
            .is_none_or(|dir| dir.size_limit.is_some());
        prop_assert!(sized, "{} has no limit", volume.name);
    }
    let mut all = pod.init_containers.iter().flatten().chain(&pod.containers);
    all.try_for_each(restricted_container)
}

fn restricted_container(container: &Container) -> Result<(), TestCaseError> {
    let own = container.security_context.as_ref().unwrap();
    prop_assert_eq!(
        (own.allow_privilege_escalation, own.privileged),
        (Some(false), Some(false))
    );
    prop_assert_eq!((own.run_as_non_root, own.run_as_user), (Some(true), None));
    prop_assert_eq!(own.read_only_root_filesystem, Some(true));
    let capabilities = own.capabilities.as_ref().unwrap();
    prop_assert_eq!(&capabilities.add, &None);
    prop_assert_eq!(capabilities.drop.as_deref(), Some(&["ALL".to_owned()][..]));
    prop_assert!(container.resources.as_ref().unwrap().limits.is_some());
    prop_assert_eq!(container.termination_message_policy.as_deref(), Some("File"));
    let bounded =
        |m: &VolumeMount| m.read_only == Some(true) || ["/chart", "/tmp"].contains(&m.mount_path.as_str());
    prop_assert!(container.volume_mounts.iter().flatten().all(bounded));
    Ok(())
}
