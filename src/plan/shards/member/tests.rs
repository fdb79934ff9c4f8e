use super::*;

mod always;
mod net;
mod world;

const HUB: Shard = Shard(0);

fn view(shards: &[u16]) -> View {
    View(shards.iter().map(|shard| Shard(*shard)).collect())
}

/// An instance, and a clock that moves with everything that it is told.
struct Story {
    member: Member,
    now: Instant,
}

impl Story {
    fn new() -> Self {
        let mut member = Member::new(HUB);
        member.settled(&Owned::nothing(HUB));
        let now = Instant::now();
        Self { member, now }
    }

    /// Reads that its own record says this, and the others' that.
    fn reads(&mut self, own: &[u16], others: &[(u16, Says)]) -> Step {
        let others = others
            .iter()
            .map(|(shard, says)| (Some(Shard(*shard)), says.clone()));
        self.reads_any(Some(view(own)), others.collect())
    }

    fn reads_any(&mut self, own: Option<View>, others: BTreeMap<Option<Shard>, Says>) -> Step {
        self.pass(1);
        let begun = self.now;
        self.pass(1);
        self.member.listed(Records { begun, own, others }, self.now);
        self.member.next_step()
    }

    fn pass(&mut self, millis: u64) {
        self.now += std::time::Duration::from_millis(millis);
    }

    fn wrote(&mut self, shards: &[u16]) -> Step {
        self.pass(1);
        self.member.written(view(shards), self.now);
        self.member.next_step()
    }

    fn settles(&mut self) -> Step {
        let told = Arc::clone(self.member.told());
        self.member.settled(&told);
        self.member.next_step()
    }

    /// Works among these, who all know it.
    fn established(shards: &[u16]) -> Self {
        let mut story = Self::new();
        let others: Vec<_> = shards
            .iter()
            .filter(|shard| **shard != 0)
            .map(|n| (*n, says(shards)))
            .collect();
        let step = story.reads(&[], &others);
        story.goes_through(step, shards);
        assert!(matches!(story.reads(shards, &others), Step::Own(_)));
        assert_eq!(story.settles(), Step::Rest);
        story
    }

    /// Settles if that is asked of it, then writes.
    fn goes_through(&mut self, step: Step, shards: &[u16]) {
        let step = if matches!(step, Step::Settle(_)) {
            self.settles()
        } else {
            step
        };
        assert_eq!(step, Step::Write(view(shards)));
        assert_eq!(
            self.wrote(shards),
            Step::Rest,
            "nothing before the others were read again"
        );
    }

    fn owns(&self, namespace: &str) -> bool {
        self.member.told().owns(namespace)
    }
}

fn says(shards: &[u16]) -> Says {
    Says::Divides(view(shards))
}

// Of 0 and 1: 0 has `OURS`, 1 has `THEIRS`.
const OURS: &str = "team-b";
const THEIRS: &str = "team-a";

/// Two lists are under way, and the answers come the other way round.
#[test]
fn a_list_that_was_asked_for_before_the_last_one_is_worth_nothing() {
    let mut story = Story::new();
    let begun = story.now;
    story.reads(&[], &[(1, says(&[1]))]);
    let old = Records {
        begun,
        own: Some(view(&[])),
        others: BTreeMap::from([(Some(Shard(1)), Says::Released)]),
    };
    story.member.listed(old, story.now);
    let step = story.member.next_step();
    story.goes_through(step, &[0, 1]);
}

#[test]
fn who_is_alone_writes_then_reads_then_works() {
    let mut story = Story::new();
    assert_eq!(story.member.next_step(), Step::Rest, "nothing was read");
    let step = story.reads(&[], &[]);
    story.goes_through(step, &[0]);
    assert!(!story.owns(OURS));
    let Step::Own(owned) = story.reads(&[0], &[]) else {
        panic!("it may work now");
    };
    assert!(owned.owns(OURS) && owned.owns(THEIRS));
    assert_eq!(story.reads(&[0], &[]), Step::Rest);
}

#[test]
fn who_comes_gets_his_share_once_it_is_given_up() {
    let mut story = Story::new();
    let step = story.reads(&[], &[(1, says(&[1]))]);
    story.goes_through(step, &[0, 1]);
    // The other has not noticed yet.
    assert!(matches!(
        story.reads(&[0, 1], &[(1, says(&[1]))]),
        Step::Own(_) | Step::Rest
    ));
    assert!(!story.owns(OURS) && !story.owns(THEIRS));
    assert!(matches!(
        story.reads(&[0, 1], &[(1, says(&[0, 1]))]),
        Step::Own(_)
    ));
    assert!(story.owns(OURS) && !story.owns(THEIRS));
}

#[test]
fn what_another_gets_is_stopped_before_it_is_written() {
    let mut story = Story::established(&[0]);
    assert!(story.owns(THEIRS));
    // A record that nobody works by yet costs nothing.
    assert_eq!(story.reads(&[0], &[(1, says(&[]))]), Step::Rest);
    let Step::Settle(owned) = story.reads(&[0], &[(1, says(&[0, 1]))]) else {
        panic!("work has to stop first");
    };
    assert!(owned.owns(OURS) && !owned.owns(THEIRS));
    assert_eq!(story.member.next_step(), Step::Rest, "the engine is not done");
    assert_eq!(story.settles(), Step::Write(view(&[0, 1])));
    assert_eq!(story.wrote(&[0, 1]), Step::Rest);
    assert!(story.owns(OURS), "what stays is never let go of");
    assert!(matches!(
        story.reads(&[0, 1], &[(1, says(&[0, 1]))]),
        Step::Own(_)
    ));
    assert!(story.owns(OURS) && !story.owns(THEIRS));
}

