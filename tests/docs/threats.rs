//! `docs/security/threats.md` is made of the rows in [`rows`] and of the tests that say of themselves which rows they hold.
//!
//! `UPDATE_DOCS=1 cargo test --workspace --test docs` writes the page.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use super::{files, read, root};

#[path = "rows.rs"]
mod rows;
use rows::{FAMILIES, Family, Row};

const PAGE: &str = "docs/security/threats.md";

const INTRODUCTION: &str = "\
# Threats, and the tests that hold them

<!-- Made by `UPDATE_DOCS=1 cargo test --workspace --test docs` from tests/docs/rows.rs and from the tests themselves. -->

Each row is an attack, the defence, and the tests that fail when it no longer holds. The tests name their rows
themselves, in a doc line `Holds: T1, C5.`; this page is compared with them by a test. What a row is worth against whom is in the
[security model](README.md).

The [level](../testing.md#levels) is that of each test's world: U values alone, L a hostile server, A a real API server, N a real
node.
";

/// Programs of tests whose world is not that of most, which is a real API server.
const WORLDS: &[(&str, char)] = &[
    ("tests/architecture.rs", 'U'),
    ("tests/chart.rs", 'U'),
    ("tests/docs.rs", 'U'),
    ("tests/flux.rs", 'N'),
    ("tests/hostile_pod.rs", 'N'),
    ("tests/installation.rs", 'N'),
    ("tests/kubeconfig.rs", 'U'),
    ("tests/operators/real.rs", 'N'),
    ("tests/own_node.rs", 'N'),
    ("tests/renderer.rs", 'L'),
    ("tests/api/schema.rs", 'U'),
];

/// A test that says which rows it holds.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Holder {
    level: char,
    file: String,
    function: String,
}

/// The rows that the tests in a file say they hold, or what is wrong with how they say it.
fn held(file: &str, text: &str) -> Result<Vec<(String, Holder)>, String> {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    let mut found = Vec::new();
    for (number, line) in lines.iter().enumerate() {
        let Some(said) = line.strip_prefix("/// Holds:") else {
            continue;
        };
        let wrong = |what: &str| format!("{file}:{}: {what}", number + 1);
        let ids = said
            .strip_prefix(' ')
            .and_then(|said| said.strip_suffix('.'))
            .ok_or_else(|| wrong("write `/// Holds: T1, C5.`"))?;
        let function = function_after(&lines[number + 1..])
            .ok_or_else(|| wrong("no test function follows among whose doc comments this is"))?;
        for id in ids.split(", ") {
            let holder = Holder {
                level: level_of(file),
                file: file.to_owned(),
                function: function.clone(),
            };
            found.push((id.to_owned(), holder));
        }
    }
    Ok(found)
}

/// The test function that follows, with nothing but docs and attributes before it.
fn function_after(lines: &[&str]) -> Option<String> {
    let mut is_test = false;
    let mut in_attribute = false;
    for line in lines {
        if in_attribute {
            in_attribute = !line.ends_with(']');
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
            in_attribute = !line.ends_with(']');
        } else if !line.starts_with("///") {
            let name = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ")?;
            let end = name.find(|c: char| !c.is_ascii_alphanumeric() && c != '_')?;
            return is_test.then(|| name[..end].to_owned());
        }
    }
    None
}

/// The world of the tests in a file: of a part of a program, that of the program.
fn level_of(file: &str) -> char {
    if file.starts_with("src/") {
        return 'U';
    }
    let program = file.strip_prefix("tests/").and_then(|path| path.split_once('/'));
    let program = program.map(|(program, _)| format!("tests/{program}.rs"));
    let of = |path: &str| WORLDS.iter().find(|(known, _)| *known == path);
    let known = of(file).or_else(|| of(&program?));
    known.map_or('A', |(_, level)| *level)
}

/// Every row with the tests that say they hold it.
fn holders() -> BTreeMap<String, BTreeSet<Holder>> {
    let mut all: BTreeMap<String, BTreeSet<Holder>> = BTreeMap::new();
    for path in files("rs") {
        let path = path.to_str().unwrap();
        // This one quotes what it looks for.
        if path == "tests/docs/threats.rs" {
            continue;
        }
        for (id, holder) in held(path, &read(path)).unwrap_or_else(|wrong| panic!("{wrong}")) {
            all.entry(id).or_default().insert(holder);
        }
    }
    all
}

fn rows() -> impl Iterator<Item = &'static Row> {
    FAMILIES.iter().flat_map(|family| family.rows)
}

/// What does not fit between the rows and the tests.
fn problems(rows: &[&Row], holders: &BTreeMap<String, BTreeSet<Holder>>) -> Vec<String> {
    let unknown = holders
        .iter()
        .filter(|(id, _)| !rows.iter().any(|row| row.id == **id))
        .map(|(id, tests)| {
            format!(
                "{id} is no row, but {} says it holds it",
                tests.first().unwrap().function
            )
        });
    let judged = rows.iter().filter_map(|row| {
        let is_held = holders.contains_key(row.id);
        match row.unheld {
            None if !is_held => Some(format!("{}: no test holds it, and nothing says why", row.id)),
            Some(_) if is_held => Some(format!("{}: a test holds it; take the excuse away", row.id)),
            _ => None,
        }
    });
    unknown.chain(judged).collect()
}

fn page(holders: &BTreeMap<String, BTreeSet<Holder>>) -> String {
    let mut page = INTRODUCTION.to_owned();
    for Family { letter, title, rows } in FAMILIES {
        writeln!(page, "\n## {letter}: {title}\n").unwrap();
        page.push_str("| row | attack | defence | held by | level |\n|---|---|---|---|---|\n");
        for row in *rows {
            let tests = holders.get(row.id);
            let levels: BTreeSet<char> = tests.into_iter().flatten().map(|test| test.level).collect();
            let levels: Vec<_> = levels.into_iter().map(String::from).collect();
            writeln!(
                page,
                "| {} | {} | {} | {} | {} |",
                row.id,
                row.attack,
                row.defence,
                shown(row, tests),
                levels.join(", "),
            )
            .unwrap();
        }
    }
    page
}

