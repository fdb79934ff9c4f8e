//! What an instance says of itself while another one of its hub works.

use super::*;
use crate::api::names::HubId;
use crate::plan::lease::{HubConflictKind, NamespaceScope};

mod ending;
mod failures;

const CLUSTER: &str = "0123abcd-0000-4000-8000-000000000000";
const NO_NAMESPACES: BTreeSet<String> = BTreeSet::new();

fn claim(hub: &str, holder: &str, watched: &[&str]) -> HolderIdentity {
    let watched: Vec<String> = watched.iter().map(ToString::to_string).collect();
    HolderIdentity {
        hub_id: HubId::new(hub, CLUSTER).unwrap(),
        holder: holder.to_owned(),
        process: format!("{hub}/{holder}"),
        rendering: "rendering".to_owned(),
        watched: NamespaceScope::new(&watched),
    }
}

/// An API server that answers at once.
#[derive(Default)]
struct Server {
    leases: BTreeMap<String, Lease>,
    versions: u64,
}

impl Server {
    fn write(&mut self, mut lease: Lease) -> Lease {
        self.versions += 1;
        lease.metadata.resource_version = Some(self.versions.to_string());
        let name = lease.metadata.name.clone().unwrap();
        self.leases.insert(name, lease.clone());
        lease
    }

    fn answer(&mut self, call: LeaseRequest) -> LeaseResponse {
        match call {
            LeaseRequest::List => LeaseResponse::Listed(self.leases.values().cloned().collect()),
            LeaseRequest::Get(name) => LeaseResponse::Lease(Box::new(self.leases[&name].clone())),
            LeaseRequest::Create(lease) | LeaseRequest::Replace(lease) => {
                LeaseResponse::Lease(Box::new(self.write(*lease)))
            }
        }
    }

    /// A hub that works renews.
    fn renew(&mut self, peer: &HolderIdentity, second: i64) {
        self.renew_at(LeaseSlot::Hub, peer, second);
    }

    fn renew_at(&mut self, slot: LeaseSlot, peer: &HolderIdentity, second: i64) {
        let content = LeaseContent {
            slot,
            state: InstanceState::Active,
            former: &NO_NAMESPACES,
        };
        let before = self.leases.get(&peer.name(slot)).cloned();
        let lease = peer.lease(content, before.as_ref(), Timestamp::from_second(second).unwrap());
        self.write(lease);
    }
}

/// Runs an instance for half a minute, in which these hubs work.
fn run(
    machine: &mut LeaseStateMachine,
    server: &mut Server,
    peers: &[&HolderIdentity],
    begin: Instant,
) -> Instant {
    let peers: Vec<_> = peers.iter().map(|peer| (LeaseSlot::Hub, *peer)).collect();
    run_beside(machine, server, &peers, begin)
}

/// The same, in which the holders of these records work.
fn run_beside(
    machine: &mut LeaseStateMachine,
    server: &mut Server,
    holders: &[(LeaseSlot, &HolderIdentity)],
    begin: Instant,
) -> Instant {
    let mut now = begin;
    for second in 0..30 {
        if second % 5 == 0 {
            for (slot, holder) in holders {
                server.renew_at(*slot, holder, second);
            }
        }
        let end = now + Duration::from_secs(1);
        while now < end {
            match machine.next(now, Timestamp::UNIX_EPOCH) {
                LeaseAction::Call(call) => machine.answer(server.answer(call), now),
                LeaseAction::Wait(at) => now = at.clamp(now + Duration::from_millis(1), end),
                LeaseAction::End(end) => panic!("{end:?}"),
            }
        }
    }
    now
}

/// An update that gives a hub a namespace of another one's must not take the place of the instance that works.
#[test]
fn who_could_not_take_over_does_not_stand_by_and_says_whom_it_would_meet() {
    let (sibling, peer) = (claim("b", "old", &["b"]), claim("a", "one", &["a"]));
    let mut server = Server::default();
    let begin = Instant::now();
    let mut machine = LeaseStateMachine::new(claim("b", "new", &["a", "b"]), begin);
    let now = run(&mut machine, &mut server, &[&sibling, &peer], begin);
    assert_eq!(machine.state(), InstanceState::Starting);
    let met: Vec<_> = machine
        .future_conflicts()
        .into_iter()
        .map(|conflict| conflict.peer)
        .collect();
    assert_eq!(met, [peer.hub_id.to_string()]);
    // The other hub is given up, or its list is another.
    let narrower = claim("a", "one", &["c"]);
    let now = run(&mut machine, &mut server, &[&sibling, &narrower], now);
    assert_eq!(machine.state(), InstanceState::Standby);
    assert!(machine.future_conflicts().is_empty());
    // It comes to do so after all.
    run(&mut machine, &mut server, &[&sibling, &peer], now);
    assert_eq!(machine.state(), InstanceState::Starting);
}

