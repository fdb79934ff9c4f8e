//! Which files know each other in a circle: none may, also a module and what is below it.

use std::collections::{BTreeMap, BTreeSet};

use super::scan::Scan;

/// The files that each file names something of, all as paths of modules.
pub type Graph = BTreeMap<String, BTreeSet<String>>;

/// The imports between files, given as the path of their module and their text.
pub fn graph(files: &[(Vec<String>, String)]) -> Graph {
    let all: BTreeSet<String> = files.iter().map(|(module, _)| module.join("::")).collect();
    let names = |(module, text): &(Vec<String>, String)| {
        let here = module.join("::");
        let imports = Scan::of(module, text).imports;
        let named = imports.iter().filter_map(|(_, path)| file_of(&all, &here, path));
        let others = named.filter(|other| *other != here).collect();
        (here.clone(), others)
    };
    files.iter().map(names).collect()
}

/// The file that a path leads to: the longest of its beginnings that is a module. A path without `crate` may begin with a module
/// below the file that names it.
fn file_of(all: &BTreeSet<String>, here: &str, path: &str) -> Option<String> {
    let below = format!("{here}::{path}");
    let full = path.strip_prefix("crate::").unwrap_or(&below);
    let mut parts: Vec<&str> = full.split("::").collect();
    while !parts.is_empty() {
        let module = parts.join("::");
        if all.contains(&module) {
            return Some(module);
        }
        parts.pop();
    }
    None
}

/// The circles, each as the files on one shortest way from a file back to it; of circles that share files one.
pub fn circles(graph: &Graph) -> Vec<Vec<String>> {
    let mut found: Vec<Vec<String>> = Vec::new();
    for file in graph.keys() {
        if found.iter().any(|circle| circle.contains(file)) {
            continue;
        }
        found.extend(way_back(graph, file));
    }
    found
}

/// The shortest way from a file back to it.
fn way_back(graph: &Graph, from: &str) -> Option<Vec<String>> {
    let mut ways = vec![vec![from.to_owned()]];
    let mut seen = BTreeSet::new();
    while !ways.is_empty() {
        let mut longer = Vec::new();
        for way in ways {
            for next in way.last().and_then(|last| graph.get(last)).into_iter().flatten() {
                if next == from {
                    return Some(way);
                }
                if seen.insert(next.clone()) {
                    longer.push([way.clone(), vec![next.clone()]].concat());
                }
            }
        }
        ways = longer;
    }
    None
}
