//! When a Job gives up, what it outlives, and what marks its destination.

use k8s_openapi::jiff::SignedDuration;

use super::*;

#[test]
fn a_job_gives_up_once_and_outlives_a_dead_hub_by_a_day() {
    let job = made(&platform(), &super::super::task()).job.spec.unwrap();
    assert_eq!(
        (job.backoff_limit, job.active_deadline_seconds),
        (Some(3), Some(600))
    );
    for (ttl, expected) in [
        (json!(0), 86_400),
        (json!(3_600), 90_000),
        (json!(604_800), 691_200),
        // The default counts as if it were written.
        (Value::Null, 90_000),
    ] {
        let task = task_of(spec_with(json!({"failedJobTTL": ttl})));
        let net = made(&platform(), &task)
            .job
            .spec
            .unwrap()
            .ttl_seconds_after_finished
            .unwrap();
        assert_eq!(net, expected);
        let own = task.failure_cleanup_due(SignedDuration::MAX);
        assert!(
            own < task.created + SignedDuration::from_secs(net.into()),
            "the hub's own clean-up comes first"
        );
    }
    let extreme = task_of(spec_with(json!({"failedJobTTL": i32::MAX})));
    assert_eq!(
        made(&platform(), &extreme)
            .job
            .spec
            .unwrap()
            .ttl_seconds_after_finished,
        Some(i32::MAX)
    );
}

#[test]
fn without_a_usable_credential_there_are_no_manifests() {
    for (credential, reason) in [
        (CredentialState::Missing, Reason::PushSecretNotFound),
        (CredentialState::Invalid, Reason::PushSecretInvalid),
    ] {
        let catalog = offering(json!({}), json!({}), credential);
        let task = super::super::task();
        let refusal = catalog
            .resolve(&task, task.decoded.spec.as_ref().unwrap(), None, None)
            .unwrap_err();
        assert_eq!(refusal.reason, reason);
    }
}

#[test]
fn our_renderers_last_exit_code_ends_the_job_and_a_foreign_ones_does_not() {
    let rules = |mode: &str| {
        let catalog = offering(
            json!({"mode": mode, "allowedNamespaces": ["*"]}),
            json!({}),
            basic(),
        );
        let job = made(&catalog, &super::super::task()).job;
        job.spec.unwrap().pod_failure_policy.unwrap().rules
    };
    for mode in ["Split", "Single"] {
        let first = rules(mode).remove(0);
        assert_eq!(
            first.action, "Ignore",
            "a pod that its node took away does not count"
        );
        assert_eq!(first.on_pod_conditions.unwrap()[0].type_, "DisruptionTarget");
    }
    let ours = rules("Split").remove(1);
    assert_eq!(
        (ours.action.as_str(), ours.on_exit_codes.unwrap().values),
        ("FailJob", vec![2])
    );
    assert_eq!(rules("Single").len(), 1);
}

#[test]
fn the_mark_of_the_destination_changes_with_everything_that_decides_where_the_credential_goes() {
    let mark = |registry: Value, credential: CredentialState, spec: Value| {
        let task = task_of(spec);
        let secret = made(&offering(json!({}), registry, credential), &task).secret;
        secret.metadata.annotations.unwrap()["renderhub.dev/destination"].clone()
    };
    let other = CredentialState::BasicAuth("other".to_owned());
    let spec = super::super::spec;
    let marks = [
        mark(json!({}), basic(), spec()),
        mark(json!({"hostname": "other.test"}), basic(), spec()),
        mark(json!({"plainHTTP": true}), basic(), spec()),
        mark(json!({"tokenRealm": "https://auth.test"}), basic(), spec()),
        mark(json!({"caConfigMapRef": {"name": "trust"}}), basic(), spec()),
        mark(json!({}), other, spec()),
        mark(json!({}), docker(), spec()),
        mark(json!({}), CredentialState::Anonymous, spec()),
        mark(
            json!({}),
            basic(),
            spec_with(json!({"repository": "team-a/x/shop"})),
        ),
    ];
    for (line, one) in marks.iter().enumerate() {
        assert_eq!(
            marks.iter().filter(|m| *m == one).count(),
            1,
            "line {line} is like another"
        );
    }
    let allowed = json!({"allowedNamespaces": ["team-a", "team-b"]});
    assert_eq!(
        mark(allowed, basic(), spec()),
        marks[0],
        "who else may push does not matter"
    );
}
