//! A task gets the hub's finalizer where a hub serves it, and only there: elsewhere its maker is warned, and it can be deleted. So does
//! a Target, where that hub has the pipeline on.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use renderhub_harness::helm::{Helm, documents, renderhub_chart};
use renderhub_harness::{ControlPlane, apply, commands, process, rundir, wait_for};
use serde_json::{Value, json};

const LIMIT: Duration = Duration::from_secs(30);
const FINALIZER: &str = "renderhub.dev/cleanup";
const TARGET_FINALIZER: &str = "renderhub.dev/target-cleanup";

/// The admission policies and bindings of a release with these values.
async fn admission_of(release: &str, sets: &[&str]) -> Result<Vec<Value>> {
    let chart = renderhub_chart().display().to_string();
    let mut words = vec!["template", release, &chart, "--namespace=renderhub-system"];
    words.push("--api-versions=admissionregistration.k8s.io/v1/MutatingAdmissionPolicy");
    words.extend(["--set", "crds.install=false"]);
    words.extend(sets.iter().flat_map(|set| ["--set", set]));
    let mut objects = documents(&Helm::new()?.run(&words).await?)?;
    objects.retain(|object| {
        let kind = object["kind"].as_str().unwrap_or_default();
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        kind.contains("AdmissionPolicy") && !name.ends_with("-namespace-deletion")
    });
    Ok(objects)
}

/// Two releases that divide the namespaces; one has the pipeline.
const TWO: &[(&str, &[&str])] = &[
    (
        "one",
        &["controller.watchNamespaces={team-a}", "pipeline.enabled=true"],
    ),
    (
        "two",
        &[
            "controller.watchNamespaces={team-b}",
            "controller.shardName=two",
            "policies.install=false",
            "renderingNamespace.name=two-rendering",
        ],
    ),
];

struct Served {
    plane: ControlPlane,
}

impl Served {
    async fn start(releases: &[(&str, &[&str])]) -> Result<Self> {
        let plane = ControlPlane::start().await?;
        support::api::install_crds(&plane).await?;
        let admin = plane.admin().client().await?;
        for (release, sets) in releases {
            for object in admission_of(release, sets).await? {
                apply::object(&admin, object).await?;
            }
        }
        for namespace in ["team-a", "team-b", "team-c"] {
            let made = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}});
            apply::object(&admin, made).await?;
        }
        Ok(Self { plane })
    }

    /// Makes a task as a user would; what kubectl says besides.
    fn make(&self, kind: &str, namespace: &str, name: &str) -> Result<String> {
        let mut task = support::api::release(kind, name);
        if kind == "RenderTask" {
            task["metadata"]["namespace"] = namespace.into();
        }
        self.create(&task, &format!("{namespace}-{name}.json"))
    }

    /// Makes a Target as a user would.
    fn make_target(&self, namespace: &str, name: &str) -> Result<()> {
        let registry = json!({"kind": "ClusterRegistry", "name": "registry"});
        let target = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "Target",
            "metadata": {"name": name, "namespace": namespace, "finalizers": ["example.com/hold"]},
            "spec": {"renderRegistryRef": registry},
        });
        self.create(&target, &format!("target-{namespace}-{name}.json"))?;
        Ok(())
    }

    fn create(&self, object: &Value, file: &str) -> Result<String> {
        let file = self.plane.dir().join(file);
        std::fs::write(&file, object.to_string())?;
        let mut kubectl = commands::kubectl(self.plane.admin())?;
        kubectl.arg("create").arg("-f").arg(&file);
        let output = kubectl.output()?;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        ensure!(output.status.success(), "{said}");
        Ok(said)
    }

    /// Makes a version of a Target, as a hub would.
    fn make_version(&self, namespace: &str, name: &str) -> Result<()> {
        let registry = json!({
            "kind": "ClusterRegistry", "name": "registry", "hostname": "registry.test", "repository": "edge",
        });
        let version = json!({
            "apiVersion": "renderhub.dev/v1alpha1", "kind": "HydratedTarget",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "targetName": "edge", "targetUid": "uid", "version": 1, "releases": {}, "changes": "first version",
                "registry": registry,
            },
        });
        self.create(&version, &format!("version-{namespace}-{name}.json"))?;
        Ok(())
    }

    /// Makes a task with the label of those that a hub makes for Targets.
    fn make_pipeline_task(&self, namespace: &str, name: &str) -> Result<()> {
        let mut task = support::api::release("RenderTask", name);
        task["metadata"]["namespace"] = namespace.into();
        task["metadata"]["labels"] = json!({"renderhub.dev/pipeline": "release"});
        self.create(&task, &format!("labelled-{namespace}-{name}.json"))?;
        Ok(())
    }

    fn finalizers(&self, resource: &str, namespace: &str, name: &str) -> Result<String> {
        self.metadata("finalizers", resource, namespace, name)
    }

    /// A field of the metadata of an object; empty where it has none.
    fn metadata(&self, field: &str, resource: &str, namespace: &str, name: &str) -> Result<String> {
        let mut kubectl = commands::kubectl(self.plane.admin())?;
        kubectl.args(["get", resource, name, "--namespace", namespace]);
        kubectl.args([
            "--show-managed-fields",
            &format!("--output=jsonpath={{.metadata.{field}}}"),
        ]);
        process::run(&mut kubectl)
    }

    /// Changes an object's metadata.
    fn label(&self, resource: &str, namespace: &str, name: &str) -> Result<()> {
        let mut kubectl = commands::kubectl(self.plane.admin())?;
        kubectl.args(["label", resource, name, "--namespace", namespace, "seen=yes"]);
        process::run(&mut kubectl)?;
        Ok(())
    }

    fn delete(&self, resource: &str, namespace: &str, name: &str) -> Result<()> {
        let mut kubectl = commands::kubectl(self.plane.admin())?;
        kubectl.args([
            "delete",
            resource,
            name,
            "--namespace",
            namespace,
            "--timeout=20s",
        ]);
        process::run(&mut kubectl)?;
        Ok(())
    }
}

