//! Removes the copies of pull Secrets that no Job names any more.

use kube::api::ObjectMeta;
use tokio::time::{Instant, timeout_at};

use crate::controllers::pull_copies::{Place, PullCopies};
use crate::kubernetes::apply::{CallError, TaskObjectClient};
use crate::plan::pull_secrets::copy::PullCopyId;

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

    /// Which copy it is.
    pub const fn id(&self) -> &PullCopyId {
        &self.id
    }
}

/// Removes those copies in a place that no Job names; what there is no time for is found by the next sweep again.
pub async fn remove_unused_copies(
    objects: &TaskObjectClient,
    copies: &PullCopies,
    place: &Place,
    found: Vec<FoundPullCopy>,
    until: Instant,
) {
    for copy in found {
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
