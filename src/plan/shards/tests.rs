use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

fn view(shards: impl IntoIterator<Item = u16>) -> View {
    View(shards.into_iter().map(Shard).collect())
}

fn tenants() -> impl Iterator<Item = String> {
    (0..1000).map(|number| format!("tenant-{number:04}"))
}

/// An upgrade must not move anything, and instances of two versions must agree: this table was made by another program.
#[test]
fn the_owners_are_the_same_in_every_version() {
    let names = [
        "",
        "default",
        "team-a",
        "team-b",
        "team-c",
        "platform",
        "kube-public",
        "a",
        "tenant-0001",
        "tenant-0002",
        "tenant-0003",
    ];
    let longest = "z".repeat(63);
    let names: Vec<&str> = names.into_iter().chain([longest.as_str()]).collect();
    let owners = |shards: View| -> Vec<u16> {
        let owner = |name: &&str| shards.owner(name).unwrap().0;
        names.iter().map(owner).collect()
    };
    assert_eq!(owners(view(0..1)), [0; 12]);
    assert_eq!(owners(view(0..2)), [1, 0, 1, 0, 0, 0, 1, 0, 1, 0, 0, 0]);
    assert_eq!(owners(view(0..3)), [2, 0, 1, 0, 0, 0, 1, 0, 2, 0, 2, 0]);
    assert_eq!(owners(view(0..5)), [2, 0, 4, 0, 0, 3, 1, 0, 2, 4, 4, 0]);
    assert_eq!(owners(view(0..8)), [2, 0, 5, 0, 0, 3, 1, 7, 5, 5, 7, 5]);
    let some = view([1, 4, 63]);
    assert_eq!(owners(some), [1, 63, 63, 63, 63, 63, 1, 63, 1, 4, 4, 4]);
    assert_eq!(View::default().owner("default"), None);
}

#[test]
fn the_namespaces_are_divided_evenly() {
    for count in 1..=8_u16 {
        let shards = view(0..count);
        let mut counted = BTreeMap::<Shard, usize>::new();
        for name in tenants() {
            *counted.entry(shards.owner(&name).unwrap()).or_default() += 1;
        }
        assert_eq!(counted.len(), usize::from(count));
        let even = 1000 / usize::from(count);
        for (shard, share) in counted {
            let is_even = share * 10 >= even * 7 && share * 10 <= even * 13;
            assert!(is_even, "{shard:?} of {count} has {share} of 1000");
        }
    }
}

#[test]
fn who_comes_takes_an_even_share_of_everybodys() {
    for count in 1..8_u16 {
        let (before, after) = (view(0..count), view(0..=count));
        let mut lost = BTreeMap::<Shard, usize>::new();
        for name in tenants() {
            let (from, to) = (before.owner(&name).unwrap(), after.owner(&name).unwrap());
            if from != to {
                assert_eq!(to, Shard(count), "{name} moved to one that was there before");
                *lost.entry(from).or_default() += 1;
            }
        }
        let (moved, even) = (lost.values().sum::<usize>(), 1000 / usize::from(count + 1));
        assert!(
            moved * 4 >= even * 3 && moved * 4 <= even * 5,
            "{moved} of 1000 moved"
        );
        assert_eq!(lost.len(), usize::from(count), "each gave something: {lost:?}");
    }
}

proptest! {
    #[test]
    fn nothing_moves_but_to_who_comes_and_from_who_goes(
        shards in prop::collection::btree_set(0..64_u16, 1..9),
        other in 0..64_u16,
        name in "[a-z0-9-]{0,63}",
    ) {
        let before = view(shards.iter().copied());
        let owner = before.owner(&name);
        prop_assert!(owner.is_some_and(|shard| before.0.contains(&shard)));
        let more = view(shards.iter().copied().chain([other]));
        let with = more.owner(&name);
        prop_assert!(with == owner || with == Some(Shard(other)));
        let fewer = view(shards.into_iter().filter(|shard| *shard != other));
        if owner != Some(Shard(other)) {
            prop_assert_eq!(fewer.owner(&name), owner);
        }
    }

    #[test]
    fn what_two_that_see_each_other_own_never_meets(
        first in prop::collection::btree_set(0..8_u16, 0..5),
        second in prop::collection::btree_set(0..8_u16, 0..5),
        name in "[a-z0-9-]{0,20}",
    ) {
        let (one, two) = (view(first), view(second));
        let part = |own: u16, by: &View, other: (u16, &View)| Owned::Part {
            own: Shard(own),
            view: by.clone(),
            others: vec![(Shard(other.0), other.1.clone())],
        };
        let a = part(0, &one, (1, &two)).owns(&name);
        let b = part(1, &two, (0, &one)).owns(&name);
        prop_assert!(!(a && b));
    }
}

#[test]
fn an_instance_owns_what_falls_to_it_and_nobody_else_still_has() {
    let owned = |by: View, others: &[(u16, View)]| Owned::Part {
        own: Shard(1),
        view: by,
        others: others
            .iter()
            .map(|(shard, view)| (Shard(*shard), view.clone()))
            .collect(),
    };
    // Of these two, 1 has the first and 0 the second.
    let both = |owned: &Owned| (owned.owns("team-a"), owned.owns("team-b"));
    assert_eq!(both(&Owned::All), (true, true));
    assert_eq!(both(&owned(view([0, 1]), &[])), (true, false));
    assert_eq!(both(&owned(view([1]), &[])), (true, true));
    assert_eq!(both(&owned(view([1]), &[(0, view([0, 1]))])), (true, false));
    // He has not written yet that she is there.
    assert_eq!(both(&owned(view([0, 1]), &[(0, view([0]))])), (false, false));
    // Of a third it is another's business what he gives to whom.
    assert_eq!(both(&owned(view([0, 1]), &[(2, view([0, 1]))])), (true, false));
    assert_eq!(both(&Owned::nothing(Shard(1))), (false, false));
    assert_eq!((Owned::All.members(), Owned::nothing(Shard(1)).members()), (1, 1));
    assert_eq!(owned(view([0, 1, 5]), &[]).members(), 3);
}
