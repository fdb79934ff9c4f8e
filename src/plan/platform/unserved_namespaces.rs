//! Namespaces that no hub serves any more, although tasks were served there: their tasks would wait for ever, without a message.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::plan::lease::{HolderLiveness, LeaseRecord, NamespaceScope, PeerMonitor};
use crate::plan::preflight::{PreflightCheck, PreflightFinding, shown, some_of};

/// Most names that are remembered of each kind.
pub const MAX_NAMES: usize = 1_000;
/// A record written within this time is of a hub that is alive, or comes back. It is far longer than clocks in working order
/// differ.
const RECENT: SignedDuration = SignedDuration::from_mins(5);

/// Watches the records, and knows which namespaces have had no hub for a while.
#[derive(Debug, Default)]
pub struct UnservedMonitor {
    peers: PeerMonitor,
    /// Since when each of them has had none.
    since: BTreeMap<String, Instant>,
}

impl UnservedMonitor {
    /// Applies a list of all records that was requested at `asked` and answered now, and the namespaces of the tasks that left
    /// objects; returns the namespaces that no hub has served for at least `grace`.
    pub fn observe(
        &mut self,
        records: &[LeaseRecord],
        named: &BTreeSet<String>,
        asked: Instant,
        now: Instant,
        grace: Duration,
    ) -> BTreeSet<String> {
        self.peers.see(records, now);
        let lookout = &self.peers;
        let is_there = |record: &LeaseRecord| {
            record.holder.is_some() && lookout.life(record, asked) != HolderLiveness::Gone
        };
        let unowned = unserved(records, named, is_there);
        self.since.retain(|name, _| unowned.contains(name));
        for name in unowned {
            self.since.entry(name).or_insert(now);
        }
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= grace;
        let over = self.since.iter().filter(|(_, since)| is_over(since));
        over.map(|(name, _)| name.clone()).collect()
    }
}

/// The namespaces that no hub serves, as far as one list shows, other than those in `own`: a record that was written lately is of
/// a live hub, even if it was released, because its successor may be starting.
#[must_use]
pub fn unserved_now(
    records: &[LeaseRecord],
    named: &BTreeSet<String>,
    own: &NamespaceScope,
    now: Timestamp,
) -> BTreeSet<String> {
    let age = |record: &LeaseRecord| record.renewed.map(|renewed| now.duration_since(renewed));
    let mut found = unserved(records, named, |record| {
        age(record).is_some_and(|age| age < RECENT)
    });
    found.retain(|name| !own.may_hold(name));
    found
}

/// Every namespace that is named and that no record covers which is there.
fn unserved(
    records: &[LeaseRecord],
    named: &BTreeSet<String>,
    is_there: impl Fn(&LeaseRecord) -> bool,
) -> BTreeSet<String> {
    // A standby serves nothing.
    let rights = || records.iter().filter(|record| !record.is_standby());
    let there: Vec<&NamespaceScope> = rights()
        .filter(|record| is_there(record))
        .map(|record| &record.watched)
        .collect();
    let of_records = rights().flat_map(|record| record.watched.names().chain(&record.former_namespaces));
    let all = of_records.chain(named.iter().take(MAX_NAMES));
    let is_covered = |name: &str| there.iter().any(|watched| watched.may_hold(name));
    all.filter(|name| !name.is_empty() && !is_covered(name))
        .cloned()
        .collect()
}