#[test]
fn an_instance_without_a_conflict_is_a_standby_next_to_the_active_one() {
    let (sibling, peer) = (claim("b", "old", &["b"]), claim("a", "one", &["a"]));
    let mut server = Server::default();
    let begin = Instant::now();
    let mut machine = LeaseStateMachine::new(claim("b", "new", &["b"]), begin);
    run(&mut machine, &mut server, &[&sibling, &peer], begin);
    assert_eq!(machine.state(), InstanceState::Standby);
    assert!(server.leases.contains_key("renderhub-b-0123abcd.standby-0"));
}

/// Goes on until the instance waits or ends; what it called.
fn settle(
    machine: &mut LeaseStateMachine,
    server: &mut Server,
    now: Instant,
) -> (Vec<LeaseRequest>, Option<LeaseExit>) {
    let mut calls = Vec::new();
    loop {
        match machine.next(now, Timestamp::UNIX_EPOCH) {
            LeaseAction::Call(call) => {
                calls.push(call.clone());
                machine.answer(server.answer(call), now);
            }
            LeaseAction::Wait(_) => return (calls, None),
            LeaseAction::End(end) => return (calls, Some(end)),
        }
    }
}

fn holder(server: &Server, lease: &str) -> Option<String> {
    LeaseRecord::of(&server.leases[lease])?.holder
}

#[test]
fn of_two_hubs_that_meet_and_start_in_the_same_moment_the_one_with_the_smaller_name_stays() {
    let begin = Instant::now();
    let mut server = Server::default();
    let mut both = ["a", "b"].map(|hub| Some(LeaseStateMachine::new(claim(hub, "one", &["shop"]), begin)));
    let mut ends = Vec::new();
    // One call of each alternately, so that each writes before the other one reads.
    for tenth in 0..400 {
        for slot in &mut both {
            let Some(machine) = slot else { continue };
            let now = begin + Duration::from_millis(100 * tenth);
            match machine.next(now, Timestamp::UNIX_EPOCH) {
                LeaseAction::Call(call) => machine.answer(server.answer(call), now),
                LeaseAction::Wait(_) => {}
                LeaseAction::End(end) => {
                    ends.push(end);
                    *slot = None;
                }
            }
        }
    }
    let [Some(stays), None] = &both else {
        panic!("{both:?}")
    };
    assert_eq!(stays.state(), InstanceState::Active);
    assert!(matches!(&ends[..], [LeaseExit::Conflict(_)]), "{ends:?}");
}

#[test]
fn two_releases_of_one_id_never_work_beside_each_other_and_the_second_writes_nothing() {
    let elsewhere = HolderIdentity {
        process: "another".to_owned(),
        rendering: "elsewhere".to_owned(),
        ..claim("a", "one", &["a"])
    };
    let mut server = Server::default();
    server.renew(&elsewhere, 0);
    let begin = Instant::now();
    // It has the holder's name too, as the first pod of each release may.
    let mut machine = LeaseStateMachine::new(claim("a", "one", &["b"]), begin);
    let (calls, end) = settle(&mut machine, &mut server, begin);
    assert_eq!((calls, end), (vec![LeaseRequest::List], None), "it may be alive");
    assert_eq!(machine.state(), InstanceState::Starting);
    server.renew(&elsewhere, 5);
    let (calls, end) = settle(&mut machine, &mut server, begin + Duration::from_secs(5));
    assert_eq!(calls, [LeaseRequest::List]);
    let Some(LeaseExit::Conflict(against)) = end else {
        panic!("{end:?}")
    };
    assert_eq!(against[0].kind, HubConflictKind::SameId);
}

#[test]
fn an_instance_that_becomes_active_is_no_standby() {
    let (old, new) = (claim("a", "old", &["a"]), claim("a", "new", &["a"]));
    let begin = Instant::now();
    let mut server = Server::default();
    let mut machine = LeaseStateMachine::new(new, begin);
    let now = run(&mut machine, &mut server, &[&old], begin);
    let standby = "renderhub-a-0123abcd.standby-0";
    assert_eq!(holder(&server, standby).as_deref(), Some("new"));
    let now = run(&mut machine, &mut server, &[], now);
    run(&mut machine, &mut server, &[], now);
    assert_eq!(machine.state(), InstanceState::Active);
    assert_eq!(holder(&server, standby), None);
}

/// It was taken for this process without an answer, while another one was got.
#[test]
fn a_record_that_is_held_and_not_needed_is_released() {
    let (own, old) = (claim("a", "one", &["a"]), claim("a", "old", &["a"]));
    let begin = Instant::now();
    let mut server = Server::default();
    let mut machine = LeaseStateMachine::new(own.clone(), begin);
    let now = run(&mut machine, &mut server, &[&old], begin);
    let unneeded = own.lease(
        LeaseContent {
            slot: LeaseSlot::Standby(1),
            state: InstanceState::Standby,
            former: &NO_NAMESPACES,
        },
        None,
        Timestamp::UNIX_EPOCH,
    );
    server.write(unneeded);
    run(&mut machine, &mut server, &[&old], now);
    let held = [0, 1].map(|number| holder(&server, &own.name(LeaseSlot::Standby(number))));
    assert_eq!(held, [Some("one".to_owned()), None]);
}

