//! How an instance acquires the right to work: which record it takes, and which hubs conflict with it.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::{
    LeaseDecision, LeaseExit, LeaseRequest, LeaseSnapshot, LeaseStateMachine, RequestPurpose, STANDBYS,
};
use crate::plan::lease::namespace_scope::{MAX_LISTED, NamespaceScope};
use crate::plan::lease::peers::{HolderLiveness, HubConflict, HubConflictKind};
use crate::plan::lease::record::{HolderIdentity, InstanceState, LeaseRecord, LeaseSlot};

/// The conflicts in a list of records.
#[derive(Debug, Default)]
struct ConflictScan {
    /// They are alive, and do not yield.
    against: Vec<HubConflict>,
    /// They may be alive, or are about to yield.
    unsure: Vec<HubConflict>,
    /// Names of the records whose holders are gone.
    gone: Vec<String>,
}

impl LeaseStateMachine {
    /// Hubs in the way that may be alive, by the last list.
    #[must_use]
    pub fn waits_for(&self) -> Vec<HubConflict> {
        let listed = self.listed.as_ref();
        listed.map_or_else(Vec::new, |listed| self.conflicts(listed).unsure)
    }

    /// Hubs that would conflict with this instance when it acquires the Lease, unless they are known to be gone. A standby
    /// conflicts with none of them, but it cannot succeed any of them either.
    #[must_use]
    pub fn future_conflicts(&self) -> Vec<HubConflict> {
        let listed = self.listed.iter().filter(|_| self.hub.is_none());
        let overlaps = listed.flat_map(|listed| {
            let alive = listed
                .records
                .iter()
                .filter(|record| self.peers.life(record, listed.asked) != HolderLiveness::Gone);
            alive.filter_map(|record| self.identity.conflict(record))
        });
        overlaps
            .filter(|conflict| matches!(conflict.kind, HubConflictKind::Overlap(_)))
            .collect()
    }

    fn conflicts(&self, listed: &LeaseSnapshot) -> ConflictScan {
        let mut found = ConflictScan::default();
        let own = self.hub.as_ref().map(|hold| self.identity.name(hold.slot));
        for record in &listed.records {
            let Some(conflict) = self.identity.conflict(record) else {
                continue;
            };
            // Before it holds a record itself, nothing of other hubs matters yet.
            if own.is_none() && matches!(conflict.kind, HubConflictKind::Overlap(_)) {
                continue;
            }
            match self.peers.life(record, listed.asked) {
                HolderLiveness::Gone => found.gone.push(record.name.clone()),
                HolderLiveness::Unsure => found.unsure.push(conflict),
                HolderLiveness::Alive if own.as_ref().is_some_and(|own| record.gives_way_to(own)) => {
                    found.unsure.push(conflict);
                }
                HolderLiveness::Alive => found.against.push(conflict),
            }
        }
        found
    }

    fn list_now() -> LeaseDecision {
        LeaseDecision::Call(RequestPurpose::Look, LeaseRequest::List)
    }

    /// Replaces the record of a holder that is gone, in exactly the version that was watched.
    fn fence_expired(listed: &LeaseSnapshot, name: &str, stamp: Timestamp) -> Option<LeaseDecision> {
        let released = Box::new(HolderIdentity::released(listed.leases.get(name)?, stamp));
        Some(LeaseDecision::Call(
            RequestPurpose::Expire(name.to_owned()),
            LeaseRequest::Replace(released),
        ))
    }

    /// Looks for a record to take; `None` when it must end.
    pub(super) fn open(&mut self, now: Instant, stamp: Timestamp) -> Option<LeaseDecision> {
        let is_due = self.look_at.is_none_or(|at| at <= now);
        let Some(listed) = self.listed.as_ref().filter(|_| !is_due) else {
            return Some(if is_due {
                Self::list_now()
            } else {
                LeaseDecision::Wait
            });
        };
        let found = self.conflicts(listed);
        let is_other = |conflict: &HubConflict| conflict.kind == HubConflictKind::SameId;
        if found.against.iter().any(is_other) {
            let against = found.against.into_iter().filter(is_other).collect();
            self.begin_end(LeaseExit::Conflict(against));
            return None;
        }
        if found.unsure.iter().any(is_other) {
            self.is_standby = false;
            return Some(LeaseDecision::Wait);
        }
        if let Some(name) = found.gone.first() {
            return Self::fence_expired(listed, name, stamp);
        }
        // The others left are instances of an earlier version, which work on a part.
        let is_free = found.against.is_empty() && found.unsure.is_empty();
        let slot = self.choose(listed, is_free.then_some(LeaseSlot::Hub).into_iter());
        let stands_by = slot.is_none() && self.future_conflicts().is_empty();
        let standby = (0..STANDBYS)
            .map(LeaseSlot::Standby)
            .filter(|_| stands_by && self.standby.is_none());
        let slot = slot.or_else(|| self.choose(listed, standby));
        self.is_standby = stands_by;
        Some(slot.map_or(LeaseDecision::Wait, |slot| self.take(slot, stamp)))
    }

