//! One change at a time.

use super::world::*;
use crate::plan::pull_secrets::olm::*;
use crate::plan::pull_secrets::ownership::copy_name;

#[test]
fn an_operator_gets_a_copy_and_its_account_a_link_and_then_nothing_is_written() {
    let mut world = world();
    assert_eq!(settle(&mut world), 2);
    assert_eq!(links(&world, "etcd"), [pull()]);
    assert_eq!(world.namespaces["team"].copies[&pull()].content, Some(content(1)));
    assert_eq!(settle(&mut world), 0);
}

#[test]
fn a_change_of_one_thing_is_followed_with_two_writes_at_the_most() {
    type Change = fn(&mut ObservedOlm);
    let table: [(&str, Change, usize); 6] = [
        ("rotated", |w| add_source(w, "pull", 2), 1),
        (
            "made again with another UID",
            |w| w.sources.get_mut(&key("olm", "pull")).unwrap().uid = "new".to_owned(),
            1,
        ),
        ("a copy is deleted", |w| team(w).copies.clear(), 1),
        (
            "an account is made again",
            |w| {
                team(w).accounts.clear();
                add_account(team(w), "etcd");
            },
            1,
        ),
        (
            "the list is edited",
            |w| {
                add_source(w, "other", 3);
                add_catalog(w, "main", &["pull", "other"]);
            },
            2,
        ),
        ("the list is emptied", |w| add_catalog(w, "main", &[]), 2),
    ];
    for (what, change, writes) in table {
        let mut world = world();
        settle(&mut world);
        change(&mut world);
        assert_eq!(settle(&mut world), writes, "{what}");
        assert_eq!(settle(&mut world), 0, "{what}");
    }
}

#[test]
fn copy_and_link_go_with_the_last_of_subscription_and_csv() {
    for first in ["subscription", "csv"] {
        let mut world = world();
        settle(&mut world);
        let go = |world: &mut ObservedOlm, what: &str| match what {
            "subscription" => team(world).subscriptions.clear(),
            _ => team(world).csvs.clear(),
        };
        go(&mut world, first);
        assert_eq!(settle(&mut world), 0, "{first} alone");
        // The operator that is left follows a rotation.
        add_source(&mut world, "pull", 2);
        assert_eq!(settle(&mut world), 1, "{first} alone");
        go(&mut world, if first == "csv" { "subscription" } else { "csv" });
        assert_eq!(settle(&mut world), 2);
        assert!(world.namespaces["team"].copies.is_empty() && links(&world, "etcd").is_empty());
    }
}

#[test]
fn an_upgrade_serves_both_versions_while_both_are_there() {
    let mut world = world();
    settle(&mut world);
    add_csv(team(&mut world), "etcd2", "second");
    team(&mut world).subscriptions.get_mut("etcd").unwrap().csvs = ["etcd2".to_owned()].into();
    assert_eq!(settle(&mut world), 2);
    assert_eq!(
        (links(&world, "etcd"), links(&world, "second")),
        (vec![pull()], vec![pull()])
    );
    team(&mut world).csvs.remove("etcd");
    assert_eq!(settle(&mut world), 1, "the account of the old version only");
    assert!(links(&world, "etcd").is_empty() && !links(&world, "second").is_empty());
}

#[test]
fn two_catalogs_and_a_shared_account_are_kept_apart() {
    let mut world = world();
    add_source(&mut world, "other", 7);
    add_catalog(&mut world, "second", &["other"]);
    add_operator(&mut world, "team", "redis", "second");
    // Both have the ServiceAccount `etcd`.
    let csv = team(&mut world).csvs.get_mut("redis").unwrap();
    csv.deployments
        .values_mut()
        .for_each(|account| *account = "etcd".to_owned());
    settle(&mut world);
    let mut both = vec![pull(), copy_name(&key("olm", "other"))];
    both.sort();
    assert_eq!(links(&world, "etcd"), both);
    team(&mut world).csvs.remove("redis");
    team(&mut world).subscriptions.remove("redis");
    settle(&mut world);
    assert_eq!(links(&world, "etcd"), [pull()]);
}

#[test]
fn what_no_catalog_gave_gets_nothing() {
    type Change = fn(&mut ObservedOlm);
    let table: [(&str, Change); 5] = [
        ("a CSV made by hand", |w| team(w).subscriptions.clear()),
        ("a copied CSV", |w| {
            team(w).csvs.get_mut("etcd").unwrap().is_copied = true;
        }),
        ("a catalog elsewhere", |w| {
            subscribe(team(w), "etcd", "team", "main");
        }),
        ("a namespace that was made again", |w| {
            team(w).grant = NamespaceGrant::Recreated;
        }),
        ("a namespace that is not listed", |w| w.namespaces.clear()),
    ];
    for (what, change) in table {
        let mut world = world();
        change(&mut world);
        assert!(next(&world).is_empty(), "{what}");
    }
    let mut world = world();
    add_csv(team(&mut world), "by-hand", "admin");
    settle(&mut world);
    assert!(
        links(&world, "admin").is_empty(),
        "an account that a CSV made by hand names"
    );
}

