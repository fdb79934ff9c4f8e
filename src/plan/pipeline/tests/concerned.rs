//! Nothing that a change brings about is missed, and what it does not concern is left alone.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;

use super::edits::{Edit, edit, edited, population};
use super::rollback;
use super::statuses::{input, left_out};
use super::world::{World, at, key};
use crate::plan::pipeline::chart_cache::ChartCache;
use crate::plan::pipeline::concerned::{ConcernSearch, Concerned, PROFILES_MATCHED, StatusObject};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::profile_status::of_profile;
use crate::plan::pipeline::status::{
    StatusKind, of_component_version, of_registry_binding, of_release, of_release_binding,
};
use crate::plan::pipeline::task_state::PipelineTaskState;

/// Adds whom the object of an edit concerns, as it is at the moment.
fn search(edit: &Edit, world: &World, found: &mut Concerned) {
    let objects = &world.objects;
    let mut search = ConcernSearch::new(objects, &world.rules, found);
    let key = &edit.key;
    match edit.kind {
        "Target" => {
            if let Some(target) = objects.targets.get(key) {
                search.target(key, target);
            }
        }
        "Release" => search.release(key),
        "ComponentVersion" => search.component_version(key),
        "Profile" => {
            if let Some(profile) = objects.profiles.get(key) {
                search.profile(key, profile);
            }
        }
        "ReleaseBinding" => {
            if let Some(binding) = objects.release_bindings.get(key) {
                search.release_binding(key, binding);
            }
        }
        "RegistryBinding" => {
            if let Some(binding) = objects.registry_bindings.get(key) {
                search.registry_binding(key, binding);
            }
        }
        "Registry" => search.registry(key),
        _ => {
            if let Some(grant) = objects.grants.get(&key.namespace, &key.name) {
                search.grant(&key.namespace, grant);
            }
        }
    }
}

/// What is decided about each Target.
fn decisions(world: &World) -> BTreeMap<ObjectKey, String> {
    let targets = world.objects.targets.keys();
    targets
        .map(|key| (key.clone(), format!("{:?}", world.decide_of(key))))
        .collect()
}

/// The statuses of other objects, with what was known of rollouts and of losers before: the controller follows those by itself.
fn statuses(world: &World, known: &World) -> BTreeMap<StatusObject, String> {
    let (rollouts, left_out) = (known.rollouts(&ChartCache::default()), left_out(known));
    let input = input(world, &rollouts, &left_out);
    let mut statuses = BTreeMap::new();
    macro_rules! add {
        ($field:ident, $of:ident, $kind:ident) => {
            for (key, object) in world.objects.$field.iter() {
                if let Some(status) = $of(key, object, &input) {
                    let (kind, key) = (StatusKind::$kind, key.clone());
                    statuses.insert(StatusObject { kind, key }, format!("{status:?}"));
                }
            }
        };
    }
    add!(releases, of_release, Release);
    add!(component_versions, of_component_version, ComponentVersion);
    add!(profiles, of_profile, Profile);
    add!(release_bindings, of_release_binding, ReleaseBinding);
    add!(registry_bindings, of_registry_binding, RegistryBinding);
    statuses
}

/// The keys whose values differ; one that is gone needs nothing.
fn changed<K: Ord + Clone>(before: &BTreeMap<K, String>, after: &BTreeMap<K, String>) -> Vec<K> {
    let changed = after
        .iter()
        .filter(|(key, value)| before.get(*key) != Some(value));
    changed.map(|(key, _)| key.clone()).collect()
}

/// Makes what is to be made for every Target, a few times, and ends some of the tasks.
fn work(world: &mut World, rounds: usize) {
    let targets: Vec<ObjectKey> = world.objects.targets.keys().cloned().collect();
    for round in 0..rounds {
        for target in &targets {
            world.step_of(target);
        }
        if round + 1 < rounds {
            world.succeed();
        }
    }
}

