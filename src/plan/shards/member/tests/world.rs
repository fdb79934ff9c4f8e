//! One process of the hub in simulated time: it keeps a record, buries who is gone, and does what the machine says.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::super::*;
use super::net::{Answer, Ask, Dice, Key, Net, Record, Table, Weather};
use crate::plan::lease::{RENEW_DEADLINE, RENEW_EVERY};

/// Longest that an instance waits for an answer.
const PATIENCE: u64 = 4_000;
/// Pause between two looks.
const LOOK: u64 = 1_000;

/// What an instance waits for an answer to.
#[derive(Clone, Debug, PartialEq)]
enum Waits {
    Look,
    Take(Key),
    /// The view that the record has then, and whether the machine asked for it.
    Renew(View, bool),
    /// To find out why a renewal was refused; what is to be written then, and whether the machine asked for it.
    Again(View, bool),
    Bury,
}

impl Waits {
    /// Whether it is what the machine asked for.
    const fn is_asked(&self) -> bool {
        matches!(self, Self::Renew(_, true) | Self::Again(_, true))
    }
}

/// One process.
pub struct Process {
    pub place: usize,
    pub id: u64,
    /// Whether it knows nothing of shards, and works on everything.
    pub is_old: bool,
    held: Option<(Key, u64)>,
    claim_until: u64,
    renewed: u64,
    member: Option<Member>,
    /// The view that renewals write.
    view: View,
    /// What the engine may be working by, the newest last, each with the namespaces as bits; and when it works by the newest
    /// alone.
    works: Vec<(Arc<Owned>, u16)>,
    settles_at: u64,
    waits: Option<(u64, u64, Waits)>,
    next_look: u64,
    wants_write: Option<View>,
    watched: BTreeMap<Key, (u64, u64)>,
}

/// What is around an instance.
pub struct Around<'a> {
    pub now: u64,
    pub start: Instant,
    pub weather: Weather,
    pub dice: &'a mut Dice,
    pub net: &'a mut Net,
    pub count: u16,
    pub names: &'a [String],
    pub number: &'a mut u64,
    /// Whether renewals write what was asked for, before it is known to be written.
    pub is_eager: bool,
}

impl Around<'_> {
    fn instant(&self, at: u64) -> Instant {
        self.start + Duration::from_millis(at)
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap()
}

impl Process {
    pub fn new((place, id): (usize, u64), is_old: bool, now: u64) -> Self {
        Self {
            place,
            id,
            is_old,
            held: None,
            claim_until: 0,
            renewed: 0,
            member: None,
            view: View::default(),
            works: Vec::new(),
            settles_at: u64::MAX,
            waits: None,
            next_look: now,
            wants_write: None,
            watched: BTreeMap::new(),
        }
    }

    /// What it works on at this moment, as bits.
    pub fn works_on(&self, now: u64) -> u16 {
        if now >= self.claim_until {
            return 0;
        }
        self.works.iter().fold(0, |bits, (_, more)| bits | more)
    }

    fn ask(&mut self, around: &mut Around<'_>, waits: Waits, ask: Ask) {
        *around.number += 1;
        self.waits = Some((*around.number, around.now, waits));
        let message = ((self.place, self.id), *around.number, ask);
        around.net.ask(around.now, around.weather, around.dice, message);
    }

    fn record(&self, view: Option<View>) -> Record {
        let process = Some(self.id);
        Record {
            version: 0,
            place: self.place,
            process,
            view,
        }
    }

    /// What is due by the clock.
    pub fn step(&mut self, around: &mut Around<'_>) {
        if self.settles_at <= around.now {
            self.settle(around);
        }
        if let Some((_, since, _)) = &self.waits {
            if around.now < since + PATIENCE {
                return;
            }
            self.waits = None;
        }
        if self.held.is_some() && around.now >= self.renewed + millis(RENEW_EVERY) {
            // One that is not answered is repeated after a second.
            self.renewed = around.now - millis(RENEW_EVERY) + LOOK;
            self.renew(around, self.view.clone(), false);
        } else if let Some(view) = self.wants_write.take() {
            self.renew(around, view, true);
        } else if around.now >= self.next_look {
            self.next_look = around.now + LOOK;
            self.ask(around, Waits::Look, Ask::List);
        }
    }

    fn settle(&mut self, around: &mut Around<'_>) {
        self.settles_at = u64::MAX;
        self.works.drain(..self.works.len() - 1);
        if let (Some(member), Some((works, _))) = (&mut self.member, self.works.last()) {
            member.settled(works);
        }
        self.go_on(around);
    }

    fn renew(&mut self, around: &mut Around<'_>, view: View, is_asked: bool) {
        let Some((key, version)) = self.held else { return };
        if around.is_eager {
            self.view = view.clone();
        }
        let says = (!self.is_old).then(|| view.clone());
        let ask = Ask::Put(key, version, self.record(says));
        self.ask(around, Waits::Renew(view, is_asked), ask);
    }

    /// Takes in an answer; `false` when somebody else has its record, and it ends.
    pub fn answered(&mut self, around: &mut Around<'_>, number: u64, answer: Answer) -> bool {
        let awaited = self.waits.take_if(|(awaited, ..)| *awaited == number);
        let Some((_, since, waits)) = awaited else {
            return true;
        };
        match (waits, answer) {
            (Waits::Look, Answer::Listed(table)) => self.looked(around, since, &table),
            (Waits::Take(key), Answer::Put(Ok(version))) => self.took(around, since, key, version),
            (Waits::Renew(view, is_asked), Answer::Put(Ok(version))) => {
                self.wrote(around, (since, version), view, is_asked);
            }
            (Waits::Renew(view, is_asked), Answer::Put(Err(()))) => {
                self.ask(around, Waits::Again(view, is_asked), Ask::List);
            }
            (Waits::Again(view, is_asked), Answer::Listed(table)) => {
                let held = self.held.and_then(|(key, _)| Some((key, table.get(&key)?)));
                let Some((key, record)) = held.filter(|(_, record)| record.process == Some(self.id)) else {
                    return false;
                };
                self.held = Some((key, record.version));
                self.renew(around, view, is_asked);
            }
            _ => {}
        }
        true
    }

