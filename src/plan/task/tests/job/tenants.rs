//! What no tenant may ever change in a Job, whatever it writes.

use std::collections::BTreeSet;

use clap::Parser as _;
use k8s_openapi::api::core::v1::{Container, VolumeMount};
use proptest::prelude::*;

use super::*;
use crate::api::RendererMode;
use crate::api::basic_auth;
use crate::api::input_hashes::{CONFIG_SHA256, URL_SHA256};
use crate::api::names::{TaskKind, is_dns_label, job_name};
use crate::plan::platform::catalog::{CertificateSource, ResolvedTask};
use crate::plan::task::tenant::{PushAccess, TenantCredential, TenantDestination};

mod hostile;
use hostile::{catalogs, one_hostile_field, own_registry, tenants_task};

/// Name of the Secret that the registry names.
const BOUND: &str = "push";

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
    assert_eq!(notes["renderhub.dev/task-namespace"], json!(task.id.namespace));
    let keys: BTreeSet<&str> = notes.as_object().unwrap().keys().map(String::as_str).collect();
    let plain = made(&platform(), &super::super::task())
        .job
        .metadata
        .annotations
        .unwrap();
    assert_eq!(keys, plain.keys().map(String::as_str).collect());
    let spec = task.decoded.spec.as_ref().unwrap();
    let kept = 86_400_i32.saturating_add(spec.failed_job_ttl.unwrap_or(3_600).max(0));
    assert_eq!(job["spec"]["ttlSecondsAfterFinished"].take(), json!(kept));
    let pod = job.pointer_mut("/spec/template/spec").unwrap();
    for volume in pod["volumes"].as_array_mut().unwrap() {
        if volume["secret"]["secretName"] == json!(name) {
            volume["secret"]["secretName"].take();
        }
    }
    // In mode Split the registry's prefix is an argument, with the namespace filled in.
    let prefix = json!(format!("--repository-prefix={}/", task.id.namespace));
    // In mode Single the destination is an argument, as the renderers of that mode expect it.
    let url = json!(format!(
        "--url=oci://registry.test:5000/{}:{}",
        spec.repository, spec.tag
    ));
    without_hashes(pod);
    for argument in pod["containers"][0]["args"].as_array_mut().unwrap() {
        if *argument == url || *argument == prefix {
            argument.take();
        }
    }
    job
}

/// Takes out what names by its hash what the pod is to read.
fn without_hashes(pod: &mut Value) {
    for containers in ["initContainers", "containers"] {
        let all = pod[containers].as_array_mut().into_iter().flatten();
        for variable in all.flat_map(|c| c["env"].as_array_mut().into_iter().flatten()) {
            let name = variable["name"].as_str().unwrap();
            if name == CONFIG_SHA256 || name == URL_SHA256 {
                assert_eq!(variable["value"].take().as_str().unwrap().len(), 64);
            }
        }
    }
}

