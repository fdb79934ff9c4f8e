//! Promises of the harness: a node runs hardened pods to their end, keeps them on this machine, and nothing survives it.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::batch::v1::Job;
use kube::Api;
use renderhub_harness::diagnose::Watch;
use renderhub_harness::{ControlPlane, Node, Registry, RegistryOptions, wait_for};

const LIMIT: Duration = Duration::from_secs(90);

/// A Job as strict as PodSecurity `restricted` asks: an init container hands a file to the main one.
fn job(namespace: &str, name: &str, render: &str, renderer: &str) -> String {
    let container = |name: &str, script: &str| {
        format!(
            "
      - name: {name}
        image: {image}
        imagePullPolicy: Never
        command: [/bin/busybox, sh, -c, '{script}']
        resources: {{limits: {{memory: 64Mi, cpu: 500m}}}}
        securityContext:
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities: {{drop: [ALL]}}
        volumeMounts:
        - {{name: work, mountPath: /work}}
        - {{name: secret, mountPath: /secret, readOnly: true}}",
            image = Node::TEST_IMAGE
        )
    };
    format!(
        "
apiVersion: v1
kind: Secret
metadata: {{name: {name}, namespace: {namespace}}}
stringData: {{word: swordfish}}
---
apiVersion: batch/v1
kind: Job
metadata: {{name: {name}, namespace: {namespace}}}
spec:
  backoffLimit: 0
  template:
    spec:
      restartPolicy: Never
      automountServiceAccountToken: false
      securityContext: {{runAsNonRoot: true, runAsUser: 65532, fsGroup: 65532, seccompProfile: {{type: RuntimeDefault}}}}
      volumes:
      - {{name: work, emptyDir: {{sizeLimit: 16Mi}}}}
      - {{name: secret, secret: {{secretName: {name}}}}}
      initContainers:{}
      containers:{}
",
        container("render", render),
        container("renderer", renderer),
    )
}

async fn finished(plane: &ControlPlane, namespace: &str, name: &str) -> Result<String> {
    let jobs: Api<Job> = Api::namespaced(plane.admin().client().await?, namespace);
    wait_for(&format!("Job {name} to end"), LIMIT, async || {
        let status = jobs.get(name).await?.status.unwrap_or_default();
        let ended = |c: &&k8s_openapi::api::batch::v1::JobCondition| {
            c.status == "True" && ["Complete", "Failed"].contains(&c.type_.as_str())
        };
        Ok(status
            .conditions
            .unwrap_or_default()
            .iter()
            .find(ended)
            .map(|c| c.type_.clone()))
    })
    .await
}

#[tokio::test]
async fn a_node_runs_restricted_jobs_that_reach_the_test_and_nothing_else() -> Result<()> {
    let plane = ControlPlane::builder().with_node_network().start().await?;
    let node = Node::start(&plane).await?;
    let namespace = plane.namespace("jobs").await?;
    plane
        .apply_yaml(&format!(
            "{{apiVersion: v1, kind: Namespace, metadata: {{name: {namespace}, \
             labels: {{pod-security.kubernetes.io/enforce: restricted}}}}}}"
        ))
        .await?;
    let watch = Watch::new(&plane, &[&namespace]);

    let render = "cat /secret/word > /work/file && id -u";
    let renderer =
        r#"[ "$(cat /work/file)" = swordfish ] && ! touch /elsewhere 2>/dev/null && echo handed over"#;
    plane
        .apply_yaml(&job(&namespace, "handover", render, renderer))
        .await?;
    assert_eq!(finished(&plane, &namespace, "handover").await?, "Complete");
    let mut kubectl = std::process::Command::new(renderhub_harness::Tools::path("kubectl")?);
    kubectl.arg("--kubeconfig").arg(plane.admin().kubeconfig()?);
    kubectl.args(["logs", "-n", &namespace, "job/handover", "-c", "renderer"]);
    let log = renderhub_harness::process::run(&mut kubectl)?;
    assert_eq!(log.trim(), "handed over", "the API server reaches the kubelet");

    let registry = Registry::start(RegistryOptions::new().with_address(node.registry_address())).await?;
    let reach = format!(
        "nc -w 10 {} {} </dev/null",
        node.registry_address(),
        registry.address().port()
    );
    let service = r#"nc -w 10 "$KUBERNETES_SERVICE_HOST" "$KUBERNETES_SERVICE_PORT" </dev/null"#;
    plane
        .apply_yaml(&job(&namespace, "reach", &reach, service))
        .await?;
    assert_eq!(
        finished(&plane, &namespace, "reach").await?,
        "Complete",
        "the registry, and the API server's Service"
    );

    // An address of documentation, and one that only this machine's own route would lead to.
    let outside = "! nc -w 2 192.0.2.1 80 </dev/null && ! nc -w 2 198.51.100.1 443 </dev/null";
    let far = "! nc -w 2 198.18.255.77 80 </dev/null";
    plane
        .apply_yaml(&job(&namespace, "outside", outside, far))
        .await?;
    assert_eq!(
        finished(&plane, &namespace, "outside").await?,
        "Complete",
        "nothing else answers"
    );
    watch.passed();
    Ok(())
}
