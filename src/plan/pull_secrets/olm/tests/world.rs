//! Worlds to decide about, and what a server makes of the writes.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::jiff::Timestamp;

pub use crate::api::conditions::Reason;
use crate::plan::pipeline::object::ObjectKey;
use crate::plan::pull_secrets::olm::*;
use crate::plan::pull_secrets::ownership::{CopyMarks, CopyUser, copy_name};

pub const LIMITS: PullSecretLimits = PullSecretLimits::with_destinations(1_000);

pub fn content(number: u8) -> PullSecretContent {
    PullSecretContent {
        kind: "kubernetes.io/dockerconfigjson",
        key: ".dockerconfigjson",
        digest: [number; 32],
    }
}

pub fn key(namespace: &str, name: &str) -> ObjectKey {
    ObjectKey::new(namespace, name)
}

/// A catalog `main` in the namespace `olm` with the Secret `pull`, and an operator from it in the namespace `team`.
pub fn world() -> ObservedOlm {
    let mut world = ObservedOlm {
        catalog_namespaces: BTreeMap::from([("olm".to_owned(), true)]),
        ..ObservedOlm::default()
    };
    add_source(&mut world, "pull", 1);
    add_catalog(&mut world, "main", &["", "pull"]);
    add_operator(&mut world, "team", "etcd", "main");
    world
}

pub fn add_source(world: &mut ObservedOlm, name: &str, number: u8) {
    let source = ObservedSource {
        uid: format!("uid-of-{name}"),
        version: u64::from(number),
        state: PullSecretState::Usable(content(number)),
    };
    world.copy_names.insert(copy_name(&key("olm", name)));
    world.sources.insert(key("olm", name), source);
}

pub fn add_catalog(world: &mut ObservedOlm, name: &str, secrets: &[&str]) {
    let catalog = ObservedCatalog {
        uid: format!("uid-of-{name}"),
        secrets: secrets.iter().map(ToString::to_string).collect(),
    };
    world.catalogs.insert(key("olm", name), catalog);
}

pub fn add_csv(seen: &mut ObservedNamespace, name: &str, account: &str) {
    let csv = ObservedCsv {
        uid: format!("uid-of-{name}"),
        is_copied: false,
        deployments: BTreeMap::from([(format!("{name}-manager"), account.to_owned())]),
    };
    seen.csvs.insert(name.to_owned(), csv);
    add_account(seen, account);
}

pub fn add_account(seen: &mut ObservedNamespace, account: &str) {
    let bare = ObservedAccount {
        uid: format!("uid-of-{account}"),
        version: 1,
        entries: 0,
        copies: BTreeMap::new(),
        linked_at: None,
    };
    seen.accounts.entry(account.to_owned()).or_insert(bare);
}

pub fn add_operator(world: &mut ObservedOlm, namespace: &str, name: &str, catalog: &str) {
    let seen = world.namespaces.entry(namespace.to_owned()).or_default();
    add_csv(seen, name, name);
    subscribe(seen, name, "olm", catalog);
}

pub fn subscribe(seen: &mut ObservedNamespace, name: &str, namespace: &str, catalog: &str) {
    let subscription = ObservedSubscription {
        uid: format!("uid-of-{name}"),
        catalog: key(namespace, catalog),
        csvs: BTreeSet::from([name.to_owned()]),
    };
    seen.subscriptions.insert(name.to_owned(), subscription);
}

pub fn team(world: &mut ObservedOlm) -> &mut ObservedNamespace {
    world.namespaces.get_mut("team").unwrap()
}

/// What is to be written now.
pub fn next(world: &ObservedOlm) -> BTreeMap<String, NamespaceChanges> {
    changes(world, &decide(world, &LIMITS))
}

/// Writes what is to be written, as an API server would; returns how many writes that were.
pub fn settle(world: &mut ObservedOlm) -> usize {
    settle_within(world, &LIMITS)
}

pub fn settle_within(world: &mut ObservedOlm, limits: &PullSecretLimits) -> usize {
    let all = changes(world, &decide(world, limits));
    let mut count = 0;
    for (namespace, changes) in all {
        let seen = world.namespaces.get_mut(&namespace).unwrap();
        for write in changes.copies {
            count += 1 + usize::from(write.replaces);
            let there = seen.copies.get(&write.name);
            assert_eq!(there.map(|copy| copy.uid.clone()), write.existing);
            assert!(
                there.is_none_or(|copy| copy.marks.is_some()),
                "only ours are changed"
            );
            seen.copies.insert(
                write.name.clone(),
                copy(&write.wanted.marks, write.wanted.content),
            );
        }
        for (account, change) in changes.links {
            count += 1;
            link(seen.accounts.get_mut(&account).unwrap(), &change);
        }
        for deletion in changes.deletions {
            count += 1;
            let gone = seen.copies.remove(&deletion.name).unwrap();
            assert!(
                gone.marks.is_some() && gone.uid == deletion.uid,
                "only ours are deleted"
            );
        }
    }
    count
}

pub fn copy(marks: &CopyMarks, content: PullSecretContent) -> ObservedCopy {
    ObservedCopy {
        uid: "uid-of-copy".to_owned(),
        version: 1,
        marks: Some(marks.clone()),
        content: Some(content),
    }
}

/// Changes the list as an API server does, with a place for each entry of others.
fn link(account: &mut ObservedAccount, change: &LinkChange) {
    assert_eq!((&account.uid, account.version), (&change.uid, change.version));
    assert_eq!(account.entries == 0, change.is_first);
    let mut list: Vec<Option<String>> = (0..account.entries)
        .map(|at| account.copies.get(&at).cloned())
        .collect();
    let of_others = |list: &[Option<String>]| list.iter().filter(|entry| entry.is_none()).count();
    let before = of_others(&list);
    for (place, name) in &change.removed {
        assert_eq!(list.remove(*place).as_ref(), Some(name));
    }
    list.extend(change.added.iter().cloned().map(Some));
    assert_eq!(of_others(&list), before, "entries of others stay");
    account.entries = list.len();
    account.copies = list
        .into_iter()
        .enumerate()
        .filter_map(|(at, name)| Some((at, name?)))
        .collect();
    account.version += 1;
    account.linked_at = Some(Timestamp::UNIX_EPOCH);
}

/// The copies that a ServiceAccount has.
pub fn links(world: &ObservedOlm, account: &str) -> Vec<String> {
    world.namespaces["team"].accounts[account]
        .copies
        .values()
        .cloned()
        .collect()
}

pub fn pull() -> String {
    copy_name(&key("olm", "pull"))
}

pub fn marks_for(name: &str, csv: &str) -> CopyMarks {
    CopyMarks {
        source: key("olm", name),
        source_uid: format!("uid-of-{name}"),
        users: BTreeSet::from([CopyUser {
            catalog: "main".to_owned(),
            csv_uid: format!("uid-of-{csv}"),
        }]),
    }
}

pub fn reasons(world: &ObservedOlm) -> Vec<Reason> {
    let complaints = decide(world, &LIMITS).complaints;
    complaints.into_iter().map(|complaint| complaint.reason).collect()
}
