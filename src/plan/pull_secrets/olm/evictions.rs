//! Which pods make room for a successor: a pod has the pull secrets that its ServiceAccount had when it was made.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::Timestamp;

use super::needs::{NamespaceNeeds, Need};
use super::observed::{ObservedAccount, ObservedNamespace, ObservedPod};
use super::wanted::{PullSecretPlan, WantedEviction};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::queue::backoff::BackoffPolicy;

/// How far behind the `ServiceAccounts` may be that an API server gives to new pods: it knows them from a watch.
const ADMISSION_LAG: Duration = Duration::from_secs(5);
/// Pods that are evicted in [`WINDOW`].
const EVICTIONS: usize = 30;
/// The time in which so many pods are evicted.
const WINDOW: Duration = Duration::from_secs(60);
/// Attempts for the pods of one `ReplicaSet`.
const ATTEMPTS: u32 = 8;
/// The pause between two pods of one `ReplicaSet`.
const PAUSE: BackoffPolicy = BackoffPolicy {
    base: Duration::from_secs(4),
    cap: Duration::from_secs(300),
};
/// `ReplicaSets` of which attempts are remembered.
const REMEMBERED: usize = 4_096;

/// Finds the pods of a namespace that wait for an image and were made before their ServiceAccount had what they lack.
pub(super) fn find(
    namespace: &str,
    seen: &ObservedNamespace,
    needs: &NamespaceNeeds,
    plan: &mut PullSecretPlan,
) {
    for (name, pod) in &seen.pods {
        let links = plan.links.get(&ObjectKey::new(namespace, &pod.account));
        let (Some(links), Some(account)) = (links, seen.accounts.get(&pod.account)) else {
            continue;
        };
        let linked: BTreeSet<&String> = account.copies.values().collect();
        let is_ready = links
            .iter()
            .all(|copy| linked.contains(copy) && is_there(seen, plan, namespace, copy));
        if !is_ready || links.is_subset(&pod.copies) || !is_older(pod, account) {
            continue;
        }
        let of_account = needs.of_sources.values().chain(needs.held.values());
        let of_account: Vec<&Need> = of_account
            .filter(|need| need.deployments.iter().any(|(_, named)| *named == pod.account))
            .collect();
        let deployments = of_account.iter().flat_map(|need| &need.deployments);
        let deployments = deployments.filter(|(_, named)| *named == pod.account);
        plan.evictions.push(WantedEviction {
            pod: ObjectKey::new(namespace, name),
            uid: pod.uid.clone(),
            replica_set: pod.replica_set.clone(),
            deployments: deployments.map(|(deployment, _)| deployment.clone()).collect(),
            subscription: of_account
                .iter()
                .find_map(|need| need.subscriptions.first())
                .cloned(),
        });
    }
}

/// Whether a copy is as it should be.
fn is_there(seen: &ObservedNamespace, plan: &PullSecretPlan, namespace: &str, copy: &str) -> bool {
    let there = seen.copies.get(copy).filter(|there| there.marks.is_some());
    let wanted = plan.copies.get(&ObjectKey::new(namespace, copy));
    there.is_some_and(|there| wanted.is_none_or(|wanted| there.content == Some(wanted.content)))
}

/// Whether a pod may have been made before its ServiceAccount was changed. One that was made later lacks the entry because it names
/// pull secrets of its own, and so would its successor.
fn is_older(pod: &ObservedPod, account: &ObservedAccount) -> bool {
    let late = |linked: Timestamp| linked.checked_add(ADMISSION_LAG).unwrap_or(Timestamp::MAX);
    pod.created
        .is_none_or(|created| account.linked_at.is_none_or(|linked| created <= late(linked)))
}

/// Bounds how many pods are evicted.
#[derive(Debug, Default)]
pub struct EvictionLimiter {
    sent: VecDeque<Instant>,
    /// When each namespace had its last one.
    last: HashMap<String, Instant>,
    tried: HashMap<String, (u32, Instant)>,
    pods: BTreeMap<String, Instant>,
}

impl EvictionLimiter {
    /// When this pod may be evicted: now, later, or never.
    #[must_use]
    pub fn due(&self, eviction: &WantedEviction, now: Instant) -> Option<Instant> {
        if self.pods.contains_key(&eviction.uid) {
            return None;
        }
        let tried = self.tried.get(&eviction.replica_set.1);
        if tried.is_some_and(|(attempts, _)| *attempts >= ATTEMPTS) {
            return None;
        }
        let after = tried.map_or(now, |(_, after)| *after);
        let recent = self.sent.iter().rev().nth(EVICTIONS - 1);
        let room = recent.map_or(now, |sent| *sent + WINDOW);
        Some(after.max(room).max(now))
    }

