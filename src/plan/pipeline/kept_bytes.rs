//! How much memory the objects of the pipeline take, by which what a namespace may fill is counted.

use std::io;

use serde::Serialize;
use serde_json::Value;
use serde_json::ser::Formatter;

use super::object::PipelineObject;
use super::objects::PipelineObjects;
use crate::plan::task::model::ByteCounter;

/// Most bytes of the objects of one namespace that the hub holds, its versions and tasks apart.
pub const OBJECTS_OF_NAMESPACE: usize = 32 << 20;
/// What an object takes besides its text: its keys, its marks, and what its fields are kept in.
const OBJECT_BYTES: usize = 2048;
/// A node of a map of values, whatever few keys are in it.
const MAP_BYTES: usize = 632;
/// Fewest keys of a node of a map that has several.
const KEYS: usize = 5;
/// A value in a list.
const VALUE_BYTES: usize = 32;
/// A label, besides its text: its part of a map, and two strings.
const LABEL_BYTES: usize = 192;
/// A string of a spec, besides its text, and its part of the list or map that it is in.
pub(super) const STRING_BYTES: usize = 64;
/// What an index takes for a label by which it finds an object.
pub(super) const INDEX_BYTES: usize = 768;

/// Bytes that an object takes: each string takes `string` besides its text, and `free` are its free-form values, which take more than
/// that.
pub(super) fn object_bytes<'v, S: Serialize, T>(
    object: &PipelineObject<S, T>,
    string: usize,
    free: impl Iterator<Item = &'v Value>,
) -> usize {
    let labels = object.labels.iter();
    let labels: usize = labels
        .map(|(key, value)| LABEL_BYTES + key.len() + value.len())
        .sum();
    let spec = object.spec.as_ref().map(JsonSize::of).unwrap_or_default();
    OBJECT_BYTES + labels + spec.bytes + spec.strings * string + free_bytes(free)
}

/// The size of a value as JSON.
#[derive(Default)]
struct JsonSize {
    bytes: usize,
    /// How many strings are in it, keys among them.
    strings: usize,
}

impl JsonSize {
    fn of(value: &impl Serialize) -> Self {
        let (mut bytes, mut strings) = (ByteCounter::default(), StringCount(0));
        let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, &mut strings);
        // Nothing of the pipeline's fails to be written.
        _ = value.serialize(&mut serializer);
        Self {
            bytes: bytes.bytes,
            strings: strings.0,
        }
    }
}

struct StringCount(usize);

impl Formatter for &mut StringCount {
    fn begin_string<W: io::Write + ?Sized>(&mut self, writer: &mut W) -> io::Result<()> {
        self.0 += 1;
        writer.write_all(b"\"")
    }
}

/// Bytes that free-form values take besides their text.
pub(super) fn free_bytes<'v>(values: impl Iterator<Item = &'v Value>) -> usize {
    values.map(structure).sum()
}

/// What the maps and lists of a value take. Values are no deeper than the parser lets them be.
fn structure(value: &Value) -> usize {
    match value {
        Value::Array(values) => values.len() * VALUE_BYTES + values.iter().map(structure).sum::<usize>(),
        Value::Object(map) => {
            map.len().div_ceil(KEYS) * MAP_BYTES + map.values().map(structure).sum::<usize>()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

impl PipelineObjects {
    /// Bytes of the objects of a namespace that tenants fill.
    #[must_use]
    pub fn bytes_within(&self, namespace: &str) -> usize {
        let all = self.tenants_bytes().into_iter().chain([self.registries.bytes()]);
        all.filter_map(|bytes| bytes.get(namespace)).sum()
    }

    /// Whether an object of a namespace can take `after` bytes in place of `before`. One that does not grow always can.
    #[must_use]
    pub fn has_room(&self, namespace: &str, before: usize, after: usize) -> bool {
        after <= before || self.bytes_within(namespace) - before + after <= OBJECTS_OF_NAMESPACE
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_that_are_much_larger_than_their_text_count_as_what_they_take() {
        let deep = (0..100).fold(json!(1), |inner, _| json!({"a": inner}));
        for (value, bytes) in [
            (json!("text"), 0),
            (json!({}), 0),
            (json!({"a": 1, "b": "c"}), MAP_BYTES),
            (json!([1, 2, {"a": 1}]), 3 * VALUE_BYTES + MAP_BYTES),
            (deep, 100 * MAP_BYTES),
        ] {
            assert_eq!(free_bytes([&value].into_iter()), bytes, "{value}");
        }
        let many: serde_json::Map<_, _> = (0..100).map(|key| (key.to_string(), json!(key))).collect();
        assert_eq!(structure(&Value::Object(many)), 20 * MAP_BYTES);
    }

    #[test]
    fn a_text_with_quotes_is_one_string() {
        for (value, strings) in [
            (json!("a"), 1),
            (json!("{\"a\": \"b\"}"), 1),
            (json!({"a": ["b", "c"]}), 3),
            (json!([1, null]), 0),
        ] {
            let size = JsonSize::of(&value);
            assert_eq!(
                (size.strings, size.bytes),
                (strings, value.to_string().len()),
                "{value}"
            );
        }
    }

    #[test]
    fn what_does_not_grow_is_kept_and_what_does_only_while_there_is_room() {
        let objects = PipelineObjects::default();
        for (before, after, has_room) in [
            (0, OBJECTS_OF_NAMESPACE, true),
            (0, OBJECTS_OF_NAMESPACE + 1, false),
            (OBJECTS_OF_NAMESPACE + 1, OBJECTS_OF_NAMESPACE + 1, true),
        ] {
            assert_eq!(objects.has_room("a", before, after), has_room, "{before} {after}");
        }
    }
}