/// An update from an earlier version, whose instances divided the namespaces of the hub.
///
/// Holds: M5.
#[test]
fn next_to_instances_of_an_earlier_version_it_is_a_standby_until_the_last_one_is_gone() {
    let (zero, one) = (claim("a", "old-0", &["a"]), claim("a", "old-1", &["a"]));
    let parts = [(LeaseSlot::Shard(0), &zero), (LeaseSlot::Shard(1), &one)];
    let own = claim("a", "new", &["a"]);
    let begin = Instant::now();
    let mut server = Server::default();
    let mut machine = LeaseStateMachine::new(own.clone(), begin);
    let now = run_beside(&mut machine, &mut server, &parts, begin);
    assert_eq!((machine.state(), machine.until()), (InstanceState::Standby, None));
    // One ends in order.
    let first = zero.name(LeaseSlot::Shard(0));
    let released = HolderIdentity::released(&server.leases[&first], Timestamp::UNIX_EPOCH);
    server.write(released);
    let now = run_beside(&mut machine, &mut server, &parts[1..], now);
    assert_eq!((machine.state(), machine.until()), (InstanceState::Standby, None));
    assert!(
        !server.leases.contains_key(&own.name(LeaseSlot::Hub)),
        "nothing was taken"
    );
    // The other one dies: it wrote five seconds ago, and its record is valid for ten seconds more.
    let begins = (0..300).find(|tenth| {
        settle(
            &mut machine,
            &mut server,
            now + Duration::from_millis(100 * tenth),
        );
        machine.state() == InstanceState::Active
    });
    assert!(
        begins.is_some_and(|tenth| (95..=110).contains(&tenth)),
        "{begins:?}"
    );
    assert_eq!(
        holder(&server, &one.name(LeaseSlot::Shard(1))),
        None,
        "it is buried"
    );
}

/// Calls of an instance at work whose next write is answered so, until it waits.
fn after(
    failure: LeaseRequestError,
    server: &mut Server,
    spoil: impl FnOnce(&mut LeaseStateMachine, &mut Server),
) -> Vec<LeaseRequest> {
    let begin = Instant::now();
    let mut machine = LeaseStateMachine::new(claim("a", "one", &["a"]), begin);
    settle(&mut machine, server, begin);
    assert_eq!(machine.state(), InstanceState::Active);
    settle(&mut machine, server, begin + RENEW_EVERY.mul_f64(0.9));
    spoil(&mut machine, server);
    let now = begin + RENEW_EVERY;
    let LeaseAction::Call(LeaseRequest::Replace(_)) = machine.next(now, Timestamp::UNIX_EPOCH) else {
        panic!("nothing is written")
    };
    machine.answer(LeaseResponse::Failed(failure), now);
    settle(&mut machine, server, now).0
}

/// Another may have taken it and released it, and looked meanwhile.
#[test]
fn a_deleted_record_is_written_again_and_proves_itself_as_at_a_start() {
    let mut server = Server::default();
    let calls = after(LeaseRequestError::NotFound, &mut server, |_, server| {
        server.leases.clear();
    });
    let [
        LeaseRequest::Create(first),
        LeaseRequest::List,
        LeaseRequest::Replace(last),
    ] = &calls[..]
    else {
        panic!("{calls:#?}")
    };
    let state = |lease: &Lease| LeaseRecord::of(lease).unwrap().state;
    assert_eq!(
        (state(first), state(last)),
        (InstanceState::Starting, InstanceState::Active)
    );
}

#[test]
fn some_standbys_have_a_record_and_the_next_one_gets_it_when_one_of_them_ends() {
    let peer = claim("a", "old", &["a"]);
    let (mut server, begin) = (Server::default(), Instant::now());
    let standbys = |number: u8| LeaseStateMachine::new(claim("a", &format!("new-{number}"), &["a"]), begin);
    let mut machines: Vec<LeaseStateMachine> = (0..=STANDBYS).map(standbys).collect();
    let wait = |machines: &mut [LeaseStateMachine], server: &mut Server, seconds: std::ops::Range<u64>| {
        for second in seconds {
            if second % 5 == 0 {
                server.renew(&peer, i64::try_from(second).unwrap());
            }
            for machine in &mut *machines {
                let (_, end) = settle(machine, server, begin + Duration::from_secs(second));
                assert_eq!(end, None);
            }
        }
    };
    let holders = |server: &Server| -> Vec<String> {
        let records = server.leases.keys().filter(|name| name.contains(".standby-"));
        records.filter_map(|name| holder(server, name)).collect()
    };
    wait(&mut machines, &mut server, 0..60);
    let first: Vec<_> = (0..STANDBYS).map(|number| format!("new-{number}")).collect();
    assert_eq!(holders(&server), first);
    assert!(
        machines
            .iter()
            .all(|machine| machine.state() == InstanceState::Standby)
    );
    let mut ends = machines.remove(0);
    ends.stop();
    settle(&mut ends, &mut server, begin + Duration::from_secs(60));
    assert_eq!(holders(&server), first[1..]);
    wait(&mut machines, &mut server, 60..120);
    assert_eq!(holders(&server).len(), first.len());
    assert!(holders(&server).contains(&format!("new-{STANDBYS}")));
}
