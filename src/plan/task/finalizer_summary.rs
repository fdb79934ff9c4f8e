//! What the index keeps of an object's finalizers: their number, and the position of the hub's own.

use std::borrow::Cow;
use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::labels::{FINALIZER, TARGET_FINALIZER};

/// Most finalizers of others on a task that is started. An API server takes 1.4 MB of them, and sends them along with every
/// event and every answer; controllers that work together on one object have a handful.
pub const MAX_FINALIZERS: usize = 64;

/// The finalizers on an object, of which others than the hub's own are only counted: a tenant can put 1.4 MB of them there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FinalizerSummary {
    /// How many there are.
    pub count: usize,
    /// The place of the hub's own among them, from 0.
    pub hub_index: Option<usize>,
}

impl FinalizerSummary {
    /// What is remembered of these on a task.
    pub fn of<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        let mut all = Self::default();
        for name in names {
            all.push(name == FINALIZER);
        }
        all
    }

    /// The same with the hub's own at the end, as it puts it there.
    #[must_use]
    pub fn with_own(mut self) -> Self {
        self.push(true);
        self
    }

    /// The same without the hub's own.
    #[must_use]
    pub fn without_own(self) -> Self {
        Self {
            count: self.of_others(),
            hub_index: None,
        }
    }

    /// How many there are besides the hub's own.
    #[must_use]
    pub fn of_others(self) -> usize {
        self.count - usize::from(self.hub_index.is_some())
    }

    fn push(&mut self, is_own: bool) {
        if is_own && self.hub_index.is_none() {
            self.hub_index = Some(self.count);
        }
        self.count += 1;
    }
}

impl<'de> Deserialize<'de> for FinalizerSummary {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(FinalizersVisitor { own: FINALIZER })
    }
}

/// The finalizers of a Target, on which the hub's own has another name.
#[derive(Clone, Copy, Debug, Default)]
pub struct TargetFinalizers(pub FinalizerSummary);

impl<'de> Deserialize<'de> for TargetFinalizers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let own = TARGET_FINALIZER;
        deserializer.deserialize_any(FinalizersVisitor { own }).map(Self)
    }
}

/// Reads a list of names one by one, or null.
struct FinalizersVisitor {
    own: &'static str,
}

impl<'de> Visitor<'de> for FinalizersVisitor {
    type Value = FinalizerSummary;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of finalizers")
    }

    fn visit_unit<E>(self) -> Result<FinalizerSummary, E> {
        Ok(FinalizerSummary::default())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut names: A) -> Result<FinalizerSummary, A::Error> {
        let mut all = FinalizerSummary::default();
        while let Some(FinalizerName(name)) = names.next_element()? {
            all.push(name == self.own);
        }
        Ok(all)
    }
}

/// A name that is only looked at.
#[derive(Deserialize)]
struct FinalizerName<'a>(#[serde(borrow)] Cow<'a, str>);

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(value: Value) -> FinalizerSummary {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_hubs_own_is_found_and_the_others_are_counted() {
        let table = [
            (json!(null), 0, None, 0),
            (json!([]), 0, None, 0),
            (json!(["a/b"]), 1, None, 1),
            (json!([FINALIZER]), 1, Some(0), 0),
            (json!(["a/b", FINALIZER, "a/c"]), 3, Some(1), 2),
            // An API server takes a name twice; each needs a removal of its own.
            (json!([FINALIZER, FINALIZER]), 2, Some(0), 1),
        ];
        for (value, count, own, of_others) in table {
            let all = read(value.clone());
            assert_eq!(
                (all.count, all.hub_index, all.of_others()),
                (count, own, of_others),
                "{value}"
            );
            let names: Vec<String> = serde_json::from_value(value).unwrap_or_default();
            assert_eq!(FinalizerSummary::of(names.iter().map(String::as_str)), all);
        }
        assert!(serde_json::from_value::<FinalizerSummary>(json!([7])).is_err());
    }

    #[test]
    fn the_hubs_own_is_put_at_the_end_and_taken_off_wherever_it_is() {
        let bare = read(json!(["a/b", "a/c"]));
        assert_eq!(bare.with_own(), read(json!(["a/b", "a/c", FINALIZER])));
        assert_eq!(bare.with_own().without_own(), bare);
        assert_eq!(bare.without_own(), bare);
        assert_eq!(read(json!([FINALIZER, "a/b", "a/c"])).without_own(), bare);
    }
}
