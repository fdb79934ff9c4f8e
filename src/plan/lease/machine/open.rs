//! The way to work: which record is taken, and who stands in the way.

use std::collections::BTreeSet;
use std::time::Instant;

use k8s_openapi::jiff::Timestamp;

use super::{Call, End, Listed, Machine, Purpose, STANDBYS, Want};
use crate::plan::lease::peers::{Conflict, ConflictKind, Life};
use crate::plan::lease::record::{Claim, Record, Slot, State};
use crate::plan::lease::watched::{MAX_LISTED, Watched};

/// What a list tells of those in the way.
#[derive(Debug, Default)]
struct InTheWay {
    /// They are alive, and do not give way.
    against: Vec<Conflict>,
    /// They may be alive, or are about to give way.
    unsure: Vec<Conflict>,
    /// Names of the records of those who are gone.
    gone: Vec<String>,
}

impl Machine {
    /// Hubs in the way that may be alive, by the last list.
    #[must_use]
    pub fn waits_for(&self) -> Vec<Conflict> {
        let listed = self.listed.as_ref();
        listed.map_or_else(Vec::new, |listed| self.in_the_way(listed).unsure)
    }

    /// Hubs that would keep this instance from working when its turn comes, as far as it is not known that they are gone.
    /// Until it holds a record they are in nobody's way, but such an instance is no successor to anybody.
    #[must_use]
    pub fn will_meet(&self) -> Vec<Conflict> {
        let listed = self.listed.iter().filter(|_| self.hub.is_none());
        let overlaps = listed.flat_map(|listed| {
            let alive = listed
                .records
                .iter()
                .filter(|record| self.lookout.life(record, listed.asked) != Life::Gone);
            alive.filter_map(|record| self.claim.conflict(record))
        });
        overlaps
            .filter(|conflict| matches!(conflict.kind, ConflictKind::Overlap(_)))
            .collect()
    }

    fn in_the_way(&self, listed: &Listed) -> InTheWay {
        let mut found = InTheWay::default();
        let own = self.hub.as_ref().map(|hold| self.claim.name(hold.slot));
        for record in &listed.records {
            let Some(conflict) = self.claim.conflict(record) else {
                continue;
            };
            // Before it holds a record itself, nothing of other hubs matters yet.
            if own.is_none() && matches!(conflict.kind, ConflictKind::Overlap(_)) {
                continue;
            }
            match self.lookout.life(record, listed.asked) {
                Life::Gone => found.gone.push(record.name.clone()),
                Life::Unsure => found.unsure.push(conflict),
                Life::Alive if own.as_ref().is_some_and(|own| record.gives_way_to(own)) => {
                    found.unsure.push(conflict);
                }
                Life::Alive => found.against.push(conflict),
            }
        }
        found
    }

    fn look_now() -> Want {
        Want::Call(Purpose::Look, Call::List)
    }

    /// Replaces the record of somebody who is gone, in exactly the version that was watched.
    fn bury(listed: &Listed, name: &str, stamp: Timestamp) -> Option<Want> {
        let released = Box::new(Claim::released(listed.leases.get(name)?, stamp));
        Some(Want::Call(
            Purpose::Bury(name.to_owned()),
            Call::Replace(released),
        ))
    }

    /// Looks for a record to take; `None` when it must end.
    pub(super) fn open(&mut self, now: Instant, stamp: Timestamp) -> Option<Want> {
        let is_due = self.look_at.is_none_or(|at| at <= now);
        let Some(listed) = self.listed.as_ref().filter(|_| !is_due) else {
            return Some(if is_due { Self::look_now() } else { Want::Wait });
        };
        let found = self.in_the_way(listed);
        let is_other = |conflict: &Conflict| conflict.kind == ConflictKind::SameId;
        if found.against.iter().any(is_other) {
            let against = found.against.into_iter().filter(is_other).collect();
            self.wind_up(End::Conflict(against));
            return None;
        }
        if found.unsure.iter().any(is_other) {
            self.stands_by = false;
            return Some(Want::Wait);
        }
        if let Some(name) = found.gone.first() {
            return Self::bury(listed, name, stamp);
        }
        // Who is left is an instance of an earlier version, and works on a part.
        let is_free = found.against.is_empty() && found.unsure.is_empty();
        let slot = self.choose(listed, is_free.then_some(Slot::Hub).into_iter());
        let stands_by = slot.is_none() && self.will_meet().is_empty();
        let standby = (0..STANDBYS)
            .map(Slot::Standby)
            .filter(|_| stands_by && self.standby.is_none());
        let slot = slot.or_else(|| self.choose(listed, standby));
        self.stands_by = stands_by;
        Some(slot.map_or(Want::Wait, |slot| self.take(slot, stamp)))
    }

