//! What `helm uninstall` starts first ends the hub with the rights that the chart gives it, and never keeps an uninstall from going
//! on. That the hub then releases its Lease is in `tests/installation.rs`.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use clap::Parser;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::rbac::v1::RoleBinding;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use renderhub::app::config;
use renderhub::app::config::HubCli;
use renderhub_harness::helm::{self, Helm};
use renderhub_harness::{ControlPlane, apply, wait_for};
use serde_json::{Value, json};
use support::programs;
use tokio::process::Command;

const LIMIT: Duration = Duration::from_secs(60);

/// What helm would install with these values, where it has a cluster to ask; without one it prints no hook for an uninstall.
async fn rendered(namespace: &str, sets: &[&str]) -> Result<Vec<Value>> {
    let plane = ControlPlane::shared().await?;
    let helm = Helm::new()?.with_cluster(plane.admin().kubeconfig()?);
    let chart = helm::renderhub_chart();
    let chart = chart.to_str().context("a path that is no text")?;
    let words = [
        "template",
        "renderhub",
        chart,
        "--dry-run=server",
        "--namespace",
        namespace,
    ];
    let sets = ["crds.install=false", "policies.install=false"]
        .iter()
        .chain(sets);
    let sets: Vec<&str> = sets.flat_map(|set| ["--set", set]).collect();
    helm::documents(&helm.run(&[&words[..], &sets].concat()).await?)
}

/// The objects of the hook.
async fn hook(sets: &[&str]) -> Result<Vec<Value>> {
    let mut objects = rendered("hub", sets).await?;
    objects.retain(|object| object["metadata"]["annotations"]["helm.sh/hook"] == "pre-delete");
    Ok(objects)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let found = objects.iter().find(|object| object["kind"] == kind);
    found.with_context(|| format!("the chart makes no {kind}"))
}

/// The hub ends while it may still release its Lease, and what ends it can do no more than that: no Lease is written by others.
///
/// Holds: B35, B36.
#[tokio::test]
async fn the_hub_ends_first_by_rights_that_do_not_stay() -> Result<()> {
    for sets in [&[][..], &["rbac.clusterAdmin=true", "replicaCount=3"]] {
        let objects = hook(sets).await?;
        assert_eq!(objects.len(), 4, "{sets:?}");
        for object in &objects {
            let meta = &object["metadata"];
            assert_eq!(meta["name"], "renderhub-stop");
            assert_eq!(meta["namespace"], "hub");
            let policy = &meta["annotations"]["helm.sh/hook-delete-policy"];
            assert_eq!(policy, "before-hook-creation,hook-succeeded,hook-failed");
            let weight = if object["kind"] == "Job" { "0" } else { "-1" };
            assert_eq!(meta["annotations"]["helm.sh/hook-weight"], weight);
        }
        let rules = json!([
            {"apiGroups": ["apps"], "resources": ["deployments/scale"], "resourceNames": ["renderhub"], "verbs": ["patch"]},
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        ]);
        assert_eq!(of_kind(&objects, "Role")?["rules"], rules);
        let subject = json!([{"kind": "ServiceAccount", "name": "renderhub-stop", "namespace": "hub"}]);
        let all = rendered("hub", sets).await?;
        let bound = all.iter().filter(|object| object["subjects"] == subject);
        let bound: Vec<_> = bound
            .map(|object| (&object["kind"], &object["roleRef"]["kind"]))
            .collect();
        assert_eq!(bound, [(&json!("RoleBinding"), &json!("Role"))]);
    }
    assert!(hook(&["uninstall.stopHub=false"]).await?.is_empty());
    Ok(())
}

/// The selector is that of the hub's pods, and there is time for as long as these may take.
#[tokio::test]
async fn it_waits_for_the_hubs_pods_as_long_as_they_may_take() -> Result<()> {
    let sets = ["terminationGracePeriodSeconds=100", "fullnameOverride=own"];
    let objects = hook(&sets).await?;
    let job = &of_kind(&objects, "Job")?["spec"];
    let args = job["template"]["spec"]["containers"][0]["args"].as_array();
    let args = args.into_iter().flatten().filter_map(Value::as_str);
    let HubCli {
        command: config::HubCommand::Stop(args),
    } = HubCli::try_parse_from(std::iter::once("renderhub").chain(args))?
    else {
        anyhow::bail!("another command")
    };
    assert_eq!(args.timeout, Duration::from_secs(110));
    ensure!(job["activeDeadlineSeconds"].as_u64() > Some(args.timeout.as_secs()));
    let hub = args.hub();
    assert_eq!((hub.namespace.as_str(), hub.deployment.as_str()), ("hub", "own"));
    let all = rendered("hub", &sets).await?;
    let wanted = &of_kind(&all, "Deployment")?["spec"]["selector"]["matchLabels"];
    let parts = hub.selector.split(',');
    let selector: Value = parts.filter_map(|part| part.split_once('=')).collect();
    assert_eq!(&selector, wanted);
    Ok(())
}

/// A release with only the objects that an uninstall uses; no node runs its pods.
struct Release {
    namespace: String,
    admin: Client,
    kubeconfig: PathBuf,
    args: Vec<String>,
    labels: Value,
}

