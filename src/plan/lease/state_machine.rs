//! What an instance reads and writes next of its Leases, and until when it holds them.
//!
//! The machine makes one call at a time and handles its result: [`LeaseStateMachine::next`], the call,
//! [`LeaseStateMachine::answer`]. It holds two records at most: one is the right to work, one marks a standby. A call without an
//! answer may take effect, even much later; every write names the version that it replaces, so the machine finds out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;

use super::peers::{HubConflict, PeerMonitor};
use super::record::{HolderIdentity, InstanceState, LeaseContent, LeaseRecord, LeaseSlot};
use super::timing::{LOOK_AGAIN, REFUSED, RENEW_DEADLINE, RENEW_EVERY, STANDBY_LOOK};

mod acquire;
mod log_names;
mod responses;

/// Most standbys that have a record.
const STANDBYS: u8 = 8;
/// How often an instance that remembers former namespaces checks whether another hub serves them.
const FORMER_NAMESPACES_CHECK: Duration = Duration::from_secs(60);
/// How often the release of a record is tried.
const RELEASES: u8 = 3;

/// A call to the API server.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseRequest {
    /// All Leases of hubs.
    List,
    /// The Lease of this name.
    Get(String),
    /// This one is new.
    Create(Box<Lease>),
    /// This one takes the place of the one with its resource version.
    Replace(Box<Lease>),
}

/// Why a call did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeaseRequestError {
    /// Another instance was faster.
    Conflict,
    /// There is no such Lease.
    NotFound,
    /// The hub may not.
    Forbidden,
    /// No answer, or one that may be another next time. It may have been done.
    Unanswered,
}

/// The result of a call.
#[derive(Clone, Debug)]
pub enum LeaseResponse {
    /// The Leases.
    Listed(Vec<Lease>),
    /// The Lease that was read, or as it was written.
    Lease(Box<Lease>),
    /// Nothing.
    Failed(LeaseRequestError),
}

/// What to do next.
#[derive(Clone, Debug, PartialEq)]
pub enum LeaseAction {
    /// This call.
    Call(LeaseRequest),
    /// Nothing before then.
    Wait(Instant),
    /// Nothing any more.
    End(LeaseExit),
}

/// Why an instance ends.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeaseExit {
    /// Live hubs conflict with it.
    #[error("another hub is in the way")]
    Conflict(Vec<HubConflict>),
    /// It may not do this with Leases.
    #[error(
        "leases cannot be {0} in the lease namespace; the hub needs get, list, create and update on them"
    )]
    Forbidden(&'static str),
    /// Another instance holds its record.
    #[error("another instance has taken over this hub's Lease; this one must not go on")]
    Lost,
    /// It was stopped: its Lease was released, or never taken.
    #[error("the hub stops and has no Lease any more")]
    Stopped,
}

/// The two records that an instance may hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LeaseRole {
    Hub,
    Standby,
}

/// A record that is held, as far as is known.
#[derive(Clone, Debug)]
struct HeldLease {
    slot: LeaseSlot,
    state: InstanceState,
    /// As it was read or written last; `None` when another client deleted it.
    lease: Option<Lease>,
    /// When it was known to be written, so that any instance that reads later sees it.
    taken: Instant,
    /// When the next call for it is made.
    due: Instant,
    /// Whether it must be read before it is written.
    is_unconfirmed: bool,
}

/// What a call is for.
#[derive(Clone, Debug)]
enum RequestPurpose {
    Look,
    Take(LeaseSlot),
    Renew(LeaseRole, InstanceState),
    Read(LeaseRole),
    Expire(String),
    Release(LeaseRole),
    /// To find out whether this record was taken.
    Search(LeaseSlot),
}

#[derive(Clone, Debug)]
struct LeaseSnapshot {
    asked: Instant,
    leases: BTreeMap<String, Lease>,
    records: Vec<LeaseRecord>,
}

