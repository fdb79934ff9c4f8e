//! Promises of the harness: a node runs hardened pods to their end and keeps them on this machine.

use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::batch::v1::{Job, JobCondition};
use kube::Api;
use renderhub_harness::commands::kubectl;
use renderhub_harness::process::run;
use renderhub_harness::{ControlPlane, Node, Registry, RegistryOptions, Watch, wait_for};
use tokio::sync::OnceCell;

#[path = "node/private.rs"]
mod private;

const LIMIT: Duration = Duration::from_secs(90);

/// One node for all tests here.
async fn world() -> Result<&'static (ControlPlane, Node)> {
    static WORLD: OnceCell<(ControlPlane, Node)> = OnceCell::const_new();
    WORLD
        .get_or_try_init(async || {
            let plane = ControlPlane::builder().with_node_network().start().await?;
            let node = Node::start(&plane).await?;
            Ok((plane, node))
        })
        .await
}

/// A Job as strict as the level `restricted` of `PodSecurity` asks: an init container hands a file to the main one.
const JOB: &str = r"
apiVersion: v1
kind: Namespace
metadata: {name: NAMESPACE, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Secret
metadata: {name: word, namespace: NAMESPACE}
stringData: {word: swordfish}
---
apiVersion: batch/v1
kind: Job
metadata: {name: job, namespace: NAMESPACE}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      securityContext: {runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {type: RuntimeDefault}}
      volumes:
      - {name: work, emptyDir: {sizeLimit: 16Mi}}
      - {name: secret, secret: {secretName: word}}
      initContainers: [{name: render, command: [/bin/busybox, sh, -c, 'RENDER'], CONTAINER}]
      containers: [{name: renderer, command: [/bin/busybox, sh, -c, 'PUSH'], CONTAINER}]
";

const CONTAINER: &str = "image: IMAGE, imagePullPolicy: Never, resources: {limits: {memory: 64Mi, cpu: 500m}}, \
    securityContext: {allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: {drop: [ALL]}}, \
    volumeMounts: [{name: work, mountPath: /handover}, {name: secret, mountPath: /secret, readOnly: true}]";

/// Runs the Job in a namespace of its own, and returns that with the condition that ended it.
async fn run_job(plane: &ControlPlane, render: &str, push: &str) -> Result<(String, String)> {
    let namespace = plane.namespace("jobs").await?;
    let watch = Watch::new(plane, &[&namespace]);
    let yaml = JOB
        .replace("CONTAINER", CONTAINER)
        .replace("IMAGE", Node::TEST_IMAGE)
        .replace("NAMESPACE", &namespace)
        .replace("RENDER", render)
        .replace("PUSH", push);
    plane.apply_yaml(&yaml).await?;
    let jobs: Api<Job> = Api::namespaced(plane.admin().client().await?, &namespace);
    let end = |c: &&JobCondition| c.status == "True" && ["Complete", "Failed"].contains(&c.type_.as_str());
    let condition = wait_for("the Job to end", LIMIT, async || {
        let status = jobs.get("job").await?.status.unwrap_or_default();
        Ok(status
            .conditions
            .unwrap_or_default()
            .iter()
            .find(end)
            .map(|c| c.type_.clone()))
    })
    .await?;
    watch.passed();
    Ok((namespace, condition))
}

#[tokio::test]
async fn a_restricted_job_of_two_containers_completes() -> Result<()> {
    let (plane, node) = world().await?;
    let render = "cat /secret/word > /handover/file && id -u";
    let push =
        r#"[ "$(cat /handover/file)" = swordfish ] && ! touch /elsewhere 2>/dev/null && echo handed over"#;
    let (namespace, condition) = run_job(plane, render, push).await?;
    assert_eq!(condition, "Complete");
    let mut logs: Command = kubectl(plane.admin())?;
    logs.args(["logs", "-n", &namespace, "job/job", "-c"]);
    assert_eq!(
        run(logs.arg("renderer"))?.trim(),
        "handed over",
        "the API server reaches the kubelet"
    );
    let on_disk = std::fs::read_dir(node.pod_logs())?.filter_map(Result::ok);
    let ours = on_disk.filter(|entry| entry.file_name().to_string_lossy().starts_with(&namespace));
    assert_eq!(ours.count(), 1, "the logs can be scanned as files");
    assert!(node.images()?.iter().any(|image| image == Node::TEST_IMAGE));
    assert!(
        node.path_on_node(&node.kubelet_root())?.join("pods").is_dir(),
        "and the volumes too"
    );
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_is_failed() -> Result<()> {
    let (plane, _node) = world().await?;
    let (_, condition) = run_job(plane, "exit 3", "true").await?;
    assert_eq!(condition, "Failed");
    Ok(())
}

#[tokio::test]
async fn pods_reach_a_registry_of_the_test_and_the_api_server_by_its_service() -> Result<()> {
    let (plane, node) = world().await?;
    let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
    let reach = format!(
        "nc -w 10 {} {} </dev/null",
        node.registry_address(),
        registry.address().port()
    );
    let service = r#"nc -w 10 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null"#;
    assert_eq!(run_job(plane, &reach, service).await?.1, "Complete");
    Ok(())
}

#[tokio::test]
async fn no_packet_of_a_pod_leaves_this_machine() -> Result<()> {
    let (plane, _node) = world().await?;
    // Addresses of documentation, and one in the range that the node has a route to.
    let outside = "! nc -w 2 192.0.2.1 80 </dev/null && ! nc -w 2 198.51.100.1 443 </dev/null";
    let inside = "! nc -w 2 198.18.255.77 80 </dev/null && ! ip route | grep default";
    assert_eq!(run_job(plane, outside, inside).await?.1, "Complete");
    Ok(())
}
