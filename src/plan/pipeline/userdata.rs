//! The data that every release of a Target is handed: that of its Profiles, and over it that of the Target.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::api::pipeline::HydratedProfile;

use super::conditions::NAMED;
use super::object::ObjectKey;

/// Most Profiles that are named of those which set a key differently: the API server takes a message of 32 KiB.
const PROFILES_NAMED: usize = 3;
/// Longest path of a key that is named.
const LONGEST_PATH: usize = 100;

/// The keys that Profiles set differently and the Target does not settle. Only so many are named as a message has room for: a tenant may
/// fill an object with such keys, and name each as long as it likes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DataConflicts {
    /// The first of them.
    pub named: Vec<DataConflict>,
    /// How many there are.
    pub count: usize,
}

/// A key that Profiles set differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataConflict {
    /// Where it is, as a JSON pointer; `None` where that cannot be shown, because keys are free text.
    pub path: Option<String>,
    /// The first of the Profiles that set it.
    pub profiles: Vec<ObjectKey>,
    /// How many more there are.
    pub more: usize,
}

/// Merges the data of Profiles beneath that of the Target. Maps are merged deeply, a null removes a key, all else is replaced.
///
/// A key that two Profiles set differently is left out, and said unless the Target settles it: neither may win.
#[must_use]
pub fn merged(profiles: &[HydratedProfile], target: Option<&Value>) -> (Option<Value>, DataConflicts) {
    let mut merge = ProfileMerge::default();
    let all: Vec<_> = profiles
        .iter()
        .map(|profile| (profile, &profile.userdata))
        .collect();
    let below = (!all.is_empty()).then(|| {
        let together = merge.together(&all, target);
        together.unwrap_or_else(|| Value::Object(Map::new()))
    });
    let merged = match (below, target) {
        (Some(below), Some(target)) => Some(over(below, target)),
        (below, target) => below
            .map(without_nulls)
            .or_else(|| target.cloned().map(without_nulls)),
    };
    (merged, merge.conflicts)
}

/// A value of the data of a Profile.
type ProfileValue<'p> = (&'p HydratedProfile, &'p Value);

/// The data of Profiles while it is merged.
#[derive(Default)]
struct ProfileMerge {
    /// Where the values are, as a JSON pointer.
    path: String,
    conflicts: DataConflicts,
}

impl ProfileMerge {
    /// Values of one key together, `None` where they differ; `target` is what the Target says of the key, or of what that is in.
    fn together(&mut self, values: &[ProfileValue<'_>], target: Option<&Value>) -> Option<Value> {
        let (_, first) = values.first()?;
        if values.iter().all(|(_, value)| value == first) {
            return Some((*first).clone());
        }
        let mut keys: BTreeMap<&str, Vec<ProfileValue<'_>>> = BTreeMap::new();
        for (profile, value) in values {
            let Value::Object(map) = value else {
                if target.is_none() {
                    self.conflict(values);
                }
                return None;
            };
            for (key, value) in map {
                keys.entry(key).or_default().push((profile, value));
            }
        }
        let together = keys.into_iter().filter_map(|(key, values)| {
            let length = self.path.len();
            self.path.push('/');
            self.path.push_str(&escaped(key));
            let of_target = match target {
                Some(Value::Object(map)) => map.get(key),
                // It takes the place of all that is in it.
                other => other,
            };
            let value = self.together(&values, of_target);
            self.path.truncate(length);
            Some((key.to_owned(), value?))
        });
        Some(Value::Object(together.collect()))
    }

    fn conflict(&mut self, values: &[ProfileValue<'_>]) {
        self.conflicts.count += 1;
        if self.conflicts.named.len() == NAMED {
            return;
        }
        let names = values.iter().take(PROFILES_NAMED);
        let profiles: Vec<_> = names
            .map(|(profile, _)| ObjectKey::new(&profile.namespace, &profile.name))
            .collect();
        self.conflicts.named.push(DataConflict {
            path: shown_path(&self.path).map(str::to_owned),
            more: values.len() - profiles.len(),
            profiles,
        });
    }
}

/// A path that can be shown: keys are free text, so any other is not repeated.
fn shown_path(path: &str) -> Option<&str> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '-' | '_' | '.');
    (!path.is_empty() && path.len() <= LONGEST_PATH && path.chars().all(is_plain)).then_some(path)
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

    /// The path of each conflict that is named, the Profiles, and how many more.
    fn named(conflicts: &DataConflicts) -> Vec<(Option<String>, String, usize)> {
        let named = conflicts.named.iter().map(|conflict| {
            let names: Vec<&str> = conflict.profiles.iter().map(|key| key.name.as_str()).collect();
            (conflict.path.clone(), names.join(" "), conflict.more)
        });
        named.collect()
    }

    /// Each key is below one that is as long as an object lets it be: what is said of them must not be longer with each.
    ///
    /// Holds: F6.
    #[test]
    fn many_conflicts_below_a_long_key_take_no_memory() {
        let long = "k".repeat(100_000);
        let data = |value: i32| {
            let keys = (0..4_900).map(|key| (format!("a{key}"), json!(value)));
            json!({long.clone(): keys.collect::<Map<_, _>>()})
        };
        let profiles = of(&[data(1), data(2)]);
        let mut found = None;
        let taken = allocation_counter::measure(|| found = Some(merged(&profiles, None)));
        let (merged, conflicts) = found.unwrap();
        assert_eq!(
            (merged, conflicts.count),
            (Some(json!({long.clone(): {}})), 4_900)
        );
        assert_eq!(conflicts.named.len(), NAMED);
        assert!(taken.bytes_max < 8 << 20, "{}", taken.bytes_max);
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
            assert_eq!(
                (&data, conflicts.count),
                (&expected, 0),
                "{profiles:?} {target:?}"
            );
        }
    }

    #[test]
    fn what_two_profiles_set_differently_is_of_neither() {
        let profiles = [json!({"a": {"b/c": 1}, "d": 1}), json!({"a": {"b/c": 2}, "d": 1})];
        let (data, conflicts) = merged(&of(&profiles), None);
        assert_eq!(
            (data, named(&conflicts)),
            (
                Some(json!({"a": {}, "d": 1})),
                vec![(None, "p0 p1".to_owned(), 0)]
            ),
            "a key that is no plain word is not named"
        );
        let profiles = [json!({"a": {"b": 1}}), json!({"a": {"b": 2}})];
        let all: Vec<Value> = profiles.iter().cycle().take(5).cloned().collect();
        let (data, conflicts) = merged(&of(&all), None);
        let path = Some("/a/b".to_owned());
        assert_eq!(
            (data, named(&conflicts)),
            (Some(json!({"a": {}})), vec![(path, "p0 p1 p2".to_owned(), 2)])
        );
        // A third that agrees with one of them changes nothing.
        let profiles = [json!({"a": {"b/c": 1}, "d": 1}), json!({"a": {"b/c": 2}, "d": 1})];
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
                (data, conflicts.count == 0),
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
            prop_assert_eq!(one.1.count, other.1.count);
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