/// Holds: B27.
#[tokio::test]
async fn a_task_that_no_hub_serves_is_warned_of_and_can_be_deleted() -> Result<()> {
    let served = Served::start(TWO).await?;
    // Both bindings and the policy that warns are in force some seconds after they were made.
    wait_for("the policies to be in force", LIMIT, async || {
        let probe = format!("probe-{}", rundir::random_hex(4)?);
        let warned = served.make("RenderTask", "team-c", &probe)?.contains("no hub");
        served.make("RenderTask", "team-a", &probe)?;
        served.make("RenderTask", "team-b", &probe)?;
        let first = served.finalizers("rendertasks", "team-a", &probe)?;
        let second = served.finalizers("rendertasks", "team-b", &probe)?;
        Ok((warned && first.contains(FINALIZER) && second.contains(FINALIZER)).then_some(()))
    })
    .await?;
    for namespace in ["team-a", "team-b"] {
        let said = served.make("RenderTask", namespace, "served")?;
        ensure!(!said.contains("Warning"), "{namespace}: {said}");
    }
    for (kind, resource) in [
        ("RenderTask", "rendertasks"),
        ("ClusterRenderTask", "clusterrendertasks"),
    ] {
        let said = served.make(kind, "team-c", "unserved")?;
        ensure!(
            said.contains("Warning") && said.contains("ask the platform operator"),
            "{said}"
        );
        let finalizers = served.finalizers(resource, "team-c", "unserved")?;
        ensure!(finalizers.is_empty(), "{kind}: {finalizers}");
        served.delete(resource, "team-c", "unserved")?;
    }
    Ok(())
}

