//! The next step of a task, one table a question.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{at, class, place, platform, spec_with, task_of};
use crate::api::conditions::Reason;
use crate::api::labels::FINALIZER;
use crate::plan::platform::catalog::{Catalog, CatalogClass, CopiedCredentials, CredentialState};
use crate::plan::platform::feature_gates::FeatureGates;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::{TenancyPolicy, TenantRegistryHosts};
use crate::plan::pull_secrets::pull_failure::ObservedPull;
use crate::plan::remote::lost_cluster::{RemoteLeftovers, TaskTimeouts};
use crate::plan::remote::placement::target;
use crate::plan::remote::site::{JobSiteState, SiteState, SiteTimes};
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::job::JobPlacement;
use crate::plan::task::job_state::{JobProgress, ObservedJob, PodTermination};
use crate::plan::task::model::Task;
use crate::plan::task::referrer::ReferrerKind;
use crate::plan::task::refusal::Refusal;
use crate::plan::task::retention::RemovalState;
use crate::plan::task::tenant::TenantDestination;
use crate::plan::task::verification::VerificationState;
use crate::plan::task::{CreateBlocked, JobState, ObservedTask, ReconcileStep, decide};

mod ended;
mod given_up;
mod image_pull;
mod own;
mod refused;
mod remote;
mod verification;
mod why;

/// Tenancy as it is by default, where tenants may name every host.
fn every_host() -> TenancyPolicy {
    TenancyPolicy {
        own_hosts: TenantRegistryHosts::any(),
        ..TenancyPolicy::default()
    }
}

/// A situation; by default that of a task that may start at once.
struct Situation {
    now: Timestamp,
    task: Task,
    job: JobState,
    secret: Option<&'static str>,
    note: Option<PodTermination>,
    verification: Option<VerificationState>,
    catalog: Catalog,
    tenancy: TenancyPolicy,
    grants: ReferenceGrantIndex,
    own: Option<Result<TenantDestination, Refusal>>,
    vouched: Option<Result<(), Refusal>>,
    place: JobPlacement,
    has_slot: bool,
    has_waited: bool,
    waiting_beside: usize,
    held: Option<CreateBlocked>,
    referrer: ReferrerKind,
    is_forged: bool,
    /// The state of the task's cluster, once it was requested.
    site: Option<SiteState>,
    times: SiteTimes,
    gates: FeatureGates,
    carried: Option<Result<CopiedCredentials, Refusal>>,
    leftovers: RemoteLeftovers,
    removal: RemovalState,
    timeouts: TaskTimeouts,
    pull: ObservedPull,
}

