//! The configuration: which chart to build from what.
//!
//! Field names match in any case and scalars become strings where a string is wanted, as in Go's reader; unknown fields are
//! ignored. Only the branch that `type` names is read. Errors name fields, never their values.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::document::{self, DocumentError};
use super::printable_word::PrintableWord;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// Not a document.
    #[error("failed to parse config-file: {0}")]
    Document(#[source] DocumentError),
    /// A field is there with another shape than the one it has to have.
    #[error("failed to parse config-file: {field} is not {expected}")]
    Shape {
        /// Path of the field, with known names only.
        field: String,
        /// What it has to be.
        expected: &'static str,
    },
    /// `type` is neither `release` nor `bootstrap`.
    #[error("unknown type specified in config: expected release or bootstrap, found {0}")]
    UnknownType(PrintableWord),
    /// The entrypoint is none of the resources.
    #[error("entrypoint.resourceName in config is not a key of resources")]
    NoEntrypoint,
    /// The entrypoint's resource does not say where it is.
    #[error("the resource that entrypoint.resourceName in config names has no {0}")]
    EmptyEntrypoint(&'static str),
    /// The values template of the entrypoint's resource has a character that YAML keeps in double quotes alone, in which its actions
    /// would break.
    #[error(
        "the valuesTemplate of the resource that entrypoint.resourceName in config names has a control character or a line break that is none of YAML's"
    )]
    TemplateCharacter,
    /// The chart's name is not a plain file name that a registry can hold.
    #[error("invalid chart name in config: expected letters, digits, '.', '_' and '-', at most 250")]
    ChartName,
    /// The chart's version is not a semantic version.
    #[error("invalid chart version in config: expected a semantic version such as 1.2.3")]
    ChartVersion,
    /// The chart's description or application version is too long.
    #[error("chart description or appVersion in config is longer than {MAX_TEXT} bytes")]
    ChartText,
}

/// Longest chart name in bytes, as `helm lint` has it.
const MAX_NAME: usize = 250;
/// Longest chart version in bytes, as Helm has it.
const MAX_VERSION: usize = 256;
/// Longest description or application version in bytes; they end up in the registry's manifest.
pub const MAX_TEXT: usize = 16 * 1024;

/// A configuration that can be rendered.
#[derive(Clone, Debug, PartialEq)]
pub enum ChartConfig {
    /// One component, as a Flux source and a Flux release.
    Release(Release),
    /// Several releases.
    Bootstrap(Bootstrap),
}

/// The chart's own description.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChartDescription {
    /// Chart name; a plain file name.
    pub name: String,
    /// What it is for; printable characters only.
    pub description: String,
    /// Semantic version.
    pub version: String,
    /// Version of what is inside; free text.
    pub app_version: String,
}

/// Where one Helm chart is, and how to use it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ChartResource {
    /// Repository without a scheme.
    pub repository: String,
    /// Use plain HTTP.
    pub insecure: bool,
    /// Tag, version range (bootstrap), or `@digest`.
    pub tag: String,
    /// The chart found there.
    pub helm: Option<HelmChart>,
    /// Pull secret on the target; empty for none.
    pub pull_secret_name: String,
}

/// What is known of a resource's Helm chart.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelmChart {
    /// Chart name.
    pub name: String,
    /// Chart description.
    pub description: String,
    /// Chart version.
    pub version: String,
    /// Application version.
    pub app_version: String,
    /// Template text of further values, evaluated by Helm at install; empty for none.
    pub values_template: String,
}

/// Resources by key; `None` where the configuration has none at all, which prints as `null`.
pub type ChartResources = Option<BTreeMap<String, ChartResource>>;

/// Configuration of type `release`.
#[derive(Clone, Debug, PartialEq)]
pub struct Release {
    /// The chart to make.
    pub chart: ChartDescription,
    /// Name of the component.
    pub component: String,
    /// The component's resources.
    pub resources: ChartResources,
    /// Key of the resource to install.
    pub entrypoint: String,
    /// `helm` or `kro`; copied, never interpreted.
    pub entrypoint_type: String,
    /// Namespace to install into; empty for the release's own.
    pub target_namespace: String,
    /// Values of the release; strings may hold Helm actions.
    pub values: Value,
}

/// Configuration of type `bootstrap`.
#[derive(Clone, Debug, PartialEq)]
pub struct Bootstrap {
    /// The chart to make.
    pub chart: ChartDescription,
    /// Releases by key.
    pub releases: ChartResources,
    /// Handed to every release.
    pub userdata: Value,
}

