//! The next step of a task, one table a question.

use k8s_openapi::jiff::Timestamp;
use serde_json::json;

use super::{at, class, place, platform, spec_with, task_of};
use crate::api::conditions::Reason;
use crate::api::labels::FINALIZER;
use crate::plan::catalog::{Catalog, Credential};
use crate::plan::job::Place;
use crate::plan::outcome::{JobReport, PodNote, Verdict};
use crate::plan::task::Task;
use crate::plan::{Held, JobState, Observed, Step, decide};

/// A situation; what is not said is as it is for a task that may start at once.
struct Situation {
    now: Timestamp,
    task: Task,
    job: JobState,
    secret: Option<&'static str>,
    note: Option<PodNote>,
    catalog: Catalog,
    place: Place,
    has_slot: bool,
    has_waited: bool,
    held: Option<Held>,
}

impl Situation {
    fn of(task: Task) -> Self {
        Self {
            now: at(100),
            task,
            job: JobState::Absent,
            secret: None,
            note: None,
            catalog: platform(),
            place: place(),
            has_slot: true,
            has_waited: false,
            held: None,
        }
    }

    fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    fn step(&self) -> Step {
        decide(&Observed {
            now: self.now,
            task: &self.task,
            job: &self.job,
            secret: self.secret,
            note: self.note.as_ref(),
            catalog: &self.catalog,
            place: &self.place,
            has_slot: self.has_slot,
            has_waited: self.has_waited,
            held: self.held,
        })
    }

