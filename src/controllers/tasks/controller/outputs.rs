//! What the controller is connected to besides its watches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use tokio::sync::{mpsc, watch};

use crate::remote::SiteRequest;

/// The channels on which the controller publishes its requests and its state.
#[derive(Debug)]
pub struct ControllerOutputs {
    /// Whether the hub is ready.
    pub ready: watch::Sender<bool>,
    /// Which sites it needs.
    pub site_requests: mpsc::UnboundedSender<SiteRequest>,
    /// How many Jobs run on each of the platform's clusters.
    pub active: watch::Sender<Arc<BTreeMap<String, usize>>>,
    /// Namespaces of the tasks that something is left of in the rendering namespace, whichever hub made it.
    pub leftover_namespaces: watch::Sender<Arc<BTreeSet<String>>>,
}
