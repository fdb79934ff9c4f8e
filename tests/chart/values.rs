//! Every value is known to the schema and the other way round, and the limits leave room for what the hub makes.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Container, LimitRange, ResourceQuota};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use renderhub_harness::helm;
use serde_json::{Value, json};

use super::{notes, of_kind, template, yaml};
use support::programs;

/// Paths of all values, as deep as the schema names fields.
fn in_schema(root: &Value, schema: &Value, path: &str, found: &mut BTreeSet<String>) {
    let schema = match schema["$ref"].as_str() {
        Some(reference) => root.pointer(reference.trim_start_matches('#')).unwrap_or(schema),
        None => schema,
    };
    match schema["properties"].as_object() {
        Some(fields) => {
            for (name, field) in fields {
                in_schema(root, field, &format!("{path}.{name}"), found);
            }
        }
        None => {
            found.insert(path.to_owned());
        }
    }
}

#[test]
fn the_schema_knows_every_value_and_no_other() -> Result<()> {
    let chart = helm::renderhub_chart();
    let schema: Value = serde_json::from_str(&std::fs::read_to_string(chart.join("values.schema.json"))?)?;
    let values = yaml(&std::fs::read_to_string(chart.join("values.yaml"))?)?.remove(0);
    let mut known = BTreeSet::new();
    in_schema(&schema, &schema, "", &mut known);
    // Helm's own, for all charts of a release.
    known.remove(".global");
    // Gone; the templates refuse more than one, and say what to do.
    ensure!(
        known.remove(".controller.shardCount"),
        "the values of an earlier chart are refused"
    );
    for path in &known {
        let pointer = path.replace('.', "/");
        ensure!(
            values.pointer(&pointer).is_some(),
            "{path} has no default in values.yaml"
        );
    }
    let mut open = vec![(String::new(), &values)];
    while let Some((path, value)) = open.pop() {
        if known.contains(&path) {
            continue;
        }
        let fields = value
            .as_object()
            .with_context(|| format!("{path} is not in the schema"))?;
        open.extend(
            fields
                .iter()
                .map(|(name, value)| (format!("{path}.{name}"), value)),
        );
    }
    Ok(())
}

/// The values of the release before this one, each with its default and its meaning, as the README of its chart has them.
const BEFORE: &str = include_str!("values-before.txt");

/// Rows of tables whose first cell is a value.
fn rows(text: &str) -> BTreeSet<&str> {
    text.lines().filter(|line| line.starts_with("| `")).collect()
}

