//! Whether the charts that came out are the charts that were asked for.

use std::fmt::Debug;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use renderhub_harness::helm::Helm;
use serde_json::{Value, json};

use crate::platform::Platform;

/// Pulls a chart of team-a and unpacks it; returns its directory.
pub async fn pull(platform: &Platform, name: &str, version: &str, into: &Path) -> Result<PathBuf> {
    let url = platform.chart_url(name);
    println!("    $ helm pull {url} --version {version}");
    platform.helm().pull_plain(&url, version, into).await
}

/// The chart of `manifests/release.yaml`: its metadata, and what helm makes of it.
pub async fn check_release(helm: &Helm, chart: &Path) -> Result<()> {
    let metadata = yaml(&std::fs::read_to_string(chart.join("Chart.yaml"))?)?;
    same(
        "the release chart's version",
        &metadata[0]["version"],
        &json!("1.0.0"),
    )?;
    same(
        "its description",
        &metadata[0]["description"],
        &json!("The web shop: front end"),
    )?;
    let objects = template(helm, "web-live", chart).await?;
    let source = of_kind(&objects, "OCIRepository")?;
    same(
        "where it comes from",
        &source["spec"]["url"],
        &json!("oci://charts.example.com/web"),
    )?;
    same("which version", &source["spec"]["ref"]["tag"], &json!("2.3.4"))?;
    let release = of_kind(&objects, "HelmRelease")?;
    same("its name", &release["metadata"]["name"], &json!("web-live-web"))?;
    let values = json!({ "replicaCount": 2, "greeting": "She said \"hello\": yes" });
    same("its values", &release["spec"]["values"], &values)
}

/// The chart of `manifests/bootstrap.yaml`: each release with its range of versions, and the data for all of them.
pub async fn check_bootstrap(helm: &Helm, chart: &Path) -> Result<()> {
    let objects = template(helm, "shop-live", chart).await?;
    let mut ranges = Vec::new();
    for object in &objects {
        match object["kind"].as_str() {
            Some("OCIRepository") => ranges.push(&object["spec"]["ref"]["semver"]),
            _ => same(
                "what each release gets",
                &object["spec"]["values"]["userdata"],
                &json!({ "region": "eu-1" }),
            )?,
        }
    }
    same(
        "the ranges of versions",
        &ranges,
        &vec![&json!(">=3"), &json!("~1.0")],
    )?;
    ensure!(
        objects.len() == 4,
        "the bootstrap chart makes {} objects instead of 4",
        objects.len()
    );
    Ok(())
}

/// The one object of a kind.
fn of_kind<'a>(objects: &'a [Value], kind: &str) -> Result<&'a Value> {
    let mut found = objects.iter().filter(|object| object["kind"] == kind);
    let object = found
        .next()
        .with_context(|| format!("the chart makes no {kind}"))?;
    ensure!(found.next().is_none(), "the chart makes more than one {kind}");
    Ok(object)
}

/// The objects that helm makes of a chart.
async fn template(helm: &Helm, release: &str, chart: &Path) -> Result<Vec<Value>> {
    let chart = chart.to_str().context("the path of the chart is no text")?;
    yaml(&helm.run(&["template", release, chart]).await?)
}

fn yaml(text: &str) -> Result<Vec<Value>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(text).context("helm gave no YAML")?;
    Ok(documents
        .into_iter()
        .filter(|document| !document.is_null())
        .collect())
}

fn same<T: PartialEq + Debug>(what: &str, found: &T, expected: &T) -> Result<()> {
    ensure!(found == expected, "{what}: {found:?} instead of {expected:?}");
    Ok(())
}

/// Prints a directory as `tree` does.
pub fn print_tree(directory: &Path) -> Result<()> {
    println!(
        "    {}",
        directory.file_name().unwrap_or_default().to_string_lossy()
    );
    branch(directory, "    ")
}

fn branch(directory: &Path, before: &str) -> Result<()> {
    let mut entries: Vec<_> = std::fs::read_dir(directory)?.collect::<std::io::Result<_>>()?;
    entries.sort_by_key(std::fs::DirEntry::file_name);
    let last = entries.len().saturating_sub(1);
    for (at, entry) in entries.iter().enumerate() {
        let (joint, below) = if at == last {
            ("└── ", "    ")
        } else {
            ("├── ", "│   ")
        };
        println!("{before}{joint}{}", entry.file_name().to_string_lossy());
        if entry.file_type()?.is_dir() {
            branch(&entry.path(), &format!("{before}{below}"))?;
        }
    }
    Ok(())
}
