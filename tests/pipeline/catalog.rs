//! A catalog in a namespace that no hub serves: hubs with lists share it, and write nothing there.

use std::collections::BTreeSet;

use anyhow::{Context, Result, ensure};
use kube::ResourceExt;
use kube::api::{Api, DeleteParams};
use renderhub::api::pipeline::{Profile, Release, Target};
use renderhub_harness::audit::Mark;
use renderhub_harness::helm::{Helm, renderhub_chart};
use renderhub_harness::{apply, rundir, wait_for};
use serde_json::json;

use crate::scene::Scene;
use support::plane::plane;
use support::{LIMIT, Stage};

/// The how-to page whose manifests are applied.
const PAGE: &str = include_str!("../../docs/how-to/many-namespaces-with-grants.md");

/// The blocks of YAML on the page, by their order.
fn block(number: usize) -> Result<&'static str> {
    let blocks = PAGE.split("```yaml\n").skip(1);
    let mut blocks = blocks.filter_map(|rest| rest.split("```").next());
    blocks.nth(number).context("the page has fewer blocks")
}

/// A stage with a catalog beside what it serves, whose hub does not run yet.
async fn stage(prefix: &str, catalog: &str) -> Result<Stage> {
    let catalogs = format!("--catalog-namespaces={catalog}");
    let flags = ["--pipeline=true", "--no-cross-namespace-refs=false", &catalogs];
    let stage = Stage::without_hub(prefix, &flags).await?;
    stage.make_registry().await?;
    Ok(stage)
}

/// The two tenants of the page, each with a hub of its own, and their catalog.
struct Tenants {
    catalog: String,
    a: Scene,
    b: Scene,
}

impl Tenants {
    async fn new() -> Result<Self> {
        let catalog = plane().await?.namespace("catalog").await?;
        let (mut a, mut b) = (stage("first", &catalog).await?, stage("second", &catalog).await?);
        a.start_hub().await?;
        b.start_hub().await?;
        let (a, b) = (Scene { stage: a }, Scene { stage: b });
        Ok(Self { catalog, a, b })
    }

    /// Applies a block of the page for these namespaces.
    async fn apply(&self, number: usize) -> Result<()> {
        let text = block(number)?
            .replace("name: main", "name: REGISTRY")
            .replace("namespace: catalog", &format!("namespace: {}", self.catalog))
            .replace("namespace: team-a", &format!("namespace: {}", self.a.tenant()))
            .replace("namespace: team-b", &format!("namespace: {}", self.b.tenant()));
        let registry = if text.contains(self.a.tenant()) {
            &self.a
        } else {
            &self.b
        };
        let text = text.replace("REGISTRY", registry.tenant());
        apply::yaml(&self.a.stage.admin, &text).await?;
        Ok(())
    }

    /// What each hub asked for in the catalog.
    async fn asked_in_catalog(&self) -> Result<BTreeSet<String>> {
        let mut asked = BTreeSet::new();
        for scene in [&self.a, &self.b] {
            let user = scene.stage.hub_user.name();
            let events = scene.stage.plane.audit()?.since_with(Mark::START, user).await?;
            let there = events
                .iter()
                .filter(|event| event.user == user && event.namespace == self.catalog);
            let there: BTreeSet<_> = there.map(renderhub_harness::audit::Event::action).collect();
            ensure!(!there.is_empty(), "a hub did not look at the catalog");
            asked.extend(there);
            let written = scene.stage.namespaces_since(Mark::START, true).await?;
            ensure!(!written.contains(&self.catalog), "{written:?}");
        }
        Ok(asked)
    }
}