/// The finding on namespaces that no hub serves.
#[must_use]
pub fn finding(unowned: &BTreeSet<String>) -> PreflightFinding {
    let check = PreflightCheck::UnownedNamespaces;
    if unowned.is_empty() {
        return PreflightFinding::ok(check, "no namespace that is known is without a hub");
    }
    let names: Vec<String> = unowned.iter().map(|name| shown(name)).collect();
    PreflightFinding::warning(
        check,
        format!("no hub serves {}; tasks there wait for ever", some_of(&names)),
        "put them in the --watch-namespaces of a hub; one that is given up for good leaves the lists with the Lease that names it",
    )
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::coordination::v1::Lease;
    use serde_json::json;

    use super::*;
    use crate::plan::preflight::CheckResult;

    const GRACE: Duration = Duration::from_secs(300);

    /// A record whose list is whole; without a holder where `holder` is empty.
    fn record(name: &str, watched: &str, former: &str, holder: &str, second: i64) -> LeaseRecord {
        let names: Vec<String> = watched
            .split(',')
            .filter(|n| !n.is_empty())
            .map(str::to_owned)
            .collect();
        let digest = match NamespaceScope::new(&names) {
            NamespaceScope::All => String::new(),
            NamespaceScope::Only { digest, .. } => digest,
        };
        let renewed = at(second).to_string();
        let lease: Lease = serde_json::from_value(json!({
            "metadata": {"name": format!("renderhub-{name}"), "resourceVersion": second.to_string(), "annotations": {
                "renderhub.dev/watch-namespaces": watched, "renderhub.dev/watch-namespaces-sha256": digest,
                "renderhub.dev/former-namespaces": former,
            }},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 15, "renewTime": renewed},
        }))
        .unwrap();
        LeaseRecord::of(&lease).unwrap()
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + second).unwrap()
    }

    fn set(names: &[&str]) -> BTreeSet<String> {
        names.iter().map(ToString::to_string).collect()
    }

    /// Records, namespaces of left objects, and those of them that no hub serves.
    type Row<'a> = (&'a [LeaseRecord], &'a [&'a str], &'a [&'a str]);

    fn check(table: &[Row<'_>]) {
        for (records, named, expected) in table {
            let found = unserved(records, &set(named), |record| record.holder.is_some());
            assert_eq!(found, set(expected), "{records:?} {named:?}");
        }
    }

    #[test]
    fn a_named_namespace_without_a_hub_is_unserved() {
        check(&[
            (&[], &[], &[]),
            (&[], &["team-a"], &["team-a"]),
            // A hub that is there covers what it watches, and nothing that it watched before.
            (
                &[record("a-0", "team-a", "team-b", "x", 0)],
                &["team-a", "team-c"],
                &["team-b", "team-c"],
            ),
            // One of all namespaces covers everything, until it is gone.
            (&[record("a-0", "", "team-b", "x", 0)], &["team-c"], &[]),
            (
                &[record("a-0", "", "team-b", "", 0)],
                &["team-c"],
                &["team-b", "team-c"],
            ),
            // What one left another one has.
            (
                &[
                    record("a-0", "team-a", "team-b", "x", 0),
                    record("b-0", "team-b", "", "y", 0),
                ],
                &["team-b"],
                &[],
            ),
        ]);
    }

    #[test]
    fn only_who_works_covers_what_it_serves() {
        check(&[
            // Released, so no hub serves them.
            (
                &[
                    record("a-0", "team-a", "", "", 0),
                    record("b-0", "team-b", "", "y", 0),
                ],
                &[],
                &["team-a"],
            ),
            // A standby serves nothing, and the record of an earlier version with a part lists all that its hub serves.
            (
                &[record("a-0.standby-0", "team-a", "", "x", 0)],
                &["team-a"],
                &["team-a"],
            ),
            (
                &[
                    record("a-0.0", "team-a", "", "", 0),
                    record("a-0.1", "team-a", "", "x", 0),
                ],
                &[],
                &[],
            ),
            // The platform's own tasks have no namespace.
            (&[record("b-0", "team-b", "", "y", 0)], &[""], &[]),
        ]);
    }

    #[test]
    fn a_list_that_is_too_long_to_be_whole_may_hold_anything() {
        let mut long = record("a-0", "team-a", "", "x", 0);
        if let NamespaceScope::Only { digest, .. } = &mut long.watched {
            "of more names".clone_into(digest);
        }
        assert_eq!(unserved(&[long], &set(&["team-b"]), |_| true), set(&[]));
    }

    #[test]
    fn a_hub_that_restarts_raises_no_alarm_and_one_that_stays_away_does() {
        let (mut watchman, begin) = (UnservedMonitor::default(), Instant::now());
        let mut look = |second: u64, records: &[LeaseRecord]| {
            let now = begin + Duration::from_secs(second);
            watchman.observe(records, &set(&[]), now, now, GRACE)
        };
        let renewed = |second: i64| record("a-0", "team-a", "", "x", second);
        assert_eq!(look(0, &[renewed(0)]), set(&[]));
        assert_eq!(look(60, &[renewed(60)]), set(&[]));
        // Killed: the record stays as it is, and counts as gone after its duration.
        assert_eq!(look(120, &[renewed(60)]), set(&[]));
        assert_eq!(look(400, &[renewed(60)]), set(&[]));
        assert_eq!(look(421, &[renewed(60)]), set(&["team-a"]));
        // Back, and away again: it counts from the beginning.
        assert_eq!(look(480, &[renewed(480)]), set(&[]));
        let released = record("a-0", "team-a", "", "", 500);
        assert_eq!(look(540, std::slice::from_ref(&released)), set(&[]));
        assert_eq!(look(839, std::slice::from_ref(&released)), set(&[]));
        assert_eq!(look(840, &[released]), set(&["team-a"]));
        // Another hub has it now.
        assert_eq!(look(900, &[record("b-0", "team-a", "", "y", 900)]), set(&[]));
    }

    #[test]
    fn at_a_glance_a_record_of_a_moment_ago_speaks_for_a_hub() {
        let look = |holder: &str, age: i64| {
            let records = [record("a-0", "team-a", "team-b", holder, 0)];
            let own = NamespaceScope::new(&["team-d".to_owned()]);
            unserved_now(&records, &set(&["team-c", "team-d"]), &own, at(age))
        };
        let (served, all) = (set(&["team-b", "team-c"]), set(&["team-a", "team-b", "team-c"]));
        for (holder, age, expected) in [
            ("x", 0, &served),
            ("x", 299, &served),
            ("", 299, &served),
            ("x", 300, &all),
            ("", 300, &all),
            // Its clock is ahead.
            ("x", -600, &served),
        ] {
            assert_eq!(look(holder, age), *expected, "{holder} {age}");
        }
    }

    #[test]
    fn the_finding_names_them_and_says_what_to_do() {
        assert_eq!(finding(&set(&[])).result, CheckResult::Ok);
        let found = finding(&set(&["team-a", "team-b"]));
        assert_eq!(found.result, CheckResult::Warning);
        assert!(found.message.contains("team-a, team-b"), "{}", found.message);
        assert!(found.fix.contains("--watch-namespaces"), "{}", found.fix);
    }

    #[test]
    fn of_named_namespaces_no_more_than_the_bound_are_listed() {
        let named = (0..2 * MAX_NAMES)
            .map(|number| format!("team-{number:05}"))
            .collect();
        let found = unserved(&[], &named, |_| true);
        assert_eq!(found.len(), MAX_NAMES);
    }
}
