//! What holds in every world, and what happens without any fault.

use proptest::collection::vec;
use proptest::prelude::*;

use super::sim::{Blow, Clock, Micros, Network, SECOND, World};
use super::*;

/// Instances: which hub they are of, and how wrong their clocks are.
type Crowd = Vec<(bool, u64, u64)>;

fn world(seed: u64, network: Network, crowd: &Crowd) -> World {
    let base = Instant::now();
    let instances = crowd.iter().enumerate().map(|(who, (is_other, ahead, pace))| {
        let name = format!("hub-{who}");
        let claim = if *is_other {
            claim("west", &name, &["b", "c"])
        } else {
            claim("east", &name, &["a", "b"])
        };
        let ahead = Duration::from_secs(*ahead);
        let clock = Clock {
            base,
            ahead,
            pace: *pace,
        };
        (claim, clock)
    });
    World::new(seed, network, instances.collect())
}

/// No two claims are current at once: two of one hub exclude each other, and so do those of the two hubs, whose lists meet.
fn no_two_work(world: &World) {
    let current = world.current();
    assert!(current.len() <= 1, "{current:?} work at {}", world.now);
}

fn blow() -> impl Strategy<Value = Blow> {
    prop_oneof![
        2 => Just(Blow::Kill),
        1 => Just(Blow::Stop),
        2 => (3..61_u64).prop_map(Blow::Pause),
        3 => (3..41_u64).prop_map(Blow::CutOff),
    ]
}

fn crowd() -> impl Strategy<Value = Crowd> {
    let instance = (any::<bool>(), 0..100_000_u64, 900..1101_u64);
    vec(instance, 2..6)
}

fn blows() -> impl Strategy<Value = Vec<(Micros, usize, Blow)>> {
    vec((0..120 * SECOND, 0..5_usize, blow()), 0..16)
}

/// Runs a world with every fault, heals it, and checks that an instance works then.
fn survive(seed: u64, crowd: &Crowd, blows: Vec<(Micros, usize, Blow)>, restart: Micros) {
    let mut world = world(seed, Network::Bad, crowd);
    world.restart = Some(restart);
    for (at, who, blow) in blows {
        world.strike(at, who % crowd.len(), blow);
    }
    world.run(130 * SECOND, no_two_work);
    world.network = Network::Good;
    world.run(400 * SECOND, no_two_work);
    assert!(
        !world.current().is_empty(),
        "no instance works in a world that is whole"
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, max_shrink_iters: 200, ..ProptestConfig::default() })]

    /// Holds: M5.
    #[test]
    fn two_claims_that_exclude_each_other_are_never_current_at_once(
        seed in any::<u64>(), crowd in crowd(), blows in blows(), restart in 1..20 * SECOND,
    ) {
        survive(seed, &crowd, blows, restart);
    }

    #[test]
    fn another_takes_over_in_time(
        seed in any::<u64>(), clocks in vec((0..100_000_u64, 900..1101_u64), 2..6),
        at in 40 * SECOND..60 * SECOND, what in 0..4_usize,
    ) {
        let crowd = clocks.into_iter().map(|(ahead, pace)| (false, ahead, pace)).collect();
        let mut world = world(seed, Network::Good, &crowd);
        world.run(at, no_two_work);
        let current = world.current();
        prop_assert_eq!(current.len(), 1, "one works before");
        // An instance that sleeps or is cut off has ended by itself when the next one begins.
        let (blow, limit) = [
            (Blow::Kill, 20),
            (Blow::Stop, 2),
            (Blow::Pause(55), 20),
            (Blow::CutOff(55), 20),
        ][what];
        world.strike(at, current[0], blow);
        let mut taken = None;
        world.run(at + 60 * SECOND, |world| {
            no_two_work(world);
            let is_other = world.current().iter().any(|who| *who != current[0]);
            if is_other && taken.is_none() {
                taken = Some(world.now);
            }
        });
        prop_assert!(taken.is_some_and(|taken| taken <= at + limit * SECOND), "{taken:?} after {at}");
    }

    /// Of hubs that start at once one works, and works on.
    ///
    /// Holds: M5.
    #[test]
    fn of_hubs_that_start_at_once_exactly_one_works(
        seed in any::<u64>(), crowd in crowd(),
    ) {
        let mut world = world(seed, Network::Good, &crowd);
        world.run(60 * SECOND, no_two_work);
        let first = world.current();
        prop_assert_eq!(first.len(), 1);
        // The others of its hub are standbys, those of the other hub have ended.
        let hub = world.instances[first[0]].claim.hub_id.clone();
        for instance in &world.instances {
            let is_there = instance.machine.is_some();
            prop_assert_eq!(is_there, instance.claim.hub_id == hub);
        }
        world.run(120 * SECOND, no_two_work);
        prop_assert_eq!(world.current(), first);
    }
}
