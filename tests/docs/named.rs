//! What the pages name exists: metrics in alerts and commands, and values of the chart.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use super::{files, read, rows};

/// Names in a text that start like this and go on with these characters.
fn words<'a>(text: &'a str, start: &str, goes_on: fn(char) -> bool) -> BTreeSet<&'a str> {
    let found = text.match_indices(start).filter_map(|(at, _)| {
        let is_inside = text[..at].ends_with(|c: char| goes_on(c) || c == '-' || c == '/');
        let rest = &text[at..];
        let end = rest.find(|c| !goes_on(c)).unwrap_or(rest.len());
        (!is_inside).then_some(&rest[..end])
    });
    found.collect()
}

/// Values that are gone, which pages name for those who still have them.
const GONE: [&str; 1] = ["controller.shardCount"];
/// Metrics that are gone, by what their names begin with, which the changelog names.
const GONE_METRICS: &str = "renderhub_shard";

const fn is_metrics(c: char) -> bool {
    c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'
}

const fn is_values(c: char) -> bool {
    c.is_ascii_alphanumeric() || c == '.'
}

fn pages() -> Vec<(String, String)> {
    let pages = files("md")
        .into_iter()
        .map(|path| path.to_string_lossy().into_owned());
    pages
        .map(|path| (read(&path), path))
        .map(|(text, path)| (path, text))
        .collect()
}

/// An alert on a metric that does not exist never fires.
#[test]
fn every_metric_that_a_page_names_exists() {
    let known = rows(&read("docs/operations/metrics.md"));
    let mut unknown = Vec::new();
    for (path, text) in pages() {
        for word in words(&text, "renderhub_", is_metrics) {
            // A group of them is named by its beginning, `renderhub_cluster_…` or `renderhub_(tasks|waiting_tasks)`.
            let is_group = word.ends_with('_');
            let stem = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|end| word.strip_suffix(end));
            // A crate, which looks like one.
            let is_gone = path == "CHANGELOG.md" && word.starts_with(GONE_METRICS);
            let is_known = is_gone
                || word == "renderhub_harness"
                || known.contains_key(word)
                || stem.is_some_and(|stem| known.contains_key(stem))
                || is_group && known.keys().any(|name| name.starts_with(word));
            if !is_known {
                unknown.push(format!("{path}: {word}"));
            }
        }
    }
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}

#[test]
fn every_value_of_the_chart_that_a_page_names_exists() {
    let values: Value = serde_saphyr::from_str(&read("charts/renderhub/values.yaml")).unwrap();
    let mut unknown = Vec::new();
    let mut seen = 0;
    for (path, text) in pages() {
        for part in [
            "controller.",
            "renderingNamespace.",
            "quota.",
            "tenancy.",
            "podDisruptionBudget.",
        ] {
            for word in words(&text, part, is_values)
                .into_iter()
                .filter(|word| {
                    !Path::new(word)
                        .extension()
                        .is_some_and(|end| end == "md" || end == "rs")
                })
                .filter(|word| !GONE.contains(&word.trim_end_matches('.')))
            {
                let mut found = Some(&values);
                for step in word.trim_end_matches('.').split('.') {
                    found = match found {
                        // What a map of the user's holds is the user's.
                        Some(Value::Object(fields)) if fields.is_empty() => break,
                        Some(value) => value.get(step),
                        None => break,
                    };
                }
                seen += 1;
                if found.is_none() {
                    unknown.push(format!("{path}: {word}"));
                }
            }
        }
    }
    assert!(seen > 50, "only {seen} found");
    assert!(unknown.is_empty(), "\n{}", unknown.join("\n"));
}

#[test]
fn names_are_found_where_they_begin() {
    let text = "`renderhub_tasks{a}`, x_renderhub_b rate(renderhub_c_total[5m]) vendor/renderhub_d";
    assert_eq!(
        words(text, "renderhub_", is_metrics),
        BTreeSet::from(["renderhub_tasks", "renderhub_c_total"])
    );
    assert_eq!(
        words("(`quota.hard`), my.quota.x", "quota.", is_values),
        BTreeSet::from(["quota.hard"])
    );
}