proptest! {
    /// Holds: C6.
    #[test]
    fn two_tenants_jobs_differ_in_names_and_marks_alone(
        catalog in catalogs(), one in tenants_task(), other in tenants_task(),
    ) {
        let (a, b) = (made(&catalog, &one).job, made(&catalog, &other).job);
        prop_assert_eq!(anonymous(a, &one), anonymous(b, &other));
    }

    /// Holds: C6.
    #[test]
    fn a_hostile_field_is_refused_or_changes_nothing(catalog in catalogs(), task in one_hostile_field()) {
        let Ok(spec) = crate::plan::task::validate::validate(&task) else { return Ok(()) };
        let Ok(resolved) = catalog.resolve(&task, spec, None, None) else { return Ok(()) };
        let job = manifests(&place(), &task, &resolved).job;
        let plain = super::super::task();
        prop_assert_eq!(anonymous(job, &task), anonymous(made(&catalog, &plain).job, &plain));
    }

    /// Holds: C6.
    #[test]
    fn in_mode_split_no_byte_of_a_tenant_but_its_namespace_is_in_a_container(
        catalog in catalogs(), task in tenants_task(),
    ) {
        prop_assume!(catalog.fallback.spec.mode == RendererMode::Split);
        let containers = |task: &Task| {
            let job = made(&catalog, task).job;
            let mut pod = pod(&job).clone();
            // The registry's prefix for the namespace, which is a DNS label.
            let prefix = format!("--repository-prefix={}/", task.id.namespace);
            let args = pod.containers[0].args.as_mut().unwrap();
            let place = args.iter().position(|word| *word == prefix).unwrap();
            args.remove(place);
            let all = pod.init_containers.iter_mut().flatten().chain(&mut pod.containers);
            for variables in all.filter_map(|container| container.env.as_mut()) {
                variables.retain(|v| v.name != CONFIG_SHA256 && v.name != URL_SHA256);
            }
            serde_json::to_value((&pod.init_containers, &pod.containers)).unwrap()
        };
        prop_assert_eq!(containers(&task), containers(&super::super::task()));
    }

    /// Holds: C7.
    #[test]
    fn every_object_a_pod_names_is_the_tasks_own_or_the_platforms(
        catalog in catalogs(), task in tenants_task(), own_registry in prop::option::of(own_registry()),
    ) {
        let resolved = catalog.resolve(&task, task.decoded.spec.as_ref().unwrap(), own_registry.as_ref(), None).unwrap();
        let own = job_name(&task.id.name, &task.id.uid);
        // A tenant's own credential and certificates live in its task's own Secret, and never beside a Secret of the platform's.
        if own_registry.is_some() {
            prop_assert!([CredentialState::Anonymous, CredentialState::BasicAuth(own.clone())].contains(&resolved.credential));
        }
        let TaskManifests { secret, job } = manifests(&place(), &task, &resolved);
        prop_assert_eq!(secret.metadata.name.as_ref(), Some(&own));
        prop_assert_eq!(job.metadata.name.as_ref(), Some(&own));
        let named = named(&serde_json::to_value(&job).unwrap());
        prop_assert!(named.contains(&("secret", own.clone())));
        prop_assert_eq!(&(&named - &admitted(&own, &resolved)), &BTreeSet::new());
    }

    /// Holds: C6.
    #[test]
    fn a_tenants_own_registry_gives_the_pusher_words_and_no_flags(
        task in tenants_task(), own in own_registry(),
    ) {
        let resolved = platform().resolve(&task, task.decoded.spec.as_ref().unwrap(), Some(&own), None).unwrap();
        let job = manifests(&place(), &task, &resolved).job;
        let mut expected = ["push", "/chart/chart.tgz", "--url-file", "/etc/renderer/push/url", "--registry"].map(str::to_owned).to_vec();
        expected.push(own.spec.hostname.to_lowercase());
        let prefix = own.spec.repository_prefix.clone().unwrap_or_default();
        let prefix = prefix.replace("{namespace}", &task.id.namespace);
        expected.push(format!("--repository-prefix={prefix}"));
        expected.extend(own.spec.plain_http.unwrap_or_default().then(|| "--plain-http".to_owned()));
        expected.extend(own.spec.token_realm.iter().map(|realm| format!("--token-realm={realm}")));
        if matches!(own.access, PushAccess::Copied(_)) {
            let credentials = "/etc/renderer/credentials";
            let files = ["--username-file", &format!("{credentials}/username"), "--password-file", &format!("{credentials}/password")];
            expected.extend(files.map(str::to_owned));
        }
        prop_assert_eq!(pod(&job).containers[0].args.as_ref(), Some(&expected));
        // What the pusher reads it with has one meaning for each.
        let word = std::iter::once("renderhub-renderer".to_owned()).chain(expected);
        if let Ok(cli) = crate::renderer::cli::RendererCli::try_parse_from(word) {
            let Some(crate::renderer::cli::RendererCommand::Push(push)) = cli.command else {
                return Err(TestCaseError::fail("not a push"));
            };
            prop_assert_eq!(push.connection.plain_http, own.spec.plain_http.unwrap_or_default());
            let host = push.registry.unwrap();
            prop_assert_eq!(host.as_str(), own.spec.hostname.to_lowercase());
            let granted = push.repository_prefix.unwrap();
            prop_assert_eq!(granted.as_str(), prefix);
        }
    }

    /// Holds: R1.
    #[test]
    fn the_container_that_reads_the_configuration_holds_no_credential(catalog in catalogs(), task in tenants_task()) {
        let job = made(&catalog, &task).job;
        let pod = pod(&job);
        let Some([render]) = pod.init_containers.as_deref() else {
            prop_assert_eq!(catalog.fallback.spec.mode, RendererMode::Single);
            return Ok(());
        };
        let mounts = |c: &Container| -> Vec<String> {
            c.volume_mounts.iter().flatten().map(|m| m.name.clone()).collect()
        };
        prop_assert_eq!(mounts(render), ["config", "chart", "render-tmp"]);
        let names = render.env.iter().flatten().map(|v| (v.name.as_str(), v.value.is_some()));
        prop_assert_eq!(names.collect::<Vec<_>>(), [(CONFIG_SHA256, true)]);
        let [push] = pod.containers.as_slice() else {
            return Err(TestCaseError::fail("one container pushes"));
        };
        prop_assert!(!mounts(push).contains(&"config".to_owned()));
        prop_assert!(push.volume_mounts.iter().flatten().any(|m| m.name == "chart" && m.read_only == Some(true)));
        prop_assert!(push.env.iter().flatten().all(|v| v.value_from.is_none()), "credentials are files");
        // One volume may be the task's own Secret with its credential in it; each shows the keys it is for and no other.
        for volume in pod.volumes.iter().flatten() {
            let items = volume.secret.iter().flat_map(|s| s.items.iter().flatten()).map(|i| i.key.as_str());
            let expected: &[&str] = match volume.name.as_str() {
                "config" => &["config.json"],
                "push" => &["url"],
                "credentials" if mounts(push).contains(&volume.name) => continue,
                _ => &[],
            };
            prop_assert_eq!(items.collect::<Vec<_>>(), expected);
        }
    }

    /// Holds: R2, R3, R5.
    #[test]
    fn every_pod_passes_pod_security_restricted(catalog in catalogs(), task in tenants_task()) {
        let job = made(&catalog, &task).job;
        restricted(pod(&job))?;
    }
}

