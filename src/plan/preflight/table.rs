//! Findings as a table for people.

use super::finding::PreflightFinding;

/// Characters of the two wide columns.
const WIDE: usize = 50;

/// The table: a line of headings, then a row for each finding, with long texts on several lines.
#[must_use]
pub fn render(findings: &[PreflightFinding]) -> String {
    let mut text = row("CHECK", "RESULT", "WHAT", "FIX");
    for finding in findings {
        let what = wrapped(&finding.message);
        let fix = wrapped(&finding.fix);
        let lines = what.len().max(fix.len()).max(1);
        let line = |all: &[String], number: usize| all.get(number).cloned().unwrap_or_default();
        for number in 0..lines {
            let (check, result) = if number == 0 {
                (finding.check.as_str(), finding.result.as_str())
            } else {
                ("", "")
            };
            text += &row(check, result, &line(&what, number), &line(&fix, number));
        }
    }
    text
}

fn row(check: &str, result: &str, what: &str, fix: &str) -> String {
    let line = format!("{check:<20} {result:<8} {what:<WIDE$} {fix}");
    format!("{}\n", line.trim_end())
}

/// The text in lines of at most [`WIDE`] characters; a longer word has a line of its own.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= WIDE => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}
