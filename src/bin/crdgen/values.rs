//! The chart's README: its values as tables, from the comments of `values.yaml`, and those that have changed, from `changes.yaml`.
//!
//! A `## Title` begins a section, comments below it up to an empty line introduce it, and the comment above a key explains the
//! key. A key without a comment is only the way to the keys below it.

use std::error::Error;
use std::fmt::Write as _;

use serde::Deserialize;
use serde_json::Value;

const ABOUT: &str = "# renderhub

Renders Helm charts for tenants with registry credentials that no tenant can reach.

    helm install renderhub charts/renderhub --namespace renderhub-system --create-namespace --wait
    helm test renderhub --namespace renderhub-system --logs

Pages that go with it: [install](../../docs/install.md), [for many tenants](../../docs/how-to/install-for-many-tenants.md),
[for one team](../../docs/how-to/install-for-one-team.md), [the hub's flags](../../docs/operations/flags.md).

CRDs are templates: `helm upgrade` upgrades them, and with `crds.keep` they outlive the release. Unknown values are refused.

";

/// The text above the values that have changed.
const CHANGED: &str = "## Changed values

Values whose default or meaning is another than in the release before this one. The notes of a `helm upgrade` from there show them too.

| value | change |
|---|---|
";

/// An entry of `changes.yaml`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Change {
    value: String,
    #[serde(rename = "change")]
    text: String,
    /// Whether the chart has it no more.
    #[serde(default)]
    gone: bool,
}

/// A line of `values.yaml` that says something.
struct Entry {
    path: Vec<String>,
    comment: String,
    indent: usize,
}

/// The README of a chart with these values, of which some have changed.
///
/// # Errors
/// If a text is not the YAML that it should be, a value has no comment, or one that has changed is none, or one that is gone is there.
pub fn readme(text: &str, changes: &str) -> Result<String, Box<dyn Error>> {
    let values: Value = serde_saphyr::from_str(text)?;
    let mut out = ABOUT.to_owned();
    for section in text.split("\n## ") {
        let (title, body) = section.split_once('\n').unwrap_or((section, ""));
        let (intro, body) = split_intro(body);
        writeln!(out, "## {}\n", title.trim_start_matches("## "))?;
        if !intro.is_empty() {
            writeln!(out, "{intro}\n")?;
        }
        out.push_str("| value | default | meaning |\n|---|---|---|\n");
        for entry in entries(body) {
            let path = entry.path.join(".");
            let value = values.pointer(&format!("/{}", entry.path.join("/")));
            let value = value.ok_or_else(|| format!("{path} is read as a value and is none"))?;
            let meaning = entry.comment.replace('|', "\\|");
            writeln!(
                out,
                "| `{path}` | `{}` | {meaning} |",
                serde_json::to_string(value)?
            )?;
        }
        out.push('\n');
    }
    let missing = undocumented(&values, &out, "");
    if !missing.is_empty() {
        return Err(format!("values without a comment: {}", missing.join(", ")).into());
    }
    out.push_str(CHANGED);
    out.push_str(&changed_values(serde_saphyr::from_str(changes)?, &values)?);
    Ok(out.trim_end().to_owned() + "\n")
}

/// A row for each change.
fn changed_values(changes: Vec<Change>, values: &Value) -> Result<String, Box<dyn Error>> {
    let mut out = String::new();
    for Change { value, text, gone } in changes {
        let is_there = values.pointer(&format!("/{}", value.replace('.', "/"))).is_some();
        if is_there == gone {
            let wrong = if gone {
                "be gone and is a value"
            } else {
                "have changed and is no value"
            };
            return Err(format!("{value} is said to {wrong}").into());
        }
        writeln!(out, "| `{value}` | {} |", text.replace('|', "\\|"))?;
    }
    Ok(out)
}

/// The comment that a section begins with, as one paragraph, and what follows it.
fn split_intro(body: &str) -> (String, &str) {
    if !body.starts_with('#') {
        return (String::new(), body);
    }
    let (intro, rest) = body.split_once("\n\n").unwrap_or((body, ""));
    (words(intro.lines()), rest)
}

