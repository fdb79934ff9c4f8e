//! Kubeconfigs that were tampered with: good ones, edited a few times at random.

use proptest::prelude::*;
use proptest::sample::{Index, select};

use super::documents::{forms, valid, with_certificate};

/// The inserted texts: the syntax of YAML and JSON, and terms of kubeconfigs.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "&a ", "*a", "<<: ", "<<: *a\n", "!!binary ", "!!str ", "!!null ", "!!bool ", "!!set ", "! ", "!x ", "---\n", "...\n", "- ",
    "? ", ": ", ":", ",", "[", "]", "{", "}", "{}", "[]", "#", " #", "|\n", ">-\n", "|+\n", "'", "\"", "\\", "\\n", "\\x00", "\\u0041",
    "\\/", "\\ud83d\\ude00", "\t", " ", "  ", "\n", "\r", "\r\n", "\u{feff}", "\u{85}", "\u{2028}", "\u{a0}", "\0", "%YAML 1.2\n", "%TAG ! a\n",
    "null", "~", "yes", "no", "true", "false", "0", "1e3", "0x1", ".inf", "=", "=\n", "é", "@", "`", "/", "//", "?", ".", "localhost", "127.1",
    "exec: {command: sh}\n", "token: other\n", "\"token\":\"other\",", "\"exec\":{},", "as: admin\n", "users: []\n", "name: hub\n",
    "current-context: spare\n", "certificate-authority: /x\n", "server: https://other\n", "insecure-skip-tls-verify: false\n",
    "disable-compression: no\n", "preferences: {colors: on}\n", "namespace: ~\n", "extensions: [{name: a, extension: .nan}]\n",
    "extensions: [{name: a, extension: {b: !!binary eA==}}]\n", "tls-server-name: Other.\n", "LS0t", "-----BEGIN CERTIFICATE-----",
];

/// One change. Places are chosen by line and then within it, because most bytes are those of certificates.
#[derive(Clone, Debug)]
enum Edit {
    /// A text is inserted.
    Put(Index, Index, &'static str),
    /// A text is inserted with the indentation of a line, before it.
    PutLine(Index, &'static str),
    /// The text after the first colon of a line is replaced.
    Replace(Index, &'static str),
    /// A character goes.
    Cut(Index, Index),
    /// A line goes.
    CutLine(Index),
    /// A line is there again, somewhere else.
    Copy(Index, Index),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    let word = || select(WORDS);
    prop_oneof![
        (place(), place(), word()).prop_map(|(line, at, word)| Edit::Put(line, at, word)),
        (place(), word()).prop_map(|(line, word)| Edit::PutLine(line, word)),
        (place(), word()).prop_map(|(line, word)| Edit::Replace(line, word)),
        (place(), place()).prop_map(|(line, at)| Edit::Cut(line, at)),
        place().prop_map(Edit::CutLine),
        (place(), place()).prop_map(|(from, to)| Edit::Copy(from, to)),
    ]
}

impl Edit {
    fn apply(&self, lines: &mut Vec<String>) {
        if lines.is_empty() {
            return;
        }
        match self {
            Self::Put(line, at, word) => {
                let line = line.get_mut(lines);
                let at = place(line, *at);
                line.insert_str(at, word);
            }
            Self::PutLine(line, word) => {
                let at = line.index(lines.len());
                let indent: String = lines[at].chars().take_while(|c| *c == ' ').collect();
                lines.insert(at, format!("{indent}{word}"));
            }
            Self::Replace(line, word) => {
                let line = line.get_mut(lines);
                if let Some(colon) = line.find(": ") {
                    line.replace_range(colon + 2.., &format!("{word}\n"));
                }
            }
            Self::Cut(line, at) => {
                let line = line.get_mut(lines);
                let at = place(line, *at);
                if at < line.len() {
                    line.remove(at);
                }
            }
            Self::CutLine(line) => {
                let at = line.index(lines.len());
                lines.remove(at);
            }
            Self::Copy(from, to) => {
                let line = from.get(lines).clone();
                let at = to.index(lines.len());
                lines.insert(at, line);
            }
        }
    }
}

/// A place between two characters of a line.
fn place(line: &str, at: Index) -> usize {
    let places: Vec<usize> = line
        .char_indices()
        .map(|(at, _)| at)
        .chain([line.len()])
        .collect();
    places[at.index(places.len())]
}

/// A text with some changes.
pub fn edited(texts: Vec<String>) -> impl Strategy<Value = String> {
    (select(texts), proptest::collection::vec(edit(), 1..5)).prop_map(|(text, edits)| {
        let mut lines: Vec<String> = text.split_inclusive('\n').map(str::to_owned).collect();
        for edit in edits {
            edit.apply(&mut lines);
        }
        lines.concat()
    })
}

/// Good kubeconfigs in every form.
pub fn good() -> Vec<String> {
    let documents = [valid(), with_certificate()];
    let texts = documents.iter().flat_map(forms);
    texts.map(|(_, text)| text).collect()
}
