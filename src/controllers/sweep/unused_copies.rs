//! Removes the copies of pull Secrets that no Job names any more.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use kube::api::ObjectMeta;
use tokio::time::{Instant, timeout_at};
use tokio_util::sync::CancellationToken;

use crate::controllers::pull_copies::{Place, PullCopies};
use crate::controllers::stopping::unless_stopped;
use crate::controllers::sweep::marked;
use crate::kubernetes::apply::{CallError, ListedObject, TaskObjectClient};
use crate::plan::pull_secrets::copy::PullCopyId;
use crate::plan::task::orphans::is_orphan;

/// A copy that was found in a place.
#[derive(Debug)]
pub struct FoundPullCopy {
    id: PullCopyId,
    uid: String,
}

impl FoundPullCopy {
    /// The copy by its metadata; `None` for any other Secret.
    pub fn of(meta: &ObjectMeta) -> Option<Self> {
        Some(Self {
            id: PullCopyId::of_object(meta)?,
            uid: meta.uid.clone()?,
        })
    }
}

/// Those of the copies in a place that are at least `grace` old, and with which no Job was made for that long.
pub fn idle_copies<'a>(
    copies: &PullCopies,
    place: &Place,
    found: &'a [ListedObject],
    grace: Duration,
) -> impl Iterator<Item = FoundPullCopy> + use<'a> {
    let (copies, place) = (copies.clone(), place.clone());
    let (since, now) = (std::time::Instant::now().checked_sub(grace), Timestamp::now());
    found.iter().filter_map(move |object| {
        let copy = FoundPullCopy::of(&object.meta)?;
        let is_used = since.is_none_or(|since| copies.is_used_since(&place, &copy.id, since));
        let is_old = is_orphan(&marked(&object.meta, now), grace, None);
        (is_old && !is_used).then_some(copy)
    })
}

/// Removes those copies in a place that no Job names, until the hub stops; what there is no time for is found by the next sweep again.
pub async fn remove_unused_copies(
    objects: &TaskObjectClient,
    copies: &PullCopies,
    place: &Place,
    found: Vec<FoundPullCopy>,
    until: Instant,
    stop: &CancellationToken,
) {
    for copy in unless_stopped(found, stop) {
        if Instant::now() >= until {
            return;
        }
        let removal = timeout_at(until, remove_unused(objects, copies, place, &copy)).await;
        let name = copy.id.object_name();
        match removal.unwrap_or(Err(CallError::Timeout)) {
            Ok(true) => tracing::info!(
                secret = name,
                "removed the copy of a pull Secret that no Job names"
            ),
            Ok(false) => {}
            Err(error) => {
                let (kind, stage) = (error.kind(), error.stage());
                tracing::warn!(
                    secret = name,
                    kind,
                    stage,
                    "the copy of a pull Secret stays for now"
                );
            }
        }
    }
}

async fn remove_unused(
    objects: &TaskObjectClient,
    copies: &PullCopies,
    place: &Place,
    copy: &FoundPullCopy,
) -> Result<bool, CallError> {
    // Until it is over, no reconcile makes a Job with the copy.
    let Some(_removal) = copies.begin_removal(place, &copy.id) else {
        return Ok(false);
    };
    if objects.has_job_with(&copy.id).await? {
        return Ok(false);
    }
    objects
        .delete_secret(&copy.id.object_name(), &copy.uid)
        .await
        .map(|()| true)
}
