//! Whole lives: a model of an API server and of a hub that does what the plan decides, and is killed at any step.
//!
//! The model's server applies each step as the real one would. Between steps the world changes: Jobs end or vanish, the platform
//! breaks and is repaired, tenants delete and change, the hub forgets everything. After all of it the plan settles, never deletes
//! what it still needs, never makes a second Job, and leaves nothing of a deleted task.

use std::time::Duration;

use k8s_openapi::jiff::Timestamp;
use proptest::prelude::*;
use proptest::test_runner::FileFailurePersistence;
use serde_json::json;

use super::{at, condition, place, platform, spec_with, task_of};
use crate::api::RenderTaskStatus;
use crate::api::conditions::ConditionType::{JobFailed, JobScheduled, JobSucceeded};
use crate::api::conditions::Reason;
use crate::api::names::TaskUid;
use crate::api::oci::Digest;
use crate::api::termination::Termination;
use crate::plan::platform::catalog::Catalog;
use crate::plan::pull_secrets::pull_failure::ObservedPull;
use crate::plan::task::finalizer_summary::FinalizerSummary;
use crate::plan::task::job_state::{JobProgress, ObservedJob, PodTermination};
use crate::plan::task::model::{Task, TaskPhase};
use crate::plan::task::orphans::{LabeledObject, is_orphan};
use crate::plan::task::verification::{VerificationState, VerifyResult};
use crate::plan::task::{CreateBlocked, JobState, ObservedTask, ReconcileStep, decide};

mod hub;

/// Steps in which every pass must come to rest; the worker gives up after as many.
const MAX_STEPS: usize = 16;

/// A Job as the server holds it.
#[derive(Clone, Debug)]
struct ServerJob {
    uid: String,
    spec_hash: String,
    verdict: JobProgress,
}

/// What the hub holds in memory, and loses when it is killed.
#[derive(Clone, Debug)]
struct Memory {
    job: JobState,
    secret: Option<String>,
    has_slot: bool,
    has_waited: bool,
    /// Until the next restart: enough newer failures are kept.
    is_crowded: bool,
    held: Option<CreateBlocked>,
    verification: Option<VerificationState>,
    /// What the pods waited for, at the look of this pass.
    image_pull: ObservedPull,
}

#[derive(Clone, Debug)]
struct World {
    // The server.
    task: Option<Task>,
    job: Option<ServerJob>,
    secret: Option<String>,
    foreign: bool,
    /// Whether the object has a status that the hub did not write; `task` has the last one that it wrote.
    forged: bool,
    /// What the registry says when it is asked.
    registry: VerifyResult,
    now: i64,
    uids: usize,
    // The hub.
    memory: Memory,
    catalog: Catalog,
    // What the test keeps count of.
    jobs_made: usize,
    /// Jobs that went before any status named them; only those may be made again.
    jobs_lost_unseen: usize,
    finalizer_stripped: bool,
    /// The Job that went after it had ended: the hub may know its end.
    ended: Option<ServerJob>,
}

/// Where a hub is killed: in the act of this number, before it or while it does it.
#[derive(Clone, Copy, Debug)]
struct Kill {
    act: usize,
    before: bool,
}

fn kill() -> impl Strategy<Value = Kill> {
    (0..4_usize, any::<bool>()).prop_map(|(act, before)| Kill { act, before })
}

