//! What is believed of a Job that completed: on the hub's own cluster, on another, and of which registry.

use super::remote::{JOB, running as runs, to_east, to_own};
use super::*;
use crate::api::oci::Digest;
use crate::api::termination::Termination;
use crate::plan::platform::catalog::CopyRequest;
use crate::plan::task::verification::{VerifyRequest, VerifyResult};

fn digest() -> Digest {
    Digest::of(b"chart")
}

/// The termination message of a pod that pushed, or of one without a digest.
fn note(digest: Option<Digest>) -> PodTermination {
    PodTermination {
        pod_uid: "p1".to_owned(),
        created: at(5),
        succeeded: true,
        exit_code: Some(0),
        message: digest.map(Termination::pushed),
        stop: None,
    }
}

/// A completed Job on the hub's own cluster, read at 100.
fn here() -> Situation {
    Situation::of(running()).with(|s| {
        s.job = read(&s.task, JobProgress::Complete(at(90)));
        s.note = Some(note(Some(digest())));
    })
}

/// The same on a cluster of the platform's.
fn there() -> Situation {
    away(to_east())
}

fn away(situation: Situation) -> Situation {
    runs(situation).with(|s| {
        s.job = JobState::Read(ObservedJob {
            uid: JOB.to_owned(),
            spec_hash: s.task.decoded.spec_hash.clone(),
            chart_url: Some("oci://elsewhere.test/team-a/shop:1.0.0".to_owned()),
            progress: JobProgress::Complete(at(90)),
            attempts: 1,
            created: Some(at(1)),
        });
        s.note = Some(note(Some(digest())));
    })
}

fn asks(s: &mut Situation, verify: &str) {
    s.catalog.registries.get_mut("main").unwrap().spec.verify =
        serde_json::from_value(json!(verify)).unwrap();
}

fn verify_request(s: &Situation) -> Option<VerifyRequest> {
    match s.step() {
        ReconcileStep::Verify(request) => Some(*request),
        _ => None,
    }
}

/// The situation `waited` seconds after the first request, when that is answered.
fn answered(situation: Situation, result: VerifyResult, waited: i64) -> Situation {
    let request = verify_request(&situation).unwrap();
    situation.with(|s| {
        s.verification = Some(VerificationState {
            since: at(100),
            next: at(100),
            answer: Some((request, result)),
        });
        s.now = at(100 + waited);
    })
}

const YES: &str = "write Succeeded JobSucceeded";
const NO: &str = "write Failed ResultUnverified";

/// Holds: H6, C4.
#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_report_is_proof_where_the_platform_says_so() {
    let own_registry = |s: &mut Situation| {
        s.task = {
            let task = task_of(spec_with(
                json!({"registryRef": {"kind": "Registry", "name": "mine"}}),
            ));
            Task {
                status: s.task.status.clone(),
                ..task
            }
        }
    };
    check(vec![
        (here(), "verify"),
        (here().with(|s| asks(s, "Digest")), "verify"),
        (here().with(|s| asks(s, "None")), YES),
        (there(), "verify"),
        (there().with(|s| asks(s, "Digest")), "verify"),
        (there().with(|s| asks(s, "None")), YES),
        (away(to_own()), "verify"),
        (here().with(|s| s.catalog = Catalog::default()), YES),
        (there().with(|s| s.catalog.registries.clear()), NO),
        (
            there().with(|s| s.task.status.chart_url = Some("oci://old.test/team-a/shop:1.0.0".to_owned())),
            NO,
        ),
        (
            here().with(|s| s.job = read(&s.task, JobProgress::Failed(at(90), false))),
            "write Failed JobFailed",
        ),
        (
            there().with(|s| {
                (s.site, s.times.lost_since) = (Some(SiteState::down(Reason::Unreachable)), at(99));
            }),
            "rest until 999 for its cluster",
        ),
        (here().with(|s| s.task.deleting = true), "delete j1"),
        (
            here().with(|s| {
                own_registry(s);
                s.job = read(&s.task, JobProgress::Complete(at(90)));
            }),
            YES,
        ),
    ]);
}

/// Holds: H6.
#[test]
fn without_a_digest_only_a_foreign_renderer_beside_the_hub_is_asked_for() {
    let mute = |s: &mut Situation| s.note = Some(note(None));
    let foreign = |s: &mut Situation| {
        let single = class(json!({"mode": "Single", "allowedNamespaces": ["team-a"]}), true);
        s.catalog.classes = [("single".to_owned(), single)].into();
    };
    check(vec![
        (here().with(mute), YES),
        (here().with(|s| s.note = None), YES),
        (here().with(mute).with(foreign), YES),
        (here().with(mute).with(|s| asks(s, "Digest")), NO),
        (
            here().with(mute).with(foreign).with(|s| asks(s, "Digest")),
            "verify",
        ),
        (there().with(mute), NO),
        (there().with(|s| s.note = None), NO),
        (there().with(mute).with(foreign), NO),
    ]);
    let any = here().with(mute).with(foreign).with(|s| asks(s, "Digest"));
    assert_eq!(verify_request(&any).unwrap().digest, None);
    check(vec![(answered(any, VerifyResult::Held, 0), YES)]);
}