enum LeaseDecision {
    Call(RequestPurpose, LeaseRequest),
    Wait,
    End(LeaseExit),
}

/// The state of an instance's Leases; see the module.
#[derive(Clone, Debug)]
pub struct LeaseStateMachine {
    identity: HolderIdentity,
    peers: PeerMonitor,
    /// The last list, unless something that it led to failed.
    listed: Option<LeaseSnapshot>,
    /// When the next list is asked for.
    look_at: Option<Instant>,
    hub: Option<HeldLease>,
    standby: Option<HeldLease>,
    /// A record that was to be taken when the answer stayed out.
    attempt: Option<LeaseSlot>,
    under_way: Option<(RequestPurpose, Instant)>,
    is_standby: bool,
    former: BTreeSet<String>,
    until: Option<Instant>,
    ending: Option<LeaseExit>,
    failed_releases: u8,
    /// Since when writes and lists are refused.
    refused: [Option<Instant>; 2],
}

impl LeaseStateMachine {
    /// An instance that begins now and knows nothing.
    #[must_use]
    pub fn new(claim: HolderIdentity, now: Instant) -> Self {
        Self {
            identity: claim,
            peers: PeerMonitor::default(),
            listed: None,
            look_at: Some(now),
            hub: None,
            standby: None,
            attempt: None,
            under_way: None,
            is_standby: false,
            former: BTreeSet::new(),
            until: None,
            ending: None,
            failed_releases: 0,
            refused: [None; 2],
        }
    }

    /// What the instance does.
    #[must_use]
    pub fn state(&self) -> InstanceState {
        match &self.hub {
            Some(hold) => hold.state,
            None if self.is_standby => InstanceState::Standby,
            None => InstanceState::Starting,
        }
    }

    /// Until when it may take itself for the holder; `None` is not at all.
    #[must_use]
    pub const fn until(&self) -> Option<Instant> {
        self.until
    }

    /// Gives up the right to work, and then releases every record.
    pub fn stop(&mut self) {
        self.begin_end(LeaseExit::Stopped);
    }

    fn begin_end(&mut self, end: LeaseExit) {
        self.until = None;
        self.ending.get_or_insert(end);
    }

    /// What to do next. A call that it says must be answered before it is asked again.
    pub fn next(&mut self, now: Instant, stamp: Timestamp) -> LeaseAction {
        match self.acquire_or_renew(now, stamp) {
            LeaseDecision::Call(purpose, call) => {
                self.under_way = Some((purpose, now));
                LeaseAction::Call(call)
            }
            LeaseDecision::Wait => LeaseAction::Wait(self.wake(now)),
            LeaseDecision::End(end) => LeaseAction::End(end),
        }
    }

    fn acquire_or_renew(&mut self, now: Instant, stamp: Timestamp) -> LeaseDecision {
        if self.ending.is_none()
            && let Some(want) = self.renewal_due(now, stamp)
        {
            return want;
        }
        if self.ending.is_none()
            && let Some(want) = self.release_unneeded(stamp)
        {
            return want;
        }
        let want = match &self.hub {
            _ if self.ending.is_some() => None,
            None => self.open(now, stamp),
            Some(hold) if hold.state == InstanceState::Active => Some(self.work(now, stamp)),
            Some(_) => self.begin(now, stamp),
        };
        want.unwrap_or_else(|| self.release_and_end(stamp))
    }

    fn wake(&self, now: Instant) -> Instant {
        let holds = [&self.hub, &self.standby];
        let dues = holds.into_iter().flatten().map(|hold| hold.due);
        dues.chain(self.look_at).min().unwrap_or(now + LOOK_AGAIN)
    }

    fn hold(&mut self, role: LeaseRole) -> &mut Option<HeldLease> {
        match role {
            LeaseRole::Hub => &mut self.hub,
            LeaseRole::Standby => &mut self.standby,
        }
    }