impl ChartConfig {
    /// Reads a configuration file's bytes.
    ///
    /// # Errors
    /// When the bytes are not a document, a field has the wrong shape, the type is unknown or the chart cannot be named.
    pub fn parse(bytes: &[u8]) -> Result<Self, ConfigError> {
        let value = document::parse(bytes).map_err(ConfigError::Document)?;
        let root = ConfigMapping::of(&value, "config")?;
        match root.text("type")?.as_str() {
            "release" => Release::read(&root.fields("release")?).map(Self::Release),
            "bootstrap" => Bootstrap::read(&root.fields("bootstrap")?).map(Self::Bootstrap),
            other => Err(ConfigError::UnknownType(PrintableWord::of(other))),
        }
    }

    /// Whether Helm can install the chart: what the configuration refers to is in it.
    ///
    /// # Errors
    /// What a release's chart would fail with at its installation.
    pub fn check(&self) -> Result<(), ConfigError> {
        let Self::Release(release) = self else {
            return Ok(());
        };
        let resources = release.resources.as_ref();
        let found = resources.and_then(|resources| resources.get(&release.entrypoint));
        let resource = found.ok_or(ConfigError::NoEntrypoint)?;
        let parts = [("repository", &resource.repository), ("tag", &resource.tag)];
        let empty = parts.into_iter().find(|(_, text)| text.is_empty());
        empty.map_or(Ok(()), |(part, _)| Err(ConfigError::EmptyEntrypoint(part)))
    }

    /// The value of `type`.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Release(_) => "release",
            Self::Bootstrap(_) => "bootstrap",
        }
    }

    /// The chart to make.
    #[must_use]
    pub const fn chart(&self) -> &ChartDescription {
        match self {
            Self::Release(release) => &release.chart,
            Self::Bootstrap(bootstrap) => &bootstrap.chart,
        }
    }
}

impl Release {
    fn read(fields: &ConfigMapping) -> Result<Self, ConfigError> {
        let input = fields.fields("input")?;
        let entrypoint = input.fields("entrypoint")?;
        Ok(Self {
            chart: ChartDescription::read(&fields.fields("chart")?)?,
            component: input.fields("component")?.text("name")?,
            resources: input.resources("resources")?,
            entrypoint: entrypoint.text("resourceName")?,
            entrypoint_type: entrypoint.text("type")?,
            target_namespace: fields.text("targetNamespace")?,
            values: fields.any("values"),
        })
    }
}

impl Bootstrap {
    fn read(fields: &ConfigMapping) -> Result<Self, ConfigError> {
        let input = fields.fields("input")?;
        Ok(Self {
            chart: ChartDescription::read(&fields.fields("chart")?)?,
            releases: input.resources("releases")?,
            userdata: input.any("userdata"),
        })
    }
}

impl ChartDescription {
    fn read(fields: &ConfigMapping) -> Result<Self, ConfigError> {
        let name = fields.text("name")?;
        let version = fields.text("version")?;
        let description = printable(&fields.text("description")?);
        let app_version = printable(&fields.text("appVersion")?);
        if !is_chart_name(&name) {
            return Err(ConfigError::ChartName);
        }
        if !is_version(&version) {
            return Err(ConfigError::ChartVersion);
        }
        if description.len() > MAX_TEXT || app_version.len() > MAX_TEXT {
            return Err(ConfigError::ChartText);
        }
        Ok(Self {
            name,
            description,
            version,
            app_version,
        })
    }
}

/// Whether Helm can make a file of this name and a registry a repository (`a`, `my-chart`, `Chart_1.x`; no path).
pub(super) fn is_chart_name(name: &str) -> bool {
    let found = |byte: u8| byte.is_ascii_alphanumeric();
    name.len() <= MAX_NAME
        && name.bytes().next().is_some_and(found)
        && name.bytes().all(|byte| found(byte) || b"._-".contains(&byte))
}

/// Whether Helm takes this for a version: `[v]1[.2[.3]][-pre][+build]`.
pub(super) fn is_version(version: &str) -> bool {
    let bare = version.strip_prefix('v').unwrap_or(version);
    let (rest, build) = bare
        .split_once('+')
        .map_or((bare, None), |(rest, build)| (rest, Some(build)));
    let (core, pre) = rest
        .split_once('-')
        .map_or((rest, None), |(core, pre)| (core, Some(pre)));
    let number = |part: &str| part.bytes().all(|byte| byte.is_ascii_digit()) && part.parse::<u64>().is_ok();
    let found = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    let leading_zero = |part: &str| part.len() > 1 && part.starts_with('0') && number(part);
    version.len() <= MAX_VERSION
        && core.split('.').count() <= 3
        && core.split('.').all(number)
        && pre.is_none_or(|pre| pre.split('.').all(|part| found(part) && !leading_zero(part)))
        && build.is_none_or(|build| build.split('.').all(found))
}

