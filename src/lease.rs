//! Takes, keeps and releases the hub's Lease.
//!
//! A record is only ever created, or replaced with the resource version that was read: of two writers one is told so. What
//! the records mean is decided in [`plan::lease`](crate::plan::lease). The claim ends by itself when it is not renewed in
//! time ([`Held::claim`]), without a word of the API server's; whoever must not write without it looks at it before each
//! write.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::jiff::Timestamp;
use kube::api::{Api, ListParams, PostParams};
use kube::{Client, ResourceExt};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::api::labels::{FIELD_MANAGER, PART_OF, PART_OF_VALUE};
use crate::metrics::Metrics;
use crate::plan::lease::{Claim, Conflict, Lookout, Outlook, RENEW_DEADLINE, RENEW_EVERY, Record};

/// Longest a call may take: a renewal that is answered later than this comes too late to be of use.
const DEADLINE: Duration = Duration::from_secs(4);
/// Pause between two looks at the others' records, and before a call is made again.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// Why a hub has no claim.
#[derive(Debug, thiserror::Error)]
pub enum LeaseError {
    /// Hubs that are alive stand against it.
    #[error("another hub is in the way")]
    Conflict(Vec<Conflict>),
    /// The hub may not keep a record.
    #[error(
        "leases cannot be {0} in the lease namespace; the hub needs get, list, create and update on them"
    )]
    Forbidden(&'static str),
    /// Somebody else holds the record now.
    #[error("another instance has taken over this hub's Lease; this one must not go on")]
    Lost,
    /// The hub was told to stop before it had a claim.
    #[error("stopped before the Lease was taken")]
    Stopped,
}

/// Why a call did not do what it should.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Failed {
    /// Somebody else was faster.
    Conflict,
    /// The record does not exist.
    NotFound,
    /// The hub may not.
    Forbidden,
    /// No answer, or one that may be another next time.
    Unanswered,
}

/// How a start goes on.
enum Step {
    /// The record is held, and nobody stands against it.
    Done,
    /// There is more to do now.
    Again,
    /// Somebody may be alive.
    Wait(Outlook),
}

/// Leases of a namespace.
#[derive(Clone)]
pub struct Leases {
    api: Api<Lease>,
    metrics: Metrics,
}

impl Leases {
    /// Leases of this namespace.
    #[must_use]
    pub fn new(client: Client, namespace: &str, metrics: Metrics) -> Self {
        let api = Api::namespaced(client, namespace);
        Self { api, metrics }
    }

    async fn list(&self) -> Result<BTreeMap<String, Lease>, Failed> {
        let hubs = ListParams::default().labels(&format!("{PART_OF}={PART_OF_VALUE}"));
        let listed = self.counted("list", self.api.list(&hubs)).await?;
        Ok(listed
            .items
            .into_iter()
            .map(|lease| (lease.name_any(), lease))
            .collect())
    }

