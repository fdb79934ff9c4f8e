//! The chart is valid, refuses what it does not know, carries the generated CRDs unchanged, and gives rights no further than
//! its values say. That it works on a node is in `tests/installation.rs`.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use renderhub_harness::helm::{self, Helm};
use serde_json::{Value, json};

const HUB: &str = "renderhub-system";
const RENDERING: &str = "renderhub-rendering";

#[tokio::test]
async fn helm_finds_nothing_to_object_to() -> Result<()> {
    let (helm, chart) = (Helm::new()?, chart()?);
    helm.run(&["lint", "--strict", &chart]).await?;
    let sets = [
        "controller.logLevel=debug",
        "renderer.imagePullSecrets={pull}",
        "image.pullSecrets[0].name=pull",
    ];
    let sets: Vec<&str> = sets.iter().flat_map(|set| ["--set", set]).collect();
    let objects = template(&helm, &sets).await?;
    let hub = of_kind(&objects, "Deployment")?;
    let args = hub["spec"]["template"]["spec"]["containers"][0]["args"]
        .as_array()
        .context("no arguments")?;
    for arg in [
        "--log-level=debug",
        "--renderer-image-pull-secrets=pull",
        "--grace-period=25s",
    ] {
        ensure!(args.contains(&json!(arg)), "{arg} is not among {args:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_hub_for_some_namespaces_has_rights_on_tasks_there_only() -> Result<()> {
    let objects = template(&Helm::new()?, &["--set", "controller.watchNamespaces={a,b}"]).await?;
    let bound = |kind: &str| {
        let named =
            |object: &&Value| object["kind"] == kind && object["metadata"]["name"] == "renderhub-tasks";
        objects
            .iter()
            .filter(named)
            .map(|object| &object["metadata"]["namespace"])
            .collect::<Vec<_>>()
    };
    assert!(bound("ClusterRoleBinding").is_empty());
    assert_eq!(bound("RoleBinding"), ["a", "b"]);
    let args = &of_kind(&objects, "Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"];
    let args = args.as_array().context("no arguments")?;
    assert!(args.contains(&json!("--watch-namespaces=a,b")), "{args:?}");
    let rules = |object: &Value| object["rules"].as_array().cloned().unwrap_or_default();
    let on_namespaces: Vec<_> = objects
        .iter()
        .flat_map(rules)
        .filter(|rule| rule["resources"] == json!(["namespaces"]) && rule["verbs"] != json!(["get"]))
        .map(|rule| rule["resourceNames"].clone())
        .collect();
    assert_eq!(
        on_namespaces,
        [json!(["a", "b"])],
        "it learns of no other namespace"
    );
    Ok(())
}

#[tokio::test]
async fn no_right_reaches_beyond_its_purpose() -> Result<()> {
    let objects = template(&Helm::new()?, &[]).await?;
    let roles = objects
        .iter()
        .filter(|object| object["kind"] == "ClusterRole" || object["kind"] == "Role");
    let mut looked_at = 0;
    for role in roles {
        for rule in role["rules"].as_array().into_iter().flatten() {
            let text = rule.to_string();
            for word in [
                "*",
                "impersonate",
                "escalate",
                "bind",
                "pods/exec",
                "pods/log",
                "serviceaccounts",
            ] {
                assert!(!text.contains(&format!("\"{word}\"")), "{word}: {text}");
            }
            // Secrets, pods and Jobs of tenants are none of the hub's business.
            let own = ["renderhub.dev", "events.k8s.io"]
                .iter()
                .any(|group| rule["apiGroups"] == json!([group]));
            let id = rule["resourceNames"] == json!(["kube-system"]) && rule["verbs"] == json!(["get"]);
            let uids =
                rule["resources"] == json!(["namespaces"]) && rule["verbs"] == json!(["list", "watch"]);
            assert!(
                own || id || uids || role["metadata"]["namespace"] == RENDERING,
                "{text}"
            );
            looked_at += 1;
        }
    }
    assert_eq!(
        looked_at, 13,
        "the rules of the hub in the cluster and in the rendering namespace, and of tenants"
    );
    Ok(())
}

#[tokio::test]
async fn values_that_cannot_be_meant_are_refused() -> Result<()> {
    let helm = Helm::new()?;
    for (set, said) in [
        ("controler.shardName=x", "controler"),
        ("controller.maxActiveJobs=0", "maxActiveJobs"),
        ("renderer.image.pullPolicy=Sometimes", "pullPolicy"),
        (&format!("renderingNamespace.name={HUB}"), "must differ"),
        ("renderingNamespace.name=kube-system", "a namespace of its own"),
        (
            &format!("controller.watchNamespaces={{{RENDERING}}}"),
            "must not contain",
        ),
    ] {
        let refused = template(&helm, &["--set", set])
            .await
            .err()
            .with_context(|| format!("{set} is accepted"))?;
        ensure!(format!("{refused:#}").contains(said), "{set}: {refused:#}");
    }
    Ok(())
}

#[tokio::test]
async fn the_generated_crds_come_through_unchanged_and_outlive_the_release() -> Result<()> {
    let objects = template(&Helm::new()?, &[]).await?;
    let files = helm::renderhub_chart().join("files/crds");
    let mut compared = 0;
    for file in std::fs::read_dir(files)? {
        let generated = yaml(&std::fs::read_to_string(file?.path())?)?.remove(0);
        let name = &generated["metadata"]["name"];
        let rendered = objects
            .iter()
            .find(|o| o["kind"] == generated["kind"] && &o["metadata"]["name"] == name);
        let rendered = rendered.with_context(|| format!("{name} is not in the chart"))?;
        assert_eq!(
            with_plain_numbers(&rendered["spec"]),
            with_plain_numbers(&generated["spec"]),
            "{name}"
        );
        assert_eq!(
            rendered["metadata"]["annotations"]["helm.sh/resource-policy"], "keep",
            "{name}"
        );
        compared += 1;
    }
    assert_eq!(compared, 6, "each kind of renderhub.dev");
    Ok(())
}

/// The same with each number as helm may write it: 0 for 0.0.
fn with_plain_numbers(value: &Value) -> Value {
    match value {
        Value::Number(number) => json!(number.as_f64()),
        Value::Array(items) => items.iter().map(with_plain_numbers).collect(),
        Value::Object(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), with_plain_numbers(value)))
            .collect(),
        other => other.clone(),
    }
}

async fn template(helm: &Helm, more: &[&str]) -> Result<Vec<Value>> {
    let chart = chart()?;
    let words = ["template", "renderhub", &chart, "--namespace", HUB];
    yaml(&helm.run(&[&words[..], more].concat()).await?)
}

fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    objects
        .iter()
        .find(|object| object["kind"] == kind)
        .with_context(|| format!("the chart makes no {kind}"))
}

fn yaml(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("this is no YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

fn chart() -> Result<String> {
    let chart: &Path = &helm::renderhub_chart();
    Ok(chart
        .to_str()
        .context("the path of the chart is no text")?
        .to_owned())
}