/// What a pod of the task may name: the task's own Secret, and what the platform wrote into the registry and the class.
fn admitted(own: &str, resolved: &ResolvedTask) -> BTreeSet<(&'static str, String)> {
    let mut admitted = BTreeSet::from([("secret", own.to_owned())]);
    if let CredentialState::BasicAuth(name) | CredentialState::DockerConfig(name) = &resolved.credential {
        assert!(name == own || name == BOUND);
        admitted.insert(("secret", name.clone()));
    }
    let class = &resolved.class;
    admitted.extend(
        class
            .image_pull_secrets
            .iter()
            .map(|s| ("pull secret", s.name.clone())),
    );
    admitted.extend(
        class
            .ca_config_map_name
            .iter()
            .map(|name| ("config map", name.clone())),
    );
    if let Some(CertificateSource::ConfigMap(name, _)) = &resolved.ca {
        admitted.insert(("config map", name.clone()));
    }
    admitted.insert(("service account", "renderhub-renderer".to_owned()));
    admitted
}

/// All objects that a Job names, in every field of the pod's schema that has a name.
fn named(value: &Value) -> BTreeSet<(&'static str, String)> {
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    match value {
        Value::Array(items) => items.iter().flat_map(named).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(key, value)| match key.as_str() {
                "secretName" => BTreeSet::from([("secret", text(value))]),
                "secretKeyRef" | "secretRef" => BTreeSet::from([("secret", text(&value["name"]))]),
                "configMap" | "configMapKeyRef" | "configMapRef" => {
                    BTreeSet::from([("config map", text(&value["name"]))])
                }
                "imagePullSecrets" => {
                    let names = value.as_array().unwrap().iter().map(|s| text(&s["name"]));
                    names.map(|name| ("pull secret", name)).collect()
                }
                "serviceAccountName" | "serviceAccount" => BTreeSet::from([("service account", text(value))]),
                "claimName" | "volumeName" | "resourceClaims" => {
                    BTreeSet::from([("claim", value.to_string())])
                }
                _ => named(value),
            })
            .collect(),
        _ => BTreeSet::new(),
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
