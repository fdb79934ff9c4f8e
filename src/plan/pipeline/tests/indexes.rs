//! What is found by an index is what a look at every object finds.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::edits::{edit, edited, population};
use super::world::World;
use crate::api::pipeline::ReleaseSourceKind::{Profile, ReleaseBinding};
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::{IndexedMap, NamedObject, NamesOthers};
use crate::plan::pipeline::selector::matches;
use crate::plan::pipeline::source::{TargetView, bound, is_target, may_reach};

/// The Releases that every binding and Profile binds to a Target, each with all its sources.
fn scanned(world: &World, target: TargetView<'_>) -> Vec<(ObjectKey, String)> {
    let objects = &world.objects;
    let bindings = objects.release_bindings.iter().filter_map(|(key, binding)| {
        let spec = binding.spec.as_ref()?;
        let reaches = may_reach(ReleaseBinding, key, target.key, objects, &world.rules);
        (is_target(&spec.target_ref, key, target.key) && reaches).then(|| {
            (
                ObjectKey::new(&key.namespace, &spec.release_ref.name),
                format!("{key} binding"),
            )
        })
    });
    let profiles = objects.profiles.iter().filter_map(|(key, profile)| {
        let spec = profile.spec.as_ref()?;
        let reaches = may_reach(Profile, key, target.key, objects, &world.rules);
        (matches(&spec.target_selector, &target.object.labels) && reaches).then(|| {
            (
                ObjectKey::new(&key.namespace, &spec.release_ref.name),
                format!("{key} profile"),
            )
        })
    });
    let mut found: Vec<_> = bindings.chain(profiles).collect();
    found.sort();
    found
}

/// Everything that the index of a map should hold.
fn all_names<V: NamesOthers>(map: &IndexedMap<V>) -> Vec<(NamedObject, ObjectKey)> {
    let names = map.iter().flat_map(|(key, object)| {
        let names = object.names(key).into_iter();
        names.map(move |named| (named, key.clone()))
    });
    let mut names: Vec<_> = names.collect();
    names.sort();
    names.dedup();
    names
}

fn is_exact<V: NamesOthers>(map: &IndexedMap<V>) -> Result<(), TestCaseError> {
    let names = all_names(map);
    let indexed = map
        .index()
        .flat_map(|(named, keys)| keys.iter().map(move |key| (named.clone(), key.clone())));
    prop_assert_eq!(indexed.collect::<Vec<_>>(), names.clone());
    let mut bytes = BTreeMap::<&String, usize>::new();
    for (key, object) in map.iter() {
        *bytes.entry(&key.namespace).or_default() += object.kept_bytes();
    }
    let counted = map
        .bytes()
        .keys()
        .map(|namespace| (namespace, map.bytes_within(namespace)));
    prop_assert_eq!(counted.collect::<BTreeMap<_, _>>(), bytes);
    for (named, key) in names {
        prop_assert!(map.naming(named.kind, &named.key).any(|(found, _)| *found == key));
        let mut there = map.naming_from(&key.namespace, named.kind, &named.key);
        prop_assert!(there.any(|(found, _)| *found == key));
        let mut within = map.naming_within(named.kind, &named.key.namespace);
        prop_assert!(within.any(|(found, _)| *found == key));
    }
    Ok(())
}

proptest! {
    #[test]
    fn a_target_is_bound_to_what_a_look_at_every_binding_and_profile_finds(
        first in population(), edits in proptest::collection::vec(edit(), 0..20), crosses in any::<bool>()
    ) {
        let world = edited(&[first, edits].concat(), crosses);
        for (key, object) in world.objects.targets.iter() {
            let target = TargetView { key, object };
            let expected = scanned(&world, target);
            let found = bound(target, &world.objects, &world.rules);
            let mut releases: Vec<_> = found.iter().map(|bound| bound.release.clone()).collect();
            releases.sort();
            let mut all: Vec<_> = expected.iter().map(|(release, _)| release.clone()).collect();
            all.dedup();
            prop_assert_eq!(releases, all);
            for bound in found {
                let kind = if bound.source.kind == Profile { "profile" } else { "binding" };
                let source = format!("{}/{} {kind}", bound.source.key.namespace, bound.source.key.name);
                let first = expected.iter().filter(|(release, _)| *release == bound.release).map(|(_, source)| source.clone()).min();
                prop_assert_eq!(Some(source), first);
            }
        }
    }

    #[test]
    fn an_index_holds_what_its_objects_name_and_nothing_else(edits in proptest::collection::vec(edit(), 0..40)) {
        let objects = edited(&edits, true).objects;
        is_exact(&objects.targets)?;
        is_exact(&objects.releases)?;
        is_exact(&objects.profiles)?;
        is_exact(&objects.release_bindings)?;
        is_exact(&objects.registry_bindings)?;
    }
}

#[test]
fn what_is_taken_away_or_changed_is_found_no_more_by_what_it_named() {
    let mut world = World::new();
    world.target("edge", &serde_json::json!({}), serde_json::json!({}));
    world.bind("edge", "shop");
    let named = |world: &World| world.objects.release_bindings.index().count();
    assert_eq!(named(&world), 2, "a Target and a Release");
    let bindings = &mut world.objects.release_bindings;
    let key = super::world::key("edge-shop");
    bindings.get_mut(&key).unwrap().spec = None;
    assert_eq!((bindings.len(), named(&world)), (1, 0));
    world.bind("edge", "shop");
    world.objects.release_bindings.retain(|_, _| false);
    assert_eq!((world.objects.release_bindings.len(), named(&world)), (0, 0));
    world.bind("edge", "shop");
    world.objects.release_bindings.clear();
    assert_eq!(named(&world), 0);
}
