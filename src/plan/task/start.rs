//! How a task without a Job gets one: refusals first, then its cluster, then a slot, then what the task names, then the
//! objects.

use std::borrow::Cow;

use k8s_openapi::jiff::{SignedDuration, Timestamp};

use crate::api::RenderTaskSpec;
use crate::api::conditions::{ConditionType, Reason, find_condition};

use super::create_blocked::CreateBlocked;
use super::destination::resolve;
use super::job_status::refuse;
use super::model::after;
use super::observed::ObservedTask;
use super::refusal::Refusal;
use super::step::ReconcileStep;
use super::tenant::{DestinationSource, ReferrerGrants, TenantDestination, wanted};
use super::validate::{crowded, in_rendering_namespace};
use crate::plan::platform::catalog::ResolvedTask;
use crate::plan::remote::placement::{admit, open};
use crate::plan::remote::site::{JobSiteState, RemoteTarget, SiteState};

/// Shortest and longest pause before an object that the hub does not watch is read again.
const LOOK_AGAIN: [SignedDuration; 2] = [SignedDuration::from_secs(5), SignedDuration::from_secs(300)];
/// Time after a refusal in which what a tenant may be about to make is looked for after the shortest pause each time.
const PROMPT: SignedDuration = SignedDuration::from_secs(120);
/// Tasks of one namespace that are retried after the shortest pause; with more, each waits longer.
const PROMPTLY: usize = 10;
/// A cluster that is not connected by then is reported; earlier the status would be out of date as soon as it is written.
const SOON_CONNECTED: SignedDuration = SignedDuration::from_secs(5);

/// The next step of a task that has no Job.
pub(super) fn start(o: &ObservedTask<'_>, spec: &RenderTaskSpec) -> ReconcileStep {
    start_or(o, spec).unwrap_or_else(|step| step)
}

fn start_or(o: &ObservedTask<'_>, spec: &RenderTaskSpec) -> Result<ReconcileStep, ReconcileStep> {
    if let Some(refusal) = crowded(o.task) {
        return Err(refuse(o, &refusal, ReconcileStep::REST));
    }
    if o.task.id.namespace == o.rendering {
        return Err(refuse(o, &in_rendering_namespace(), ReconcileStep::REST));
    }
    if let Some(held) = o.blocked {
        return Err(blocked(o, held));
    }
    placed(o, spec)?;
    let own = tenant_destination(o, spec)?;
    let resolved =
        resolve(o, spec, own.as_deref()).map_err(|refusal| refuse(o, &refusal, ReconcileStep::REST))?;
    if o.target.is_none() && o.catalog.refuses(spec) {
        // Whether it still does is asked for all tasks of the class at once.
        return Err(refuse(
            o,
            &CreateBlocked::JobRefused.refusal(o.placement),
            ReconcileStep::REST,
        ));
    }
    reached(o, spec)?;
    if !o.has_slot {
        return Err(queued(o));
    }
    let resolved = loaded(o, spec, resolved)?;
    if !o.task.has_finalizer() {
        return Err(ReconcileStep::AddFinalizer);
    }
    Ok(ReconcileStep::Create(Box::new(resolved)))
}

/// Records what blocks the task. The API server may accept later what it refused, and no watch shows when.
fn blocked(o: &ObservedTask<'_>, held: CreateBlocked) -> ReconcileStep {
    let rest = match held {
        CreateBlocked::JobRefused => ReconcileStep::rest(Some(later(o, refused_for(o)))),
        CreateBlocked::NameConflict | CreateBlocked::NotAdmitted | CreateBlocked::Forbidden(_) => {
            ReconcileStep::REST
        }
    };
    refuse(o, &held.refusal(o.placement), rest)
}

