//! Promises of the harness: control planes start quickly, stay apart, and are distinguishable.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{ConfigMap, Secret};
use kube::api::{ListParams, PostParams};
use kube::{Api, ResourceExt};
use renderhub_harness::audit::Mark;
use renderhub_harness::commands::kubectl;
use renderhub_harness::diagnose::Watch;
use renderhub_harness::finish::{self, Exit, Outcome};
use renderhub_harness::process::run;
use renderhub_harness::{ControlPlane, wait_for};
use serde_json::json;

#[path = "control_plane/remote.rs"]
mod remote;

fn object<T: serde::de::DeserializeOwned>(value: serde_json::Value) -> T {
    serde_json::from_value(value).expect("a valid object")
}

fn job(name: &str) -> Job {
    object(json!({
        "metadata": { "name": name },
        "spec": { "template": { "spec": {
            "restartPolicy": "Never",
            "initContainers": [{ "name": "render", "image": "renderhub.test/none:1" }],
            "containers": [{ "name": "renderer", "image": "renderhub.test/none:1" }],
        }}}
    }))
}

fn has_condition(job: &Job, kind: &str) -> bool {
    let conditions = job.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions
        .into_iter()
        .any(|c| c.type_ == kind && c.status == "True")
}

#[tokio::test]
async fn two_control_planes_run_side_by_side_and_end_with_their_handles() -> Result<()> {
    let (one, two) = tokio::try_join!(ControlPlane::start(), ControlPlane::start())?;
    assert_ne!(one.url(), two.url());
    assert!(one.address().is_loopback());
    let namespace = one.namespace("only-in-one").await?;
    let client = two.admin().client().await?;
    let namespaces: Api<k8s_openapi::api::core::v1::Namespace> = Api::all(client);
    assert!(
        namespaces.get_opt(&namespace).await?.is_none(),
        "the other control plane has its own data"
    );

    let pids: Vec<u32> = one.pids().into_iter().chain(two.pids()).collect();
    let dirs = [one.dir().to_owned(), two.dir().to_owned()];
    drop((one, two));
    for pid in pids {
        assert!(
            !std::path::Path::new(&format!("/proc/{pid}")).exists(),
            "server {pid} still runs"
        );
    }
    assert!(dirs.iter().all(|dir| !dir.exists()));
    Ok(())
}

#[tokio::test]
async fn certificates_are_verified() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let other = renderhub_harness::pki::Authority::new("another")?;
    let stranger = std::fs::read_to_string(plane.admin().kubeconfig()?)?;
    let mut stranger: kube::config::Kubeconfig = serde_json::from_str(&stranger)?;
    let cluster = stranger.clusters[0].cluster.as_mut().expect("a cluster");
    cluster.certificate_authority_data = Some(base64::Engine::encode(
        &base64::engine::general_purpose::STANDARD,
        other.pem(),
    ));
    let config =
        kube::Config::from_custom_kubeconfig(stranger, &kube::config::KubeConfigOptions::default()).await?;
    let refused = kube::Client::try_from(config)?.apiserver_version().await;
    assert!(
        matches!(refused, Err(kube::Error::HyperError(_) | kube::Error::Service(_))),
        "{refused:?}"
    );
    assert_eq!(
        plane
            .admin()
            .client()
            .await?
            .apiserver_version()
            .await?
            .git_version,
        "v1.36.3"
    );
    Ok(())
}

#[tokio::test]
async fn a_tenant_is_admin_at_home_and_has_no_right_elsewhere() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let (home, other) = (plane.namespace("home").await?, plane.namespace("other").await?);
    let tenant = plane.tenant(&home).await?;
    let client = tenant.client().await?;
    let secrets = |namespace: &str| Api::<Secret>::namespaced(client.clone(), namespace);
    secrets(&home)
        .create(
            &PostParams::default(),
            &object(json!({"metadata": {"name": "mine"}})),
        )
        .await?;
    assert!(
        secrets(&other)
            .get("mine")
            .await
            .is_err_and(|e| matches!(e, kube::Error::Api(s) if s.is_forbidden()))
    );
    let all = Api::<Secret>::all(client.clone())
        .list(&ListParams::default())
        .await;
    assert!(all.is_err_and(|e| matches!(e, kube::Error::Api(s) if s.is_forbidden())));
    let nobody = Api::<Secret>::namespaced(plane.anonymous().client().await?, &home)
        .get("mine")
        .await;
    assert!(nobody.is_err_and(|e| matches!(e, kube::Error::Api(s) if s.code == 401 || s.code == 403)));
    let account = plane.service_account(&home, "robot").await?;
    let robot = Api::<Secret>::namespaced(account.client().await?, &home)
        .get("mine")
        .await;
    assert!(
        robot.is_err_and(|e| matches!(e, kube::Error::Api(s) if s.is_forbidden())),
        "a known user without rights"
    );
    Ok(())
}

