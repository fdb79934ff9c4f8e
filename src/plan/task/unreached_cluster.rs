//! What becomes of tasks whose cluster is not reached: they wait, but not for ever.

use k8s_openapi::jiff::SignedDuration;

use super::model::after;
use super::observed::ObservedTask;
use super::status;
use super::step::ReconcileStep;
use crate::plan::remote::lost_cluster::RemoteLeftovers;
use crate::plan::remote::site::RemoteTarget;

/// Pause before a task is retried whose cluster is disconnected, although its site is not yet.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// A task that runs on a cluster that is not reached stays as it is until the time is over. What is recorded then stays: a
/// late result of the Job finds a task that has ended. Where the operator keeps the hub away, no time counts.
pub(super) fn wait(o: &ObservedTask<'_>) -> ReconcileStep {
    let Some(since) = o.site.lost_since() else {
        // The site was not requested yet, which this does; or its state changes before anything can be done.
        return ReconcileStep::wait_for_site(None);
    };
    if is_kept_away(o) {
        return ReconcileStep::wait_for_site(Some(after(o.now, LOOK_AGAIN)));
    }
    let due = after(since, o.timeouts.lost_timeout);
    if o.now < due {
        return ReconcileStep::wait_for_site(Some(due));
    }
    ReconcileStep::WriteStatus(Box::new(status::cluster_lost(o.task, o.now)))
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
    Some(if o.now < due {
        ReconcileStep::wait_for_site(Some(due))
    } else {
        ReconcileStep::Abandon
    })
}
