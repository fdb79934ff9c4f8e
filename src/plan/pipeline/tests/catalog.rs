//! What a Target gets from catalogs in other namespaces, and what becomes of it when it is not seen any more.

use serde_json::json;

use super::world::{World, at, key};
use crate::api::ReferenceGrantSpec;
use crate::api::pipeline::ReleaseSourceKind;
use crate::plan::pipeline::left_out::LeftOutIndex;
use crate::plan::pipeline::names::PipelineSpec;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pipeline::object_map::ObjectMap;
use crate::plan::pipeline::profile_status::of_profile;
use crate::plan::pipeline::references::ReferenceRules;
use crate::plan::pipeline::rollout::RolloutIndex;
use crate::plan::pipeline::status::{StatusInput, of_release, of_release_binding};

/// The namespace of the catalog.
const CATALOG: &str = "catalog";

/// Rules of a hub that serves the Target's namespace and reads the catalog.
fn rules() -> ReferenceRules {
    ReferenceRules {
        crosses_namespaces: true,
        served: vec!["team-a".to_owned()],
        catalogs: vec![CATALOG.to_owned()],
        ..ReferenceRules::default()
    }
}

fn move_to_catalog<S: PipelineSpec<T>, T>(map: &mut ObjectMap<S, T>, name: &str) {
    let object = map.remove(&key(name)).unwrap();
    map.insert(ObjectKey::new(CATALOG, name), object);
}

/// A grant in a namespace, from kinds of another to a kind.
fn grant(world: &mut World, namespace: &str, from: (&str, &str), to: &str) {
    let group = "renderhub.dev";
    let spec: ReferenceGrantSpec = serde_json::from_value(json!({
        "from": [{"group": group, "kind": from.0, "namespace": from.1}], "to": [{"group": group, "kind": to}],
    }))
    .unwrap();
    let uid = format!("{namespace}-{}-{to}", from.0);
    world.objects.grants.put(&None, namespace, &uid, Some(spec));
}

/// A Target with a Release of its own namespace, and one that a Profile of the catalog puts on it.
fn world() -> World {
    let mut world = World::new();
    world.rules = rules();
    world.target("edge", &json!({"ring": "one"}), json!({}));
    world.release("own", "own", &json!({}), json!({}));
    world.bind("edge", "own");
    world.release("shop", "shop", &json!({}), json!({}));
    world.profile("shops", "shop", &json!({"ring": "one"}));
    move_to_catalog(&mut world.objects.component_versions, "shop");
    move_to_catalog(&mut world.objects.releases, "shop");
    move_to_catalog(&mut world.objects.profiles, "shops");
    world
}

#[test]
fn a_profile_of_a_catalog_reaches_a_target_that_grants_it() {
    let mut world = world();
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["own 1.0.0"]);
    grant(&mut world, "team-a", ("Profile", CATALOG), "Target");
    world.settle("edge");
    assert_eq!(world.bundled("edge"), ["own 1.0.0", "shop 1.0.0"]);
    assert_eq!(world.ready("edge").0, "Ready");
}

#[test]
fn a_release_uses_a_version_of_a_catalog_that_grants_it() {
    let mut world = world();
    of_catalog(&mut world);
    world.settle("edge");
    assert_eq!(world.ready("edge").0, "AllReleaseBindingsFiltered");
    let is_stalled = |world: &World| {
        let conditions = &world.objects.targets[&key("edge")].status.conditions;
        conditions.iter().any(|condition| condition.type_ == "Stalled")
    };
    assert!(is_stalled(&world), "tools that read kstatus would wait for ever");
    grant(&mut world, CATALOG, ("Release", "team-a"), "ComponentVersion");
    world.settle("edge");
    assert!(!is_stalled(&world));
    assert_eq!(
        (world.bundled("edge"), world.ready("edge").0),
        (vec!["shop 1.0.0".to_owned()], "Ready".to_owned())
    );
}

/// A source that the hub sees no more is gone if the hub would see it, and else it is as it was.
#[test]
fn what_a_profile_put_on_a_target_leaves_when_the_profile_is_gone_from_a_catalog_that_is_read() {
    for (catalogs, bundled) in [(&[CATALOG][..], 1), (&[], 2)] {
        let mut world = world();
        grant(&mut world, "team-a", ("Profile", CATALOG), "Target");
        world.settle("edge");
        assert_eq!(world.bundled("edge").len(), 2);
        world.rules.catalogs = catalogs.iter().map(ToString::to_string).collect();
        world.objects.profiles.clear();
        world.settle("edge");
        assert_eq!(world.bundled("edge").len(), bundled, "{catalogs:?}");
    }
}

