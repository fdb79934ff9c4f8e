//! A value tree to block-style YAML that every YAML 1.1 and 1.2 reader reads back as the same value.
//!
//! Why not a library: the text is part of a Helm template, where `{{ … }}` in a string is evaluated before YAML is read. A string
//! with an action must therefore be written the way Go's writer does it (plain, then single quotes, then a literal block),
//! because a backslash inside an action, as double quotes need it, is a template error. serde-saphyr lets the style be chosen by
//! the type of a value, and here it follows from the text. Strings without an action are quoted whenever any reader could take
//! them for something else.

use serde_json::{Map, Number, Value};

/// Where writing stops, in bytes. Indentation makes a deep value much longer than its source, and the caller refuses what
/// is longer than this anyway.
pub const MAX_BYTES: usize = 5 * 1024 * 1024;
/// Longest implicit key in bytes; readers give up at 1024 characters.
const MAX_SIMPLE_KEY: usize = 512;
/// Texts that YAML 1.1 or 1.2 readers take for something else than a string, in lower case.
const WORDS: [&str; 11] = [
    "null", "~", "true", "false", "yes", "no", "y", "n", "on", "off", "<<",
];

/// `value` as the lines that follow a key at column `indent`, with its own leading space or line break.
///
/// `key:` + `after_key(value, 0)` is a complete entry; there is no line break at the end.
#[must_use]
pub fn after_key(value: &Value, indent: usize) -> String {
    let mut out = String::new();
    write_after_key(&mut out, value, indent);
    out
}

/// A mapping as lines at column 0, each with its line break; `{}` for an empty one.
#[must_use]
pub fn document(map: &Map<String, Value>) -> String {
    if map.is_empty() {
        return "{}\n".to_owned();
    }
    let mut out = String::new();
    write_map(&mut out, map, 0, true);
    out.push('\n');
    out
}

/// `text` as a one-line or literal scalar after a key at column `indent`, without the space before it.
#[must_use]
pub fn scalar(text: &str, indent: usize) -> String {
    let shape = ScalarStyles::of(text);
    if text.contains('\n') && shape.literal {
        return literal(text, indent + 2);
    }
    flow_scalar(text, &shape)
}

/// `text` in double quotes, with every character escaped that a reader may refuse or fold; also valid JSON.
#[must_use]
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            // All special characters are below U+10000, so four digits are enough.
            c if is_special(c) => out.extend(["\\u", &format!("{:04x}", u32::from(c))]),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// `text` as a literal block whose lines stand at column `indent`, including the `|` line.
fn literal(text: &str, indent: usize) -> String {
    let body = text.trim_end_matches('\n');
    let chomping = match text.len() - body.len() {
        0 => "-",
        1 if !body.is_empty() => "",
        _ => "+",
    };
    // Without the indicator, leading blanks or empty lines would set the indentation of the block, or be refused; and what an
    // action leaves of the first line is unknown here.
    let open = text.starts_with([' ', '\t', '\n']) || text.contains("{{");
    let indicator = if open { "2" } else { "" };
    let mut out = format!("|{indicator}{chomping}");
    let lines = text.strip_suffix('\n').unwrap_or(text);
    for line in lines.split('\n') {
        if out.len() > MAX_BYTES {
            break;
        }
        out.push('\n');
        if !line.is_empty() {
            pad(&mut out, indent);
            out.push_str(line);
        }
    }
    out
}

fn write_after_key(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Object(map) if !map.is_empty() => {
            out.push('\n');
            write_map(out, map, indent + 2, false);
        }
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_seq(out, items, indent, false);
        }
        leaf => {
            out.push(' ');
            write_leaf(out, leaf, indent);
        }
    }
}

fn write_leaf(out: &mut String, value: &Value, indent: usize) {
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(flag) => out.push_str(if *flag { "true" } else { "false" }),
        Value::Number(number) => out.push_str(&number_text(number)),
        Value::String(text) => out.push_str(&scalar(text, indent)),
        Value::Array(_) => out.push_str("[]"),
        Value::Object(_) => out.push_str("{}"),
    }
}