    async fn get(&self, name: &str) -> Result<Lease, Failed> {
        self.counted("get", self.api.get(name)).await
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, Failed> {
        self.counted("create", self.api.create(&manager(), lease)).await
    }

    /// Replaces the record of this name, if it is still the one whose resource version `lease` has.
    async fn replace(&self, lease: &Lease) -> Result<Lease, Failed> {
        let name = lease.name_any();
        self.counted("update", self.api.replace(&name, &manager(), lease))
            .await
    }

    async fn counted<T>(
        &self,
        verb: &'static str,
        call: impl Future<Output = kube::Result<T>>,
    ) -> Result<T, Failed> {
        let answer = tokio::time::timeout(DEADLINE, call).await;
        let (code, answer) = match answer {
            Ok(Ok(done)) => (200, Ok(done)),
            Ok(Err(kube::Error::Api(status))) => (status.code, Err(failed(status.code))),
            _ => (0, Err(Failed::Unanswered)),
        };
        self.metrics.call(verb, "leases", code);
        answer
    }

    /// Hubs that are alive and in the way of this claim, found by watching only: nothing is written.
    ///
    /// # Errors
    /// The hub may not list them.
    pub async fn conflicts(&self, claim: &Claim) -> Result<Vec<Conflict>, LeaseError> {
        let mut lookout = Lookout::default();
        loop {
            let (_, outlook) = self.look(&mut lookout, claim).await?;
            if !outlook.alive.is_empty() || outlook.unsure.is_empty() {
                return Ok(outlook.alive);
            }
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// The records, and what they tell; asked for until there is an answer.
    async fn look(
        &self,
        lookout: &mut Lookout,
        claim: &Claim,
    ) -> Result<(BTreeMap<String, Lease>, Outlook), LeaseError> {
        loop {
            match self.list().await {
                Ok(leases) => {
                    let records: Vec<Record> = leases.values().filter_map(Record::of).collect();
                    let outlook = lookout.look(claim, &records, Instant::now());
                    return Ok((leases, outlook));
                }
                Err(Failed::Unanswered) => tokio::time::sleep(LOOK_AGAIN).await,
                Err(_) => return Err(LeaseError::Forbidden("listed")),
            }
        }
    }

    /// Takes the hub's record, once nobody who is alive stands against it.
    ///
    /// At once where the record is new, was released, or is of an earlier process of this instance; within the duration of
    /// a record whose hub is gone without releasing it.
    ///
    /// # Errors
    /// [`LeaseError::Conflict`] with those in the way; then nothing is held.
    pub async fn take(self, claim: Claim, stop: &CancellationToken) -> Result<Held, LeaseError> {
        let (mut lookout, mut held) = (Lookout::default(), None);
        let mut is_told = false;
        let refused = loop {
            let taken_so_far = tokio::select! {
                next = self.step(&claim, &mut lookout, &mut held) => next,
                () = stop.cancelled() => Err(LeaseError::Stopped),
            };
            match (taken_so_far, held.take()) {
                (Ok(Step::Done), Some(taken)) => return Ok(taken),
                (Ok(Step::Wait(outlook)), taken) => {
                    held = taken;
                    if !std::mem::replace(&mut is_told, true) {
                        tell(&outlook);
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                (Ok(_), taken) => held = taken,
                (Err(error), taken) => {
                    held = taken;
                    break error;
                }
            }
        };
        if let Some(held) = held {
            held.release().await;
        }
        Err(refused)
    }

    /// One look at the records, and what follows from it.
    async fn step(
        &self,
        claim: &Claim,
        lookout: &mut Lookout,
        held: &mut Option<Held>,
    ) -> Result<Step, LeaseError> {
        let (leases, outlook) = self.look(lookout, claim).await?;
        if !outlook.alive.is_empty() {
            return Err(LeaseError::Conflict(outlook.alive));
        }
        match held {
            None if outlook.is_own_unsure() => Ok(Step::Wait(outlook)),
            // The others are read again before anything else: they may have written meanwhile.
            None => {
                *held = self.claim(claim, leases.get(&claim.name())).await?;
                Ok(Step::Again)
            }
            Some(held) if outlook.unsure.is_empty() => {
                held.bury(&leases, &outlook.dead).await;
                Ok(Step::Done)
            }
            // Whoever watches this hub at the same time must see it alive.
            Some(held) => {
                held.renew_when_due().await?;
                Ok(Step::Wait(outlook))
            }
        }
    }

    /// Writes the record; `None` when somebody else was faster, or nobody answered.
    async fn claim(&self, claim: &Claim, before: Option<&Lease>) -> Result<Option<Held>, LeaseError> {
        let asked = Instant::now();
        let lease = claim.lease(before, Timestamp::now());
        let written = match before {
            Some(_) => self.replace(&lease).await,
            None => self.create(&lease).await,
        };
        match written {
            Ok(lease) => Ok(Some(Held {
                leases: self.clone(),
                claim: claim.clone(),
                lease,
                until: watch::Sender::new(asked + RENEW_DEADLINE),
                renewed: asked,
            })),
            Err(Failed::Forbidden) => Err(LeaseError::Forbidden("written")),
            Err(failed) => {
                tracing::warn!(?failed, "the hub's Lease was not taken; it is tried again");
                tokio::time::sleep(LOOK_AGAIN).await;
                Ok(None)
            }
        }
    }
}

/// Says once whom a start waits for, since it may take a while.
fn tell(outlook: &Outlook) {
    for conflict in &outlook.unsure {
        tracing::info!(
            peer = conflict.peer.escape_debug().to_string(),
            holder = conflict.holder.escape_debug().to_string(),
            "waiting until it is known whether this hub is alive"
        );
    }
}

/// The hub's record while it is held.
pub struct Held {
    leases: Leases,
    claim: Claim,
    lease: Lease,
    until: watch::Sender<Instant>,
    renewed: Instant,
}

/// Until when a hub may take itself for the holder.
#[derive(Clone, Debug)]
pub struct Current(watch::Receiver<Instant>);

impl Current {
    /// Whether it still may; it needs no answer of anybody to know.
    #[must_use]
    pub fn is_current(&self) -> bool {
        Instant::now() < *self.0.borrow()
    }
}

impl Held {
    /// The claim, to be looked at before what only the holder may do.
    #[must_use]
    pub fn claim(&self) -> Current {
        Current(self.until.subscribe())
    }

    /// Renews the record until `stop`, then releases it.
    ///
    /// # Errors
    /// [`LeaseError::Lost`] as soon as it is known that somebody else has it.
    pub async fn keep(mut self, stop: CancellationToken) -> Result<(), LeaseError> {
        loop {
            let pause = RENEW_EVERY.saturating_sub(self.renewed.elapsed()).max(LOOK_AGAIN);
            tokio::select! {
                () = stop.cancelled() => {
                    self.release().await;
                    return Ok(());
                }
                () = tokio::time::sleep(pause) => self.renew_when_due().await?,
            }
        }
    }

    /// Renews the record if it is time; one that cannot be renewed now is tried again by the next call.
    async fn renew_when_due(&mut self) -> Result<(), LeaseError> {
        if self.renewed.elapsed() < RENEW_EVERY {
            return Ok(());
        }
        match self.renew().await {
            Ok(()) => Ok(()),
            Err(Failed::Conflict | Failed::NotFound) => self.read_again().await,
            Err(failed) => {
                tracing::warn!(?failed, "the hub's Lease was not renewed; it is tried again");
                Ok(())
            }
        }
    }

    async fn renew(&mut self) -> Result<(), Failed> {
        let asked = Instant::now();
        let lease = self.claim.lease(Some(&self.lease), Timestamp::now());
        self.lease = self.leases.replace(&lease).await?;
        self.written(asked);
        Ok(())
    }

    fn written(&mut self, asked: Instant) {
        self.renewed = asked;
        self.until.send_replace(asked + RENEW_DEADLINE);
    }

    /// Finds out why a renewal was refused: an edit of somebody's is harmless, another holder is the end.
    async fn read_again(&mut self) -> Result<(), LeaseError> {
        match self.leases.get(&self.claim.name()).await {
            Ok(lease) if self.claim.holds(&lease) => {
                self.lease = lease;
                _ = self.renew().await;
                Ok(())
            }
            Ok(_) => Err(LeaseError::Lost),
            Err(Failed::NotFound) => {
                let asked = Instant::now();
                match self
                    .leases
                    .create(&self.claim.lease(None, Timestamp::now()))
                    .await
                {
                    Ok(lease) => {
                        self.lease = lease;
                        self.written(asked);
                        Ok(())
                    }
                    Err(Failed::Conflict) => Err(LeaseError::Lost),
                    Err(_) => Ok(()),
                }
            }
            Err(_) => Ok(()),
        }
    }

    /// Releases the records of hubs that are gone, so that the next start does not watch them again. A hub that was only
    /// asleep finds its record changed and ends.
    async fn bury(&self, leases: &BTreeMap<String, Lease>, dead: &[String]) {
        for lease in dead.iter().filter_map(|name| leases.get(name)) {
            _ = self
                .leases
                .replace(&Claim::released(lease, Timestamp::now()))
                .await;
        }
    }

    async fn release(self) {
        let released = Claim::released(&self.lease, Timestamp::now());
        if self.leases.replace(&released).await.is_err() {
            tracing::warn!("the hub's Lease was not released; another instance waits until it is over");
        }
    }
}

fn manager() -> PostParams {
    PostParams {
        dry_run: false,
        field_manager: Some(FIELD_MANAGER.to_owned()),
    }
}

const fn failed(code: u16) -> Failed {
    match code {
        409 => Failed::Conflict,
        404 => Failed::NotFound,
        401 | 403 => Failed::Forbidden,
        _ => Failed::Unanswered,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_claim_ends_by_itself_when_it_is_not_renewed() {
        let now = Instant::now();
        let (renewed, until) = watch::channel(now + RENEW_DEADLINE);
        let claim = Current(until);
        assert!(claim.is_current());
        // Nobody says anything, and its time has come.
        renewed.send_replace(now);
        assert!(!claim.is_current());
        renewed.send_replace(now + RENEW_DEADLINE);
        assert!(claim.is_current());
    }
}
