use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;
use k8s_openapi::jiff::Timestamp;

use super::namespace_scope::MAX_LISTED;
use super::*;
use crate::api::labels::{LEASE_STATE, WATCH_NAMESPACES};
use crate::api::names::HubId;

mod always;
mod liveness;
mod machine;
mod server;
mod sim;

const CLUSTER: &str = "0123abcd-0000-4000-8000-000000000000";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn claim(shard: &str, holder: &str, watched: &[&str]) -> HolderIdentity {
    HolderIdentity {
        hub_id: HubId::new(shard, CLUSTER).unwrap(),
        holder: holder.to_owned(),
        process: format!("{shard}/{holder}"),
        rendering: "rendering".to_owned(),
        watched: NamespaceScope::new(&names(watched)),
    }
}

static NOTHING: BTreeSet<String> = BTreeSet::new();

/// The hub's record of an instance that works.
fn active(claim: &HolderIdentity, before: Option<&Lease>, now: Timestamp) -> Lease {
    let content = LeaseContent {
        slot: LeaseSlot::Hub,
        state: InstanceState::Active,
        former: &NOTHING,
    };
    claim.lease(content, before, now)
}

/// A record as instances of earlier versions wrote it, which divided the namespaces of their hub.
fn part(claim: &HolderIdentity, state: InstanceState) -> Lease {
    let content = LeaseContent {
        slot: LeaseSlot::Shard(0),
        state,
        former: &NOTHING,
    };
    let mut lease = claim.lease(content, None, at(1));
    let annotations = lease.metadata.annotations.get_or_insert_default();
    annotations.insert("renderhub.dev/shards".to_owned(), "0,1".to_owned());
    lease
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn record(claim: &HolderIdentity, second: i64) -> LeaseRecord {
    LeaseRecord::of(&active(claim, None, at(second))).unwrap()
}

#[test]
fn a_record_says_what_was_claimed() {
    let claim = claim("east", "hub-0", &["b", "a"]);
    let lease = active(&claim, None, at(1));
    assert_eq!(lease.metadata.name.as_deref(), Some("renderhub-east-0123abcd"));
    let spec = lease.spec.clone().unwrap();
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(0))
    );
    let record = LeaseRecord::of(&lease).unwrap();
    assert_eq!(record.holder.as_deref(), Some("hub-0"));
    assert_eq!(record.rendering, "rendering");
    assert_eq!(record.watched, claim.watched);
    assert!(claim.holds(&lease));
    let annotations = lease.metadata.annotations.unwrap();
    assert_eq!(annotations[WATCH_NAMESPACES], "a,b");
}

#[test]
fn a_renewal_changes_the_time_alone_and_another_process_counts_as_a_transition() {
    let first = claim("east", "hub-0", &[]);
    let taken = active(&first, None, at(1));
    let renewed = active(&first, Some(&taken), at(6)).spec.unwrap();
    assert_eq!(renewed.acquire_time, Some(MicroTime(at(1))));
    assert_eq!(
        (renewed.renew_time, renewed.lease_transitions),
        (Some(MicroTime(at(6))), Some(0))
    );
    let second = HolderIdentity {
        process: "another".to_owned(),
        ..first.clone()
    };
    assert!(!second.holds(&taken));
    let taken_over = active(&second, Some(&taken), at(7));
    assert!(second.holds(&taken_over) && !first.holds(&taken_over));
    let spec = taken_over.spec.unwrap();
    assert_eq!(
        (spec.acquire_time, spec.lease_transitions),
        (Some(MicroTime(at(7))), Some(1))
    );
}

#[test]
fn which_records_conflict() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let kind = |other: &HolderIdentity| ours.conflict(&record(other, 1)).map(|conflict| conflict.kind);
    // The same hub: a restart in place goes on, another instance is a standby.
    assert_eq!(kind(&ours), None);
    assert_eq!(kind(&claim("east", "hub-0", &["z"])), None);
    assert_eq!(kind(&claim("east", "hub-1", &["z"])), None);
    // Two releases with one id.
    let elsewhere = HolderIdentity {
        rendering: "elsewhere".to_owned(),
        ..claim("east", "hub-1", &["z"])
    };
    assert_eq!(kind(&elsewhere), Some(HubConflictKind::SameId));
    // Another hub: only the namespaces that both serve count, for any instance.
    assert_eq!(kind(&claim("west", "hub-0", &["c", "d"])), None);
    let overlap = |meeting| Some(HubConflictKind::Overlap(meeting));
    assert_eq!(
        kind(&claim("west", "hub-0", &["b", "c"])),
        overlap(ScopeOverlap::Names(names(&["b"])))
    );
    assert_eq!(
        kind(&claim("west", "hub-0", &[])),
        overlap(ScopeOverlap::Everything)
    );
    let all = claim("all", "hub-0", &[]);
    let theirs = all.conflict(&record(&ours, 1)).map(|conflict| conflict.kind);
    assert_eq!(theirs, overlap(ScopeOverlap::Everything));
}