    /// The one that it had before, or the first that is nobody's, or the first whose holder is gone.
    fn choose(&self, listed: &Listed, slots: impl Iterator<Item = Slot>) -> Option<Slot> {
        let rank = |slot: &Slot| {
            let name = self.claim.name(*slot);
            let Some(record) = listed.records.iter().find(|record| record.name == name) else {
                return Some(1);
            };
            let Some(holder) = &record.holder else {
                return Some(1);
            };
            // The instance before this one in the same place: a container that was started again.
            if *holder == self.claim.holder && record.rendering == self.claim.rendering {
                return Some(0);
            }
            (self.lookout.life(record, listed.asked) == Life::Gone).then_some(2)
        };
        let ranked = slots.filter_map(|slot| Some((rank(&slot)?, slot)));
        ranked.min().map(|(_, slot)| slot)
    }

    fn take(&mut self, slot: Slot, stamp: Timestamp) -> Want {
        let state = match slot {
            Slot::Standby(_) => State::Standby,
            Slot::Hub | Slot::Shard(_) => State::Starting,
        };
        if state == State::Starting {
            self.former = self.dropped();
        }
        let name = self.claim.name(slot);
        let before = self.listed.as_ref().and_then(|listed| listed.leases.get(&name));
        Want::Call(Purpose::Take(slot), self.write(slot, state, before, stamp))
    }

    /// Holds a record, and finds out whether it may work; `None` when it must end.
    pub(super) fn begin(&mut self, now: Instant, stamp: Timestamp) -> Option<Want> {
        let hold = self.hub.as_ref()?;
        let is_due = self.look_at.is_none_or(|at| at <= now);
        // The others are read after the own record was written: they may have written meanwhile.
        let listed = self.listed.as_ref().filter(|listed| listed.asked >= hold.taken);
        let Some(listed) = listed.filter(|_| !is_due) else {
            return Some(if is_due { Self::look_now() } else { Want::Wait });
        };
        let found = self.in_the_way(listed);
        if !found.against.is_empty() {
            self.wind_up(End::Conflict(found.against));
            return None;
        }
        if let Some(name) = found.gone.first() {
            return Self::bury(listed, name, stamp);
        }
        if !found.unsure.is_empty() {
            return Some(Want::Wait);
        }
        let call = self.write(hold.slot, State::Active, hold.lease.as_ref(), stamp);
        Some(Want::Call(Purpose::Renew(super::Role::Hub, State::Active), call))
    }

    /// Releases records that this process took without hearing of it, and does not need.
    pub(super) fn clear_strays(&self, stamp: Timestamp) -> Option<Want> {
        let listed = self.listed.as_ref()?;
        let held = [&self.hub, &self.standby].map(|hold| hold.as_ref().map(|hold| hold.slot));
        let is_stray = |record: &&Record| {
            let is_own = record.holder.as_ref() == Some(&self.claim.holder);
            is_own && record.process == self.claim.process && !held.contains(&Some(record.slot))
        };
        let stray = listed.records.iter().find(is_stray)?;
        Self::bury(listed, &stray.name, stamp)
    }

    /// The namespaces that this hub served, as its records say, and that this instance does not serve.
    fn dropped(&self) -> BTreeSet<String> {
        let Watched::Only { names: own, .. } = &self.claim.watched else {
            return BTreeSet::new();
        };
        let records = self.listed.iter().flat_map(|listed| &listed.records);
        let before = records.filter(|r| r.hub == self.claim.hub_id.as_str() && !r.is_standby());
        let served = before.flat_map(|record| match &record.watched {
            Watched::Only { names, .. } => names.iter().chain(&record.former).collect::<Vec<_>>(),
            Watched::All => record.former.iter().collect(),
        });
        let dropped = served.filter(|name| !own.contains(*name)).cloned();
        dropped
            .collect::<BTreeSet<_>>()
            .into_iter()
            .take(MAX_LISTED)
            .collect()
    }

    /// Forgets former namespaces that somebody who is alive serves.
    pub(super) fn forget_heirs(&mut self, records: &[Record], asked: Instant) {
        for record in records.iter().filter(|r| r.holder.is_some() && !r.is_standby()) {
            if record.process == self.claim.process || self.lookout.life(record, asked) == Life::Gone {
                continue;
            }
            match &record.watched {
                Watched::All => self.former.clear(),
                Watched::Only { names, .. } => self.former.retain(|name| !names.contains(name)),
            }
        }
    }
}