#[test]
fn an_answer_decides_and_silence_is_waited_for_where_an_answer_is_needed() {
    use VerifyResult::{Different, Held, Missing, Refused, Silent};
    let strict = || here().with(|s| asks(s, "Digest"));
    check(vec![
        (answered(there(), Held, 0), YES),
        (answered(there(), Different, 0), NO),
        (answered(there(), Refused, 0), NO),
        (answered(there(), Missing, 0), "rest until 101"),
        (answered(there(), Missing, 20), "rest until 130"),
        (answered(there(), Missing, 30), NO),
        (answered(there(), Silent, 0), "rest until 105"),
        (answered(there(), Silent, 20), "rest until 140"),
        (answered(there(), Silent, 599), "rest until 759"),
        (answered(there(), Silent, 600), NO),
        (answered(strict(), Silent, 0), "rest until 105"),
        (answered(strict(), Refused, 0), NO),
        (answered(here(), Held, 0), YES),
        (answered(here(), Different, 0), NO),
        (answered(here(), Missing, 30), NO),
        (answered(here(), Missing, 0), "rest until 101"),
        (answered(here(), Silent, 0), YES),
        (answered(here(), Refused, 0), YES),
    ]);
}

#[test]
fn an_answer_to_another_question_is_none_and_none_is_asked_before_its_time() {
    let moved =
        answered(there(), VerifyResult::Held, 0).with(|s| s.note = Some(note(Some(Digest::of(b"other")))));
    let waits = |now: i64| {
        there().with(|s| {
            s.verification = Some(VerificationState {
                since: at(100),
                next: at(110),
                answer: None,
            });
            s.now = at(now);
        })
    };
    let relaxed = answered(there(), VerifyResult::Different, 0).with(|s| asks(s, "None"));
    check(vec![
        (moved, "verify"),
        (waits(109), "rest until 110"),
        (waits(110), "verify"),
        (relaxed, YES),
    ]);
}

/// Holds: H6.
#[test]
fn where_to_ask_is_decided_by_the_platform_and_not_by_the_cluster() {
    let request = verify_request(&there()).unwrap();
    let expected = VerifyRequest {
        reference: "registry.test:5000/team-a/shop:1.0.0".parse().unwrap(),
        plain_http: false,
        token_realm: None,
        means: CopyRequest {
            secret: None,
            certificates: None,
        },
        digest: Some(digest()),
        is_required: true,
    };
    assert_eq!(request, expected);
    let whole = there().with(|s| {
        let registry = json!({
            "pushSecretRef": {"name": "push"}, "plainHTTP": true, "tokenRealm": "http://auth.test/token",
            "caConfigMapRef": {"name": "ca", "key": "ca.crt"},
        });
        let registry = super::super::registry(registry, CredentialState::BasicAuth("push".to_owned()));
        s.catalog.registries = [("main".to_owned(), registry)].into();
    });
    let means = CopyRequest {
        secret: Some(("push".to_owned(), "registry.test:5000".to_owned())),
        certificates: Some(("ca".to_owned(), "ca.crt".to_owned())),
    };
    let expected = VerifyRequest {
        plain_http: true,
        token_realm: Some("http://auth.test/token".to_owned()),
        means,
        ..expected
    };
    assert_eq!(verify_request(&whole).unwrap(), expected);
}

#[test]
fn a_hub_that_finds_the_end_first_records_the_start_before_it_asks() {
    let unrecorded = there().with(|s| s.task.status = crate::api::RenderTaskStatus::default());
    let task = written(&unrecorded);
    assert_eq!(task.status.job_ref.as_ref().unwrap().uid.as_deref(), Some(JOB));
    check(vec![(unrecorded.with(|s| s.task = task), "verify")]);
}

/// Holds: H6.
#[test]
fn nothing_that_was_claimed_is_repeated() {
    let task = written(&answered(there(), VerifyResult::Missing, 30));
    assert_eq!(task.status.digest, None);
    assert_eq!(task.status.chart_url, None);
    assert!(task.status.failure.is_some() && task.status.completion_time.is_some());
}

/// Holds: E3.
#[test]
fn nothing_that_another_cluster_says_is_repeated() {
    let foreign = |url: &str| {
        let mut s = to_east();
        s.job = JobState::Seen {
            uid: JOB.to_owned(),
            spec_hash: s.task.decoded.spec_hash.clone(),
            chart_url: Some(url.to_owned()),
            may_have_ended: false,
        };
        match s.step() {
            ReconcileStep::WriteStatus(status) => status.chart_url,
            step => panic!("{step:?}"),
        }
    };
    let own = "oci://registry.test:5000/team-a/shop:1.0.0";
    assert_eq!(foreign(own).as_deref(), Some(own));
    assert_eq!(foreign("oci://evil.test/team-a/shop:1.0.0"), None);
}
