//! How long a version that is not kept waits for its charts to be deleted, and how many wait at once.

use k8s_openapi::jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::prune::{Change, is_record, of, outcome, pruned, since};
use super::world::{HOME, at, key};
use crate::api::pipeline::{PruneFailure, PruneProgress};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::prune::{
    ATTEMPTS, GIVEN_UP_AFTER, RECORDS, Retirement, after_failure, orphaned, records, retire,
};
use crate::plan::pipeline::version_bytes::VERSIONS_OF_NAMESPACE;

#[test]
fn of_too_many_bytes_of_versions_that_wait_the_oldest_are_given_up() {
    let (mut world, version) = pruned();
    let large = VERSIONS_OF_NAMESPACE / 4;
    for number in 1..5 {
        let mut copy = of(&mut world, &version).clone();
        copy.status.prune = Some(since(number));
        copy.spec.as_mut().unwrap().userdata = Some(json!({"text": "x".repeat(large)}));
        let name = key(&format!("copy-{number}"));
        world.objects.hydrated_targets.insert(name, copy);
    }
    let (all, surplus) = records(HOME, &world.objects);
    assert_eq!((surplus, all.len()), (2, 5));
    assert_eq!(outcome(&world, &version), "give up: TooMany");
    assert_eq!(outcome(&world, &key("copy-1")), "give up: TooMany");
    assert_ne!(outcome(&world, &key("copy-2")), "give up: TooMany");
}

#[test]
fn attempts_back_off_and_end() {
    let mut progress = since(0);
    let (mut waits, mut now) = (Vec::new(), at(0));
    while let Some(next) = after_failure(&progress, PruneFailure::Unreachable, now) {
        let due = next.next_attempt.as_ref().unwrap().0;
        assert_eq!(
            (next.attempts, next.failure),
            (progress.attempts + 1, Some(PruneFailure::Unreachable))
        );
        waits.push(due.duration_since(now).as_mins());
        (progress, now) = (next, due);
    }
    assert_eq!(waits, [1, 2, 4, 8, 16, 32, 60, 60, 60]);
    assert_eq!(progress.attempts + 1, ATTEMPTS);
    // One whose time is over has the attempt that was due, and no other.
    let late = at(GIVEN_UP_AFTER.as_secs());
    assert_eq!(after_failure(&since(0), PruneFailure::Refused, late), None);
    let before = late.saturating_sub(SignedDuration::from_secs(1)).unwrap();
    assert!(after_failure(&since(0), PruneFailure::Refused, before).is_some());
}

#[test]
fn of_too_many_versions_of_a_namespace_the_oldest_are_given_up() {
    let (mut world, version) = pruned();
    for number in 1..RECORDS {
        let mut copy = of(&mut world, &version).clone();
        copy.status.prune = Some(since(i64::try_from(number).unwrap()));
        world
            .objects
            .hydrated_targets
            .insert(key(&format!("copy-{number}")), copy);
    }
    assert_eq!(records(HOME, &world.objects).1, 0);
    assert_ne!(outcome(&world, &version), "give up: TooMany");
    let mut newest = of(&mut world, &version).clone();
    newest.status.prune = Some(since(1_000_000));
    world
        .objects
        .hydrated_targets
        .insert(ObjectKey::new("team-b", "edge-v1"), newest.clone());
    assert_eq!(
        records(HOME, &world.objects).1,
        0,
        "another namespace has its own"
    );
    world.objects.hydrated_targets.insert(key("newest"), newest);
    let (all, surplus) = records(HOME, &world.objects);
    assert_eq!((surplus, all[0].key, all.len()), (1, &version, RECORDS + 1));
    assert_eq!(outcome(&world, &version), "give up: TooMany");
    assert_ne!(outcome(&world, &key("copy-1")), "give up: TooMany");
}

#[test]
fn a_version_becomes_the_record_only_where_its_registry_prunes() {
    let (mut world, version) = pruned();
    let mut stored = of(&mut world, &version);
    stored.status.prune = None;
    let stored = stored.clone();
    let stored = &stored;
    assert_eq!(retire(stored, Some("builder"), false, at(7)), Retirement::Delete);
    let kept = stored.clone();
    let Retirement::Record(status) = retire(stored, Some("builder"), true, at(7)) else {
        panic!("it is not recorded");
    };
    let progress = status.prune.clone().unwrap();
    assert_eq!(
        progress,
        PruneProgress {
            service_account_name: Some("builder".to_owned()),
            ..since(7)
        }
    );
    // A version that is kept, or is being deleted, is none of its business.
    for (prune, deleting) in [(None, false), (Some(since(0)), true)] {
        let mut version = kept.clone();
        (version.status.prune, version.deleting) = (prune, deleting);
        assert!(!is_record(&version));
    }
    // The rest of the status stays: the digest is what is compared.
    assert_eq!(
        (status.digest, status.pushed_at),
        (stored.status.digest.clone(), stored.status.pushed_at.clone())
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn a_version_without_a_target_goes_once_it_is_old_enough_and_no_cluster_needs_it() {
    let minutes = |minutes: i64| minutes * 60;
    let rows: [(&str, Change, i64, bool); 6] = [
        ("its Target is gone", |_, _| (), minutes(10), true),
        (
            "it is too young to be believed",
            |_, _| (),
            minutes(10) - 1,
            false,
        ),
        (
            "its Target is there",
            |w, _| w.target("edge", &json!({}), json!({})),
            minutes(99),
            false,
        ),
        (
            "another Target of the name has pushed nothing",
            |w, v| {
                w.target("edge", &json!({}), json!({"allowEmpty": true}));
                of(w, v).spec.as_mut().unwrap().target_uid = "another".to_owned();
            },
            minutes(99),
            false,
        ),
        (
            "another Target of the name has pushed a version",
            |w, v| {
                w.target("edge", &json!({}), json!({"allowEmpty": true}));
                w.settle("edge");
                of(w, v).spec.as_mut().unwrap().target_uid = "another".to_owned();
            },
            minutes(99),
            true,
        ),
        (
            "it cannot be decoded",
            |w, v| of(w, v).spec = None,
            minutes(99),
            false,
        ),
    ];
    for (what, change, now, goes) in rows {
        let (mut world, version) = pruned();
        let mut stored = of(&mut world, &version);
        stored.status.prune = None;
        stored.created = at(0);
        drop(stored);
        change(&mut world, &version);
        let found = orphaned(HOME, &world.objects, at(now));
        let is_found = found.versions.iter().any(|(key, _)| **key == version);
        assert_eq!(is_found, goes, "{what}");
        if what.contains("young") {
            assert_eq!(found.look_again, Some(at(minutes(10))));
        }
    }
    // One that no watch has shown yet has no age.
    let (mut world, version) = pruned();
    let mut stored = of(&mut world, &version);
    stored.status.prune = None;
    stored.created = Timestamp::UNIX_EPOCH;
    drop(stored);
    assert!(
        orphaned(HOME, &world.objects, at(minutes(99)))
            .versions
            .is_empty()
    );
}