impl Release {
    async fn install(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared().await?;
        let admin = plane.admin().client().await?;
        let namespace = format!("hub-{name}");
        let own = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
        apply::object(&admin, own).await?;
        let objects = rendered(&namespace, &["replicaCount=2"]).await?;
        let (mut args, mut labels) = (Vec::new(), Value::Null);
        for object in objects {
            let is_hook = object["metadata"]["name"] == "renderhub-stop";
            let spec = &object["spec"]["template"]["spec"]["containers"][0];
            match object["kind"].as_str() {
                Some("Job") if is_hook => args = serde_json::from_value(spec["args"].clone())?,
                Some("Deployment") => {
                    labels = object["spec"]["selector"]["matchLabels"].clone();
                    apply::object(&admin, object).await?;
                }
                Some("ServiceAccount") if object["metadata"]["namespace"] == *namespace => {
                    apply::object(&admin, object).await?;
                }
                _ if is_hook => drop(apply::object(&admin, object).await?),
                _ => {}
            }
        }
        let stopper = plane.service_account(&namespace, "renderhub-stop").await?;
        let release = Self {
            kubeconfig: stopper.kubeconfig()?,
            namespace,
            admin,
            args,
            labels,
        };
        wait_for("the pods", LIMIT, async || {
            Ok((release.pods().await?.len() == 2).then_some(()))
        })
        .await?;
        Ok(release)
    }

    fn api(&self) -> Api<Pod> {
        Api::namespaced(self.admin.clone(), &self.namespace)
    }

    /// Names of its pods, those on their way out included.
    async fn pods(&self) -> Result<Vec<String>> {
        let pods = self.api().list(&ListParams::default()).await?;
        Ok(pods.iter().map(ResourceExt::name_any).collect())
    }

    /// A pod of the hub's that no controller looks after, with this phase.
    async fn make_pod(&self, name: &str, phase: &str) -> Result<()> {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": name, "namespace": self.namespace, "labels": self.labels},
            "spec": {"containers": [{"name": "hub", "image": "hub"}]},
        });
        apply::object(&self.admin, pod).await?;
        let status = Patch::Merge(json!({"status": {"phase": phase}}));
        self.api()
            .patch_status(name, &PatchParams::default(), &status)
            .await?;
        Ok(())
    }

    async fn replicas(&self) -> Result<Option<i32>> {
        let hubs: Api<Deployment> = Api::namespaced(self.admin.clone(), &self.namespace);
        let hub = hubs.get("renderhub").await?;
        Ok(hub.spec.and_then(|spec| spec.replicas))
    }

    /// Runs what the chart's hook runs; what it says, which is one line. It succeeds whatever it says.
    async fn stop(&self) -> Result<String> {
        let mut program = Command::new(programs::hub());
        program.args(&self.args).kill_on_drop(true);
        program
            .env("KUBECONFIG", &self.kubeconfig)
            .env_remove("KUBERNETES_SERVICE_HOST");
        let output = program.output().await?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "{}: {text}", output.status);
        ensure!(
            text.lines().count() == 1 && output.stderr.is_empty(),
            "{output:?}"
        );
        Ok(text)
    }
}

#[tokio::test]
async fn every_instance_ends_and_one_that_was_evicted_is_not_waited_for() -> Result<()> {
    let release = Release::install("ends").await?;
    release.make_pod("evicted", "Failed").await?;
    let text = release.stop().await?;
    ensure!(text.contains("no instance of the hub runs any more"), "{text}");
    assert_eq!(release.replicas().await?, Some(0));
    assert_eq!(release.pods().await?, ["evicted"]);
    // Once more, and without a hub: both are as after an uninstall that was broken off.
    release.stop().await?;
    let hubs: Api<Deployment> = Api::namespaced(release.admin.clone(), &release.namespace);
    hubs.delete("renderhub", &DeleteParams::default()).await?;
    let text = release.stop().await?;
    ensure!(text.contains("no instance of the hub runs any more"), "{text}");
    Ok(())
}

/// Holds: B36.
#[tokio::test]
async fn an_instance_that_does_not_end_is_reported_and_keeps_no_uninstall_from_going_on() -> Result<()> {
    let mut release = Release::install("late").await?;
    release.make_pod("stays", "Running").await?;
    release.args.retain(|arg| !arg.starts_with("--timeout="));
    release.args.push("--timeout=3s".to_owned());
    let text = release.stop().await?;
    ensure!(text.contains("starts when its Lease is over"), "{text}");
    assert_eq!(release.replicas().await?, Some(0));
    Ok(())
}

#[tokio::test]
async fn what_it_may_not_do_or_reach_is_reported_and_keeps_no_uninstall_from_going_on() -> Result<()> {
    let mut release = Release::install("refused").await?;
    let bindings: Api<RoleBinding> = Api::namespaced(release.admin.clone(), &release.namespace);
    bindings
        .delete("renderhub-stop", &DeleteParams::default())
        .await?;
    let text = release.stop().await?;
    ensure!(
        text.contains("does not let this pod scale the hub's Deployment"),
        "{text}"
    );
    assert_eq!(release.replicas().await?, Some(2));
    release.kubeconfig = "/no/such/file".into();
    let text = release.stop().await?;
    ensure!(text.contains("no configuration of the hub's cluster"), "{text}");
    Ok(())
}
