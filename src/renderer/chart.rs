//! A configuration to the four files of a Helm chart.
//!
//! Everything a tenant wrote is serialised by [`yaml`]; the template around it is the renderer's own static text. Left live on
//! purpose is every `{{ … }}` that a release puts into its template: in `targetNamespace`, in the keys and strings of `values`,
//! and in `valuesTemplate`. Helm evaluates them at install (it is how userdata reaches a release), so their author controls the
//! rendered objects, with the rights of the account that installs the chart; nothing is evaluated here. All else goes to
//! `Chart.yaml` and `values.yaml`, which Helm reads as data.

use serde_json::{Map, Value, json};

use super::config::{
    Bootstrap, ChartConfig, ChartDescription, ChartResource, ChartResources, ConfigError, Release,
};
use super::yaml;

/// Largest file in a chart in bytes; Helm refuses to load a larger one.
const MAX_FILE: usize = yaml::MAX_BYTES;

const HELMIGNORE: &str = include_str!("templates/helmignore");
const RELEASE: &str = include_str!("templates/release.yaml");
const RELEASE_VALUES_FROM: &str = include_str!("templates/release-values-from.yaml");
const RELEASE_CONFIG_MAP: &str = include_str!("templates/release-config-map.yaml");
const BOOTSTRAP: &str = include_str!("templates/bootstrap.yaml");

