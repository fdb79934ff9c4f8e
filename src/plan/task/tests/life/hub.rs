//! The hub in a model world: it looks, passes, and is killed.

use super::*;
use crate::plan::platform::feature_gates::FeatureGates;
use crate::plan::platform::reference_grants::ReferenceGrantIndex;
use crate::plan::platform::tenancy::TenancyPolicy;
use crate::plan::pull_secrets::pull_failure::PullFailure;
use crate::plan::remote::lost_cluster::{RemoteLeftovers, TaskTimeouts};
use crate::plan::remote::site::JobSiteState;
use crate::plan::task::referrer::ReferrerKind;
use crate::plan::task::retention::RemovalState;

impl World {
    /// The hub knows nothing but what a list shows it.
    pub(super) fn restart(&mut self) {
        (self.memory.held, self.memory.has_waited, self.memory.has_slot) = (None, false, self.job.is_some());
        (self.memory.verification, self.memory.is_crowded) = (None, false);
        self.look();
    }

    /// What watches and the sweep's list show.
    pub(super) fn look(&mut self) {
        self.memory.job = self.job.as_ref().map_or(JobState::Absent, |job| JobState::Seen {
            uid: job.uid.clone(),
            spec_hash: job.spec_hash.clone(),
            chart_url: Some("oci://registry.test:5000/team-a/shop:1.0.0".to_owned()),
            may_have_ended: job.verdict != JobProgress::Running,
        });
        self.memory.secret = self.secret.clone();
    }

    pub(super) fn pass(&mut self, stale: bool, killed: Option<Kill>) {
        if !stale {
            self.look();
        }
        self.memory.image_pull = ObservedPull::Unseen;
        for act in 0..MAX_STEPS {
            let Some(task) = self.task.clone() else { return };
            let step = self.decide(&task);
            if let ReconcileStep::Rest { wake, wants_slot, .. } = step {
                assert!(
                    wake.is_none_or(|at| at > self.now()),
                    "a wake-up in the past is a loop"
                );
                self.memory.has_slot &= wants_slot || self.job.is_some();
                if let Some(verification) = &mut self.memory.verification {
                    (verification.next, verification.answer) = (wake.unwrap_or(verification.next), None);
                }
                return;
            }
            self.is_safe(&task, &step, stale);
            let killed = killed.filter(|kill| kill.act == act);
            if killed.is_none_or(|kill| !kill.before) {
                self.act(&task, step, killed.is_some());
            }
            if killed.is_some() {
                return self.restart();
            }
        }
        panic!("does not settle: {self:#?}");
    }

    #[expect(clippy::too_many_lines, reason = "one line a field")]
    pub(super) fn decide(&self, task: &Task) -> ReconcileStep {
        let has_ended = matches!(&self.memory.job, JobState::Read(job) if matches!(job.progress, JobProgress::Complete(_)));
        let note = has_ended.then(|| PodTermination {
            pod_uid: "p".to_owned(),
            created: at(1),
            succeeded: true,
            exit_code: Some(0),
            message: Some(Termination::pushed(Digest::of(b"chart"))),
            stop: None,
        });
        decide(&ObservedTask {
            now: self.now(),
            task,
            job: &self.memory.job,
            secret: self.memory.secret.as_deref(),
            pod_termination: note.as_ref(),
            image_pull: &self.memory.image_pull,
            verification: self.memory.verification.as_ref(),
            catalog: &self.catalog,
            tenancy: &TenancyPolicy::default(),
            grants: &ReferenceGrantIndex::default(),
            tenant_destination: None,
            impersonation: None,
            placement: &place(),
            has_slot: self.memory.has_slot,
            has_waited: self.memory.has_waited,
            waiting_beside: 0,
            rendering: "rendering",
            blocked: self.memory.held,
            referrer: ReferrerKind::RenderTask,
            is_forged: self.forged,
            removal: if self.memory.is_crowded {
                RemovalState::Crowded
            } else {
                RemovalState::Expired
            },
            target: None,
            site: JobSiteState::Hub,
            gates: &FeatureGates::default(),
            copied_credentials: None,
            leftovers: RemoteLeftovers::None,
            timeouts: TaskTimeouts::default(),
        })
    }

