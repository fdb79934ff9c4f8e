//! The life of a task as one pure function: what was observed in, the next step out.
//!
//! [`decide`] is asked again after each step with what the step brought, until it says [`Step::Rest`]. A hub that is
//! killed between two steps therefore finds the next one by looking, and needs no memory of its own.

pub mod adoption;
mod advice;
pub mod finalizers;
pub mod gc;
mod held;
pub mod job;
pub mod model;
pub mod objection;
pub mod outcome;
pub mod path;
pub(in crate::plan) mod pod;
pub mod proof;
pub mod retention;
pub mod seal;
mod start;
pub mod status;
pub mod tenant;
pub mod validate;
mod why;

use std::borrow::Cow;

use k8s_openapi::jiff::Timestamp;

use crate::api::RenderTaskStatus;
use crate::api::conditions::Reason;

use crate::plan::platform::catalog::{Cargo, Carried, Catalog, Refusal, Resolved};
use crate::plan::platform::gates::Gates;
use crate::plan::platform::grants::Grants;
use crate::plan::platform::tenancy::Tenancy;
use crate::plan::remote::placement::Target;
use crate::plan::remote::site::Where;
use crate::plan::task::model::{Phase, Task};
pub use held::{Held, Right};
use job::Place;
pub use outcome::JobState;
use outcome::{JobReport, PodNote, Verdict};
use proof::{Belief, Inquiry, Proof};
use retention::Removal;
use status::Started;
use tenant::{Own, Reader, Reference};
pub use why::Why;

/// Everything a decision rests on.
#[derive(Clone, Debug)]
pub struct Observed<'a> {
    /// The hub's clock.
    pub now: Timestamp,
    /// The task.
    pub task: &'a Task,
    /// Its Job.
    pub job: &'a JobState,
    /// UID of its config Secret, if one exists.
    pub secret: Option<&'a str>,
    /// The last pod that ended.
    pub note: Option<&'a PodNote>,
    /// What is known of the registry's word on it, once that was asked for.
    pub proof: Option<&'a Proof>,
    /// What the platform offers.
    pub catalog: &'a Catalog,
    /// What the platform lets references do.
    pub tenancy: &'a Tenancy,
    /// References that namespaces allow.
    pub grants: &'a Grants,
    /// What the task's own destination turned out to be, once it was read.
    pub own: Option<&'a Result<Own, Refusal>>,
    /// Whether the hub may act as whom the task names, once that was asked.
    pub vouched: Option<&'a Result<(), Refusal>>,
    /// Where the Job runs.
    pub place: &'a Place,
    /// The hub's rendering namespace, in which no task is served.
    pub rendering: &'a str,
    /// The same as the spec names it; `None` is the hub.
    pub target: Option<&'a Result<Target, Refusal>>,
    /// How that place stands.
    pub site: Where<'a>,
    /// What may be there besides what was seen.
    pub leftovers: crate::plan::remote::lost::Leftovers,
    /// What of the platform's goes along to another cluster, once it was read.
    pub carried: Option<&'a Result<Carried, Refusal>>,
    /// Features that are turned on.
    pub gates: &'a Gates,
    /// How long the hub waits before it gives something up.
    pub patience: crate::plan::remote::lost::Patience,
    /// Whether the task holds a slot of the queue.
    pub has_slot: bool,
    /// Whether it has waited for a slot long enough to say so.
    pub has_waited: bool,
    /// Tasks that wait for the tenant of the same namespace.
    pub waiting_beside: usize,
    /// What an earlier attempt to create its objects ran into.
    pub held: Option<Held>,
    /// Whether the object has a status that is not the hub's, and it is time to put it right.
    pub is_forged: bool,
    /// Whether the task itself may be removed now.
    pub removal: Removal,
}

/// The next thing to do for a task.
#[derive(Clone, Debug)]
pub enum Step {
    /// Put the hub's finalizer on the task.
    AddFinalizer,
    /// Find out whether the hub may act as whom the task names.
    Vouch(Reader),
    /// Read what the task names, as whom it says.
    LookUp(Box<Reference>),
    /// Read what of the platform's goes along to another cluster.
    Load(Cargo),
    /// Create the config Secret and the Job.
    Create(Box<Resolved>),
    /// Read the Job, to see whether it ended or is really gone.
    ReadJob,
    /// Ask the registry whether it holds what the Job is said to have pushed.
    Verify(Box<Inquiry>),
    /// Write the status.
    WriteStatus(Box<RenderTaskStatus>),
    /// Write the status that the task has, in the place of the one that somebody else put on the object.
    RestoreStatus,
    /// Delete the Job with this UID, and its pods.
    DeleteJob(String),
    /// Delete the config Secret with this UID.
    DeleteSecret(String),
    /// Write down what may be left on a cluster that is not reached.
    Abandon,
    /// Take the hub's finalizer off the task.
    RemoveFinalizer,
    /// Delete the task itself: its time to live is over.
    DeleteTask,
    /// Nothing until something changes.
    Rest {
        /// When to look again by the clock.
        wake: Option<Timestamp>,
        /// Whether the task only waits for a slot.
        wants_slot: bool,
        /// The namespace whose tenant can start the task, where it is not the platform's turn.
        waits_for: Option<String>,
        /// Whether the task only waits for its cluster.
        wants_site: bool,
    },
}

