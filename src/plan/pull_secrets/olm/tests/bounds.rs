//! One more than the bounds, and ten thousand.

use super::world::*;
use crate::plan::pull_secrets::olm::*;

fn names(count: usize) -> Vec<String> {
    (0..count).map(|number| format!("n-{number:05}")).collect()
}

#[test]
fn of_many_namespaces_so_many_get_a_copy_and_those_that_have_one_keep_it() {
    let limits = PullSecretLimits::with_destinations(10);
    for more in [11, 10_000] {
        let mut world = world();
        world.namespaces.clear();
        let all = names(more);
        let (first, last) = all.split_at(more - 10);
        for namespace in last {
            add_operator(&mut world, namespace, "etcd", "main");
        }
        assert_eq!(settle_within(&mut world, &limits), 20);
        assert!(decide(&world, &limits).complaints.is_empty());
        for namespace in first {
            add_operator(&mut world, namespace, "etcd", "main");
        }
        assert_eq!(settle_within(&mut world, &limits), 0, "{more}");
        let complaints = decide(&world, &limits).complaints;
        let said: Vec<_> = complaints.iter().map(|complaint| complaint.reason).collect();
        assert_eq!(said, [Reason::PullSecretLimitExceeded]);
    }
}

#[test]
fn of_many_subscriptions_so_many_are_served_and_the_first_stay_so() {
    let most = LIMITS.subscriptions;
    for more in [most + 1, 10_000] {
        let mut world = world();
        world.namespaces.clear();
        for name in names(more).iter().rev().take(most) {
            add_operator(&mut world, "team", name, "main");
        }
        assert_eq!(settle(&mut world), 1 + most);
        for name in names(more - most) {
            add_operator(&mut world, "team", &name, "main");
        }
        assert_eq!(settle(&mut world), 0, "{more}");
        let said = decide(&world, &LIMITS).complaints;
        assert!(!said.is_empty() && said.len() <= 8 && said.len() <= more - most);
        assert!(
            said.iter()
                .all(|complaint| complaint.reason == Reason::PullSecretLimitExceeded)
        );
    }
}

#[test]
fn of_many_secrets_of_a_catalog_the_first_are_copied() {
    for more in [LIMITS.secrets + 1, 10_000] {
        let mut world = world();
        let secrets = names(more);
        for name in &secrets {
            add_source(&mut world, name, 1);
        }
        let listed: Vec<&str> = secrets.iter().map(String::as_str).collect();
        add_catalog(&mut world, "main", &listed[..LIMITS.secrets]);
        assert!(decide(&world, &LIMITS).complaints.is_empty());
        add_catalog(&mut world, "main", &listed);
        assert_eq!(settle(&mut world), LIMITS.secrets + 1, "{more}");
        assert_eq!(reasons(&world), [Reason::PullSecretLimitExceeded]);
    }
}
