//! What holds whatever is there.

use proptest::prelude::*;

use super::world::*;
use crate::plan::pull_secrets::olm::*;
use crate::plan::pull_secrets::ownership::copy_name;

/// One thing that happens in a world; the numbers choose what it is about.
fn happen(world: &mut ObservedOlm, (what, which, other): (u8, u8, u8)) {
    let (name, secret) = (format!("op-{}", which % 4), format!("pull-{}", other % 3));
    let catalog = ["main", "second"][usize::from(other % 2)];
    let namespace = ["team", "shop"][usize::from(which % 2)];
    let seen = world.namespaces.entry(namespace.to_owned()).or_default();
    match what % 14 {
        0 | 1 => add_operator(world, namespace, &name, catalog),
        2 => _ = seen.subscriptions.remove(&name),
        3 => _ = seen.csvs.remove(&name),
        4 => add_source(world, &secret, which),
        5 => _ = world.sources.remove(&key("olm", &secret)),
        6 => add_catalog(world, catalog, &[&secret, "pull"]),
        7 => _ = world.catalogs.remove(&key("olm", catalog)),
        8 => seen.copies.clear(),
        9 => _ = seen.accounts.remove(&name),
        10 => add_csv(seen, &name, &format!("op-{}", other % 4)),
        11 => {
            let foreign = ObservedCopy {
                uid: "foreign".to_owned(),
                version: 1,
                marks: None,
                content: None,
            };
            seen.copies.insert(copy_name(&key("olm", &secret)), foreign);
        }
        12 => {
            // An entry of others at the beginning of a list.
            for account in seen.accounts.values_mut() {
                account.entries += 1;
                account.copies = account
                    .copies
                    .iter()
                    .map(|(at, copy)| (at + 1, copy.clone()))
                    .collect();
            }
        }
        _ => _ = world.catalog_namespaces.insert("olm".to_owned(), which % 4 != 0),
    }
}

proptest! {
    #[test]
    fn writing_what_is_to_be_written_leaves_nothing_to_write_and_touches_nothing_of_others(
        events in prop::collection::vec(any::<(u8, u8, u8)>(), 0..60)
    ) {
        let mut world = world();
        for event in events {
            happen(&mut world, event);
            let foreign = |world: &ObservedOlm| -> Vec<(String, String)> {
                let all = world.namespaces.iter();
                let of = |(namespace, seen): (&String, &ObservedNamespace)| {
                    let copies = seen.copies.iter().filter(|(_, copy)| copy.marks.is_none());
                    copies.map(|(name, _)| (namespace.clone(), name.clone())).collect::<Vec<_>>()
                };
                all.flat_map(of).collect()
            };
            let before = foreign(&world);
            let plan = decide(&world, &LIMITS);
            prop_assert!(plan.copies.keys().chain(plan.links.keys()).all(|key| world.namespaces.contains_key(&key.namespace)));
            settle(&mut world);
            prop_assert_eq!(foreign(&world), before);
            prop_assert_eq!(settle(&mut world), 0);
        }
    }

    #[test]
    fn without_operators_everything_of_ours_goes(events in prop::collection::vec(any::<(u8, u8, u8)>(), 0..60)) {
        let mut world = world();
        for event in events {
            happen(&mut world, event);
            settle(&mut world);
        }
        world.catalog_namespaces.insert("olm".to_owned(), true);
        for seen in world.namespaces.values_mut() {
            seen.subscriptions.clear();
            seen.csvs.clear();
        }
        settle(&mut world);
        for seen in world.namespaces.values() {
            prop_assert!(seen.copies.values().all(|copy| copy.marks.is_none()));
            prop_assert!(seen.accounts.values().all(|account| account.copies.is_empty()));
        }
    }
}
