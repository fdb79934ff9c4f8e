//! What the hub says of each renderer class, and whether it said it yet.

use std::collections::BTreeMap;

use k8s_openapi::jiff::Timestamp;

use crate::api::conditions::{self, ConditionType, Wanted};
use crate::api::{RendererClassSpec, RendererClassStatus};
use crate::apply::Calls;
use crate::plan::class;

use super::version_of;

/// A class as watched, and what is to be said of it.
struct Judged {
    generation: i64,
    wanted: Vec<Wanted>,
    unsaid: &'static [ConditionType],
    status: RendererClassStatus,
    /// Resource version of the newest status seen or written; an older event is late and says nothing of it.
    version: u64,
}

impl Judged {
    /// The status that is to be written, if it is not there already.
    fn open(&self) -> Option<RendererClassStatus> {
        let mut status = self.status.clone();
        let generation = Some(self.generation);
        let now = Timestamp::now();
        conditions::merge(&mut status.conditions, &self.wanted, self.unsaid, generation, now);
        status.observed_generation = generation;
        (status != self.status).then_some(status)
    }
}

/// The verdicts on all classes.
#[derive(Default)]
pub(super) struct Classes {
    judged: BTreeMap<String, Judged>,
}

impl Classes {
    /// Judges a class as it was seen.
    pub(super) fn take(
        &mut self,
        name: &str,
        generation: i64,
        spec: Option<&RendererClassSpec>,
        (status, version): (RendererClassStatus, u64),
    ) {
        let known = self.judged.remove(name);
        let (status, version) = match known.filter(|known| known.version > version) {
            Some(newer) => (newer.status, newer.version),
            None => (status, version),
        };
        let judged = Judged {
            generation,
            wanted: class::conditions(spec),
            unsaid: class::unsaid(spec),
            status,
            version,
        };
        self.judged.insert(name.to_owned(), judged);
    }

    /// Generation of the spec that was judged.
    pub(super) fn generation(&self, name: &str) -> Option<i64> {
        self.judged.get(name).map(|judged| judged.generation)
    }

    pub(super) fn drop(&mut self, name: &str) {
        self.judged.remove(name);
    }

    pub(super) fn clear(&mut self) {
        self.judged.clear();
    }

    /// Whether something is still to be said.
    pub(super) fn has_open(&self) -> bool {
        self.judged.values().any(|judged| judged.open().is_some())
    }

    /// Says what is open; what a failed call leaves open is said later.
    pub(super) async fn write(&mut self, calls: &Calls) {
        for (name, judged) in &mut self.judged {
            let Some(status) = judged.open() else { continue };
            match calls.write_class_conditions(name, &status).await {
                Ok(version) => (judged.status, judged.version) = (status, version_of(version.as_deref())),
                Err(error) => tracing::warn!(
                    class = name,
                    kind = error.kind(),
                    "nothing said of this class yet; it is repeated"
                ),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn single() -> RendererClassSpec {
        serde_json::from_value(json!({"image": "a.test/b:1", "mode": "Single"})).unwrap()
    }

    #[test]
    fn what_was_said_is_not_said_again_and_a_late_event_hides_nothing() {
        let mut classes = Classes::default();
        let unknown = RendererClassStatus::default();
        classes.take("foreign", 1, Some(&single()), (unknown.clone(), 3));
        let said = classes.judged["foreign"].open().unwrap();
        classes.take("foreign", 1, Some(&single()), (said.clone(), 5));
        assert!(!classes.has_open());
        classes.take("foreign", 1, Some(&single()), (unknown.clone(), 4));
        assert!(!classes.has_open(), "version 4 is older than what was said");
        classes.take("foreign", 1, Some(&single()), (unknown, 6));
        assert!(classes.has_open(), "somebody took the conditions away");
        classes.take("foreign", 2, Some(&single()), (said, 7));
        assert_eq!(
            classes.judged["foreign"].open().unwrap().observed_generation,
            Some(2)
        );
    }

    #[test]
    fn a_class_that_can_no_longer_be_decoded_loses_what_was_said_of_its_mode() {
        let mut classes = Classes::default();
        classes.take("foreign", 1, Some(&single()), (RendererClassStatus::default(), 1));
        let said = classes.judged["foreign"].open().unwrap();
        assert_eq!(said.conditions.len(), 2);
        classes.take("foreign", 2, None, (said, 2));
        let now = classes.judged["foreign"].open().unwrap().conditions;
        assert_eq!((now.len(), now[0].reason.as_str()), (1, "InvalidSpec"));
    }
}
