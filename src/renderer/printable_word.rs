//! What an error may show of a configuration.

use std::fmt;

/// Longest value in bytes that an error shows.
const MAX_FOUND: usize = 63;

/// A value of the configuration that an error may show: a short plain text, or a note that it is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrintableWord(Option<String>);

impl PrintableWord {
    /// What may be shown of a text.
    #[must_use]
    pub fn of(text: &str) -> Self {
        let is_plain = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
        let is_shown = text.len() <= MAX_FOUND && text.chars().all(is_plain);
        Self(is_shown.then(|| text.to_owned()))
    }
}

impl fmt::Display for PrintableWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.as_deref() {
            None => f.write_str("something else than a plain word"),
            Some("") => f.write_str("none"),
            Some(found) => write!(f, "\"{found}\""),
        }
    }
}
