//! What is written besides the claim: views, and the namespaces that were served before.

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
    world.record(lease).former.into_iter().collect()
}

/// Ends whoever works, and lets another claim take its place; which instance it is.
fn replace(world: &mut World, who: usize, claim: Claim) -> usize {
    world.strike(world.now, who, Blow::Stop);
    world.run(world.now + 2 * SECOND, |_| {});
    let next = world.join(claim, clock());
    world.run(world.now + 10 * SECOND, |_| {});
    assert_eq!(world.current(), [next]);
    next
}

#[test]
fn namespaces_that_a_hub_gives_up_are_remembered_until_somebody_serves_them() {
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
fn a_view_is_written_at_once_and_stays_with_every_renewal() {
    let mut ours = claim("east", "x", &[]);
    ours.count = 3;
    let mut world = World::new(1, Network::Good, vec![(ours, clock())]);
    world.run(10 * SECOND, |_| {});
    let written = |world: &World| world.record("renderhub-east-0123abcd.0").view;
    assert_eq!(written(&world), Some(View::default()), "nothing is its own yet");
    let view = View([Shard(0), Shard(2)].into());
    world.write_view(0, view.clone());
    world.run(world.now + SECOND / 2, |_| {});
    assert_eq!(written(&world).as_ref(), Some(&view));
    let machine = world.instances[0].machine.as_ref().unwrap();
    assert_eq!(machine.written_view().as_ref(), Some(&view));
    world.run(world.now + 20 * SECOND, |_| {});
    assert_eq!(written(&world).as_ref(), Some(&view));
    // Whoever takes its place begins with an empty one: nothing is his yet.
    world.strike(world.now, 0, Blow::Stop);
    let mut next = claim("east", "y", &[]);
    next.count = 3;
    world.run(world.now + 2 * SECOND, |_| {});
    world.join(next, clock());
    world.run(world.now + 2 * SECOND, |_| {});
    assert_eq!(written(&world), Some(View::default()));
}

#[test]
fn a_sibling_that_is_gone_is_buried_by_those_who_are_left() {
    let instances = ["x", "y"].map(|name| {
        let mut claim = claim("east", name, &[]);
        claim.count = 2;
        (claim, clock())
    });
    let mut world = World::new(1, Network::Good, instances.into());
    world.run(20 * SECOND, |_| {});
    assert_eq!(world.current(), [0, 1]);
    let (_, shard) = world.instances[1].right();
    let name = format!("renderhub-east-0123abcd.{}", shard.unwrap().0);
    world.strike(world.now, 1, Blow::Kill);
    world.run(world.now + 12 * SECOND, |_| {});
    assert_eq!(
        world.record(&name).holder.as_deref(),
        Some("y"),
        "it may only sleep"
    );
    world.run(world.now + 8 * SECOND, |_| {});
    assert_eq!(world.record(&name).holder, None);
    assert_eq!(world.current(), [0]);
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
