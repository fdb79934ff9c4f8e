//! What pages and examples show of the pipeline applies, and leads where the pages say.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use kube::Resource;
use kube::api::{Api, DeleteParams};
use renderhub::api::pipeline::{
    Component, ComponentVersion, HydratedTarget, Profile, RegistryBinding, Release, ReleaseBinding, Target,
};
use renderhub::api::{ReleaseConfig, RenderTask};
use renderhub_harness::helm::documents;
use renderhub_harness::{ControlPlane, Scope, commands, flux, process, remote, wait_for};
use serde_json::{Value, json};

use crate::scene::{Scene, applied};
use support::LIMIT;
use support::plane::plane;
use support::programs;

/// The tenant's namespace on all pages.
const TENANT: &str = "team-a";
/// The registry of the platform on all pages.
const REGISTRY: &str = "name: example";

fn root() -> &'static Path {
    Path::new(programs::ROOT)
}

/// The kinds of the pipeline.
fn kinds() -> BTreeSet<String> {
    fn kind<K: Resource<DynamicType = ()>>() -> String {
        K::kind(&()).into_owned()
    }
    [
        kind::<Component>(),
        kind::<ComponentVersion>(),
        kind::<HydratedTarget>(),
        kind::<Profile>(),
        kind::<RegistryBinding>(),
        kind::<Release>(),
        kind::<ReleaseBinding>(),
        kind::<Target>(),
    ]
    .into()
}

/// Files of a directory and those below it with this extension.
fn files(dir: &Path, extension: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        if path.is_dir() {
            found.extend(files(&path, extension)?);
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}

/// Blocks of YAML of a page, without the indentation of the list that they are in.
fn blocks(page: &str) -> Vec<String> {
    let mut blocks = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        if line.trim() == "```yaml" {
            let indent = line.len() - line.trim_start().len();
            let block = lines.by_ref().take_while(|line| line.trim() != "```");
            let block = block.map(|line| format!("{}\n", line.get(indent..).unwrap_or_default()));
            blocks.push(block.collect());
        }
    }
    blocks
}

/// Commands of a page that stand in its text and begin so.
fn commands_of(page: &str, begin: &str) -> Vec<String> {
    let spans = page.split('`').skip(1).step_by(2);
    let commands = spans.filter(|span| span.starts_with(begin));
    commands.map(str::to_owned).collect()
}

/// Whether a text is objects, all of them, and not e.g. values of a chart.
fn are_objects(objects: &[Value]) -> bool {
    objects
        .iter()
        .all(|object| object["kind"].is_string() && object["apiVersion"].is_string())
}

/// The objects of a page, block by block; empty where none of them is of a kind of the pipeline.
fn manifests(page: &str) -> Result<Vec<String>> {
    let kinds = kinds();
    let (mut found, mut is_about_it) = (Vec::new(), false);
    for block in blocks(page) {
        let objects = documents(&block)?;
        if are_objects(&objects) {
            is_about_it |= objects
                .iter()
                .any(|o| kinds.contains(o["kind"].as_str().unwrap_or_default()));
            found.push(block);
        }
    }
    Ok(if is_about_it { found } else { Vec::new() })
}

/// Names of a page as they are on this control plane.
struct Names<'s> {
    plane: &'static ControlPlane,
    scope: &'s Scope,
    namespaces: BTreeMap<String, String>,
}

impl<'s> Names<'s> {
    fn new(plane: &'static ControlPlane, scope: &'s Scope) -> Self {
        let known = [(TENANT, &scope.tenant), ("renderhub-rendering", &scope.rendering)];
        let known = known.map(|(name, own)| (name.to_owned(), own.clone()));
        Self {
            plane,
            scope,
            namespaces: known.into(),
        }
    }

    /// A manifest with the names of here; its other namespaces are made.
    async fn here(&mut self, manifest: &str) -> Result<String> {
        for object in documents(manifest)? {
            let namespace = object["metadata"]["namespace"].as_str();
            if let Some(namespace) = namespace.filter(|namespace| *namespace != flux::NAMESPACE)
                && !self.namespaces.contains_key(namespace)
            {
                let own = self.plane.namespace("page").await?;
                self.namespaces.insert(namespace.to_owned(), own);
            }
        }
        Ok(self.renamed(manifest))
    }

    fn renamed(&self, text: &str) -> String {
        let text = text.replace(REGISTRY, &format!("name: {}", self.scope.tenant));
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == '-';
        let parts = text.split_inclusive(|c| !is_part(c)).map(|part| {
            let word = part.trim_end_matches(|c| !is_part(c));
            let own = self.namespaces.get(word).map_or(word, String::as_str);
            format!("{own}{}", &part[word.len()..])
        });
        parts.collect()
    }
}

