//! How much the ledger holds, of whom, and what gives way where it is full.
//!
//! Losses of the platform's clusters, losses of tenants' clusters and orphans have room of their own each. In the room a
//! namespace has a share that it cannot pass; where the room is full all the same, the oldest entries of the namespace with the
//! most give way, as long as that one has more than who comes. So no namespace loses an entry to one that has as much.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use k8s_openapi::jiff::Timestamp;

use crate::api::names::TaskUid;

use super::entries::{LOST, LedgerChanges, LostSiteEntry, ORPHAN, OrphanEntry, tenant_of};

/// Bytes of all entries, as JSON and with what the API server writes down of who wrote each: half of the MiB that a ConfigMap
/// may have, so that an administrator can still change it.
pub const LEDGER_BYTES: usize = PLATFORM_LOSSES.bytes + TENANT_LOSSES.bytes + ORPHANS.bytes;

/// Losses of the platform's clusters: 500 of the usual size.
const PLATFORM_LOSSES: LedgerLimit = LedgerLimit {
    bytes: 128 << 10,
    share: 128 << 10,
};
/// Losses of clusters that tenants bring: at least four namespaces', each with more than the five clusters it has places for.
const TENANT_LOSSES: LedgerLimit = LedgerLimit {
    bytes: 64 << 10,
    share: 16 << 10,
};
/// Orphans: 800 of the usual size. A namespace has room for 200, which is more than the Jobs of it that run at once and those
/// that are kept after a failure.
const ORPHANS: LedgerLimit = LedgerLimit {
    bytes: 320 << 10,
    share: 80 << 10,
};

/// Room for entries of one kind.
#[derive(Clone, Copy, Debug)]
struct LedgerLimit {
    /// Bytes of all.
    bytes: usize,
    /// Bytes of one namespace.
    share: usize,
}

/// What an entry speaks of.
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

/// What is remembered of an entry: not what it says, but what it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
struct LedgerEntrySize {
    matter: LedgerEntryKind,
    namespace: Arc<str>,
    since: Timestamp,
    bytes: usize,
}

/// What the entries of one namespace take.
#[derive(Debug, Default)]
struct NamespaceUsage {
    bytes: usize,
    /// The oldest first.
    keys: BTreeSet<(Timestamp, String)>,
}

/// What came of changes.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AdmittedChanges {
    /// What is to be written.
    pub changes: LedgerChanges,
    /// How many entries found no room.
    pub refused: usize,
    /// Tasks whose orphans gave way.
    pub forgotten: Vec<TaskUid>,
}

impl AdmittedChanges {
    /// None of the changes were taken in.
    #[must_use]
    pub fn nothing(changes: &LedgerChanges) -> Self {
        Self {
            refused: changes.len(),
            ..Self::default()
        }
    }
}

/// The room that the entries of a ledger take.
#[derive(Debug, Default)]
pub struct LedgerBudget {
    lines: HashMap<String, LedgerEntrySize>,
    shares: HashMap<LedgerEntryKind, BTreeMap<Arc<str>, NamespaceUsage>>,
}

impl LedgerBudget {
    /// The room that these entries take, even if it is more than there is.
    #[must_use]
    pub fn of(data: &BTreeMap<String, String>) -> Self {
        let mut room = Self::default();
        // What others put there is not the hub's to count, or to take away.
        let is_own = |key: &str| key.starts_with(LOST) || key.starts_with(ORPHAN);
        for (key, text) in data.iter().filter(|(key, _)| is_own(key)) {
            room.put(key, line(key, text));
        }
        room
    }

