//! When the pods of a namespace are looked at: after its `ServiceAccounts` were linked, and then ever less often while pods that were
//! made before may yet find out that they cannot pull.

use std::collections::HashMap;
use std::time::Instant;

use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::{ObservedPod, PendingPods, PullSecretPlan};
use crate::plan::queue::backoff::BackoffPolicy;

/// From a link to the first look, and between two: a kubelet takes a second or two to be refused an image.
const PAUSE: BackoffPolicy = BackoffPolicy::REQUEUE;

/// The looks that are due, each with its number.
#[derive(Debug, Default)]
pub(super) struct PodLooks(HashMap<String, (Instant, u32)>);

impl PodLooks {
    /// Has a namespace looked at soon, and then ever less often.
    pub fn start(&mut self, namespace: &str, now: Instant) {
        self.0
            .insert(namespace.to_owned(), (now + PAUSE.longest_wait(1), 1));
    }

    /// The namespaces that are due; each is looked at again once its look is [`PodLooks::end`]ed.
    pub fn due(&mut self, now: Instant) -> Vec<String> {
        let due = self.0.iter().filter(|(_, (at, _))| *at <= now);
        due.map(|(namespace, _)| namespace.clone()).collect()
    }

    /// When the next one is due.
    pub fn next(&self) -> Option<Instant> {
        self.0.values().map(|(at, _)| *at).min()
    }

    /// Ends a look, or begins the next pause where there is something to wait for.
    pub fn end(&mut self, namespace: &str, is_over: bool, now: Instant) {
        if is_over {
            self.0.remove(namespace);
        } else if let Some((at, number)) = self.0.get_mut(namespace) {
            *number = number.saturating_add(1);
            *at = now + PAUSE.longest_wait(*number);
        }
    }
}

/// Whether each pod has what its ServiceAccount should have.
pub(super) fn has_all_linked(namespace: &str, pods: &PendingPods, plan: &PullSecretPlan) -> bool {
    let has_links = |pod: &ObservedPod| {
        let links = plan.links.get(&ObjectKey::new(namespace, &pod.account));
        links.is_none_or(|links| links.is_subset(&pod.copies))
    };
    pods.waiting.values().chain(&pods.starting).all(has_links)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_namespace_is_looked_at_ever_less_often_until_nothing_is_left_to_wait_for() {
        let (mut looks, begin) = (PodLooks::default(), Instant::now());
        looks.start("team", begin);
        let (mut now, mut pauses) = (begin, Vec::new());
        while pauses.len() < 12 {
            let next = looks.next().unwrap();
            assert!(looks.due(now).is_empty());
            assert_eq!(looks.due(next), ["team"]);
            pauses.push((next - now).as_secs());
            now = next;
            looks.end("team", false, now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]);
        looks.end("team", true, now);
        assert_eq!(looks.next(), None);
    }
}
