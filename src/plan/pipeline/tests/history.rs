//! Versions of a Target.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

use super::world::{World, at, key};
use crate::api::pipeline::HydratedTargetStatus;
use crate::plan::pipeline::history::{
    MAX_VERSION_BYTES, StoredVersion, changes, next_version, superfluous, version_name,
};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::task::finalizer_summary::FinalizerSummary;

#[test]
fn versions_rise_by_one_from_the_second_in_which_the_target_was_made() {
    let second = at(0).as_second();
    for (newest, recorded, others, next) in [
        (None, None, None, second),
        (Some(7), None, None, 8),
        (None, Some(9), None, 10),
        (Some(7), Some(9), None, 10),
        (Some(9), Some(7), None, 10),
        // A Target of the name was there before, and made more versions than seconds have passed.
        (None, None, Some(second - 9), second),
        (None, None, Some(second), second + 1),
        (Some(second + 1), None, Some(second), second + 2),
    ] {
        assert_eq!(
            next_version(newest, recorded, others, at(0)),
            next,
            "{newest:?} {recorded:?} {others:?}"
        );
    }
}

#[test]
fn names_of_versions_fit_and_differ() {
    let long = "t".repeat(253);
    assert_eq!(version_name("edge", 7), "edge-v7");
    let (one, other) = (
        version_name(&long, 7),
        version_name(&format!("{}x", &long[..252]), 7),
    );
    assert!(one.len() <= 253 && other.len() <= 253 && one != other);
}

fn version(is_pushed: bool) -> StoredVersion {
    StoredVersion {
        uid: String::new(),
        version: 0,
        generation: 1,
        created: at(0),
        deleting: false,
        deleted_at: None,
        finalizers: FinalizerSummary::default(),
        labels: BTreeMap::new(),
        spec: None,
        status: HydratedTargetStatus {
            pushed_at: is_pushed.then(|| Time(at(0))),
            ..HydratedTargetStatus::default()
        },
    }
}

/// How many versions there are, the newest that is pushed, the limit, the one that is pinned; which go.
type Row = (i64, i64, i32, Option<i64>, &'static [i64]);

#[test]
fn old_versions_go_but_not_the_newest_nor_what_is_pushed_or_pinned() {
    let rows: [Row; 5] = [
        (3, 3, 10, None, &[]),
        (4, 4, 2, None, &[1]),
        (4, 4, 1, None, &[2, 1]),
        (4, 4, 1, Some(1), &[2]),
        (4, 1, 1, None, &[2]),
    ];
    let (of_target, versions) = (key("edge"), [version(false), version(true)]);
    for (count, newest_pushed, limit, pinned, gone) in rows {
        let stored = |number| &versions[usize::from(number <= newest_pushed)];
        let all: BTreeMap<i64, (&ObjectKey, &StoredVersion)> = (1..=count)
            .map(|number| (number, (&of_target, stored(number))))
            .collect();
        assert_eq!(
            superfluous(&all, Some(limit), pinned),
            gone,
            "{count} {limit} {pinned:?}"
        );
    }
}

#[test]
fn a_change_is_told_in_words_that_fit() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    for number in 0..200 {
        let name = format!("component-with-a-long-name-{number}");
        world.release(&name, &name, &json!({}), json!({}));
        world.bind("edge", &name);
    }
    world.settle("edge");
    let version = world.objects.hydrated_targets.values().next().unwrap();
    let sentence = &version.spec.as_ref().unwrap().changes;
    assert!(
        sentence.starts_with("first version: component-with-a-long-name-0 1.0.0; ")
            && sentence.ends_with("; …"),
        "{sentence}"
    );
    assert!(sentence.len() <= 1024);
    let spec = version.spec.as_ref().unwrap();
    assert_eq!(changes(Some(spec), spec), "");
}

/// Holds: F6.
#[test]
fn a_version_that_is_too_large_is_not_made_and_the_one_before_stays() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({}));
    world.release("a", "a", &json!({}), json!({}));
    world.bind("edge", "a");
    world.settle("edge");
    let text = "x".repeat(MAX_VERSION_BYTES);
    world.target("edge", &json!({}), json!({"userdata": {"text": text}}));
    let decision = world.step("edge");
    assert!(decision.new_version.is_none());
    assert_eq!(
        (
            world.ready("edge").0.as_str(),
            world.objects.hydrated_targets.len()
        ),
        ("VersionTooLarge", 1)
    );
    let near = "x".repeat(MAX_VERSION_BYTES - 2_000);
    world.target("edge", &json!({}), json!({"userdata": {"text": near}}));
    assert!(world.step("edge").new_version.is_some());
}