#[tokio::test]
async fn a_user_has_exactly_the_rules_it_was_given() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("rules").await?;
    let rule = object(json!({ "apiGroups": [""], "resources": ["configmaps"], "verbs": ["create"] }));
    let user = plane.user_with_rules("writer", vec![rule]).await?;
    let maps: Api<ConfigMap> = Api::namespaced(user.client().await?, &namespace);
    maps.create(
        &PostParams::default(),
        &object(json!({"metadata": {"name": "one"}})),
    )
    .await?;
    assert!(maps.get("one").await.is_err());
    Ok(())
}

#[tokio::test]
async fn kubeconfigs_work_for_kubectl_and_only_their_owner_reads_them() -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let plane = ControlPlane::shared().await?;
    let path = plane.admin().kubeconfig()?;
    assert_eq!(path.metadata()?.permissions().mode() & 0o777, 0o600);
    let said = run(kubectl(plane.admin())?.args(["auth", "whoami"]))?;
    assert!(
        said.contains("test-admin") && said.contains("system:masters"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn the_audit_log_counts_every_request_of_a_user_once() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("audit").await?;
    let tenant = plane.tenant(&namespace).await?;
    let maps: Api<ConfigMap> = Api::namespaced(tenant.client().await?, &namespace);
    let begin = plane.audit()?.mark().await?;
    for number in 0..25 {
        let map = object(json!({"metadata": {"name": format!("map-{number}")}}));
        maps.create(&PostParams::default(), &map).await?;
    }
    maps.get("map-0").await?;
    maps.delete("map-0", &kube::api::DeleteParams::default()).await?;
    let counts = plane.audit()?.counts(begin, tenant.name()).await?;
    let expected = [
        ("create configmaps", 25),
        ("delete configmaps", 1),
        ("get configmaps", 1),
    ];
    assert_eq!(
        counts,
        expected.map(|(action, count)| (action.to_owned(), count)).into()
    );
    let events = plane.audit()?.since(begin).await?;
    let delete = events
        .iter()
        .find(|e| e.user == tenant.name() && e.verb == "delete")
        .expect("the delete");
    assert_eq!(
        (delete.name.as_str(), delete.namespace == namespace, delete.code),
        ("map-0", true, 200)
    );
    assert!(
        plane.audit()?.between(Mark::START, begin)?.len() > 3,
        "what came before is there too"
    );
    Ok(())
}

#[tokio::test]
async fn jobs_are_ended_as_their_controller_would() -> Result<()> {
    let plane = ControlPlane::builder().without_job_controller().start().await?;
    let namespace = plane.namespace("jobs").await?;
    let client = plane.admin().client().await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    for name in ["good", "bad"] {
        jobs.create(&PostParams::default(), &job(name)).await?;
    }
    finish::complete_job(&client, &namespace, "good").await?;
    finish::fail_job(&client, &namespace, "bad", "BackoffLimitExceeded").await?;
    let (good, bad) = (jobs.get("good").await?, jobs.get("bad").await?);
    assert!(has_condition(&good, "Complete") && !has_condition(&good, "Failed"));
    assert!(has_condition(&bad, "Failed") && !has_condition(&bad, "Complete"));

    let exits = [Exit::new("render", 3, r#"{"phase":"Render"}"#)];
    let pod = finish::pod_for_job(&client, &bad, &exits).await?;
    let status = pod.status.clone().unwrap_or_default();
    assert_eq!(status.phase.as_deref(), Some("Failed"));
    let render = &status.init_container_statuses.unwrap_or_default()[0];
    let end = render
        .state
        .clone()
        .and_then(|s| s.terminated)
        .expect("it has ended");
    assert_eq!(
        (end.exit_code, end.message.as_deref()),
        (3, Some(r#"{"phase":"Render"}"#))
    );
    let renderer = &status.container_statuses.unwrap_or_default()[0];
    assert!(
        renderer.state.clone().is_some_and(|s| s.waiting.is_some()),
        "it never started"
    );
    assert_eq!(
        pod.labels()
            .get("batch.kubernetes.io/job-name")
            .map(String::as_str),
        Some("bad")
    );
    Ok(())
}

#[tokio::test]
async fn the_job_controller_sees_a_pod_that_a_test_ends() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("pods").await?;
    let client = plane.admin().client().await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    jobs.create(&PostParams::default(), &job("real")).await?;
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client.clone(), &namespace);
    let limit = Duration::from_secs(30);
    let pod = wait_for("the Job's pod", limit, async || {
        Ok(pods.list(&ListParams::default()).await?.items.pop())
    })
    .await?;
    finish::end_pod(&client, &pod, &[]).await?;
    wait_for("the Job to complete", limit, async || {
        Ok(has_condition(&jobs.get("real").await?, "Complete").then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_new_kind_can_be_used_in_the_same_file() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let applied = plane
        .apply_yaml(
            "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.harness.test}
spec:
  group: harness.test
  scope: Cluster
  names: {plural: things, singular: thing, kind: Thing}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object}}}}}
---
apiVersion: harness.test/v1
kind: Thing
metadata: {name: first}
spec: {}
---
",
        )
        .await?;
    assert_eq!(
        applied.iter().map(ResourceExt::name_any).collect::<Vec<_>>(),
        ["things.harness.test", "first"]
    );
    Ok(())
}

/// A kind of the hub's group, with an object in each of these namespaces.
fn own_kind(one: &str, other: &str) -> String {
    let object = |namespace: &str| {
        format!(
            "---\n{{apiVersion: renderhub.dev/v1, kind: Picture, metadata: {{name: one, namespace: {namespace}}}}}\n"
        )
    };
    let definition = "
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: pictures.renderhub.dev}
spec:
  group: renderhub.dev
  scope: Namespaced
  names: {plural: pictures, singular: picture, kind: Picture}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
";
    format!("{definition}{}{}", object(one), object(other))
}