#[test]
fn who_goes_leaves_his_share_when_his_record_was_released_and_not_before() {
    let mut story = Story::established(&[0, 1]);
    // Nothing is seen of him for long, but nobody replaced his record.
    story.pass(60_000);
    assert_eq!(story.reads(&[0, 1], &[(1, says(&[0, 1]))]), Step::Rest);
    let step = story.reads(&[0, 1], &[(1, Says::Released)]);
    assert!(!story.owns(THEIRS));
    story.goes_through(step, &[0]);
    assert!(matches!(story.reads(&[0], &[(1, Says::Released)]), Step::Own(_)));
    assert!(story.owns(THEIRS));
    // His successor holds the record, and has said nothing yet.
    assert_eq!(story.reads(&[0], &[(1, says(&[]))]), Step::Rest);
    assert!(story.owns(THEIRS));
}

#[test]
fn who_says_nothing_may_have_everything() {
    let unknown = [
        (Some(Shard(1)), Says::Nothing),
        // An instance that is not one of several, and another with this very number.
        (None, Says::Nothing),
        (None, says(&[1])),
        (Some(HUB), says(&[0])),
        (Some(HUB), Says::Nothing),
    ];
    for (shard, says_nothing) in unknown {
        let mut story = Story::established(&[0]);
        let others = BTreeMap::from([(shard, says_nothing)]);
        let Step::Own(owned) = story.reads_any(Some(view(&[0])), others) else {
            panic!("it has to stop");
        };
        assert!(!owned.owns(OURS));
        let gone = BTreeMap::from([(shard, Says::Released)]);
        assert!(matches!(story.reads_any(Some(view(&[0])), gone), Step::Own(_)));
        assert!(story.owns(OURS));
    }
}

#[test]
fn a_list_that_was_asked_for_before_the_write_is_worth_nothing() {
    let mut story = Story::new();
    let before = story.now;
    let step = story.reads(&[], &[]);
    story.goes_through(step, &[0]);
    let late = Records {
        begun: before,
        own: Some(view(&[])),
        others: BTreeMap::new(),
    };
    story.member.listed(late, story.now);
    assert_eq!(story.member.next_step(), Step::Rest);
    assert!(!story.owns(OURS));
    // What it said of the own record is no news either.
    assert!(matches!(story.reads(&[0], &[]), Step::Own(_)));
}

#[test]
fn a_write_that_was_not_answered_may_have_been_done() {
    let mut story = Story::established(&[0]);
    assert!(matches!(
        story.reads(&[0], &[(1, says(&[0, 1]))]),
        Step::Settle(_)
    ));
    assert_eq!(story.settles(), Step::Write(view(&[0, 1])));
    // No answer, and the other is gone again: his successor may rely on what was written meanwhile.
    assert_eq!(story.reads(&[0], &[(1, Says::Released)]), Step::Write(view(&[0])));
    assert!(story.owns(OURS) && !story.owns(THEIRS));
    assert_eq!(story.wrote(&[0]), Step::Rest);
    assert!(matches!(story.reads(&[0], &[(1, Says::Released)]), Step::Own(_)));
    assert!(story.owns(THEIRS));
}

#[test]
fn a_record_that_somebody_changed_or_deleted_is_written_again_before_any_work() {
    for meddled in [None, Some(view(&[])), Some(view(&[0, 1]))] {
        let mut story = Story::established(&[0]);
        let step = story.reads_any(meddled, BTreeMap::new());
        assert!(matches!(step, Step::Settle(_)) && !story.owns(OURS));
        story.goes_through(step, &[0]);
        assert!(matches!(story.reads(&[0], &[]), Step::Own(_)));
        assert!(story.owns(OURS));
    }
}

#[test]
fn a_record_that_vanished_counts_for_as_long_as_its_holders_claim_may_last() {
    let mut story = Story::established(&[0, 1]);
    assert_eq!(story.reads(&[0, 1], &[]), Step::Rest);
    story.pass(14_000);
    assert_eq!(story.reads(&[0, 1], &[]), Step::Rest);
    story.pass(1_000);
    assert_eq!(story.reads(&[0, 1], &[]), Step::Write(view(&[0])));
}

#[test]
fn who_comes_while_the_engine_settles_is_waited_for_too() {
    let mut story = Story::established(&[0]);
    assert!(matches!(
        story.reads(&[0], &[(1, says(&[0, 1]))]),
        Step::Settle(_)
    ));
    let first = Arc::clone(story.member.told());
    let both = [(1, says(&[0, 1])), (2, says(&[0, 1, 2]))];
    assert!(matches!(story.reads(&[0], &both), Step::Settle(_)));
    story.member.settled(&first);
    assert_eq!(
        story.member.next_step(),
        Step::Rest,
        "that is not what it was told last"
    );
    assert_eq!(story.settles(), Step::Write(view(&[0, 1, 2])));
}
