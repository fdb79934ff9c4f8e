//! Many clusters, five of which are dead in three ways: what the tasks of all others notice of it.
//!
//! Without the dead as many clusters live, so that the machine does the same work in all loads.

use std::time::Duration;

use anyhow::Result;
use renderhub_harness::progress::Progress;
use renderhub_harness::{Identity, Islet};

use super::busy::Busy;
use super::follow::Follower;
use super::gate::Gate;
use super::load::{Made, Target, load};
use super::stage::{Cluster, Stage};
use super::turns::{Beside, Sides, Turn, turns};
use crate::options::Rate;
use crate::share::{Runs, Share};

/// How long a Job runs.
const RUNS: Duration = Duration::from_millis(500);
/// Clusters that are dead: one of each kind below, and of the two first kinds one more.
pub const DEAD: usize = 5;
/// When the cluster freezes that was connected, after the start of a load.
const FREEZE: Duration = Duration::from_secs(2);
/// Ports without a listener, from which no packet comes back either.
const NOWHERE: [u16; 2] = [6443, 6444];

/// The living and the dead.
struct Cast<'a> {
    stage: &'a Stage,
    living: Vec<(Cluster, Gate)>,
    dead: Vec<Ghost>,
    /// Connected when a load begins.
    freezing: Gate,
    _hanging: Gate,
    _busy: Busy,
    _islet: Islet,
}

/// A cluster that is dead, or will be.
struct Ghost {
    name: String,
    namespace: String,
    kubeconfig: String,
}

/// Measures both alternately, in so many rounds.
///
/// # Errors
/// If something cannot be measured.
pub async fn measure(stage: &Stage, clusters: u16, rate: Rate, rounds: usize) -> Result<Beside> {
    let cast = Cast::gather(stage, usize::from(clusters)).await?;
    let mut sides = Sides::default();
    for is_with in turns(rounds) {
        sides.add(is_with, cast.turn(rate, is_with).await?)?;
    }
    stage.forget_all().await?;
    sides.end(clusters)
}

impl<'a> Cast<'a> {
    async fn gather(stage: &'a Stage, living: usize) -> Result<Self> {
        let mut gates = Vec::new();
        for (number, cluster) in (0..).zip(stage.clusters("living", living).await?) {
            let gate = Gate::open(number, stage.address()).await?;
            let kubeconfig = cluster.identity.by_way_of(gate.url()).kubeconfig_text()?;
            stage
                .register(&cluster.name, &cluster.namespace, &kubeconfig)
                .await?;
            gates.push((cluster, gate));
        }
        Self::with_dead(stage, gates).await
    }

    async fn with_dead(stage: &'a Stage, living: Vec<(Cluster, Gate)>) -> Result<Self> {
        let number = u16::try_from(living.len())?;
        let [freezing, hanging] = [
            Gate::open(number, stage.address()).await?,
            Gate::open(number + 1, stage.address()).await?,
        ];
        hanging.freeze();
        let islet = Islet::start().await?;
        islet.cut()?;
        let busy = Busy::start(stage.plane.address()).await?;
        let once = stage.cluster("dead").await?;
        let ghost = |name: &str, identity: Identity| {
            anyhow::Ok(Ghost {
                name: name.to_owned(),
                namespace: once.namespace.clone(),
                kubeconfig: identity.kubeconfig_text()?,
            })
        };
        let by = |url: String| once.identity.by_way_of(url);
        let nowhere = |port| by(format!("https://{}:{port}", islet.address()));
        let dead = vec![
            ghost("freezing", by(freezing.url()))?,
            ghost("hanging", by(hanging.url()))?,
            ghost("dropping-one", nowhere(NOWHERE[0]))?,
            ghost("dropping-two", nowhere(NOWHERE[1]))?,
            Ghost {
                kubeconfig: busy.kubeconfig(),
                ..ghost("busy", once.identity.clone())?
            },
        ];
        Ok(Self {
            stage,
            living,
            dead,
            freezing,
            _hanging: hanging,
            _busy: busy,
            _islet: islet,
        })
    }

    /// One load, by a hub of its own.
    async fn turn(&self, rate: Rate, is_with: bool) -> Result<Turn> {
        let stage = self.stage;
        if is_with {
            self.raise().await?;
        }
        // The one that will freeze is up at first.
        let hub = stage.hub(self.living.len() + usize::from(is_with)).await?;
        // Who may not do so measures with more noise.
        _ = hub.run_first();
        let follower = Follower::start(stage, RUNS).await?;
        let dead = if is_with { DEAD } else { 0 };
        let progress = Progress::start(format!("{} clusters, {dead} of them dead", self.living.len()));
        let death = async {
            tokio::time::sleep(FREEZE).await;
            self.freezing.freeze();
        };
        let before = Share::of(&hub, Runs::Elsewhere).await?;
        let (made, ()) = tokio::join!(
            load(&stage.world, rate, 0, |number| self.target(number, is_with)),
            death
        );
        let made = made?;
        let living: Vec<&Made> = made
            .iter()
            .filter(|made| matches!(made.target, Target::There(_)))
            .collect();
        let took = follower.to_job(&living).await?;
        let share = Share::of(&hub, Runs::Elsewhere).await?.since(&before);
        let failed = follower.failed(&made).await;
        drop(progress);
        // With calls under way to who never answers it might drain for long.
        hub.kill9();
        drop((hub, follower));
        stage.clear(made).await?;
        if is_with {
            let names: Vec<_> = self.dead.iter().map(|ghost| ghost.name.clone()).collect();
            stage.forget(&names).await?;
        }
        Ok(Turn { took, share, failed })
    }

    /// Registers the dead clusters with hubs; one of them is alive for now.
    async fn raise(&self) -> Result<()> {
        self.freezing.thaw();
        for ghost in &self.dead {
            self.stage
                .register(&ghost.name, &ghost.namespace, &ghost.kubeconfig)
                .await?;
        }
        Ok(())
    }

    /// All clusters in rotation; the dead take the places of the first that live.
    fn target(&self, number: usize, is_with: bool) -> Target {
        let place = number % self.living.len();
        match self.dead.get(place).filter(|_| is_with) {
            Some(ghost) => Target::Dead(ghost.name.clone()),
            None => Target::There(self.living[place].0.name.clone()),
        }
    }
}