/// Writes entries at column `indent`; the first one where the cursor is, if `inline`.
fn write_map(out: &mut String, map: &Map<String, Value>, indent: usize, inline: bool) {
    let mut entries: Vec<_> = map.iter().collect();
    entries.sort_unstable_by_key(|(key, _)| *key);
    for (index, (key, value)) in entries.into_iter().enumerate() {
        if out.len() > MAX_BYTES {
            return;
        }
        if index > 0 {
            out.push('\n');
        }
        if index > 0 || !inline {
            pad(out, indent);
        }
        write_entry(out, key, value, indent);
    }
}

fn write_entry(out: &mut String, key: &str, value: &Value, indent: usize) {
    let text = if key.contains('\n') {
        quoted(key)
    } else {
        flow_scalar(key, &ScalarStyles::of(key))
    };
    if text.len() <= MAX_SIMPLE_KEY {
        out.push_str(&text);
        out.push(':');
        return write_after_key(out, value, indent);
    }
    out.push_str("? ");
    out.push_str(&text);
    out.push('\n');
    pad(out, indent);
    out.push(':');
    // After an explicit key a sequence may not begin at the key's own column.
    match value {
        Value::Array(items) if !items.is_empty() => {
            out.push('\n');
            write_seq(out, items, indent + 2, false);
        }
        other => write_after_key(out, other, indent),
    }
}

fn write_seq(out: &mut String, items: &[Value], indent: usize, inline: bool) {
    for (index, item) in items.iter().enumerate() {
        if out.len() > MAX_BYTES {
            return;
        }
        if index > 0 {
            out.push('\n');
        }
        if index > 0 || !inline {
            pad(out, indent);
        }
        out.push_str("- ");
        match item {
            Value::Object(map) if !map.is_empty() => write_map(out, map, indent + 2, true),
            Value::Array(items) if !items.is_empty() => write_seq(out, items, indent + 2, true),
            leaf => write_leaf(out, leaf, indent),
        }
    }
}

fn pad(out: &mut String, columns: usize) {
    out.extend(std::iter::repeat_n(' ', columns));
}

fn number_text(number: &Number) -> String {
    let Some(float) = number.as_f64().filter(|_| number.is_f64()) else {
        return number.to_string();
    };
    if float.fract() == 0.0 && float.abs() < 1e21 {
        return format!("{float:.0}");
    }
    if (1e-5..1e21).contains(&float.abs()) {
        return float.to_string();
    }
    let text = format!("{float:e}");
    if text.contains("e-") {
        text
    } else {
        text.replace('e', "e+")
    }
}

fn flow_scalar(text: &str, shape: &ScalarStyles) -> String {
    let action = text.contains("{{");
    if !shape.single {
        quoted(text)
    } else if shape.plain && (action || !is_ambiguous(text)) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', "''"))
    }
}

/// Characters that a reader refuses, drops, or takes for a line break; they need an escape, hence double quotes.
fn is_special(c: char) -> bool {
    matches!(c, '\0'..='\u{9}' | '\u{b}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{2028}' | '\u{2029}' | '\u{feff}' | '\u{fffe}' | '\u{ffff}')
}

/// A values template with the line breaks that a block of YAML has, whichever editor wrote it, and without a byte order mark.
pub(super) fn with_line_breaks(template: &str) -> String {
    let text = template.trim_start_matches('\u{feff}');
    text.replace("\r\n", "\n").replace('\r', "\n")
}

/// Whether a block of lines holds this text as it is.
pub(super) fn is_block(text: &str) -> bool {
    !text.chars().any(|c| c != '\t' && is_special(c))
}

/// Whether a plain scalar of this text could be read as anything but this string.
fn is_ambiguous(text: &str) -> bool {
    let Some(first) = text.chars().next() else {
        return true;
    };
    // The blank is there for timestamps, which YAML 1.1 also writes as date, blanks, time, blanks, zone.
    let numeric = first.is_ascii_digit()
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"_.:+- ".contains(&byte));
    let safe_start = first.is_ascii_alphanumeric() || matches!(first, '/' | '^' | '_');
    let found = text.len() <= 5 && WORDS.contains(&text.to_ascii_lowercase().as_str());
    numeric || !safe_start || found
}

/// Which styles can hold a text unchanged.
struct ScalarStyles {
    plain: bool,
    single: bool,
    literal: bool,
}

