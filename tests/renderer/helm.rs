//! Charts as the real helm sees them: pulled, shown, linted, templated and installed, down to each awkward value.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::too_many_lines,
    reason = "this is all test code, and its tables are long"
)]

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use renderhub::renderer::document;
use renderhub_harness::helm::Helm;
use renderhub_harness::{Registry, RegistryOptions};
use serde_json::{Value, json};
use support::programs;
use tokio::process::Command;

/// A rendered chart, and a helm to inspect it.
struct Rendered {
    dir: tempfile::TempDir,
    helm: Helm,
}

impl Rendered {
    /// A chart that Helm can make objects of, as every chart that is rendered must be.
    async fn new(config: &Value) -> Result<Self> {
        let rendered = Self::unchecked(config).await?;
        rendered.template().await?;
        Ok(rendered)
    }

    /// A chart of which that is a matter of its test.
    async fn unchecked(config: &Value) -> Result<Self> {
        let rendered = Self {
            dir: tempfile::tempdir()?,
            helm: Helm::new()?,
        };
        std::fs::write(rendered.path("config.json"), config.to_string())?;
        rendered
            .renderer(&["render", "config.json", "--out", "chart.tgz"])
            .await?;
        Ok(rendered)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    async fn renderer(&self, args: &[&str]) -> Result<()> {
        let mut command = Command::new(programs::renderer());
        let output = command
            .args(args)
            .current_dir(self.dir.path())
            .kill_on_drop(true)
            .output()
            .await?;
        anyhow::ensure!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    async fn helm(&self, args: &[&str]) -> Result<String> {
        let chart = self.path("chart.tgz").display().to_string();
        let args: Vec<_> = args
            .iter()
            .map(|arg| if *arg == "CHART" { &chart } else { *arg })
            .collect();
        self.helm.run(&args).await
    }

    /// What `helm template bar CHART -n test-ns` makes of it.
    async fn template(&self) -> Result<Objects> {
        Objects::parse(
            &self
                .helm(&["template", "bar", "CHART", "--namespace", "test-ns"])
                .await?,
        )
    }

    /// Reads a document as helm's own YAML reader does.
    async fn read_with_helm(&self, document: &str) -> Result<Value> {
        let probe = self.path("probe");
        std::fs::create_dir_all(probe.join("templates"))?;
        std::fs::write(
            probe.join("Chart.yaml"),
            "apiVersion: v2\nname: probe\nversion: 1.0.0\n",
        )?;
        std::fs::write(probe.join("doc.yaml"), document)?;
        std::fs::write(
            probe.join("templates/out.yaml"),
            "out: {{ .Files.Get \"doc.yaml\" | fromYaml | toJson | b64enc }}",
        )?;
        let out = self
            .helm
            .run(&["template", "x", &probe.display().to_string()])
            .await?;
        let out = document::parse(out.as_bytes())?;
        Ok(serde_json::from_slice(
            &STANDARD.decode(out["out"].as_str().context("no text")?)?,
        )?)
    }
}

/// The objects helm printed, with their text.
struct Objects(Vec<(Value, String)>);

impl Objects {
    fn parse(text: &str) -> Result<Self> {
        let documents = text
            .split("\n---\n")
            .map(|one| one.trim_start_matches("---\n").to_owned());
        let parsed = documents.map(|text| Ok((document::parse(format!("{text}\n").as_bytes())?, text)));
        Ok(Self(parsed.collect::<Result<_>>()?))
    }

    fn kinds(&self) -> Vec<&str> {
        self.0
            .iter()
            .filter_map(|(object, _)| object["kind"].as_str())
            .collect()
    }

    fn of(&self, kind: &str, name: &str) -> &Value {
        let found = self
            .0
            .iter()
            .find(|(object, _)| object["kind"] == kind && object["metadata"]["name"] == name);
        &found
            .unwrap_or_else(|| panic!("no {kind} {name} in {:?}", self.0))
            .0
    }

    fn text(&self, kind: &str) -> &str {
        &self
            .0
            .iter()
            .find(|(object, _)| object["kind"] == kind)
            .unwrap()
            .1
    }
}

fn release() -> Value {
    json!({"type": "release", "release": {
        "chart": {"name": "my-chart", "version": "1.0.0", "appVersion": "1.0", "description": "a: b {{ c \"d\" 'e'"},
        "input": {
            "component": {"name": "test-component"},
            "resources": {"r": {"repository": "example.com/charts/r", "insecure": false, "tag": "1.0"}},
            "entrypoint": {"resourceName": "r", "type": "helm"},
        },
        "values": {},
    }})
}

fn bootstrap(releases: &Value, userdata: &Value) -> Value {
    json!({"type": "bootstrap", "bootstrap": {
        "chart": {"name": "boot", "version": "1.0.0", "appVersion": "", "description": ""},
        "input": {"releases": releases, "userdata": userdata},
    }})
}

fn source(name: &str, label: &str, spec: &Value) -> Value {
    let key = if spec["interval"] == "4m" {
        "component"
    } else {
        "release"
    };
    let key = format!("solar.opendefense.cloud/{key}");
    let mut object = json!({
        "apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
        "metadata": {"name": name, "namespace": "test-ns", "labels": {&key: label}, "annotations": {&key: label}},
        "spec": {"layerSelector": {"mediaType": "application/vnd.cncf.helm.chart.content.v1.tar+gzip", "operation": "copy"}},
    });
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(spec.as_object().unwrap().clone());
    object
}

fn flux_release(name: &str, label: &str, key: &str, more: &Value) -> Value {
    let key = format!("solar.opendefense.cloud/{key}");
    let mut object = json!({
        "apiVersion": "helm.toolkit.fluxcd.io/v2", "kind": "HelmRelease",
        "metadata": {"name": name, "namespace": "test-ns", "labels": {&key: label}, "annotations": {&key: label}},
        "spec": {
            "interval": "10m", "chartRef": {"kind": "OCIRepository", "name": name}, "releaseName": name,
            "install": {"remediation": {"retries": 3}}, "upgrade": {"remediation": {"retries": 3}},
            "test": {"enable": true}, "driftDetection": {"mode": "enabled"},
        },
    });
    object["spec"]
        .as_object_mut()
        .unwrap()
        .extend(more.as_object().unwrap().clone());
    object
}

#[tokio::test]
async fn a_release_chart_as_the_contract_has_it() -> Result<()> {
    let objects = Rendered::new(&release()).await?.template().await?;
    assert_eq!(objects.kinds(), ["HelmRelease", "OCIRepository"]);
    let name = "bar-test-component";
    let spec = json!({"interval": "4m", "url": "oci://example.com/charts/r", "ref": {"tag": "1.0"}});
    assert_eq!(
        objects.of("OCIRepository", name),
        &source(name, "test-component", &spec)
    );
    assert_eq!(
        objects.of("HelmRelease", name),
        &flux_release(name, "test-component", "component", &json!({"values": {}}))
    );
    Ok(())
}

#[tokio::test]
async fn every_option_of_a_release_chart() -> Result<()> {
    let mut config = release();
    let resource = &mut config["release"]["input"]["resources"]["r"];
    *resource = json!({"repository": "oci://example.com/r", "insecure": true, "tag": "@sha256:0123", "pullSecretName": "123",
        "helm": {"name": "h", "version": "1", "valuesTemplate": "first: {{ .Values.resources.r.tag }}\nsecond: \"two\"\n"}});
    config["release"]["targetNamespace"] = "my-namespace".into();
    config["release"]["values"] = Value::Null;
    let objects = Rendered::new(&config).await?.template().await?;
    let name = "bar-test-component";
    let spec = json!({"interval": "4m", "url": "oci://oci://example.com/r", "insecure": true, "secretRef": {"name": "123"}, "ref": {"digest": "sha256:0123"}});
    assert_eq!(
        objects.of("OCIRepository", name),
        &source(name, "test-component", &spec)
    );
    let more = json!({
        "values": null, "targetNamespace": "my-namespace", "install": {"createNamespace": true, "remediation": {"retries": 3}},
        "valuesFrom": [{"kind": "ConfigMap", "name": "bar-test-component-values", "valuesKey": "values.yaml"}],
    });
    assert_eq!(
        objects.of("HelmRelease", name),
        &flux_release(name, "test-component", "component", &more)
    );
    let map = objects.of("ConfigMap", "bar-test-component-values");
    assert_eq!(
        map["metadata"]["labels"],
        json!({"solar.opendefense.cloud/component": "test-component"})
    );
    assert_eq!(map["metadata"].get("annotations"), None);
    assert_eq!(
        map["data"],
        json!({"values.yaml": "\nfirst: @sha256:0123\nsecond: \"two\"\n"})
    );
    Ok(())
}

#[tokio::test]
async fn long_names_are_cut_as_the_contract_has_it() -> Result<()> {
    let mut config = release();
    config["release"]["input"]["component"]["name"] = "c".repeat(60).into();
    let objects = Rendered::new(&config).await?.template().await?;
    let name = format!("bar-{}-1aefdff103", "c".repeat(38));
    objects.of("OCIRepository", &name);
    config["release"]["input"]["component"]["name"] = "c".repeat(70).into();
    let objects = Rendered::new(&config).await?.template().await?;
    let metadata = &objects.0[0].0["metadata"];
    let key = "solar.opendefense.cloud/component";
    assert_eq!(metadata["labels"][key], format!("{}-6fe5981a31", "c".repeat(52)));
    assert_eq!(metadata["annotations"][key], "c".repeat(70));
    Ok(())
}

#[tokio::test]
async fn what_helm_refuses_at_install() -> Result<()> {
    let rendered = Rendered::new(&release()).await?;
    for (set, text) in [
        (
            "entrypoint.resourceName=x",
            "entrypoint resource \"x\" not found in .Values.resources",
        ),
        (
            "resources=null",
            "entrypoint resource \"r\" not found in .Values.resources",
        ),
        ("resources.r.repository=", "resource \"r\" has empty repository"),
        ("resources.r.tag=", "resource \"r\" has empty tag"),
    ] {
        let output = rendered.helm(&["template", "bar", "CHART", "--set", set]).await;
        let error = output.err().context("helm accepts it")?;
        assert!(error.to_string().contains(text), "{error}");
    }
    Ok(())
}

/// What Helm would refuse at the installation is not rendered for a task: its tag would be taken, and the right chart would meet
/// a conflict.
#[tokio::test]
async fn what_helm_would_refuse_is_not_rendered() -> Result<()> {
    let at = |path: &str, value: Value| {
        let mut config = release();
        *config["release"]["input"].pointer_mut(path).expect("it is there") = value;
        config
    };
    for (config, text) in [
        (
            at("/entrypoint/resourceName", json!("x")),
            "is not a key of resources",
        ),
        (
            at("/entrypoint/resourceName", json!("")),
            "is not a key of resources",
        ),
        (at("/resources", json!(null)), "is not a key of resources"),
        (at("/resources", json!({})), "is not a key of resources"),
        (at("/resources/r/repository", json!("")), "has no repository"),
        (at("/resources/r/tag", json!(null)), "has no tag"),
    ] {
        let error = Rendered::unchecked(&config)
            .await
            .err()
            .context("it is rendered")?;
        assert!(error.to_string().contains(text), "{error}");
    }
    Ok(())
}

/// What people copy can be installed.
#[tokio::test]
async fn the_configurations_of_the_examples_and_pages_can_be_installed() -> Result<()> {
    let root = Path::new(programs::ROOT);
    let mut tried = 0;
    for file in [
        "examples/quickstart/manifests/release.yaml",
        "examples/quickstart/manifests/release-edge.yaml",
        "examples/quickstart/manifests/bootstrap.yaml",
    ] {
        let text = std::fs::read_to_string(root.join(file))?.replace("${VERSION}", "1.0.0");
        for text in text.split("\n---\n") {
            let config = &document::parse(text.as_bytes())?["spec"]["config"];
            if !config.is_null() {
                Rendered::new(config).await?;
                tried += 1;
            }
        }
    }
    let page = std::fs::read_to_string(root.join("docs/renderer.md"))?;
    for block in page.split("```yaml\n").skip(1) {
        let text = block.split("```").next().unwrap_or_default();
        let config = document::parse(text.as_bytes())?;
        if !config["type"].is_null() {
            Rendered::new(&config).await?;
            tried += 1;
        }
    }
    assert!(tried >= 3, "only {tried} found");
    Ok(())
}

#[tokio::test]
async fn actions_in_values_are_evaluated_at_install() -> Result<()> {
    let mut config = release();
    config["release"]["values"] = json!({
        "plain": "{{ .Values.component.name }}",
        "quotes": "{{ default \"it's\" .Values.userdata.x }}",
        "inside": "a {{ printf \"%s:%s\" .Release.Name .Release.Namespace }} b",
        "colon": "key: {{ .Release.Name }}",
        "lines": "{{ if true }}\n  yes: {{ .Release.Name }}\n{{ end }}\nlast ",
        "{{ .Release.Name }}": ["{{ .Release.Name }}"],
    });
    let objects = Rendered::new(&config).await?.template().await?;
    let expected = json!({
        "plain": "test-component", "quotes": "it's", "inside": "a bar:test-ns b", "colon": "key: bar",
        "lines": "\n  yes: bar\n\nlast ", "bar": ["bar"],
    });
    assert_eq!(
        objects.of("HelmRelease", "bar-test-component")["spec"]["values"],
        expected
    );
    let mut failing = release();
    failing["release"]["values"] = json!({"a": "{{ .resources.r.tag }}"});
    assert!(
        Rendered::unchecked(&failing).await?.template().await.is_err(),
        "as with the values of any chart"
    );
    Ok(())
}

#[tokio::test]
async fn a_bootstrap_chart_as_the_contract_has_it() -> Result<()> {
    let releases = json!({
        "foo": {"repository": "example.com/foo", "insecure": false, "tag": "^1.0"},
        "bar": {"repository": "registry.example.com/charts/my-app", "insecure": true, "tag": "1", "pullSecretName": "target-pull-creds"},
    });
    let userdata = json!({"a": [1, "<&>", null], "b": {"c": "{{ not evaluated }}"}});
    let objects = Rendered::new(&bootstrap(&releases, &userdata))
        .await?
        .template()
        .await?;
    assert_eq!(
        objects.kinds(),
        ["HelmRelease", "HelmRelease", "OCIRepository", "OCIRepository"]
    );
    let spec = json!({"interval": "10m", "url": "oci://example.com/foo", "ref": {"semver": "^1.0"}});
    assert_eq!(
        objects.of("OCIRepository", "bar-foo"),
        &source("bar-foo", "foo", &spec)
    );
    let spec = json!({"interval": "10m", "url": "oci://registry.example.com/charts/my-app", "insecure": true,
        "secretRef": {"name": "target-pull-creds"}, "ref": {"semver": "1"}});
    assert_eq!(
        objects.of("OCIRepository", "bar-bar"),
        &source("bar-bar", "bar", &spec)
    );
    for name in ["foo", "bar"] {
        let more = json!({"values": {"userdata": userdata}});
        let full = format!("bar-{name}");
        assert_eq!(
            objects.of("HelmRelease", &full),
            &flux_release(&full, name, "release", &more)
        );
    }
    for empty in [Value::Null, json!({}), json!("")] {
        let objects = Rendered::new(&bootstrap(&releases, &empty))
            .await?
            .template()
            .await?;
        assert_eq!(
            objects.of("HelmRelease", "bar-foo")["spec"]["values"],
            json!({"userdata": null})
        );
    }
    for none in [Value::Null, json!({})] {
        assert!(
            Rendered::new(&bootstrap(&none, &Value::Null))
                .await?
                .template()
                .await?
                .kinds()
                .is_empty()
        );
    }
    Ok(())
}

/// Strings that some reader or writer of YAML has got wrong, none of them a Helm action.
fn awkward() -> Vec<String> {
    let texts = [
        "",
        " ",
        "\n",
        "\n\n",
        "a\n",
        "a\n\n",
        " a\nb",
        "a \nb ",
        "\ta\nb\t",
        "a\r\nb",
        "\u{85}",
        "a\u{2028}b\u{2029}",
        "\u{feff}",
        "\u{7f}\u{9f}\u{1}",
        "null",
        "~",
        "Yes",
        "n",
        "OFF",
        "<<",
        "=",
        ".inf",
        ".NaN",
        "1",
        "-1",
        "+1",
        "0x1F",
        "0o7",
        "0777",
        "1e3",
        "1_000",
        "12:30:45",
        "1.",
        ".5",
        "2001-12-14t21:59:43.10-05:00",
        "2001-01-01",
        "0b1",
        "1.0.0",
        "v1",
        "!!str x",
        "!!binary aGk=",
        "!x y",
        "&a b",
        "*a",
        "---",
        "--- a",
        "...",
        "- a",
        "-",
        "? a",
        "?",
        ": a",
        ":",
        "a:",
        "a: b",
        "a #b",
        "#a",
        "%a",
        "@a",
        "`a`",
        "|",
        ">-\n",
        "[a",
        "{a",
        "{",
        "}",
        "}}",
        "{ {",
        "a, b",
        "'",
        "''",
        "\"",
        "\\",
        "\\n",
        "it's \"x\"",
        "<< .x >>",
        "a\n---\nb: c\n...\n",
        "a\n  b\n c",
        "x: |\n  y",
        "# c",
        "😀",
        "日本語",
        "a\u{300}",
        "\u{10ffff}",
    ];
    texts
        .map(str::to_owned)
        .into_iter()
        .chain(["k".repeat(700), "long text ".repeat(200)])
        .collect()
}

/// Holds: X2.
#[tokio::test]
async fn awkward_values_reach_flux_unchanged() -> Result<()> {
    let texts = awkward();
    let keys: Value = texts
        .iter()
        .enumerate()
        .map(|(index, text)| (text.clone(), json!([index, text])))
        .collect();
    let mut values = json!({
        "keys": keys, "items": texts, "nested": [[texts], {"a": {"b": texts}}], "empty": [{}, [], null],
        "numbers": [0, -1, 1.5, 1e21, 1e-7, 0.1, 9_007_199_254_740_992_u64], "flags": [true, false], "y": "y",
    });
    // The last thing in a document is what helm trims.
    values["z"] = "ends with breaks\n\n".into();
    let mut config = release();
    config["release"]["values"] = values.clone();
    config["release"]["input"]["resources"]["r"]["helm"] =
        json!({"name": "h", "description": texts.concat(), "version": "1"});
    let rendered = Rendered::new(&config).await?;
    let objects = rendered.template().await?;
    let ours = &objects.of("HelmRelease", "bar-test-component")["spec"]["values"];
    assert_eq!(ours, &values);
    let theirs = rendered.read_with_helm(objects.text("HelmRelease")).await?;
    assert_eq!(theirs["spec"]["values"], values, "as helm's own reader has it");
    Ok(())
}

/// Holds: X2.
#[tokio::test]
async fn awkward_input_reaches_values_unchanged() -> Result<()> {
    let texts = awkward();
    let releases: Value = texts
        .iter()
        .map(|text| {
            (
                text.clone(),
                json!({"repository": text, "insecure": false, "tag": text}),
            )
        })
        .collect();
    let rendered = Rendered::new(&bootstrap(&releases, &json!({"texts": texts}))).await?;
    let text = rendered.helm(&["show", "values", "CHART"]).await?;
    let values = json!({"releases": releases, "userdata": {"texts": texts}});
    assert_eq!(document::parse(text.as_bytes())?, values);
    assert_eq!(
        rendered.read_with_helm(&text).await?,
        values,
        "as helm's own reader has it"
    );
    Ok(())
}

#[tokio::test]
async fn integers_beyond_a_float_are_written_in_full() -> Result<()> {
    let mut config = release();
    config["release"]["values"] =
        serde_json::from_str(r#"{"big": 12345678901234567890, "low": -9223372036854775808}"#)?;
    let objects = Rendered::new(&config).await?.template().await?;
    let values = &objects.of("HelmRelease", "bar-test-component")["spec"]["values"];
    assert_eq!(
        values.to_string(),
        r#"{"big":12345678901234567890,"low":-9223372036854775808}"#
    );
    Ok(())
}

#[tokio::test]
async fn a_mebibyte_of_values() -> Result<()> {
    let mut config = release();
    let lines = "some line of a larger file: \"quoted\", 'quoted', #, %\n".repeat(20_000);
    config["release"]["values"] = json!({"file": lines});
    let rendered = Rendered::new(&config).await?;
    let objects = rendered.template().await?;
    assert_eq!(
        objects.of("HelmRelease", "bar-test-component")["spec"]["values"]["file"],
        lines.as_str()
    );
    rendered.helm(&["lint", "CHART"]).await?;
    Ok(())
}

#[tokio::test]
async fn helm_lints_shows_and_installs_both_types() -> Result<()> {
    let releases = json!({"foo": {"repository": "example.com/foo", "insecure": false, "tag": "^1.0"}});
    for config in [release(), bootstrap(&releases, &json!({"a": 1}))] {
        let rendered = Rendered::new(&config).await?;
        let chart = &config[config["type"].as_str().unwrap()]["chart"];
        let shown = document::parse(rendered.helm(&["show", "chart", "CHART"]).await?.as_bytes())?;
        for key in ["name", "version", "appVersion", "description"] {
            assert_eq!(shown[key].as_str().unwrap_or_default(), chart[key], "{key}");
        }
        let lint = rendered.helm(&["lint", "--strict", "CHART"]).await?;
        assert!(lint.contains("0 chart(s) failed"), "{lint}");
        let installed = rendered
            .helm(&[
                "install",
                "bar",
                "CHART",
                "--dry-run=client",
                "--namespace",
                "test-ns",
            ])
            .await?;
        assert!(installed.contains("kind: HelmRelease"), "{installed}");
        rendered
            .helm(&[
                "package",
                &unpacked(&rendered).await?.display().to_string(),
                "-d",
                &rendered.path("repacked").display().to_string(),
            ])
            .await?;
    }
    Ok(())
}

/// The archive's directory as helm unpacks it, which must hold the four files of the contract.
async fn unpacked(rendered: &Rendered) -> Result<PathBuf> {
    let registry = Registry::start(RegistryOptions::new()).await?;
    let into = rendered.path("pulled");
    let name = shown_name(rendered).await?;
    let url = format!("oci://{}/team-a/{name}", registry.host());
    std::fs::write(rendered.path("auth.json"), registry.docker_config_json())?;
    let mut command = Command::new(programs::renderer());
    command
        .args([
            "push",
            "chart.tgz",
            "--plain-http",
            "--url",
            &format!("{url}:1.0.0"),
        ])
        .current_dir(rendered.dir.path());
    let output = command
        .env("DOCKER_CONFIG", rendered.path("auth.json"))
        .output()
        .await?;
    anyhow::ensure!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let helm = Helm::new()?.with_login(&registry.host(), registry.username(), registry.password())?;
    let chart = helm.pull_plain(&url, "1.0.0", &into).await?;
    for file in [
        "Chart.yaml",
        "values.yaml",
        "templates/release.yaml",
        ".helmignore",
    ] {
        anyhow::ensure!(chart.join(file).is_file(), "{file} is missing");
    }
    anyhow::ensure!(files_below(&chart)? == 4, "there is more than the contract has");
    Ok(chart)
}

async fn shown_name(rendered: &Rendered) -> Result<String> {
    let shown = document::parse(rendered.helm(&["show", "chart", "CHART"]).await?.as_bytes())?;
    Ok(shown["name"].as_str().context("no name")?.to_owned())
}

fn files_below(dir: &Path) -> Result<usize> {
    let mut count = 0;
    for entry in std::fs::read_dir(dir)? {
        let path = entry?.path();
        count += if path.is_dir() { files_below(&path)? } else { 1 };
    }
    Ok(count)
}

#[tokio::test]
async fn versions_helm_accepts() -> Result<()> {
    for version in ["1", "1.2", "v0.0.1-abc", "1.0.0-alpha.1+b.01", "0.0.0"] {
        let mut config = release();
        config["release"]["chart"]["version"] = version.into();
        let rendered = Rendered::new(&config).await?;
        rendered
            .helm(&["lint", "CHART"])
            .await
            .with_context(|| version.to_owned())?;
        let shown = document::parse(rendered.helm(&["show", "chart", "CHART"]).await?.as_bytes())?;
        assert_eq!(shown["version"].as_str(), Some(version), "{shown}");
    }
    Ok(())
}
