//! Bounds of the ledger, and which entries it drops where it is full.
//!
//! Losses of the platform's clusters, losses of tenants' clusters, and orphans have a limit of their own each, and of it a
//! namespace has at most a share. Where a limit is reached, the oldest entries of the namespace with the most bytes are dropped,
//! as long as that one has more than the namespace of the new entry. So no namespace loses an entry to one that has as much.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;

use super::entries::{LOST, LedgerChanges, LostSiteEntry, ORPHAN, OrphanEntry, tenant_of};

/// Bytes of all entries, as JSON and with their managed fields: half of the MiB that a ConfigMap may have, so that an
/// administrator can still change it.
pub const LEDGER_BYTES: usize = PLATFORM_LOSSES.bytes + TENANT_LOSSES.bytes + ORPHANS.bytes;

/// Losses of the platform's clusters: 500 of the usual size.
const PLATFORM_LOSSES: LedgerLimit = LedgerLimit {
    bytes: 128 << 10,
    share: 128 << 10,
};
/// Losses of tenants' clusters: of at least four namespaces, each with more than the five clusters of its quota.
const TENANT_LOSSES: LedgerLimit = LedgerLimit {
    bytes: 64 << 10,
    share: 16 << 10,
};
/// Orphans: 800 of the usual size. A namespace may have 200, which is more than its Jobs that run at once and those that are
/// kept after a failure.
const ORPHANS: LedgerLimit = LedgerLimit {
    bytes: 320 << 10,
    share: 80 << 10,
};

/// Limit of the entries of one kind.
#[derive(Clone, Copy, Debug)]
struct LedgerLimit {
    /// Bytes of all namespaces.
    bytes: usize,
    /// Bytes of one namespace.
    share: usize,
}

/// Kind of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum LedgerEntryKind {
    PlatformLoss,
    TenantLoss,
    Orphan,
}

impl LedgerEntryKind {
    const fn bound(self) -> LedgerLimit {
        match self {
            Self::PlatformLoss => PLATFORM_LOSSES,
            Self::TenantLoss => TENANT_LOSSES,
            Self::Orphan => ORPHANS,
        }
    }
}

/// Size and owner of an entry, without its content.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LedgerEntrySize {
    kind: LedgerEntryKind,
    namespace: Arc<str>,
    since: Timestamp,
    bytes: usize,
}

/// Bytes and keys of the entries of one namespace.
#[derive(Debug, Default)]
struct NamespaceUsage {
    bytes: usize,
    /// The oldest first.
    keys: BTreeSet<(Timestamp, String)>,
}

/// Result of the admission of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AdmittedChanges {
    /// The changes to write.
    pub changes: LedgerChanges,
    /// Number of entries beyond the limits.
    pub refused: usize,
    /// Tasks whose orphans were dropped.
    pub forgotten: Vec<TaskUid>,
}

impl AdmittedChanges {
    /// The result where no change was admitted.
    #[must_use]
    pub fn nothing(changes: &LedgerChanges) -> Self {
        Self {
            refused: changes.len(),
            ..Self::default()
        }
    }
}

/// The sizes of the entries of a ledger.
#[derive(Debug, Default)]
pub struct LedgerBudget {
    lines: HashMap<String, LedgerEntrySize>,
    shares: HashMap<LedgerEntryKind, BTreeMap<Arc<str>, NamespaceUsage>>,
}

impl LedgerBudget {
    /// The sizes of these entries, even if they are beyond the limits.
    #[must_use]
    pub fn of(data: &BTreeMap<String, String>) -> Self {
        let mut budget = Self::default();
        // The hub neither counts nor removes keys of other writers.
        let is_own = |key: &str| key.starts_with(LOST) || key.starts_with(ORPHAN);
        for (key, text) in data.iter().filter(|(key, _)| is_own(key)) {
            budget.put(key, line(key, text));
        }
        budget
    }

    /// Admits changes within the limits.
    pub fn admit(&mut self, changes: &LedgerChanges) -> AdmittedChanges {
        let mut admitted = AdmittedChanges::default();
        for (key, text) in changes {
            let before = self.take(key);
            let Some(text) = text else {
                admitted.changes.insert(key.clone(), None);
                continue;
            };
            let line = line(key, text);
            let Some(gone) = self.drop_for(&line) else {
                if let Some(before) = before {
                    self.put(key, before);
                }
                admitted.refused += 1;
                continue;
            };
            self.put(key, line);
            admitted.changes.insert(key.clone(), Some(text.clone()));
            for key in gone {
                admitted
                    .forgotten
                    .extend(key.strip_prefix(ORPHAN).map(TaskUid::new));
                admitted.changes.insert(key, None);
            }
        }
        admitted
    }

