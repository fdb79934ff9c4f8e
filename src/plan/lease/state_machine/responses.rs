//! The results of calls, and what they change.

use std::time::Instant;

use k8s_openapi::api::coordination::v1::Lease;

use super::{
    HeldLease, InstanceState, LOOK_AGAIN, LeaseExit, LeaseRequestError, LeaseResponse, LeaseRole,
    LeaseSnapshot, LeaseStateMachine, REFUSED, RENEW_DEADLINE, RENEW_EVERY, RequestPurpose, STANDBY_LOOK,
};
use crate::plan::lease::record::{LeaseRecord, LeaseSlot};

impl LeaseStateMachine {
    /// Handles the result of the call. One that was cancelled is [`LeaseRequestError::Unanswered`].
    pub fn answer(&mut self, answer: LeaseResponse, now: Instant) {
        let Some((purpose, asked)) = self.under_way.take() else {
            return;
        };
        let answer = self.believed(matches!(purpose, RequestPurpose::Look), answer, now);
        match purpose {
            RequestPurpose::Look => self.looked(answer, asked, now),
            RequestPurpose::Take(slot) => self.took(slot, answer, asked, now),
            RequestPurpose::Renew(role, state) => self.renewed(role, state, answer, asked, now),
            RequestPurpose::Read(role) => self.read(role, answer, now),
            RequestPurpose::Expire(name) => self.handle_expired(&name, answer, now),
            RequestPurpose::Release(role) => self.released(role, &answer, now),
            RequestPurpose::Search(slot) => self.searched(slot, answer, now),
        }
    }

    /// A refusal as what it proves: while a record is held, it may pass, and counts only once it has lasted.
    fn believed(&mut self, is_list: bool, answer: LeaseResponse, now: Instant) -> LeaseResponse {
        let refused = &mut self.refused[usize::from(is_list)];
        match answer {
            LeaseResponse::Failed(LeaseRequestError::Forbidden) => {
                let since = *refused.get_or_insert(now);
                let has_record = self.hub.is_some() || self.standby.is_some();
                if has_record && now.saturating_duration_since(since) < REFUSED {
                    LeaseResponse::Failed(LeaseRequestError::Unanswered)
                } else {
                    answer
                }
            }
            LeaseResponse::Failed(_) => answer,
            LeaseResponse::Listed(_) | LeaseResponse::Lease(_) => {
                *refused = None;
                answer
            }
        }
    }

    fn is_active(&self) -> bool {
        self.until.is_some() || self.state() == InstanceState::Active
    }

    fn look_again(&mut self, at: Instant) {
        self.listed = None;
        self.look_at = Some(at);
    }

    fn looked(&mut self, answer: LeaseResponse, asked: Instant, now: Instant) {
        let leases = match answer {
            LeaseResponse::Listed(leases) => leases,
            LeaseResponse::Failed(LeaseRequestError::Forbidden) if !self.is_active() => {
                return self.begin_end(LeaseExit::Forbidden("listed"));
            }
            LeaseResponse::Failed(_) | LeaseResponse::Lease(_) => return self.look_again(now + LOOK_AGAIN),
        };
        let records: Vec<LeaseRecord> = leases.iter().filter_map(LeaseRecord::of).collect();
        self.peers.see(&records, now);
        self.forget_served_namespaces(&records, asked);
        self.find_own(&leases, now);
        let leases = leases
            .into_iter()
            .filter_map(|lease| Some((lease.metadata.name.clone()?, lease)));
        self.listed = Some(LeaseSnapshot {
            asked,
            leases: leases.collect(),
            records,
        });
        self.look_at = self.next_look(now);
    }

    /// Finds records that a call took although its answer was lost.
    fn find_own(&mut self, leases: &[Lease], now: Instant) {
        for lease in leases {
            if !self.identity.holds(lease) {
                continue;
            }
            let Some(record) = LeaseRecord::of(lease) else {
                continue;
            };
            let role = role_of(record.slot);
            if self.hold(role).is_none() {
                *self.hold(role) = Some(HeldLease {
                    slot: record.slot,
                    state: starting(record.slot),
                    lease: Some(lease.clone()),
                    taken: now,
                    due: now,
                    is_unconfirmed: false,
                });
                self.attempt = None;
            }
        }
    }

    fn took(&mut self, slot: LeaseSlot, answer: LeaseResponse, asked: Instant, now: Instant) {
        match answer {
            LeaseResponse::Lease(lease) => {
                *self.hold(role_of(slot)) = Some(HeldLease {
                    slot,
                    state: starting(slot),
                    lease: Some(*lease),
                    taken: now,
                    due: asked + RENEW_EVERY,
                    is_unconfirmed: false,
                });
                if role_of(slot) == LeaseRole::Hub {
                    self.look_again(now);
                }
            }
            LeaseResponse::Failed(LeaseRequestError::Forbidden) => {
                self.begin_end(LeaseExit::Forbidden("written"));
            }
            LeaseResponse::Failed(LeaseRequestError::Unanswered) | LeaseResponse::Listed(_) => {
                self.attempt = Some(slot);
                self.look_again(now + LOOK_AGAIN);
            }
            LeaseResponse::Failed(LeaseRequestError::Conflict | LeaseRequestError::NotFound) => {
                self.look_again(now + STANDBY_LOOK);
            }
        }
    }

