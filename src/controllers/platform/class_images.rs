//! What the catalog controller knows of the images of classes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use crate::plan::pull_secrets::named::NamedPullSecret;
use crate::plan::pull_secrets::pull_failure::ClassPullFailure;

/// Pause between two failures of the image of one class on one cluster that are shown: a cluster says what its pods wait for, as often as it likes, and
/// each change is a write, and another catalog for all tasks. What is not shown is reported again by the next look at a pod.
pub(super) const BETWEEN_FAILURES: Duration = Duration::from_secs(10);

/// Name of a class; `None` is the hub's own renderer.
pub(super) type ClassName = Option<String>;

/// What is known of the images of all classes.
#[derive(Debug, Default)]
pub(super) struct ClassImages {
    /// The pull Secrets of each class that names any.
    pub(super) named: BTreeMap<ClassName, Vec<NamedPullSecret>>,
    /// Where the image of a class is not pulled.
    pub(super) failures: BTreeMap<ClassName, ClassPullFailure>,
    /// When the last failure of a class was shown, by the class and the cluster of the failure.
    pub(super) shown: BTreeMap<(ClassName, Option<String>), Instant>,
    /// Classes whose Secrets are to be read.
    pub(super) unread: BTreeSet<ClassName>,
}

impl ClassImages {
    /// The pull Secrets of a class.
    pub(super) fn pull_secrets_of(&self, class: &ClassName) -> &[NamedPullSecret] {
        self.named.get(class).map(Vec::as_slice).unwrap_or_default()
    }

    /// Records what is known of the image of a class from now on; `false` where a failure comes too soon after the last one.
    pub(super) fn record(&mut self, class: &ClassName, next: Option<ClassPullFailure>, now: Instant) -> bool {
        let Some(failure) = next else {
            self.failures.remove(class);
            return true;
        };
        let shown = (class.clone(), failure.cluster.clone());
        let last = self.shown.get(&shown);
        if last.is_some_and(|last| now.saturating_duration_since(*last) < BETWEEN_FAILURES) {
            return false;
        }
        self.shown.insert(shown, now);
        self.failures.insert(class.clone(), failure);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::pull_secrets::pull_failure::PullFailure;

    #[test]
    fn a_cluster_that_says_now_this_and_now_that_changes_a_class_a_few_times_a_minute() {
        let failing_on = |cluster: &str, word| {
            Some(ClassPullFailure {
                cluster: Some(cluster.to_owned()),
                failure: PullFailure {
                    container: "render",
                    word,
                    uncopied: Vec::new(),
                },
            })
        };
        let failing = |word| failing_on("east", word);
        let (begin, class, other) = (Instant::now(), Some("main".to_owned()), None);
        let (mut images, mut shown) = (ClassImages::default(), 0);
        // Ten times a second for a minute.
        for tenths in 0..600 {
            let now = begin + Duration::from_millis(100 * tenths);
            let word = ["ErrImageNeverPull", "InvalidImageName"][usize::from(tenths % 4 == 0)];
            shown += u32::from(images.record(&class, failing(word), now));
            assert!(
                images.record(&class, None, now),
                "that it is pulled again is shown at once"
            );
            assert!(!images.failures.contains_key(&class));
        }
        assert_eq!(shown, 6);
        assert!(
            images.record(&other, failing("InvalidImageName"), begin),
            "others wait for none"
        );
        let later = begin + Duration::from_secs(60);
        assert!(images.record(&class, failing("InvalidImageName"), later));
        assert_eq!(images.failures[&class].failure.word, "InvalidImageName");
    }
}
