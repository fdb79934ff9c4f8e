//! What becomes of tasks whose cluster is not reached: they wait, but not for ever.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::model::after;
use super::observed::ObservedTask;
use super::status;
use super::step::ReconcileStep;
use crate::api::conditions::Reason;
use crate::plan::remote::lost_cluster::RemoteLeftovers;
use crate::plan::remote::site::{JobSiteState, RemoteTarget, SiteState};

/// Pause before a task is retried whose cluster is disconnected, although its site is not yet.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);
/// Longest that a process takes until its first attempt to connect to a cluster has ended, and everything there is listed.
const FIRST_ATTEMPT: SignedDuration = SignedDuration::from_mins(1);

/// A task that runs on a cluster that is not reached stays as it is until the time is over. What is recorded then stays: a
/// late result of the Job finds a task that has ended. Where the operator keeps the hub away, no time counts.
pub(super) fn wait(o: &ObservedTask<'_>) -> ReconcileStep {
    let Some(since) = o.site.lost_since().or_else(|| denied_since(o)) else {
        // The site was not requested yet, which this does; or its state changes before anything can be done.
        return ReconcileStep::wait_for_site(None);
    };
    if is_kept_away(o) {
        return ReconcileStep::wait_for_site(Some(after(o.now, LOOK_AGAIN)));
    }
    let due = after_first_attempt(o, after(since, o.timeouts.lost_timeout));
    if o.now < due {
        return ReconcileStep::wait_for_site(Some(due));
    }
    ReconcileStep::WriteStatus(Box::new(status::cluster_lost(o.task, o.now)))
}

/// Since when the cluster counts as lost of a task that runs there, and that the hub may no longer look after as its spec says, because the
/// platform operator narrowed the tenancy: such a task has no site, so at the latest since its start.
fn denied_since(o: &ObservedTask<'_>) -> Option<Timestamp> {
    let is_denied = matches!(o.target, Some(Err(_)));
    let start = o.task.status.start_time.as_ref();
    is_denied.then(|| start.map_or(o.now, |start| start.0))
}

/// A time at which something is given up, and not before this process could try the cluster: after a hub was away for long, the
/// cluster is mostly back.
fn after_first_attempt(o: &ObservedTask<'_>, due: Timestamp) -> Timestamp {
    match o.site {
        JobSiteState::At(SiteState::Down { reason, .. }, times) if *reason == Reason::Connecting => {
            due.max(after(times.known_since, FIRST_ATTEMPT))
        }
        _ => due,
    }
}

/// Whether the `RenderCluster` says that the hub keeps away. After a restart this is known before the site is, of which the
/// ledger may say that it has been lost for long.
fn is_kept_away(o: &ObservedTask<'_>) -> bool {
    let target = o.target.and_then(|target| target.as_ref().ok());
    let named = target.and_then(RemoteTarget::platform);
    let cluster = named.and_then(|name| o.catalog.clusters.get(name));
    cluster.is_some_and(|cluster| cluster.spec.disconnect)
}

/// What keeps a deletion waiting: something may be left that cannot be removed now. `None` where nothing does any more.
pub(super) fn deletion_blocked(o: &ObservedTask<'_>) -> Option<ReconcileStep> {
    let is_left = o.leftovers == RemoteLeftovers::Possible || o.job.uid().is_some() || o.secret.is_some();
    let is_written = o.leftovers == RemoteLeftovers::WrittenDown;
    if o.site.is_reached() || is_written || !o.task.has_finalizer() || !is_left {
        return None;
    }
    let due = after(o.task.deleted_at.unwrap_or(o.now), o.timeouts.orphan_grace);
    let waits = !o.timeouts.orphan_grace.is_zero();
    let due = if waits { after_first_attempt(o, due) } else { due };
    Some(if o.now < due {
        ReconcileStep::wait_for_site(Some(due))
    } else {
        ReconcileStep::Abandon
    })
}
