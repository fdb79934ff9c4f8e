//! What holds whatever happens to instances and to what they send.

use std::time::Instant;

use proptest::prelude::*;

use super::net::{Answer, Dice, Net, Sender, Weather};
use super::world::{Around, Process};

/// Milliseconds of a step.
const STEP: u64 = 50;
/// When the last fault is over.
const CALM: u64 = 60_000;
/// By when everything is worked on again: 15 seconds until who is gone is known to be, and some looks and writes.
const MENDED: u64 = CALM + 35_000;
const END: u64 = MENDED + 10_000;

/// What happens to a place.
#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Its process does nothing for so long; then it goes on as though nothing had been.
    Pause(u64),
    /// Its process is gone at once, and another one is started later.
    Kill(u64),
    /// The same, but it releases its record.
    Stop(u64),
    /// Its network is like this for so long.
    Weather(Weather, u64),
}

#[derive(Clone, Debug)]
struct Plan {
    count: u16,
    places: usize,
    seed: u64,
    is_eager: bool,
    /// Whether the first place begins with a process that knows nothing of shards.
    has_old: bool,
    faults: Vec<(u64, usize, Fault)>,
}

fn fault() -> impl Strategy<Value = Fault> {
    prop_oneof![
        (500..40_000_u64).prop_map(Fault::Pause),
        (0..20_000_u64).prop_map(Fault::Kill),
        (0..20_000_u64).prop_map(Fault::Stop),
        (1_000..40_000_u64).prop_map(|length| Fault::Weather(Weather::Bad, length)),
        (1_000..30_000_u64).prop_map(|length| Fault::Weather(Weather::Cut, length)),
    ]
}

fn plan() -> impl Strategy<Value = Plan> {
    let faults = prop::collection::vec((3_000..CALM, 0..6_usize, fault()), 0..14);
    let (count, places) = (2..5_u16, 2..7_usize);
    (count, places, any::<u64>(), any::<bool>(), any::<bool>(), faults).prop_map(
        |(count, places, seed, is_eager, has_old, faults)| Plan {
            count,
            places,
            seed,
            is_eager,
            has_old,
            faults,
        },
    )
}

/// A place where processes run one after the other.
struct Place {
    process: Option<Process>,
    starts_at: u64,
    paused_until: u64,
    weather_until: u64,
    /// What arrived while the process was paused.
    mail: Vec<(Sender, u64, Answer)>,
}

struct World {
    plan: Plan,
    names: Vec<String>,
    places: Vec<Place>,
    weather: Vec<Weather>,
    net: Net,
    dice: Dice,
    start: Instant,
    now: u64,
    number: u64,
    processes: u64,
}

/// The world around a place; a macro, because the place itself is lent out at the same time.
macro_rules! around {
    ($world:ident, $place:ident) => {
        Around {
            now: $world.now,
            start: $world.start,
            weather: $world.weather[$place],
            dice: &mut $world.dice,
            net: &mut $world.net,
            count: $world.plan.count,
            names: &$world.names,
            number: &mut $world.number,
            is_eager: $world.plan.is_eager,
        }
    };
}

impl World {
    fn new(plan: Plan) -> Self {
        let mut dice = Dice(plan.seed);
        let place = |number: usize| {
            let is_late = plan.has_old && number > 0;
            Place {
                process: None,
                starts_at: if is_late { 3_000 } else { 0 } + dice.below(6_000) * u64::from(number > 0),
                paused_until: 0,
                weather_until: CALM,
                mail: Vec::new(),
            }
        };
        let places: Vec<Place> = (0..plan.places).map(place).collect();
        Self {
            names: (0..12).map(|number| format!("tenant-{number}")).collect(),
            weather: vec![Weather::Good; plan.places],
            places,
            net: Net::default(),
            dice,
            start: Instant::now(),
            now: 0,
            number: 0,
            processes: 0,
            plan,
        }
    }

    /// Lets a step of time pass.
    fn pass(&mut self) {
        self.now += STEP;
        for (at, place, fault) in self.plan.faults.clone() {
            if at / STEP == self.now / STEP && place < self.places.len() {
                self.happens(place, fault);
            }
        }
        for mail in self.net.deliver(self.now, &self.weather, &mut self.dice) {
            self.places[mail.0.0].mail.push(mail);
        }
        for place in 0..self.places.len() {
            self.step(place);
        }
    }

    fn happens(&mut self, place: usize, fault: Fault) {
        let at = &mut self.places[place];
        match fault {
            Fault::Pause(length) => at.paused_until = (self.now + length).min(CALM),
            Fault::Weather(weather, length) => {
                self.weather[place] = weather;
                at.weather_until = (self.now + length).min(CALM);
            }
            Fault::Kill(pause) | Fault::Stop(pause) => {
                at.starts_at = (self.now + pause).min(CALM);
                let process = at.process.take();
                // One that sleeps is not asked, and one that ends by itself had no work left when it said so.
                let is_asked = matches!(fault, Fault::Stop(_)) && self.now >= at.paused_until;
                if let (true, Some(mut process)) = (is_asked, process) {
                    process.release(&mut around!(self, place));
                }
                self.places[place].paused_until = 0;
            }
        }
    }

    fn step(&mut self, place: usize) {
        let at = &mut self.places[place];
        if self.now >= at.weather_until {
            self.weather[place] = Weather::Good;
        }
        if self.now < at.paused_until {
            return;
        }
        if at.process.is_none() && self.now >= at.starts_at {
            self.processes += 1;
            let is_old = self.plan.has_old && place == 0 && self.processes == 1;
            at.process = Some(Process::new((place, self.processes), is_old, self.now));
        }
        for (to, number, answer) in std::mem::take(&mut at.mail) {
            let process = self.places[place].process.as_mut();
            let Some(process) = process.filter(|process| process.id == to.1) else {
                continue;
            };
            if !process.answered(&mut around!(self, place), number, answer) {
                self.places[place].process = None;
                self.places[place].starts_at = self.now + 1_000 + self.dice.below(2_000);
            }
        }
        if let Some(process) = &mut self.places[place].process {
            process.step(&mut around!(self, place));
        }
    }

    /// Who works on what, as bits for each place. One that is paused counts, since it may wake at any moment.
    fn work(&self) -> Vec<u16> {
        let works_on = |place: &Place| {
            place
                .process
                .as_ref()
                .map_or(0, |process| process.works_on(self.now))
        };
        self.places.iter().map(works_on).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn no_namespace_is_ever_worked_on_twice_and_in_the_end_each_is_once(plan in plan()) {
        let mut world = World::new(plan);
        let all = (1_u16 << world.names.len()) - 1;
        let mut old = world.plan.has_old;
        while world.now < END {
            if old && world.now >= CALM {
                // Whoever knows nothing of shards is replaced in the end.
                old = false;
                if world.places[0].process.as_ref().is_some_and(|process| process.is_old) {
                    world.happens(0, Fault::Kill(1_000));
                }
            }
            world.pass();
            let work = world.work();
            let mut taken = 0;
            for bits in &work {
                prop_assert_eq!(taken & bits & all, 0, "at {}: {:?}", world.now, &work);
                taken |= bits;
            }
            if world.now >= MENDED {
                prop_assert_eq!(taken & all, all, "at {}: {:?}", world.now, &work);
            }
        }
    }
}