/// Whether the task may start where its spec says.
fn placed(o: &ObservedTask<'_>, spec: &RenderTaskSpec) -> Result<(), ReconcileStep> {
    open(&o.task.id, spec, o.gates).map_err(|refusal| refuse(o, &refusal, ReconcileStep::REST))?;
    let target = match o.target {
        None => return Ok(()),
        Some(Err(refusal)) => return Err(refused(o, spec, refusal)),
        Some(Ok(target)) => target,
    };
    admit(o.task, target, o.catalog, o.grants, o.tenancy).map_err(|refusal| match refusal.reason {
        // A grant wakes its tasks by the namespace it is in; the platform's objects wake all that wait.
        Reason::CrossNamespaceRefDenied => refused(o, spec, &refusal),
        _ => refuse(o, &refusal, ReconcileStep::REST),
    })
}

/// Whether the cluster can be worked on now; what wakes the task is that it is connected.
fn reached(o: &ObservedTask<'_>, spec: &RenderTaskSpec) -> Result<(), ReconcileStep> {
    let waiting = ReconcileStep::wait_for_site;
    match o.site {
        JobSiteState::Hub | JobSiteState::At(SiteState::Up, _) => Ok(()),
        // A RenderCluster that was disconnected refused the task before; one that is connected again changes its site in a
        // moment.
        JobSiteState::Unasked | JobSiteState::At(SiteState::Disconnected, _) => Err(waiting(None)),
        JobSiteState::At(SiteState::Refused(refusal), _) => {
            let step = refused(o, spec, refusal);
            Err(if matches!(step, ReconcileStep::Rest { .. }) {
                waiting(None)
            } else {
                step
            })
        }
        JobSiteState::At(SiteState::Down { reason, .. }, times) => {
            let due = after(times.lost_since, SOON_CONNECTED);
            if *reason == Reason::Connecting && o.now < due {
                return Err(waiting(Some(due)));
            }
            let message = unreached(*reason, o.target.and_then(|target| target.as_ref().ok()));
            let refusal = Refusal::new(Reason::WaitingForCluster, message);
            Err(refuse(o, &refusal, waiting(None)))
        }
    }
}

/// The message about a cluster that is not connected.
const fn unreached(reason: Reason, target: Option<&RemoteTarget>) -> &'static str {
    match (reason, target) {
        (Reason::Unreachable, Some(RemoteTarget::Own(_))) => {
            "the cluster does not answer, or not in time, or the platform does not let the hub connect to its address; the task starts \
             by itself once it answers"
        }
        (Reason::Forbidden, _) => {
            "the cluster does not let the hub list Jobs and Secrets in the namespace for Jobs there; its operator has to give the \
             kubeconfig's user the Role of docs/how-to/register-a-cluster.md: the task then starts by itself"
        }
        (_, Some(RemoteTarget::Platform(_))) => {
            "the cluster is not connected; the task starts by itself once it is; if this stays, ask the platform operator, who finds \
             the cause in the Connected condition of the RenderCluster"
        }
        _ => "the cluster is not connected; the task starts by itself once it is",
    }
}

/// What is created, with what of the platform's has to go along to another cluster.
fn loaded(
    o: &ObservedTask<'_>,
    spec: &RenderTaskSpec,
    resolved: ResolvedTask,
) -> Result<ResolvedTask, ReconcileStep> {
    let Some(copies) = o.target.and_then(|_| resolved.copy_request()) else {
        return Ok(resolved);
    };
    match o.copied_credentials {
        None => Err(ReconcileStep::Load(copies)),
        Some(Err(refusal)) => Err(refused(o, spec, refusal)),
        Some(Ok(carried)) => {
            let resolved = resolved.loaded(o.task, carried);
            resolved.map_err(|refusal| refuse(o, &refusal, ReconcileStep::REST))
        }
    }
}