fn words<'a>(lines: impl Iterator<Item = &'a str>) -> String {
    let plain = lines.map(|line| line.trim().trim_start_matches('#').trim());
    plain.collect::<Vec<_>>().join(" ")
}

/// The keys with a comment, in the order of the text; nothing below such a key is one of its own.
fn entries(body: &str) -> Vec<Entry> {
    let (mut found, mut path, mut comment): (Vec<Entry>, Vec<(usize, String)>, Vec<&str>) =
        Default::default();
    for line in body.lines() {
        let indent = line.len() - line.trim_start().len();
        if line.trim_start().starts_with('#') {
            comment.push(line);
            continue;
        }
        let Some((key, _)) = line.trim_start().split_once(':') else {
            comment.clear();
            continue;
        };
        path.retain(|(outer, _)| *outer < indent);
        path.push((indent, key.to_owned()));
        let is_inside = found.last().is_some_and(|entry| {
            let is_below = path.len() > entry.path.len();
            is_below
                && indent > entry.indent
                && path.iter().zip(&entry.path).all(|((_, own), outer)| own == outer)
        });
        if !comment.is_empty() && !is_inside {
            found.push(Entry {
                path: path.iter().map(|(_, key)| key.clone()).collect(),
                comment: words(comment.iter().copied()),
                indent,
            });
        }
        comment.clear();
    }
    found
}

/// Paths of values that neither a row nor a row of an object around them documents.
fn undocumented(value: &Value, readme: &str, path: &str) -> Vec<String> {
    if readme.contains(&format!("| `{path}` |")) {
        return Vec::new();
    }
    match value.as_object() {
        Some(fields) if !fields.is_empty() => fields
            .iter()
            .flat_map(|(name, value)| {
                let inner = if path.is_empty() {
                    name.clone()
                } else {
                    format!("{path}.{name}")
                };
                undocumented(value, readme, &inner)
            })
            .collect(),
        _ => vec![path.to_owned()],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "## One\n\n# First: a value.\na: 1\n\nb:\n  # Deep,\n  # on two lines.\n  c:\n    - d: 2\n  # Last.\n  e: \"\"\n\n\
                        ## Two\n# About both.\n\n# Whole | sale.\nf:\n  g: {}\n";

    #[test]
    fn each_comment_becomes_a_row_with_its_default() {
        let text = readme(TEXT, "[]").unwrap();
        let rows: Vec<_> = text.lines().filter(|line| line.starts_with("| `")).collect();
        assert_eq!(
            rows,
            [
                "| `a` | `1` | First: a value. |",
                "| `b.c` | `[{\"d\":2}]` | Deep, on two lines. |",
                "| `b.e` | `\"\"` | Last. |",
                "| `f` | `{\"g\":{}}` | Whole \\| sale. |",
            ]
        );
        assert!(text.contains("## Two\n\nAbout both.\n\n|"), "{text}");
    }

    #[test]
    fn a_value_without_a_comment_is_named() {
        let without = TEXT.replace("  # Last.\n", "");
        let error = readme(&without, "[]").unwrap_err().to_string();
        assert!(error.ends_with(": b.e"), "{error}");
    }

    #[test]
    fn a_changed_value_is_listed_and_exists() {
        let changes = "- value: b.e\n  change: New, and\n    empty.\n";
        let text = readme(TEXT, changes).unwrap();
        assert!(
            text.ends_with("|---|---|\n| `b.e` | New, and empty. |\n"),
            "{text}"
        );
        let error = readme(TEXT, &changes.replace("b.e", "b.x"))
            .unwrap_err()
            .to_string();
        assert!(error.starts_with("b.x is "), "{error}");
        // One that is gone is none any more.
        let gone = format!("{changes}  gone: true\n");
        let text = readme(TEXT, &gone.replace("b.e", "b.x")).unwrap();
        assert!(text.ends_with("| `b.x` | New, and empty. |\n"), "{text}");
        let error = readme(TEXT, &gone).unwrap_err().to_string();
        assert!(error.starts_with("b.e is said to be gone"), "{error}");
    }
}
