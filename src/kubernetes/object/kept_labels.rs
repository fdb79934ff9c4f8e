//! The labels of an object, as many as it may have, and the one label of a task that counts.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::api::labels::PIPELINE;

/// Most labels of an object that is selected by them; Kubernetes takes 1.4 MB of them, which are ten times as much as a map.
pub const MAX_LABELS: usize = 256;

/// Labels, of which none are kept where there are more than [`MAX_LABELS`].
#[derive(Clone, Debug, Default)]
pub(super) struct KeptLabels {
    pub(super) labels: BTreeMap<String, String>,
    pub(super) are_too_many: bool,
}

impl<'de> Deserialize<'de> for KeptLabels {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(LabelsVisitor)
    }
}

/// Reads a map of labels one by one, or null.
struct LabelsVisitor;

impl<'de> Visitor<'de> for LabelsVisitor {
    type Value = KeptLabels;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_unit<E>(self) -> Result<KeptLabels, E> {
        Ok(KeptLabels::default())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<KeptLabels, A::Error> {
        let mut kept = KeptLabels::default();
        while kept.labels.len() < MAX_LABELS {
            let Some((key, value)) = map.next_entry()? else {
                return Ok(kept);
            };
            kept.labels.insert(key, value);
        }
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {
            kept.are_too_many = true;
        }
        if kept.are_too_many {
            kept.labels.clear();
        }
        Ok(kept)
    }
}

/// Whether an object has the label [`PIPELINE`], with whatever value.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HasPipelineLabel(pub(super) bool);

impl<'de> Deserialize<'de> for HasPipelineLabel {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(PipelineLabelVisitor)
    }
}

/// Looks for the label in a map, or in null.
struct PipelineLabelVisitor;

impl<'de> Visitor<'de> for PipelineLabelVisitor {
    type Value = HasPipelineLabel;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of labels")
    }

    fn visit_unit<E>(self) -> Result<HasPipelineLabel, E> {
        Ok(HasPipelineLabel(false))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<HasPipelineLabel, A::Error> {
        let mut is_found = false;
        while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
            is_found |= key == PIPELINE;
        }
        Ok(HasPipelineLabel(is_found))
    }
}