    /// The step in a word, for tables.
    fn word(&self) -> String {
        match self.step() {
            Step::WriteStatus(status) => {
                let task = Task {
                    status: *status,
                    ..self.task.clone()
                };
                let ready = super::condition(&task, crate::api::conditions::ConditionType::Ready);
                format!("write {:?} {}", task.phase(), ready.unwrap().1)
            }
            Step::Rest { wake, wants_slot } => {
                let wake = wake.map(|w| w.duration_since(at(0)).as_secs());
                let wake = wake.map_or(String::new(), |w| format!(" until {w}"));
                format!("rest{wake}{}", if wants_slot { " in line" } else { "" })
            }
            Step::AddFinalizer => "add finalizer".to_owned(),
            Step::Create(_) => "create".to_owned(),
            Step::ReadJob => "read".to_owned(),
            Step::DeleteJob(uid) | Step::DeleteSecret(uid) => format!("delete {uid}"),
            Step::RemoveFinalizer => "remove finalizer".to_owned(),
            Step::DeleteTask => "delete task".to_owned(),
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
        spec_hash: task.spec_hash.clone(),
        chart_url: Some(CHART_URL.to_owned()),
        may_have_ended,
    }
}

fn read(task: &Task, verdict: Verdict) -> JobState {
    JobState::Read(JobReport {
        uid: "j1".to_owned(),
        spec_hash: task.spec_hash.clone(),
        chart_url: Some(CHART_URL.to_owned()),
        verdict,
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
    let Step::WriteStatus(status) = situation.step() else {
        panic!("{}", situation.word());
    };
    Task {
        status: *status,
        ..situation.task.clone()
    }
}

fn ended(verdict: Verdict, changes: serde_json::Value) -> Task {
    let mut task = task_of(spec_with(changes));
    task.status = running().status;
    let job = read(&task, verdict);
    written(&Situation::of(task).with(|s| s.job = job))
}

fn check(table: impl IntoIterator<Item = (Situation, &'static str)>) {
    for (line, (situation, word)) in table.into_iter().enumerate() {
        assert_eq!(situation.word(), word, "line {line}");
    }
}

#[test]
fn a_new_task_gets_its_finalizer_then_its_objects() {
    let bare = || fresh().with(|s| s.task.finalizers.clear());
    check(vec![
        (bare(), "add finalizer"),
        (
            bare().with(|s| s.task.finalizers.push("other/one".to_owned())),
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
fn a_refusal_is_recorded_once_then_leftovers_go() {
    let wrong = [
        (json!({"clusterName": "edge"}), Reason::FeatureDisabled),
        (json!({"repository": "team-b/shop"}), Reason::RepositoryNotAllowed),
        (
            json!({"registryRef": {"name": "other"}}),
            Reason::RegistryNotFound,
        ),
        (
            json!({"rendererClassName": "slides"}),
            Reason::RendererClassNotFound,
        ),
        (json!({"tag": "2"}), Reason::InvalidSpec),
    ];
    for (changes, reason) in wrong {
        for has_slot in [true, false] {
            let refused = Situation::of(task_of(spec_with(changes.clone()))).with(|s| s.has_slot = has_slot);
            assert_eq!(refused.word(), format!("write Pending {reason}"));
            let told = Situation::of(written(&refused)).with(|s| (s.has_slot, s.now) = (has_slot, at(500)));
            assert_eq!(
                told.word(),
                "rest",
                "{reason}: nothing more to say at a later time"
            );
            assert_eq!(
                told.with(|s| s.secret = Some("s1")).word(),
                "delete s1",
                "{reason}"
            );
        }
    }
}

#[test]
fn what_holds_a_task_is_recorded_and_goes_with_its_cause() {
    for (held, word) in [
        (Held::NameConflict, "write Pending NameConflict"),
        (Held::JobRefused, "write Pending InvalidSpec"),
        (Held::NotAdmitted, "write Pending Queued"),
    ] {
        let situation = fresh().with(|s| s.held = Some(held));
        assert_eq!(situation.word(), word);
        let told = Situation::of(written(&situation)).with(|s| s.held = Some(held));
        assert_eq!(told.word(), "rest");
        assert_eq!(told.with(|s| s.held = None).word(), "create");
    }
}

#[test]
fn a_mended_platform_starts_a_refused_task() {
    let mut missing = platform();
    missing.registries.get_mut("main").unwrap().credential = Credential::Missing;
    let refused = fresh().with(|s| s.catalog = missing);
    assert_eq!(refused.word(), "write Pending PushSecretNotFound");
    let task = written(&refused);
    check(vec![
        (Situation::of(task.clone()), "create"),
        (Situation::of(task).with(|s| s.has_slot = false), "rest in line"),
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
        (new(read(&task, Verdict::Running)), "write Running JobScheduled"),
        (
            new(read(&task, Verdict::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (
            new(read(&task, Verdict::Failed(at(50), false))),
            "write Failed JobFailed",
        ),
        (same(seen(&task, false)), "rest"),
        (same(seen(&task, true)), "read"),
        (same(read(&task, Verdict::Running)), "rest"),
        (
            same(read(&task, Verdict::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (
            same(read(&task, Verdict::Failed(at(50), false))),
            "write Failed JobFailed",
        ),
        (
            same(read(&task, Verdict::Failed(at(50), true))),
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
        (orphaned(seen(&task, false)), "rest"),
        (
            orphaned(read(&task, Verdict::Complete(at(50)))),
            "write Succeeded JobSucceeded",
        ),
        (orphaned(JobState::Gone), "write Failed JobLost"),
    ]);
}

#[test]
fn a_changed_spec_ends_what_runs_and_starts_nothing() {
    let changed = |job: JobState| Situation::of(running()).with(|s| (s.task.generation, s.job) = (2, job));
    let first = changed(seen(&running(), false)).with(|s| s.secret = Some("s1"));
    assert_eq!(first.word(), "write Running SpecMutated");
    let told = |job: JobState, secret| {
        let mut task = written(&first);
        task.generation = 2;
        Situation::of(task).with(|s| (s.job, s.secret) = (job, secret))
    };
    check(vec![
        (
            changed(read(&running(), Verdict::Complete(at(50)))),
            "write Running SpecMutated",
        ),
        (told(seen(&running(), false), Some("s1")), "delete j1"),
        (told(JobState::Gone, Some("s1")), "delete s1"),
        (told(JobState::Gone, None), "rest"),
        (told(JobState::Absent, None), "rest"),
    ]);
}

#[test]
fn a_job_of_another_spec_is_never_taken_for_the_tasks() {
    let mut foreign = running();
    foreign.spec_hash = "another".to_owned();
    for job in [
        seen(&foreign, false),
        seen(&foreign, true),
        read(&foreign, Verdict::Running),
        read(&foreign, Verdict::Complete(at(50))),
    ] {
        assert_eq!(
            fresh().with(|s| s.job = job.clone()).word(),
            "write Pending SpecMutated",
            "{job:?}"
        );
        assert_eq!(
            Situation::of(running()).with(|s| s.job = job).word(),
            "write Running SpecMutated"
        );
    }
}

#[test]
fn a_success_is_cleared_at_once_and_removed_with_its_ttl() {
    let done = |changes| Situation::of(ended(Verdict::Complete(at(50)), changes));
    let kept = || done(json!({}));
    check(vec![
        (
            kept().with(|s| (s.job, s.secret) = (seen(&s.task, false), Some("s1"))),
            "delete j1",
        ),
        (
            kept().with(|s| (s.job, s.secret) = (JobState::Gone, Some("s1"))),
            "delete s1",
        ),
        (kept(), "rest"),
        (kept().with(|s| s.catalog = Catalog::default()), "rest"),
        (kept().with(|s| s.task.generation = 2), "rest"),
        (done(json!({"ttlSecondsAfterFinished": 60})), "rest until 110"),
        (
            done(json!({"ttlSecondsAfterFinished": 60})).with(|s| s.now = at(110)),
            "delete task",
        ),
        (done(json!({"ttlSecondsAfterFinished": 0})), "delete task"),
        (
            done(json!({"ttlSecondsAfterFinished": 0})).with(|s| s.secret = Some("s1")),
            "delete s1",
        ),
    ]);
}

/// A task whose Job failed at 50, with what is left of it.
fn failed(changes: serde_json::Value, now: i64, job: bool) -> Situation {
    let task = ended(Verdict::Failed(at(50), false), changes);
    let job = if job { seen(&task, false) } else { JobState::Gone };
    Situation::of(task).with(|s| (s.now, s.job, s.secret) = (at(now), job, Some("s1")))
}

#[test]
fn a_failure_is_kept_for_its_ttl_from_the_jobs_end() {
    let ttl = |seconds: i64| json!({"failedJobTTL": seconds});
    check(vec![
        (failed(json!({}), 100, true), "rest until 3650"),
        (failed(json!({}), 3_649, true), "rest until 3650"),
        (failed(json!({}), 3_650, true), "delete j1"),
        (failed(json!({}), 3_650, false), "delete s1"),
        (failed(json!({}), 9_999, false).with(|s| s.secret = None), "rest"),
        (failed(ttl(60), 109, true), "rest until 110"),
        (failed(ttl(60), 110, true), "delete j1"),
        (failed(ttl(0), 50, true), "delete j1"),
    ]);
}

#[test]
fn a_failed_task_may_go_before_what_is_kept_of_it() {
    let ttls = |kept: i64, task: i64| json!({"failedJobTTL": kept, "ttlSecondsAfterFinished": task});
    check(vec![
        (failed(ttls(600, 60), 100, true), "rest until 110"),
        (failed(ttls(600, 60), 110, true), "delete task"),
        (failed(ttls(60, 600), 100, true), "rest until 110"),
        (failed(ttls(60, 600), 110, true), "delete j1"),
    ]);
}

#[test]
fn a_job_that_the_cluster_removed_does_not_start_a_failed_task_again() {
    let task = ended(Verdict::Failed(at(50), false), json!({"failedJobTTL": 60}));
    for job in [JobState::Absent, JobState::Gone] {
        for now in [60, 109, 110, 99_999] {
            let word = Situation::of(task.clone())
                .with(|s| (s.now, s.job) = (at(now), job.clone()))
                .word();
            assert!(word.starts_with("rest"), "{now}: {word}");
        }
    }
}

#[test]
fn a_job_cannot_claim_an_end_before_the_task_or_in_the_future() {
    for (claimed, recorded) in [
        (i64::from(i32::MIN), 0),
        (-5, 0),
        (50, 50),
        (100, 100),
        (999_999, 100),
    ] {
        for verdict in [
            Verdict::Complete(at(claimed)),
            Verdict::Failed(at(claimed), false),
        ] {
            assert_eq!(
                ended(verdict, json!({})).status.completion_time.unwrap().0,
                at(recorded),
                "{claimed}"
            );
        }
    }
}

#[test]
fn a_clock_before_the_tasks_creation_ends_nothing_in_a_panic() {
    let task = running();
    let job = read(&task, Verdict::Complete(at(50)));
    let early = Situation::of(task).with(|s| (s.job, s.now) = (job, at(-500)));
    assert_eq!(written(&early).status.completion_time.unwrap().0, at(-500));
}

#[test]
fn a_deletion_comes_before_everything_else() {
    let tasks = [
        super::task(),
        running(),
        ended(Verdict::Complete(at(50)), json!({"ttlSecondsAfterFinished": 0})),
        ended(Verdict::Failed(at(50), false), json!({})),
        task_of(spec_with(json!({"tag": 7}))),
        task_of(spec_with(json!({"clusterName": "edge"}))),
    ];
    for mut task in tasks {
        (task.deleting, task.generation) = (true, 2);
        let deleting =
            || Situation::of(task.clone()).with(|s| (s.has_slot, s.catalog) = (false, Catalog::default()));
        let bare = || deleting().with(|s| s.task.finalizers.retain(|f| f != FINALIZER));
        let foreign = read(
            &Task {
                spec_hash: "another".to_owned(),
                ..task.clone()
            },
            Verdict::Running,
        );
        check(vec![
            (
                deleting().with(|s| (s.job, s.secret) = (seen(&s.task, true), Some("s1"))),
                "delete j1",
            ),
            (deleting().with(|s| s.job = foreign), "delete j1"),
            (deleting().with(|s| s.secret = Some("s1")), "delete s1"),
            (deleting(), "remove finalizer"),
            (
                deleting().with(|s| s.held = Some(Held::NameConflict)),
                "remove finalizer",
            ),
            (bare().with(|s| s.secret = Some("s1")), "delete s1"),
            (bare(), "rest"),
        ]);
    }
}

#[test]
fn a_result_that_is_first_seen_after_a_crash_says_where_the_chart_is() {
    // The hub was killed between the Job and the status; when it looks again, the Job has ended.
    for verdict in [Verdict::Complete(at(50)), Verdict::Failed(at(50), false)] {
        let job = read(&super::task(), verdict);
        let status = written(&fresh().with(|s| (s.job, s.secret) = (job, Some("s1")))).status;
        assert_eq!(
            status.chart_url.as_deref(),
            Some("oci://registry.test:5000/team-a/shop:1.0.0")
        );
        assert_eq!(status.job_ref.and_then(|r| r.uid).as_deref(), Some("j1"));
        assert_eq!(
            status.config_secret_ref.and_then(|r| r.uid).as_deref(),
            Some("s1")
        );
        assert_eq!(
            status.start_time.map(|t| t.0),
            Some(at(1)),
            "the Job's own creation"
        );
        let scheduled = status
            .conditions
            .iter()
            .find(|c| c.type_ == "JobScheduled")
            .unwrap();
        assert_eq!(
            (scheduled.status.as_str(), scheduled.reason.as_str()),
            ("True", "JobScheduled")
        );
    }
}

#[test]
fn the_destination_is_the_jobs_own_whatever_is_offered_now_and_whoever_wrote_the_status() {
    let job = seen(&super::task(), false);
    let mut forged = super::task();
    forged.status.chart_url = Some("oci://forged.test/x:1".to_owned());
    for task in [super::task(), forged] {
        let observed = Situation::of(task).with(|s| (s.job, s.catalog) = (job.clone(), Catalog::default()));
        assert_eq!(written(&observed).status.chart_url.as_deref(), Some(CHART_URL));
    }
}

#[test]
fn a_destination_that_is_not_known_is_left_out() {
    // The API server would refuse an empty URL, and with it the whole status, for ever.
    let mut job = seen(&super::task(), false);
    if let JobState::Seen { chart_url, .. } = &mut job {
        *chart_url = None;
    }
    let status = written(&fresh().with(|s| s.job = job)).status;
    assert_eq!(status.chart_url, None);
    assert!(status.job_ref.is_some());
}

#[test]
fn the_class_that_is_the_default_now_makes_the_job() {
    let situation = fresh().with(|s| {
        s.catalog.classes.insert(
            "usual".to_owned(),
            class(json!({"image": "usual.test/x:1"}), true),
        );
    });
    let Step::Create(resolved) = situation.step() else {
        panic!("{}", situation.word());
    };
    assert_eq!(resolved.class.image, "usual.test/x:1");
}
