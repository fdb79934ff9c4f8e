//! Says which namespaces have no hub any more, as long as there is one hub to say so.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;

use crate::base::metrics::Metrics;
use crate::kubernetes::lease::LeaseClient;
use crate::plan::platform::unserved_namespaces::UnservedMonitor;

/// Shortest and longest pause between two looks.
const PAUSE: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(60)];
/// Most names in one line of the log.
const LOGGED_NAMES: usize = 20;

/// Reads the records of all hubs repeatedly, for ever. `named` are the namespaces of the tasks that left objects.
pub(super) async fn run(
    leases: LeaseClient,
    named: watch::Receiver<Arc<BTreeSet<String>>>,
    grace: Duration,
    metrics: Metrics,
) {
    let [shortest, longest] = PAUSE;
    let pause = (grace / 4).clamp(shortest, longest);
    let (mut watchman, mut known) = (UnservedMonitor::default(), BTreeSet::new());
    loop {
        tokio::time::sleep(pause).await;
        let asked = Instant::now();
        // What cannot be asked now is asked by the next look.
        let Ok(records) = leases.records().await else {
            continue;
        };
        let named = Arc::clone(&named.borrow());
        let unowned = watchman.observe(&records, &named, asked, Instant::now(), grace);
        let number = i64::try_from(unowned.len()).unwrap_or(i64::MAX);
        metrics.unowned_namespaces.set(number);
        log_changes(&known, &unowned);
        known = unowned;
    }
}

/// Logs once for each namespace that no hub serves it, or that one does again.
fn log_changes(known: &BTreeSet<String>, now: &BTreeSet<String>) {
    let new = || now.difference(known);
    if new().next().is_some() {
        let namespaces: Vec<String> = new()
            .take(LOGGED_NAMES)
            .map(|name| name.escape_debug().to_string())
            .collect();
        let (number, namespaces) = (new().count(), namespaces.join(","));
        tracing::warn!(
            number,
            namespaces,
            "no hub serves these namespaces; tasks there wait for ever"
        );
    }
    let number = known.difference(now).count();
    if number > 0 {
        tracing::info!(number, "namespaces that no hub served are served again");
    }
}
