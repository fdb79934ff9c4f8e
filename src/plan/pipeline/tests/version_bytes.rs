//! How many bytes the versions of a namespace may take.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use proptest::prelude::*;
use serde_json::json;

use super::world::{HOME, World, at, key};
use crate::plan::pipeline::history::StoredVersion;
use crate::plan::pipeline::object::{ObjectKey, PipelineObject};
use crate::plan::pipeline::object_map::NamesOthers as _;
use crate::plan::pipeline::version_bytes::{VERSIONS_OF_NAMESPACE, early, waiting_for_room};

/// Bytes of a large version, of which 64 fit into a namespace.
const LARGE: usize = VERSIONS_OF_NAMESPACE / 65;

/// Bytes that a small map in a list takes, which is much more than its text.
const MAP: usize = 672;

/// A version of a Target, which takes so many bytes and some more.
fn version(world: &World, target: &str, number: i64, bytes: usize, is_pushed: bool) -> StoredVersion {
    let spec = json!({
        "targetName": target, "targetUid": world.objects.targets[&key(target)].uid, "version": number, "changes": "",
        "registry": {"kind": "Registry", "name": "main", "hostname": "r.test", "repository": "r"},
        "releases": {}, "userdata": {"maps": vec![json!({"a": 1}); bytes / MAP]},
    });
    let spec = serde_json::from_value(spec).unwrap();
    let mut version: StoredVersion = PipelineObject::made(format!("{target}-{number}"), spec);
    version.status.pushed_at = is_pushed.then(|| Time(at(number)));
    version
}

fn put(world: &mut World, target: &str, number: i64, bytes: usize, is_pushed: bool) {
    let version = version(world, target, number, bytes, is_pushed);
    let name = key(&format!("{target}-v{number}"));
    world.objects.hydrated_targets.insert(name, version);
}

fn names(versions: &[(&ObjectKey, &StoredVersion)]) -> Vec<String> {
    versions.iter().map(|(key, _)| key.name.clone()).collect()
}

#[test]
fn the_oldest_version_of_the_target_with_most_bytes_goes_first_and_no_more_than_need_to() {
    let mut world = World::new();
    for (target, count) in [("large", 40), ("small", 24)] {
        world.target(target, &json!({}), json!({"historyLimit": 100}));
        for number in 1..=count {
            put(&mut world, target, number, LARGE, true);
        }
    }
    assert_eq!(names(&early(HOME, &world.objects)), [""; 0], "all of them fit");
    put(&mut world, "small", 25, 2 * LARGE, true);
    assert_eq!(names(&early(HOME, &world.objects)), ["large-v1", "large-v2"]);
    assert!(early("team-b", &world.objects).is_empty());
    // Versions whose charts are being deleted are counted by themselves.
    for number in 1..=2 {
        let mut version = world
            .objects
            .hydrated_targets
            .get_mut(&key(&format!("large-v{number}")))
            .unwrap();
        version.deleting = true;
    }
    assert!(early(HOME, &world.objects).is_empty());
}

#[test]
fn history_gives_way_to_a_new_version_and_without_any_it_is_refused_and_the_one_before_stays() {
    let mut world = World::new();
    world.target("edge", &json!({}), json!({"allowEmpty": true}));
    world.settle("edge");
    world.target("other", &json!({}), json!({"historyLimit": 100}));
    for number in 1..=64 {
        put(&mut world, "other", number, LARGE, true);
    }
    let data = json!({"text": "x".repeat(250_000)});
    world.change_target("edge", |spec| spec.userdata = Some(data.clone()));
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
    assert_eq!(names(&early(HOME, &world.objects)), ["other-v1"]);
    // Of what is not pushed, or not known, nothing goes.
    for number in 1..=64 {
        put(&mut world, "other", number, LARGE, false);
    }
    let data = json!({"text": "y".repeat(250_000)});
    let before = world.objects.hydrated_targets.len();
    world.change_target("edge", |spec| spec.userdata = Some(data));
    let decision = world.step("edge");
    assert!(decision.new_version.is_none() && decision.old_versions.is_empty());
    let (reason, message) = world.ready("edge");
    assert_eq!(reason, "TooManyVersions", "{message}");
    assert_eq!(world.objects.hydrated_targets.len(), before);
    assert_eq!(
        waiting_for_room(HOME, &world.objects).collect::<Vec<_>>(),
        [&key("edge")]
    );
    // It goes on once there is room.
    world
        .objects
        .hydrated_targets
        .retain(|key, _| !key.name.starts_with("other-v1"));
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "Ready");
    assert_eq!(waiting_for_room(HOME, &world.objects).count(), 0);
}

/// A Target: the version that it is pinned to, and each of its versions by the parts of the bound that it takes and whether it is pushed.
type History = (Option<i64>, Vec<(usize, bool)>);

fn history() -> impl Strategy<Value = History> {
    let pinned = proptest::option::of(1..6_i64);
    (
        pinned,
        proptest::collection::vec((1..30_usize, any::<bool>()), 0..6),
    )
}

/// The versions that never go early, by Target.
fn needed(histories: &[History]) -> BTreeSet<String> {
    let mut needed = BTreeSet::new();
    for (target, (pinned, versions)) in histories.iter().enumerate() {
        let count = versions.len();
        let last_pushed = versions.iter().rposition(|(_, is_pushed)| *is_pushed);
        for (index, (_, is_pushed)) in versions.iter().enumerate() {
            let number = i64::try_from(index).unwrap() + 1;
            let is_needed =
                index + 1 == count || Some(index) == last_pushed || !is_pushed || *pinned == Some(number);
            if is_needed {
                needed.insert(format!("t{target}-v{number}"));
            }
        }
    }
    needed
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_needed_never_goes_early_and_the_others_go_until_all_fit(
        histories in proptest::collection::vec(history(), 1..6), is_reversed in any::<bool>()
    ) {
        let mut world = World::new();
        let mut all: Vec<(String, i64, usize, bool)> = Vec::new();
        for (target, (pinned, versions)) in histories.iter().enumerate() {
            let name = format!("t{target}");
            world.target(&name, &json!({}), json!({"rollbackTo": pinned}));
            for (index, (parts, is_pushed)) in versions.iter().enumerate() {
                let number = i64::try_from(index).unwrap() + 1;
                all.push((name.clone(), number, parts * (VERSIONS_OF_NAMESPACE / 100), *is_pushed));
            }
        }
        if is_reversed {
            all.reverse();
        }
        for (target, number, bytes, is_pushed) in &all {
            put(&mut world, target, *number, *bytes, *is_pushed);
        }
        let gone = early(HOME, &world.objects);
        let sizes: BTreeMap<&ObjectKey, usize> =
            world.objects.hydrated_targets.iter().map(|(key, version)| (key, version.kept_bytes())).collect();
        let total: usize = sizes.values().sum();
        prop_assert_eq!(total, world.objects.hydrated_targets.bytes_within(HOME));
        let freed: usize = gone.iter().map(|(key, _)| sizes[key]).sum();
        let needed = needed(&histories);
        prop_assert!(gone.iter().all(|(key, _)| !needed.contains(&key.name)));
        let has_more = gone.len() + needed.len() < sizes.len();
        prop_assert!(total - freed <= VERSIONS_OF_NAMESPACE || !has_more, "{} of {}", freed, total);
        let last = gone.last().map_or(0, |(key, _)| sizes[key]);
        prop_assert!(gone.is_empty() || total - freed + last > VERSIONS_OF_NAMESPACE, "one more than need to");
    }
}