#[tokio::test]
async fn two_hubs_share_the_catalog_of_the_how_to_page_and_write_nothing_there() -> Result<()> {
    let tenants = Tenants::new().await?;
    let (a, b) = (&tenants.a, &tenants.b);
    for number in [1, 2, 3] {
        tenants.apply(number).await?;
    }
    let (of_a, of_b) = (
        a.complete_next("release-shop-").await?,
        b.complete_next("release-shop-").await?,
    );
    for scene in [a, b] {
        scene.complete_version("edge", 1).await?;
        scene.ready("edge").await?;
    }
    for (task, release, replicas) in [(&of_a, &tenants.catalog, 2), (&of_b, &b.tenant().to_owned(), 5)] {
        let namespace = task.namespace().unwrap_or_default();
        let repository = format!("{namespace}/{release}/release-shop");
        assert_eq!(task.spec.repository, repository);
        let config = task.spec.config.release.as_ref().context("a release")?;
        assert_eq!(config.values, Some(json!({"replicas": replicas})));
    }
    // A version that is new there wakes the Targets of both, each by what names it.
    tenants.apply(4).await?;
    a.complete_other("release-shop-", &of_a).await?;
    a.complete_version("edge", 2).await?;
    assert_eq!(a.versions("edge").await?[1].spec.changes, "shop 1.0.0 → 1.1.0");
    assert_eq!(b.versions("edge").await?.len(), 1);
    let chart = json!({"repository": "registry.example.com/charts/shop", "tag": "1.0.1"});
    let patched = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "ComponentVersion",
        "metadata": {"name": "shop-1.0.0", "namespace": tenants.catalog},
        "spec": {"componentRef": {"name": "shop"}, "tag": "1.0.1", "resources": {"chart": chart},
            "entrypoint": {"resourceName": "chart", "type": "helm"}}});
    apply::object(&b.stage.admin, patched).await?;
    b.complete_other("release-shop-", &of_b).await?;
    b.complete_version("edge", 2).await?;
    assert_eq!(b.versions("edge").await?[1].spec.changes, "shop 1.0.0 → 1.0.1");
    // A Profile that is gone from the catalog takes its Release along, as one of a namespace that is served does.
    a.change_target("edge", json!({"allowEmpty": true})).await?;
    let profiles: Api<Profile> = Api::namespaced(a.stage.admin.clone(), &tenants.catalog);
    profiles.delete("shops", &DeleteParams::default()).await?;
    a.complete_version("edge", 3).await?;
    assert_eq!(a.versions("edge").await?[2].spec.changes, "removed shop 1.1.0");
    let asked = tenants.asked_in_catalog().await?;
    let read = ["componentversions", "profiles", "referencegrants", "releases"];
    let read: BTreeSet<_> = read.iter().map(|kind| format!("watch {kind}")).collect();
    assert_eq!(asked, read, "a hub needs nothing else of a catalog");
    let Tenants { a, b, .. } = tenants;
    a.passed();
    b.passed();
    Ok(())
}

/// A catalog that a hub serves too has statuses by that hub, and another that only reads it writes none.
#[tokio::test]
async fn in_a_catalog_that_is_served_the_hub_that_serves_it_writes_statuses() -> Result<()> {
    let catalog = plane().await?.namespace("catalog").await?;
    let mut reads = stage("reads", &catalog).await?;
    let mut serves = stage("serves", &catalog).await?;
    serves.also_watch(&catalog).await?;
    reads.start_hub().await?;
    let reads = Scene { stage: reads };
    let text = block(1)?.replace("namespace: catalog", &format!("namespace: {catalog}"));
    apply::yaml(&reads.stage.admin, &text).await?;
    let grant = json!({"apiVersion": "renderhub.dev/v1alpha1", "kind": "ReferenceGrant",
        "metadata": {"name": "catalog", "namespace": reads.tenant()},
        "spec": {"from": [{"group": "renderhub.dev", "kind": "Profile", "namespace": catalog}],
            "to": [{"group": "renderhub.dev", "kind": "Target"}]}});
    apply::object(&reads.stage.admin, grant).await?;
    reads
        .target_with("edge", json!({"ring": "one"}), json!({}))
        .await?;
    reads.complete_next("release-shop-").await?;
    reads.complete_version("edge", 1).await?;
    reads.ready("edge").await?;
    let releases: Api<Release> = Api::namespaced(reads.stage.admin.clone(), &catalog);
    let written = async || {
        let status = releases.get("shop").await?.status.unwrap_or_default();
        anyhow::Ok(!status.conditions.is_empty())
    };
    ensure!(!written().await?, "a hub wrote in a catalog that it only reads");
    serves.start_hub().await?;
    wait_for("the status of the hub that serves it", LIMIT, async || {
        Ok(written().await?.then_some(()))
    })
    .await?;
    let own = serves.namespaces_since(Mark::START, true).await?;
    ensure!(own.contains(&catalog), "{own:?}");
    let targets: Api<Target> = reads.api();
    ensure!(targets.get("edge").await?.status.is_some());
    serves.passed();
    reads.passed();
    Ok(())
}

/// What the page says of the values is what the chart takes.
#[tokio::test]
async fn the_chart_takes_the_values_of_the_how_to_page() -> Result<()> {
    let file = rundir::fresh("values")?.join("values.yaml");
    std::fs::create_dir_all(file.parent().context("a directory")?)?;
    std::fs::write(&file, block(0)?)?;
    let (chart, file) = (
        renderhub_chart().display().to_string(),
        file.display().to_string(),
    );
    let text = Helm::new()?
        .run(&["template", "renderhub", &chart, "--values", &file])
        .await?;
    for flag in [
        "--watch-namespaces=team-a",
        "--catalog-namespaces=catalog",
        "--pipeline=true",
    ] {
        ensure!(text.contains(flag), "{flag}");
    }
    Ok(())
}
