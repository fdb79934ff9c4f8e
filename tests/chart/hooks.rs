//! What helm starts beside the hub to test it. What it starts before an uninstall is in `tests/uninstall.rs`.

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::batch::v1::Job;
use renderhub::app::config::{HubCli, HubCommand};
use renderhub::app::probe::ProbeArgs;
use serde_json::Value;

use super::{HUB, RENDERING, of_kind, template};

/// The objects of a hook, by its event.
async fn of_hook(event: &str, sets: &[&str]) -> Result<Vec<Value>> {
    let mut objects = template(sets).await?;
    objects.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"] == event);
    Ok(objects)
}

/// What the program reads from the arguments of a pod's container.
fn probe(pod: &Value) -> Result<ProbeArgs> {
    let args = pod["containers"][0]["args"].as_array().context("no arguments")?;
    let args = args.iter().filter_map(Value::as_str);
    match HubCli::try_parse_from(std::iter::once("renderhub").chain(args))?.command {
        HubCommand::Probe(args) => Ok(args),
        other => anyhow::bail!("{other:?}"),
    }
}

/// `helm test --logs` fails if a test's pod is missing, so there is one, in the release's namespace, whatever is tested.
#[tokio::test]
async fn helms_test_is_one_pod_where_helm_looks_for_it() -> Result<()> {
    for (sets, count, is_hub) in [
        (&[][..], 1, true),
        (&["rbac.clusterAdmin=true"], 1, true),
        (&["metrics.service.enabled=false"], 1, true),
        (&["tests.networkPolicy=false"], 1, false),
        (&["networkPolicy.enabled=false"], 1, false),
        (
            &["tests.networkPolicy=false", "metrics.service.enabled=false"],
            0,
            false,
        ),
    ] {
        let objects = of_hook("test", sets).await?;
        assert_eq!(objects.len(), count, "{sets:?}");
        for pod in &objects {
            assert_eq!(pod["kind"], "Pod");
            assert_eq!(pod["metadata"]["namespace"], HUB);
            // Nothing is mounted where nothing is asked of the API server.
            assert_eq!(pod["spec"]["automountServiceAccountToken"], is_hub, "{sets:?}");
            assert_eq!(
                pod["spec"]["serviceAccountName"] == "renderhub",
                is_hub,
                "{sets:?}"
            );
            assert_eq!(probe(&pod["spec"])?.from_job.is_some(), is_hub, "{sets:?}");
        }
    }
    Ok(())
}

/// Holds: R4, B35.
#[tokio::test]
async fn what_looks_from_the_rendering_namespace_has_no_rights_and_the_policies_of_a_renderer() -> Result<()>
{
    let objects = of_hook("test", &["renderer.imagePullSecrets={pull}"]).await?;
    let args = probe(&of_kind(&objects, "Pod")?["spec"])?;
    assert_eq!(
        args.unreachable,
        ["$(KUBERNETES_SERVICE_HOST):$(KUBERNETES_SERVICE_PORT)"]
    );
    let job: Job = *args.from_job.context("no Job")?;
    assert_eq!(job.metadata.namespace.as_deref(), Some(RENDERING));
    let labels = job.metadata.labels.unwrap_or_default();
    assert_ne!(
        labels["app.kubernetes.io/managed-by"], "renderhub",
        "the hub would look at it"
    );
    let spec = job.spec.context("no spec")?;
    ensure!(spec.ttl_seconds_after_finished.is_some() && spec.active_deadline_seconds.is_some());
    assert_eq!(spec.backoff_limit, Some(0));
    let labels = spec.template.metadata.and_then(|meta| meta.labels);
    assert_eq!(
        labels.unwrap_or_default()["app.kubernetes.io/managed-by"],
        "renderhub"
    );
    let pod = spec.template.spec.context("no pod")?;
    assert_eq!(pod.service_account_name.as_deref(), Some("renderhub-renderer"));
    assert_eq!(pod.automount_service_account_token, Some(false));
    assert_eq!(pod.image_pull_secrets.unwrap_or_default()[0].name, "pull");
    let resources = pod.containers[0].resources.clone().context("no resources")?;
    for list in [resources.requests, resources.limits] {
        let names: Vec<String> = list.unwrap_or_default().into_keys().collect();
        assert_eq!(
            names,
            ["cpu", "ephemeral-storage", "memory"],
            "the quota asks for all"
        );
    }
    Ok(())
}

/// Who applies what helm prints applies the hooks too: at once, and not before an uninstall.
#[tokio::test]
async fn what_is_not_installed_by_helm_has_nothing_that_ends_the_hub() -> Result<()> {
    assert!(of_hook("pre-delete", &[]).await?.is_empty());
    Ok(())
}
