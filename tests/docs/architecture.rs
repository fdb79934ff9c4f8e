//! The picture of how an event becomes a write, drawn from the tables of `docs/architecture.md`.

use std::fmt::Write as _;

use super::{read, root};

const PAGE: &str = "docs/architecture.md";
const PICTURE: &str = "docs/architecture.svg";
/// The bands of the picture, from the top: rooms, and below them the servers.
const BANDS: [&str; 5] = ["controllers", "plan", "remote", "kubernetes", "API server"];

const LEFT: usize = 110;
const STEP: usize = 168;
const BOX: (usize, usize) = (150, 74);
const BAND: usize = 88;
const TITLE: usize = 34;
/// Letters of a line in a box.
const LETTERS: usize = 25;

/// One line of a table: the module or server, and what happens there.
struct Row {
    at: String,
    what: String,
}

impl Row {
    /// Index of its band.
    fn band(&self) -> usize {
        let name = self.at.trim_matches('`').split("::").next().unwrap_or_default();
        let is_server = name.ends_with("API server");
        let found = BANDS
            .iter()
            .position(|band| *band == name || is_server && *band == "API server");
        found.unwrap_or_else(|| panic!("{PAGE}: {} is in no band of the picture", self.at))
    }
}

/// The tables below `## From an event to a write`, each with its title.
fn flows(page: &str) -> Vec<(String, Vec<Row>)> {
    let part = page
        .split("\n## ")
        .find(|part| part.starts_with("From an event to a write"))
        .unwrap();
    let flows = part.split("\n### ").skip(1).map(|flow| {
        let (title, table) = flow.split_once('\n').unwrap();
        let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
        let row = |line: &str| {
            let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
            let [at, what] = cells[..] else {
                panic!("{PAGE}: {line} has not two cells")
            };
            Row {
                at: at.to_owned(),
                what: what.to_owned(),
            }
        };
        (title.to_owned(), rows.map(row).collect())
    });
    flows.collect()
}

/// Text in lines of at most so many letters, where its words allow that.
fn lines(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().unwrap();
        if last.is_empty() {
            last.push_str(word);
        } else if last.len() + 1 + word.len() <= LETTERS {
            write!(last, " {word}").unwrap();
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

/// The upper left corner of the box of a step.
fn corner(top: usize, index: usize, row: &Row) -> (usize, usize) {
    (
        LEFT + index * STEP,
        top + TITLE + row.band() * BAND + (BAND - BOX.1) / 2,
    )
}

fn draw_box(svg: &mut String, (x, y): (usize, usize), row: &Row) {
    let (width, height) = BOX;
    let kind = if row.at.starts_with('`') { "step" } else { "server" };
    writeln!(
        svg,
        r#"<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>"#
    )
    .unwrap();
    let name = row.at.trim_matches('`');
    let shown = name.split_once("::").map_or(name, |(_, rest)| rest);
    writeln!(
        svg,
        r#"<text class="name" x="{}" y="{}">{shown}</text>"#,
        x + 7,
        y + 15
    )
    .unwrap();
    for (line, text) in lines(&row.what).iter().enumerate() {
        writeln!(
            svg,
            r#"<text x="{}" y="{}">{text}</text>"#,
            x + 7,
            y + 29 + line * 12
        )
        .unwrap();
    }
}

/// An arrow from the right side of a box to the left side of the next.
fn draw_arrow(svg: &mut String, (x, y): (usize, usize), (to_x, to_y): (usize, usize)) {
    let (from, half) = (x + BOX.0, BOX.1 / 2);
    let middle = usize::midpoint(from, to_x);
    let (y, to_y) = (y + half, to_y + half);
    writeln!(
        svg,
        r#"<path class="way" d="M{from} {y} H{middle} V{to_y} H{}" marker-end="url(#end)"/>"#,
        to_x - 2
    )
    .unwrap();
}

fn draw_flow(svg: &mut String, top: usize, (title, rows): &(String, Vec<Row>), width: usize) {
    writeln!(
        svg,
        r#"<text class="title" x="8" y="{}">{title}</text>"#,
        top + 22
    )
    .unwrap();
    for (index, band) in BANDS.iter().enumerate() {
        let y = top + TITLE + index * BAND;
        let shade = if index % 2 == 0 { "even" } else { "odd" };
        writeln!(
            svg,
            r#"<rect class="{shade}" x="0" y="{y}" width="{width}" height="{BAND}"/>"#
        )
        .unwrap();
        writeln!(
            svg,
            r#"<text class="band" x="8" y="{}">{band}</text>"#,
            y + BAND / 2 + 4
        )
        .unwrap();
    }
    let corners: Vec<_> = rows
        .iter()
        .enumerate()
        .map(|(index, row)| corner(top, index, row))
        .collect();
    for pair in corners.windows(2) {
        draw_arrow(svg, pair[0], pair[1]);
    }
    for (corner, row) in corners.into_iter().zip(rows) {
        draw_box(svg, corner, row);
    }
}

fn picture(page: &str) -> String {
    let flows = flows(page);
    let steps = flows.iter().map(|(_, rows)| rows.len()).max().unwrap_or_default();
    let (width, each) = (LEFT + steps * STEP, TITLE + BANDS.len() * BAND);
    let height = flows.len() * each;
    let mut svg = String::new();
    writeln!(svg, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10.5">"#).unwrap();
    svg.push_str(STYLE);
    for (index, flow) in flows.iter().enumerate() {
        draw_flow(&mut svg, index * each, flow, width);
    }
    svg.push_str("</svg>\n");
    svg
}

const STYLE: &str = r##"<style>
.even { fill: #f3f5f8 } .odd { fill: #e9edf2 } .step { fill: #fff; stroke: #456 } .server { fill: #cfe0f2; stroke: #456 }
.name { font-weight: bold; fill: #135 } .band { font-weight: bold; fill: #567; font-size: 12px }
.title { font-weight: bold; font-size: 16px; fill: #123 } .way { fill: none; stroke: #c60; stroke-width: 1.6 } text { fill: #222 }
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c60"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
"##;

#[test]
fn the_picture_of_the_architecture_shows_its_tables() {
    let drawn = picture(&read(PAGE));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(root().join(PICTURE), &drawn).unwrap();
    }
    assert!(
        read(PICTURE) == drawn,
        "{PICTURE} is not what {PAGE} says; write it with UPDATE_DOCS=1"
    );
}

/// Whether a module of `src` has this path, or the path without the type at its end; `architecture` looks for the type.
fn is_module(path: &str) -> bool {
    let (module, last) = path.rsplit_once("::").unwrap_or(("", path));
    let path = if last.starts_with(char::is_uppercase) {
        module
    } else {
        path
    };
    let path = root().join("src").join(path.replace("::", "/"));
    path.with_extension("rs").is_file() || path.join("mod.rs").is_file()
}

#[test]
fn every_module_that_the_architecture_names_is_there() {
    let page = read(PAGE);
    let named: Vec<&str> = page
        .split('`')
        .skip(1)
        .step_by(2)
        .filter(|word| word.contains("::"))
        .collect();
    assert!(named.len() > 30, "only {} modules are named", named.len());
    let missing: Vec<_> = named.into_iter().filter(|path| !is_module(path)).collect();
    assert!(
        missing.is_empty(),
        "{PAGE} names {missing:?}, which are no modules of src"
    );
}
