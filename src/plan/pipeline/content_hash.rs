//! The hash by which the hub tells contents apart.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::api::names::hex;

/// SHA-256 of a value as JSON with sorted keys, in hex.
#[must_use]
pub fn content_hash(value: &impl Serialize) -> String {
    let json = serde_json::to_vec(value).unwrap_or_else(|_| b"null".to_vec());
    text_hash(&json)
}

/// The same of a value by its JSON text, if that is written as `serde_json` writes it, whatever the order of its keys. Of a text that is
/// written otherwise, it is another hash.
#[must_use]
fn text_hash(json: &[u8]) -> String {
    hex(&Sha256::digest(KeySorter::sorted(json)))
}

/// Deepest value of which the keys are sorted: deeper than `serde_json` decodes what the hub hashes, and no deeper than a stack is.
const DEEPEST: usize = 256;

/// Sorts the keys of a JSON text, as `serde_json` writes one: as by way of its `Value`, at a tenth of the allocations, which a decision
/// about a Target has several times.
struct KeySorter<'t> {
    text: &'t [u8],
    at: usize,
    depth: usize,
    out: Vec<u8>,
}

impl<'t> KeySorter<'t> {
    fn sorted(text: &'t [u8]) -> Vec<u8> {
        let out = Vec::with_capacity(text.len());
        let mut sorter = Self {
            text,
            at: 0,
            depth: 0,
            out,
        };
        sorter.value();
        sorter.out
    }

    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or_default()
    }

    /// Passes over one byte, which is known.
    fn skip(&mut self) {
        self.at += 1;
    }

    /// Copies one byte.
    fn copy(&mut self) {
        self.out.push(self.peek());
        self.at += 1;
    }

    fn value(&mut self) {
        self.depth += 1;
        match self.peek() {
            // Nothing is read after it.
            _ if self.depth > DEEPEST => self.at = self.text.len(),
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => _ = self.string(),
            _ => self.scalar(),
        }
        self.depth -= 1;
    }

    /// Copies a string; returns it without its quotes, as it is written.
    fn string(&mut self) -> &'t [u8] {
        let begin = self.at;
        let mut end = begin + 1;
        while let Some(byte) = self.text.get(end).filter(|byte| **byte != b'"') {
            end += if *byte == b'\\' { 2 } else { 1 };
        }
        self.at = (end + 1).min(self.text.len());
        self.out.extend_from_slice(&self.text[begin..self.at]);
        self.text.get(begin + 1..end).unwrap_or_default()
    }

    /// Copies a number, a truth value or null.
    fn scalar(&mut self) {
        self.copy();
        while self.at < self.text.len() && !matches!(self.peek(), b',' | b']' | b'}') {
            self.copy();
        }
    }

    fn array(&mut self) {
        self.copy();
        while self.at < self.text.len() && self.peek() != b']' {
            self.value();
            if self.peek() == b',' {
                self.copy();
            }
        }
        self.copy();
    }

    /// Copies an object member by member, and puts the members in order afterwards where they were not.
    fn object(&mut self) {
        self.copy();
        let (begin, mut members, mut is_sorted) = (self.out.len(), BTreeMap::new(), true);
        while self.at < self.text.len() && self.peek() != b'}' {
            if self.out.len() > begin {
                self.out.push(b',');
            }
            let start = self.out.len();
            let key = key(self.string());
            // The colon.
            self.copy();
            self.value();
            if self.peek() == b',' {
                self.skip();
            }
            is_sorted &= members.last_key_value().is_none_or(|(last, _)| *last < key);
            members.insert(key, start..self.out.len());
        }
        if !is_sorted {
            self.put_in_order(begin, members.into_values());
        }
        self.copy();
    }

    /// Replaces what was copied since `begin` by these parts of it.
    fn put_in_order(&mut self, begin: usize, parts: impl Iterator<Item = Range<usize>>) {
        let copied = self.out.split_off(begin);
        for part in parts {
            if self.out.len() > begin {
                self.out.push(b',');
            }
            let part = part.start - begin..part.end - begin;
            self.out.extend_from_slice(&copied[part]);
        }
    }
}