impl Situation {
    fn of(task: Task) -> Self {
        Self {
            now: at(100),
            task,
            job: JobState::Absent,
            secret: None,
            note: None,
            verification: None,
            catalog: platform(),
            tenancy: every_host(),
            grants: ReferenceGrantIndex::default(),
            own: None,
            vouched: None,
            place: place(),
            has_slot: true,
            has_waited: false,
            waiting_beside: 0,
            held: None,
            referrer: ReferrerKind::RenderTask,
            is_forged: false,
            removal: RemovalState::Expired,
            site: Some(SiteState::Up),
            times: SiteTimes {
                lost_since: at(90),
                known_since: at(-1_000),
            },
            gates: FeatureGates::default(),
            carried: None,
            leftovers: RemoteLeftovers::None,
            timeouts: TaskTimeouts::default(),
            pull: ObservedPull::Unseen,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn step(&self) -> ReconcileStep {
        self.ask(decide)
    }

    /// An answer to what is observed in the situation.
    fn ask<T>(&self, question: impl FnOnce(&ObservedTask<'_>) -> T) -> T {
        let spec = self.task.decoded.spec.as_ref();
        let target = spec.and_then(|spec| target(&self.task.id, spec, &self.tenancy).transpose());
        let site = match (&target, &self.site) {
            (None, _) => JobSiteState::Hub,
            (Some(_), None) => JobSiteState::Unasked,
            (Some(_), Some(state)) => JobSiteState::At(state, self.times),
        };
        question(&ObservedTask {
            target: target.as_ref(),
            site,
            gates: &self.gates,
            copied_credentials: self.carried.as_ref(),
            leftovers: self.leftovers,
            timeouts: self.timeouts,
            now: self.now,
            task: &self.task,
            job: &self.job,
            secret: self.secret,
            pod_termination: self.note.as_ref(),
            image_pull: &self.pull,
            verification: self.verification.as_ref(),
            catalog: &self.catalog,
            tenancy: &self.tenancy,
            grants: &self.grants,
            tenant_destination: self.own.as_ref(),
            impersonation: self.vouched.as_ref(),
            placement: &self.place,
            has_slot: self.has_slot,
            has_waited: self.has_waited,
            waiting_beside: self.waiting_beside,
            rendering: "rendering",
            blocked: self.held,
            referrer: self.referrer,
            is_forged: self.is_forged,
            removal: self.removal,
        })
    }

    /// The name of the step, for tables.
    fn label(&self) -> String {
        match self.step() {
            ReconcileStep::WriteStatus(status) => {
                let task = Task {
                    status: *status,
                    ..self.task.clone()
                };
                let ready = super::condition(&task, crate::api::conditions::ConditionType::Ready);
                format!("write {:?} {}", task.phase(), ready.unwrap().1)
            }
            ReconcileStep::Rest {
                wake,
                wants_slot,
                waits_for,
                wants_site,
            } => {
                let wake = wake.map(|w| w.duration_since(at(0)).as_secs());
                let wake = wake.map_or(String::new(), |w| format!(" until {w}"));
                let tenant = waits_for.map_or(String::new(), |ns| format!(" for {ns}"));
                let line = if wants_slot { " in line" } else { "" };
                let site = if wants_site { " for its cluster" } else { "" };
                format!("rest{wake}{tenant}{line}{site}")
            }
            ReconcileStep::RestoreStatus => "restore".to_owned(),
            ReconcileStep::Verify(_) => "verify".to_owned(),
            ReconcileStep::AddFinalizer => "add finalizer".to_owned(),
            ReconcileStep::Vouch(identity) => format!("vouch for {identity:?}"),
            ReconcileStep::LookUp(reference) => format!("look up as {:?}", reference.identity),
            ReconcileStep::Load(copies) => format!("load {:?}", copies.secret.map(|(name, _)| name)),
            ReconcileStep::Abandon => "abandon".to_owned(),
            ReconcileStep::Create(_) => "create".to_owned(),
            ReconcileStep::ReadJob => "read".to_owned(),
            ReconcileStep::LookAtPods => "look at pods".to_owned(),
            ReconcileStep::DeleteJob(uid) | ReconcileStep::DeleteSecret(uid) => format!("delete {uid}"),
            ReconcileStep::RemoveFinalizer => "remove finalizer".to_owned(),
            ReconcileStep::DeleteTask => "delete task".to_owned(),
        }
    }
}

fn fresh() -> Situation {
    Situation::of(super::task())
}

/// Where the Job's chart goes, as its annotation says.
const CHART_URL: &str = "oci://registry.test:5000/team-a/shop:1.0.0";

fn seen(task: &Task, may_have_ended: bool) -> JobState {
    JobState::Seen {
        uid: "j1".to_owned(),
        spec_hash: task.decoded.spec_hash.clone(),
        chart_url: Some(CHART_URL.to_owned()),
        may_have_ended,
    }
}

fn read(task: &Task, verdict: JobProgress) -> JobState {
    JobState::Read(ObservedJob {
        uid: "j1".to_owned(),
        spec_hash: task.decoded.spec_hash.clone(),
        chart_url: Some(CHART_URL.to_owned()),
        progress: verdict,
        attempts: 1,
        created: Some(at(1)),
    })
}

/// A task whose Job `j1` is recorded.
fn running() -> Task {
    let observed = fresh().with(|s| (s.job, s.secret, s.now) = (seen(&s.task, false), Some("s1"), at(2)));
    written(&observed)
}

/// The task as it is after the step, which must be a status.
fn written(situation: &Situation) -> Task {
    let ReconcileStep::WriteStatus(status) = situation.step() else {
        panic!("{}", situation.label());
    };
    Task {
        status: *status,
        ..situation.task.clone()
    }
}

fn check(table: impl IntoIterator<Item = (Situation, &'static str)>) {
    for (line, (situation, label)) in table.into_iter().enumerate() {
        assert_eq!(situation.label(), label, "line {line}");
    }
}

/// Holds: B3.
#[test]
fn a_task_with_too_many_finalizers_starts_when_some_are_taken_off_and_runs_and_goes_as_any_other() {
    let crowded = |situation: Situation, others: usize| {
        let names = std::iter::repeat_n("other/one", others).chain([FINALIZER]);
        situation.with(|s| s.task.finalizers = FinalizerSummary::of(names))
    };
    let runs = Situation::of(running()).with(|s| (s.job, s.secret) = (seen(&s.task, false), Some("s1")));
    check(vec![
        (crowded(fresh(), 64), "create"),
        (crowded(fresh(), 65), "write Pending InvalidSpec"),
        (
            crowded(fresh().with(|s| s.has_slot = false), 65),
            "write Pending InvalidSpec",
        ),
        (crowded(runs, 5_000), "look at pods"),
        (
            crowded(fresh().with(|s| s.task.deleting = true), 5_000),
            "remove finalizer",
        ),
    ]);
    let refused = crowded(fresh(), 65);
    let reported = written(&refused);
    check(vec![
        (Situation::of(reported.clone()), "rest"),
        (crowded(Situation::of(reported), 0), "create"),
    ]);
}

#[test]
fn a_new_task_gets_its_finalizer_then_its_objects() {
    let bare = || fresh().with(|s| s.task.finalizers = FinalizerSummary::default());
    check(vec![
        (bare(), "add finalizer"),
        (
            bare().with(|s| s.task.finalizers = FinalizerSummary::of(["other/one"])),
            "add finalizer",
        ),
        (fresh(), "create"),
        (fresh().with(|s| s.job = JobState::Gone), "create"),
        (fresh().with(|s| s.secret = Some("s1")), "create"),
        (bare().with(|s| s.has_slot = false), "rest in line"),
        (fresh().with(|s| s.has_slot = false), "rest in line"),
        (
            fresh().with(|s| (s.has_slot, s.has_waited) = (false, true)),
            "write Pending Queued",
        ),
    ]);
}

#[test]
fn a_job_is_recorded_once_and_read_when_it_may_have_ended() {
    let task = running();
    let same = |job: JobState| Situation::of(task.clone()).with(|s| s.job = job);
    let new = |job: JobState| fresh().with(|s| s.job = job);
    check(vec![
        (new(seen(&task, false)), "write Running JobScheduled"),
        (new(seen(&task, true)), "read"),
        (
            new(read(&task, JobProgress::Running)),
            "write Running JobScheduled",
        ),
        (
            new(read(&task, JobProgress::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (
            new(read(&task, JobProgress::Failed(at(50), false))),
            "write Failed JobFailed",
        ),
        (same(seen(&task, false)), "look at pods"),
        (same(seen(&task, true)), "read"),
        (same(read(&task, JobProgress::Running)), "look at pods"),
        (
            same(read(&task, JobProgress::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (
            same(read(&task, JobProgress::Failed(at(50), false))),
            "write Failed JobFailed",
        ),
        (
            same(read(&task, JobProgress::Failed(at(50), true))),
            "write Failed DeadlineExceeded",
        ),
        (same(JobState::Absent), "read"),
        (same(JobState::Gone), "write Failed JobLost"),
    ]);
}

#[test]
fn a_job_needs_neither_slot_nor_catalog_to_be_followed() {
    let orphaned = |job: JobState| {
        Situation::of(running()).with(|s| (s.job, s.has_slot, s.catalog) = (job, false, Catalog::default()))
    };
    let task = running();
    check(vec![
        (orphaned(seen(&task, false)), "look at pods"),
        (
            orphaned(read(&task, JobProgress::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (orphaned(JobState::Gone), "write Failed JobLost"),
    ]);
}

#[test]
fn a_changed_spec_ends_what_runs_and_starts_nothing() {
    let changed = |job: JobState| Situation::of(running()).with(|s| (s.task.generation, s.job) = (2, job));
    let first = changed(seen(&running(), false)).with(|s| s.secret = Some("s1"));
    assert_eq!(first.label(), "write Running SpecMutated");
    let reported = |job: JobState, secret| {
        let mut task = written(&first);
        task.generation = 2;
        Situation::of(task).with(|s| (s.job, s.secret) = (job, secret))
    };
    check(vec![
        (
            changed(read(&running(), JobProgress::Complete(at(50)))),
            "write Running SpecMutated",
        ),
        (reported(seen(&running(), false), Some("s1")), "delete j1"),
        (reported(JobState::Gone, Some("s1")), "delete s1"),
        (reported(JobState::Gone, None), "rest"),
        (reported(JobState::Absent, None), "rest"),
    ]);
}

#[test]
fn a_job_of_another_spec_is_never_taken_for_the_tasks() {
    let mut foreign = running();
    std::sync::Arc::make_mut(&mut foreign.decoded).spec_hash = "another".to_owned();
    for job in [
        seen(&foreign, false),
        seen(&foreign, true),
        read(&foreign, JobProgress::Running),
        read(&foreign, JobProgress::Complete(at(50))),
    ] {
        assert_eq!(
            fresh().with(|s| s.job = job.clone()).label(),
            "write Pending SpecMutated",
            "{job:?}"
        );
        assert_eq!(
            Situation::of(running()).with(|s| s.job = job).label(),
            "write Running SpecMutated"
        );
    }
}
