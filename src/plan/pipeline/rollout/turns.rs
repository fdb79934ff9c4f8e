//! Whose turn it is.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

/// Of so many Targets one may fail before a rollout halts.
const ONE_IN: usize = 10;

/// The standing of a Target for a Release as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutStanding {
    /// Its newest version that is pushed has it.
    Updated,
    /// It had none before and gets it at once: it holds no place.
    Joining {
        /// Whether a chart failed, and has not been pushed since.
        has_failed: bool,
    },
    /// A version with another chart of it is made and not pushed: it holds a place.
    OnItsWay {
        /// Whether a chart that has the Release as it is now failed, and has not been pushed since.
        has_failed: bool,
    },
    /// Its newest version has it as it was before.
    Behind {
        /// Whether the new chart failed, and has not been pushed since.
        has_failed: bool,
    },
    /// Nothing can be done for it: it is suspended or pinned, it has no registry, or something else of it failed.
    PassedOver,
}

/// Whether a Target gets a Release as it is now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RolloutTurn {
    /// It does.
    Now,
    /// Others come first.
    Waits,
    /// None does any more, because too many failed.
    Halted,
    /// It is not known yet.
    Unknown,
}

/// How far a rollout is, and whose turn it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RolloutPlan {
    /// Targets that the Profile matches.
    pub matched: usize,
    /// Those that have it, pushed.
    pub updated: usize,
    /// Those that hold a place.
    pub working: usize,
    /// Those that wait for a place.
    pub waiting: usize,
    /// Those on which it failed.
    pub failed: usize,
    /// Those that are behind and are passed over.
    pub passed_over: usize,
    /// Whether it goes no further until fewer have failed.
    pub is_halted: bool,
}

impl RolloutPlan {
    /// Whether something is under way or waits.
    #[must_use]
    pub const fn is_running(&self) -> bool {
        self.working + self.waiting > 0
    }
}

/// The places that a limit gives: never none, so that each rollout ends.
pub(super) fn places(limit: &IntOrString, matched: usize) -> usize {
    let places = match limit {
        IntOrString::Int(number) => usize::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|number| number.parse().ok());
            matched.saturating_mul(percent.unwrap_or_default()) / 100
        }
    };
    places.max(1)
}

/// How far a rollout is, and whose turn it is: one for each Target, in their order.
pub(super) fn turns(limit: &IntOrString, standings: &[RolloutStanding]) -> (RolloutPlan, Vec<RolloutTurn>) {
    let count = |is_one: fn(&RolloutStanding) -> bool| standings.iter().filter(|one| is_one(one)).count();
    let places = places(limit, standings.len());
    let on_their_way = count(|one| matches!(one, RolloutStanding::OnItsWay { .. }));
    let mut free = places.saturating_sub(on_their_way);
    let has_place: Vec<bool> = standings.iter().map(|one| takes_place(*one, &mut free)).collect();
    let (mut failed, mut stuck) = (0, 0);
    for (standing, has_place) in standings.iter().zip(&has_place) {
        failed += usize::from(has_failed(*standing, *has_place));
        stuck += usize::from(*has_place && has_failed(*standing, true));
    }
    let is_halted = failed > 0 && (failed.saturating_mul(ONE_IN) >= standings.len() || stuck >= places);
    let turn = |(standing, has_place): (&RolloutStanding, &bool)| match standing {
        // One that failed keeps its place: its chart is tried again.
        RolloutStanding::Behind { has_failed } if *has_place && (*has_failed || !is_halted) => {
            RolloutTurn::Now
        }
        RolloutStanding::Behind { .. } if is_halted => RolloutTurn::Halted,
        RolloutStanding::Behind { .. } | RolloutStanding::PassedOver => RolloutTurn::Waits,
        _ => RolloutTurn::Now,
    };
    let turns: Vec<RolloutTurn> = standings.iter().zip(&has_place).map(turn).collect();
    let waits = |turn: &RolloutTurn| *turn != RolloutTurn::Now;
    let passed_over = count(|one| *one == RolloutStanding::PassedOver);
    let waiting = turns.iter().filter(|turn| waits(turn)).count() - passed_over;
    let plan = RolloutPlan {
        matched: standings.len(),
        updated: count(|one| *one == RolloutStanding::Updated),
        working: on_their_way + count(|one| matches!(one, RolloutStanding::Behind { .. })) - waiting,
        waiting,
        failed,
        passed_over,
        is_halted,
    };
    (plan, turns)
}

