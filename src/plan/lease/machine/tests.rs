//! What an instance says of itself while another one of its hub works.

use super::*;
use crate::names::HubId;
use crate::plan::lease::Watched;

const CLUSTER: &str = "0123abcd-0000-4000-8000-000000000000";
const NOBODY: BTreeSet<String> = BTreeSet::new();

fn claim(hub: &str, holder: &str, watched: &[&str]) -> Claim {
    let watched: Vec<String> = watched.iter().map(ToString::to_string).collect();
    Claim {
        hub_id: HubId::new(hub, CLUSTER).unwrap(),
        holder: holder.to_owned(),
        process: format!("{hub}/{holder}"),
        rendering: "rendering".to_owned(),
        watched: Watched::new(&watched),
        count: 1,
        index: None,
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

    fn answer(&mut self, call: Call) -> Answer {
        match call {
            Call::List => Answer::Listed(self.leases.values().cloned().collect()),
            Call::Get(name) => Answer::Lease(Box::new(self.leases[&name].clone())),
            Call::Create(lease) | Call::Replace(lease) => Answer::Lease(Box::new(self.write(*lease))),
        }
    }

    /// A hub that works renews.
    fn renew(&mut self, peer: &Claim, second: i64) {
        let content = Content {
            slot: Slot::Hub,
            state: State::Active,
            view: None,
            former: &NOBODY,
        };
        let before = self.leases.get(&peer.name(Slot::Hub)).cloned();
        let lease = peer.lease(content, before.as_ref(), Timestamp::from_second(second).unwrap());
        self.write(lease);
    }
}

/// Runs an instance for half a minute, in which these hubs work.
fn run(machine: &mut Machine, server: &mut Server, peers: &[&Claim], begin: Instant) -> Instant {
    let mut now = begin;
    for second in 0..30 {
        if second % 5 == 0 {
            for peer in peers {
                server.renew(peer, second);
            }
        }
        let end = now + Duration::from_secs(1);
        while now < end {
            match machine.next(now, Timestamp::UNIX_EPOCH) {
                Next::Call(call) => machine.answer(server.answer(call), now),
                Next::Wait(at) => now = at.clamp(now + Duration::from_millis(1), end),
                Next::End(end) => panic!("{end:?}"),
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
    let mut machine = Machine::new(claim("b", "new", &["a", "b"]), begin);
    let now = run(&mut machine, &mut server, &[&sibling, &peer], begin);
    assert_eq!(machine.state(), State::Starting);
    let met: Vec<_> = machine
        .will_meet()
        .into_iter()
        .map(|conflict| conflict.peer)
        .collect();
    assert_eq!(met, [peer.hub_id.to_string()]);
    // The other hub is given up, or its list is another.
    let narrower = claim("a", "one", &["c"]);
    let now = run(&mut machine, &mut server, &[&sibling, &narrower], now);
    assert_eq!(machine.state(), State::Standby);
    assert!(machine.will_meet().is_empty());
    // It comes to do so after all.
    run(&mut machine, &mut server, &[&sibling, &peer], now);
    assert_eq!(machine.state(), State::Starting);
}

#[test]
fn who_meets_nobody_stands_by_beside_whoever_works() {
    let (sibling, peer) = (claim("b", "old", &["b"]), claim("a", "one", &["a"]));
    let mut server = Server::default();
    let begin = Instant::now();
    let mut machine = Machine::new(claim("b", "new", &["b"]), begin);
    run(&mut machine, &mut server, &[&sibling, &peer], begin);
    assert_eq!(machine.state(), State::Standby);
    assert!(server.leases.contains_key("renderhub-b-0123abcd.standby-0"));
}