#[tokio::test]
async fn a_target_is_made_with_the_finalizer_only_where_a_hub_with_the_pipeline_serves_it() -> Result<()> {
    let served = Served::start(TWO).await?;
    wait_for("the policies to be in force", LIMIT, async || {
        let probe = format!("probe-{}", rundir::random_hex(4)?);
        served.make_target("team-a", &probe)?;
        served.make("RenderTask", "team-b", &probe)?;
        let of_target = served.finalizers("targets", "team-a", &probe)?;
        let of_task = served.finalizers("rendertasks", "team-b", &probe)?;
        Ok((of_target.contains(TARGET_FINALIZER) && of_task.contains(FINALIZER)).then_some(()))
    })
    .await?;
    let expected = format!(r#"["example.com/hold","{TARGET_FINALIZER}"]"#);
    for (namespace, expected) in [
        ("team-a", expected.as_str()),
        ("team-b", r#"["example.com/hold"]"#),
        ("team-c", r#"["example.com/hold"]"#),
    ] {
        served.make_target(namespace, "edge")?;
        let finalizers = served.finalizers("targets", namespace, "edge")?;
        ensure!(finalizers == expected, "{namespace}: {finalizers}");
    }
    Ok(())
}

/// Managed fields cost as much at each write as all else of such an object; a tenant's server-side apply rests on those of its own.
#[tokio::test]
async fn of_what_only_hubs_write_the_api_server_keeps_no_managed_fields() -> Result<()> {
    let served = Served::start(TWO).await?;
    let managers = |resource: &str, namespace: &str, name: &str| {
        served.metadata("managedFields", resource, namespace, name)
    };
    wait_for("the policies to be in force", LIMIT, async || {
        let probe = format!("probe-{}", rundir::random_hex(4)?);
        served.make_version("team-a", &probe)?;
        served.make_pipeline_task("team-a", &probe)?;
        let of_version = managers("hydratedtargets", "team-a", &probe)?;
        let of_task = managers("rendertasks", "team-a", &probe)?;
        Ok((of_version.is_empty() && of_task.is_empty()).then_some(()))
    })
    .await?;
    for namespace in ["team-a", "team-b", "team-c"] {
        let is_kept = namespace != "team-a";
        served.make_version(namespace, "edge")?;
        served.make_target(namespace, "edge")?;
        served.make("RenderTask", namespace, "plain")?;
        // Nothing brings them back, whatever is written.
        for (resource, name, is_kept) in [
            ("hydratedtargets", "edge", is_kept),
            ("targets", "edge", true),
            ("rendertasks", "plain", true),
        ] {
            served.label(resource, namespace, name)?;
            let kept = managers(resource, namespace, name)?;
            ensure!(kept.is_empty() != is_kept, "{namespace} {resource}: {kept}");
        }
    }
    served.make_pipeline_task("team-a", "labelled")?;
    served.label("rendertasks", "team-a", "labelled")?;
    let kept = managers("rendertasks", "team-a", "labelled")?;
    ensure!(kept.is_empty(), "{kept}");
    let finalizers = served.finalizers("rendertasks", "team-a", "labelled")?;
    ensure!(finalizers.contains(FINALIZER), "{finalizers}");
    Ok(())
}

#[tokio::test]
async fn a_hub_of_all_namespaces_binds_the_policy_everywhere_but_where_its_jobs_run() -> Result<()> {
    let served = Served::start(&[("renderhub", &["renderingNamespace.name=team-c"])]).await?;
    wait_for("the policy to be in force", LIMIT, async || {
        let probe = format!("probe-{}", rundir::random_hex(4)?);
        served.make("RenderTask", "team-a", &probe)?;
        served.make("ClusterRenderTask", "", &probe)?;
        let first = served.finalizers("rendertasks", "team-a", &probe)?;
        let second = served.finalizers("clusterrendertasks", "", &probe)?;
        Ok((first.contains(FINALIZER) && second.contains(FINALIZER)).then_some(()))
    })
    .await?;
    served.make("RenderTask", "team-c", "unserved")?;
    let finalizers = served.finalizers("rendertasks", "team-c", "unserved")?;
    ensure!(finalizers.is_empty(), "{finalizers}");
    served
        .delete("rendertasks", "team-c", "unserved")
        .context("it stays")
}
