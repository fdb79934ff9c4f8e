//! `docs/security/bounds.md` names every bound of the hub, with the value that the code has, and adds up what can be held at
//! once.
//!
//! A bound is a constant of a number or a time in the source of the hub, or a field of that kind of a struct that is written as
//! a literal: as a constant, as its default, or by a constant function of its own. Each has a row in the page or a reason in [`EXEMPT`]; a row names a constant
//! that exists.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::Value;
use syn::visit::{self, Visit};

use super::{CommandFactory, HubCli, files, read};

#[path = "evaluate.rs"]
mod evaluate;
#[path = "exempt.rs"]
mod exempt;
use evaluate::{Amount, constant, written};
use exempt::EXEMPT;

const PAGE: &str = "docs/security/bounds.md";
/// Who can fill what is bounded.
const FILLERS: [&str; 5] = ["tenant", "remote cluster", "registry", "platform operator", "hub"];
/// The mark where no test holds a bound, with the reason after it.
const NO_TEST: &str = "no test";

/// A bound by its file below `src` and its name.
type Key = (String, String);

/// A row of one of the tables of bounds.
struct Row {
    key: Key,
    filled_by: String,
    amount: String,
    beyond: String,
    held_by: String,
}

/// The cells of each row of the tables whose first column has this title.
fn table(page: &str, title: &str) -> Vec<Vec<String>> {
    let cells = |line: &str| -> Vec<String> {
        let inner = line.trim().trim_start_matches('|').trim_end_matches('|');
        inner.split(" |").map(|cell| cell.trim().to_owned()).collect()
    };
    let (mut rows, mut is_in) = (Vec::new(), false);
    for line in page.lines() {
        is_in = line.starts_with('|') && (is_in || line.starts_with(&format!("| {title} |")));
        if is_in && !line.starts_with("|---") && !line.starts_with(&format!("| {title} |")) {
            rows.push(cells(line));
        }
    }
    rows
}

/// The text between the first two backticks.
fn quoted(cell: &str) -> &str {
    cell.split('`').nth(1).unwrap_or_default()
}

fn rows(page: &str) -> Vec<Row> {
    table(page, "bound")
        .into_iter()
        .map(|cells| {
            assert_eq!(cells.len(), 6, "{cells:?}");
            let file = cells[4].split("](../../").nth(1).unwrap_or_default();
            let file = file.trim_end_matches(')').trim_start_matches("src/");
            Row {
                key: (file.to_owned(), quoted(&cells[0]).to_owned()),
                filled_by: cells[1].clone(),
                amount: cells[2].clone(),
                beyond: cells[3].clone(),
                held_by: cells[5].clone(),
            }
        })
        .collect()
}

// === what the code says ===

/// Finds the bounds of one file, without its tests.
#[derive(Default)]
struct Bounds<'a> {
    /// All constants by name, to evaluate others with.
    constants: BTreeMap<String, &'a syn::Expr>,
    /// Names and values of what bounds.
    found: BTreeMap<String, Option<Amount>>,
}

fn is_test(attributes: &[syn::Attribute]) -> bool {
    attributes
        .iter()
        .any(|a| a.path().is_ident("cfg") && a.parse_args::<syn::Ident>().is_ok_and(|word| word == "test"))
}

/// Whether values of a type are numbers or times.
fn is_amount(kind: &syn::Type) -> bool {
    match kind {
        syn::Type::Array(array) => is_amount(&array.elem),
        syn::Type::Path(path) => path.path.segments.last().is_some_and(|last| {
            let name = last.ident.to_string();
            let is_number = name
                .strip_prefix(['u', 'i', 'f'])
                .is_some_and(|bits| bits == "size" || bits.parse::<u8>().is_ok());
            is_number || ["Duration", "SignedDuration"].contains(&name.as_str())
        }),
        _ => false,
    }
}

impl<'a> Bounds<'a> {
    fn constant(&mut self, name: &syn::Ident, kind: &syn::Type, expr: &'a syn::Expr) {
        self.constants.insert(name.to_string(), expr);
        if is_amount(kind) {
            self.found.insert(name.to_string(), None);
        } else if let syn::Expr::Struct(literal) = expr {
            for field in &literal.fields {
                if let (syn::Member::Named(member), Some(amount)) =
                    (&field.member, constant(&field.expr, &self.constants))
                {
                    self.found.insert(format!("{name}::{member}"), Some(amount));
                }
            }
        }
    }
}

/// The bounds in the text of a file, each with its value where that is understood.
fn bounds_of(text: &str) -> BTreeMap<String, Option<Amount>> {
    let file = syn::parse_file(text).unwrap();
    let mut bounds = Bounds::default();
    bounds.visit_file(&file);
    let (constants, mut found) = (bounds.constants, bounds.found);
    // Once all names are known.
    for (name, value) in &mut found {
        if value.is_none() {
            *value = constants.get(name).and_then(|expr| constant(expr, &constants));
        }
    }
    found
}

