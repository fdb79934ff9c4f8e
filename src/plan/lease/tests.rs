use super::*;

const CLUSTER: &str = "0123abcd-0000-4000-8000-000000000000";

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

fn claim(shard: &str, holder: &str, watched: &[&str]) -> Claim {
    Claim {
        hub_id: HubId::new(shard, CLUSTER).unwrap(),
        holder: holder.to_owned(),
        process: format!("{shard}/{holder}"),
        rendering: "rendering".to_owned(),
        watched: Watched::new(&names(watched)),
    }
}

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn record(claim: &Claim, second: i64) -> Record {
    Record::of(&claim.lease(None, at(second))).unwrap()
}

#[test]
fn a_record_says_what_was_claimed() {
    let claim = claim("east", "hub-0", &["b", "a"]);
    let lease = claim.lease(None, at(1));
    assert_eq!(lease.metadata.name.as_deref(), Some("renderhub-east-0123abcd"));
    let spec = lease.spec.clone().unwrap();
    assert_eq!(
        (spec.lease_duration_seconds, spec.lease_transitions),
        (Some(15), Some(0))
    );
    let record = Record::of(&lease).unwrap();
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
    let taken = first.lease(None, at(1));
    let renewed = first.lease(Some(&taken), at(6)).spec.unwrap();
    assert_eq!(renewed.acquire_time, Some(MicroTime(at(1))));
    assert_eq!(
        (renewed.renew_time, renewed.lease_transitions),
        (Some(MicroTime(at(6))), Some(0))
    );
    let second = Claim {
        process: "another".to_owned(),
        ..first.clone()
    };
    assert!(!second.holds(&taken));
    let taken_over = second.lease(Some(&taken), at(7));
    assert!(second.holds(&taken_over) && !first.holds(&taken_over));
    let spec = taken_over.spec.unwrap();
    assert_eq!(
        (spec.acquire_time, spec.lease_transitions),
        (Some(MicroTime(at(7))), Some(1))
    );
}

#[test]
fn who_stands_against_whom() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let kind = |other: &Claim| ours.conflict(&record(other, 1)).map(|conflict| conflict.kind);
    // The same hub: a restart in place goes on, another instance waits.
    assert_eq!(kind(&ours), None);
    assert_eq!(kind(&claim("east", "hub-0", &["z"])), None);
    assert_eq!(kind(&claim("east", "hub-1", &["z"])), Some(ConflictKind::SameId));
    // Another hub: only what both serve counts, whoever the instance is.
    assert_eq!(kind(&claim("west", "hub-0", &["c", "d"])), None);
    let overlap = |meeting| Some(ConflictKind::Overlap(meeting));
    assert_eq!(
        kind(&claim("west", "hub-0", &["b", "c"])),
        overlap(Meeting::Names(names(&["b"])))
    );
    assert_eq!(kind(&claim("west", "hub-0", &[])), overlap(Meeting::Everything));
    let all = claim("all", "hub-0", &[]);
    let theirs = all.conflict(&record(&ours, 1)).map(|conflict| conflict.kind);
    assert_eq!(theirs, overlap(Meeting::Everything));
}

#[test]
fn a_released_record_stands_against_nobody() {
    let other = claim("west", "hub-1", &[]);
    let released = Claim::released(&other.lease(None, at(1)), at(2));
    let record = Record::of(&released).unwrap();
    assert_eq!(claim("east", "hub-0", &[]).conflict(&record), None);
    assert_eq!(claim("west", "hub-0", &[]).conflict(&record), None);
    assert!(!other.holds(&released));
}

#[test]
fn a_list_too_long_to_be_written_down_is_not_taken_for_disjoint() {
    let many: Vec<String> = (0..=MAX_LISTED).map(|number| format!("n{number:05}")).collect();
    let long = Claim {
        watched: Watched::new(&many),
        ..claim("west", "hub-1", &[])
    };
    let theirs = record(&long, 1);
    let Watched::Only { names: written, .. } = &theirs.watched else {
        panic!("everything");
    };
    assert_eq!(written.len(), MAX_LISTED);
    let unknown = claim("east", "hub-0", &["elsewhere"]).conflict(&theirs).unwrap();
    assert_eq!(unknown.kind, ConflictKind::Overlap(Meeting::Unknown));
    let known = claim("east", "hub-0", &["n00007"]).conflict(&theirs).unwrap();
    assert_eq!(
        known.kind,
        ConflictKind::Overlap(Meeting::Names(names(&["n00007"])))
    );
}

