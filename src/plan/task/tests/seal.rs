//! What a seal proves: that this hub wrote this status of this task.

use serde_json::{Value, json};

use super::{at, task_in};
use crate::api::names::{TaskKind, TaskUid};
use crate::plan::task::model::Task;
use crate::plan::task::status_digest::StatusDigest;
use crate::plan::task::status_seal::{LastStatusDigest, SealKey};

/// A key that was made after the tasks of these tests, or before.
fn key(made: i64) -> SealKey {
    SealKey::new([7; 32], at(made))
}

fn status() -> Value {
    json!({"attempts": 1, "chartURL": "oci://registry.test/team-a/shop:1.0.0", "conditions": [{
        "type": "JobSucceeded", "status": "True", "reason": "JobSucceeded", "message": "the chart was pushed",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]})
}

/// A task as it is read with this status.
fn read(status: Value) -> Task {
    let task = super::task();
    let meta = json!({
        "name": task.id.name, "namespace": task.id.namespace, "uid": task.id.uid.as_str(), "generation": 1,
        "creationTimestamp": at(0).to_string(),
    });
    let meta = serde_json::from_value(meta).unwrap();
    Task::new(TaskKind::RenderTask, &meta, super::spec(), status).unwrap()
}

fn sealed(key: &SealKey, uid: &TaskUid, status: Value) -> Value {
    serde_json::to_value(key.sealed(uid, serde_json::from_value(status).unwrap()).0).unwrap()
}

/// Statuses on a new task, and whether the hub wrote them there.
#[rustfmt::skip]
fn claims(key: &SealKey) -> Vec<(&'static str, Value, bool)> {
    let other = SealKey::new([8; 32], at(0));
    let uid = super::task().id.uid;
    let good = sealed(key, &uid, status());
    let with = |field: &str, value: Value| {
        let mut changed = good.clone();
        changed[field] = value;
        changed
    };
    let seal = good["seal"].as_str().unwrap().to_owned();
    vec![
        ("as the hub wrote it", good.clone(), true),
        ("nothing said", Value::Null, true),
        ("nothing said, in an object", json!({}), true),
        ("without a seal", status(), false),
        ("only a seal", json!({"seal": seal}), true),
        ("with another digest", with("digest", json!(format!("sha256:{:064}", 1))), false),
        ("with a field of a later version", with("later", json!(1)), false),
        ("with less", with("conditions", json!([])), false),
        ("with the seal of another task", sealed(key, &TaskUid::new("other"), status()), false),
        ("with the seal of another key", sealed(&other, &uid, status()), false),
        ("with an empty seal", with("seal", json!("")), false),
        ("with half a seal", with("seal", json!(seal[..32])), false),
        ("with a seal and more", with("seal", json!(format!("{seal}00"))), false),
        ("with a seal of letters", with("seal", json!("\u{e4}".repeat(64))), false),
        ("with a seal that is no text", with("seal", json!(7)), false),
    ]
}

/// Holds: T1.
#[test]
fn a_new_task_is_believed_only_with_a_seal_for_itself() {
    let key = key(0);
    for (what, status, is_genuine) in claims(&key) {
        assert_eq!(key.is_genuine(&read(status), None), is_genuine, "{what}");
    }
}

/// Holds: T1.
#[test]
fn a_task_older_than_the_key_is_believed_as_it_is_found() {
    for (made, is_genuine) in [(-1, false), (0, false), (1, true)] {
        assert_eq!(key(made).is_genuine(&read(status()), None), is_genuine, "{made}");
    }
}

/// Holds: T1.
#[test]
fn what_is_remembered_outranks_every_seal() {
    let uid = super::task().id.uid;
    // Older than the key: the age does not help against what the index remembers.
    let key = key(1);
    let (said, other) = (
        sealed(&key, &uid, status()),
        sealed(&key, &uid, json!({"attempts": 2})),
    );
    let last = |in_doubt: bool| {
        let digest = StatusDigest::of(&said);
        Some(LastStatusDigest { digest, in_doubt })
    };
    for (what, status, sure, in_doubt) in [
        ("as it was said", said.clone(), true, true),
        ("as it was said, unsealed", status(), true, true),
        ("another, sealed", other, false, true),
        ("another, unsealed", json!({"attempts": 2}), false, false),
        ("nothing", Value::Null, false, false),
    ] {
        let task = read(status);
        assert_eq!(key.is_genuine(&task, last(false)), sure, "{what}");
        assert_eq!(key.is_genuine(&task, last(true)), in_doubt, "{what}, in doubt");
    }
    let nothing = Some(LastStatusDigest::default());
    assert!(key.is_genuine(&read(Value::Null), nothing) && !key.is_genuine(&read(said), nothing));
}

#[test]
fn a_seal_is_64_hex_digits_stays_the_same_and_seals_no_silence() {
    let key = key(0);
    let task = task_in("team-a", TaskKind::RenderTask, super::spec());
    let first = sealed(&key, &task.id.uid, status());
    let again = sealed(&key, &task.id.uid, first.clone());
    assert_eq!(first, again);
    let seal = first["seal"].as_str().unwrap();
    assert!(seal.len() == 64 && seal.bytes().all(|b| b"0123456789abcdef".contains(&b)));
    assert_eq!(sealed(&key, &task.id.uid, json!({})), json!({}));
    assert!(!format!("{key:?}").contains('7'), "a key is not printed");
}