    /// The record that it had before, or the first free one, or the first whose holder is gone.
    fn choose(&self, listed: &LeaseSnapshot, slots: impl Iterator<Item = LeaseSlot>) -> Option<LeaseSlot> {
        let rank = |slot: &LeaseSlot| {
            let name = self.identity.name(*slot);
            let Some(record) = listed.records.iter().find(|record| record.name == name) else {
                return Some(1);
            };
            let Some(holder) = &record.holder else {
                return Some(1);
            };
            // The instance before this one in the same place: a container that was started again.
            if *holder == self.identity.holder && record.rendering == self.identity.rendering {
                return Some(0);
            }
            (self.peers.life(record, listed.asked) == HolderLiveness::Gone).then_some(2)
        };
        let ranked = slots.filter_map(|slot| Some((rank(&slot)?, slot)));
        ranked.min().map(|(_, slot)| slot)
    }

    fn take(&mut self, slot: LeaseSlot, stamp: Timestamp) -> LeaseDecision {
        let state = match slot {
            LeaseSlot::Standby(_) => InstanceState::Standby,
            LeaseSlot::Hub | LeaseSlot::Shard(_) => InstanceState::Starting,
        };
        if state == InstanceState::Starting {
            self.former = self.former_namespaces();
        }
        let name = self.identity.name(slot);
        let before = self.listed.as_ref().and_then(|listed| listed.leases.get(&name));
        LeaseDecision::Call(RequestPurpose::Take(slot), self.write(slot, state, before, stamp))
    }

    /// Holds a record, and finds out whether it may work; `None` when it must end.
    pub(super) fn begin(&mut self, now: Instant, stamp: Timestamp) -> Option<LeaseDecision> {
        let hold = self.hub.as_ref()?;
        let is_due = self.look_at.is_none_or(|at| at <= now);
        // The others are read after the own record was written: they may have written meanwhile.
        let listed = self.listed.as_ref().filter(|listed| listed.asked >= hold.taken);
        let Some(listed) = listed.filter(|_| !is_due) else {
            return Some(if is_due {
                Self::list_now()
            } else {
                LeaseDecision::Wait
            });
        };
        let found = self.conflicts(listed);
        if !found.against.is_empty() {
            self.begin_end(LeaseExit::Conflict(found.against));
            return None;
        }
        if let Some(name) = found.gone.first() {
            return Self::fence_expired(listed, name, stamp);
        }
        if !found.unsure.is_empty() {
            return Some(LeaseDecision::Wait);
        }
        let call = self.write(hold.slot, InstanceState::Active, hold.lease.as_ref(), stamp);
        Some(LeaseDecision::Call(
            RequestPurpose::Renew(super::LeaseRole::Hub, InstanceState::Active),
            call,
        ))
    }

    /// Releases records that this process took without hearing of it, and does not need.
    pub(super) fn release_unneeded(&self, stamp: Timestamp) -> Option<LeaseDecision> {
        let listed = self.listed.as_ref()?;
        let held = [&self.hub, &self.standby].map(|hold| hold.as_ref().map(|hold| hold.slot));
        let is_unneeded = |record: &&LeaseRecord| {
            let is_own = record.holder.as_ref() == Some(&self.identity.holder);
            is_own && record.process == self.identity.process && !held.contains(&Some(record.slot))
        };
        let unneeded = listed.records.iter().find(is_unneeded)?;
        Self::fence_expired(listed, &unneeded.name, stamp)
    }

    /// The namespaces that this hub served, as its records say, and that this instance does not serve.
    fn former_namespaces(&self) -> BTreeSet<String> {
        let NamespaceScope::Only { names: own, .. } = &self.identity.watched else {
            return BTreeSet::new();
        };
        let records = self.listed.iter().flat_map(|listed| &listed.records);
        let before = records.filter(|r| r.hub == self.identity.hub_id.as_str() && !r.is_standby());
        let served = before.flat_map(|record| match &record.watched {
            NamespaceScope::Only { names, .. } => {
                names.iter().chain(&record.former_namespaces).collect::<Vec<_>>()
            }
            NamespaceScope::All => record.former_namespaces.iter().collect(),
        });
        let dropped = served.filter(|name| !own.contains(*name)).cloned();
        dropped
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(MAX_LISTED)
            .collect()
    }

    /// Forgets former namespaces that a live hub serves.
    pub(super) fn forget_served_namespaces(&mut self, records: &[LeaseRecord], asked: Instant) {
        for record in records.iter().filter(|r| r.holder.is_some() && !r.is_standby()) {
            if record.process == self.identity.process
                || self.peers.life(record, asked) == HolderLiveness::Gone
            {
                continue;
            }
            match &record.watched {
                NamespaceScope::All => self.former.clear(),
                NamespaceScope::Only { names, .. } => self.former.retain(|name| !names.contains(name)),
            }
        }
    }
}