#[test]
fn a_record_that_says_nothing_stands_for_everything() {
    let mut lease = claim("west", "hub-1", &["c"]).lease(None, at(1));
    lease.metadata.annotations = None;
    let conflict = claim("east", "hub-0", &["a"])
        .conflict(&Record::of(&lease).unwrap())
        .unwrap();
    assert_eq!(conflict.kind, ConflictKind::Overlap(Meeting::Everything));
    // A list that was changed by hand is not believed to be whole.
    let mut lease = claim("west", "hub-1", &["c"]).lease(None, at(1));
    lease
        .metadata
        .annotations
        .get_or_insert_default()
        .insert(WATCH_NAMESPACES.to_owned(), "d".to_owned());
    let conflict = claim("east", "hub-0", &["a"])
        .conflict(&Record::of(&lease).unwrap())
        .unwrap();
    assert_eq!(conflict.kind, ConflictKind::Overlap(Meeting::Unknown));
    // What is no hub's is nothing to us.
    lease.metadata.name = Some("something-else".to_owned());
    assert_eq!(Record::of(&lease), None);
}

/// What is known at each second of a watch: the records are written at these seconds by the peer's clock.
fn watched(seconds_and_renewals: &[(u64, i64)]) -> Vec<(usize, usize, usize)> {
    let begin = Instant::now();
    let (ours, theirs) = (claim("east", "hub-0", &[]), claim("east", "hub-1", &[]));
    let mut lookout = Lookout::default();
    let look = |(second, renewal): &(u64, i64)| {
        let now = begin + Duration::from_secs(*second);
        let seen = lookout.look(&ours, &[record(&theirs, *renewal)], now);
        (seen.alive.len(), seen.unsure.len(), seen.dead.len())
    };
    seconds_and_renewals.iter().map(look).collect()
}

#[test]
fn who_renews_is_alive_and_who_is_silent_for_the_whole_duration_is_gone() {
    let (alive, unsure, dead) = ((1, 0, 0), (0, 1, 0), (0, 0, 1));
    // The peer's clock is far off both times; only whether it moves counts.
    assert_eq!(watched(&[(0, 7), (5, 7), (6, 12)]), [unsure, unsure, alive]);
    assert_eq!(
        watched(&[(0, 7), (14, 7), (15, 7), (16, 7)]),
        [unsure, unsure, dead, dead]
    );
    // A change is life even when it comes late.
    assert_eq!(watched(&[(0, 7), (15, 8)]), [unsure, alive]);
}

#[test]
fn a_record_that_is_released_while_it_is_watched_is_out_of_the_way() {
    let begin = Instant::now();
    let (ours, theirs) = (claim("east", "hub-0", &[]), claim("west", "hub-1", &[]));
    let taken = theirs.lease(None, at(1));
    let released = Record::of(&Claim::released(&taken, at(2))).unwrap();
    let mut lookout = Lookout::default();
    assert_eq!(
        lookout
            .look(&ours, &[Record::of(&taken).unwrap()], begin)
            .unsure
            .len(),
        1
    );
    assert_eq!(lookout.look(&ours, &[released], begin), Outlook::default());
    // Taken again, it is watched anew.
    let again = record(&theirs, 30);
    let late = begin + Duration::from_secs(60);
    assert_eq!(lookout.look(&ours, &[again], late).unsure.len(), 1);
}

#[test]
fn nonsense_in_a_record_holds_nobody_up_for_long() {
    for (seconds, expected) in [(None, 15), (Some(-1), 15), (Some(1), 1), (Some(i32::MAX), 60)] {
        let mut lease = claim("west", "hub-1", &[]).lease(None, at(1));
        lease.spec.as_mut().unwrap().lease_duration_seconds = seconds;
        assert_eq!(
            Record::of(&lease).unwrap().duration,
            Duration::from_secs(expected)
        );
    }
}

#[test]
fn the_finding_names_the_peer_and_what_both_serve() {
    let ours = claim("east", "hub-0", &["a", "b"]);
    let told = |other: &Claim| finding(&[ours.conflict(&record(other, 1)).unwrap()]).message;
    assert_eq!(
        told(&claim("west", "hub-1", &["b"])),
        "the hub west-0123abcd (hub-1) serves b too"
    );
    assert!(told(&claim("east", "hub-1", &["b"])).contains("runs with the same hub id"));
    assert!(told(&claim("west", "hub\n1", &[])).contains("hub\\n1"));
    assert!(finding(&[]).fix.is_empty());
}