#[tokio::test]
async fn a_failed_test_shows_conditions_and_events_and_no_secret() -> Result<()> {
    let plane = ControlPlane::shared().await?;
    let namespace = plane.namespace("picture").await?;
    let client = plane.admin().client().await?;
    let secret = object(json!({"metadata": {"name": "s"}, "stringData": {"password": "canary-4711"}}));
    Api::<Secret>::namespaced(client.clone(), &namespace)
        .create(&PostParams::default(), &secret)
        .await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    jobs.create(&PostParams::default(), &job("shown")).await?;
    plane
        .apply_yaml(&format!(
            "{{apiVersion: events.k8s.io/v1, kind: Event, metadata: {{name: e, namespace: {namespace}}}, \
             eventTime: '2026-01-01T00:00:00.000000Z', reportingController: test/t, reportingInstance: t, type: Normal, \
             action: Try, reason: Leaked, note: 'the password is canary-4711', \
             regarding: {{kind: Job, name: shown, namespace: {namespace}}}}}"
        ))
        .await?;
    let other = plane.namespace("unseen").await?;
    plane.apply_yaml(&own_kind(&namespace, &other)).await?;
    let watch = Watch::new(plane, &[&namespace]);
    let picture = watch.picture().await?;
    assert!(picture.contains(&format!("Picture {namespace}/one")), "{picture}");
    assert!(!picture.contains(&other), "another test's: {picture}");
    assert!(
        picture.contains("Job ") && picture.contains("/shown"),
        "{picture}"
    );
    assert!(
        picture.contains("Leaked on Job shown: the password is [secret]"),
        "{picture}"
    );
    assert!(!picture.contains("canary"), "{picture}");
    watch.passed();
    Ok(())
}

#[tokio::test]
async fn every_job_of_a_namespace_can_be_ended_in_the_background() -> Result<()> {
    let plane = ControlPlane::builder().without_job_controller().start().await?;
    let namespace = plane.namespace("finisher").await?;
    let client = plane.admin().client().await?;
    let jobs: Api<Job> = Api::namespaced(client.clone(), &namespace);
    jobs.create(&PostParams::default(), &job("before")).await?;
    let outcome = |job: &Job| match job.name_any().as_str() {
        "bad" => Outcome::Failed("DeadlineExceeded".to_owned(), Exit::new("renderer", 7, "foreign")),
        _ => Outcome::Complete("{}".to_owned()),
    };
    let finisher = {
        let (client, namespace) = (client.clone(), namespace.clone());
        tokio::spawn(async move { finish::every_job(client, &namespace, outcome).await })
    };
    for name in ["good", "bad"] {
        jobs.create(&PostParams::default(), &job(name)).await?;
    }
    for (name, condition) in [("before", "Complete"), ("good", "Complete"), ("bad", "Failed")] {
        wait_for(&format!("{name} to end"), Duration::from_secs(30), async || {
            Ok(has_condition(&jobs.get(name).await?, condition).then_some(()))
        })
        .await?;
    }
    finisher.abort();
    let pods: Api<k8s_openapi::api::core::v1::Pod> = Api::namespaced(client, &namespace);
    assert_eq!(
        pods.list(&ListParams::default()).await?.items.len(),
        3,
        "one Pod for each Job"
    );
    Ok(())
}
