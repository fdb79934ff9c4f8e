//! Which hubs are alive, and which conflict.

use std::collections::BTreeMap;
use std::time::Instant;

use super::namespace_scope::ScopeOverlap;
use super::record::{HolderIdentity, InstanceState, LeaseRecord, LeaseSlot};
use crate::plan::preflight::{PreflightCheck, PreflightFinding, shown, some_of};

/// Another hub that must not run at the same time as this one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubConflict {
    /// Its hub id.
    pub peer: String,
    /// Its instance.
    pub holder: String,
    /// Where its Jobs run.
    pub rendering: String,
    /// Why not.
    pub kind: HubConflictKind,
}

/// Why two instances must not run at the same time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HubConflictKind {
    /// They are two releases with one id, and would take each other's Jobs for their own.
    SameId,
    /// They are of one hub, and the other one, of an earlier version, works on a part of the namespaces.
    Divides,
    /// They serve the same tasks.
    Overlap(ScopeOverlap),
}

impl HolderIdentity {
    /// What keeps this instance from working while the record's holder is alive.
    #[must_use]
    pub fn conflict(&self, record: &LeaseRecord) -> Option<HubConflict> {
        // A record without a holder was released.
        let holder = record.holder.clone()?;
        if record.process == self.process {
            return None;
        }
        let kind = if record.hub != self.hub_id.to_string() {
            let meeting = self.watched.meets(&record.watched)?;
            (!record.is_standby()).then_some(HubConflictKind::Overlap(meeting))?
        } else if record.rendering != self.rendering {
            HubConflictKind::SameId
        } else if matches!(record.slot, LeaseSlot::Shard(_)) {
            HubConflictKind::Divides
        } else {
            return None;
        };
        Some(HubConflict {
            peer: record.hub.clone(),
            holder,
            rendering: record.rendering.clone(),
            kind,
        })
    }
}

impl LeaseRecord {
    /// Whether its holder yields to an instance that starts with the record of this name: of two that start at once, the one with
    /// the smaller name stays.
    #[must_use]
    pub fn gives_way_to(&self, name: &str) -> bool {
        self.state == InstanceState::Starting && name < self.name.as_str()
    }
}

/// What is known of a record's holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HolderLiveness {
    /// It wrote while it was watched.
    Alive,
    /// It has not been watched for long enough.
    Unsure,
    /// It has not written for the whole duration. It may yet, unless its record is replaced in exactly this version.
    Gone,
}

/// Watches the records, and knows which holders are alive.
#[derive(Clone, Debug, Default)]
pub struct PeerMonitor {
    seen: BTreeMap<String, ObservedRecord>,
    has_looked: bool,
}

#[derive(Clone, Debug)]
struct ObservedRecord {
    record: LeaseRecord,
    /// When it was first seen as it is.
    since: Instant,
    has_changed: bool,
}

impl PeerMonitor {
    /// Stores a list of all records that was answered now.
    pub fn see(&mut self, records: &[LeaseRecord], now: Instant) {
        let mut before = std::mem::take(&mut self.seen);
        for record in records.iter().filter(|record| record.holder.is_some()) {
            let seen = match before.remove(&record.name) {
                Some(seen) if seen.record == *record => seen,
                known => ObservedRecord {
                    record: record.clone(),
                    since: now,
                    // The holder of a record that was free a moment ago is as alive as one that renews.
                    has_changed: known.is_some() || self.has_looked,
                },
            };
            self.seen.insert(record.name.clone(), seen);
        }
        self.has_looked = true;
    }

    /// What is known of the holder of a record that a list showed which was asked for at `asked`.
    #[must_use]
    pub fn life(&self, record: &LeaseRecord, asked: Instant) -> HolderLiveness {
        let Some(seen) = self.seen.get(&record.name).filter(|seen| seen.record == *record) else {
            return HolderLiveness::Unsure;
        };
        if asked.saturating_duration_since(seen.since) >= record.duration {
            HolderLiveness::Gone
        } else if seen.has_changed {
            HolderLiveness::Alive
        } else {
            HolderLiveness::Unsure
        }
    }

    /// When the next of them counts as gone if it does not write.
    #[must_use]
    pub fn next_gone(&self, now: Instant) -> Option<Instant> {
        let ends = self.seen.values().map(|seen| seen.since + seen.record.duration);
        ends.filter(|end| *end > now).min()
    }
}

/// The finding on the peers that are alive and in the way.
#[must_use]
pub fn finding(alive: &[HubConflict]) -> PreflightFinding {
    let check = PreflightCheck::Peers;
    let Some(conflict) = alive.first() else {
        return PreflightFinding::ok(check, "no other hub serves the same tasks");
    };
    let peer = format!("the hub {} ({})", shown(&conflict.peer), shown(&conflict.holder));
    match &conflict.kind {
        HubConflictKind::SameId => PreflightFinding::refused(
            check,
            format!(
                "{peer} runs with the same hub id and the rendering namespace {}",
                shown(&conflict.rendering)
            ),
            "stop it, or give this one a --shard-name of its own",
        ),
        HubConflictKind::Divides => PreflightFinding::refused(
            check,
            format!(
                "{peer} is of an earlier version, works on a part of the namespaces, and started at the same time"
            ),
            "start this one again: it stands by until the last instance of the earlier version has ended",
        ),
        HubConflictKind::Overlap(meeting) => PreflightFinding::refused(
            check,
            format!("{peer} serves {} too", common(meeting)),
            "give each hub a --watch-namespaces list, without a name in common, or stop one of them",
        ),
    }
}

fn common(meeting: &ScopeOverlap) -> String {
    match meeting {
        ScopeOverlap::Everything => "these namespaces (one of the two serves all)".to_owned(),
        ScopeOverlap::Unknown => "a list too long to be compared, maybe these namespaces".to_owned(),
        ScopeOverlap::Names(names) => some_of(&names.iter().map(|name| shown(name)).collect::<Vec<_>>()),
    }
}