fn is_found(before: &World, after: &World, found: &Concerned, what: &str) -> Result<(), TestCaseError> {
    for target in changed(&decisions(before), &decisions(after)) {
        let is_found = found.targets.contains(&target) || found.own.as_ref() == Some(&target);
        prop_assert!(is_found, "{what} changes {target}: {found:?}");
    }
    for object in changed(&statuses(before, before), &statuses(after, before)) {
        prop_assert!(
            found.statuses.contains(&object),
            "{what} changes {object:?}: {found:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn whom_a_change_concerns_is_found(
        first in population(),
        edits in proptest::collection::vec((edit(), 0..4usize), 1..12),
        crosses in any::<bool>(),
        is_strict in any::<bool>(),
    ) {
        let mut world = edited(&first, crosses);
        world.rules.is_registry_binding_strict = is_strict;
        work(&mut world, 4);
        for (edit, rounds) in edits {
            let before = world.clone();
            let mut found = Concerned::default();
            search(&edit, &world, &mut found);
            edit.apply(&mut world);
            search(&edit, &world, &mut found);
            is_found(&before, &world, &found, &format!("{edit:?}"))?;
            work(&mut world, rounds);
        }
    }

    #[test]
    fn whom_the_end_or_the_loss_of_a_task_concerns_is_found(
        edits in population(),
        chosen in proptest::collection::vec((any::<proptest::sample::Index>(), any::<bool>()), 1..6),
        rounds in 1..4usize,
    ) {
        let mut world = edited(&edits, true);
        work(&mut world, rounds);
        for (index, is_lost) in chosen {
            let keys: Vec<ObjectKey> = world.objects.tasks.keys().cloned().collect();
            if keys.is_empty() {
                return Ok(());
            }
            let key = index.get(&keys);
            let before = world.clone();
            let mut found = Concerned::default();
            let task = before.objects.tasks[key].clone();
            ConcernSearch::new(&before.objects, &before.rules, &mut found).task(key, &task);
            if is_lost {
                world.objects.tasks.remove(key);
            } else {
                let digest = Some("sha256:1".to_owned());
                let mut task = world.objects.tasks.get_mut(key).unwrap();
                task.state = PipelineTaskState::Succeeded { digest, at: at(9) };
            }
            is_found(&before, &world, &found, &key.to_string())?;
        }
    }
}

#[test]
fn a_change_concerns_no_target_of_a_namespace_that_it_does_not_reach() {
    let mut world = World::new();
    world.rules.crosses_namespaces = true;
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.target("other", &json!({"ring": "two"}), json!({}));
    world.release("shop", "shop", &json!({}), json!({}));
    world.profile("shops", "shop", &json!({"ring": "one"}));
    let foreign = ObjectKey::new("team-b", "far");
    let far = world.objects.targets[&key("edge")].clone();
    world.objects.targets.insert(foreign, far);
    let mut found = Concerned::default();
    let mut search = ConcernSearch::new(&world.objects, &world.rules, &mut found);
    search.component_version(&key("shop"));
    search.profile(&key("shops"), &world.objects.profiles[&key("shops")]);
    assert_eq!(found.targets.into_iter().collect::<Vec<_>>(), [key("edge")]);
}

#[test]
fn a_task_that_is_not_named_after_its_owner_concerns_every_target_of_its_namespace() {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    for target in ["edge", "other"] {
        world.target(target, &json!({}), json!({}));
    }
    world.bind("edge", "shop");
    world.step("edge");
    let (own, task) = world.objects.tasks.first_key_value().unwrap();
    // Under which name and with which owner, and how many Targets it concerns.
    let strange = Some("Strange".to_owned());
    for (name, kind, concerned) in [
        (own.name.as_str(), None, 1),
        ("of-a-tenant", None, 2),
        (own.name.as_str(), strange, 2),
    ] {
        let mut task = task.clone();
        let owner = task.owner.as_mut().unwrap();
        owner.kind = kind.unwrap_or_else(|| owner.kind.clone());
        let mut found = Concerned::default();
        ConcernSearch::new(&world.objects, &world.rules, &mut found).task(&key(name), &task);
        assert_eq!(found.targets.len(), concerned, "{name}");
    }
}

/// Holds: F6.
#[test]
fn of_a_release_with_many_profiles_each_target_is_looked_at_in_its_turn() {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.target("other", &json!({"ring": "two"}), json!({}));
    for (number, concerned) in [(1, 1), (PROFILES_MATCHED, 1), (PROFILES_MATCHED + 1, 2)] {
        world.objects.profiles.clear();
        for number in 0..number {
            world.profile(&format!("p{number}"), "shop", &json!({"ring": "one"}));
        }
        let mut found = Concerned::default();
        ConcernSearch::new(&world.objects, &world.rules, &mut found).release(&key("shop"));
        assert_eq!(found.targets.len(), concerned, "{number}");
    }
}

/// Any tenant can make a task that names a Target of another namespace as its owner.
///
/// Holds: F6.
#[test]
fn a_task_never_concerns_a_target_of_another_namespace() {
    let mut world = World::new();
    world.release("shop", "shop", &json!({}), json!({}));
    world.target("edge", &json!({}), json!({}));
    world.bind("edge", "shop");
    world.settle("edge");
    let mut tasks = world.objects.tasks.iter();
    let (own, task) = tasks
        .find(|(key, _)| key.name.starts_with("bootstrap-edge"))
        .unwrap();
    for (namespace, is_its) in [("team-a", true), ("team-b", false)] {
        let mut task = task.clone();
        task.owner.as_mut().unwrap().namespace = Some("team-a".to_owned());
        let mut found = Concerned::default();
        let key = ObjectKey::new(namespace, &own.name);
        ConcernSearch::new(&world.objects, &world.rules, &mut found).task(&key, &task);
        assert_eq!(
            (found.own.is_some(), found.targets.len()),
            (is_its, 0),
            "{namespace}"
        );
    }
}

#[test]
fn a_registry_concerns_a_target_that_goes_back_to_a_version_which_is_there() {
    let mut world = rollback::changed().world;
    let versions = world.objects.hydrated_targets.values();
    let first = versions
        .filter_map(|version| Some(version.spec.as_ref()?.version))
        .min();
    let mut other = world.objects.registries[&key("main")].clone();
    other.spec.as_mut().unwrap().hostname = "other.test".to_owned();
    world.objects.registries.insert(key("other"), other);
    world.change_target("edge", |spec| {
        "other".clone_into(&mut spec.render_registry_ref.name);
    });
    world.settle("edge");
    let main = world.objects.registries.remove(&key("main")).unwrap();
    world.change_target("edge", |spec| spec.rollback_to = first);
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "NotGranted");
    let before = decisions(&world);
    world.objects.registries.insert(key("main"), main);
    assert_ne!(before, decisions(&world));
    let mut found = Concerned::default();
    ConcernSearch::new(&world.objects, &world.rules, &mut found).registry(&key("main"));
    assert!(found.targets.contains(&key("edge")));
}
