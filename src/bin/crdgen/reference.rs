//! The API reference: each field of each kind, as the schema has it.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceColumnDefinition, CustomResourceDefinition, JSONSchemaProps, JSONSchemaPropsOrArray,
    JSONSchemaPropsOrBool,
};
use serde_json::Value;

/// The text above all kinds.
const INTRODUCTION: &str = "\
# API reference

The same text is in the cluster: `kubectl explain rendertask.spec`. A field that is not marked *required* may be left out.
Every text, list and map is bounded; the bounds are in the tables, the patterns at the end.
";

/// The reference of the kinds as Markdown.
pub fn markdown(crds: &[CustomResourceDefinition]) -> String {
    let mut page = Page {
        text: INTRODUCTION.to_owned(),
        patterns: Vec::new(),
    };
    for (index, crd) in crds.iter().enumerate() {
        let twin = crds[..index].iter().find(|known| fields(known) == fields(crd));
        page.kind(crd, twin);
    }
    page.pattern_list();
    page.text
}

/// A page as far as it is written.
struct Page {
    text: String,
    patterns: Vec<String>,
}

/// One row: a field's path, whether it is required, and its schema.
struct Field<'a> {
    path: String,
    required: bool,
    schema: &'a JSONSchemaProps,
}

impl Page {
    fn line(&mut self, line: &str) {
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// A kind; the fields of one that has those of another are not repeated.
    fn kind(&mut self, crd: &CustomResourceDefinition, twin: Option<&CustomResourceDefinition>) {
        let (spec, names) = (&crd.spec, &crd.spec.names);
        self.line(&format!("\n## {}\n", names.kind));
        self.line(
            schema(crd)
                .and_then(|s| s.description.as_deref())
                .unwrap_or_default(),
        );
        let short = names.short_names.as_deref().unwrap_or_default().join("`, `");
        for version in &spec.versions {
            let api = format!("{}/{}", spec.group, version.name);
            self.line(&format!(
                "\n`{api}`, {} scope, short name `{short}`.",
                spec.scope.to_lowercase()
            ));
            let columns = version.additional_printer_columns.as_deref().unwrap_or_default();
            self.line(&format!("`kubectl get` shows {}.", column_names(columns)));
        }
        if let Some(twin) = twin {
            self.line(&format!(
                "\nThe fields and rules are those of a {}.",
                twin.spec.names.kind
            ));
            return;
        }
        for (name, part) in fields(crd).into_iter().flatten() {
            self.part(name, part);
        }
    }

    /// The spec or status of a kind.
    fn part(&mut self, name: &str, schema: &JSONSchemaProps) {
        self.line(&format!("\n### {name}\n"));
        self.line("| field | type | bounds | meaning |\n|---|---|---|---|");
        let mut fields = Vec::new();
        let mut rules = Vec::new();
        collect("", schema, &mut fields, &mut rules);
        for field in &fields {
            self.row(field);
        }
        if !rules.is_empty() {
            self.line(&format!("\nRules of the {name}:\n"));
        }
        for rule in rules {
            self.line(&format!("- {rule}"));
        }
    }

    fn row(&mut self, field: &Field<'_>) {
        let required = if field.required { " *required*" } else { "" };
        let bounds = self.bounds(field.schema);
        // A row of a table is one line.
        let meaning = field
            .schema
            .description
            .as_deref()
            .unwrap_or_default()
            .replace('\n', " ");
        let row = [
            format!("`{}`{required}", field.path),
            type_name(field.schema),
            bounds,
            meaning,
        ];
        let row: Vec<String> = row.iter().map(|cell| cell.replace('|', "\\|")).collect();
        self.line(&format!("| {} |", row.join(" | ")));
    }

    /// The limits of a node, and those of its elements.
    fn bounds(&mut self, schema: &JSONSchemaProps) -> String {
        let mut all = own_bounds(schema);
        if let Some(pattern) = &schema.pattern {
            all.push(self.pattern(pattern));
        }
        if let Some((pattern, message)) = explained_pattern(schema) {
            all.push(format!("{message} ({})", self.pattern(pattern)));
        }
        if let Some(element) = element(schema).filter(|e| e.properties.is_none()) {
            let each = self.bounds(element);
            if !each.is_empty() {
                all.push(format!("each {each}"));
            }
        }
        all.join(", ")
    }

    /// The pattern's place in the list at the end of the page.
    fn pattern(&mut self, pattern: &str) -> String {
        let known = self.patterns.iter().position(|p| p == pattern);
        let index = known.unwrap_or_else(|| {
            self.patterns.push(pattern.to_owned());
            self.patterns.len() - 1
        });
        format!("[pattern {}](#patterns)", index + 1)
    }

    fn pattern_list(&mut self) {
        self.text.push_str("\n## Patterns\n\n");
        for (index, pattern) in self.patterns.iter().enumerate() {
            // Writing to a String cannot fail.
            let _ = writeln!(self.text, "{}. `{pattern}`", index + 1);
        }
    }
}

/// A pattern with a message.
fn explained_pattern(schema: &JSONSchemaProps) -> Option<(&str, &str)> {
    let mut rules = schema.x_kubernetes_validations.iter().flatten();
    rules.find_map(|rule| {
        let pattern = rule.rule.strip_prefix("self.matches(r'")?.strip_suffix("')")?;
        Some((pattern, rule.message.as_deref()?))
    })
}

/// The schema of a kind.
fn schema(crd: &CustomResourceDefinition) -> Option<&JSONSchemaProps> {
    crd.spec
        .versions
        .first()?
        .schema
        .as_ref()?
        .open_api_v3_schema
        .as_ref()
}

/// The parts of a kind by name, spec and status.
fn fields(crd: &CustomResourceDefinition) -> Option<&BTreeMap<String, JSONSchemaProps>> {
    schema(crd)?.properties.as_ref()
}

/// Columns by name; those of `-o wide` in brackets.
fn column_names(columns: &[CustomResourceColumnDefinition]) -> String {
    let name = |column: &CustomResourceColumnDefinition| match column.priority {
        Some(1..) => format!("({})", column.name),
        _ => column.name.clone(),
    };
    let names: Vec<String> = columns.iter().map(name).collect();
    let has_wide = columns.iter().any(|column| column.priority > Some(0));
    let wide = if has_wide {
        "; those in brackets with `-o wide`"
    } else {
        ""
    };
    names.join(", ") + wide
}

/// The fields below a node, parents first, and the rules on the way.
fn collect<'a>(path: &str, node: &'a JSONSchemaProps, fields: &mut Vec<Field<'a>>, rules: &mut Vec<String>) {
    for rule in node.x_kubernetes_validations.iter().flatten() {
        let scope = if path.is_empty() {
            String::new()
        } else {
            format!("`{path}`: ")
        };
        // A pattern is shown with its field.
        if explained_pattern(node).is_some_and(|(_, message)| Some(message) == rule.message.as_deref()) {
            continue;
        }
        let text = rule.message.as_ref().unwrap_or(&rule.rule);
        rules.push(format!("{scope}{text}"));
    }
    let required = node.required.as_deref().unwrap_or_default();
    for (name, schema) in node.properties.iter().flatten() {
        let below = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        fields.push(Field {
            path: below.clone(),
            required: required.contains(name),
            schema,
        });
        collect(&below, schema, fields, rules);
    }
    if let Some(element) = element(node) {
        let suffix = if node.items.is_some() { "[]" } else { ".*" };
        collect(&format!("{path}{suffix}"), element, fields, rules);
    }
}