impl<'ast> Visit<'ast> for Bounds<'ast> {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_const(&mut self, item: &'ast syn::ItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_impl_item_const(&mut self, item: &'ast syn::ImplItemConst) {
        self.constant(&item.ident, &item.ty, &item.expr);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let of = item.trait_.as_ref().and_then(|(_, path, _)| path.segments.last());
        if let syn::Type::Path(kind) = &*item.self_ty
            && let Some(kind) = kind.path.segments.last()
        {
            let mut literal = Literal::default();
            match of {
                Some(of) if of.ident == "Default" => literal.visit_item_impl(item),
                Some(_) => {}
                // A default with an argument is a function that is known when the program is built.
                None => (item.items.iter())
                    .filter_map(|item| match item {
                        syn::ImplItem::Fn(function) if function.sig.constness.is_some() => Some(function),
                        _ => None,
                    })
                    .for_each(|function| literal.visit_impl_item_fn(function)),
            }
            for (field, expr) in literal.0 {
                // A count begins with nothing, which bounds nothing.
                if let Some(amount) = constant(expr, &self.constants)
                    && amount != Amount::Number(0.0)
                {
                    self.found
                        .insert(format!("{}::{field}", kind.ident), Some(amount));
                }
            }
        }
        visit::visit_item_impl(self, item);
    }
}

/// The fields of the literals `Self { … }`.
#[derive(Default)]
struct Literal<'a>(Vec<(String, &'a syn::Expr)>);

impl<'ast> Visit<'ast> for Literal<'ast> {
    fn visit_expr_struct(&mut self, literal: &'ast syn::ExprStruct) {
        if literal.path.is_ident("Self") {
            for field in &literal.fields {
                let syn::Member::Named(name) = &field.member else {
                    continue;
                };
                self.0.push((name.to_string(), &field.expr));
                let syn::Expr::Struct(inner) = &field.expr else {
                    continue;
                };
                for inner in &inner.fields {
                    if let syn::Member::Named(part) = &inner.member {
                        self.0.push((format!("{name}.{part}"), &inner.expr));
                    }
                }
            }
        }
    }
}

/// Every bound of the hub. The renderer and the generator of CRDs are other programs: what bounds those bounds no hub.
fn bounds() -> BTreeMap<Key, Option<Amount>> {
    let is_hubs = |path: &&std::path::PathBuf| {
        let is_other = ["src/renderer", "src/bin"]
            .iter()
            .any(|other| path.starts_with(other));
        let is_test = path.iter().any(|part| part == "tests" || part == "tests.rs");
        path.starts_with("src") && !is_other && !is_test
    };
    let all = files("rs");
    let mut found = BTreeMap::new();
    for path in all.iter().filter(is_hubs) {
        let file = path.strip_prefix("src").unwrap().to_str().unwrap().to_owned();
        for (name, amount) in bounds_of(&read(path.to_str().unwrap())) {
            found.insert((file.clone(), name), amount);
        }
    }
    found
}

// === the comparison ===

/// What is wrong between the rows, the exceptions and the code.
fn problems(rows: &[Row], exempt: &BTreeSet<Key>, bounds: &BTreeMap<Key, Option<Amount>>) -> Vec<String> {
    let mut problems = Vec::new();
    let mut told = BTreeSet::new();
    for row in rows {
        let (file, name) = &row.key;
        if !told.insert(&row.key) || exempt.contains(&row.key) {
            problems.push(format!("{file} {name} is told of twice"));
        }
        match bounds.get(&row.key) {
            None => problems.push(format!("{file} has no bound {name}")),
            Some(None) => problems.push(format!(
                "{file} {name} is not understood: extend tests/docs/evaluate.rs"
            )),
            Some(Some(amount)) if written(&row.amount).as_ref() != Some(amount) => {
                problems.push(format!(
                    "{file} {name} is {amount}, and the page says {}",
                    row.amount
                ));
            }
            Some(Some(_)) => {}
        }
    }
    for key in exempt.iter().filter(|key| !bounds.contains_key(key)) {
        problems.push(format!("{} has no {}, which is exempt", key.0, key.1));
    }
    for ((file, name), amount) in bounds {
        let key = (file.clone(), name.clone());
        if !told.contains(&key) && !exempt.contains(&key) {
            let amount = amount
                .as_ref()
                .map_or_else(String::new, |amount| format!(", {amount}"));
            problems.push(format!(
                "{file} {name}{amount}: add a row to {PAGE}, or a reason to tests/docs/exempt.rs"
            ));
        }
    }
    problems
}

fn exempt() -> BTreeSet<Key> {
    let keys = EXEMPT.iter().flat_map(|(_, keys)| keys.iter());
    keys.map(|key| key.split_once(' ').unwrap())
        .map(|(file, name)| (file.to_owned(), name.to_owned()))
        .collect()
}

