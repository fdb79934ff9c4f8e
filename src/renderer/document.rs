//! Bytes to a value tree, the way Go's YAML-to-JSON readers do it.
//!
//! The hub writes JSON; people write YAML 1.1. JSON is tried first and then means exactly what it says (a quoted `"y"` stays a
//! key `y`); everything else is YAML, where bare `y`, `on` or `no` are booleans, even as keys. Sizes, depth, aliases and events
//! are bounded, and errors hold a position but none of the input.

use std::fmt;

use serde::de::{Deserialize, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};
use serde_saphyr::options::DuplicateKeyPolicy;

/// Largest configuration in bytes. A Secret holds 1 MiB; the rest is room for people who call the renderer by hand.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Deepest nesting of YAML. Its reader needs some 20 KiB of stack per level in a debug build; JSON may go to 128.
const MAX_DEPTH: usize = 64;
/// Most YAML events: what 4 MiB of the densest legal YAML holds.
const MAX_EVENTS: usize = 4 * 1024 * 1024;
/// Most YAML events that aliases add; people repeat a few lines, bombs repeat themselves.
const MAX_REPLAYED: usize = 100_000;

/// Why a document cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DocumentError {
    /// More than 4 MiB.
    #[error("it is larger than {MAX_BYTES} bytes")]
    TooLarge,
    /// Not UTF-8.
    #[error("it is not UTF-8")]
    NotUtf8,
    /// Not YAML, or beyond a limit of the reader.
    #[error("error unmarshaling JSON or YAML at line {line}, column {column}")]
    Syntax {
        /// Line, from 1; 0 where it is not known.
        line: u64,
        /// Column, from 1; 0 where it is not known.
        column: u64,
    },
}

/// Reads one JSON or YAML 1.1 document; an empty one is `null`.
///
/// # Errors
/// When it is too large, is not UTF-8, or is not a document.
pub fn parse(bytes: &[u8]) -> Result<Value, DocumentError> {
    if bytes.len() > MAX_BYTES {
        return Err(DocumentError::TooLarge);
    }
    if let Ok(value) = serde_json::from_slice(bytes) {
        return Ok(value);
    }
    let text = std::str::from_utf8(bytes).map_err(|_| DocumentError::NotUtf8)?;
    serde_saphyr::from_str_with_options::<Option<Node>>(text, options())
        .map(|node| node.map_or(Value::Null, |node| node.0))
        .map_err(|error| {
            let at = error.location();
            let part = |part: Option<u64>| part.unwrap_or_default();
            DocumentError::Syntax {
                line: part(at.map(|at| at.line())),
                column: part(at.map(|at| at.column())),
            }
        })
}

fn options() -> serde_saphyr::Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_events: MAX_EVENTS,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! { max_total_replayed_events: MAX_REPLAYED },
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        legacy_octal_numbers: true,
        with_snippet: false,
    }
}

/// A number as the text Go makes of it where a string is wanted: `1.10` → `1.1`, `1.0` → `1`, `1e21` → `1e+21`.
#[must_use]
pub fn number_text(number: &Number) -> String {
    match (number.is_f64(), number.as_f64()) {
        (true, Some(float)) => float_text(float),
        _ => number.to_string(),
    }
}

fn float_text(float: f64) -> String {
    // Go formats with 32-bit precision here and switches to exponents outside 1e-4..1e6.
    #[expect(clippy::cast_possible_truncation, reason = "the precision is the contract")]
    let single = float as f32;
    let plain = single == 0.0 || (1e-4..1e6).contains(&single.abs());
    if plain || !single.is_finite() {
        return single.to_string();
    }
    let text = format!("{single:e}");
    match text.split_once('e') {
        Some((digits, exponent)) => {
            let (sign, exponent) = exponent
                .strip_prefix('-')
                .map_or(('+', exponent), |rest| ('-', rest));
            format!("{digits}e{sign}{exponent:0>2}")
        }
        None => text,
    }
}

/// A value read by asking the document what it holds.
struct Node(Value);

/// A mapping key; scalars only.
struct MappingKey(String);

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NodeVisitor).map(Self)
    }
}

impl<'de> Deserialize<'de> for MappingKey {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match deserializer.deserialize_any(NodeVisitor)? {
            Value::String(text) => Ok(Self(text)),
            Value::Bool(flag) => Ok(Self(flag.to_string())),
            Value::Number(number) => Ok(Self(number_text(&number))),
            _ => Err(D::Error::custom("unsupported map key")),
        }
    }
}

struct NodeVisitor;