#[test]
fn standbys_stand_against_no_instance_of_any_hub() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let content = LeaseContent {
        slot: LeaseSlot::Standby(0),
        state: InstanceState::Standby,
        former: &NOTHING,
    };
    for standby in [claim("east", "hub-1", &["a"]), claim("west", "hub-0", &[])] {
        let record = LeaseRecord::of(&standby.lease(content, None, at(1))).unwrap();
        assert_eq!(ours.conflict(&record), None);
    }
}

/// An upgrade from a version whose instances divided the namespaces must overlap with none of them.
///
/// Holds: M5.
#[test]
fn an_instance_of_an_earlier_version_with_a_part_conflicts_with_whom_it_meets() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let own = ours.name(LeaseSlot::Hub);
    let elsewhere = HolderIdentity {
        rendering: "elsewhere".to_owned(),
        ..claim("east", "hub-1", &["a"])
    };
    let overlap = HubConflictKind::Overlap(ScopeOverlap::Names(names(&["b"])));
    let table = [
        // The same hub, whichever part of its namespaces the other one works on.
        (
            claim("east", "hub-1", &["a", "b"]),
            Some(HubConflictKind::Divides),
        ),
        (claim("east", "hub-0", &["z"]), Some(HubConflictKind::Divides)),
        (elsewhere, Some(HubConflictKind::SameId)),
        // Another one: each of its instances says all that the hub serves.
        (claim("west", "hub-1", &["b", "c"]), Some(overlap)),
        (claim("west", "hub-1", &["c"]), None),
    ];
    for (number, (theirs, expected)) in table.into_iter().enumerate() {
        // It is another process, even under the same name.
        let theirs = HolderIdentity {
            process: "another".to_owned(),
            ..theirs
        };
        for state in [InstanceState::Starting, InstanceState::Active] {
            let lease = part(&theirs, state);
            let record = LeaseRecord::of(&lease).unwrap();
            assert_eq!((record.slot, record.state), (LeaseSlot::Shard(0), state));
            let kind = ours.conflict(&record).map(|conflict| conflict.kind);
            assert_eq!(kind, expected, "{number}, {state:?}");
            let released = LeaseRecord::of(&HolderIdentity::released(&lease, at(2))).unwrap();
            assert_eq!(ours.conflict(&released), None, "{number}, {state:?}");
            if record.hub == ours.hub_id.as_str() {
                assert_eq!(record.gives_way_to(&own), state == InstanceState::Starting);
            }
        }
    }
}

#[test]
fn a_released_record_conflicts_with_none() {
    let other = claim("west", "hub-1", &[]);
    let released = HolderIdentity::released(&active(&other, None, at(1)), at(2));
    let record = LeaseRecord::of(&released).unwrap();
    assert_eq!(claim("east", "hub-0", &[]).conflict(&record), None);
    assert_eq!(claim("west", "hub-0", &[]).conflict(&record), None);
    assert!(!other.holds(&released));
}

#[test]
fn a_list_too_long_to_be_written_down_is_not_taken_for_disjoint() {
    let many: Vec<String> = (0..=MAX_LISTED).map(|number| format!("n{number:05}")).collect();
    let long = HolderIdentity {
        watched: NamespaceScope::new(&many),
        ..claim("west", "hub-1", &[])
    };
    let theirs = record(&long, 1);
    let NamespaceScope::Only { names: written, .. } = &theirs.watched else {
        panic!("everything");
    };
    assert_eq!(written.len(), MAX_LISTED);
    let unknown = claim("east", "hub-0", &["elsewhere"]).conflict(&theirs).unwrap();
    assert_eq!(unknown.kind, HubConflictKind::Overlap(ScopeOverlap::Unknown));
    let known = claim("east", "hub-0", &["n00007"]).conflict(&theirs).unwrap();
    assert_eq!(
        known.kind,
        HubConflictKind::Overlap(ScopeOverlap::Names(names(&["n00007"])))
    );
}