#[test]
fn every_bound_of_the_code_is_in_the_table_with_its_value() {
    let bounds = bounds();
    assert!(bounds.len() > 100, "only {} bounds are found", bounds.len());
    let problems = problems(&rows(&read(PAGE)), &exempt(), &bounds);
    assert!(problems.is_empty(), "\n{}\n", problems.join("\n"));
    for (why, _) in EXEMPT {
        assert!(why.split(' ').count() > 5 && why.ends_with('.'), "{why}");
    }
}

#[test]
fn every_row_says_who_fills_it_what_happens_beyond_it_and_which_test_holds_it() {
    let code: String = files("rs")
        .iter()
        .filter(|path| path.starts_with("src") || path.starts_with("tests"))
        .map(|path| read(path.to_str().unwrap()))
        .collect();
    for row in rows(&read(PAGE)) {
        let name = &row.key.1;
        assert!(
            row.filled_by.split(", ").all(|who| FILLERS.contains(&who)),
            "{name}: {}",
            row.filled_by
        );
        assert!(row.beyond.split(' ').count() > 1, "{name}: {}", row.beyond);
        if let Some(why) = row.held_by.strip_prefix(NO_TEST) {
            assert!(why.split(' ').count() > 3, "{name}: {why}");
        } else {
            let test = quoted(&row.held_by);
            assert!(
                code.contains(&format!("fn {test}(")),
                "{name}: there is no test {test}"
            );
        }
    }
}

// === flags and values of the chart ===

/// The flags of the hub whose default is a number or a time.
fn flags() -> BTreeMap<String, Amount> {
    let command = HubCli::command();
    let run = command.find_subcommand("run").unwrap();
    let amounts = run.get_arguments().filter_map(|argument| {
        let [default] = argument.get_default_values() else {
            return None;
        };
        let amount = written(default.to_str()?)?;
        Some((format!("--{}", argument.get_long()?), amount))
    });
    amounts.collect()
}

#[test]
fn every_flag_with_an_amount_is_in_the_table() {
    let page = read(PAGE);
    let told: BTreeMap<_, _> = table(&page, "flag")
        .into_iter()
        .map(|cells| (quoted(&cells[0]).to_owned(), written(&cells[2]).unwrap()))
        .collect();
    assert_eq!(told, flags());
}

#[test]
fn the_values_of_the_chart_are_as_the_table_says() {
    let values: Value = serde_saphyr::from_str(&read("charts/renderhub/values.yaml")).unwrap();
    let page = read(PAGE);
    let rows = table(&page, "value of the chart");
    assert!(rows.len() >= 3);
    for cells in rows {
        let path = quoted(&cells[0]);
        let found = path.split('.').try_fold(&values, |found, step| found.get(step));
        let text = match found.unwrap_or_else(|| panic!("there is no {path}")) {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let chart = evaluate::quantity(&text).unwrap_or_else(|| panic!("{path}: {text}"));
        assert_eq!(written(&cells[2]), Some(chart), "{path}");
    }
}

// === what can be held at once ===

/// The product of a cell: numbers, sizes and names of bounds with `×` between them.
fn product(cell: &str, rows: &[Row]) -> f64 {
    let factor = |factor: &str| {
        let name = quoted(factor);
        if name.is_empty() {
            return written(factor)
                .unwrap_or_else(|| panic!("{factor} is no amount"))
                .number();
        }
        let (file, name) = name.split_once(' ').unwrap_or(("", name));
        let fits = |row: &&Row| row.key.1 == name && (file.is_empty() || row.key.0 == file);
        let mut fitting = rows.iter().filter(fits);
        let row = fitting.next().unwrap_or_else(|| panic!("{factor} is no row"));
        assert!(
            fitting.next().is_none(),
            "{factor} is more than one row: write its file before it"
        );
        // Of several, the first is that of all together.
        written(&row.amount).unwrap().number()
    };
    cell.split('×').map(|part| factor(part.trim())).product()
}

/// MiB as the page writes them.
fn mib(bytes: f64) -> String {
    format!("{:.1} MiB", bytes / f64::from(1 << 20))
}

#[test]
fn what_is_held_at_once_adds_up_to_what_the_page_says_beside_the_limit() {
    let page = read(PAGE);
    let bounds = rows(&page);
    let mut sum = 0.0;
    let mut rest = BTreeMap::new();
    for cells in table(&page, "held at once") {
        assert_eq!(cells.len(), 4, "{cells:?}");
        if let Some(name) = cells[0]
            .strip_prefix("**")
            .and_then(|name| name.strip_suffix("**"))
        {
            rest.insert(name.to_owned(), cells[3].clone());
            continue;
        }
        let bytes = product(&cells[1], &bounds) * product(&cells[2], &bounds);
        assert_eq!(cells[3], mib(bytes), "{}", cells[0]);
        sum += bytes;
    }
    let values: Value = serde_saphyr::from_str(&read("charts/renderhub/values.yaml")).unwrap();
    let limit = values["resources"]["limits"]["memory"].as_str().unwrap();
    let limit = evaluate::quantity(limit).unwrap().number();
    assert_eq!(rest["together"], mib(sum));
    assert_eq!(rest["the chart's limit"], mib(limit));
    let most: f64 = rest["at most, times the limit"].parse().unwrap();
    assert!(
        sum <= most * limit,
        "{} is more than {most} times {}",
        mib(sum),
        mib(limit)
    );
}

// === the test of the test ===

/// A source file with bounds of each kind.
const PLANTED: &str = "
        const PAGES: usize = 100;
        const WEIGHT: usize = 2 * PAGES << 10;
        const WAIT: Duration = Duration::from_millis(1_500);
        const PAUSES: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_mins(1)];
        const NAME: &str = \"x\";
        const ODD: usize = odd();
        const ROOM: Space = Space { bytes: 4 << 10, name: None };
        const TOTAL: usize = ROOM.bytes + PAGES;
        impl Default for Limits { fn default() -> Self { Self { body: 8 << 20, name: None, idle: Duration::from_secs(1) } } }
        fn f() { const INNER: u8 = 5; }
        #[cfg(test)] mod tests { const CASES: u32 = 3; }
    ";