    /// Puts the evictions of the namespaces first whose last one is the longest ago, so that none has the evictions of all.
    #[must_use]
    pub fn in_turn(&self, mut evictions: Vec<WantedEviction>) -> Vec<WantedEviction> {
        evictions.sort_by_key(|eviction| self.last.get(&eviction.pod.namespace).copied());
        evictions
    }

    /// Notes an attempt; whether the pod is gone by it.
    pub fn note(&mut self, eviction: &WantedEviction, is_evicted: bool, now: Instant) {
        while self.sent.len() >= EVICTIONS {
            self.sent.pop_front();
        }
        self.sent.push_back(now);
        self.make_room(now);
        self.last.insert(eviction.pod.namespace.clone(), now);
        let set = &eviction.replica_set.1;
        let entry = self.tried.entry(set.clone()).or_insert((0, now));
        entry.0 += 1;
        entry.1 = now + PAUSE.wait(entry.0, set);
        if is_evicted {
            self.pods.insert(eviction.uid.clone(), now);
        }
    }

    /// Notes that no pod of this `ReplicaSet` is to be evicted.
    pub fn never(&mut self, eviction: &WantedEviction, now: Instant) {
        self.make_room(now);
        self.tried.insert(eviction.replica_set.1.clone(), (ATTEMPTS, now));
    }

    fn make_room(&mut self, now: Instant) {
        if self.tried.len() >= REMEMBERED {
            self.tried.retain(|_, (_, after)| *after > now);
        }
        if self.tried.len() >= REMEMBERED {
            self.tried.clear();
        }
        if self.pods.len() >= REMEMBERED {
            self.pods.clear();
        }
        if self.last.len() >= REMEMBERED {
            self.last.clear();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn eviction(pod: &str, set: &str) -> WantedEviction {
        WantedEviction {
            pod: ObjectKey::new("team", pod),
            uid: pod.to_owned(),
            replica_set: (set.to_owned(), set.to_owned()),
            deployments: BTreeSet::new(),
            subscription: None,
        }
    }

    #[test]
    fn a_minute_has_so_many_evictions_and_a_replica_set_so_many_attempts() {
        let (mut limiter, start) = (EvictionLimiter::default(), Instant::now());
        for number in 0..EVICTIONS {
            let next = eviction(&format!("p{number}"), &format!("r{number}"));
            assert_eq!(limiter.due(&next, start), Some(start));
            limiter.note(&next, true, start);
        }
        let more = eviction("more", "more");
        assert_eq!(limiter.due(&more, start), Some(start + WINDOW));
        assert_eq!(limiter.due(&eviction("p0", "r0"), start + WINDOW), None, "once");
        let (mut now, mut tried) = (start + WINDOW, 0);
        while let Some(due) = limiter.due(&eviction(&format!("q{tried}"), "r"), now) {
            now = due;
            limiter.note(&eviction(&format!("q{tried}"), "r"), false, now);
            tried += 1;
        }
        assert_eq!(tried, ATTEMPTS);
        assert!(
            now - start > WINDOW + Duration::from_secs(60),
            "{:?}",
            now - start
        );
        limiter.never(&more, now);
        assert_eq!(limiter.due(&more, now + 10 * WINDOW), None);
    }

    #[test]
    fn a_namespace_with_pods_without_end_leaves_the_others_evictions() {
        let in_namespace = |namespace: &str, pod: &str| WantedEviction {
            pod: ObjectKey::new(namespace, pod),
            ..eviction(pod, pod)
        };
        let (mut limiter, now) = (EvictionLimiter::default(), Instant::now());
        for number in 0..EVICTIONS {
            limiter.note(&in_namespace("aaa", &format!("p{number}")), true, now);
        }
        let wanted = [
            ("aaa", "more"),
            ("aaa", "and-more"),
            ("team", "one"),
            ("zzz", "other"),
        ];
        let wanted = wanted
            .map(|(namespace, pod)| in_namespace(namespace, pod))
            .to_vec();
        let turns = |limiter: &EvictionLimiter| {
            let turns = limiter.in_turn(wanted.clone()).into_iter();
            turns.map(|eviction| eviction.pod.name).collect::<Vec<_>>()
        };
        assert_eq!(turns(&limiter), ["one", "other", "more", "and-more"]);
        limiter.note(&in_namespace("team", "one"), true, now + PAUSE.base);
        assert_eq!(turns(&limiter), ["other", "more", "and-more", "one"]);
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (mut limiter, now) = (EvictionLimiter::default(), Instant::now());
        for number in 0..3 * REMEMBERED {
            let mut next = eviction(&format!("p{number}"), &format!("r{number}"));
            next.pod.namespace = format!("n{number}");
            limiter.note(&next, true, now);
        }
        assert!(limiter.tried.len() <= REMEMBERED && limiter.pods.len() <= REMEMBERED);
        assert!(limiter.last.len() <= REMEMBERED);
        assert!(limiter.sent.len() <= EVICTIONS);
    }
}