/// What Helm keeps of a description: blanks become spaces, everything that cannot be seen goes.
fn printable(text: &str) -> String {
    let invisible = |c: char| matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{e000}'..='\u{f8ff}' | '\u{feff}' | '\u{fff0}'..='\u{ffff}');
    let blanks = text.chars().map(|c| if c.is_whitespace() { ' ' } else { c });
    blanks.filter(|c| !c.is_control() && !invisible(*c)).collect()
}

/// One mapping of the configuration, with its path for errors.
struct ConfigMapping<'a> {
    map: Option<&'a Map<String, Value>>,
    path: String,
}

impl<'a> ConfigMapping<'a> {
    fn of(value: &'a Value, path: impl Into<String>) -> Result<Self, ConfigError> {
        let path = path.into();
        match value {
            Value::Object(map) => Ok(Self { map: Some(map), path }),
            Value::Null => Ok(Self { map: None, path }),
            _ => Err(ConfigError::Shape {
                field: path,
                expected: "a mapping",
            }),
        }
    }

    /// The last entry whose key is `name` in any case, as Go's reader leaves it.
    fn get(&self, name: &str) -> Option<&'a Value> {
        let entries = self.map.into_iter().flatten();
        entries
            .filter(|(key, _)| key.eq_ignore_ascii_case(name))
            .map(|(_, value)| value)
            .next_back()
    }

    fn path_of(&self, name: &str) -> String {
        format!("{}.{name}", self.path)
    }

    fn any(&self, name: &str) -> Value {
        self.get(name).cloned().unwrap_or_default()
    }

    fn fields(&self, name: &str) -> Result<ConfigMapping<'a>, ConfigError> {
        ConfigMapping::of(self.get(name).unwrap_or(&Value::Null), self.path_of(name))
    }

    fn text(&self, name: &str) -> Result<String, ConfigError> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(String::new()),
            Some(Value::String(text)) => Ok(text.clone()),
            Some(Value::Bool(flag)) => Ok(flag.to_string()),
            Some(Value::Number(number)) => Ok(document::number_text(number)),
            Some(_) => Err(ConfigError::Shape {
                field: self.path_of(name),
                expected: "a string",
            }),
        }
    }

    fn flag(&self, name: &str) -> Result<bool, ConfigError> {
        match self.get(name) {
            None | Some(Value::Null) => Ok(false),
            Some(Value::Bool(flag)) => Ok(*flag),
            Some(_) => Err(ConfigError::Shape {
                field: self.path_of(name),
                expected: "true or false",
            }),
        }
    }

    fn resources(&self, name: &str) -> Result<ChartResources, ConfigError> {
        // The keys are the configuration's own, so errors below them only say "[]".
        let path = format!("{}[]", self.path_of(name));
        let Some(map) = self.fields(name)?.map else {
            return Ok(None);
        };
        let read = |(key, value)| {
            Ok((
                String::clone(key),
                ChartResource::read(&ConfigMapping::of(value, path.as_str())?)?,
            ))
        };
        map.iter().map(read).collect::<Result<_, _>>().map(Some)
    }
}

impl ChartResource {
    fn read(fields: &ConfigMapping) -> Result<Self, ConfigError> {
        let helm = fields.fields("helm")?;
        Ok(Self {
            repository: fields.text("repository")?,
            insecure: fields.flag("insecure")?,
            tag: fields.text("tag")?,
            helm: helm.map.is_some().then(|| HelmChart::read(&helm)).transpose()?,
            pull_secret_name: fields.text("pullSecretName")?,
        })
    }
}