/// What the page has to say of them.
const RIGHT: [(&str, &str); 9] = [
    ("INNER", "5"),
    ("Limits::body", "8 MiB"),
    ("Limits::idle", "1 s"),
    ("PAGES", "100"),
    ("PAUSES", "5 s, 1 min"),
    ("ROOM::bytes", "4 KiB"),
    ("TOTAL", "4,196"),
    ("WAIT", "1,500 ms"),
    ("WEIGHT", "200 KiB"),
];

fn row(name: &str, amount: &str) -> Row {
    Row {
        key: ("a.rs".to_owned(), name.to_owned()),
        filled_by: "hub".to_owned(),
        amount: amount.to_owned(),
        beyond: "it waits".to_owned(),
        held_by: "no test: it is made up".to_owned(),
    }
}

#[test]
fn a_bound_that_is_missing_or_has_another_value_is_found() {
    let found: BTreeMap<Key, Option<Amount>> = bounds_of(PLANTED)
        .into_iter()
        .map(|(name, amount)| (("a.rs".to_owned(), name), amount))
        .collect();
    let names: Vec<_> = found.keys().map(|(_, name)| name.as_str()).collect();
    let expected = "INNER Limits::body Limits::idle ODD PAGES PAUSES ROOM::bytes TOTAL WAIT WEIGHT";
    assert_eq!(names.join(" "), expected);
    let of = |changes: &[(&str, &str)]| {
        let said = |name, amount| {
            changes
                .iter()
                .find(|(n, _)| *n == name)
                .map_or(amount, |(_, a)| *a)
        };
        let rows: Vec<Row> = RIGHT.iter().map(|(n, a)| row(n, said(*n, *a))).collect();
        problems(
            &rows,
            &BTreeSet::from([("a.rs".to_owned(), "ODD".to_owned())]),
            &found,
        )
    };
    assert_eq!(of(&[]), Vec::<String>::new());
    assert_eq!(
        of(&[("PAGES", "101")]),
        ["a.rs PAGES is 100, and the page says 101"]
    );
    assert_eq!(of(&[("WAIT", "1 s")]).len(), 1);
    assert_eq!(of(&[("WEIGHT", "200 s")]).len(), 1);
    let few = problems(&[row("PAGES", "100"), row("GONE", "1")], &BTreeSet::new(), &found);
    assert!(few[0].contains("has no bound GONE") && few.len() == 10, "{few:?}");
}

#[test]
fn the_memory_of_a_row_is_the_product_of_its_cells() {
    let rows = [Row {
        key: ("a/b.rs".to_owned(), "WEIGHT".to_owned()),
        ..row("WEIGHT", "24 MiB")
    }];
    assert!((product("2 × `a/b.rs WEIGHT`", &rows) - f64::from(48 << 20)).abs() < 1.0);
    assert!((product("`WEIGHT`", &rows) - f64::from(24 << 20)).abs() < 1.0);
    assert_eq!(mib(product("10 × 1 KiB", &rows) * 1024.0), "10.0 MiB");
    let page = "| held at once | a |\n|---|---|\n| x | 1 |\n\n| bound | b |\n|---|---|\n| y | 2 |\n";
    assert_eq!(table(page, "held at once"), [["x", "1"]]);
    assert!(Path::new(PAGE).starts_with("docs"));
}