#[test]
fn a_secret_of_others_is_left_alone_and_said() {
    let mut world = world();
    let foreign = ObservedCopy {
        uid: "foreign".to_owned(),
        version: 1,
        marks: None,
        content: None,
    };
    team(&mut world).copies.insert(pull(), foreign);
    assert_eq!(
        (settle(&mut world), reasons(&world)),
        (0, vec![Reason::PullSecretNameConflict])
    );
    team(&mut world).copies.clear();
    assert_eq!((settle(&mut world), reasons(&world)), (2, vec![]));
}

#[test]
fn a_copy_of_a_catalog_that_another_program_looks_after_stays() {
    let mut world = world();
    let mut marks = marks_for("pull", "etcd");
    marks.source.namespace = "elsewhere".to_owned();
    let name = copy_name(&marks.source);
    team(&mut world)
        .copies
        .insert(name.clone(), copy(&marks, content(5)));
    let account = team(&mut world).accounts.get_mut("etcd").unwrap();
    (account.entries, account.copies) = (2, [(1, name.clone())].into());
    settle(&mut world);
    assert!(world.namespaces["team"].copies.contains_key(&name));
    assert_eq!(links(&world, "etcd"), [name, pull()]);
}

#[test]
fn what_is_not_known_at_the_moment_takes_nothing_away() {
    type Change = fn(&mut ObservedOlm);
    let secret = |w: &mut ObservedOlm, state| w.sources.get_mut(&key("olm", "pull")).unwrap().state = state;
    let mut unread = world();
    settle(&mut unread);
    secret(&mut unread, PullSecretState::Unread);
    assert_eq!((settle(&mut unread), reasons(&unread)), (0, vec![]));
    let table: [(&str, Change, &[Reason]); 4] = [
        ("the catalog is gone", |w| w.catalogs.clear(), &[]),
        (
            "catalogs are not listed",
            |w| _ = w.catalog_namespaces.insert("olm".to_owned(), false),
            &[Reason::Forbidden],
        ),
        (
            "the Secret is gone",
            |w| w.sources.clear(),
            &[Reason::PullSecretNotFound],
        ),
        (
            "it is none to pull with",
            |w| {
                w.sources.get_mut(&key("olm", "pull")).unwrap().state =
                    PullSecretState::Faulty(SourceFault::Type);
            },
            &[Reason::PullSecretInvalid],
        ),
    ];
    for (what, change, said) in table {
        let mut world = world();
        settle(&mut world);
        change(&mut world);
        assert_eq!(
            (settle(&mut world), reasons(&world)),
            (0, said.to_vec()),
            "{what}"
        );
        assert_eq!(links(&world, "etcd"), [pull()], "{what}");
    }
}

#[test]
fn a_pod_that_was_made_before_the_link_is_evicted_once_the_link_is_there() {
    let mut world = world();
    let pod = ObservedPod {
        uid: "p".to_owned(),
        created: Some(k8s_openapi::jiff::Timestamp::UNIX_EPOCH),
        account: "etcd".to_owned(),
        replica_set: ("r".to_owned(), "r-uid".to_owned()),
        copies: [].into(),
    };
    team(&mut world).pods.insert("p".to_owned(), pod);
    assert!(
        decide(&world, &LIMITS).evictions.is_empty(),
        "before there is a link"
    );
    settle(&mut world);
    let found = decide(&world, &LIMITS).evictions;
    assert_eq!(found.len(), 1);
    assert!(found[0].deployments.contains("etcd-manager"));
    let later = k8s_openapi::jiff::Timestamp::from_second(60).unwrap();
    let table: [fn(&mut ObservedPod, k8s_openapi::jiff::Timestamp); 3] = [
        |pod, _| _ = pod.copies.insert(pull()),
        |pod, later| pod.created = Some(later),
        |pod, _| pod.account = "operand".to_owned(),
    ];
    for (number, change) in table.iter().enumerate() {
        let mut world = world.clone();
        change(team(&mut world).pods.get_mut("p").unwrap(), later);
        assert!(decide(&world, &LIMITS).evictions.is_empty(), "{number}");
    }
}

#[test]
fn of_a_namespace_that_takes_no_copy_the_gravest_reason_is_said() {
    let said = |change: fn(&mut ObservedOlm)| {
        let mut world = world();
        change(&mut world);
        let complaints = decide(&world, &LIMITS).complaints.into_iter();
        let said = complaints.map(|c| (c.subject.kind(), c.subject.key().name.clone(), c.reason));
        said.collect::<Vec<_>>()
    };
    assert_eq!(said(|_| ()), []);
    let on_etcd = |reason| [("Subscription", "etcd".to_owned(), reason)];
    assert_eq!(
        said(|w| team(w).is_refused = true),
        on_etcd(Reason::CreateRefused)
    );
    let recreated = said(|w| {
        team(w).is_refused = true;
        team(w).grant = NamespaceGrant::Recreated;
    });
    assert_eq!(recreated, on_etcd(Reason::NamespaceRecreated));
    let unreadable = said(|w| _ = w.unreadable.insert("later".to_owned()));
    assert_eq!(unreadable, [("Namespace", "later".to_owned(), Reason::Forbidden)]);
}