    fn renewed(
        &mut self,
        role: LeaseRole,
        state: InstanceState,
        answer: LeaseResponse,
        asked: Instant,
        now: Instant,
    ) {
        let was_active = self.is_active();
        let Some(hold) = self.hold(role) else { return };
        match answer {
            LeaseResponse::Lease(lease) => {
                let was_missing = hold.lease.replace(*lease).is_none();
                let begins = hold.state != state;
                (hold.state, hold.due) = (state, asked + RENEW_EVERY);
                if was_missing {
                    hold.taken = now;
                    self.look_again(now);
                } else if state == InstanceState::Active {
                    self.until = Some(asked + RENEW_DEADLINE);
                    self.look_at = if begins { self.next_look(now) } else { self.look_at };
                }
            }
            LeaseResponse::Failed(LeaseRequestError::Conflict) => {
                (hold.is_unconfirmed, hold.due) = (true, now);
            }
            LeaseResponse::Failed(LeaseRequestError::NotFound) => self.is_missing(role, now),
            LeaseResponse::Failed(LeaseRequestError::Forbidden) if !was_active => {
                self.begin_end(LeaseExit::Forbidden("written"));
            }
            LeaseResponse::Failed(LeaseRequestError::Forbidden | LeaseRequestError::Unanswered)
            | LeaseResponse::Listed(_) => {
                // A call that got no answer in time is repeated at once: a pause more, and the claim ends before the next answer.
                hold.due = (asked + LOOK_AGAIN).max(now);
                if hold.state == InstanceState::Starting {
                    self.look_again(now + LOOK_AGAIN);
                }
            }
        }
    }

    /// The record was deleted. It is written again, and proves itself as at a start.
    fn is_missing(&mut self, role: LeaseRole, now: Instant) {
        match self.hold(role) {
            Some(hold) if role == LeaseRole::Hub => {
                (hold.lease, hold.state) = (None, InstanceState::Starting);
                (hold.is_unconfirmed, hold.due) = (false, now);
            }
            hold => {
                *hold = None;
                self.look_again(now);
            }
        }
    }

    /// Finds out why a write was refused: another client's edit is harmless, another holder is the end.
    fn read(&mut self, role: LeaseRole, answer: LeaseResponse, now: Instant) {
        let is_ending = self.ending.is_some();
        let lease = match answer {
            LeaseResponse::Lease(lease) => lease,
            LeaseResponse::Failed(LeaseRequestError::NotFound) if is_ending => {
                *self.hold(role) = None;
                return;
            }
            LeaseResponse::Failed(LeaseRequestError::NotFound) => return self.is_missing(role, now),
            LeaseResponse::Failed(_) | LeaseResponse::Listed(_) => {
                self.failed_releases += u8::from(is_ending);
                if let Some(hold) = self.hold(role) {
                    hold.due = now + LOOK_AGAIN;
                }
                return;
            }
        };
        if self.identity.holds(&lease) {
            let Some(hold) = self.hold(role) else { return };
            let was_missing = hold.lease.replace(*lease).is_none();
            (hold.is_unconfirmed, hold.due) = (false, now);
            if was_missing {
                hold.taken = now;
                self.look_again(now);
            }
            return;
        }
        *self.hold(role) = None;
        let holder = lease.spec.and_then(|spec| spec.holder_identity);
        // An instance that takes a standby's record under its own name is the same one, started again.
        if !is_ending && (role == LeaseRole::Hub || holder.as_ref() == Some(&self.identity.holder)) {
            self.begin_end(LeaseExit::Lost);
        } else if !is_ending {
            self.look_again(now);
        }
    }

    fn handle_expired(&mut self, name: &str, answer: LeaseResponse, now: Instant) {
        match answer {
            LeaseResponse::Lease(lease) => {
                let Some(listed) = &mut self.listed else { return };
                if let (Some(record), Some(known)) = (
                    LeaseRecord::of(&lease),
                    listed.records.iter_mut().find(|record| record.name == name),
                ) {
                    *known = record;
                }
                listed.leases.insert(name.to_owned(), *lease);
            }
            LeaseResponse::Failed(LeaseRequestError::Forbidden) if !self.is_active() => {
                self.begin_end(LeaseExit::Forbidden("written"));
            }
            LeaseResponse::Failed(LeaseRequestError::Conflict | LeaseRequestError::NotFound) => {
                self.look_again(now);
            }
            LeaseResponse::Failed(_) | LeaseResponse::Listed(_) => self.look_again(now + LOOK_AGAIN),
        }
    }

    fn released(&mut self, role: LeaseRole, answer: &LeaseResponse, now: Instant) {
        let is_ending = self.ending.is_some();
        let Some(hold) = self.hold(role) else { return };
        match answer {
            LeaseResponse::Failed(LeaseRequestError::Conflict) if is_ending => {
                (hold.is_unconfirmed, hold.due) = (true, now);
            }
            LeaseResponse::Failed(LeaseRequestError::Unanswered) | LeaseResponse::Listed(_) if is_ending => {
                self.failed_releases += 1;
            }
            _ => *self.hold(role) = None,
        }
    }

    fn searched(&mut self, slot: LeaseSlot, answer: LeaseResponse, now: Instant) {
        match answer {
            LeaseResponse::Lease(lease) if self.identity.holds(&lease) => self.find_own(&[*lease], now),
            LeaseResponse::Failed(LeaseRequestError::Unanswered | LeaseRequestError::Conflict)
            | LeaseResponse::Listed(_) => {
                self.failed_releases += 1;
                self.attempt = Some(slot);
                return;
            }
            _ => {}
        }
        self.attempt = None;
    }
}

const fn role_of(slot: LeaseSlot) -> LeaseRole {
    match slot {
        LeaseSlot::Standby(_) => LeaseRole::Standby,
        LeaseSlot::Hub | LeaseSlot::Shard(_) => LeaseRole::Hub,
    }
}

const fn starting(slot: LeaseSlot) -> InstanceState {
    match slot {
        LeaseSlot::Standby(_) => InstanceState::Standby,
        LeaseSlot::Hub | LeaseSlot::Shard(_) => InstanceState::Starting,
    }
}