    /// What may never be asked for.
    #[expect(clippy::too_many_lines, reason = "one line a step")]
    pub(super) fn is_safe(&self, task: &Task, step: &ReconcileStep, stale: bool) {
        let phase = task.phase();
        match step {
            ReconcileStep::Create(_) => {
                assert_eq!(phase, TaskPhase::Pending, "nothing starts twice");
                assert!(task.status.job_ref.is_none() && !task.deleting && task.has_finalizer());
                assert!(self.memory.job.uid().is_none() && self.memory.has_slot);
                assert!(stale || self.job.is_none());
            }
            ReconcileStep::DeleteJob(_) | ReconcileStep::DeleteSecret(_) => {
                let is_refused = condition(task, JobScheduled).is_some_and(|(status, _)| status == "False");
                assert!(
                    phase.is_finished() || task.deleting || is_refused,
                    "{step:?} before the result is recorded"
                );
                if let (ReconcileStep::DeleteJob(_), false, false) =
                    (step, phase.is_finished(), task.deleting)
                {
                    assert_eq!(
                        condition(task, JobScheduled),
                        Some(("False", Reason::SpecMutated))
                    );
                }
                let kept = phase == TaskPhase::Failed
                    && !task.deleting
                    && self.now() < task.failure_cleanup_due(TaskTimeouts::default().kept_at_most);
                assert!(
                    !kept || self.memory.is_crowded,
                    "{step:?} within the time that a failure is kept"
                );
            }
            ReconcileStep::RemoveFinalizer => assert!(task.deleting && self.memory.secret.is_none()),
            ReconcileStep::DeleteTask => {
                assert!(phase.is_finished() && task.removal_due().is_some_and(|due| due <= self.now()));
            }
            ReconcileStep::AddFinalizer => assert!(!task.has_finalizer() && !task.deleting),
            ReconcileStep::WriteStatus(status) => {
                assert!(!self.forged, "what was forged is put right first");
                self.is_true(task, status);
            }
            ReconcileStep::RestoreStatus => assert!(self.forged, "a write for nothing"),
            ReconcileStep::ReadJob | ReconcileStep::Rest { .. } => {}
            ReconcileStep::LookAtPods => assert_eq!(phase, TaskPhase::Running),
            ReconcileStep::Verify(_) => {
                let is_done =
                    matches!(&self.memory.job, JobState::Read(job) if job.progress != JobProgress::Running);
                assert!(
                    is_done && phase == TaskPhase::Running,
                    "a question too early or too late"
                );
            }
            ReconcileStep::Vouch(_)
            | ReconcileStep::LookUp(_)
            | ReconcileStep::Load(_)
            | ReconcileStep::Abandon => {
                panic!("the task names nothing that is elsewhere")
            }
        }
    }

    /// What a status may never say.
    pub(super) fn is_true(&self, task: &Task, status: &RenderTaskStatus) {
        let after = Task {
            status: status.clone(),
            ..task.clone()
        };
        let is = |type_| condition(&after, type_).is_some_and(|(status, _)| status == "True");
        assert!(!(is(JobSucceeded) && is(JobFailed)));
        assert!(!task.phase().is_finished(), "a recorded result is never changed");
        assert_ne!(*status, task.status, "a write that changes nothing");
        assert!(status.chart_url.as_deref() != Some(""), "the schema refuses it");
        if is(JobSucceeded) {
            let job = self.job.as_ref().or(self.ended.as_ref());
            let job = job.expect("a success without a Job");
            let answer = self
                .memory
                .verification
                .as_ref()
                .and_then(|verification| verification.answer.as_ref());
            let denied =
                answer.is_some_and(|(_, f)| matches!(f, VerifyResult::Missing | VerifyResult::Different));
            let is_asked = !self.catalog.registries.is_empty();
            assert!(
                !denied && (answer.is_some() || !is_asked),
                "a success that no check confirmed"
            );
            assert!(
                matches!(job.verdict, JobProgress::Complete(_)),
                "{:?}",
                job.verdict
            );
            assert_eq!(
                status.job_ref.as_ref().and_then(|r| r.uid.as_ref()),
                Some(&job.uid)
            );
        }
        if after.phase().is_finished() {
            assert!(status.job_ref.is_some() && status.start_time.is_some());
            let ended = status.completion_time.as_ref().expect("an end").0;
            assert!(task.created <= ended && ended <= self.now());
        }
    }