    /// Drops entries for a new one and returns their keys; `None` where the new one is beyond the limits.
    fn drop_for(&mut self, line: &LedgerEntrySize) -> Option<Vec<String>> {
        let bound = line.kind.bound();
        let own = self.bytes_of(line.kind, &line.namespace) + line.bytes;
        if own > bound.share {
            return None;
        }
        let mut gone: Vec<(String, LedgerEntrySize)> = Vec::new();
        while self.bytes(line.kind) + line.bytes > bound.bytes {
            let Some((key, victim)) = self.take_from_largest(line.kind, own) else {
                for (key, line) in gone {
                    self.put(&key, line);
                }
                return None;
            };
            gone.push((key, victim));
        }
        Some(gone.into_iter().map(|(key, _)| key).collect())
    }

    /// Drops the oldest entry of the namespace with the most bytes, if it has more than `own`.
    fn take_from_largest(&mut self, kind: LedgerEntryKind, own: usize) -> Option<(String, LedgerEntrySize)> {
        let shares = self.shares.get(&kind)?;
        let largest = shares.values().max_by_key(|share| share.bytes)?;
        let (_, key) = largest.keys.first().filter(|_| largest.bytes > own)?;
        let key = key.clone();
        let line = self.take(&key)?;
        Some((key, line))
    }

    fn bytes_of(&self, kind: LedgerEntryKind, namespace: &str) -> usize {
        let share = self.shares.get(&kind).and_then(|shares| shares.get(namespace));
        share.map_or(0, |share| share.bytes)
    }

    fn bytes(&self, kind: LedgerEntryKind) -> usize {
        let shares = self.shares.get(&kind);
        shares.map_or(0, |shares| shares.values().map(|share| share.bytes).sum())
    }

    fn put(&mut self, key: &str, line: LedgerEntrySize) {
        let shares = self.shares.entry(line.kind).or_default();
        let share = shares.entry(Arc::clone(&line.namespace)).or_default();
        share.bytes += line.bytes;
        share.keys.insert((line.since, key.to_owned()));
        self.lines.insert(key.to_owned(), line);
    }

    fn take(&mut self, key: &str) -> Option<LedgerEntrySize> {
        let line = self.lines.remove(key)?;
        let shares = self.shares.get_mut(&line.kind)?;
        if let Some(share) = shares.get_mut(&line.namespace) {
            share.bytes -= line.bytes;
            share.keys.remove(&(line.since, key.to_owned()));
            if share.keys.is_empty() {
                shares.remove(&line.namespace);
            }
        }
        Some(line)
    }
}

/// Size and owner of an entry. An unreadable one counts as the platform's oldest orphan.
fn line(key: &str, text: &str) -> LedgerEntrySize {
    let (kind, namespace, since) = if key.starts_with(LOST) {
        lost_of(text)
    } else {
        orphan_of(text)
    }
    .unwrap_or((LedgerEntryKind::Orphan, String::new(), Timestamp::MIN));
    LedgerEntrySize {
        kind,
        namespace: namespace.into(),
        since,
        bytes: bytes(key, text),
    }
}

fn lost_of(text: &str) -> Option<(LedgerEntryKind, String, Timestamp)> {
    let entry: LostSiteEntry = serde_json::from_str(text).ok()?;
    let kind = match entry.place.kube_config {
        Some(_) => LedgerEntryKind::TenantLoss,
        None => LedgerEntryKind::PlatformLoss,
    };
    Some((kind, tenant_of(&entry.place).to_owned(), entry.since))
}

fn orphan_of(text: &str) -> Option<(LedgerEntryKind, String, Timestamp)> {
    let entry: OrphanEntry = serde_json::from_str(text).ok()?;
    let tenant = entry.tenant.unwrap_or_else(|| tenant_of(&entry.place).to_owned());
    Some((LedgerEntryKind::Orphan, tenant, entry.since))
}