impl Step {
    const REST: Self = Self::Rest {
        wake: None,
        wants_slot: false,
        waits_for: None,
        wants_site: false,
    };
}

/// The next step of a task.
#[must_use]
pub fn decide(o: &Observed<'_>) -> Step {
    if o.task.deleting {
        let step = clear(o).or_else(|| crate::plan::remote::lost::stranded(o));
        // A forged status keeps nobody's deletion waiting; it matters again where somebody else's finalizer does.
        return step.unwrap_or(match (o.task.is_finalized(), o.is_forged) {
            (true, _) => Step::RemoveFinalizer,
            (false, true) => Step::RestoreStatus,
            (false, false) => Step::REST,
        });
    }
    if o.is_forged {
        return Step::RestoreStatus;
    }
    match o.task.phase() {
        Phase::Succeeded => clear(o).unwrap_or_else(|| remove(o)),
        Phase::Failed if o.now < o.task.failure_cleanup_due(o.patience.kept_at_most) => kept(o),
        Phase::Failed => clear(o).unwrap_or_else(|| remove(o)),
        Phase::Pending | Phase::Running => unfinished(o),
    }
}

/// Deletes the Job, then the config Secret; `None` when both are gone, or out of reach.
fn clear(o: &Observed<'_>) -> Option<Step> {
    if !o.site.is_reached() {
        return None;
    }
    let job = o.job.uid().map(|uid| Step::DeleteJob(uid.to_owned()));
    job.or_else(|| o.secret.map(|uid| Step::DeleteSecret(uid.to_owned())))
}

/// What is left of a finished and cleared task: its own time to live, and how many newer ones are kept.
fn remove(o: &Observed<'_>) -> Step {
    let is_clear = o.job.uid().is_none() && o.secret.is_none();
    match o.task.removal_due() {
        _ if o.removal == Removal::Surplus && is_clear => Step::DeleteTask,
        // Whoever gives turns knows that it waits for one.
        Some(due) if o.now >= due && o.removal == Removal::Waits => Step::REST,
        Some(due) if o.now >= due => Step::DeleteTask,
        wake => Step::Rest {
            wake,
            wants_slot: false,
            waits_for: None,
            wants_site: false,
        },
    }
}

/// A failed Job and its config Secret stay for people to look at, unless newer ones crowd them out; the task itself may go
/// earlier.
fn kept(o: &Observed<'_>) -> Step {
    if let Some(step) = clear(o).filter(|_| o.removal == Removal::Crowded) {
        return step;
    }
    let kept = o.task.failure_cleanup_due(o.patience.kept_at_most);
    match remove(o) {
        Step::Rest { wake, .. } => Step::Rest {
            wake: Some(wake.map_or(kept, |w| w.min(kept))),
            wants_slot: false,
            waits_for: None,
            wants_site: false,
        },
        step => step,
    }
}

fn unfinished(o: &Observed<'_>) -> Step {
    let spec = match validate::validate(o.task) {
        Ok(spec) => spec,
        Err(refusal) => return refuse(o, &refusal, Step::REST),
    };
    match o.job {
        JobState::Seen { spec_hash, .. } | JobState::Read(JobReport { spec_hash, .. })
            if *spec_hash != o.task.spec_hash =>
        {
            let message = "a Job made from another spec has the name of this task's Job; make a new task";
            leave(o, &Refusal::new(Reason::SpecMutated, message))
        }
        // Somebody put another in its place: that one's result is not the task's.
        JobState::Seen { .. } | JobState::Read(_) if is_another(o) => {
            Step::WriteStatus(Box::new(status::lost(o.task, o.now)))
        }
        JobState::Absent | JobState::Gone if o.task.phase() == Phase::Pending => start::start(o, spec),
        JobState::Seen { .. } | JobState::Read(_) | JobState::Absent | JobState::Gone
            if !o.site.is_reached() =>
        {
            crate::plan::remote::lost::wait(o)
        }
        JobState::Absent
        | JobState::Seen {
            may_have_ended: true, ..
        } => Step::ReadJob,
        JobState::Seen { uid, .. } => running(o, uid),
        JobState::Read(report) => by_verdict(o, report),
        JobState::Gone => Step::WriteStatus(Box::new(status::lost(o.task, o.now))),
    }
}