/// Bindings of a catalog are not read, so none of them is gone: a namespace that was served and is read now keeps what it bound.
#[test]
fn of_a_catalog_the_hub_sees_profiles_and_no_bindings() {
    use ReleaseSourceKind::{Profile, ReleaseBinding};
    let all = ReferenceRules::default();
    let both = ReferenceRules {
        served: vec!["team-a".to_owned(), CATALOG.to_owned()],
        ..rules()
    };
    for (rules, namespace, profiles, bindings) in [
        (&rules(), "team-a", true, true),
        (&rules(), CATALOG, true, false),
        (&rules(), "team-b", false, false),
        (&both, CATALOG, true, true),
        (&all, CATALOG, true, true),
    ] {
        assert_eq!(rules.sees(Profile, namespace), profiles, "{namespace}");
        assert_eq!(rules.sees(ReleaseBinding, namespace), bindings, "{namespace}");
        assert_eq!(rules.serves(namespace), bindings, "{namespace}");
    }
    assert_eq!(rules().only_catalogs().collect::<Vec<_>>(), [CATALOG]);
    assert_eq!(both.only_catalogs().count() + all.only_catalogs().count(), 0);
}

/// What is not seen of a namespace that the hub may not read is neither gone nor refused.
#[test]
fn nothing_is_decided_about_what_may_rest_on_a_namespace_that_cannot_be_read() {
    // What of the Target may be in the catalog, and whether anything is decided about it while that cannot be read.
    type Case = (&'static str, fn(&mut World), bool);
    let table: [Case; 6] = [
        ("nothing", |_| (), true),
        (
            "a Profile",
            |w| grant(w, "team-a", ("Profile", CATALOG), "Target"),
            false,
        ),
        (
            "a ReleaseBinding",
            |w| grant(w, "team-a", ("ReleaseBinding", CATALOG), "Target"),
            false,
        ),
        (
            "a RegistryBinding",
            |w| grant(w, "team-a", ("RegistryBinding", CATALOG), "Target"),
            false,
        ),
        ("the registry", with_registry_of_catalog, false),
        ("the version of a Release", of_catalog, false),
    ];
    for (what, change, is_decided) in table {
        let mut world = world();
        change(&mut world);
        world.objects.profiles.clear();
        world
            .objects
            .component_versions
            .retain(|key, _| key.namespace != CATALOG);
        world.rules.unread.insert(CATALOG.to_owned());
        assert_eq!(world.is_decided("edge"), is_decided, "{what}");
        world.rules.unread.clear();
        assert!(world.is_decided("edge"), "{what}");
    }
}

fn with_registry_of_catalog(world: &mut World) {
    world.change_target("edge", |spec| {
        spec.render_registry_ref.namespace = Some(CATALOG.to_owned());
    });
}

/// Lets the tenant's own Release name the version of the catalog.
fn of_catalog(world: &mut World) {
    let named = serde_json::from_value(json!({"name": "shop", "namespace": CATALOG})).unwrap();
    world.change_release("own", |spec| spec.component_version_ref = named);
}

#[test]
fn no_status_says_what_is_not_known_of_a_namespace_that_cannot_be_read() {
    let mut world = world();
    of_catalog(&mut world);
    world.profile("mine", "own", &json!({"ring": "one"}));
    world.bind("edge", "own");
    let mut binding = world.objects.release_bindings.get_mut(&key("edge-own")).unwrap();
    binding.spec.as_mut().unwrap().target_ref.namespace = Some(CATALOG.to_owned());
    drop(binding);
    let (rollouts, mut left_out) = (RolloutIndex::default(), LeftOutIndex::default());
    left_out.put(&key("edge"), Vec::new());
    for (is_read, crosses) in [(true, true), (false, true), (false, false)] {
        world.rules.unread = (!is_read).then(|| CATALOG.to_owned()).into_iter().collect();
        world.rules.crosses_namespaces = crosses;
        let input = StatusInput {
            objects: &world.objects,
            rules: &world.rules,
            rollouts: &rollouts,
            left_out: &left_out,
            now: at(0),
        };
        let objects = input.objects;
        let (release, profile) = (key("own"), key("mine"));
        let status = of_release(&release, &objects.releases[&release], &input);
        assert_eq!(status.is_some(), is_read);
        let status = of_profile(&profile, &objects.profiles[&profile], &input);
        assert_eq!(
            status.is_some(),
            is_read || !crosses,
            "a Profile that can match no foreign Target"
        );
        let binding = key("edge-own");
        let object = &objects.release_bindings[&binding];
        let status = of_release_binding(&binding, object, &input);
        assert_eq!(status.is_some(), is_read);
    }
}
