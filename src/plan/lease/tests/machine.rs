//! The namespaces that were served before, which a record has in addition to its holder; and an instance that sleeps.

use super::sim::{Blow, Clock, Network, SECOND, World};
use super::*;

fn clock() -> Clock {
    Clock {
        base: Instant::now(),
        ahead: Duration::ZERO,
        pace: 1000,
    }
}

fn former(world: &World, lease: &str) -> Vec<String> {
    world.record(lease).former_namespaces.into_iter().collect()
}

/// Ends the instance that works, and starts another with this claim; returns its index.
fn replace(world: &mut World, who: usize, claim: HolderIdentity) -> usize {
    world.strike(world.now, who, Blow::Stop);
    world.run(world.now + 2 * SECOND, |_| {});
    let next = world.join(claim, clock());
    world.run(world.now + 10 * SECOND, |_| {});
    assert_eq!(world.current(), [next]);
    next
}

#[test]
fn namespaces_that_a_hub_gives_up_are_remembered_until_another_serves_them() {
    let (east, west) = ("renderhub-east-0123abcd", "renderhub-west-0123abcd");
    let mut world = World::new(
        1,
        Network::Good,
        vec![(claim("east", "x", &["a", "b", "c"]), clock())],
    );
    world.run(10 * SECOND, |_| {});
    assert_eq!(former(&world, east), [""; 0]);
    let next = replace(&mut world, 0, claim("east", "y", &["a"]));
    assert_eq!(former(&world, east), ["b", "c"]);
    // Nor does the next start forget them, or a hub that serves none of them.
    let next = replace(&mut world, next, claim("east", "z", &["a", "d"]));
    world.join(claim("west", "w", &["e"]), clock());
    world.run(world.now + 150 * SECOND, |_| {});
    assert_eq!(former(&world, east), ["b", "c"]);
    // Another hub takes one of them over, and then the hub itself the other.
    world.join(claim("south", "w", &["b"]), clock());
    world.run(world.now + 150 * SECOND, |_| {});
    assert_eq!(
        (former(&world, east), former(&world, west)),
        (names(&["c"]), vec![])
    );
    world.strike(world.now, next, Blow::Stop);
    world.run(world.now + 2 * SECOND, |_| {});
    world.join(claim("east", "v", &["c", "d"]), clock());
    world.run(world.now + 10 * SECOND, |_| {});
    assert_eq!(former(&world, east), ["a"]);
}

#[test]
fn a_holder_that_sleeps_through_its_duration_never_works_again() {
    let instances = ["x", "y"].map(|name| (claim("east", name, &[]), clock()));
    let mut world = World::new(1, Network::Good, instances.into());
    world.run(20 * SECOND, |_| {});
    let first = world.current()[0];
    world.strike(world.now, first, Blow::Pause(60));
    world.run(world.now + 58 * SECOND, |_| {});
    assert_eq!(world.current(), [1 - first]);
    world.run(world.now + 10 * SECOND, |world| {
        assert!(!world.current().contains(&first));
    });
    assert!(world.instances[first].machine.is_none(), "it has ended");
    assert_eq!(world.current(), [1 - first]);
}