impl<'de> Visitor<'de> for NodeVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_bool<E>(self, flag: bool) -> Result<Value, E> {
        Ok(Value::Bool(flag))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E: serde::de::Error>(self, number: f64) -> Result<Value, E> {
        Number::from_f64(number)
            .map(Value::Number)
            .ok_or_else(|| E::custom("unsupported number"))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(Node(item)) = access.next_element()? {
            items.push(item);
        }
        Ok(Value::Array(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut map = Map::new();
        while let Some((MappingKey(key), Node(item))) = access.next_entry()? {
            map.insert(key, item);
        }
        Ok(Value::Object(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn yaml(text: &str) -> Value {
        parse(text.as_bytes()).unwrap()
    }

    #[test]
    fn yaml_is_1_1() {
        assert_eq!(
            yaml("y: a\nn: b\nYes: c\nNO: d\n"),
            json!({"true": "c", "false": "d"}),
            "bare words are booleans as keys too"
        );
        assert_eq!(
            yaml("a: [yes, off, On, 'yes', \"n\"]"),
            json!({"a": [true, false, true, "yes", "n"]})
        );
        assert_eq!(
            yaml("{1: a, 1.50: b, 0x10: c, ~x: d}"),
            json!({"1": "a", "1.5": "b", "16": "c", "~x": "d"})
        );
        assert_eq!(
            yaml("a: 0777\nb: 0x1F\nc: 1_000"),
            json!({"a": 511, "b": 31, "c": 1000})
        );
        assert_eq!(
            yaml("a: &x {b: 1}\nc:\n  <<: *x\n  d: 2"),
            json!({"a": {"b": 1}, "c": {"b": 1, "d": 2}})
        );
        assert_eq!(
            yaml("a: 2001-01-01\nb: 12:30"),
            json!({"a": "2001-01-01", "b": "12:30"})
        );
        assert_eq!(yaml("a: 1\na: 2"), json!({"a": 2}));
    }

    #[test]
    fn json_means_what_it_says() {
        assert_eq!(
            yaml(r#"{"y": "n", "<<": {"a": 1}, "t": "\ud83d\ude00\/"}"#),
            json!({"y": "n", "<<": {"a": 1}, "t": "😀/"})
        );
    }

    #[test]
    fn numbers_survive() {
        assert_eq!(
            yaml("a: 12345678901234567890\nb: -9223372036854775808").to_string(),
            r#"{"a":12345678901234567890,"b":-9223372036854775808}"#
        );
        let text = |text: &str| match yaml(text) {
            Value::Number(number) => number_text(&number),
            other => other.to_string(),
        };
        for (input, output) in [
            ("1.10", "1.1"),
            ("1.0", "1"),
            ("1.50", "1.5"),
            ("1e21", "1e+21"),
            ("1e-7", "1e-07"),
            ("-0.5", "-0.5"),
            ("7", "7"),
            ("1e3", "1000"),
            ("1234567.5", "1.2345675e+06"),
            ("0.00001", "1e-05"),
            ("1e6", "1e+06"),
        ] {
            assert_eq!(text(input), output, "{input}");
        }
    }

    #[test]
    fn nothing_is_null() {
        for text in ["", "\n", "# only a comment\n", "~", "null", "---\n"] {
            assert_eq!(yaml(text), Value::Null, "{text:?}");
        }
    }

    /// Holds: X3.
    #[test]
    fn limits() {
        let fails = |text: String| parse(text.as_bytes()).unwrap_err();
        assert_eq!(fails(" ".repeat(MAX_BYTES + 1)), DocumentError::TooLarge);
        assert!(matches!(fails("[".repeat(100_000)), DocumentError::Syntax { .. }));
        assert!(matches!(
            fails(format!("{}1{}", "[".repeat(200), "]".repeat(200))),
            DocumentError::Syntax { .. }
        ));
        assert!(matches!(fails("a: .nan".into()), DocumentError::Syntax { .. }));
        assert!(matches!(fails("? [a]\n: b".into()), DocumentError::Syntax { .. }));
        assert_eq!(parse(b"a: \xff").unwrap_err(), DocumentError::NotUtf8);
        let mut bomb = String::from("a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n");
        for n in 1..10 {
            let previous = format!("*a{},", n - 1).repeat(10);
            bomb.extend([format!("a{n}: &a{n} [{previous}]\n")]);
        }
        assert!(matches!(fails(bomb), DocumentError::Syntax { .. }));
    }

    /// Holds: E1, E3.
    #[test]
    fn an_error_says_where_but_not_what() {
        let error = parse(b"ok: 1\ninvalid: yaml: canary: [").unwrap_err();
        assert!(
            matches!(error, DocumentError::Syntax { line: 2, .. }),
            "{error:?}"
        );
        assert!(!format!("{error} {error:?}").contains("canary"));
    }

    proptest! {
        /// Holds: X3.
        #[test]
        fn no_input_panics(text in "[\\PC\\n]{0,200}") {
            let _ = parse(text.as_bytes());
        }
    }
}