/// A control plane that has Flux's kinds too.
async fn plane_with_flux() -> Result<&'static ControlPlane> {
    let plane = plane().await?;
    flux::make_kinds(plane).await?;
    Ok(plane)
}

#[tokio::test]
async fn what_pages_about_the_pipeline_show_applies() -> Result<()> {
    let plane = plane_with_flux().await?;
    let mut seen = BTreeSet::new();
    for path in files(&root().join("docs"), "md")? {
        let page = std::fs::read_to_string(&path)?;
        let scope = plane.scope("page").await?;
        let mut names = Names::new(plane, &scope);
        for manifest in manifests(&page)? {
            let manifest = names.here(&manifest).await?;
            applied(plane, &manifest, &[]).with_context(|| path.display().to_string())?;
            seen.insert(path.file_name().unwrap_or_default().to_owned());
        }
    }
    for page in ["first-target.md", "fleet-by-profiles.md"] {
        ensure!(
            seen.contains(OsStr::new(page)),
            "nothing was found on {page}, only on {seen:?}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn the_examples_apply_and_there_is_one_of_each_kind() -> Result<()> {
    let plane = plane_with_flux().await?;
    let scope = plane.scope("example").await?;
    let mut names = Names::new(plane, &scope);
    let mut missing = kinds();
    for folder in ["pipeline", "quickstart/manifests"] {
        let folder = remote::examples().join(folder);
        for path in files(&folder, "yaml")?
            .iter()
            .filter(|path| !path.starts_with(folder.join("app")))
        {
            let text = std::fs::read_to_string(path)?;
            for object in documents(&text)? {
                missing.remove(object["kind"].as_str().unwrap_or_default());
            }
            let manifest = names.here(&filled_in(&text)).await?;
            applied(plane, &manifest, &[]).with_context(|| path.display().to_string())?;
        }
    }
    ensure!(missing.is_empty(), "there is no example of {missing:?}");
    Ok(())
}

/// A manifest of the quickstart with what it fills in.
fn filled_in(text: &str) -> String {
    let words = [
        ("${REGISTRY}", "registry.test:5000"),
        ("${USERNAME}", "pusher"),
        ("${PASSWORD}", "example"),
        ("${NAME}", "web-edge"),
        ("${VERSION}", "1.1.0"),
    ];
    words
        .iter()
        .fold(text.to_owned(), |text, (word, own)| text.replace(word, own))
}

/// A page that is followed.
struct Followed<'s> {
    scene: &'s Scene,
    names: Names<'s>,
    page: String,
}

impl<'s> Followed<'s> {
    fn new(scene: &'s Scene, page: &str) -> Result<Self> {
        Ok(Self {
            scene,
            names: Names::new(scene.stage.plane, &scene.stage.scope),
            page: std::fs::read_to_string(root().join("docs/how-to").join(page))?,
        })
    }

    async fn apply(&mut self, blocks: impl Iterator<Item = usize>) -> Result<()> {
        let all = manifests(&self.page)?;
        for block in blocks {
            let manifest = all.get(block).context("the page has fewer blocks")?;
            let manifest = self.names.here(manifest).await?;
            applied(self.scene.stage.plane, &manifest, &[])?;
        }
        Ok(())
    }

    /// Runs a command of the page in a shell.
    fn run(&self, command: &str) -> Result<String> {
        let kubectl = commands::kubectl(self.scene.stage.plane.admin())?;
        let programs = Path::new(kubectl.get_program())
            .parent()
            .context("kubectl is nowhere")?;
        let path = std::env::var("PATH").unwrap_or_default();
        let mut shell = std::process::Command::new("sh");
        shell
            .args(["-c", &self.names.renamed(command)])
            .env("PATH", format!("{}:{path}", programs.display()))
            .env("KUBECONFIG", self.scene.stage.plane.admin().kubeconfig()?);
        process::run(&mut shell)
    }
}

#[tokio::test]
async fn a_first_target_gets_ready_and_goes_back_and_forward_as_the_pages_say() -> Result<()> {
    plane_with_flux().await?;
    let scene = Scene::new("first").await?;
    let mut first = Followed::new(&scene, "first-target.md")?;
    first.apply(0..3).await?;
    // Until the last block was there, another chart was wanted.
    let (task, release) = wait_for("a task with the pull Secret", LIMIT, async || {
        let tasks = scene.all_tasks().await?.into_iter();
        let mut releases = tasks.filter_map(|task| Some((task.spec.config.release.clone()?, task)));
        let has_secret = |(release, _): &(ReleaseConfig, RenderTask)| {
            release.input.resources["chart"].pull_secret_name.as_deref() == Some("pull")
        };
        Ok(releases.find(has_secret).map(|(release, task)| (task, release)))
    })
    .await?;
    scene.stage.complete(&task).await?;
    let values = release.values;
    ensure!(values == Some(json!({"replicas": 2, "site": "{{ .Values.userdata.site }}"})));
    scene.complete_version("edge", 1).await?;
    for command in commands_of(&first.page, "kubectl wait") {
        first.run(&command)?;
    }
    scene
        .change_target("edge", json!({"userdata": {"site": "west"}}))
        .await?;
    scene.complete_version("edge", 2).await?;

    let back = Followed::new(&scene, "roll-a-target-back.md")?;
    let commands = commands_of(&back.page, "kubectl");
    let [look, pin, unpin] = &commands[..] else {
        anyhow::bail!("the page has other commands: {commands:#?}");
    };
    let number = scene.versions("edge").await?[0].spec.version.to_string();
    ensure!(
        back.run(look)?.contains(&number),
        "the page shows no numbers of versions"
    );
    let shown = pin
        .split(|c: char| !c.is_ascii_digit())
        .find(|word| !word.is_empty());
    let shown = shown.context("the page pins to no number")?;
    back.run(&pin.replace(shown, &number))?;
    scene.complete_version("edge", 3).await?;
    back.run(unpin)?;
    scene.complete_version("edge", 4).await?;
    let sites: Vec<_> = scene
        .versions("edge")
        .await?
        .into_iter()
        .map(|version| version.spec.userdata)
        .collect();
    let expected = ["north", "west", "north", "west"].map(|site| Some(json!({"site": site})));
    ensure!(sites == expected, "{sites:?}");
    scene.passed();
    Ok(())
}

#[tokio::test]
async fn a_fleet_gets_what_its_profiles_say_as_the_page_says() -> Result<()> {
    plane_with_flux().await?;
    let scene = Scene::new("profiles").await?;
    Followed::new(&scene, "first-target.md")?.apply(0..1).await?;
    let mut fleet = Followed::new(&scene, "fleet-by-profiles.md")?;
    fleet.apply(0..2).await?;
    scene.complete_next("release-shop-").await?;
    for target in ["north", "south"] {
        scene.complete_version(target, 1).await?;
        scene.ready(target).await?;
    }
    let tasks = scene.all_tasks().await?.len();
    ensure!(tasks == 2 + 1, "two Targets with one Release make {tasks} tasks");
    let profiles: Api<Profile> = scene.api();
    let matched = profiles
        .get("shops")
        .await?
        .status
        .and_then(|status| status.matched_targets);
    ensure!(matched == Some(2), "the Profile counts {matched:?}");
    let north = scene.versions("north").await?.remove(0).spec;
    ensure!(north.userdata == Some(json!({"site": "north", "currency": "EUR"})));

    // One cluster is different, until its binding is deleted.
    fleet.apply(2..3).await?;
    scene.complete_next("release-shop-early-").await?;
    scene.complete_version("south", 2).await?;
    let message = scene
        .target_is("south", "ReleasesResolved", "True", "Resolved")
        .await?;
    ensure!(message.contains("shop"), "{message}");
    let bindings: Api<ReleaseBinding> = scene.api();
    bindings
        .delete("south-shop-early", &DeleteParams::default())
        .await?;
    scene.complete_version("south", 3).await?;
    let versions = scene.versions("south").await?;
    let names: Vec<_> = versions
        .iter()
        .map(|version| version.spec.releases["shop"].name.as_str())
        .collect();
    // A name is left out where it is the unique name.
    ensure!(names == ["", "shop-early", ""], "{names:?}");
    ensure!(
        scene.versions("north").await?.len() == 1,
        "the other cluster was touched"
    );
    scene.passed();
    Ok(())
}

#[test]
fn blocks_lists_and_commands_of_a_page_are_found() {
    let page = "Text `kubectl get x` and `y`.\n\n1. A\n\n   ```yaml\n   a: 1\n   b:\n     c: 2\n   ```\n\n```yaml\nd: 3\n```\n";
    assert_eq!(blocks(page), ["a: 1\nb:\n  c: 2\n", "d: 3\n"]);
    assert_eq!(commands_of(page, "kubectl"), ["kubectl get x"]);
}
