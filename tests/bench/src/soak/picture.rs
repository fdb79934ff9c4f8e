//! Memory over time as a picture: SVG, so that it is text and shows in a browser and in the documentation.

use std::fmt::Write as _;

use super::hub::Sample;
use super::report::mib;

/// Width and height of the picture.
const SIZE: (f64, f64) = (800.0, 360.0);
/// Margins for the labels on the left, above, on the right and below.
const ROOM: (f64, f64, f64, f64) = (60.0, 30.0, 20.0, 40.0);
/// Points of the line at most.
const POINTS: usize = 900;
/// Seconds after which memory is to be flat.
const WARM_UP: f64 = 300.0;

/// Where things are in the picture.
struct Scale {
    seconds: f64,
    mib: f64,
}

impl Scale {
    fn x(&self, at: f64) -> f64 {
        ROOM.0 + at / self.seconds * (SIZE.0 - ROOM.0 - ROOM.2)
    }

    fn y(&self, mib: f64) -> f64 {
        SIZE.1 - ROOM.3 - mib / self.mib * (SIZE.1 - ROOM.1 - ROOM.3)
    }

    /// A line with a label at its left end, at this much memory.
    fn level(&self, mib: f64, style: &str, word: &str) -> String {
        let (y, right) = (self.y(mib), SIZE.0 - ROOM.2);
        format!(
            "<line x1=\"{:.1}\" y1=\"{y:.1}\" x2=\"{right:.1}\" y2=\"{y:.1}\" {style}/>\n\
             <text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{word}</text>\n",
            ROOM.0,
            ROOM.0 - 6.0,
            y + 4.0
        )
    }
}

/// Draws it, with the limit, half of it, and the end of the first five minutes.
pub fn draw(samples: &[Sample], limit: u64) -> String {
    let limit = mib(limit);
    let most = samples.iter().map(|sample| sample.mib).fold(limit, f64::max);
    let scale = Scale {
        seconds: samples.last().map_or(1.0, |sample| sample.at).max(1.0),
        mib: most * 1.05,
    };
    let (width, height) = SIZE;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" font-family=\"sans-serif\" \
         font-size=\"12\" role=\"img\">\n<title>Resident memory of the hub in the soak, in MiB over minutes</title>\n\
         <rect width=\"{width}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    svg += &scale.level(0.0, "stroke=\"black\"", "0");
    svg += &scale.level(
        limit / 2.0,
        "stroke=\"#d07000\" stroke-dasharray=\"6 4\"",
        &format!("{:.0}", limit / 2.0),
    );
    svg += &scale.level(limit, "stroke=\"#c00000\"", &format!("{limit:.0}"));
    svg += &times(&scale);
    svg += &line(samples, &scale);
    let middle = width / 2.0;
    _ = writeln!(
        svg,
        "<text x=\"{middle}\" y=\"18\" text-anchor=\"middle\">resident memory of the hub, MiB; the chart's limit and half of it\
         </text>\n<text x=\"{middle}\" y=\"{:.1}\" text-anchor=\"middle\">minutes</text>\n</svg>",
        height - 6.0
    );
    svg
}

/// Minutes below, and a line where memory is to be flat.
fn times(scale: &Scale) -> String {
    let mut svg = String::new();
    let bottom = scale.y(0.0);
    let every = if scale.seconds > 600.0 { 300 } else { 60 };
    for at in (0_u32..)
        .map(|n| n * every)
        .take_while(|at| f64::from(*at) <= scale.seconds)
    {
        let (x, y) = (scale.x(f64::from(at)), bottom + 16.0);
        _ = writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"middle\">{}</text>",
            at / 60
        );
    }
    if scale.seconds > WARM_UP {
        let x = scale.x(WARM_UP);
        _ = writeln!(
            svg,
            "<line x1=\"{x:.1}\" y1=\"{:.1}\" x2=\"{x:.1}\" y2=\"{bottom:.1}\" stroke=\"gray\" stroke-dasharray=\"2 4\"/>",
            ROOM.1
        );
    }
    svg
}

/// The line itself; of many samples in one place the largest, so that no peak is lost.
fn line(samples: &[Sample], scale: &Scale) -> String {
    let together = samples.len().div_ceil(POINTS).max(1);
    let points: Vec<String> = samples
        .chunks(together)
        .filter_map(|chunk| chunk.iter().max_by(|a, b| a.mib.total_cmp(&b.mib)))
        .map(|sample| format!("{:.1},{:.1}", scale.x(sample.at), scale.y(sample.mib)))
        .collect();
    format!(
        "<polyline fill=\"none\" stroke=\"#2060c0\" stroke-width=\"1.5\" points=\"{}\"/>\n",
        points.join(" ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u32) -> Vec<Sample> {
        let mib = |at: u32| if at == 777 { 200.0 } else { 40.0 };
        (0..count)
            .map(|at| Sample {
                at: f64::from(at),
                mib: mib(at),
            })
            .collect()
    }

    /// Every element is closed, and no attribute lacks its quotes.
    fn is_well_formed(svg: &str) -> bool {
        let mut open = Vec::new();
        for tag in svg.split('<').skip(1) {
            let Some((tag, _)) = tag.split_once('>') else {
                return false;
            };
            if tag.matches('"').count() % 2 != 0 {
                return false;
            }
            let name = tag
                .trim_start_matches('/')
                .split([' ', '/'])
                .next()
                .unwrap_or_default();
            if tag.starts_with('/') {
                if open.pop() != Some(name) {
                    return false;
                }
            } else if !tag.ends_with('/') {
                open.push(name);
            }
        }
        open.is_empty()
    }

    #[test]
    fn the_picture_is_well_formed_and_has_every_peak() {
        let svg = draw(&samples(1_800), 256 << 20);
        assert!(svg.starts_with("<svg ") && is_well_formed(&svg), "{svg}");
        assert!(!is_well_formed("<svg><g></svg>"));
        let points = svg
            .split("points=\"")
            .nth(1)
            .and_then(|rest| rest.split('"').next())
            .unwrap();
        let heights: Vec<f64> = points
            .split(' ')
            .map(|p| p.split_once(',').unwrap().1.parse().unwrap())
            .collect();
        assert!(heights.len() <= POINTS);
        let high = heights.iter().filter(|y| **y < heights[0] - 50.0).count();
        assert_eq!(high, 1, "the peak is one point");
        assert!(svg.contains(">256<") && svg.contains(">128<") && svg.contains(">25<"));
    }

    #[test]
    fn nothing_is_a_picture_too() {
        assert!(is_well_formed(&draw(&[], 256 << 20)) && is_well_formed(&draw(&samples(30), 1 << 20)));
    }
}
