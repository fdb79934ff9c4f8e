//! A world of instances and an API server with every fault, on a true time that no instance knows.

use std::collections::BinaryHeap;

use super::server::Server;
use super::*;

/// Microseconds of true time since the beginning.
pub type Micros = u64;
pub const SECOND: Micros = 1_000_000;
/// After this an instance gives a call up, by its own clock.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(4);

/// A clock that is wrong by a while, and runs at another pace.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    pub base: Instant,
    pub ahead: Duration,
    /// How much it runs in a thousandth of a true second, in microseconds: 900 to 1100.
    pub pace: u64,
}

impl Clock {
    fn at(&self, time: Micros) -> Instant {
        self.base + self.ahead + Duration::from_micros(time * self.pace / 1000)
    }

    fn when(&self, at: Instant) -> Micros {
        let local = at.saturating_duration_since(self.base + self.ahead);
        u64::try_from(local.as_micros()).unwrap() * 1000 / self.pace + 1
    }
}

/// What happens to an instance.
#[derive(Clone, Copy, Debug)]
pub enum Blow {
    Kill,
    Stop,
    /// It sleeps for so many seconds.
    Pause(u64),
    /// Nothing that it says arrives for so many seconds, or it arrives after them.
    CutOff(u64),
}

#[derive(Debug)]
enum Event {
    Step(usize, u64),
    Arrive(usize, u64, LeaseRequest),
    Answered(usize, u64, LeaseResponse),
    GiveUp(usize, u64),
    Strike(usize, Blow),
    Begin(usize),
}

pub struct Instance {
    pub claim: HolderIdentity,
    pub clock: Clock,
    pub machine: Option<LeaseStateMachine>,
    asleep_until: Micros,
    cut_off_until: Micros,
    /// The call in flight, whether it writes, and when it was made.
    call: Option<(u64, bool, Instant)>,
    turn: u64,
    lives: u64,
}

/// What the network does with a call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Network {
    Good,
    Bad,
}

pub struct World {
    pub now: Micros,
    pub network: Network,
    /// After how long an instance that ended is started again in its place; `None` is never.
    pub restart: Option<Micros>,
    pub instances: Vec<Instance>,
    server: Server,
    last: u64,
    events: BinaryHeap<std::cmp::Reverse<(Micros, u64)>>,
    bodies: BTreeMap<u64, Event>,
    random: u64,
}

impl World {
    pub fn new(seed: u64, network: Network, instances: Vec<(HolderIdentity, Clock)>) -> Self {
        let instances: Vec<_> = instances.into_iter().map(Instance::new).collect();
        let mut world = Self {
            now: 0,
            network,
            restart: None,
            instances,
            server: Server::default(),
            last: 0,
            events: BinaryHeap::new(),
            bodies: BTreeMap::new(),
            random: seed,
        };
        for who in 0..world.instances.len() {
            let begin = world.roll(3 * SECOND);
            world.plan(begin, Event::Begin(who));
        }
        world
    }

    pub fn strike(&mut self, at: Micros, who: usize, blow: Blow) {
        self.plan(at, Event::Strike(who, blow));
    }

    /// One more instance begins.
    pub fn join(&mut self, claim: HolderIdentity, clock: Clock) -> usize {
        self.instances.push(Instance::new((claim, clock)));
        let who = self.instances.len() - 1;
        self.plan(self.now, Event::Begin(who));
        who
    }

    /// What a record says now.
    pub fn record(&self, name: &str) -> LeaseRecord {
        LeaseRecord::of(&self.server.leases[name]).unwrap()
    }

    /// Instances that hold the Lease now, in true time.
    pub fn current(&self) -> Vec<usize> {
        let is_current = |who: &usize| self.instances[*who].is_current(self.now);
        (0..self.instances.len()).filter(is_current).collect()
    }

    /// Runs all events until then; `check` sees the world after each of them.
    pub fn run(&mut self, until: Micros, mut check: impl FnMut(&Self)) {
        while let Some(std::cmp::Reverse((at, id))) = self.events.peek().copied() {
            if at > until {
                break;
            }
            self.events.pop();
            self.now = at;
            let event = self.bodies.remove(&id).unwrap();
            self.happen(event);
            check(self);
        }
        self.now = until;
    }

    fn roll(&mut self, below: u64) -> u64 {
        // SplitMix64: the numbers need only be many and the same for the same seed.
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.random;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % below
    }