    /// Takes in changes as far as there is room for them.
    pub fn admit(&mut self, changes: &LedgerChanges) -> AdmittedChanges {
        let mut admitted = AdmittedChanges::default();
        for (key, text) in changes {
            let before = self.take(key);
            let Some(text) = text else {
                admitted.changes.insert(key.clone(), None);
                continue;
            };
            let line = line(key, text);
            let Some(gone) = self.make_room(&line) else {
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

    /// The entries that give way to one more; `None` where it finds no room.
    fn make_room(&mut self, line: &LedgerEntrySize) -> Option<Vec<String>> {
        let bound = line.matter.bound();
        let own = self.bytes_of(line.matter, &line.namespace) + line.bytes;
        if own > bound.share {
            return None;
        }
        let mut gone: Vec<(String, LedgerEntrySize)> = Vec::new();
        while self.bytes(line.matter) + line.bytes > bound.bytes {
            let Some((key, victim)) = self.take_from_largest(line.matter, own) else {
                for (key, line) in gone {
                    self.put(&key, line);
                }
                return None;
            };
            gone.push((key, victim));
        }
        Some(gone.into_iter().map(|(key, _)| key).collect())
    }

    /// Takes out the oldest entry of the namespace with the most, if that has more than so many bytes.
    fn take_from_largest(
        &mut self,
        matter: LedgerEntryKind,
        own: usize,
    ) -> Option<(String, LedgerEntrySize)> {
        let shares = self.shares.get(&matter)?;
        let largest = shares.values().max_by_key(|share| share.bytes)?;
        let (_, key) = largest.keys.first().filter(|_| largest.bytes > own)?;
        let key = key.clone();
        let line = self.take(&key)?;
        Some((key, line))
    }

    fn bytes_of(&self, matter: LedgerEntryKind, namespace: &str) -> usize {
        let share = self.shares.get(&matter).and_then(|shares| shares.get(namespace));
        share.map_or(0, |share| share.bytes)
    }

    fn bytes(&self, matter: LedgerEntryKind) -> usize {
        let shares = self.shares.get(&matter);
        shares.map_or(0, |shares| shares.values().map(|share| share.bytes).sum())
    }

    fn put(&mut self, key: &str, line: LedgerEntrySize) {
        let shares = self.shares.entry(line.matter).or_default();
        let share = shares.entry(Arc::clone(&line.namespace)).or_default();
        share.bytes += line.bytes;
        share.keys.insert((line.since, key.to_owned()));
        self.lines.insert(key.to_owned(), line);
    }

    fn take(&mut self, key: &str) -> Option<LedgerEntrySize> {
        let line = self.lines.remove(key)?;
        let shares = self.shares.get_mut(&line.matter)?;
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

/// What an entry takes, and of whom it is. One that cannot be read counts as the platform's oldest orphan.
fn line(key: &str, text: &str) -> LedgerEntrySize {
    let (matter, namespace, since) = if key.starts_with(LOST) {
        lost_of(text)
    } else {
        orphan_of(text)
    }
    .unwrap_or((LedgerEntryKind::Orphan, String::new(), Timestamp::MIN));
    LedgerEntrySize {
        matter,
        namespace: namespace.into(),
        since,
        bytes: bytes(key, text),
    }
}

fn lost_of(text: &str) -> Option<(LedgerEntryKind, String, Timestamp)> {
    let entry: LostSiteEntry = serde_json::from_str(text).ok()?;
    let matter = match entry.place.kube_config {
        Some(_) => LedgerEntryKind::TenantLoss,
        None => LedgerEntryKind::PlatformLoss,
    };
    Some((matter, tenant_of(&entry.place).to_owned(), entry.since))
}

fn orphan_of(text: &str) -> Option<(LedgerEntryKind, String, Timestamp)> {
    let entry: OrphanEntry = serde_json::from_str(text).ok()?;
    let tenant = entry.tenant.unwrap_or_else(|| tenant_of(&entry.place).to_owned());
    Some((LedgerEntryKind::Orphan, tenant, entry.since))
}

/// Bytes of an entry as JSON, and of the line that the API server writes of each key: `"f:KEY":{},`.
fn bytes(key: &str, text: &str) -> usize {
    let json = |text: &str| serde_json::to_string(text).map_or(text.len(), |json| json.len());
    2 * json(key) + json(text) + r#""f:":{},:,"#.len()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::entries::tests::{apply, sites};
    use super::super::entries::{OrphanRecord, leave, lose, settle};
    use super::*;
    use crate::plan::remote::site::Site;

    fn at(second: usize) -> Timestamp {
        Timestamp::from_second(1_700_000_000 + i64::try_from(second).unwrap()).unwrap()
    }

    /// An orphan of a namespace, with a name as long as is wanted.
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

    /// The ConfigMap as the API server sends it, without what is not ours.
    fn serialized(data: &BTreeMap<String, String>) -> usize {
        let fields: BTreeMap<_, _> = data
            .keys()
            .map(|key| (format!("f:{key}"), serde_json::json!({})))
            .collect();
        serde_json::to_vec(data).unwrap().len() + serde_json::to_vec(&fields).unwrap().len()
    }

    /// A ledger that is written through its room.
    #[derive(Default)]
    struct TestLedger {
        room: LedgerBudget,
        data: BTreeMap<String, String>,
    }

    impl TestLedger {
        fn write(&mut self, changes: &LedgerChanges) -> AdmittedChanges {
            let admitted = self.room.admit(changes);
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
            let admitted = ledger.write(&leave(&orphan(&east, "greedy", n, 200)));
            assert!(admitted.forgotten.is_empty());
        }
        let count = ledger.orphans_of("greedy");
        let refused = ledger.write(&leave(&orphan(&east, "greedy", 10_000, 200)));
        assert_eq!((refused.refused, refused.changes), (1, LedgerChanges::new()));
        assert!(ledger.room.bytes(LedgerEntryKind::Orphan) <= ORPHANS.share);
        // The same one once more needs no more room, and one that goes makes some.
        assert_eq!(ledger.write(&leave(&orphan(&east, "greedy", 0, 200))).refused, 0);
        ledger.write(&settle(&TaskUid::new("greedy-0")));
        assert_eq!(
            ledger
                .write(&leave(&orphan(&east, "greedy", 10_001, 200)))
                .refused,
            0
        );
        assert_eq!(ledger.orphans_of("greedy"), count);
        assert_eq!(ledger.write(&leave(&orphan(&east, "quiet", 0, 200))).refused, 0);
    }

    /// Holds: B8.
    #[test]
    fn in_a_full_ledger_the_oldest_of_the_largest_gives_way_to_who_has_less() {
        let (mut ledger, [east, ..]) = (TestLedger::default(), sites());
        for namespace in ["a", "b", "c", "d"] {
            for n in 0..10_000 {
                ledger.write(&leave(&orphan(&east, namespace, n, 200)));
            }
        }
        let full = ["a", "b", "c", "d"].map(|namespace| ledger.orphans_of(namespace));
        let mut forgotten = Vec::new();
        for n in 0..20 {
            let admitted = ledger.write(&leave(&orphan(&east, "quiet", n, 200)));
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
    fn losses_have_room_that_no_orphan_takes() {
        let (mut ledger, [east, own, _]) = (TestLedger::default(), sites());
        for n in 0..4_000 {
            ledger.write(&leave(&orphan(&own, &format!("team-{}", n % 9), n, 200)));
        }
        for site in sites() {
            assert_eq!(ledger.write(&lose(&site, at(0))).refused, 0);
        }
        let cluster = |n: usize| Site {
            namespace: format!("{n:063}"),
            ..east.clone()
        };
        let refused: usize = (0..2_000)
            .map(|n| ledger.write(&lose(&cluster(n), at(n))).refused)
            .sum();
        assert!((1_000..1_900).contains(&refused), "{refused}");
        assert!(serialized(&ledger.data) <= LEDGER_BYTES);
        assert_eq!(ledger.write(&lose(&sites()[1], at(0))).refused, 0);
    }

    #[test]
    fn what_an_earlier_version_wrote_beyond_it_gives_way() {
        let [east, own, _] = sites();
        let mut ledger = TestLedger::default();
        for n in 0..3_000 {
            let mut old = orphan(&own, "", n, 250);
            old.tenant = String::new();
            apply(&mut ledger.data, leave(&old));
        }
        assert!(serialized(&ledger.data) > 1 << 20);
        ledger.room = LedgerBudget::of(&ledger.data);
        let admitted = ledger.write(&leave(&orphan(&own, "team-a", 9_999, 20)));
        assert_eq!(
            admitted.refused, 1,
            "they are of its namespace, by the kubeconfig"
        );
        assert_eq!(
            ledger.write(&leave(&orphan(&east, "team-b", 9_999, 20))).refused,
            0
        );
        assert!(serialized(&ledger.data) <= LEDGER_BYTES);
    }

    proptest! {
        // Each makes a ledger of half a MiB anew.
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
                    0 => settle(&entry.task),
                    1 => lose(&sites[n % 3], at(n)),
                    _ => leave(&entry),
                };
                let lines = ledger.room.lines.clone();
                let admitted = ledger.write(&changes);
                prop_assert!(step % 8 > 0 || serialized(&ledger.data) <= LEDGER_BYTES);
                prop_assert_eq!(ledger.room.lines.len(), ledger.data.len());
                let own = ledger.room.bytes_of(LedgerEntryKind::Orphan, &name);
                prop_assert!(own <= ORPHANS.share);
                // Of several that one namespace gives, the last shows that it still had more.
                let mut judged = BTreeSet::new();
                for task in admitted.forgotten.iter().rev() {
                    let gone = &lines[&format!("{ORPHAN}{task}")];
                    if judged.insert(Arc::clone(&gone.namespace)) {
                        let left = ledger.room.bytes_of(LedgerEntryKind::Orphan, &gone.namespace);
                        prop_assert!(left + gone.bytes > own, "it had no more than who came");
                    }
                }
            }
            prop_assert!(serialized(&ledger.data) <= LEDGER_BYTES);
            let (known, again) = (ledger.room, LedgerBudget::of(&ledger.data));
            prop_assert_eq!(known.lines, again.lines);
        }
    }
}
