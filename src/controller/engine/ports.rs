//! What the engine is connected to besides its watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::cluster::Want;
use crate::plan::shards::Owned;

use super::super::catalog::Published;

/// What the engine is told besides what its watches see.
#[derive(Clone, Debug)]
pub struct Inlets {
    /// What the platform offers.
    pub catalog: watch::Receiver<Published>,
    /// What this instance may work on.
    pub owned: watch::Receiver<Arc<Owned>>,
}

/// Where the engine tells others what it needs and does.
#[derive(Debug)]
pub struct Outlets {
    /// Whether the hub is ready.
    pub ready: watch::Sender<bool>,
    /// Which sites it needs.
    pub wants: mpsc::UnboundedSender<Want>,
    /// How many Jobs run on each of the platform's clusters.
    pub active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    /// What it works on, once nothing else is in work any more.
    pub settled: watch::Sender<Arc<Owned>>,
    /// Namespaces of the tasks that something is left of in the rendering namespace, whichever hub made it.
    pub left: watch::Sender<Arc<BTreeSet<String>>>,
}