/// Schema of the elements of a list or map.
fn element(node: &JSONSchemaProps) -> Option<&JSONSchemaProps> {
    match (&node.items, &node.additional_properties) {
        (Some(JSONSchemaPropsOrArray::Schema(items)), _) => Some(items),
        (_, Some(JSONSchemaPropsOrBool::Schema(values))) => Some(values),
        _ => None,
    }
}

fn type_name(node: &JSONSchemaProps) -> String {
    if let Some(words) = &node.enum_ {
        let words: Vec<String> = words.iter().map(|label| code(&label.0)).collect();
        return words.join(" or ");
    }
    if node.x_kubernetes_int_or_string == Some(true) {
        let is_quantity = node.pattern.is_some();
        return if is_quantity {
            "quantity"
        } else {
            "integer or string"
        }
        .to_owned();
    }
    let name = node.type_.as_deref().unwrap_or("any JSON");
    match (name, element(node)) {
        ("array", Some(items)) => format!("list of {}", type_name(items)),
        ("object", Some(values)) => format!("map of {}", type_name(values)),
        _ => name.to_owned(),
    }
}

fn own_bounds(node: &JSONSchemaProps) -> Vec<String> {
    let mut all = Vec::new();
    let range = |low: Option<i64>, high: i64, unit: &str| format!("{}…{high} {unit}", low.unwrap_or(0));
    if let Some(high) = node.max_length {
        all.push(range(node.min_length, high, "characters"));
    }
    if let Some(high) = node.max_items {
        all.push(range(node.min_items, high, "elements"));
    }
    if let Some(high) = node.max_properties {
        all.push(range(node.min_properties, high, "entries"));
    }
    if let (Some(low), Some(high)) = (node.minimum, node.maximum) {
        all.push(format!("{low}…{high}"));
    }
    if let Some(default) = &node.default {
        all.push(format!("default {}", code(&default.0)));
    }
    all
}

/// A value as it is written in YAML, set as code.
fn code(value: &Value) -> String {
    match value {
        Value::String(text) => format!("`{text}`"),
        other => format!("`{other}`"),
    }
}
