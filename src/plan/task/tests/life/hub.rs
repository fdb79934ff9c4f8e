//! The hub in a model world: it looks, passes, and is killed.

use super::*;
use crate::plan::platform::gates::Gates;
use crate::plan::platform::grants::Grants;
use crate::plan::platform::tenancy::Tenancy;
use crate::plan::remote::lost::{Leftovers, Patience};
use crate::plan::remote::site::Where;
use crate::plan::task::retention::Removal;

impl World {
    /// The hub knows nothing but what a list shows it.
    pub(super) fn restart(&mut self) {
        (self.memory.held, self.memory.has_waited, self.memory.has_slot) = (None, false, self.job.is_some());
        (self.memory.proof, self.memory.is_crowded) = (None, false);
        self.look();
    }

    /// What watches and the sweep's list show.
    pub(super) fn look(&mut self) {
        self.memory.job = self.job.as_ref().map_or(JobState::Absent, |job| JobState::Seen {
            uid: job.uid.clone(),
            spec_hash: job.spec_hash.clone(),
            chart_url: Some("oci://registry.test:5000/team-a/shop:1.0.0".to_owned()),
            may_have_ended: job.verdict != Verdict::Running,
        });
        self.memory.secret = self.secret.clone();
    }

    pub(super) fn pass(&mut self, stale: bool, killed: Option<Kill>) {
        if !stale {
            self.look();
        }
        for act in 0..MAX_STEPS {
            let Some(task) = self.task.clone() else { return };
            let step = self.decide(&task);
            if let Step::Rest { wake, wants_slot, .. } = step {
                assert!(
                    wake.is_none_or(|at| at > self.now()),
                    "a wake-up in the past is a loop"
                );
                self.memory.has_slot &= wants_slot || self.job.is_some();
                if let Some(proof) = &mut self.memory.proof {
                    (proof.next, proof.answer) = (wake.unwrap_or(proof.next), None);
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

    #[expect(clippy::too_many_lines, reason = "one line a fact")]
    pub(super) fn decide(&self, task: &Task) -> Step {
        let has_ended =
            matches!(&self.memory.job, JobState::Read(job) if matches!(job.verdict, Verdict::Complete(_)));
        let note = has_ended.then(|| PodNote {
            pod_uid: "p".to_owned(),
            created: at(1),
            succeeded: true,
            exit_code: Some(0),
            message: Some(Termination::pushed(Digest::of(b"chart"))),
            stop: None,
        });
        decide(&Observed {
            now: self.now(),
            task,
            job: &self.memory.job,
            secret: self.memory.secret.as_deref(),
            note: note.as_ref(),
            proof: self.memory.proof.as_ref(),
            catalog: &self.catalog,
            tenancy: &Tenancy::default(),
            grants: &Grants::default(),
            own: None,
            vouched: None,
            place: &place(),
            has_slot: self.memory.has_slot,
            has_waited: self.memory.has_waited,
            waiting_beside: 0,
            rendering: "rendering",
            held: self.memory.held,
            is_forged: self.forged,
            removal: if self.memory.is_crowded {
                Removal::Crowded
            } else {
                Removal::Expired
            },
            target: None,
            site: Where::Hub,
            gates: &Gates::default(),
            carried: None,
            leftovers: Leftovers::None,
            patience: Patience::default(),
        })
    }

    /// What may never be asked for.
    #[expect(clippy::too_many_lines, reason = "one line a step")]
    pub(super) fn is_safe(&self, task: &Task, step: &Step, stale: bool) {
        let phase = task.phase();
        match step {
            Step::Create(_) => {
                assert_eq!(phase, Phase::Pending, "nothing starts twice");
                assert!(task.status.job_ref.is_none() && !task.deleting && task.is_finalized());
                assert!(self.memory.job.uid().is_none() && self.memory.has_slot);
                assert!(stale || self.job.is_none());
            }
            Step::DeleteJob(_) | Step::DeleteSecret(_) => {
                let is_refused = condition(task, JobScheduled).is_some_and(|(status, _)| status == "False");
                assert!(
                    phase.is_finished() || task.deleting || is_refused,
                    "{step:?} before the result is recorded"
                );
                if let (Step::DeleteJob(_), false, false) = (step, phase.is_finished(), task.deleting) {
                    assert_eq!(
                        condition(task, JobScheduled),
                        Some(("False", Reason::SpecMutated))
                    );
                }
                let kept = phase == Phase::Failed
                    && !task.deleting
                    && self.now() < task.failure_cleanup_due(Patience::default().kept_at_most);
                assert!(
                    !kept || self.memory.is_crowded,
                    "{step:?} within the time that a failure is kept"
                );
            }
            Step::RemoveFinalizer => assert!(task.deleting && self.memory.secret.is_none()),
            Step::DeleteTask => {
                assert!(phase.is_finished() && task.removal_due().is_some_and(|due| due <= self.now()));
            }
            Step::AddFinalizer => assert!(!task.is_finalized() && !task.deleting),
            Step::WriteStatus(status) => {
                assert!(!self.forged, "what was forged is put right first");
                self.is_true(task, status);
            }
            Step::RestoreStatus => assert!(self.forged, "a write for nothing"),
            Step::ReadJob | Step::Rest { .. } => {}
            Step::Verify(_) => {
                let is_done =
                    matches!(&self.memory.job, JobState::Read(job) if job.verdict != Verdict::Running);
                assert!(
                    is_done && phase == Phase::Running,
                    "a question too early or too late"
                );
            }
            Step::Vouch(_) | Step::LookUp(_) | Step::Load(_) | Step::Abandon => {
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
            let answer = self.memory.proof.as_ref().and_then(|proof| proof.answer.as_ref());
            let denied = answer.is_some_and(|(_, f)| matches!(f, Finding::Missing | Finding::Different));
            let is_asked = !self.catalog.registries.is_empty();
            assert!(
                !denied && (answer.is_some() || !is_asked),
                "a success that nobody confirmed"
            );
            assert!(matches!(job.verdict, Verdict::Complete(_)), "{:?}", job.verdict);
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
    pub(super) fn act(&mut self, task: &Task, step: Step, killed: bool) {
        match step {
            Step::AddFinalizer => self.change(|t| t.finalizers = t.finalizers.with_own()),
            Step::RemoveFinalizer => {
                self.change(|t| t.finalizers = t.finalizers.without_own());
                self.collect();
            }
            Step::DeleteTask => self.delete(),
            Step::Create(_) => self.create(task, killed),
            Step::ReadJob => {
                self.memory.job = self.job.as_ref().map_or(JobState::Gone, |job| {
                    JobState::Read(JobReport {
                        uid: job.uid.clone(),
                        spec_hash: job.spec_hash.clone(),
                        chart_url: Some("oci://registry.test:5000/team-a/shop:1.0.0".to_owned()),
                        verdict: job.verdict,
                        attempts: 1,
                        created: Some(task.created),
                    })
                });
            }
            Step::WriteStatus(status) => {
                // What comes back is what was stored.
                let stored = serde_json::to_value(*status).unwrap();
                self.change(|t| t.status = serde_json::from_value(stored).unwrap());
            }
            Step::RestoreStatus => self.forged = false,
            Step::DeleteJob(uid) => {
                self.job = self.job.take().filter(|job| job.uid != uid);
                self.memory.job = JobState::Gone;
            }
            Step::DeleteSecret(uid) => {
                self.secret = self.secret.take().filter(|secret| *secret != uid);
                self.memory.secret = None;
            }
            Step::Verify(inquiry) => {
                let since = self.memory.proof.as_ref().map_or(self.now(), |proof| proof.since);
                self.memory.proof = Some(Proof {
                    since,
                    next: self.now(),
                    answer: Some((*inquiry, self.registry)),
                });
            }
            Step::Vouch(_) | Step::LookUp(_) | Step::Load(_) | Step::Abandon | Step::Rest { .. } => {}
        }
    }

    pub(super) fn change(&mut self, change: impl FnOnce(&mut Task)) {
        if let Some(task) = &mut self.task {
            change(task);
        }
    }

    pub(super) fn create(&mut self, task: &Task, killed: bool) {
        if self.foreign {
            self.memory.held = Some(Held::NameConflict);
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
                spec_hash: task.spec_hash.clone(),
                verdict: Verdict::Running,
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
        let object = Marked {
            task: Some(TaskUid::new("11111111-2222-4333-8444-555555555555")),
            age: Duration::from_secs(3_600),
        };
        if is_orphan(&object, Duration::ZERO, exists.then_some(Phase::Pending)) {
            (self.job, self.secret) = (None, None);
        }
    }
}
