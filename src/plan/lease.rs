//! The Lease by which hubs of one cluster know of each other: what it says, whom it stands against, who is alive.
//!
//! Clocks of other machines are not trusted: a hub is alive when its record changes while it is watched, and gone when it
//! has not changed for its whole duration. A hub writes its own record before it reads the others', and renews it while it
//! watches them; so of two that start at once at least one sees the other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use sha2::{Digest, Sha256};

use crate::api::labels::{
    LEASE_CLAIM, PART_OF, PART_OF_VALUE, RENDERING_NAMESPACE, WATCH_NAMESPACES, WATCH_NAMESPACES_SHA256,
};
use crate::names::{HubId, hex};

use super::preflight::{Check, Finding, shown, some_of};

/// How long a record that does not change speaks for a hub.
pub const DURATION: Duration = Duration::from_secs(15);
/// Time between renewals.
pub const RENEW_EVERY: Duration = Duration::from_secs(5);
/// From its last renewal, how long a hub may take itself for the holder; shorter than [`DURATION`], so that it stops before
/// another begins.
pub const RENEW_DEADLINE: Duration = Duration::from_secs(10);

/// What the name of each record starts with.
const PREFIX: &str = "renderhub-";
/// Most namespaces that are written down; a list of them must fit an annotation.
const MAX_LISTED: usize = 1000;
/// Longest duration that is believed, so that a record of nonsense holds nobody up for long.
const MAX_DURATION: Duration = Duration::from_secs(60);

/// The namespaces that a hub serves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watched {
    /// All there are.
    All,
    /// These.
    Only {
        /// Their names; of a long list, the first.
        names: BTreeSet<String>,
        /// SHA-256 of all names, sorted and joined by commas, in hex.
        digest: String,
    },
}

/// What two hubs have in common.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// One of them serves all namespaces.
    Everything,
    /// These namespaces.
    Names(Vec<String>),
    /// It cannot be told, because a list is too long to be written down.
    Unknown,
}

impl Watched {
    /// The set of these; none is all.
    #[must_use]
    pub fn new(names: &[String]) -> Self {
        let names: BTreeSet<String> = names.iter().cloned().collect();
        if names.is_empty() {
            return Self::All;
        }
        let digest = digest(&names);
        Self::Only { names, digest }
    }

    fn is_whole(names: &BTreeSet<String>, digest: &str) -> bool {
        self::digest(names) == digest
    }

    /// What two sets have in common; `None` where nothing.
    #[must_use]
    pub fn meets(&self, other: &Self) -> Option<Meeting> {
        let (
            Self::Only {
                names: a,
                digest: of_a,
            },
            Self::Only {
                names: b,
                digest: of_b,
            },
        ) = (self, other)
        else {
            return Some(Meeting::Everything);
        };
        let common: Vec<String> = a.intersection(b).cloned().collect();
        if !common.is_empty() {
            return Some(Meeting::Names(common));
        }
        let is_known = Self::is_whole(a, of_a) && Self::is_whole(b, of_b);
        (!is_known).then_some(Meeting::Unknown)
    }

    fn annotations(&self) -> [(String, String); 2] {
        let (list, digest) = match self {
            Self::All => (String::new(), String::new()),
            Self::Only { names, digest } => {
                let listed: Vec<&str> = names.iter().take(MAX_LISTED).map(String::as_str).collect();
                (listed.join(","), digest.clone())
            }
        };
        [
            (WATCH_NAMESPACES.to_owned(), list),
            (WATCH_NAMESPACES_SHA256.to_owned(), digest),
        ]
    }

    /// What a record says; one that says nothing stands for everything.
    fn of(annotations: &BTreeMap<String, String>) -> Self {
        let value = |key: &str| annotations.get(key).map(String::as_str).unwrap_or_default();
        let names: BTreeSet<String> = value(WATCH_NAMESPACES)
            .split(',')
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect();
        if names.is_empty() {
            return Self::All;
        }
        let digest = value(WATCH_NAMESPACES_SHA256).to_owned();
        Self::Only { names, digest }
    }
}