/// What happens to the world.
#[derive(Clone, Debug)]
enum Move {
    /// The hub works until it is killed, if it is. Stale: events did not reach it yet.
    Pass {
        stale: bool,
        killed: Option<Kill>,
    },
    Restart,
    JobEnds(bool, bool),
    JobVanishes,
    SecretVanishes,
    Slot(bool),
    Waits,
    /// Newer failures are kept in the place of this one.
    Crowd,
    Platform(bool),
    Registry(VerifyResult),
    ForeignObject(bool),
    Later(i64),
    SpecChanges,
    StatusForged,
    StripFinalizer,
    TenantDeletes,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let pass = (any::<bool>(), prop::option::weighted(0.3, kill()));
    let one = prop_oneof![
        12 => pass.prop_map(|(stale, killed)| Move::Pass { stale, killed }),
        2 => Just(Move::Restart),
        4 => any::<(bool, bool)>().prop_map(|(good, deadline)| Move::JobEnds(good, deadline)),
        1 => Just(Move::JobVanishes),
        1 => Just(Move::SecretVanishes),
        4 => prop::bool::weighted(0.8).prop_map(Move::Slot),
        1 => Just(Move::Waits),
        1 => Just(Move::Crowd),
        2 => prop::bool::weighted(0.7).prop_map(Move::Platform),
        3 => verify_results().prop_map(Move::Registry),
        1 => prop::bool::weighted(0.3).prop_map(Move::ForeignObject),
        3 => prop_oneof![Just(1), Just(61), Just(100_000)].prop_map(Move::Later),
        1 => Just(Move::SpecChanges),
        1 => Just(Move::StatusForged),
        1 => Just(Move::StripFinalizer),
        1 => Just(Move::TenantDeletes),
    ];
    prop::collection::vec(one, 0..30)
}

fn verify_results() -> impl Strategy<Value = VerifyResult> {
    use VerifyResult::{Different, Held, Missing, Refused, Silent};
    prop::sample::select(vec![Held, Missing, Different, Refused, Silent])
}

fn beginnings() -> impl Strategy<Value = World> {
    let ttl = || prop_oneof![Just(None), Just(Some(0)), Just(Some(60))];
    (ttl(), ttl(), any::<bool>(), prop::bool::weighted(0.1)).prop_map(|(kept, removed, finalized, wrong)| {
        let mut changes = json!({});
        for (field, ttl) in [("failedJobTTL", kept), ("ttlSecondsAfterFinished", removed)] {
            if let Some(seconds) = ttl {
                changes[field] = json!(seconds);
            }
        }
        if wrong {
            changes["clusterName"] = json!("edge");
        }
        let mut task = task_of(spec_with(changes));
        if !finalized {
            task.finalizers = FinalizerSummary::default();
        }
        World::of(task)
    })
}

impl World {
    fn of(task: Task) -> Self {
        Self {
            task: Some(task),
            job: None,
            secret: None,
            foreign: false,
            forged: false,
            registry: VerifyResult::Held,
            now: 10,
            uids: 0,
            memory: Memory {
                job: JobState::Absent,
                secret: None,
                has_slot: false,
                has_waited: false,
                is_crowded: false,
                held: None,
                verification: None,
                image_pull: ObservedPull::Unseen,
            },
            catalog: platform(),
            jobs_made: 0,
            jobs_lost_unseen: 0,
            ended: None,
            finalizer_stripped: false,
        }
    }

    fn now(&self) -> Timestamp {
        at(self.now)
    }

    fn make(&mut self, move_: &Move) {
        match move_ {
            Move::Pass { stale, killed } => self.pass(*stale, *killed),
            Move::Restart => self.restart(),
            Move::JobEnds(good, deadline) => self.end_job(*good, *deadline),
            Move::JobVanishes => self.lose_job(),
            Move::SecretVanishes => self.secret = None,
            Move::Slot(has) => self.memory.has_slot = *has,
            Move::Waits => self.memory.has_waited = true,
            Move::Crowd => self.memory.is_crowded = true,
            Move::Platform(works) => {
                self.catalog = if *works { platform() } else { Catalog::default() };
                self.memory.held = None;
            }
            Move::Registry(result) => self.registry = *result,
            Move::ForeignObject(exists) => {
                (self.foreign, self.memory.held) = (*exists && self.job.is_none(), None);
            }
            Move::Later(seconds) => self.now += seconds,
            Move::SpecChanges => {
                if let Some(task) = &mut self.task {
                    task.generation += 1;
                }
            }
            Move::StatusForged => self.forged = true,
            Move::StripFinalizer => {
                if let Some(task) = &mut self.task {
                    self.finalizer_stripped |= task.has_finalizer();
                    task.finalizers = FinalizerSummary::default();
                }
                self.collect();
            }
            Move::TenantDeletes => self.delete(),
        }
    }