/// Whether a Target has a place; one that is behind takes one of those that are free.
fn takes_place(standing: RolloutStanding, free: &mut usize) -> bool {
    match standing {
        RolloutStanding::OnItsWay { .. } => true,
        RolloutStanding::Behind { .. } if *free > 0 => {
            *free -= 1;
            true
        }
        _ => false,
    }
}

/// Whether the Release as it is now reached a Target and failed there.
fn has_failed(standing: RolloutStanding, has_place: bool) -> bool {
    match standing {
        RolloutStanding::Joining { has_failed } | RolloutStanding::OnItsWay { has_failed } => has_failed,
        RolloutStanding::Behind { has_failed } => has_failed && has_place,
        RolloutStanding::Updated | RolloutStanding::PassedOver => false,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::RolloutStanding::{Behind, Joining, OnItsWay, PassedOver, Updated};
    use super::RolloutTurn::{Halted, Now, Unknown, Waits};
    use super::*;

    const BEHIND: RolloutStanding = Behind { has_failed: false };
    const FAILED: RolloutStanding = Behind { has_failed: true };
    const WORKING: RolloutStanding = OnItsWay { has_failed: false };
    const STUCK: RolloutStanding = OnItsWay { has_failed: true };

    #[test]
    fn a_limit_gives_so_many_places_and_never_none() {
        for (limit, matched, expected) in [
            (IntOrString::Int(1), 20, 1),
            (IntOrString::Int(7), 3, 7),
            (IntOrString::String("10%".to_owned()), 20, 2),
            (IntOrString::String("10%".to_owned()), 29, 2),
            (IntOrString::String("1%".to_owned()), 20, 1),
            (IntOrString::String("100%".to_owned()), 20, 20),
            (IntOrString::String("100%".to_owned()), 0, 1),
            // What the schema does not admit.
            (IntOrString::Int(0), 20, 1),
            (IntOrString::Int(-3), 20, 1),
            (IntOrString::String("many".to_owned()), 20, 1),
        ] {
            assert_eq!(places(&limit, matched), expected, "{limit:?} of {matched}");
        }
    }

    #[test]
    fn places_go_to_the_first_that_are_behind_and_a_tenth_that_failed_ends_it() {
        // The limit, how the Targets stand, and whose turn it is.
        let eleven = |first: RolloutStanding| {
            let mut all = vec![Updated; 11];
            (all[0], all[10]) = (first, BEHIND);
            all
        };
        let mut of_eleven = vec![Now; 11];
        let rows = [
            (1, vec![BEHIND, BEHIND, BEHIND], vec![Now, Waits, Waits]),
            (2, vec![BEHIND, BEHIND, BEHIND], vec![Now, Now, Waits]),
            (1, vec![Updated, BEHIND, BEHIND], vec![Now, Now, Waits]),
            (1, vec![BEHIND, WORKING], vec![Waits, Now]),
            (1, vec![WORKING, WORKING, BEHIND], vec![Now, Now, Waits]),
            (
                2,
                vec![Joining { has_failed: false }, BEHIND, BEHIND, BEHIND],
                vec![Now, Now, Now, Waits],
            ),
            // Those for which nothing can be done hold no place.
            (1, vec![PassedOver, BEHIND, BEHIND], vec![Waits, Now, Waits]),
            // One of ten failed: none but that one goes on.
            (3, vec![STUCK, BEHIND, BEHIND], vec![Now, Halted, Halted]),
            (3, vec![BEHIND, FAILED, BEHIND], vec![Halted, Now, Halted]),
            (
                3,
                vec![Joining { has_failed: true }, BEHIND, BEHIND],
                vec![Now, Halted, Halted],
            ),
            // One that is not reached did not fail.
            (1, vec![BEHIND, FAILED, BEHIND], vec![Now, Waits, Waits]),
            // One of eleven failed, which is less than a tenth; the other places are used.
            (2, eleven(STUCK), of_eleven.clone()),
            (2, eleven(FAILED), of_eleven.clone()),
        ];
        for (limit, standings, expected) in rows {
            assert_eq!(
                turns(&IntOrString::Int(limit), &standings).1,
                expected,
                "{limit} {standings:?}"
            );
        }
        // Less than a tenth, but there is no other place.
        of_eleven[10] = Halted;
        let (plan, turns) = turns(&IntOrString::Int(1), &eleven(STUCK));
        assert_eq!((plan.is_halted, turns), (true, of_eleven));
    }

    #[test]
    fn a_plan_counts_each_target_once() {
        let standings = [
            Updated,
            WORKING,
            BEHIND,
            BEHIND,
            PassedOver,
            Joining { has_failed: false },
        ];
        let (plan, _) = turns(&IntOrString::Int(2), &standings);
        let expected = RolloutPlan {
            matched: 6,
            updated: 1,
            working: 2,
            waiting: 1,
            failed: 0,
            passed_over: 1,
            is_halted: false,
        };
        assert_eq!(plan, expected);
        assert!(plan.is_running());
        assert!(!turns(&IntOrString::Int(2), &[Updated, PassedOver]).0.is_running());
    }

    /// A Target in contents that follow one another.
    #[derive(Clone, Copy, Debug, Default)]
    struct Simulated {
        /// What its newest version holds, and the newest that is pushed.
        held: u32,
        pushed: u32,
        /// What a worker makes a version of.
        making: Option<u32>,
        /// The content whose chart failed, or that of its version.
        failed: Option<u32>,
        is_suspended: bool,
    }

    impl Simulated {
        fn newest(&self) -> u32 {
            self.making.unwrap_or(self.held)
        }

        fn is_on_its_way(&self) -> bool {
            self.newest() != self.pushed
        }

        fn standing(&self, content: u32) -> RolloutStanding {
            let has_failed = self.failed == Some(content);
            match (self.is_suspended, self.is_on_its_way()) {
                (true, _) => PassedOver,
                (_, true) => OnItsWay { has_failed },
                _ if self.newest() == content => Updated,
                _ => Behind { has_failed },
            }
        }
    }

    /// What may happen, to the Target of a number.
    #[derive(Clone, Copy, Debug)]
    enum Happening {
        Look,
        Decide(usize),
        Land(usize),
        Push(usize),
        Fail(usize),
        Mend(usize),
        Suspend(usize),
        Change,
        Restart,
    }

    fn happenings() -> impl Strategy<Value = Vec<Happening>> {
        let one = |make: fn(usize) -> Happening| (0..12usize).prop_map(make);
        let any = prop_oneof![
            4 => Just(Happening::Look),
            8 => one(Happening::Decide),
            5 => one(Happening::Land),
            5 => one(Happening::Push),
            2 => one(Happening::Fail),
            2 => one(Happening::Mend),
            1 => one(Happening::Suspend),
            1 => Just(Happening::Change),
            1 => Just(Happening::Restart),
        ];
        prop::collection::vec(any, 0..120)
    }

    /// A fleet, the content that it should have, and what the hub knew when it looked last.
    struct Fleet {
        targets: Vec<Simulated>,
        content: u32,
        limit: IntOrString,
        look: Option<(u32, Vec<RolloutTurn>)>,
        made: Vec<usize>,
    }

    impl Fleet {
        fn new(count: usize, places: i32) -> Self {
            Self {
                targets: vec![Simulated::default(); count],
                content: 1,
                limit: IntOrString::Int(places),
                look: None,
                made: Vec::new(),
            }
        }

        fn look(&mut self) {
            let standings: Vec<_> = self.targets.iter().map(|t| t.standing(self.content)).collect();
            self.look = Some((self.content, turns(&self.limit, &standings).1));
        }

        /// Decides by what was known at the last look; what was decided meanwhile is not in it.
        fn decide(&mut self, number: usize) {
            let Some((content, turns)) = &self.look else {
                return;
            };
            let target = &mut self.targets[number];
            let turn = if *content == self.content {
                turns[number]
            } else {
                Unknown
            };
            let is_rendered = target.failed != Some(self.content);
            if turn == Now && is_rendered && !target.is_suspended && target.newest() != self.content {
                target.making = Some(self.content);
                self.made.push(number);
            }
        }

        fn happens(&mut self, happening: Happening) {
            let count = self.targets.len();
            match happening {
                Happening::Look => self.look(),
                Happening::Decide(number) => self.decide(number % count),
                Happening::Land(number) => self.land(number % count),
                Happening::Push(number) => {
                    let target = &mut self.targets[number % count];
                    if target.making.is_none() && target.failed != Some(target.held) {
                        target.pushed = target.held;
                    }
                }
                Happening::Fail(number) => {
                    let content = self.content;
                    let target = &mut self.targets[number % count];
                    if target.pushed != content {
                        target.failed = Some(content);
                    }
                }
                Happening::Mend(number) => self.targets[number % count].failed = None,
                Happening::Suspend(number) => {
                    let target = &mut self.targets[number % count];
                    // One that is on its way is counted again once it goes on, which nothing can keep within the limit.
                    target.is_suspended = !target.is_suspended && !target.is_on_its_way();
                }
                Happening::Change => self.content += 1,
                Happening::Restart => {
                    (0..count).for_each(|number| self.land(number));
                    self.look = None;
                }
            }
        }

        fn land(&mut self, number: usize) {
            let target = &mut self.targets[number];
            target.held = target.making.take().unwrap_or(target.held);
        }

        fn on_their_way(&self) -> usize {
            self.targets
                .iter()
                .filter(|target| target.is_on_its_way())
                .count()
        }

        /// One round in which everything succeeds.
        fn round(&mut self) {
            self.look();
            for number in 0..self.targets.len() {
                self.decide(number);
                self.land(number);
                self.targets[number].pushed = self.targets[number].held;
            }
        }
    }

    proptest! {
        /// Holds: F15.
        #[test]
        fn no_more_are_on_their_way_than_there_are_places_whatever_happens(
            count in 1..12usize, places in 1..5i32, happenings in happenings()
        ) {
            let mut fleet = Fleet::new(count, places);
            for happening in happenings {
                fleet.happens(happening);
                prop_assert!(fleet.on_their_way() <= usize::try_from(places).unwrap(), "{happening:?}");
            }
            // Once nothing fails any more, everybody is reached.
            for target in &mut fleet.targets {
                (target.failed, target.is_suspended) = (None, false);
            }
            for _ in 0..=count {
                fleet.round();
            }
            prop_assert!(fleet.targets.iter().all(|target| target.pushed == fleet.content));
        }

        #[test]
        fn targets_are_reached_in_their_order(count in 1..12usize, places in 1..5i32) {
            let mut fleet = Fleet::new(count, places);
            for _ in 0..=count {
                fleet.round();
            }
            prop_assert_eq!(fleet.made, (0..count).collect::<Vec<_>>());
        }

        #[test]
        fn a_rollout_that_halted_reaches_none_but_those_that_failed(
            standings in prop::collection::vec(
                prop_oneof![Just(Updated), Just(BEHIND), Just(FAILED), Just(WORKING), Just(STUCK), Just(PassedOver)], 1..40
            ),
            places in 1..8i32
        ) {
            let (plan, turns) = turns(&IntOrString::Int(places), &standings);
            let reached: Vec<_> = standings.iter().zip(&turns)
                .filter(|(standing, turn)| matches!(standing, Behind { .. }) && **turn == Now)
                .map(|(standing, _)| *standing)
                .collect();
            prop_assert!(!plan.is_halted || reached.iter().all(|standing| *standing == FAILED));
            prop_assert!(plan.failed == 0 || plan.is_halted || plan.failed * 10 < standings.len());
            let on_their_way = standings.iter().filter(|one| matches!(one, OnItsWay { .. })).count();
            prop_assert!(on_their_way + reached.len() <= usize::try_from(places).unwrap().max(on_their_way));
            prop_assert_eq!(plan.working, on_their_way + reached.len());
        }
    }
}