#[test]
fn a_record_without_a_list_means_all_namespaces() {
    let mut lease = active(&claim("west", "hub-1", &["c"]), None, at(1));
    lease.metadata.annotations = None;
    let conflict = claim("east", "hub-0", &["a"])
        .conflict(&LeaseRecord::of(&lease).unwrap())
        .unwrap();
    assert_eq!(conflict.kind, HubConflictKind::Overlap(ScopeOverlap::Everything));
    // A list that was changed by hand does not count as whole.
    let mut lease = active(&claim("west", "hub-1", &["c"]), None, at(1));
    lease
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(WATCH_NAMESPACES.to_owned(), "d".to_owned());
    let conflict = claim("east", "hub-0", &["a"])
        .conflict(&LeaseRecord::of(&lease).unwrap())
        .unwrap();
    assert_eq!(conflict.kind, HubConflictKind::Overlap(ScopeOverlap::Unknown));
    // What is no hub's is nothing to us.
    lease.metadata.name = Some("something-else".to_owned());
    assert_eq!(LeaseRecord::of(&lease), None);
}

#[test]
fn names_of_records_say_whose_and_what_they_are() {
    let ours = claim("east", "hub-0", &[]);
    for (slot, name) in [
        (LeaseSlot::Hub, "renderhub-east-0123abcd"),
        (LeaseSlot::Shard(12), "renderhub-east-0123abcd.12"),
        (LeaseSlot::Standby(7), "renderhub-east-0123abcd.standby-7"),
    ] {
        assert_eq!(ours.name(slot), name);
        let mut lease = active(&ours, None, at(1));
        lease.metadata.name = Some(name.to_owned());
        let record = LeaseRecord::of(&lease).unwrap();
        assert_eq!((record.hub.as_str(), record.slot), ("east-0123abcd", slot));
        assert_eq!(record.is_standby(), name.contains("standby"));
    }
    for name in [
        "renderhub-east.",
        "renderhub-east.x",
        "renderhub-east.standby-",
        "east.1",
        "renderhub-a.70000",
    ] {
        let mut lease = active(&ours, None, at(1));
        lease.metadata.name = Some(name.to_owned());
        assert_eq!(LeaseRecord::of(&lease), None, "{name}");
    }
}

#[test]
fn a_record_says_what_its_holder_does_and_what_its_hub_served_before() {
    let ours = claim("east", "hub-0", &["a"]);
    let former = BTreeSet::from(["b".to_owned(), "c".to_owned()]);
    let content = LeaseContent {
        slot: LeaseSlot::Hub,
        state: InstanceState::Starting,
        former: &former,
    };
    let lease = ours.lease(content, None, at(1));
    let record = LeaseRecord::of(&lease).unwrap();
    assert_eq!(
        (record.state, record.former_namespaces),
        (InstanceState::Starting, former.clone())
    );
    // What cannot be read is taken for the most that it may mean.
    for state in ["standby", "active", "Starting", ""] {
        let mut lease = lease.clone();
        let annotations = lease.metadata.annotations.as_mut().unwrap();
        annotations.insert(LEASE_STATE.to_owned(), state.to_owned());
        assert_eq!(LeaseRecord::of(&lease).unwrap().state, InstanceState::Active);
    }
    // A record does not keep old values.
    let content = LeaseContent {
        former: &NOTHING,
        ..content
    };
    let record = LeaseRecord::of(&ours.lease(content, Some(&lease), at(2))).unwrap();
    assert_eq!(record.former_namespaces, BTreeSet::new());
}

#[test]
fn the_finding_names_the_peer_and_what_both_serve() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let reported = |other: &HolderIdentity| finding(&[ours.conflict(&record(other, 1)).unwrap()]).message;
    assert_eq!(
        reported(&claim("west", "hub-1", &["b"])),
        "the hub west-0123abcd (hub-1) serves b too"
    );
    let elsewhere = HolderIdentity {
        rendering: "elsewhere".to_owned(),
        ..claim("east", "hub-1", &["b"])
    };
    assert!(reported(&elsewhere).contains("same hub id and the rendering namespace elsewhere"));
    assert!(reported(&claim("west", "hub\n1", &[])).contains("hub\\n1"));
    let earlier = LeaseRecord::of(&part(&claim("east", "hub-1", &["a"]), InstanceState::Active)).unwrap();
    let found = finding(&[ours.conflict(&earlier).unwrap()]);
    assert!(found.message.contains("is of an earlier version"), "{found:?}");
    assert!(found.fix.contains("start this one again"), "{found:?}");
    assert!(finding(&[]).fix.is_empty());
}
