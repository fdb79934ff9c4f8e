//! The records that instances share, and the network in between.

use std::collections::BTreeMap;

use super::super::*;

/// A generator of numbers that is the same each time.
pub struct Dice(pub u64);

impl Dice {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (z ^ (z >> 31)) % limit.max(1)
    }

    pub fn is_one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }
}

/// Which record: that of a shard, or that of a hub that is not divided.
pub type Key = Option<Shard>;

/// A record as the server has it.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub version: u64,
    /// The name of the holder, which a process that is started again has too.
    pub place: usize,
    /// The holder's process; none where the record was released.
    pub process: Option<u64>,
    pub view: Option<View>,
}

pub type Table = BTreeMap<Key, Record>;

#[derive(Clone, Debug)]
pub enum Ask {
    List,
    /// Replaces the record if it has this version; 0 creates it.
    Put(Key, u64, Record),
}

#[derive(Clone, Debug)]
pub enum Answer {
    Listed(Table),
    Put(Result<u64, ()>),
}

/// Which process of which place.
pub type Sender = (usize, u64);

/// A request on its way to the server, or its answer on the way back.
struct Message {
    due: u64,
    from: Sender,
    number: u64,
    body: Result<Ask, Answer>,
}

/// How bad the network of a place is.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Weather {
    Good,
    /// One in six is lost, others come very late.
    Bad,
    /// Nothing gets through.
    Cut,
}

/// The server, and what is under way to it and from it.
#[derive(Default)]
pub struct Net {
    messages: Vec<Message>,
    records: Table,
    version: u64,
}

impl Net {
    pub fn ask(
        &mut self,
        now: u64,
        weather: Weather,
        dice: &mut Dice,
        (from, number, ask): (Sender, u64, Ask),
    ) {
        self.send((now, weather), dice, from, number, Ok(ask));
    }

    fn send(
        &mut self,
        (now, weather): (u64, Weather),
        dice: &mut Dice,
        from: Sender,
        number: u64,
        body: Result<Ask, Answer>,
    ) {
        let delay = match weather {
            Weather::Good => 10 + dice.below(120),
            Weather::Cut => return,
            Weather::Bad if dice.is_one_in(6) => return,
            Weather::Bad if dice.is_one_in(4) => dice.below(25_000),
            Weather::Bad => 10 + dice.below(1_500),
        };
        let due = now + delay;
        self.messages.push(Message {
            due,
            from,
            number,
            body,
        });
    }

    /// Lets what is due arrive at the server, and returns what arrived at instances.
    pub fn deliver(&mut self, now: u64, weather: &[Weather], dice: &mut Dice) -> Vec<(Sender, u64, Answer)> {
        let (due, later): (Vec<_>, Vec<_>) = self.messages.drain(..).partition(|m| m.due <= now);
        self.messages = later;
        let mut answers = Vec::new();
        for message in due {
            match message.body {
                Ok(ask) => {
                    let answer = self.serve(ask);
                    let way = (now, weather[message.from.0]);
                    self.send(way, dice, message.from, message.number, Err(answer));
                }
                Err(answer) => answers.push((message.from, message.number, answer)),
            }
        }
        answers
    }

    fn serve(&mut self, ask: Ask) -> Answer {
        match ask {
            Ask::List => Answer::Listed(self.records.clone()),
            Ask::Put(key, version, record) => {
                if self.records.get(&key).map_or(0, |record| record.version) != version {
                    return Answer::Put(Err(()));
                }
                self.version += 1;
                let version = self.version;
                self.records.insert(key, Record { version, ..record });
                Answer::Put(Ok(version))
            }
        }
    }
}
