//! How a task without a Job gets one: refusals first, then a slot, then what the task names, then the objects.

use std::borrow::Cow;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::RenderTaskSpec;
use crate::api::conditions::{ConditionType, Reason};

use super::catalog::Refusal;
use super::tenant::{Own, Wanted, wanted};
use super::{Observed, Step, refuse};

/// Shortest and longest pause before something that nobody watches is looked at again.
const LOOK_AGAIN: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_secs(300)];

/// The next step of a task that has no Job.
pub(super) fn start(o: &Observed<'_>, spec: &RenderTaskSpec) -> Step {
    if let Some(held) = o.held {
        return refuse(o, &held.refusal(), Step::REST);
    }
    let own = match own(o, spec) {
        Ok(own) => own,
        Err(step) => return step,
    };
    let resolved = match o.catalog.resolve(o.task, spec, own.as_deref()) {
        Ok(resolved) => resolved,
        Err(refusal) => return refuse(o, &refusal, Step::REST),
    };
    if !o.has_slot {
        return queued(o);
    }
    if !o.task.is_finalized() {
        return Step::AddFinalizer;
    }
    Step::Create(Box::new(resolved))
}

/// The task's own destination, where it has one; otherwise what to do before it is known. It is read with a slot in hand,
/// so that a flood of tasks does not become a flood of reads.
fn own<'a>(o: &Observed<'a>, spec: &RenderTaskSpec) -> Result<Option<Cow<'a, Own>>, Step> {
    match wanted(o.task, spec, o.tenancy, o.grants) {
        Err(refusal) => Err(refused(o, spec, &refusal)),
        Ok(Wanted::Platform) => Ok(None),
        Ok(Wanted::Given(own)) => Ok(Some(Cow::Owned(own))),
        Ok(Wanted::Read(reference)) => match o.own {
            Some(Ok(own)) => Ok(Some(Cow::Borrowed(own))),
            Some(Err(refusal)) => Err(refused(o, spec, refusal)),
            None if !o.has_slot => Err(queued(o)),
            None => Err(Step::LookUp(Box::new(reference))),
        },
    }
}

/// Records what the tenant can mend, and looks again by itself.
fn refused(o: &Observed<'_>, spec: &RenderTaskSpec, refusal: &Refusal) -> Step {
    if refusal.reason.is_stalled() {
        return refuse(o, refusal, Step::REST);
    }
    let named = spec.registry_ref.as_ref().and_then(|r| r.namespace.as_ref());
    let rest = Step::Rest {
        wake: Some(look_again(o)),
        wants_slot: false,
        waits_for: Some(named.unwrap_or(&o.task.id.namespace).clone()),
    };
    refuse(o, refusal, rest)
}

/// When something that nobody watches is looked at again: after as long as the task has been refused already, so that the
/// pauses double, and a restart forgets nothing.
fn look_again(o: &Observed<'_>) -> Timestamp {
    let scheduled = ConditionType::JobScheduled.as_str();
    let conditions = &o.task.status.conditions;
    let since = conditions.iter().find(|c| c.type_ == scheduled);
    let since = since.map_or(o.now, |c| c.last_transition_time.0);
    let [shortest, longest] = LOOK_AGAIN;
    let pause = o.now.duration_since(since).clamp(shortest, longest);
    o.now.checked_add(pause).unwrap_or(Timestamp::MAX)
}

fn queued(o: &Observed<'_>) -> Step {
    let rest = Step::Rest {
        wake: None,
        wants_slot: true,
        waits_for: None,
    };
    if !o.has_waited {
        return rest;
    }
    let refusal = Refusal::new(Reason::Queued, "the task waits for a free slot");
    refuse(o, &refusal, rest)
}