impl HelmChart {
    fn read(fields: &ConfigMapping) -> Result<Self, ConfigError> {
        Ok(Self {
            name: fields.text("name")?,
            description: fields.text("description")?,
            version: fields.text("version")?,
            app_version: fields.text("appVersion")?,
            values_template: fields.text("valuesTemplate")?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const CHART: &str = "chart: {name: c, version: 1.0.0}";

    fn release(text: &str) -> Result<Release, ConfigError> {
        match ChartConfig::parse(format!("type: release\nrelease:\n  {CHART}\n{text}").as_bytes())? {
            ChartConfig::Release(release) => Ok(release),
            ChartConfig::Bootstrap(_) => unreachable!("the type is release"),
        }
    }

    #[test]
    fn a_whole_release() {
        let release = release(
            "  input:\n    component: {name: comp}\n    entrypoint: {resourceName: r, type: helm}\n    resources:\n      r:\n        repository: example.com/r\n        tag: 1.0\n        insecure: yes\n        pullSecretName: s\n        helm: {name: h, version: 2, valuesTemplate: 'a: 1'}\n  targetNamespace: ns\n  values: {a: [1, 'x']}\n",
        )
        .unwrap();
        let resource = &release.resources.as_ref().unwrap()["r"];
        assert_eq!(
            (resource.tag.as_str(), resource.insecure),
            ("1", true),
            "scalars are coerced"
        );
        assert_eq!(resource.helm.as_ref().unwrap().version, "2");
        assert_eq!(release.values, json!({"a": [1, "x"]}));
        assert_eq!(
            (release.component.as_str(), release.entrypoint.as_str()),
            ("comp", "r")
        );
        assert_eq!(release.target_namespace, "ns");
    }

    #[test]
    fn names_match_in_any_case_and_unknown_fields_are_ignored() {
        let text = r#"{"TYPE":"bootstrap","BootStrap":{"Chart":{"NAME":"b","VERSION":1.10,"x":1},"input":{"USERDATA":{"Keep":"Case"}}},"release":7}"#;
        let ChartConfig::Bootstrap(bootstrap) = ChartConfig::parse(text.as_bytes()).unwrap() else {
            unreachable!()
        };
        assert_eq!(
            (bootstrap.chart.name.as_str(), bootstrap.chart.version.as_str()),
            ("b", "1.1")
        );
        assert_eq!(bootstrap.userdata, json!({"Keep": "Case"}));
        assert_eq!(bootstrap.releases, None);
    }

    #[test]
    fn no_map_and_an_empty_map_differ() {
        assert_eq!(release("").unwrap().resources, None);
        assert_eq!(
            release("  input: {resources: {}}\n").unwrap().resources,
            Some(BTreeMap::new())
        );
    }

    #[test]
    fn unknown_types() {
        for (text, shown) in [
            ("", "none"),
            ("{}", "none"),
            ("type:", "none"),
            ("type: Release", "\"Release\""),
            ("type: my.org/profile-1", "\"my.org/profile-1\""),
            ("type: two words", "something else than a plain word"),
            ("type: \"a\\e[31m\"", "something else than a plain word"),
        ] {
            let error = ChartConfig::parse(text.as_bytes()).unwrap_err();
            assert!(matches!(error, ConfigError::UnknownType(_)), "{text}");
            assert!(error.to_string().ends_with(&format!("found {shown}")), "{error}");
        }
    }

    #[test]
    fn wrong_shapes() {
        for text in [
            "[1]",
            "release",
            "type: [a]",
            "type: {a: b}",
            "type: release\nrelease: 1",
        ] {
            let error = ChartConfig::parse(text.as_bytes()).unwrap_err().to_string();
            assert!(
                error.starts_with("failed to parse config-file: config"),
                "{text}: {error}"
            );
        }
        for text in [
            "  input: 1\n",
            "  input: {resources: [a]}\n",
            "  input: {resources: {canary: 1}}\n",
            "  input: {resources: {canary: {insecure: canary}}}\n",
            "  input: {resources: {canary: {tag: [canary]}}}\n",
            "  input: {component: {name: {canary: canary}}}\n",
        ] {
            let error = release(text).unwrap_err();
            assert!(matches!(error, ConfigError::Shape { .. }), "{text}");
            assert!(!format!("{error} {error:?}").contains("canary"), "{error}");
        }
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn chart_names_and_versions() {
        for name in ["a", "my-chart", "Chart_1.x", "0"] {
            assert!(is_chart_name(name), "{name}");
        }
        for name in [
            "",
            ".",
            "..",
            "-a",
            "a/b",
            "a\\b",
            "a b",
            "ä",
            "a\n",
            &"a".repeat(251),
        ] {
            assert!(!is_chart_name(name), "{name:?}");
        }
        for version in [
            "1",
            "1.0",
            "1.0.0",
            "v0.0.1-abc",
            "1.0.0-alpha.1+b.01",
            "01.2.3",
            "1.0.0--",
        ] {
            assert!(is_version(version), "{version}");
        }
        for version in [
            "",
            "v",
            "a",
            "1.",
            ".1",
            "1.0.0.0",
            "1.0.0-",
            "1.0.0+",
            "1.0.0-01",
            "1.0.0-a..b",
            "1.0.0_1",
            "1 ",
            "1\n",
            "99999999999999999999",
            "1.0.0+a+b",
        ] {
            assert!(!is_version(version), "{version:?}");
        }
    }

    #[test]
    fn descriptions_are_made_printable_and_bounded() {
        assert_eq!(
            printable("a\tb\nc\u{0}d\u{85}e\u{2028}f\u{feff}g\u{202e}h 日本\u{301}😀"),
            "a b cd e fgh 日本\u{301}😀"
        );
        let chart = |text: &str| json!({"type": "release", "release": {"chart": {"name": "c", "version": "1", "description": text}}});
        let parse = |text: &str| ChartConfig::parse(chart(text).to_string().as_bytes());
        assert!(parse(&"x".repeat(MAX_TEXT)).is_ok());
        assert_eq!(parse(&"x".repeat(MAX_TEXT + 1)), Err(ConfigError::ChartText));
    }
}