    fn took(&mut self, around: &Around<'_>, asked: u64, key: Key, version: u64) {
        self.held = Some((key, version));
        (self.renewed, self.claim_until) = (asked, asked + millis(RENEW_DEADLINE));
        self.next_look = around.now;
        if self.is_old {
            self.works = vec![(Arc::new(Owned::All), u16::MAX)];
        } else if let Some(own) = key {
            let nothing = Arc::new(Owned::nothing(own));
            let mut member = Member::new(own);
            member.settled(&nothing);
            self.member = Some(member);
            self.works = vec![(nothing, 0)];
        }
    }

    fn wrote(&mut self, around: &mut Around<'_>, (asked, version): (u64, u64), view: View, is_asked: bool) {
        self.held = self.held.map(|(key, _)| (key, version));
        (self.renewed, self.claim_until) = (asked, asked + millis(RENEW_DEADLINE));
        self.view = view.clone();
        if let (Some(member), true) = (&mut self.member, is_asked) {
            member.written(view, around.instant(around.now));
            self.next_look = around.now;
            self.go_on(around);
        }
    }

    fn looked(&mut self, around: &mut Around<'_>, begun: u64, table: &Table) {
        if self.held.is_none() {
            return self.find(around, table);
        }
        let own = self.held.map(|(key, _)| key);
        let mut records = Records {
            begun: around.instant(begun),
            own: None,
            others: BTreeMap::new(),
        };
        for (key, record) in table {
            if Some(*key) == own && record.process == Some(self.id) {
                records.own.clone_from(&record.view);
                continue;
            }
            let says = match (&record.process, &record.view) {
                (None, _) => Says::Released,
                (Some(_), Some(view)) => Says::Divides(view.clone()),
                (Some(_), None) => Says::Nothing,
            };
            records.others.insert(*key, says);
        }
        let now = around.instant(around.now);
        if let Some(member) = &mut self.member {
            member.listed(records, now);
        }
        self.go_on(around);
        if self.wants_write.is_none() && !self.is_old {
            self.bury(around, table);
        }
    }

    /// Replaces the record of one that is gone by a released one.
    fn bury(&mut self, around: &mut Around<'_>, table: &Table) {
        if let Some((key, record)) = self.silent(around.now, table) {
            let version = record.version;
            let released = Record {
                process: None,
                ..record
            };
            self.ask(around, Waits::Bury, Ask::Put(key, version, released));
        }
    }

    /// A record that has not changed for its whole duration.
    fn silent(&mut self, now: u64, table: &Table) -> Option<(Key, Record)> {
        let mut found = None;
        for (key, record) in table.iter().filter(|(_, record)| record.process.is_some()) {
            let seen = self.watched.entry(*key).or_insert((record.version, now));
            if seen.0 != record.version {
                *seen = (record.version, now);
            }
            if now >= seen.1 + millis(DURATION) && record.process != Some(self.id) {
                found = Some((*key, record.clone()));
            }
        }
        found
    }

    /// Looks for a record to hold: what it had before, or one that nobody has.
    fn find(&mut self, around: &mut Around<'_>, table: &Table) {
        let keys: Vec<Key> = if self.is_old {
            vec![None]
        } else {
            (0..around.count).map(|shard| Some(Shard(shard))).collect()
        };
        let holder = |key: &Key| table.get(key).filter(|record| record.process.is_some());
        let is_own = |key: &&Key| holder(key).is_some_and(|record| record.place == self.place);
        let is_free = |key: &&Key| holder(key).is_none();
        let own = keys.iter().find(is_own);
        match own.or_else(|| keys.iter().find(is_free)).copied() {
            Some(key) => {
                let version = table.get(&key).map_or(0, |record| record.version);
                let record = self.record((!self.is_old).then(View::default));
                self.ask(around, Waits::Take(key), Ask::Put(key, version, record));
            }
            None => self.bury(around, table),
        }
    }

    /// Releases the record, as one does whose engine has ended.
    pub fn release(&mut self, around: &mut Around<'_>) {
        if let Some((key, version)) = self.held {
            let released = Record {
                process: None,
                ..self.record(None)
            };
            self.ask(around, Waits::Bury, Ask::Put(key, version, released));
        }
    }

    /// Does what the machine says, as the loop does.
    fn go_on(&mut self, around: &mut Around<'_>) {
        let is_writing = self.waits.as_ref().is_some_and(|(_, _, waits)| waits.is_asked());
        if is_writing || self.wants_write.is_some() {
            return;
        }
        while let Some(member) = &mut self.member {
            match member.next_step() {
                Step::Settle(told) | Step::Own(told) => {
                    let owns = |bits, (bit, name): (usize, &String)| bits | u16::from(told.owns(name)) << bit;
                    let bits = around.names.iter().enumerate().fold(0, owns);
                    self.works.push((told, bits));
                    let is_slow = around.weather == Weather::Bad && around.dice.is_one_in(8);
                    let takes = around.dice.below(if is_slow { 9_000 } else { 600 });
                    self.settles_at = around.now + takes;
                }
                Step::Write(view) => {
                    self.wants_write = Some(view);
                    return;
                }
                Step::Rest => return,
            }
        }
    }
}