fn digest(names: &BTreeSet<String>) -> String {
    let joined = names.iter().map(String::as_str).collect::<Vec<_>>().join(",");
    hex(&Sha256::digest(joined.as_bytes()))
}

/// What a hub says of itself.
#[derive(Clone, Debug)]
pub struct Claim {
    /// Which hub.
    pub hub_id: HubId,
    /// Which instance of it; the same after a restart in place.
    pub holder: String,
    /// Which process of it; never the same again.
    pub process: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// The namespaces it serves.
    pub watched: Watched,
}

impl Claim {
    /// Name of the hub's record.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{PREFIX}{}", self.hub_id)
    }

    /// The record as this hub writes it, in the place of `before`.
    #[must_use]
    pub fn lease(&self, before: Option<&Lease>, now: Timestamp) -> Lease {
        let mut meta = before.map_or_else(ObjectMeta::default, |lease| lease.metadata.clone());
        meta.name = Some(self.name());
        meta.managed_fields = None;
        let labels = meta.labels.get_or_insert_default();
        labels.insert(PART_OF.to_owned(), PART_OF_VALUE.to_owned());
        let annotations = meta.annotations.get_or_insert_default();
        annotations.insert(LEASE_CLAIM.to_owned(), self.process.clone());
        annotations.insert(RENDERING_NAMESPACE.to_owned(), self.rendering.clone());
        annotations.extend(self.watched.annotations());
        let spec = before.and_then(|lease| lease.spec.clone()).unwrap_or_default();
        let is_renewal = before.is_some_and(|lease| self.holds(lease));
        Lease {
            metadata: meta,
            spec: Some(LeaseSpec {
                holder_identity: Some(self.holder.clone()),
                lease_duration_seconds: i32::try_from(DURATION.as_secs()).ok(),
                acquire_time: if is_renewal {
                    spec.acquire_time
                } else {
                    Some(MicroTime(now))
                },
                renew_time: Some(MicroTime(now)),
                lease_transitions: Some(spec.lease_transitions.unwrap_or(-1) + i32::from(!is_renewal)),
                ..LeaseSpec::default()
            }),
        }
    }

    /// The record as this hub leaves it at its end.
    #[must_use]
    pub fn released(before: &Lease, now: Timestamp) -> Lease {
        let mut lease = before.clone();
        lease.metadata.managed_fields = None;
        let spec = lease.spec.get_or_insert_default();
        spec.holder_identity = None;
        spec.renew_time = Some(MicroTime(now));
        lease
    }

    /// Whether the record is this very process's.
    #[must_use]
    pub fn holds(&self, lease: &Lease) -> bool {
        Record::of(lease)
            .is_some_and(|r| r.process == self.process && r.holder.as_ref() == Some(&self.holder))
    }

    /// What keeps this hub from running while the record's hub is alive.
    #[must_use]
    pub fn conflict(&self, record: &Record) -> Option<Conflict> {
        // A record without a holder was released.
        let holder = record.holder.clone()?;
        let kind = if record.name == self.name() {
            // The instance before this one in the same place: a container that was started again.
            if holder == self.holder {
                return None;
            }
            ConflictKind::SameId
        } else {
            ConflictKind::Overlap(self.watched.meets(&record.watched)?)
        };
        Some(Conflict {
            peer: record
                .name
                .strip_prefix(PREFIX)
                .unwrap_or(&record.name)
                .to_owned(),
            holder,
            rendering: record.rendering.clone(),
            kind,
        })
    }
}

/// What a hub's record says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record {
    /// Name of the record.
    pub name: String,
    /// Which instance; `None` where the record was released.
    pub holder: Option<String>,
    /// Which process of it.
    pub process: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// The namespaces it serves.
    pub watched: Watched,
    /// When it was written last, by the writer's clock: only good to see that it changed.
    pub renewed: Option<Timestamp>,
    /// How long it speaks for the hub when it does not change.
    pub duration: Duration,
}