/// Values in the first set of rows or in the second one that the changes do not name.
fn untold<'a>(before: &'a str, values: &'a str, changes: &'a str) -> BTreeSet<&'a str> {
    let value_of = |row: &&'a str| row.split('`').nth(1).unwrap_or_default();
    let told: BTreeSet<&str> = rows(changes).iter().map(value_of).collect();
    let (before, now) = (rows(before), rows(values));
    let others = before.symmetric_difference(&now).map(value_of);
    others.filter(|value| !told.contains(value)).collect()
}

/// The notes of an upgrade show all of `changes.yaml`, as `tests/upgrade.rs` sees; the README is made of the same.
#[test]
fn a_value_whose_default_or_meaning_has_changed_since_the_release_before_is_listed() -> Result<()> {
    let readme = std::fs::read_to_string(helm::renderhub_chart().join("README.md"))?;
    let (values, changes) = readme
        .split_once("\n## Changed values\n")
        .context("the README does not say what has changed")?;
    let untold_now = untold(BEFORE, values, changes);
    ensure!(
        untold_now.is_empty(),
        "changes.yaml of the chart does not name {untold_now:?}"
    );
    // A new value, another default, another meaning, one that is gone.
    let (a, b) = ("| `a` | `1` | One. |\n", "| `b` | `2` | Two. |\n");
    let both = format!("{a}{b}");
    for now in [a, &both.replace("`2`", "`3`"), &both.replace("Two", "Three")] {
        assert_eq!(untold(&both, now, ""), BTreeSet::from(["b"]), "{now}");
        assert_eq!(untold(now, &both, ""), BTreeSet::from(["b"]), "{now}");
        assert!(untold(&both, now, "| `b` | It is another. |\n").is_empty());
    }
    Ok(())
}

/// A quantity in thousandths; only of the units that the chart and the pod use.
fn milli(quantity: &Quantity) -> u64 {
    let split = quantity
        .0
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(quantity.0.len());
    let (number, unit) = quantity.0.split_at(split);
    let factor = match unit {
        "m" => 1,
        "" => 1000,
        "Mi" => 1000 << 20,
        "Gi" => 1000 << 30,
        other => unreachable!("the unit {other}"),
    };
    number.parse::<u64>().expect("a number") * factor
}

/// Of the whole pod: init containers run before the others, one at a time.
fn of_pod(job: &Job, resource: &str, is_limit: bool) -> u64 {
    let pod = job
        .spec
        .as_ref()
        .and_then(|spec| spec.template.spec.as_ref())
        .expect("a pod");
    let of = |container: &Container| {
        let resources = container.resources.clone().expect("resources");
        let list = if is_limit {
            resources.limits
        } else {
            resources.requests
        };
        milli(&list.expect("a list")[resource])
    };
    let inits = pod
        .init_containers
        .iter()
        .flatten()
        .map(of)
        .max()
        .unwrap_or_default();
    inits.max(pod.containers.iter().map(of).sum())
}

fn default_job() -> Result<Job> {
    let golden =
        std::path::Path::new(programs::ROOT).join("src/plan/task/tests/golden/split-basic-auth.json");
    Ok(serde_json::from_str(&std::fs::read_to_string(golden)?)?)
}

/// Holds: R5, D3.
#[tokio::test]
async fn as_many_pods_as_may_run_fit_into_the_quota() -> Result<()> {
    let job = default_job()?;
    for jobs in [1, 256, 5000] {
        let objects = template(&[
            &format!("controller.maxActiveJobs={jobs}"),
            "controller.maxActiveJobsPerNamespace=1",
        ])
        .await?;
        let quota: ResourceQuota = serde_json::from_value(of_kind(&objects, "ResourceQuota")?.clone())?;
        let hard = quota.spec.and_then(|spec| spec.hard).context("no limits")?;
        for resource in ["cpu", "memory", "ephemeral-storage"] {
            for (kind, is_limit) in [("requests", false), ("limits", true)] {
                let all = milli(&hard[&format!("{kind}.{resource}")]);
                let needed = jobs * of_pod(&job, resource, is_limit);
                ensure!(
                    all >= needed,
                    "{kind}.{resource}: {all} for {jobs} Jobs that need {needed}"
                );
            }
        }
        ensure!(milli(&hard["pods"]) >= jobs * 1000, "{jobs} pods");
        for count in ["count/jobs.batch", "count/secrets"] {
            ensure!(milli(&hard[count]) >= jobs * 1000, "{count}");
        }
    }
    Ok(())
}

/// Holds: B4.
#[tokio::test]
async fn what_is_kept_of_failures_and_what_runs_fit_into_the_quota() -> Result<()> {
    for (sets, kept, objects) in [
        (&[][..], 10_000, 20_000),
        (&["controller.keepFailedJobs=19488"], 19_488, 20_000),
        (&["controller.keepFailedJobs=5", "quota.objects=600"], 5, 600),
    ] {
        let all = template(sets).await?;
        let quota: ResourceQuota = serde_json::from_value(of_kind(&all, "ResourceQuota")?.clone())?;
        let hard = quota.spec.and_then(|spec| spec.hard).context("no limits")?;
        for count in ["count/jobs.batch", "count/secrets"] {
            ensure!(
                milli(&hard[count]) == objects * 1000,
                "{count}: {:?}",
                hard[count]
            );
        }
        ensure!(kept * 1000 + milli(&hard["pods"]) <= objects * 1000);
        let flags =
            of_kind(&all, "Deployment")?["spec"]["template"]["spec"]["containers"][0]["args"].to_string();
        for flag in [
            format!("--keep-failed-jobs={kept}"),
            "--keep-failed-jobs-per-namespace=100".to_owned(),
            "--max-failed-job-ttl=24h".to_owned(),
        ] {
            ensure!(flags.contains(&format!("\"{flag}\"")), "{flag}: {flags}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_default_class_is_the_default_of_the_limit_range_and_inside_its_bounds() -> Result<()> {
    let job = default_job()?;
    let objects = template(&[]).await?;
    let range: LimitRange = serde_json::from_value(of_kind(&objects, "LimitRange")?.clone())?;
    let item = range.spec.context("no spec")?.limits.remove(0);
    let (default, requests, max) = (
        item.default.unwrap_or_default(),
        item.default_request.unwrap_or_default(),
        item.max.unwrap_or_default(),
    );
    let pod = job.spec.context("a spec")?.template.spec.context("a pod")?;
    for container in pod.init_containers.iter().flatten().chain(&pod.containers) {
        let own = container.resources.clone().context("no resources")?;
        assert_eq!(
            (own.limits.as_ref(), own.requests.as_ref()),
            (Some(&default), Some(&requests))
        );
        for (resource, limit) in own.limits.context("no limits")? {
            ensure!(milli(&limit) <= milli(&max[&resource]), "{resource}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_the_platform_offers_is_read_by_those_whom_a_value_names_and_by_no_tenant_else() -> Result<()> {
    let name = "renderhub-platform-view";
    let is_it = |object: &&Value| object["metadata"]["name"] == name;
    ensure!(!template(&[]).await?.iter().any(|object| is_it(&object)));
    let sets = [
        "tenancy.platformReaders[0].kind=Group",
        "tenancy.platformReaders[0].name=system:authenticated",
        "tenancy.platformReaders[1].kind=ServiceAccount",
        "tenancy.platformReaders[1].name=portal",
        "tenancy.platformReaders[1].namespace=tools",
    ];
    let objects = template(&sets).await?;
    let mut made: Vec<_> = objects.iter().filter(is_it).collect();
    made.sort_by_key(|object| object["kind"].to_string());
    let [role, binding] = made[..] else {
        anyhow::bail!("{made:?}")
    };
    let read = json!([{
        "apiGroups": ["renderhub.dev"],
        "resources": ["clusterregistries", "rendererclasses", "renderclusters"],
        "verbs": ["get", "list", "watch"],
    }]);
    assert_eq!((&role["kind"], &role["rules"]), (&json!("ClusterRole"), &read));
    assert_eq!(binding["kind"], "ClusterRoleBinding");
    assert_eq!(binding["roleRef"]["name"], name);
    let subjects = json!([
        {"kind": "Group", "name": "system:authenticated", "apiGroup": "rbac.authorization.k8s.io"},
        {"kind": "ServiceAccount", "name": "portal", "namespace": "tools"},
    ]);
    assert_eq!(binding["subjects"], subjects);
    let told = notes(&sets).await?;
    let line = "- tenancy.platformReaders: every ClusterRegistry, RendererClass and RenderCluster, also what others use, can be read by: \
                Group system:authenticated, ServiceAccount portal.";
    ensure!(told.contains(line), "{told}");
    Ok(())
}

/// A `ServiceAccount` is one of a namespace, and a group of none.
#[tokio::test]
async fn readers_of_what_the_platform_offers_are_named_whole() -> Result<()> {
    for wrong in [
        &[
            "tenancy.platformReaders[0].kind=ServiceAccount",
            "tenancy.platformReaders[0].name=portal",
        ][..],
        &["tenancy.platformReaders[0].kind=Group"],
        &["tenancy.platformReaders=true"],
    ] {
        ensure!(template(wrong).await.is_err(), "{wrong:?}");
    }
    Ok(())
}