/// Whether a Job on another cluster is not the one that was recorded; on the hub nobody else makes any.
fn is_another(o: &Observed<'_>) -> bool {
    let recorded = o.task.status.job_ref.as_ref().and_then(|job| job.uid.as_deref());
    o.target.is_some() && recorded.is_some() && recorded != o.job.uid()
}

fn by_verdict(o: &Observed<'_>, report: &JobReport) -> Step {
    // A result needs the finalizer no less than a run does; both were there before the Job.
    let cut = |ended: Timestamp| ended.clamp(o.task.created.min(o.now), o.now);
    let task = || caught_up(o, report, report.created.map_or(o.now, cut));
    let mut status = match report.verdict {
        Verdict::Running => return running(o, &report.uid),
        Verdict::Complete(ended) => match proof::judge(o, &report.uid) {
            Belief::Later(step) => return step,
            Belief::Yes => status::succeeded(&task(), report, cut(ended), o.note, o.now),
            Belief::No(why) => status::unverified(&task(), report, cut(ended), why, o.now),
        },
        Verdict::Failed(ended, _) if o.tenancy.hides(o.task, o.note) => {
            status::failed_out_of_sight(&task(), cut(ended), o.now)
        }
        Verdict::Failed(ended, deadline) => {
            status::failed(&task(), report, (cut(ended), deadline), o.note, o.now)
        }
    };
    // The Job says where its chart went; a status may have been written by anybody who may.
    status.chart_url = chart_url(o).or(status.chart_url);
    status::say_how_long(&mut status, o.task, o.patience.kept_at_most);
    Step::WriteStatus(Box::new(status))
}

/// Where the chart goes: the Job says it, but of a Job on another cluster nothing is repeated that others may have written.
fn chart_url(o: &Observed<'_>) -> Option<String> {
    if o.target.is_none() {
        return o.job.chart_url();
    }
    let recorded = o.task.status.chart_url.clone();
    recorded.or_else(|| o.job.chart_url().filter(|url| start::is_its_url(o, url)))
}

/// The task with its start recorded: a hub that was killed right after it made the Job may see the end first.
fn caught_up<'a>(o: &Observed<'a>, report: &JobReport, since: Timestamp) -> Cow<'a, Task> {
    started(o, &report.uid, since).map_or(Cow::Borrowed(o.task), |status| {
        Cow::Owned(Task {
            status,
            ..o.task.clone()
        })
    })
}

/// A Job runs: that is recorded once, with what the API server returned.
fn running(o: &Observed<'_>, job_uid: &str) -> Step {
    started(o, job_uid, o.now).map_or(Step::REST, |status| Step::WriteStatus(Box::new(status)))
}

/// The status with the Job in it; `None` where that is recorded already.
fn started(o: &Observed<'_>, job_uid: &str, since: Timestamp) -> Option<RenderTaskStatus> {
    let recorded = o.task.status.job_ref.as_ref().and_then(|r| r.uid.as_deref());
    if recorded == Some(job_uid) {
        return None;
    }
    let started = Started {
        cluster: o.place.cluster.clone(),
        namespace: o.place.namespace.clone(),
        name: crate::api::names::job_name(&o.task.id.name, &o.task.id.uid),
        job_uid: job_uid.to_owned(),
        secret_uid: o.secret.map(str::to_owned),
        chart_url: chart_url(o),
        since,
    };
    Some(status::scheduled(o.task, started, o.now))
}

/// Records why nothing runs, and leaves what is there alone: it is not provably the hub's, and without it a second Job
/// would start.
fn leave(o: &Observed<'_>, refusal: &Refusal) -> Step {
    let wanted = status::refused(o.task, refusal, o.now);
    if wanted == o.task.status {
        return Step::REST;
    }
    Step::WriteStatus(Box::new(wanted))
}

/// Records why nothing runs, takes away what does, then rests.
fn refuse(o: &Observed<'_>, refusal: &Refusal, rest: Step) -> Step {
    let wanted = status::refused(o.task, refusal, o.now);
    if wanted != o.task.status {
        return Step::WriteStatus(Box::new(wanted));
    }
    clear(o).unwrap_or(rest)
}

#[cfg(test)]
pub(in crate::plan) mod tests;