    /// Does the step as the server and the worker do; a hub that is killed on the way has made the Secret, not the Job.
    #[expect(clippy::too_many_lines, reason = "one line a step")]
    pub(super) fn act(&mut self, task: &Task, step: ReconcileStep, killed: bool) {
        match step {
            ReconcileStep::AddFinalizer => self.change(|t| t.finalizers = t.finalizers.with_own()),
            ReconcileStep::RemoveFinalizer => {
                self.change(|t| t.finalizers = t.finalizers.without_own());
                self.collect();
            }
            ReconcileStep::DeleteTask => self.delete(),
            ReconcileStep::Create(_) => self.create(task, killed),
            ReconcileStep::ReadJob => {
                self.memory.job = self.job.as_ref().map_or(JobState::Gone, |job| {
                    JobState::Read(ObservedJob {
                        uid: job.uid.clone(),
                        spec_hash: job.spec_hash.clone(),
                        chart_url: Some("oci://registry.test:5000/team-a/shop:1.0.0".to_owned()),
                        progress: job.verdict,
                        attempts: 1,
                        created: Some(task.created),
                    })
                });
            }
            ReconcileStep::LookAtPods => {
                let failing = PullFailure {
                    container: "render",
                    word: "ImagePullBackOff",
                    uncopied: Vec::new(),
                };
                let is_failing = self.now % 2 == 0;
                self.memory.image_pull = if is_failing {
                    ObservedPull::Failing(failing)
                } else {
                    ObservedPull::Pulled
                };
            }
            ReconcileStep::WriteStatus(status) => {
                // What comes back is what was stored.
                let stored = serde_json::to_value(*status).unwrap();
                self.change(|t| t.status = serde_json::from_value(stored).unwrap());
            }
            ReconcileStep::RestoreStatus => self.forged = false,
            ReconcileStep::DeleteJob(uid) => {
                self.job = self.job.take().filter(|job| job.uid != uid);
                self.memory.job = JobState::Gone;
            }
            ReconcileStep::DeleteSecret(uid) => {
                self.secret = self.secret.take().filter(|secret| *secret != uid);
                self.memory.secret = None;
            }
            ReconcileStep::Verify(request) => {
                let since = self
                    .memory
                    .verification
                    .as_ref()
                    .map_or(self.now(), |verification| verification.since);
                self.memory.verification = Some(VerificationState {
                    since,
                    next: self.now(),
                    answer: Some((*request, self.registry)),
                });
            }
            ReconcileStep::Vouch(_)
            | ReconcileStep::LookUp(_)
            | ReconcileStep::Load(_)
            | ReconcileStep::Abandon
            | ReconcileStep::Rest { .. } => {}
        }
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Task)) {
        if let Some(task) = &mut self.task {
            change(task);
        }
    }

    pub(super) fn create(&mut self, task: &Task, killed: bool) {
        if self.foreign {
            self.memory.held = Some(CreateBlocked::NameConflict);
            return;
        }
        let secret = self.secret.clone().unwrap_or_else(|| self.uid("s"));
        (self.secret, self.memory.secret) = (Some(secret.clone()), Some(secret));
        if killed {
            return;
        }
        if self.job.is_none() {
            self.jobs_made += 1;
            let uid = self.uid("j");
            self.job = Some(ServerJob {
                uid,
                spec_hash: task.decoded.spec_hash.clone(),
                verdict: JobProgress::Running,
            });
        }
        self.look();
    }

    pub(super) fn uid(&mut self, kind: &str) -> String {
        self.uids += 1;
        format!("{kind}{}", self.uids)
    }

    /// A hub that runs for a while with nothing in its way.
    pub(super) fn settle(&mut self) {
        for _ in 0..4 {
            self.pass(false, None);
            if self.memory.held.take().is_none() {
                self.memory.has_slot = true;
            }
        }
    }

    /// Removes what the sweep would, after its time of grace.
    pub(super) fn sweep(&mut self) {
        let exists = self.task.is_some();
        let object = LabeledObject {
            task: Some(TaskUid::new("11111111-2222-4333-8444-555555555555")),
            age: Duration::from_secs(3_600),
        };
        if is_orphan(&object, Duration::ZERO, exists.then_some(TaskPhase::Pending)) {
            (self.job, self.secret) = (None, None);
        }
    }
}
