//! What the engine is connected to besides its watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::remote::Want;

/// Where the engine tells others what it needs and does.
#[derive(Debug)]
pub struct Outlets {
    /// Whether the hub is ready.
    pub ready: watch::Sender<bool>,
    /// Which sites it needs.
    pub wants: mpsc::UnboundedSender<Want>,
    /// How many Jobs run on each of the platform's clusters.
    pub active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    /// Namespaces of the tasks that something is left of in the rendering namespace, whichever hub made it.
    pub left: watch::Sender<Arc<BTreeSet<String>>>,
}
