//! Divides the hub's namespaces with its other instances, by their Leases.
//!
//! What is decided is in [`plan::shards`](crate::plan::shards). Here the records are looked at each second, the own one is
//! written, and the engine is told what it may work on; it answers by saying by what it works.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;

use crate::lease::{Handle, LeaseError};
use crate::metrics::Metrics;
use crate::plan::shards::Owned;
use crate::plan::shards::member::{Member, Step};
use crate::plan::shards::records::Reader;

/// Pause between two looks at the records.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// The loop of one instance of several.
pub struct ShardLoop {
    leases: Handle,
    reader: Reader,
    member: Member,
    owned: watch::Sender<Arc<Owned>>,
    /// Whether the instance has seen everything that it has to see before it can work.
    ready: watch::Receiver<bool>,
    metrics: Metrics,
    /// Since when this instance and the others divide anew.
    since: Option<Instant>,
}

impl ShardLoop {
    /// A loop for who holds this shard's record, and what the engine may work on: nothing before the loop runs.
    #[must_use]
    pub fn new(
        leases: Handle,
        reader: Reader,
        ready: watch::Receiver<bool>,
        metrics: Metrics,
    ) -> (Self, watch::Receiver<Arc<Owned>>) {
        let member = Member::new(reader.own);
        let (owned, told) = watch::channel(Arc::clone(member.told()));
        metrics.shards.is(reader.own.0);
        let shards = Self {
            leases,
            reader,
            member,
            owned,
            ready,
            metrics,
            since: None,
        };
        (shards, told)
    }

    /// Runs until `stop`. The engine says by what it works through `settled`, and has then ended everything else.
    pub async fn run(mut self, settled: watch::Receiver<Arc<Owned>>, stop: CancellationToken) {
        tokio::select! {
            () = stop.cancelled() => {}
            _ = self.divide(settled) => {
                // The keeper of the Lease has ended, or the engine: whoever waits for that one ends the process.
                std::future::pending::<()>().await;
            }
        }
    }

    async fn divide(&mut self, mut settled: watch::Receiver<Arc<Owned>>) -> Result<(), LeaseError> {
        // Nobody gives anything up for one who could not go on with it.
        let ready = self.ready.wait_for(|is_ready| *is_ready).await;
        ready.map_err(|_| LeaseError::Stopped)?;
        let mut looks = tokio::time::interval(LOOK_AGAIN);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = settled.changed() => changed.map_err(|_| LeaseError::Stopped)?,
                _ = looks.tick() => self.look().await?,
            }
            self.go_on(&mut settled).await?;
        }
    }

    async fn look(&mut self) -> Result<(), LeaseError> {
        let begun = Instant::now();
        let listed = self.leases.look().await?;
        let records = self.reader.read(&listed, begun);
        self.member.listed(records, Instant::now());
        Ok(())
    }

    /// Does what is to be done until nothing is.
    async fn go_on(&mut self, settled: &mut watch::Receiver<Arc<Owned>>) -> Result<(), LeaseError> {
        let mut has_written = false;
        loop {
            let works_by = Arc::clone(&settled.borrow_and_update());
            self.member.settled(&works_by);
            match self.member.next_step() {
                Step::Settle(told) | Step::Own(told) => {
                    self.since.get_or_insert_with(Instant::now);
                    self.owned.send_replace(told);
                }
                Step::Write(view) => {
                    self.since.get_or_insert_with(Instant::now);
                    let at = self.leases.write_view(view.clone()).await?;
                    self.member.written(view, at);
                    self.look().await?;
                    // What comes after that has time until the next look.
                    if std::mem::replace(&mut has_written, true) {
                        break;
                    }
                }
                Step::Rest => break,
            }
        }
        if self.member.is_done()
            && let Some(since) = self.since.take()
        {
            self.tell(since.elapsed());
        }
        Ok(())
    }

    /// Tells that the namespaces are divided, and that everybody has what falls to him as far as this instance can see.
    fn tell(&self, took: Duration) {
        let (shard, members) = (self.reader.own.0, self.member.told().members());
        self.metrics.shards.divided(members, took);
        tracing::info!(
            shard,
            members,
            took_ms = took.as_millis(),
            "the namespaces are divided"
        );
    }
}