/// A key without the escapes with which it is written.
fn key(written: &[u8]) -> Cow<'_, [u8]> {
    if !written.contains(&b'\\') {
        return Cow::Borrowed(written);
    }
    let quoted = [b"\"", written, b"\""].concat();
    let text: Option<String> = serde_json::from_slice(&quoted).ok();
    text.map_or(Cow::Borrowed(written), |text| Cow::Owned(text.into_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Map, Value, json};

    use super::*;

    /// By way of a `Value`, which keeps its keys sorted.
    fn sorted_by_value(value: &impl Serialize) -> String {
        serde_json::to_value(value).unwrap().to_string()
    }

    fn is_sorted(value: &impl Serialize) -> String {
        let sorted = String::from_utf8(KeySorter::sorted(&serde_json::to_vec(value).unwrap())).unwrap();
        assert_eq!(sorted, sorted_by_value(value));
        sorted
    }

    /// An object whose members are written in this order, also where a key comes twice.
    struct Unsorted(Vec<(String, Part)>);

    enum Part {
        Plain(Value),
        Object(Unsorted),
        List(Vec<Part>),
    }

    impl Serialize for Unsorted {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            serializer.collect_map(self.0.iter().map(|(key, part)| (key, part)))
        }
    }

    impl Serialize for Part {
        fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
            match self {
                Self::Plain(value) => value.serialize(serializer),
                Self::Object(object) => object.serialize(serializer),
                Self::List(list) => list.serialize(serializer),
            }
        }
    }

    fn scalar() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            any::<u64>().prop_map(Value::from),
            any::<f64>().prop_map(Value::from),
            text().prop_map(Value::from),
        ]
    }

    /// Texts with all that is written with an escape, and with what could be taken for the end of one.
    fn text() -> impl Strategy<Value = String> {
        prop_oneof![
            "[a-c]{0,3}",
            "[\\\\\"{}\\[\\],: a-b\n\u{1}é😀]{0,6}",
            any::<String>()
        ]
    }

    fn part() -> impl Strategy<Value = Part> {
        scalar().prop_map(Part::Plain).prop_recursive(4, 48, 6, |inner| {
            prop_oneof![
                prop::collection::vec((text(), inner.clone()), 0..6)
                    .prop_map(|all| Part::Object(Unsorted(all))),
                prop::collection::vec(inner, 0..6).prop_map(Part::List),
            ]
        })
    }

    impl std::fmt::Debug for Part {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.write_str(&serde_json::to_string(self).unwrap())
        }
    }

    proptest! {
        #[test]
        fn keys_are_sorted_as_a_value_sorts_them(part in part()) {
            is_sorted(&part);
            let text = serde_json::to_vec(&part).unwrap();
            prop_assert_eq!(text_hash(&text), content_hash(&serde_json::to_value(&part).unwrap()));
        }

        /// An API server may write an object in another way.
        #[test]
        fn a_text_that_is_written_otherwise_has_another_hash(part in part()) {
            let (text, spaced) = (serde_json::to_vec(&part).unwrap(), serde_json::to_vec_pretty(&part).unwrap());
            prop_assert_eq!(text == spaced, text_hash(&text) == text_hash(&spaced));
        }

        #[test]
        fn every_text_has_a_hash(text in "[\\[\\]{}\",:\\\\ 0a]{0,40}") {
            prop_assert_eq!(text_hash(text.as_bytes()).len(), 64);
        }
    }

    /// No stack is as deep as a text may be.
    #[test]
    fn what_is_too_deep_has_a_hash_that_no_value_has() {
        let deep = |depth: usize| format!("{}0{}", "[".repeat(depth), "]".repeat(depth));
        let of_text = |text: &str| hex(&Sha256::digest(text));
        let most = deep(DEEPEST - 1);
        assert_eq!(text_hash(most.as_bytes()), of_text(&most));
        for text in [deep(DEEPEST), deep(1_000_000), "{\"a\":".repeat(1_000_000)] {
            assert_ne!(text_hash(text.as_bytes()), of_text(&text));
        }
    }

    #[test]
    fn of_a_key_that_comes_twice_the_last_value_counts() {
        let twice = |keys: &[&str]| {
            let members = keys.iter().enumerate();
            Unsorted(
                members
                    .map(|(at, key)| ((*key).to_owned(), Part::Plain(json!(at))))
                    .collect(),
            )
        };
        assert_eq!(is_sorted(&twice(&["b", "a", "b"])), r#"{"a":1,"b":2}"#);
        assert_eq!(is_sorted(&twice(&["a", "a"])), r#"{"a":1}"#);
    }

    /// The names of charts and versions are made of it, so another hash would render every fleet anew.
    #[test]
    fn the_hash_of_a_content_stays_what_it_is() {
        let content = json!({"b": [1, 2.5, null, true, "x\"\\\n"], "a": {"z": {}, "y": []}, "é": -1});
        let of_text = hex(&Sha256::digest(
            r#"{"a":{"y":[],"z":{}},"b":[1,2.5,null,true,"x\"\\\n"],"é":-1}"#,
        ));
        assert_eq!(content_hash(&content), of_text);
        assert_eq!(
            content_hash(&Value::Object(Map::new())),
            hex(&Sha256::digest("{}"))
        );
    }
}
