//! Pictures of who does what in which order, drawn from tables of a page.

use std::fmt::Write as _;

use super::{read, root};

/// A picture, and the tables that it is drawn from: the rows are steps, with where they happen and what.
pub struct Picture {
    /// The page with the tables.
    pub page: &'static str,
    /// Its heading, below which each table has a heading of its own.
    pub heading: &'static str,
    /// Where the picture is.
    pub file: &'static str,
    /// Places, from the top; a step is in the band that begins its first cell, or that it ends in.
    pub bands: &'static [&'static str],
}

const LEFT: usize = 110;
const STEP: usize = 168;
const BOX: (usize, usize) = (150, 74);
const BAND: usize = 88;
const TITLE: usize = 34;
/// Letters of a line in a box.
const LETTERS: usize = 25;

/// A table with its title, and the bands that its steps are in.
struct Flow {
    title: String,
    bands: Vec<&'static str>,
    rows: Vec<Row>,
}

/// One line of a table.
struct Row {
    band: &'static str,
    /// Who acts there, such as a module; or the place itself, such as a server.
    name: String,
    is_place: bool,
    what: String,
}

impl Row {
    fn of(line: &str, bands: &[&'static str]) -> Self {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [at, what] = cells[..] else {
            panic!("{line} has not two cells")
        };
        let at = at.trim_matches('`');
        let parts = at.split_once("::").or_else(|| at.split_once(": "));
        let place = parts.map_or(at, |(place, _)| place);
        let band = bands.iter().find(|band| place.ends_with(**band));
        Self {
            band: band.unwrap_or_else(|| panic!("{at} is in no band of the picture")),
            name: parts.map_or(at, |(_, name)| name).to_owned(),
            is_place: parts.is_none(),
            what: what.to_owned(),
        }
    }
}

impl Picture {
    /// The tables.
    fn flows(&self, page: &str) -> Vec<Flow> {
        let mut parts = page.split("\n## ");
        let part = parts.find(|part| part.starts_with(self.heading));
        let part = part.unwrap_or_else(|| panic!("{} has no part {}", self.page, self.heading));
        let flows = part.split("\n### ").skip(1).map(|flow| {
            let (title, table) = flow.split_once('\n').unwrap();
            let rows = table.lines().filter(|line| line.starts_with("| ")).skip(1);
            let rows: Vec<Row> = rows.map(|line| Row::of(line, self.bands)).collect();
            let is_used = |band: &&&str| rows.iter().any(|row| row.band == **band);
            Flow {
                title: title.to_owned(),
                bands: self.bands.iter().filter(is_used).copied().collect(),
                rows,
            }
        });
        flows.collect()
    }
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

fn draw_box(svg: &mut String, (x, y): (usize, usize), row: &Row) {
    let (width, height) = BOX;
    let kind = if row.is_place { "server" } else { "step" };
    writeln!(
        svg,
        r#"<rect class="{kind}" x="{x}" y="{y}" width="{width}" height="{height}" rx="5"/>"#
    )
    .unwrap();
    writeln!(
        svg,
        r#"<text class="name" x="{}" y="{}">{}</text>"#,
        x + 7,
        y + 15,
        row.name
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

impl Flow {
    fn height(&self) -> usize {
        TITLE + self.bands.len() * BAND
    }

    /// The upper left corner of the box of a step.
    fn corner(&self, top: usize, index: usize) -> (usize, usize) {
        let band = self.bands.iter().position(|band| *band == self.rows[index].band);
        let above = band.unwrap() * BAND;
        (LEFT + index * STEP, top + TITLE + above + (BAND - BOX.1) / 2)
    }

    fn draw(&self, svg: &mut String, top: usize, width: usize) {
        writeln!(
            svg,
            r#"<text class="title" x="8" y="{}">{}</text>"#,
            top + 22,
            self.title
        )
        .unwrap();
        for (index, band) in self.bands.iter().enumerate() {
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
        let corners: Vec<_> = (0..self.rows.len())
            .map(|index| self.corner(top, index))
            .collect();
        for pair in corners.windows(2) {
            draw_arrow(svg, pair[0], pair[1]);
        }
        for (corner, row) in corners.into_iter().zip(&self.rows) {
            draw_box(svg, corner, row);
        }
    }
}

impl Picture {
    fn drawn(&self, page: &str) -> String {
        let flows = self.flows(page);
        let steps = flows.iter().map(|flow| flow.rows.len()).max().unwrap_or_default();
        let width = LEFT + steps * STEP;
        let height: usize = flows.iter().map(Flow::height).sum();
        let mut svg = String::new();
        writeln!(svg, r#"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" font-family="sans-serif" font-size="10.5">"#).unwrap();
        svg.push_str(STYLE);
        let mut top = 0;
        for flow in &flows {
            flow.draw(&mut svg, top, width);
            top += flow.height();
        }
        svg.push_str("</svg>\n");
        svg
    }

    /// Fails where the picture is not what the page says.
    pub fn shows_its_tables(&self) {
        let drawn = self.drawn(&read(self.page));
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(root().join(self.file), &drawn).unwrap();
        }
        assert!(
            read(self.file) == drawn,
            "{} is not what {} says; write it with UPDATE_DOCS=1",
            self.file,
            self.page
        );
    }
}

const STYLE: &str = r##"<style>
.even { fill: #f3f5f8 } .odd { fill: #e9edf2 } .step { fill: #fff; stroke: #456 } .server { fill: #cfe0f2; stroke: #456 }
.name { font-weight: bold; fill: #135 } .band { font-weight: bold; fill: #567; font-size: 12px }
.title { font-weight: bold; font-size: 16px; fill: #123 } .way { fill: none; stroke: #c60; stroke-width: 1.6 } text { fill: #222 }
</style>
<defs><marker id="end" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto"><path d="M0 0 L8 4 L0 8 z" fill="#c60"/></marker></defs>
<rect width="100%" height="100%" fill="#fff"/>
"##;
