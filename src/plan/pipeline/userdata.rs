//! The data that every release of a Target is handed: that of its Profiles, and over it that of the Target.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::api::pipeline::HydratedProfile;

use super::object::ObjectKey;

/// A key that Profiles set differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataConflict {
    /// Where it is, as a JSON pointer.
    pub path: String,
    /// The Profiles that set it.
    pub profiles: Vec<ObjectKey>,
}

/// Merges the data of Profiles beneath that of the Target. Maps are merged deeply, a null removes a key, all else is replaced.
///
/// A key that two Profiles set differently is left out, and said unless the Target settles it: neither may win.
#[must_use]
pub fn merged(profiles: &[HydratedProfile], target: Option<&Value>) -> (Option<Value>, Vec<DataConflict>) {
    let (mut below, mut conflicts) = (None, BTreeSet::new());
    for profile in profiles {
        let data = &profile.userdata;
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
    let open = conflicts
        .into_iter()
        .filter(|path| !target.is_some_and(|target| settles(target, path)));
    let said = open.map(|path| DataConflict {
        profiles: setting(profiles, &path),
        path,
    });
    (merged, said.collect())
}

/// Whether the data of the Target says what a key is, or takes the place of what it is in.
fn settles(target: &Value, path: &str) -> bool {
    let mut at = target;
    for key in path.split('/').skip(1) {
        let Value::Object(map) = at else {
            return true;
        };
        match map.get(&unescaped(key)) {
            Some(value) => at = value,
            None => return false,
        }
    }
    true
}

/// The Profiles that set a key.
fn setting(profiles: &[HydratedProfile], path: &str) -> Vec<ObjectKey> {
    let set = profiles
        .iter()
        .filter(|profile| profile.userdata.pointer(path).is_some());
    let mut keys: Vec<ObjectKey> = set
        .map(|profile| ObjectKey::new(&profile.namespace, &profile.name))
        .collect();
    keys.dedup();
    keys
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

/// A key as it was before a JSON pointer had it.
fn unescaped(key: &str) -> String {
    key.replace("~1", "/").replace("~0", "~")
}

fn remove(data: &mut Value, path: &str) {
    let Some((parent, key)) = path.rsplit_once('/') else {
        *data = Value::Object(Map::new());
        return;
    };
    let key = unescaped(key);
    if let Some(Value::Object(map)) = data.pointer_mut(parent) {
        map.remove(&key);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    /// Data of Profiles with the names p0, p1 and so on.
    fn of(data: &[Value]) -> Vec<HydratedProfile> {
        let profile = |(number, userdata): (usize, &Value)| HydratedProfile {
            namespace: "team-a".to_owned(),
            name: format!("p{number}"),
            unique_name: "shop".to_owned(),
            userdata: userdata.clone(),
        };
        data.iter().enumerate().map(profile).collect()
    }

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
            let (data, conflicts) = merged(&of(&profiles), target.as_ref());
            assert_eq!((&data, conflicts), (&expected, vec![]), "{profiles:?} {target:?}");
        }
    }

    #[test]
    fn what_two_profiles_set_differently_is_of_neither() {
        let profiles = [json!({"a": {"b/c": 1}, "d": 1}), json!({"a": {"b/c": 2}, "d": 1})];
        let (data, conflicts) = merged(&of(&profiles), None);
        let conflict = DataConflict {
            path: "/a/b~1c".to_owned(),
            profiles: vec![ObjectKey::new("team-a", "p0"), ObjectKey::new("team-a", "p1")],
        };
        assert_eq!(
            (data, conflicts),
            (Some(json!({"a": {}, "d": 1})), vec![conflict])
        );
        // A third that agrees with one of them changes nothing.
        let profiles = [profiles[0].clone(), profiles[1].clone(), profiles[0].clone()];
        assert_eq!(merged(&of(&profiles), None).0, Some(json!({"a": {}, "d": 1})));
    }

    #[test]
    fn what_the_target_says_of_a_key_settles_what_profiles_set_differently() {
        let profiles = [json!({"a": {"b/c": 1}, "d": 1}), json!({"a": {"b/c": 2}, "d": 1})];
        for (target, expected, is_settled) in [
            (json!({"a": {"b/c": 3}}), json!({"a": {"b/c": 3}, "d": 1}), true),
            (json!({"a": {"b/c": null}}), json!({"a": {}, "d": 1}), true),
            (json!({"a": {"b/c": {}}}), json!({"a": {"b/c": {}}, "d": 1}), true),
            (json!({"a": 4}), json!({"a": 4, "d": 1}), true),
            (json!({"a": null}), json!({"d": 1}), true),
            (json!({"a": {}}), json!({"a": {}, "d": 1}), false),
            (json!({"a": {"b": 3}}), json!({"a": {"b": 3}, "d": 1}), false),
            (json!({"d": 2}), json!({"a": {}, "d": 2}), false),
        ] {
            let (data, conflicts) = merged(&of(&profiles), Some(&target));
            assert_eq!(
                (data, conflicts.is_empty()),
                (Some(expected), is_settled),
                "{target}"
            );
        }
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
            let (one, other) = (merged(&of(&[a.clone(), b.clone()]), Some(&target)), merged(&of(&[b, a]), Some(&target)));
            prop_assert_eq!(one.0, other.0);
            prop_assert_eq!(one.1.len(), other.1.len());
        }

        #[test]
        fn what_the_target_says_stands(a in map(), target in map()) {
            let (data, _) = merged(&of(&[a]), Some(&target));
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
