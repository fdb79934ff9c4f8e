//! What came of a call, and what it changes.

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;

use super::{
    Answer, End, Failure, Hold, LOOK_AGAIN, Listed, Machine, Purpose, RENEW_DEADLINE, RENEW_EVERY, Role,
    STANDBY_LOOK, State,
};
use crate::plan::lease::record::{Record, Slot};

impl Machine {
    /// Takes in what came of the call. One that was given up is [`Failure::Unanswered`].
    pub fn answer(&mut self, answer: Answer, now: Instant) {
        let Some((purpose, asked)) = self.under_way.take() else {
            return;
        };
        match purpose {
            Purpose::Look => self.looked(answer, asked, now),
            Purpose::Take(slot) => self.took(slot, answer, asked, now),
            Purpose::Renew(role, state) => self.renewed(role, state, answer, asked, now),
            Purpose::Read(role) => self.read(role, answer, now),
            Purpose::Bury(name) => self.buried(&name, answer, now),
            Purpose::Release(role) => self.released(role, &answer, now),
            Purpose::Search(slot) => self.searched(slot, answer, now),
        }
    }

    fn is_active(&self) -> bool {
        self.until.is_some() || self.state() == State::Active
    }

    fn look_again(&mut self, at: Instant) {
        self.listed = None;
        self.look_at = Some(at);
    }

    fn looked(&mut self, answer: Answer, asked: Instant, now: Instant) {
        let leases = match answer {
            Answer::Listed(leases) => leases,
            Answer::Failed(Failure::Forbidden) if !self.is_active() => {
                return self.wind_up(End::Forbidden("listed"));
            }
            Answer::Failed(_) | Answer::Lease(_) => return self.look_again(now + LOOK_AGAIN),
        };
        let records: Vec<Record> = leases.iter().filter_map(Record::of).collect();
        self.lookout.see(&records, now);
        self.forget_heirs(&records, asked);
        self.find_own(&leases, now);
        let leases = leases
            .into_iter()
            .filter_map(|lease| Some((lease.metadata.name.clone()?, lease)));
        self.listed = Some(Listed {
            asked,
            leases: leases.collect(),
            records,
        });
        self.look_at = self.next_look(now);
    }

    /// Finds records that were taken although nobody said so.
    fn find_own(&mut self, leases: &[Lease], now: Instant) {
        for lease in leases {
            if !self.claim.holds(lease) {
                continue;
            }
            let Some(record) = Record::of(lease) else { continue };
            let role = role_of(record.slot);
            if self.hold(role).is_none() {
                *self.hold(role) = Some(Hold {
                    slot: record.slot,
                    state: starting(record.slot),
                    lease: Some(lease.clone()),
                    taken: now,
                    due: now,
                    is_in_doubt: false,
                });
                self.attempt = None;
            }
        }
    }

    fn took(&mut self, slot: Slot, answer: Answer, asked: Instant, now: Instant) {
        match answer {
            Answer::Lease(lease) => {
                *self.hold(role_of(slot)) = Some(Hold {
                    slot,
                    state: starting(slot),
                    lease: Some(*lease),
                    taken: now,
                    due: asked + RENEW_EVERY,
                    is_in_doubt: false,
                });
                if role_of(slot) == Role::Hub {
                    self.look_again(now);
                }
            }
            Answer::Failed(Failure::Forbidden) => self.wind_up(End::Forbidden("written")),
            Answer::Failed(Failure::Unanswered) | Answer::Listed(_) => {
                self.attempt = Some(slot);
                self.look_again(now + LOOK_AGAIN);
            }
            Answer::Failed(Failure::Conflict | Failure::NotFound) => self.look_again(now + STANDBY_LOOK),
        }
    }

    fn renewed(&mut self, role: Role, state: State, answer: Answer, asked: Instant, now: Instant) {
        let was_active = self.is_active();
        let Some(hold) = self.hold(role) else { return };
        match answer {
            Answer::Lease(lease) => {
                let was_missing = hold.lease.replace(*lease).is_none();
                let begins = hold.state != state;
                (hold.state, hold.due) = (state, asked + RENEW_EVERY);
                if was_missing {
                    hold.taken = now;
                    self.look_again(now);
                } else if state == State::Active {
                    self.until = Some(asked + RENEW_DEADLINE);
                    self.look_at = if begins { self.next_look(now) } else { self.look_at };
                }
            }
            Answer::Failed(Failure::Conflict) => (hold.is_in_doubt, hold.due) = (true, now),
            Answer::Failed(Failure::NotFound) => self.is_missing(role, now),
            Answer::Failed(Failure::Forbidden) if !was_active => self.wind_up(End::Forbidden("written")),
            Answer::Failed(Failure::Forbidden | Failure::Unanswered) | Answer::Listed(_) => {
                hold.due = now + LOOK_AGAIN;
                if hold.state == State::Starting {
                    self.look_again(now + LOOK_AGAIN);
                }
            }
        }
    }

