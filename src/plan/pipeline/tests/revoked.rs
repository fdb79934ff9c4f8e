//! What has a say about a Target once its grant is taken back.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use serde_json::json;

use super::keeping::{grant, with_profile};
use super::world::{HOME, key};
use crate::plan::pipeline::object::ObjectKey;

/// Holds: F8.
#[test]
fn what_may_not_reach_a_target_any_more_pushes_nothing_off_it() {
    let mut world = with_profile();
    world.release("a", "a", &json!({}), json!({"priority": 10}));
    for kind in ["profile", "release", "version"] {
        let there = |name: &str| ObjectKey::new("team-b", name);
        let objects = &mut world.objects;
        match kind {
            "profile" => {
                let profile = objects.profiles.remove(&key("ring")).unwrap();
                objects.profiles.insert(there("ring"), profile);
            }
            "release" => {
                let release = objects.releases.remove(&key("a")).unwrap();
                objects.releases.insert(there("a"), release);
            }
            _ => {
                let version = objects.component_versions.remove(&key("a")).unwrap();
                objects.component_versions.insert(there("a"), version);
            }
        }
    }
    world.rules.crosses_namespaces = true;
    grant(&mut world, ("Profile", "team-b"), ("Target", HOME));
    world.release("own", "own", &json!({}), json!({}));
    world.bind("edge", "own");
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
    world.objects.grants.remove(HOME, "uid");
    let mut neighbour = world
        .objects
        .releases
        .get_mut(&ObjectKey::new("team-b", "a"))
        .unwrap();
    neighbour.spec.as_mut().unwrap().anti_affinity = Some(LabelSelector::default());
    drop(neighbour);
    world.settle("edge");
    assert_eq!(world.bundled("edge").len(), 2);
}