impl Record {
    /// What a Lease says; `None` for one that is no hub's.
    #[must_use]
    pub fn of(lease: &Lease) -> Option<Self> {
        let name = lease
            .metadata
            .name
            .as_ref()
            .filter(|name| name.starts_with(PREFIX))?;
        let annotations = lease.metadata.annotations.clone().unwrap_or_default();
        let value = |key: &str| annotations.get(key).cloned().unwrap_or_default();
        let spec = lease.spec.clone().unwrap_or_default();
        let seconds = spec.lease_duration_seconds.and_then(|s| u64::try_from(s).ok());
        Some(Self {
            name: name.clone(),
            holder: spec.holder_identity.filter(|holder| !holder.is_empty()),
            process: value(LEASE_CLAIM),
            rendering: value(RENDERING_NAMESPACE),
            watched: Watched::of(&annotations),
            renewed: spec.renew_time.map(|time| time.0),
            duration: seconds.map_or(DURATION, Duration::from_secs).min(MAX_DURATION),
        })
    }
}

/// Another hub that this one must not run beside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conflict {
    /// Its hub id.
    pub peer: String,
    /// Its instance.
    pub holder: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// Why not.
    pub kind: ConflictKind,
}

/// Why two hubs must not run beside each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConflictKind {
    /// They have the same id, and would take each other's Jobs for their own.
    SameId,
    /// They serve the same tasks.
    Overlap(Meeting),
}

/// Watches the records until it is known who is alive.
#[derive(Debug, Default)]
pub struct Lookout {
    seen: BTreeMap<String, (Record, Instant)>,
}

/// What is known by now.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Outlook {
    /// Hubs that are alive and in the way.
    pub alive: Vec<Conflict>,
    /// Hubs in the way that may be alive.
    pub unsure: Vec<Conflict>,
    /// Names of the records in the way whose hubs are gone.
    pub dead: Vec<String>,
}

impl Outlook {
    /// Whether a record of this hub's own id that somebody else holds still has to be watched.
    #[must_use]
    pub fn is_own_unsure(&self) -> bool {
        self.unsure
            .iter()
            .any(|conflict| conflict.kind == ConflictKind::SameId)
    }
}

impl Lookout {
    /// What the records tell, together with what they told before.
    pub fn look(&mut self, claim: &Claim, records: &[Record], now: Instant) -> Outlook {
        let mut outlook = Outlook::default();
        for record in records {
            let Some(conflict) = claim.conflict(record) else {
                self.seen.remove(&record.name);
                continue;
            };
            match self.seen.get(&record.name) {
                Some((before, _)) if before != record => outlook.alive.push(conflict),
                Some((_, since)) if now.duration_since(*since) >= record.duration => {
                    outlook.dead.push(record.name.clone());
                }
                Some(_) => outlook.unsure.push(conflict),
                None => {
                    self.seen.insert(record.name.clone(), (record.clone(), now));
                    outlook.unsure.push(conflict);
                }
            }
        }
        outlook
    }
}

/// The finding on the peers that are alive and in the way.
#[must_use]
pub fn finding(alive: &[Conflict]) -> Finding {
    let check = Check::Peers;
    let Some(conflict) = alive.first() else {
        return Finding::ok(check, "no other hub serves the same tasks");
    };
    let peer = format!("the hub {} ({})", shown(&conflict.peer), shown(&conflict.holder));
    match &conflict.kind {
        ConflictKind::SameId => Finding::refused(
            check,
            format!("{peer} runs with the same hub id"),
            "stop it, or give this one a --shard-name of its own",
        ),
        ConflictKind::Overlap(meeting) => Finding::refused(
            check,
            format!("{peer} serves {} too", common(meeting)),
            "give each hub a --watch-namespaces list, without a name in common, or stop one of them",
        ),
    }
}

fn common(meeting: &Meeting) -> String {
    match meeting {
        Meeting::Everything => "these namespaces (one of the two serves all)".to_owned(),
        Meeting::Unknown => "a list too long to be compared, maybe these namespaces".to_owned(),
        Meeting::Names(names) => some_of(&names.iter().map(|name| shown(name)).collect::<Vec<_>>()),
    }
}

#[cfg(test)]
mod tests;
