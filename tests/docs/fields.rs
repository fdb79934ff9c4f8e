//! The fields of a task that a tenant fills, with what the schema says of each.

use std::fmt::Write as _;

use serde_json::Value;

use super::read;

/// Where the section begins and ends in the page.
pub const BEGIN: &str =
    "<!-- Begin of what is made of the schema: UPDATE_DOCS=1 cargo test --workspace --test docs -->\n";
pub const END: &str = "<!-- End of what is made of the schema -->\n";

/// Fields that hold whatever a tenant likes, and what bounds them instead.
const FREE: &[&str] = &["config.release.values", "config.bootstrap.input.userdata"];

/// The table, with its first mark.
pub fn section() -> String {
    let crd: Value = serde_saphyr::from_str(&read("charts/renderhub/files/crds/rendertasks.yaml")).unwrap();
    let spec = &crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"];
    let mut rows = Vec::new();
    walk(spec, "", &mut rows);
    let mut text = format!("{BEGIN}| field | may hold |\n|---|---|\n");
    for (path, bound) in rows {
        writeln!(text, "| `{path}` | {bound} |").unwrap();
    }
    text
}

fn walk(schema: &Value, path: &str, rows: &mut Vec<(String, String)>) {
    let below = |name: &str| match path {
        "" => name.to_owned(),
        path => format!("{path}.{name}"),
    };
    if let Some(bound) = bound(schema, path) {
        rows.push((path.to_owned(), bound));
    }
    for (name, field) in schema["properties"].as_object().into_iter().flatten() {
        walk(field, &below(name), rows);
    }
    for (part, mark) in [("items", "[]"), ("additionalProperties", "{}")] {
        if schema[part].is_object() {
            walk(&schema[part], &format!("{path}{mark}"), rows);
        }
    }
}

/// What bounds a field; nothing for an object whose fields are told one by one.
fn bound(schema: &Value, path: &str) -> Option<String> {
    let count = |name: &str| schema[name].as_u64();
    let kind = schema["type"].as_str().unwrap_or_default();
    if FREE.contains(&path) {
        return Some("anything: what the whole spec may hold".to_owned());
    }
    if let Some(words) = schema["enum"].as_array() {
        return Some(format!("one of {} words", words.len()));
    }
    let is_exact = schema["pattern"].is_string();
    match kind {
        "string" => Some(match (count("maxLength"), is_exact) {
            (Some(most), _) => format!("{most} characters"),
            (None, true) => "what its pattern takes".to_owned(),
            (None, false) => "**any text**: what the whole spec may hold".to_owned(),
        }),
        "array" => Some(count("maxItems").map_or(
            "**any number**: what the whole spec may hold".to_owned(),
            |most| format!("{most} items"),
        )),
        "object" if schema["additionalProperties"].is_object() => Some(count("maxProperties").map_or(
            "**any number**: what the whole spec may hold".to_owned(),
            |most| format!("{most} entries"),
        )),
        "object" if schema["x-kubernetes-preserve-unknown-fields"] == true => {
            Some("fields of other names too: what the whole spec may hold".to_owned())
        }
        "integer" | "number" => Some(match (schema["minimum"].as_f64(), schema["maximum"].as_f64()) {
            (Some(least), Some(most)) => format!("{least} to {most}"),
            (None, Some(most)) => format!("up to {most}"),
            _ => "any number of its format".to_owned(),
        }),
        _ => None,
    }
}