    fn plan(&mut self, at: Micros, event: Event) {
        self.last += 1;
        self.events.push(std::cmp::Reverse((at, self.last)));
        self.bodies.insert(self.last, event);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Begin(who) => self.begin(who),
            Event::Step(who, turn) if self.instances[who].turn == turn => {
                if !self.puts_off(who, Event::Step(who, turn)) {
                    self.step(who);
                }
            }
            Event::Step(..) => {}
            Event::Arrive(who, id, call) => {
                let answer = self.server.serve(call);
                if self.network == Network::Good || self.roll(100) < 85 {
                    let delay = self.delay();
                    self.plan(self.now + delay, Event::Answered(who, id, answer));
                }
            }
            Event::Answered(who, id, answer) => {
                if !self.puts_off(who, Event::Answered(who, id, answer.clone())) {
                    self.hear(who, id, answer);
                }
            }
            Event::GiveUp(who, id) => {
                if !self.puts_off(who, Event::GiveUp(who, id)) {
                    self.hear(who, id, LeaseResponse::Failed(LeaseRequestError::Unanswered));
                }
            }
            Event::Strike(who, blow) => self.suffer(who, blow),
        }
    }

    /// An instance that sleeps gets its event when it wakes.
    fn puts_off(&mut self, who: usize, event: Event) -> bool {
        let wakes = self.instances[who].asleep_until;
        let sleeps = self.now < wakes;
        if sleeps {
            self.plan(wakes, event);
        }
        sleeps
    }

    fn begin(&mut self, who: usize) {
        let instance = &mut self.instances[who];
        instance.lives += 1;
        instance.claim.process = format!("{who}-{}", instance.lives);
        (instance.asleep_until, instance.call) = (0, None);
        let now = instance.clock.at(self.now);
        instance.machine = Some(LeaseStateMachine::new(instance.claim.clone(), now));
        self.turn(who, self.now);
    }

    fn turn(&mut self, who: usize, at: Micros) {
        self.instances[who].turn += 1;
        let turn = self.instances[who].turn;
        self.plan(at, Event::Step(who, turn));
    }

    fn end(&mut self, who: usize) {
        let instance = &mut self.instances[who];
        (instance.machine, instance.call) = (None, None);
        instance.turn += 1;
        if let Some(pause) = self.restart {
            self.plan(self.now + pause, Event::Begin(who));
        }
    }

    fn step(&mut self, who: usize) {
        let instance = &mut self.instances[who];
        let (clock, now) = (instance.clock, instance.clock.at(self.now));
        let Some(machine) = &mut instance.machine else {
            return;
        };
        // Wall clocks are wrong by hours, and say nothing.
        let wall = i64::try_from(self.now / 1000).unwrap() + i64::try_from(who).unwrap() * 7_200_000;
        match machine.next(now, Timestamp::from_millisecond(wall).unwrap()) {
            LeaseAction::End(_) => self.end(who),
            LeaseAction::Wait(until) => {
                let at = clock.when(until).max(self.now + 1);
                self.turn(who, at);
            }
            LeaseAction::Call(call) => {
                let is_write = matches!(call, LeaseRequest::Create(_) | LeaseRequest::Replace(_));
                self.last += 1;
                let id = self.last;
                self.instances[who].call = Some((id, is_write, now));
                self.plan(clock.when(now + ANSWER_TIMEOUT), Event::GiveUp(who, id));
                for at in self.arrivals(who) {
                    self.plan(at, Event::Arrive(who, id, call.clone()));
                }
            }
        }
    }

    fn delay(&mut self) -> Micros {
        let is_slow = self.network == Network::Bad && self.roll(10) == 0;
        match self.network {
            Network::Good => 1000 + self.roll(20_000),
            Network::Bad if is_slow => self.roll(6 * SECOND),
            Network::Bad => 1000 + self.roll(100_000),
        }
    }

    /// When a call arrives: not at all, once or twice, or long after its instance has forgotten it.
    fn arrivals(&mut self, who: usize) -> Vec<Micros> {
        let soon = self.now + self.delay();
        let late = self.now + 4 * SECOND + self.roll(40 * SECOND);
        let cut_off = self.instances[who].cut_off_until;
        if self.now < cut_off {
            let is_lost = self.roll(2) == 0;
            return if is_lost { vec![] } else { vec![late.max(cut_off)] };
        }
        if self.network == Network::Good {
            return vec![soon];
        }
        match self.roll(100) {
            0..80 => vec![soon],
            80..86 => vec![],
            86..94 => vec![late],
            _ => vec![soon, late],
        }
    }

    fn hear(&mut self, who: usize, id: u64, answer: LeaseResponse) {
        let instance = &mut self.instances[who];
        let Some((_, is_write, asked)) = instance.call.filter(|call| call.0 == id) else {
            return;
        };
        instance.call = None;
        let now = instance.clock.at(self.now);
        let Some(machine) = &mut instance.machine else {
            return;
        };
        let (before, is_done) = (machine.until(), matches!(answer, LeaseResponse::Lease(_)));
        machine.answer(answer, now);
        let after = machine.until();
        if after > before {
            assert!(
                is_write && is_done,
                "a claim began without a write that was confirmed"
            );
            assert!(
                after <= Some(asked + RENEW_DEADLINE),
                "a claim outlasts its deadline"
            );
        }
        self.turn(who, self.now);
    }

    fn suffer(&mut self, who: usize, blow: Blow) {
        let now = self.now;
        let instance = &mut self.instances[who];
        match blow {
            Blow::Pause(seconds) => instance.asleep_until = now + seconds * SECOND,
            Blow::CutOff(seconds) => instance.cut_off_until = now + seconds * SECOND,
            Blow::Kill if instance.machine.is_some() => self.end(who),
            Blow::Stop => {
                let local = instance.clock.at(now);
                let is_calling = instance.call.take().is_some();
                let Some(machine) = &mut instance.machine else {
                    return;
                };
                if is_calling {
                    machine.answer(LeaseResponse::Failed(LeaseRequestError::Unanswered), local);
                }
                machine.stop();
                self.turn(who, now);
            }
            Blow::Kill => {}
        }
    }
}

impl Instance {
    fn new((claim, clock): (HolderIdentity, Clock)) -> Self {
        Self {
            claim,
            clock,
            machine: None,
            asleep_until: 0,
            cut_off_until: 0,
            call: None,
            turn: 0,
            lives: 0,
        }
    }

    pub fn is_current(&self, now: Micros) -> bool {
        let until = self.machine.as_ref().and_then(LeaseStateMachine::until);
        until.is_some_and(|until| self.clock.at(now) < until)
    }
}
