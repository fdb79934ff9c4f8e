//! The decisions about tasks that ended, are deleted or were left by a killed hub.

use std::sync::Arc;

use k8s_openapi::jiff::SignedDuration;

use super::*;

pub(super) fn ended(verdict: JobProgress, changes: serde_json::Value) -> Task {
    let mut task = task_of(spec_with(changes));
    task.status = running().status;
    let job = read(&task, verdict);
    written(&Situation::of(task).with(|s| s.job = job))
}

#[test]
fn a_success_is_cleared_at_once_and_removed_with_its_ttl() {
    let done = |changes| Situation::of(ended(JobProgress::Complete(at(50)), changes));
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
    let task = ended(JobProgress::Failed(at(50), false), changes);
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
fn a_task_is_removed_when_it_has_its_turn_and_beyond_the_kept_only_when_nothing_else_is_left() {
    let done = |changes| Situation::of(ended(JobProgress::Complete(at(50)), changes));
    let ttl = || json!({"ttlSecondsAfterFinished": 60});
    let turn = |removal| move |s: &mut Situation| s.removal = removal;
    check(vec![
        (done(ttl()).with(turn(RemovalState::Waits)), "rest until 110"),
        (
            done(ttl()).with(|s| (s.removal, s.now) = (RemovalState::Waits, at(110))),
            "rest",
        ),
        (done(ttl()).with(turn(RemovalState::Surplus)), "delete task"),
        (done(json!({})).with(turn(RemovalState::Surplus)), "delete task"),
        (
            done(json!({})).with(|s| (s.removal, s.secret) = (RemovalState::Surplus, Some("s1"))),
            "delete s1",
        ),
        // The objects of a failed task stay for people to read.
        (
            failed(json!({}), 100, true).with(turn(RemovalState::Surplus)),
            "rest until 3650",
        ),
        (
            failed(json!({}), 100, false).with(turn(RemovalState::Surplus)),
            "rest until 3650",
        ),
        (
            failed(json!({}), 100, false).with(|s| (s.removal, s.secret) = (RemovalState::Surplus, None)),
            "delete task",
        ),
        (deleting(RemovalState::Surplus), "remove finalizer"),
    ]);
}

/// Holds: B4.
#[test]
fn what_a_failure_left_goes_early_where_newer_ones_crowd_it_out_and_nothing_starts_again() {
    let crowded = |s: &mut Situation| s.removal = RemovalState::Crowded;
    let ttls = json!({"failedJobTTL": 600, "ttlSecondsAfterFinished": 60});
    check(vec![
        (failed(json!({}), 100, true).with(crowded), "delete j1"),
        (failed(json!({}), 100, false).with(crowded), "delete s1"),
        (
            failed(json!({}), 100, false).with(|s| (s.removal, s.secret) = (RemovalState::Crowded, None)),
            "rest until 3650",
        ),
        (
            failed(json!({}), 4_000, false).with(|s| (s.removal, s.secret) = (RemovalState::Crowded, None)),
            "rest",
        ),
        // The task itself stays for its own time.
        (
            failed(ttls, 100, false).with(|s| (s.removal, s.secret) = (RemovalState::Crowded, None)),
            "rest until 110",
        ),
        (
            Situation::of(ended(JobProgress::Complete(at(50)), json!({}))).with(crowded),
            "rest",
        ),
    ]);
}

/// Holds: B4.
#[test]
fn a_failure_is_kept_no_longer_than_the_platform_says() {
    let longest = |s: &mut Situation| s.timeouts.kept_at_most = SignedDuration::from_secs(30);
    check(vec![
        (
            failed(json!({"failedJobTTL": 604_800}), 79, true).with(longest),
            "rest until 80",
        ),
        (
            failed(json!({"failedJobTTL": 604_800}), 80, true).with(longest),
            "delete j1",
        ),
        (failed(json!({}), 80, true).with(longest), "delete j1"),
        (
            failed(json!({"failedJobTTL": 20}), 70, true).with(longest),
            "delete j1",
        ),
    ]);
}

/// A finished task that is being deleted, and that has a slot.
fn deleting(removal: RemovalState) -> Situation {
    Situation::of(ended(JobProgress::Complete(at(50)), json!({}))).with(|s| {
        s.task.deleting = true;
        s.removal = removal;
    })
}

#[test]
fn a_job_that_the_cluster_removed_does_not_start_a_failed_task_again() {
    let task = ended(JobProgress::Failed(at(50), false), json!({"failedJobTTL": 60}));
    for job in [JobState::Absent, JobState::Gone] {
        for now in [60, 109, 110, 99_999] {
            let label = Situation::of(task.clone())
                .with(|s| (s.now, s.job) = (at(now), job.clone()))
                .label();
            assert!(label.starts_with("rest"), "{now}: {label}");
        }
    }
}

/// Holds: H10.
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
            JobProgress::Complete(at(claimed)),
            JobProgress::Failed(at(claimed), false),
        ] {
            assert_eq!(
                ended(verdict, json!({})).status.completion_time.unwrap().0,
                at(recorded),
                "{claimed}"
            );
        }
    }
}

