//! What others wrote, for a line of a log.

/// A text that others chose, made safe and short for a line of a log.
pub(in crate::plan) fn shown(text: &str) -> String {
    let cut: String = text.chars().take(100).collect();
    cut.escape_debug().to_string()
}

/// The first of many, and how many more there are.
pub(in crate::plan) fn some_of(all: &[String]) -> String {
    const SHOWN: usize = 5;
    let more = all.len().saturating_sub(SHOWN);
    let first = all.iter().take(SHOWN).cloned().collect::<Vec<_>>().join(", ");
    if more == 0 {
        first
    } else {
        format!("{first} and {more} more")
    }
}