impl ScalarStyles {
    fn of(text: &str) -> Self {
        let special = text.chars().any(is_special);
        let broken = text.contains('\n');
        let blank_edge = text.starts_with([' ', '\n']) || text.ends_with([' ', '\n']);
        let single = !special && !broken;
        Self {
            plain: single && !blank_edge && !text.is_empty() && !has_indicator(text),
            single,
            literal: broken && is_block(text),
        }
    }
}

/// Whether some character of `text` has a meaning in YAML where it is, in block context.
fn has_indicator(text: &str) -> bool {
    let first = text.chars().next().unwrap_or_default();
    let lonely = text.len() == 1 || text[first.len_utf8()..].starts_with(' ');
    text.starts_with("---")
        || text.starts_with("...")
        || "#,[]{}&*!|>'\"%@`".contains(first)
        || ("?:-".contains(first) && lonely)
        || text.contains(": ")
        || text.contains(" #")
        || text.ends_with(':')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::renderer::document;
    use proptest::prelude::*;
    use serde_json::json;

    /// What a reader makes of `value` under a key, at some depth.
    fn read_back(value: &Value) -> Value {
        let text = format!("root:\n  key:{}\n  next: 1\n", after_key(value, 2));
        let read = document::parse(text.as_bytes()).unwrap_or_else(|error| panic!("{error}\n{text}"));
        assert_eq!(read["root"]["next"], 1, "{text}");
        read["root"]["key"].clone()
    }

    #[test]
    fn styles_are_the_ones_go_chooses() {
        for (text, yaml) in [
            ("example.com/image", "example.com/image"),
            ("^1.0", "^1.0"),
            (
                "{{ .resources.resource1.tag }}",
                "'{{ .resources.resource1.tag }}'",
            ),
            ("a {{ .x }}", "a {{ .x }}"),
            ("it's {{ .x }}", "it's {{ .x }}"),
            ("{{ default \"it's\" .x }}", "'{{ default \"it''s\" .x }}'"),
            ("a: {{ .x }}", "'a: {{ .x }}'"),
            ("{{ .a }}\n{{ .b }}", "|2-\n  {{ .a }}\n  {{ .b }}"),
            ("", "''"),
            ("1.0", "'1.0'"),
            ("yes", "'yes'"),
            ("2001-12-14", "'2001-12-14'"),
            ("2001-12-14 21:59:43", "'2001-12-14 21:59:43'"),
            ("2001-12-14 21:59:43.10 -5", "'2001-12-14 21:59:43.10 -5'"),
            ("2001-12-14t21:59:43.10-05:00", "'2001-12-14t21:59:43.10-05:00'"),
            ("a\tb", "\"a\\tb\""),
            ("a\u{2028}b", "\"a\\u2028b\""),
            ("a\n", "|\n  a"),
            ("a\n\n", "|+\n  a\n"),
            (" a\nb", "|2-\n   a\n  b"),
            ("a \nb", "|-\n  a \n  b"),
            ("\ta\nb", "|2-\n  \ta\n  b"),
            ("😀", "'😀'"),
        ] {
            assert_eq!(scalar(text, 0), yaml, "{text:?}");
        }
    }

    #[test]
    fn a_tree() {
        let value =
            json!({"b": [1, [2, {"x": "y", "z": []}], {"k": {}}], "a": {"c": null, "d": true}, "1": 1.5});
        let yaml = "\n  '1': 1.5\n  a:\n    c: null\n    d: true\n  b:\n  - 1\n  - - 2\n    - x: 'y'\n      z: []\n  - k: {}";
        assert_eq!(after_key(&value, 0), yaml);
        assert_eq!(read_back(&value), value);
        assert_eq!(document(&Map::new()), "{}\n");
    }

    /// Holds: X2.
    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn awkward_strings_survive_as_values_keys_and_items() {
        let long = "k".repeat(2000);
        let texts = [
            "",
            " ",
            "\n",
            "\n\n",
            " \n",
            "\n ",
            "a\n",
            "a\n\n",
            "a\n\nb",
            " a",
            "a ",
            "\ta",
            "a\r\nb",
            "a\u{85}b",
            "a\u{2028}b",
            "\u{feff}a",
            "\0",
            "\u{7f}",
            "\u{9f}",
            "null",
            "~",
            "y",
            "N",
            "TRUE",
            "off",
            "<<",
            "=",
            ".inf",
            "-.INF",
            ".nan",
            "1",
            "-1",
            "+1",
            "0x1F",
            "0o7",
            "017",
            "1e3",
            "1_000",
            "12:30",
            "1.",
            ".5",
            "2001-01-01",
            "2001-12-14 21:59:43",
            "2001-12-14 21:59:43.10 -5",
            "!!str x",
            "!x",
            "&a",
            "*a",
            "---",
            "--- a",
            "...",
            "- a",
            "-",
            "-a",
            "? a",
            "?",
            ": a",
            ":",
            ":a",
            "a:",
            "a: b",
            "a #b",
            "a#b",
            "#a",
            "%a",
            "@a",
            "`a`",
            "|",
            ">-",
            "[a]",
            "{a}",
            "a, b",
            "'",
            "''",
            "\"",
            "\\",
            "it's \"x\"",
            "{{",
            "}}",
            "{{ .x }}",
            "{{- if .x -}}",
            "<< .x >>",
            "a\n---\nb: c",
            "a\n  b\n c",
            "  a\nb",
            "a\n\tb",
            "\ta\nb",
            "\t\n",
            "a \n b ",
            " \n \n",
            "a\n ",
            "a:\n",
            "#\n",
            "😀",
            "日本語",
            "a\u{300}",
            "\u{10ffff}",
            &long,
        ];
        for text in texts {
            assert_eq!(read_back(&json!(text)), json!(text), "{text:?}");
            let tree = json!({"m": {text: [text, {text: text}], "z": text}, "s": [[text], text]});
            assert_eq!(read_back(&tree), tree, "{text:?}");
        }
    }

    #[test]
    fn numbers() {
        for (json, yaml) in [
            ("12345678901234567890", "12345678901234567890"),
            ("-1", "-1"),
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("1e21", "1e+21"),
            ("1e20", "100000000000000000000"),
            ("1e-7", "1e-7"),
            ("-2.5e30", "-2.5e+30"),
            ("0.1", "0.1"),
        ] {
            let number: Number = serde_json::from_str(json).unwrap();
            assert_eq!(number_text(&number), yaml);
        }
    }

    /// Holds: X3.
    #[test]
    fn writing_stops_once_the_reader_is_gone() {
        let deep = |leaf: Value| (0..100).fold(leaf, |inner, _| Value::Array(vec![inner]));
        for leaf in [
            json!(vec![0; 200_000]),
            json!("x\n".repeat(200_000)),
            json!(vec![json!({"a": 0}); 200_000]),
        ] {
            let length = after_key(&deep(leaf), 0).len();
            assert!((MAX_BYTES..MAX_BYTES + 2000).contains(&length), "{length}");
        }
    }

    fn any_text() -> impl Strategy<Value = String> {
        prop_oneof![
            "\\PC{0,12}",
            proptest::collection::vec(any::<char>(), 0..8).prop_map(String::from_iter),
            "[ \\n\\t:#\\-?'\"{}\\[\\]|>&*!%@`,a<.0-9~y\\r\u{85}\u{2028}\u{feff}]{0,10}",
        ]
    }

    fn any_value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            (-1e15f64..1e15)
                .prop_filter("integers come back as integers", |x| x.fract() != 0.0)
                .prop_map(Value::from),
            any_text().prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 5, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(any_text(), inner, 0..4)
                    .prop_map(|map| Value::Object(map.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

        /// Holds: X2.
        #[test]
        fn every_value_is_read_back(value in any_value()) {
            prop_assert_eq!(read_back(&value), value);
        }

        #[test]
        fn quoted_text_is_json_and_yaml(text in any_text()) {
            let quoted = quoted(&text);
            prop_assert_eq!(&serde_json::from_str::<String>(&quoted).unwrap(), &text);
            let read = document::parse(format!("k: {quoted}\n#").as_bytes()).unwrap();
            prop_assert_eq!(&read["k"], &Value::from(text));
        }

        /// Holds: X2.
        #[test]
        fn an_action_never_gets_a_backslash(before in "[a-z :'\"#-]{0,6}", inside in "[a-z .'\"]{0,8}", after in "[a-z :'\"]{0,6}") {
            let text = format!("{before}{{{{{inside}}}}}{after}");
            prop_assert!(!scalar(&text, 0).contains('\\'), "{}", scalar(&text, 0));
        }
    }
}