/// A file of a chart would be larger than Helm loads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} of the chart would be larger than {MAX_FILE} bytes")]
pub struct ChartTooLarge(&'static str);

/// A chart: what it is called, and its files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chart {
    /// Name, version and description.
    pub meta: ChartDescription,
    /// Path below the chart's directory, and content. `Chart.yaml` is first.
    pub files: [(&'static str, String); 4],
}

impl Chart {
    /// Builds the chart a configuration describes.
    ///
    /// # Errors
    /// When a file of it would be larger than Helm loads.
    pub fn render(config: &ChartConfig) -> Result<Self, ChartTooLarge> {
        let meta = config.chart().clone();
        let (values, template) = match config {
            ChartConfig::Release(release) => (release_values(release), release_template(release)),
            ChartConfig::Bootstrap(bootstrap) => (bootstrap_values(bootstrap), BOOTSTRAP.to_owned()),
        };
        let files = [
            ("Chart.yaml", chart_yaml(&meta)),
            ("values.yaml", values),
            ("templates/release.yaml", template),
            (".helmignore", HELMIGNORE.to_owned()),
        ];
        match files.iter().find(|(_, content)| content.len() > MAX_FILE) {
            Some((path, _)) => Err(ChartTooLarge(path)),
            None => Ok(Self { meta, files }),
        }
    }
}

/// Six quoted lines at most, in the order Helm writes them; `archive::read_meta` reads exactly this.
fn chart_yaml(meta: &ChartDescription) -> String {
    let lines = [
        ("apiVersion", "v2"),
        ("appVersion", &meta.app_version),
        ("description", &meta.description),
        ("name", &meta.name),
        ("type", "application"),
        ("version", &meta.version),
    ];
    let mut out = String::new();
    for (key, value) in lines.iter().filter(|(_, value)| !value.is_empty()) {
        out.extend([
            key,
            ": ",
            &yaml::quoted(value),
            "
",
        ]);
    }
    out
}

fn release_values(release: &Release) -> String {
    let mut input = Map::new();
    input.insert("component".into(), json!({"name": release.component}));
    let entrypoint = json!({"resourceName": release.entrypoint, "type": release.entrypoint_type});
    input.insert("entrypoint".into(), entrypoint);
    input.insert("resources".into(), resources(&release.resources));
    format!("userdata: {{}}\n\n{}", yaml::document(&input))
}

fn bootstrap_values(bootstrap: &Bootstrap) -> String {
    let mut input = Map::new();
    input.insert("releases".into(), resources(&bootstrap.releases));
    input.insert("userdata".into(), bootstrap.userdata.clone());
    yaml::document(&input)
}

fn resources(resources: &ChartResources) -> Value {
    let Some(resources) = resources else {
        return Value::Null;
    };
    Value::Object(
        resources
            .iter()
            .map(|(key, value)| (key.clone(), resource(value)))
            .collect(),
    )
}

fn resource(resource: &ChartResource) -> Value {
    let mut value = json!({
        "insecure": resource.insecure,
        "repository": resource.repository,
        "tag": resource.tag,
    });
    if !resource.pull_secret_name.is_empty() {
        value["pullSecretName"] = resource.pull_secret_name.clone().into();
    }
    if let Some(helm) = &resource.helm {
        value["helm"] = json!({"name": helm.name, "version": helm.version});
        let optional = [
            ("appVersion", &helm.app_version),
            ("description", &helm.description),
            ("valuesTemplate", &helm.values_template),
        ];
        for (key, text) in optional.into_iter().filter(|(_, text)| !text.is_empty()) {
            value["helm"][key] = text.clone().into();
        }
    }
    value
}

fn release_template(release: &Release) -> String {
    let mut out = RELEASE.to_owned();
    if !release.target_namespace.is_empty() {
        let namespace = yaml::scalar(&release.target_namespace, 2);
        out.extend(["    createNamespace: true\n  targetNamespace: ", &namespace, "\n"]);
    }
    let template = values_template(release);
    if template.is_some() {
        out.push_str(RELEASE_VALUES_FROM);
    }
    out.extend(["  values:", &yaml::after_key(&release.values, 2), "\n"]);
    close(&mut out);
    if let Some(template) = template {
        out.push_str(RELEASE_CONFIG_MAP);
        // The block starts with an empty line and ends with one line break, whatever the text has.
        let text = format!("\n{}\n", yaml::with_line_breaks(template).trim_end_matches('\n'));
        out.extend(["  values.yaml: ", &yaml::scalar(&text, 2), "\n"]);
        close(&mut out);
    }
    out
}

/// Ends a document with a comment, because Helm trims its end and with it the line breaks a last value may end with.
///
/// Not after an action: one that ends with `-}}` takes the line break with it, and the comment would become text.
fn close(out: &mut String) {
    if !out.trim_end().ends_with("}}") {
        out.push_str("# end\n");
    }
}

/// Whether the actions of a release's values template stay as they are in the chart.
///
/// # Errors
/// The template has a character that only double quotes hold, in which an action would break.
pub fn check_template(config: &ChartConfig) -> Result<(), ConfigError> {
    let ChartConfig::Release(release) = config else {
        return Ok(());
    };
    let template = values_template(release).map(yaml::with_line_breaks);
    let breaks = |template: &String| template.contains("{{") && !yaml::is_block(template);
    match template.filter(breaks) {
        Some(_) => Err(ConfigError::TemplateCharacter),
        None => Ok(()),
    }
}

/// The values template of the entrypoint's chart, if it has one.
fn values_template(release: &Release) -> Option<&str> {
    let resource = release.resources.as_ref()?.get(&release.entrypoint)?;
    let template = resource.helm.as_ref()?.values_template.as_str();
    (!template.is_empty()).then_some(template)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renderer::document;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn meta() -> ChartDescription {
        ChartDescription {
            name: "my-chart".into(),
            description: "A \"chart\": it's {{ good }}".into(),
            version: "1.0.0".into(),
            app_version: "2".into(),
        }
    }

    fn resource(repository: &str, tag: &str) -> ChartResource {
        ChartResource {
            repository: repository.into(),
            tag: tag.into(),
            ..ChartResource::default()
        }
    }

    fn release() -> Release {
        Release {
            chart: meta(),
            component: "my-component".into(),
            resources: Some(BTreeMap::from([(
                "r".to_owned(),
                resource("example.com/r", "1.0.0"),
            )])),
            entrypoint: "r".into(),
            entrypoint_type: "helm".into(),
            target_namespace: String::new(),
            values: Value::Null,
        }
    }

    fn file(config: &ChartConfig, path: &str) -> String {
        let chart = Chart::render(config).unwrap();
        chart.files.into_iter().find(|(name, _)| *name == path).unwrap().1
    }

    fn template(release: Release) -> String {
        file(&ChartConfig::Release(release), "templates/release.yaml")
    }

    /// What a YAML reader makes of the text from `from` on, the part that is data and not template.
    fn data(text: &str, from: &str) -> Value {
        let start = text.rfind(from).unwrap();
        document::parse(&text.as_bytes()[start..]).unwrap_or_else(|error| panic!("{error}\n{text}"))
    }

    #[test]
    fn the_four_files() {
        let chart = Chart::render(&ChartConfig::Release(release())).unwrap();
        let paths: Vec<_> = chart.files.iter().map(|(path, _)| *path).collect();
        assert_eq!(
            paths,
            [
                "Chart.yaml",
                "values.yaml",
                "templates/release.yaml",
                ".helmignore"
            ]
        );
        assert_eq!(chart.files[3].1.len(), 349);
        assert!(chart.files[3].1.contains(".DS_Store") && chart.files[3].1.contains(".git/"));
    }

    #[test]
    fn chart_yaml_is_quoted() {
        let text = file(&ChartConfig::Release(release()), "Chart.yaml");
        assert_eq!(
            document::parse(text.as_bytes()).unwrap(),
            json!({"apiVersion": "v2", "name": "my-chart", "description": "A \"chart\": it's {{ good }}", "type": "application", "version": "1.0.0", "appVersion": "2"})
        );
    }

    #[test]
    fn release_values_as_the_contract_prints_them() {
        let mut release = release();
        release.resources = Some(BTreeMap::from([
            (
                "b".to_owned(),
                ChartResource {
                    pull_secret_name: "s".into(),
                    insecure: true,
                    ..resource("b.example/x", "@sha256:0")
                },
            ),
            (
                "a".to_owned(),
                ChartResource {
                    helm: Some(super::super::config::HelmChart {
                        name: "h".into(),
                        version: "1".into(),
                        ..Default::default()
                    }),
                    ..resource("a.example/x", "^1.0")
                },
            ),
        ]));
        let expected = "userdata: {}\n\ncomponent:\n  name: my-component\nentrypoint:\n  resourceName: r\n  type: helm\nresources:\n  a:\n    helm:\n      name: h\n      version: '1'\n    insecure: false\n    repository: a.example/x\n    tag: ^1.0\n  b:\n    insecure: true\n    pullSecretName: s\n    repository: b.example/x\n    tag: '@sha256:0'\n";
        assert_eq!(
            file(&ChartConfig::Release(release.clone()), "values.yaml"),
            expected
        );
        release.resources = None;
        assert!(file(&ChartConfig::Release(release.clone()), "values.yaml").ends_with("resources: null\n"));
        release.resources = Some(BTreeMap::new());
        assert!(file(&ChartConfig::Release(release), "values.yaml").ends_with("resources: {}\n"));
    }

    #[test]
    fn bootstrap_values_as_the_contract_prints_them() {
        let releases = BTreeMap::from([("foo".to_owned(), resource("example.com/foo", "^1.0"))]);
        let bootstrap = Bootstrap {
            chart: meta(),
            releases: Some(releases),
            userdata: Value::Null,
        };
        let text = file(&ChartConfig::Bootstrap(bootstrap), "values.yaml");
        assert_eq!(
            text,
            "releases:\n  foo:\n    insecure: false\n    repository: example.com/foo\n    tag: ^1.0\nuserdata: null\n"
        );
    }

    #[test]
    fn values_stand_in_the_template() {
        let mut release = release();
        release.values = json!({"replicaCount": 3, "image": {"repository": "example.com/image", "tag": "{{ .resources.resource1.tag }}"}});
        let text = template(release);
        for line in [
            "replicaCount: 3",
            "repository: example.com/image",
            "tag: '{{ .resources.resource1.tag }}'",
        ] {
            assert!(text.contains(line), "{line}");
        }
    }

    #[test]
    fn optional_parts_are_there_only_when_asked_for() {
        let text = template(release());
        assert!(text.contains("  values: null\n"));
        for absent in ["targetNamespace", "createNamespace", "valuesFrom", "ConfigMap"] {
            assert!(!text.contains(absent), "{absent}");
        }
        let mut release = release();
        release.target_namespace = "my-namespace".into();
        release.values = json!({});
        let text = template(release);
        assert!(text.contains("    createNamespace: true\n  targetNamespace: my-namespace\n  values: {}\n"));
    }

    fn with_template(text: &str) -> String {
        template(of_template(text))
    }

    fn of_template(text: &str) -> Release {
        let mut release = release();
        let helm = super::super::config::HelmChart {
            values_template: text.into(),
            ..Default::default()
        };
        release.resources = Some(BTreeMap::from([(
            "r".to_owned(),
            ChartResource {
                helm: Some(helm),
                ..resource("h/r", "1")
            },
        )]));
        release
    }

    #[test]
    fn a_values_template_whose_actions_would_break_is_refused() {
        for (template, is_refused) in [
            ("a: {{ .x }}\r\nb: 1\n", false),
            ("\u{feff}a: {{ .x }}\n", false),
            ("a: \u{2028}1\n", false),
            ("a: {{ .x }}\u{2028}\n", true),
            ("a: {{ .x }}\u{85}", true),
            ("a: {{ .x }}\u{7}\n", true),
        ] {
            let mut release = of_template(template);
            release.entrypoint = "r".to_owned();
            let checked = check_template(&ChartConfig::Release(release));
            let refused = Err(ConfigError::TemplateCharacter);
            assert_eq!(checked == refused, is_refused, "{template:?} {checked:?}");
        }
    }

    #[test]
    fn a_values_template_becomes_a_config_map() {
        let text = with_template("a: {{ .Values.x }}\n  b: \"{{ .y }}\"\n");
        assert!(text.contains("valuesFrom:"));
        assert!(
            text.contains("\n  values.yaml: |2\n\n    a: {{ .Values.x }}\n      b: \"{{ .y }}\"\n# end\n"),
            "{text}"
        );
        // An editor of another system made it.
        let text = with_template("\u{feff}a: {{ default \"x\" .y }}\r\nb: 1\rc: 2\r\n");
        assert!(
            text.contains(
                "\n  values.yaml: |2\n\n    a: {{ default \"x\" .y }}\n    b: 1\n    c: 2\n# end\n"
            ),
            "{text}"
        );
        // The trimming action of the last line must not meet a comment.
        assert!(with_template("{{- if .x }}\na: 1\n{{- end -}}\n").ends_with("    {{- end -}}\n"));
    }

    #[test]
    fn a_file_helm_would_not_load_is_refused() {
        let mut release = release();
        release.values = json!({"a": "x".repeat(MAX_FILE)});
        assert_eq!(
            Chart::render(&ChartConfig::Release(release)),
            Err(ChartTooLarge("templates/release.yaml"))
        );
    }

    proptest! {
        /// Holds: X2.
        #[test]
        fn parse_of_render_is_the_intended_object(a in any::<String>(), b in "[ \\n\\t:#'\"{}|>a-]{0,12}", key in any::<String>()) {
            let mut release = release();
            release.component = a.clone();
            release.entrypoint = key.clone();
            release.values = json!({ &key: a, "list": [b, {"x": b}], "last": b });
            release.resources = Some(BTreeMap::from([(key.clone(), resource(&a, &b))]));
            let values = release.values.clone();
            let config = ChartConfig::Release(release.clone());
            let read = document::parse(file(&config, "values.yaml").as_bytes()).unwrap();
            prop_assert_eq!(&read["component"]["name"], &Value::from(a.clone()));
            prop_assert_eq!(&read["resources"][&key]["repository"], &Value::from(a));
            prop_assert_eq!(&read["resources"][&key]["tag"], &Value::from(b));
            prop_assert_eq!(&data(&template(release), "  values:")["values"], &values);
        }

        /// Holds: F4.
        #[test]
        fn userdata_of_a_bootstrap_chart_is_data_whatever_it_says(text in any::<String>(), key in "[ \\n\\t:#'\"{}|>a-]{1,12}") {
            let userdata = json!({ &key: text, "list": [key, {"x": text}] });
            let bootstrap = Bootstrap { chart: meta(), releases: None, userdata: userdata.clone() };
            let chart = ChartConfig::Bootstrap(bootstrap);
            prop_assert_eq!(&document::parse(file(&chart, "values.yaml").as_bytes()).unwrap()["userdata"], &userdata);
            prop_assert_eq!(file(&chart, "templates/release.yaml"), BOOTSTRAP);
        }

        /// Holds: X2.
        #[test]
        fn a_values_template_keeps_its_text(text in "[ \\n\\t:#'\"{}|>a-]{1,20}") {
            let read = data(&with_template(&text), "  values.yaml:");
            prop_assert_eq!(read["values.yaml"].as_str().unwrap(), format!("\n{}\n", text.trim_end_matches('\n')));
        }
    }
}