    /// What the held records need now.
    fn renewal_due(&self, now: Instant, stamp: Timestamp) -> Option<LeaseDecision> {
        let holds = [(LeaseRole::Hub, &self.hub), (LeaseRole::Standby, &self.standby)];
        let mut known = holds
            .into_iter()
            .filter_map(|(role, hold)| Some((role, hold.as_ref()?)));
        let (role, hold) = known.find(|(_, hold)| hold.due <= now)?;
        if hold.is_unconfirmed {
            let name = self.identity.name(hold.slot);
            return Some(LeaseDecision::Call(
                RequestPurpose::Read(role),
                LeaseRequest::Get(name),
            ));
        }
        // A deleted record is written again as at a start: others may have listed since.
        let call = self.write(hold.slot, hold.state, hold.lease.as_ref(), stamp);
        Some(LeaseDecision::Call(RequestPurpose::Renew(role, hold.state), call))
    }

    fn write(
        &self,
        slot: LeaseSlot,
        state: InstanceState,
        before: Option<&Lease>,
        stamp: Timestamp,
    ) -> LeaseRequest {
        let content = LeaseContent {
            slot,
            state,
            former: &self.former,
        };
        let lease = Box::new(self.identity.lease(content, before, stamp));
        match before {
            Some(_) => LeaseRequest::Replace(lease),
            None => LeaseRequest::Create(lease),
        }
    }

    /// An instance that works renews, and looks whether others serve its former namespaces.
    fn work(&self, now: Instant, stamp: Timestamp) -> LeaseDecision {
        if let Some(lease) = self.standby.as_ref().and_then(|hold| hold.lease.as_ref()) {
            return release(LeaseRole::Standby, lease, stamp);
        }
        if self.look_at.is_some_and(|at| at <= now) {
            return LeaseDecision::Call(RequestPurpose::Look, LeaseRequest::List);
        }
        LeaseDecision::Wait
    }

    /// Releases what is held, and ends.
    fn release_and_end(&mut self, stamp: Timestamp) -> LeaseDecision {
        let end = self.ending.clone().unwrap_or(LeaseExit::Stopped);
        // An instance that lost its record has nothing to release, and must stop at once.
        if end == LeaseExit::Lost || self.failed_releases >= RELEASES {
            return LeaseDecision::End(end);
        }
        if let Some(slot) = self.attempt {
            return LeaseDecision::Call(
                RequestPurpose::Search(slot),
                LeaseRequest::Get(self.identity.name(slot)),
            );
        }
        let holds = [(LeaseRole::Hub, &self.hub), (LeaseRole::Standby, &self.standby)];
        for (role, hold) in holds {
            let Some(hold) = hold else { continue };
            match &hold.lease {
                _ if hold.is_unconfirmed => {
                    return LeaseDecision::Call(
                        RequestPurpose::Read(role),
                        LeaseRequest::Get(self.identity.name(hold.slot)),
                    );
                }
                Some(lease) => return release(role, lease, stamp),
                None => {}
            }
        }
        LeaseDecision::End(end)
    }

    /// When to look again after a list.
    fn next_look(&self, now: Instant) -> Option<Instant> {
        let pause = match self.state() {
            InstanceState::Active if self.former.is_empty() => return None,
            InstanceState::Active => FORMER_NAMESPACES_CHECK,
            InstanceState::Standby => STANDBY_LOOK,
            InstanceState::Starting => LOOK_AGAIN,
        };
        let at = now + pause;
        let gone = self.peers.next_gone(now);
        Some(gone.map_or(at, |gone| at.min(gone)))
    }
}

fn release(role: LeaseRole, lease: &Lease, stamp: Timestamp) -> LeaseDecision {
    let released = Box::new(HolderIdentity::released(lease, stamp));
    LeaseDecision::Call(RequestPurpose::Release(role), LeaseRequest::Replace(released))
}

#[cfg(test)]
mod tests;
