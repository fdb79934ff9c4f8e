//! The annotation by which the hub knows a task that it made for Targets.

use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::labels::TARGET_SEAL;
use crate::api::names::unhex;

/// The value of the annotation [`TARGET_SEAL`] on an object, which is the only one that is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TargetSeal(pub Option<[u8; 32]>);

impl<'de> Deserialize<'de> for TargetSeal {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnnotationsVisitor)
    }
}

/// Reads annotations one by one, or null.
struct AnnotationsVisitor;

impl<'de> Visitor<'de> for AnnotationsVisitor {
    type Value = TargetSeal;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("annotations")
    }

    fn visit_unit<E>(self) -> Result<TargetSeal, E> {
        Ok(TargetSeal::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<TargetSeal, A::Error> {
        let mut seal = None;
        while let Some(key) = map.next_key::<String>()? {
            if key == TARGET_SEAL {
                seal = map
                    .next_value::<Option<String>>()?
                    .and_then(|value| unhex(&value));
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(TargetSeal(seal))
    }
}
