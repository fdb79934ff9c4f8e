//! A Job whose pod waits for its image: when it is looked for, and what is said of it.
//!
//! No watch shows pods that have not ended, because each would cost several events. A Job that takes longer than most is looked at.

use k8s_openapi::jiff::SignedDuration;

use super::model::after;
use super::observed::ObservedTask;
use super::status;
use super::step::ReconcileStep;
use crate::plan::pull_secrets::pull_failure::{ObservedPull, PullPlace, PullSource};
use crate::plan::remote::site::RemoteTarget;

/// Age of a Job at which its pod is looked at: most Jobs have ended by then.
const FIRST_LOOK: SignedDuration = SignedDuration::from_secs(20);
/// Longest pause between two looks, which double.
const LONGEST: SignedDuration = SignedDuration::from_secs(300);

/// The next step of a task whose Job runs, and is recorded.
pub(super) fn watch_over(o: &ObservedTask<'_>) -> ReconcileStep {
    let started = o.task.status.start_time.as_ref();
    let age = started.map_or(SignedDuration::ZERO, |start| o.now.duration_since(start.0));
    let failure = match o.image_pull {
        ObservedPull::Unseen if age >= FIRST_LOOK => return ReconcileStep::LookAtPods,
        ObservedPull::Unseen => return rest(o, FIRST_LOOK.checked_sub(age).unwrap_or(FIRST_LOOK)),
        ObservedPull::Pulled => None,
        ObservedPull::Failing(failure) => Some(failure.message(&source(o))),
    };
    let wanted = status::waiting_for_image(o.task, failure.as_deref(), o.now);
    if wanted != o.task.status {
        return ReconcileStep::WriteStatus(Box::new(wanted));
    }
    rest(o, age.clamp(FIRST_LOOK, LONGEST))
}

/// Where the image of the task's class comes from.
fn source<'a>(o: &ObservedTask<'a>) -> PullSource<'a> {
    let class = o
        .task
        .decoded
        .spec
        .as_ref()
        .and_then(|spec| o.catalog.class_of(spec));
    let place = match o.target {
        None => PullPlace::Hub,
        Some(Ok(RemoteTarget::Platform(_))) => PullPlace::RenderCluster,
        Some(Ok(RemoteTarget::Own(_)) | Err(_)) => PullPlace::TenantCluster,
    };
    PullSource {
        image: class.map_or("", |class| &class.spec.image),
        named: class.map_or(&[], |class| &class.pull_secrets),
        place,
    }
}

fn rest(o: &ObservedTask<'_>, pause: SignedDuration) -> ReconcileStep {
    ReconcileStep::rest(Some(after(o.now, pause)))
}
