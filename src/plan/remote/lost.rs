//! What becomes of tasks whose cluster is not reached: they wait, but not for ever.

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use super::placement::Target;
use crate::plan::task::retention::KEPT_AT_MOST;
use crate::plan::task::{Observed, Step, status};

/// How long the hub waits before it gives something up: a lost cluster, or what a failure left to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patience {
    /// Time from the first loss at which what ran there is given up.
    pub lost_timeout: SignedDuration,
    /// Longest that a deletion waits.
    pub orphan_grace: SignedDuration,
    /// Longest that a failed Job and its config Secret are kept, whatever the task says.
    pub kept_at_most: SignedDuration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            lost_timeout: SignedDuration::from_mins(15),
            orphan_grace: SignedDuration::from_mins(10),
            kept_at_most: KEPT_AT_MOST,
        }
    }
}

/// Pause before a task is looked at again whose cluster the operator keeps away, although its site does not say so yet.
const LOOK_AGAIN: SignedDuration = SignedDuration::from_mins(5);

/// What may be on the task's cluster besides what was seen there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Leftovers {
    /// Nothing.
    #[default]
    None,
    /// Something that nobody saw, as after a restart.
    Possible,
    /// What there is was given up and written down.
    WrittenDown,
}

/// A task that runs on a cluster that is not reached stays as it is until the time is over. What is recorded then stays: a
/// late result of the Job finds a task that has ended. Where the operator keeps the hub away, no time counts.
pub(in crate::plan) fn wait(o: &Observed<'_>) -> Step {
    let Some(since) = o.site.lost_since() else {
        // The site was not asked for yet, which this does; or it turns before anything can be done.
        return rest(None);
    };
    if is_kept_away(o) {
        return rest(Some(later(o.now, LOOK_AGAIN)));
    }
    let due = later(since, o.patience.lost_timeout);
    if o.now < due {
        return rest(Some(due));
    }
    Step::WriteStatus(Box::new(status::cluster_lost(o.task, o.now)))
}

/// Whether the `RenderCluster` says that the hub keeps away. After a restart this is known before the site is, of which the
/// ledger may say that it has been lost for long.
fn is_kept_away(o: &Observed<'_>) -> bool {
    let target = o.target.and_then(|target| target.as_ref().ok());
    let named = target.and_then(Target::platform);
    let cluster = named.and_then(|name| o.catalog.clusters.get(name));
    cluster.is_some_and(|cluster| cluster.spec.disconnect)
}

/// What keeps a deletion waiting: something may be left that cannot be removed now. `None` where nothing does any more.
pub(in crate::plan) fn stranded(o: &Observed<'_>) -> Option<Step> {
    let is_left = o.leftovers == Leftovers::Possible || o.job.uid().is_some() || o.secret.is_some();
    let is_written = o.leftovers == Leftovers::WrittenDown;
    if o.site.is_reached() || is_written || !o.task.is_finalized() || !is_left {
        return None;
    }
    let due = later(o.task.deleted_at.unwrap_or(o.now), o.patience.orphan_grace);
    Some(if o.now < due {
        rest(Some(due))
    } else {
        Step::Abandon
    })
}

fn rest(wake: Option<Timestamp>) -> Step {
    Step::Rest {
        wake,
        wants_slot: false,
        waits_for: None,
        wants_site: true,
    }
}

fn later(since: Timestamp, pause: SignedDuration) -> Timestamp {
    since.checked_add(pause).unwrap_or(Timestamp::MAX)
}
