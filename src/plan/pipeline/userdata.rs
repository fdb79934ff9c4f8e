//! The data that every release of a Target is handed: that of its Profiles, and over it that of the Target.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

/// Merges the data of Profiles beneath that of the Target. Maps are merged deeply, a null removes a key, all else is replaced.
///
/// A key that two Profiles set differently is left out, and its path is returned: neither may win.
#[must_use]
pub fn merged<'v>(
    profiles: impl IntoIterator<Item = &'v Value>,
    target: Option<&Value>,
) -> (Option<Value>, Vec<String>) {
    let (mut below, mut conflicts) = (None, BTreeSet::new());
    for data in profiles {
        below = Some(match below {
            None => data.clone(),
            Some(known) => beside(known, data, &mut String::new(), &mut conflicts),
        });
    }
    for path in &conflicts {
        if let Some(data) = &mut below {
            remove(data, path);
        }
    }
    let merged = match (below, target) {
        (Some(below), Some(target)) => Some(over(below, target)),
        (below, target) => below
            .map(without_nulls)
            .or_else(|| target.cloned().map(without_nulls)),
    };
    (merged, conflicts.into_iter().collect())
}

/// Two Profiles' data together.
fn beside(known: Value, data: &Value, path: &mut String, conflicts: &mut BTreeSet<String>) -> Value {
    match (known, data) {
        (Value::Object(mut known), Value::Object(data)) => {
            for (key, value) in data {
                let length = path.len();
                path.push('/');
                path.push_str(&escaped(key));
                let together = match known.remove(key) {
                    None => value.clone(),
                    Some(before) => beside(before, value, path, conflicts),
                };
                known.insert(key.clone(), together);
                path.truncate(length);
            }
            Value::Object(known)
        }
        (known, data) => {
            if known != *data {
                conflicts.insert(path.clone());
            }
            known
        }
    }
}

/// The data of the Target over what is below it.
fn over(below: Value, target: &Value) -> Value {
    match (below, target) {
        (Value::Object(mut below), Value::Object(target)) => {
            for (key, value) in target {
                let known = below.remove(key);
                if !value.is_null() {
                    let value = known.map_or_else(|| value.clone(), |known| over(known, value));
                    below.insert(key.clone(), value);
                }
            }
            without_nulls(Value::Object(below))
        }
        (_, target) => without_nulls(target.clone()),
    }
}

/// Data without the keys whose value is null: nothing is below them that they could remove.
fn without_nulls(data: Value) -> Value {
    match data {
        Value::Object(map) => {
            let kept = map.into_iter().filter(|(_, value)| !value.is_null());
            Value::Object(
                kept.map(|(key, value)| (key, without_nulls(value)))
                    .collect::<Map<_, _>>(),
            )
        }
        other => other,
    }
}

/// A key as a JSON pointer has it.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

fn remove(data: &mut Value, path: &str) {
    let Some((parent, key)) = path.rsplit_once('/') else {
        *data = Value::Object(Map::new());
        return;
    };
    let key = key.replace("~1", "/").replace("~0", "~");
    if let Some(Value::Object(map)) = data.pointer_mut(parent) {
        map.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn the_target_wins_maps_merge_and_a_null_removes() {
        let rows = [
            (vec![], None, None),
            (vec![], Some(json!({"a": null, "b": 1})), Some(json!({"b": 1}))),
            (vec![json!({"a": 1})], None, Some(json!({"a": 1}))),
            (
                vec![json!({"a": 1})],
                Some(json!({"a": 2})),
                Some(json!({"a": 2})),
            ),
            (
                vec![json!({"a": {"b": 1, "c": 2}})],
                Some(json!({"a": {"b": null}})),
                Some(json!({"a": {"c": 2}})),
            ),
            (
                vec![json!({"a": [1, 2]})],
                Some(json!({"a": [3]})),
                Some(json!({"a": [3]})),
            ),
            (
                vec![json!({"a": {"x": 1}}), json!({"a": {"y": 2}})],
                None,
                Some(json!({"a": {"x": 1, "y": 2}})),
            ),
        ];
        for (profiles, target, expected) in rows {
            let (data, conflicts) = merged(&profiles, target.as_ref());
            assert_eq!((&data, conflicts), (&expected, vec![]), "{profiles:?} {target:?}");
        }
    }

    #[test]
    fn what_two_profiles_set_differently_is_of_neither() {
        let profiles = [json!({"a": {"b/c": 1}, "d": 1}), json!({"a": {"b/c": 2}, "d": 1})];
        let (data, conflicts) = merged(&profiles, None);
        assert_eq!(
            (data, conflicts),
            (Some(json!({"a": {}, "d": 1})), vec!["/a/b~1c".to_owned()])
        );
        // A third that agrees with one of them changes nothing.
        let profiles = [profiles[0].clone(), profiles[1].clone(), profiles[0].clone()];
        assert_eq!(merged(&profiles, None).0, Some(json!({"a": {}, "d": 1})));
        let (data, _) = merged(&profiles, Some(&json!({"a": {"b/c": 3}})));
        assert_eq!(data, Some(json!({"a": {"b/c": 3}, "d": 1})));
    }

    fn tree() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![Just(Value::Null), (0..3i32).prop_map(Value::from)];
        leaf.prop_recursive(3, 12, 3, |inner| {
            proptest::collection::btree_map("[a-c]", inner, 0..3)
                .prop_map(|map| Value::Object(map.into_iter().collect()))
        })
    }

    fn map() -> impl Strategy<Value = Value> {
        proptest::collection::btree_map("[a-c]", tree(), 0..3)
            .prop_map(|map| Value::Object(map.into_iter().collect()))
    }

    proptest! {
        #[test]
        fn the_order_of_profiles_does_not_matter(a in map(), b in map(), target in map()) {
            prop_assert_eq!(merged([&a, &b], Some(&target)), merged([&b, &a], Some(&target)));
        }

        #[test]
        fn what_the_target_says_stands(a in map(), target in map()) {
            let (data, _) = merged([&a], Some(&target));
            let data = data.unwrap();
            for (key, value) in target.as_object().unwrap() {
                match value {
                    Value::Null => prop_assert_eq!(data.get(key), None),
                    Value::Object(_) => prop_assert!(data[key].is_object()),
                    other => prop_assert_eq!(&data[key], other),
                }
            }
        }
    }
}