/// Holds: D4.
#[test]
fn a_clock_before_the_tasks_creation_ends_nothing_in_a_panic() {
    let task = running();
    let job = read(&task, JobProgress::Complete(at(50)));
    let early = Situation::of(task).with(|s| (s.job, s.now) = (job, at(-500)));
    assert_eq!(written(&early).status.completion_time.unwrap().0, at(-500));
}

#[test]
fn a_deletion_comes_before_everything_else() {
    let tasks = [
        super::super::task(),
        running(),
        ended(
            JobProgress::Complete(at(50)),
            json!({"ttlSecondsAfterFinished": 0}),
        ),
        ended(JobProgress::Failed(at(50), false), json!({})),
        task_of(spec_with(json!({"tag": 7}))),
        task_of(spec_with(json!({"clusterName": "edge"}))),
    ];
    for mut task in tasks {
        (task.deleting, task.generation) = (true, 2);
        let deleting =
            || Situation::of(task.clone()).with(|s| (s.has_slot, s.catalog) = (false, Catalog::default()));
        let bare = || deleting().with(|s| s.task.finalizers = s.task.finalizers.without_own());
        let mut another = task.clone();
        Arc::make_mut(&mut another.decoded).spec_hash = "another".to_owned();
        let foreign = read(&another, JobProgress::Running);
        check(vec![
            (
                deleting().with(|s| (s.job, s.secret) = (seen(&s.task, true), Some("s1"))),
                "delete j1",
            ),
            (deleting().with(|s| s.job = foreign), "delete j1"),
            (deleting().with(|s| s.secret = Some("s1")), "delete s1"),
            (deleting(), "remove finalizer"),
            (
                deleting().with(|s| s.held = Some(CreateBlocked::NameConflict)),
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
    for verdict in [JobProgress::Complete(at(50)), JobProgress::Failed(at(50), false)] {
        let job = read(&super::super::task(), verdict);
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
fn the_destination_is_the_jobs_own_whatever_the_catalog_and_the_status_say() {
    let job = seen(&super::super::task(), false);
    let mut forged = super::super::task();
    forged.status.chart_url = Some("oci://forged.test/x:1".to_owned());
    for task in [super::super::task(), forged] {
        let observed = Situation::of(task).with(|s| (s.job, s.catalog) = (job.clone(), Catalog::default()));
        assert_eq!(written(&observed).status.chart_url.as_deref(), Some(CHART_URL));
    }
}

#[test]
fn a_destination_that_is_not_known_is_left_out() {
    // The API server would refuse an empty URL, and with it the whole status, for ever.
    let mut job = seen(&super::super::task(), false);
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
    let ReconcileStep::Create(resolved) = situation.step() else {
        panic!("{}", situation.label());
    };
    assert_eq!(resolved.class.image, "usual.test/x:1");
}

/// Holds: T1.
#[test]
fn a_forged_status_is_put_right_first_and_keeps_no_deletion_waiting() {
    let forged = |situation: Situation| situation.with(|s| s.is_forged = true).label();
    assert_eq!(forged(fresh()), "restore");
    assert_eq!(forged(Situation::of(running())), "restore");
    let done = |deleting: bool, finalized: bool| {
        let mut task = ended(JobProgress::Complete(at(50)), json!({}));
        task.deleting = deleting;
        if !finalized {
            task.finalizers = FinalizerSummary::of(["example.com/theirs"]);
        }
        Situation::of(task)
    };
    assert_eq!(forged(done(false, true)), "restore");
    assert_eq!(forged(done(true, true)), "remove finalizer");
    assert_eq!(
        forged(done(true, true).with(|s| s.secret = Some("s1"))),
        "delete s1"
    );
    assert_eq!(forged(done(true, false)), "restore");
    assert_eq!(done(true, false).label(), "rest");
}
