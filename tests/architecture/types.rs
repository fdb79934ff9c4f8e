//! Names of types: each is used once in `src`, and each entry of the glossary is one type.

use std::collections::BTreeMap;

use syn::visit::{self, Visit};

use super::scan::is_test;

/// Names that more than one type may have, and why.
pub const SHARED: &[(&str, &str)] = &[];

/// Where each type is defined, as paths of modules, by its name.
pub type Types = BTreeMap<String, Vec<String>>;

/// Collects the types of a file, without its tests and what is inside functions.
struct Collector<'a> {
    module: String,
    types: &'a mut Types,
}

impl Collector<'_> {
    fn add(&mut self, name: &syn::Ident, attributes: &[syn::Attribute]) {
        if !is_test(attributes) {
            self.types
                .entry(name.to_string())
                .or_default()
                .push(self.module.clone());
        }
    }
}

impl<'ast> Visit<'ast> for Collector<'_> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_struct(&mut self, item: &'ast syn::ItemStruct) {
        self.add(&item.ident, &item.attrs);
    }

    fn visit_item_enum(&mut self, item: &'ast syn::ItemEnum) {
        self.add(&item.ident, &item.attrs);
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.add(&item.ident, &item.attrs);
    }

    fn visit_item_type(&mut self, item: &'ast syn::ItemType) {
        self.add(&item.ident, &item.attrs);
    }

    fn visit_item_fn(&mut self, _: &'ast syn::ItemFn) {}

    fn visit_item_impl(&mut self, _: &'ast syn::ItemImpl) {}
}

/// The types of files, given as the path of their module and their text.
pub fn types(files: &[(Vec<String>, String)]) -> Types {
    let mut types = Types::new();
    for (module, text) in files {
        let Ok(file) = syn::parse_file(text) else { continue };
        let module = module.join("::");
        let types = &mut types;
        Collector { module, types }.visit_file(&file);
    }
    types
}

/// Names of several types that are not in the list, and names in the list that are of one type at the most.
pub fn shared(types: &Types, allowed: &[(&str, &str)]) -> Vec<String> {
    let several = types.iter().filter(|(_, modules)| modules.len() > 1);
    let is_allowed = |name: &str| allowed.iter().any(|(shared, _)| *shared == name);
    let found = several.filter(|(name, _)| !is_allowed(name));
    let found = found.map(|(name, modules)| format!("{name} is a type in {}", modules.join(" and in ")));
    let is_one = |name: &str| types.get(name).is_none_or(|modules| modules.len() < 2);
    let needless = allowed.iter().filter(|(name, _)| is_one(name));
    let needless =
        needless.map(|(name, _)| format!("{name} need not be in the list: it is no name of several types"));
    found.chain(needless).collect()
}

/// One row of the glossary.
struct Row {
    word: String,
    /// Paths of types, or of modules.
    code: Vec<String>,
}

fn rows(page: &str) -> Vec<Row> {
    let part = page.split("\n## ").find(|part| part.starts_with("Glossary\n"));
    let lines = part
        .unwrap_or_default()
        .lines()
        .filter(|line| line.starts_with("| "))
        .skip(1);
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let code = cells.get(2).copied().unwrap_or_default();
        Row {
            word: cells[0].to_owned(),
            code: code.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        }
    };
    lines.map(row).collect()
}

/// Most entries of the glossary.
const WORDS: usize = 40;

/// The faults of the glossary of a page: each entry names one type, in the module that the page gives.
pub fn glossary(page: &str, types: &Types) -> Vec<String> {
    let rows = rows(page);
    let mut problems = Vec::new();
    if rows.is_empty() || rows.len() > WORDS {
        problems.push(format!(
            "the glossary has {} words, and may have 1 to {WORDS}",
            rows.len()
        ));
    }
    let mut words: Vec<&String> = rows.iter().map(|row| &row.word).collect();
    words.sort();
    words.dedup();
    if words.len() < rows.len() {
        problems.push("a word is there twice".to_owned());
    }
    for Row { word, code } in &rows {
        let [path] = &code[..] else {
            problems.push(format!("{word} names {} types, and must name one", code.len()));
            continue;
        };
        let (module, name) = path.rsplit_once("::").unwrap_or_default();
        let at = types.get(name).map(Vec::as_slice).unwrap_or_default();
        if at != [module] {
            problems.push(format!(
                "{word} is said to be {path}, but {name} is defined in {at:?}"
            ));
        }
    }
    problems
}