/// The tests of a row, those of one file together.
fn shown(row: &Row, tests: Option<&BTreeSet<Holder>>) -> String {
    if let Some(why) = row.unheld {
        return format!("not held by a test: {why}");
    }
    let mut by_file: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for test in tests.into_iter().flatten() {
        by_file.entry(&test.file).or_default().push(&test.function);
    }
    let cells = by_file.into_iter().map(|(file, functions)| {
        let functions: Vec<_> = functions.iter().map(|name| format!("`{name}`")).collect();
        format!("[{file}](../../{file}): {}", functions.join(", "))
    });
    cells.collect::<Vec<_>>().join("<br>")
}

#[test]
fn every_row_is_held_by_a_test_or_says_why_not() {
    let rows: Vec<_> = rows().collect();
    let problems = problems(&rows, &holders());
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn the_page_is_what_the_sources_say() {
    let made = page(&holders());
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(PAGE), &made).unwrap();
    }
    let is_same = std::fs::read_to_string(root().join(PAGE)).is_ok_and(|text| text == made);
    assert!(
        is_same,
        "{PAGE} is outdated: UPDATE_DOCS=1 cargo test --workspace --test docs"
    );
}

/// How many rows each family has.
const COUNTS: [(char, usize); 14] = [
    ('K', 14),
    ('C', 8),
    ('T', 9),
    ('I', 7),
    ('E', 8),
    ('R', 7),
    ('H', 10),
    ('D', 4),
    ('O', 6),
    ('X', 4),
    ('M', 7),
    ('B', 37),
    ('F', 18),
    ('S', 14),
];

/// The ids are the model's own: none is left out, doubled or out of order, and each row says something.
#[test]
fn the_rows_are_those_of_the_model() {
    let expected: Vec<String> = COUNTS
        .iter()
        .flat_map(|(letter, count)| (1..=*count).map(move |number| format!("{letter}{number}")))
        .collect();
    assert_eq!(rows().map(|row| row.id).collect::<Vec<_>>(), expected);
    for family in FAMILIES {
        assert!(family.rows.iter().all(|row| row.id.starts_with(family.letter)));
    }
    for row in rows() {
        for text in [row.attack, row.defence] {
            assert!(
                text.ends_with('.') && !text.contains(['|', '\n']),
                "{}: {text}",
                row.id
            );
        }
        let why = row.unheld.unwrap_or("a test does");
        assert!(
            why.split(' ').count() > 2 && !why.contains(['|', '\n']),
            "{}: {why}",
            row.id
        );
    }
    for (program, _) in WORLDS {
        assert!(root().join(program).exists(), "{program} is no test any more");
    }
}

#[test]
fn a_test_is_found_with_its_rows_across_other_lines() {
    let text = "
        /// What it is about.
        ///
        /// Holds: T1, C5.
        #[tokio::test(flavor = \"multi_thread\", worker_threads = 2)]
        #[expect(
            clippy::x,
            reason = \"y\"
        )]
        async fn one() {}

        /// Holds: C1.
        #[test]
        fn two(a in 0..1) {}
    ";
    let holder = |function: &str| Holder {
        level: 'A',
        file: "tests/a.rs".to_owned(),
        function: function.to_owned(),
    };
    let expected = [("T1", "one"), ("C5", "one"), ("C1", "two")];
    let expected: Vec<_> = expected
        .map(|(id, function)| (id.to_owned(), holder(function)))
        .into();
    assert_eq!(held("tests/a.rs", text), Ok(expected));
}

#[test]
fn a_line_that_holds_nothing_is_refused() {
    for text in [
        "/// Holds: T1\n#[test]\nfn a() {}",
        "/// Holds:T1.\n#[test]\nfn a() {}",
        "/// Holds: T1.\nfn no_test() {}",
        "/// Holds: T1.\n\n#[test]\nfn a() {}",
        "/// Holds: T1.\nconst X: u8 = 1;\n#[test]\nfn a() {}",
        "/// Holds: T1.",
    ] {
        assert!(held("tests/a.rs", text).is_err(), "{text}");
    }
    let row = |id, unheld| Row {
        id,
        attack: "",
        defence: "",
        unheld,
    };
    let (free, excused, unexcused) = (row("Z1", None), row("Z2", Some("why")), row("Z3", Some("why")));
    let (_, holder) = held("tests/a.rs", "/// Holds: Z3.\n#[test]\nfn a() {}")
        .unwrap()
        .remove(0);
    let holders = BTreeMap::from(
        [("Z3", 0), ("Z9", 0)].map(|(id, _)| (id.to_owned(), BTreeSet::from([holder.clone()]))),
    );
    let found = problems(&[&free, &excused, &unexcused], &holders);
    let starts: Vec<_> = found.iter().map(|problem| &problem[..2]).collect();
    assert_eq!(starts, ["Z9", "Z1", "Z3"]);
}

#[test]
fn a_part_of_a_program_has_the_world_of_the_program() {
    for (file, level) in [
        ("src/plan/task/orphans.rs", 'U'),
        ("tests/tasks/life.rs", 'A'),
        ("tests/renderer/hostile.rs", 'L'),
        ("tests/renderer/hostile/matrix.rs", 'L'),
        ("tests/tenancy/disclosure/planted.rs", 'A'),
        ("tests/hostile_pod/world.rs", 'N'),
    ] {
        assert_eq!(level_of(file), level, "{file}");
    }
}