/// Bytes of an entry as JSON, and of its managed field: `"f:KEY":{},`.
fn bytes(key: &str, text: &str) -> usize {
    let json = |text: &str| serde_json::to_string(text).map_or(text.len(), |json| json.len());
    2 * json(key) + json(text) + r#""f:":{},:,"#.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entries::tests::{apply, sites};
    use super::super::entries::{OrphanRecord, forget_orphan, record_loss, record_orphan};
    use super::*;
    use crate::plan::remote::site::Site;

    fn at(second: usize) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + i64::try_from(second).unwrap()).unwrap()
    }

    /// An orphan of a namespace, with a name of this length.
    fn orphan(site: &Site, namespace: &str, n: usize, length: usize) -> OrphanRecord {
        OrphanRecord {
            site: site.clone(),
            task: TaskUid::new(&format!("{namespace}-{n}")),
            tenant: namespace.to_owned(),
            name: "n".repeat(length),
            job_uid: None,
            secret_uid: None,
            since: at(n),
        }
    }

    /// Size of the ConfigMap as the API server sends it, without the fields of other writers.
    fn serialized(data: &BTreeMap<String, String>) -> usize {
        let fields: BTreeMap<_, _> = data
            .keys()
            .map(|key| (format!("f:{key}"), serde_json::json!({})))
            .collect();
        serde_json::to_vec(data).unwrap().len() + serde_json::to_vec(&fields).unwrap().len()
    }

    /// A ledger that is written through its budget.
    #[derive(Default)]
    struct TestLedger {
        budget: LedgerBudget,
        data: BTreeMap<String, String>,
    }

    impl TestLedger {
        fn write(&mut self, changes: &LedgerChanges) -> AdmittedChanges {
            let admitted = self.budget.admit(changes);
            apply(&mut self.data, admitted.changes.clone());
            admitted
        }

        fn orphans_of(&self, namespace: &str) -> usize {
            let prefix = format!("{ORPHAN}{namespace}-");
            self.data.keys().filter(|key| key.starts_with(&prefix)).count()
        }
    }

    /// Holds: B8.
    #[test]
    fn a_namespace_fills_its_share_and_no_more_and_costs_others_nothing() {
        let (mut ledger, [east, ..]) = (TestLedger::default(), sites());
        for n in 0..10_000 {
            let admitted = ledger.write(&record_orphan(&orphan(&east, "greedy", n, 200)));
            assert!(admitted.forgotten.is_empty());
        }
        let count = ledger.orphans_of("greedy");
        let refused = ledger.write(&record_orphan(&orphan(&east, "greedy", 10_000, 200)));
        assert_eq!((refused.refused, refused.changes), (1, LedgerChanges::new()));
        assert!(ledger.budget.bytes(LedgerEntryKind::Orphan) <= ORPHANS.share);
        // The same orphan again needs no more bytes, and a settled one frees some.
        assert_eq!(
            ledger
                .write(&record_orphan(&orphan(&east, "greedy", 0, 200)))
                .refused,
            0
        );
        ledger.write(&forget_orphan(&TaskUid::new("greedy-0")));
        assert_eq!(
            ledger
                .write(&record_orphan(&orphan(&east, "greedy", 10_001, 200)))
                .refused,
            0
        );
        assert_eq!(ledger.orphans_of("greedy"), count);
        assert_eq!(
            ledger
                .write(&record_orphan(&orphan(&east, "quiet", 0, 200)))
                .refused,
            0
        );
    }

    /// Holds: B8.
    #[test]
    fn in_a_full_ledger_the_oldest_entry_of_the_largest_namespace_is_dropped() {
        let (mut ledger, [east, ..]) = (TestLedger::default(), sites());
        for namespace in ["a", "b", "c", "d"] {
            for n in 0..10_000 {
                ledger.write(&record_orphan(&orphan(&east, namespace, n, 200)));
            }
        }
        let full = ["a", "b", "c", "d"].map(|namespace| ledger.orphans_of(namespace));
        let mut forgotten = Vec::new();
        for n in 0..20 {
            let admitted = ledger.write(&record_orphan(&orphan(&east, "quiet", n, 200)));
            assert_eq!(admitted.refused, 0);
            forgotten.extend(admitted.forgotten);
        }
        assert_eq!(ledger.orphans_of("quiet"), 20);
        assert!(forgotten.contains(&TaskUid::new("a-0")) && forgotten.contains(&TaskUid::new("d-0")));
        let now = ["a", "b", "c", "d"].map(|namespace| ledger.orphans_of(namespace));
        assert!(
            full.iter().zip(now).all(|(full, now)| full - now <= 6),
            "{full:?} {now:?}"
        );
        assert!(serialized(&ledger.data) <= LEDGER_BYTES);
    }

    /// Holds: B8.
    #[test]
    fn losses_have_a_limit_that_no_orphan_uses() {
        let (mut ledger, [east, own, _]) = (TestLedger::default(), sites());
        for n in 0..4_000 {
            ledger.write(&record_orphan(&orphan(&own, &format!("team-{}", n % 9), n, 200)));
        }
        for site in sites() {
            assert_eq!(ledger.write(&record_loss(&site, at(0))).refused, 0);
        }
        let cluster = |n: usize| Site {
            namespace: format!("{n:063}"),
            ..east.clone()
        };
        let refused: usize = (0..2_000)
            .map(|n| ledger.write(&record_loss(&cluster(n), at(n))).refused)
            .sum();
        assert!((1_000..1_900).contains(&refused), "{refused}");
        assert!(serialized(&ledger.data) <= LEDGER_BYTES);
        assert_eq!(ledger.write(&record_loss(&sites()[1], at(0))).refused, 0);
    }

    #[test]
    fn entries_of_an_earlier_version_beyond_the_limit_are_dropped() {
        let [east, own, _] = sites();
        let mut ledger = TestLedger::default();
        for n in 0..3_000 {
            let mut old = orphan(&own, "", n, 250);
            old.tenant = String::new();
            apply(&mut ledger.data, record_orphan(&old));
        }
        assert!(serialized(&ledger.data) > 1 << 20);
        ledger.budget = LedgerBudget::of(&ledger.data);
        let admitted = ledger.write(&record_orphan(&orphan(&own, "team-a", 9_999, 20)));
        assert_eq!(
            admitted.refused, 1,
            "they are of its namespace, by the kubeconfig"
        );
        assert_eq!(
            ledger
                .write(&record_orphan(&orphan(&east, "team-b", 9_999, 20)))
                .refused,
            0
        );
        assert!(serialized(&ledger.data) <= LEDGER_BYTES);
    }

    proptest! {
        // Each case makes a new ledger of half a MiB.
        #![proptest_config(ProptestConfig::with_cases(24))]

        /// Holds: B8.
        #[test]
        fn the_ledger_stays_within_its_bounds_and_takes_from_none_that_has_less(
            moves in prop::collection::vec((0..12_usize, 0..60_usize, 1..12_000_usize, 0..8_u8), 1..160),
        ) {
            let (mut ledger, sites) = (TestLedger::default(), sites());
            for (step, (namespace, n, length, kind)) in moves.into_iter().enumerate() {
                let name = format!("team-{namespace}");
                let entry = orphan(&sites[n % 3], &name, n, length);
                let changes = match kind {
                    0 => forget_orphan(&entry.task),
                    1 => record_loss(&sites[n % 3], at(n)),
                    _ => record_orphan(&entry),
                };
                let lines = ledger.budget.lines.clone();
                let admitted = ledger.write(&changes);
                prop_assert!(step % 8 > 0 || serialized(&ledger.data) <= LEDGER_BYTES);
                prop_assert_eq!(ledger.budget.lines.len(), ledger.data.len());
                let own = ledger.budget.bytes_of(LedgerEntryKind::Orphan, &name);
                prop_assert!(own <= ORPHANS.share);
                // Of several dropped entries of one namespace, the last shows that it still had more.
                let mut judged = BTreeSet::new();
                for task in admitted.forgotten.iter().rev() {
                    let gone = &lines[&format!("{ORPHAN}{task}")];
                    if judged.insert(Arc::clone(&gone.namespace)) {
                        let left = ledger.budget.bytes_of(LedgerEntryKind::Orphan, &gone.namespace);
                        prop_assert!(left + gone.bytes > own, "it had no more than the namespace of the new entry");
                    }
                }
            }
            prop_assert!(serialized(&ledger.data) <= LEDGER_BYTES);
            let (known, again) = (ledger.budget, LedgerBudget::of(&ledger.data));
            prop_assert_eq!(known.lines, again.lines);
        }
    }
}