    /// Somebody removed the record. It is written anew, and proves itself as at a start.
    fn is_missing(&mut self, role: Role, now: Instant) {
        match self.hold(role) {
            Some(hold) if role == Role::Hub => {
                (hold.lease, hold.state) = (None, State::Starting);
                (hold.is_in_doubt, hold.due) = (false, now);
            }
            hold => {
                *hold = None;
                self.look_again(now);
            }
        }
    }

    /// Finds out why a write was refused: an edit of somebody's is harmless, another holder is the end.
    fn read(&mut self, role: Role, answer: Answer, now: Instant) {
        let is_ending = self.ending.is_some();
        let lease = match answer {
            Answer::Lease(lease) => lease,
            Answer::Failed(Failure::NotFound) if is_ending => {
                *self.hold(role) = None;
                return;
            }
            Answer::Failed(Failure::NotFound) => return self.is_missing(role, now),
            Answer::Failed(_) | Answer::Listed(_) => {
                self.failed_releases += u8::from(is_ending);
                if let Some(hold) = self.hold(role) {
                    hold.due = now + LOOK_AGAIN;
                }
                return;
            }
        };
        if self.claim.holds(&lease) {
            let Some(hold) = self.hold(role) else { return };
            let was_missing = hold.lease.replace(*lease).is_none();
            (hold.is_in_doubt, hold.due) = (false, now);
            if was_missing {
                hold.taken = now;
                self.look_again(now);
            }
            return;
        }
        *self.hold(role) = None;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        // Who takes a standby's record under its own name is the same instance, started again.
        if !is_ending && (role == Role::Hub || holder.as_ref() == Some(&self.claim.holder)) {
            self.wind_up(End::Lost);
        } else if !is_ending {
            self.look_again(now);
        }
    }

    fn buried(&mut self, name: &str, answer: Answer, now: Instant) {
        match answer {
            Answer::Lease(lease) => {
                let Some(listed) = &mut self.listed else { return };
                if let (Some(record), Some(known)) = (
                    Record::of(&lease),
                    listed.records.iter_mut().find(|record| record.name == name),
                ) {
                    *known = record;
                }
                listed.leases.insert(name.to_owned(), *lease);
            }
            Answer::Failed(Failure::Forbidden) if !self.is_active() => {
                self.wind_up(End::Forbidden("written"));
            }
            Answer::Failed(Failure::Conflict | Failure::NotFound) => self.look_again(now),
            Answer::Failed(_) | Answer::Listed(_) => self.look_again(now + LOOK_AGAIN),
        }
    }

    fn released(&mut self, role: Role, answer: &Answer, now: Instant) {
        let is_ending = self.ending.is_some();
        let Some(hold) = self.hold(role) else { return };
        match answer {
            Answer::Failed(Failure::Conflict) if is_ending => {
                (hold.is_in_doubt, hold.due) = (true, now);
            }
            Answer::Failed(Failure::Unanswered) | Answer::Listed(_) if is_ending => self.failed_releases += 1,
            _ => *self.hold(role) = None,
        }
    }

    fn searched(&mut self, slot: Slot, answer: Answer, now: Instant) {
        match answer {
            Answer::Lease(lease) if self.claim.holds(&lease) => self.find_own(&[*lease], now),
            Answer::Failed(Failure::Unanswered | Failure::Conflict) | Answer::Listed(_) => {
                self.failed_releases += 1;
                self.attempt = Some(slot);
                return;
            }
            _ => {}
        }
        self.attempt = None;
    }
}

const fn role_of(slot: Slot) -> Role {
    match slot {
        Slot::Standby(_) => Role::Standby,
        Slot::Hub | Slot::Shard(_) => Role::Hub,
    }
}

const fn starting(slot: Slot) -> State {
    match slot {
        Slot::Standby(_) => State::Standby,
        Slot::Hub | Slot::Shard(_) => State::Starting,
    }
}
