//! The claim of a hub that is no process of its own, for tests of what goes through its gate.

use std::time::{Duration, Instant};

use renderhub::kubernetes::write_fence::{LeaseValidity, WriteFence};
use tokio::sync::watch;

/// A gate that is open for longer than any test, and what says until when; without that it stays so.
pub fn claimed() -> (WriteFence, watch::Sender<Instant>) {
    let (renewed, until) = watch::channel(Instant::now() + Duration::from_secs(3600));
    let gate = WriteFence::default();
    gate.open(LeaseValidity::new(until));
    (gate, renewed)
}