/// The task's own destination, where it has one; otherwise what to do before it is known. It is read with a slot in hand,
/// so that a flood of tasks does not become a flood of reads.
fn tenant_destination<'a>(
    o: &ObservedTask<'a>,
    spec: &RenderTaskSpec,
) -> Result<Option<Cow<'a, TenantDestination>>, ReconcileStep> {
    let grants = ReferrerGrants {
        index: o.grants,
        referrer: o.referrer,
    };
    match wanted(o.task, spec, o.tenancy, grants) {
        Err(refusal) => Err(refused(o, spec, &refusal)),
        Ok(DestinationSource::Platform) => Ok(None),
        Ok(DestinationSource::Given(own)) => Ok(Some(Cow::Owned(own))),
        Ok(DestinationSource::Vouched(identity, own)) => match o.impersonation {
            Some(Ok(())) => Ok(own.map(Cow::Owned)),
            Some(Err(refusal)) => Err(refused(o, spec, refusal)),
            None => Err(with_slot(o, spec, ReconcileStep::Vouch(identity))?),
        },
        Ok(DestinationSource::Read(reference)) => match o.tenant_destination {
            Some(Ok(own)) => {
                let vetted = o.tenancy.vet(o.task, &own.spec, reference.crosses);
                vetted.map_err(|refusal| refused(o, spec, &refusal))?;
                Ok(Some(Cow::Borrowed(own)))
            }
            Some(Err(refusal)) => Err(refused(o, spec, refusal)),
            None => Err(with_slot(o, spec, ReconcileStep::LookUp(Box::new(reference)))?),
        },
    }
}

/// The step, once the task's cluster is reached and it has a slot.
fn with_slot(
    o: &ObservedTask<'_>,
    spec: &RenderTaskSpec,
    step: ReconcileStep,
) -> Result<ReconcileStep, ReconcileStep> {
    reached(o, spec)?;
    Ok(if o.has_slot { step } else { queued(o) })
}

/// Records a fault that the tenant can correct, and requeues the task.
fn refused(o: &ObservedTask<'_>, spec: &RenderTaskSpec, refusal: &Refusal) -> ReconcileStep {
    if refusal.reason.is_stalled() {
        return refuse(o, refusal, ReconcileStep::REST);
    }
    let named = spec.registry_ref.as_ref().and_then(|r| r.namespace.as_ref());
    let rest = ReconcileStep::Rest {
        wake: Some(look_again(o)),
        wants_slot: false,
        waits_for: Some(named.unwrap_or(&o.task.id.namespace).clone()),
        wants_site: false,
    };
    refuse(o, refusal, rest)
}

/// When an object that the hub does not watch is read again: soon at first, because a tenant may be correcting it, and less often
/// the more tasks of the namespace wait; then after as long as the task has been refused already, so that the pauses double and
/// survive a restart.
fn look_again(o: &ObservedTask<'_>) -> Timestamp {
    let [shortest, _] = LOOK_AGAIN;
    let elapsed = refused_for(o);
    let turns = i32::try_from(o.waiting_beside / PROMPTLY + 1).unwrap_or(i32::MAX);
    let soon = shortest.checked_mul(turns).unwrap_or(SignedDuration::MAX);
    later(o, if elapsed < PROMPT { soon } else { elapsed.max(soon) })
}

/// How long the task has been refused already.
fn refused_for(o: &ObservedTask<'_>) -> SignedDuration {
    let since = find_condition(&o.task.status.conditions, ConditionType::JobScheduled);
    since.map_or(SignedDuration::ZERO, |c| {
        o.now.duration_since(c.last_transition_time.0)
    })
}

fn later(o: &ObservedTask<'_>, pause: SignedDuration) -> Timestamp {
    let [shortest, longest] = LOOK_AGAIN;
    after(o.now, pause.clamp(shortest, longest))
}

fn queued(o: &ObservedTask<'_>) -> ReconcileStep {
    let rest = ReconcileStep::Rest {
        wake: None,
        wants_slot: true,
        waits_for: None,
        wants_site: false,
    };
    if !o.has_waited {
        return rest;
    }
    let message = "as many Jobs run as may run at once, in this namespace, on the cluster or together; the task starts by itself when \
                   its turn comes";
    let refusal = Refusal::new(Reason::Queued, message);
    refuse(o, &refusal, rest)
}
