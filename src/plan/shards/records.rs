//! What the hub's Leases say to one who divides the namespaces.

use std::collections::BTreeMap;
use std::time::Instant;

use super::member::{Records, Says};
use super::{Shard, View};
use crate::names::HubId;
use crate::plan::lease::{Record, State};

/// Whose list it is.
#[derive(Clone, Debug)]
pub struct Reader {
    /// Which hub.
    pub hub_id: HubId,
    /// Which process, as its own record says.
    pub process: String,
    /// Which shard it is.
    pub own: Shard,
}

impl Reader {
    /// What a list says that was asked for at `begun`. Other hubs, and those who only stand by, have no part in it.
    #[must_use]
    pub fn read(&self, listed: &[Record], begun: Instant) -> Records {
        let mut records = Records {
            begun,
            own: None,
            others: BTreeMap::new(),
        };
        let of_this_hub = listed.iter().filter(|record| record.hub == self.hub_id.as_str());
        for record in of_this_hub.filter(|record| !record.is_standby()) {
            let is_own = record.shard == Some(self.own) && record.process == self.process;
            if is_own && record.holder.is_some() {
                records.own.clone_from(&record.view);
            } else {
                records.others.insert(record.shard, says(record));
            }
        }
        records
    }
}

fn says(record: &Record) -> Says {
    match (&record.holder, &record.view, record.state) {
        (None, ..) => Says::Released,
        (Some(_), Some(view), _) => Says::Divides(view.clone()),
        // Who starts works on nothing before he has read the others' records once more.
        (Some(_), None, State::Starting) => Says::Divides(View::default()),
        (Some(_), None, State::Standby | State::Active) => Says::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use k8s_openapi::jiff::Timestamp;

    use super::*;
    use crate::plan::lease::{Claim, Content, Slot, Watched};

    const CLUSTER: &str = "0123abcd-0000-4000-8000-000000000000";

    fn claim(shard_name: &str, process: &str, count: u16) -> Claim {
        Claim {
            hub_id: HubId::new(shard_name, CLUSTER).unwrap(),
            holder: process.to_owned(),
            process: process.to_owned(),
            rendering: "rendering".to_owned(),
            watched: Watched::new(&[]),
            count,
            index: None,
        }
    }

    fn record(claim: &Claim, slot: Slot, state: State, view: Option<&[u16]>) -> Record {
        let view = view.map(|shards| View(shards.iter().copied().map(Shard).collect()));
        let content = Content {
            slot,
            state,
            view: view.as_ref(),
            former: &BTreeSet::new(),
        };
        Record::of(&claim.lease(content, None, Timestamp::UNIX_EPOCH)).unwrap()
    }

    /// Records of two hubs, the first of them the own one.
    fn all(ours: &Claim, theirs: &Claim) -> [Record; 8] {
        let number = |number| Slot::Shard(Shard(number));
        let active = State::Active;
        let mut released = record(theirs, number(3), active, Some(&[3]));
        released.holder = None;
        let mut unreadable = record(theirs, number(5), active, Some(&[0]));
        unreadable.view = None;
        [
            record(ours, number(1), active, Some(&[1, 2])),
            record(theirs, number(2), active, Some(&[1, 2])),
            released,
            record(theirs, number(4), State::Starting, None),
            unreadable,
            record(theirs, Slot::Standby(0), State::Standby, None),
            record(&claim("west", "west", 2), number(6), active, Some(&[6])),
            record(&claim("east", "old", 1), Slot::Hub, active, None),
        ]
    }

    #[test]
    fn a_list_is_read_for_one_instance_of_one_hub() {
        let (ours, theirs) = (claim("east", "ours", 4), claim("east", "theirs", 4));
        let listed = all(&ours, &theirs);
        let reader = Reader {
            hub_id: ours.hub_id.clone(),
            process: "ours".to_owned(),
            own: Shard(1),
        };
        let begun = Instant::now();
        let records = reader.read(&listed, begun);
        let view = |shards: &[u16]| View(shards.iter().copied().map(Shard).collect());
        assert_eq!((records.begun, records.own), (begun, Some(view(&[1, 2]))));
        let expected = BTreeMap::from([
            (Some(Shard(2)), Says::Divides(view(&[1, 2]))),
            (Some(Shard(3)), Says::Released),
            (Some(Shard(4)), Says::Divides(view(&[]))),
            (Some(Shard(5)), Says::Nothing),
            (None, Says::Nothing),
        ]);
        assert_eq!(records.others, expected);
        // Another process, or one that let go of it, is not this one, whatever its record says.
        let another = Reader {
            process: "another".to_owned(),
            ..reader.clone()
        };
        let seen = another.read(&listed, begun);
        assert_eq!(seen.own, None);
        assert_eq!(seen.others[&Some(Shard(1))], Says::Divides(view(&[1, 2])));
        let mut listed = listed;
        listed[0].holder = None;
        let seen = reader.read(&listed, begun);
        assert_eq!((seen.own, &seen.others[&Some(Shard(1))]), (None, &Says::Released));
    }
}