    fn delete(&mut self) {
        if let Some(task) = &mut self.task
            && !task.deleting
        {
            // A server counts the mark of a deletion as a new generation.
            (task.deleting, task.generation) = (true, task.generation + 1);
        }
        self.collect();
    }

    /// The server's part of a deletion.
    fn collect(&mut self) {
        self.task = self.task.take().filter(|t| !t.deleting || t.finalizers.count > 0);
    }

    fn end_job(&mut self, good: bool, deadline: bool) {
        let now = self.now();
        if let Some(job) = self.job.as_mut().filter(|j| j.verdict == JobProgress::Running) {
            job.verdict = if good {
                JobProgress::Complete(now)
            } else {
                JobProgress::Failed(now, deadline)
            };
        }
    }

    fn lose_job(&mut self) {
        let named = self.task.as_ref().is_some_and(|t| t.status.job_ref.is_some());
        let Some(job) = self.job.take() else { return };
        self.jobs_lost_unseen += usize::from(!named);
        self.ended = Some(job).filter(|job| job.verdict != JobProgress::Running);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 600,
        failure_persistence: Some(Box::new(FileFailurePersistence::WithSource("seeds"))),
        ..ProptestConfig::default()
    })]

    /// Holds: D3.
    #[test]
    fn every_life_settles_and_leaves_nothing(mut world in beginnings(), moves in moves()) {
        for move_ in &moves {
            world.make(move_);
            prop_assert!(world.jobs_made <= 1 + world.jobs_lost_unseen, "a second Job");
        }
        // The world calms down: what can work works.
        (world.foreign, world.catalog, world.memory.held) = (false, platform(), None);
        world.registry = VerifyResult::Held;
        world.settle();
        if let Some(phase) = world.task.as_ref().filter(|t| t.generation == 1 && t.decoded.spec.as_ref().unwrap().cluster_name.is_none()).map(Task::phase) {
            prop_assert!(phase.is_finished() || world.job.is_some(), "a task that can run does");
        }
        prop_assert!(!world.forged || world.task.is_none(), "a forged status stays");
        world.end_job(true, false);
        world.settle();
        world.now += 1_000_000;
        world.settle();
        if let Some(task) = &world.task {
            let stalled = task.phase() == TaskPhase::Pending || condition(task, JobScheduled) == Some(("False", Reason::SpecMutated));
            prop_assert!(task.phase().is_finished() || stalled, "{:?}", task.status);
            prop_assert!(world.job.is_none() && world.secret.is_none(), "what is over is cleared");
        }
        world.delete();
        world.settle();
        prop_assert!(world.task.is_none(), "{:?}", world.task);
        if world.finalizer_stripped {
            world.sweep();
        }
        prop_assert!(world.job.is_none() && world.secret.is_none());
    }

    #[test]
    fn a_kill_anywhere_changes_no_outcome(
        good in any::<bool>(),
        finalized in any::<bool>(),
        kills in prop::collection::vec((kill(), any::<bool>()), 0..8),
    ) {
        let mut task = task_of(spec_with(json!({"failedJobTTL": 0})));
        if !finalized {
            task.finalizers = FinalizerSummary::default();
        }
        let mut world = World::of(task);
        for (kill, ends) in kills {
            world.memory.has_slot = true;
            world.pass(false, Some(kill));
            if ends {
                // The Job does not wait for the hub to come back.
                world.end_job(good, false);
            }
        }
        world.memory.has_slot = true;
        world.settle();
        world.end_job(good, false);
        world.settle();
        let task = world.task.as_ref().unwrap();
        prop_assert_eq!((task.phase(), world.jobs_made), (if good { TaskPhase::Succeeded } else { TaskPhase::Failed }, 1));
        prop_assert!(task.status.chart_url.is_some() && world.job.is_none() && world.secret.is_none());
    }
}
