//! The seeds of the fuzz targets of the decoders and what they found, on every run; and the same targets on seeds that were
//! changed at random.

use std::path::Path;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use proptest::sample::{Index, select};
use proptest::test_runner::{Config, TestRunner};

use super::targets;
use ::support::programs;

/// What a target does with any bytes.
type Target = fn(&[u8]);
/// Cases of each target.
const CASES: u32 = 1_500;
/// Seconds that each target is tried for, instead of so many cases; and which one, instead of all.
const SECONDS: &str = "RENDERHUB_FUZZ_SECONDS";
const TARGET: &str = "RENDERHUB_FUZZ_TARGET";
/// The targets, with the fewest seeds that each has.
#[rustfmt::skip]
const TARGETS: [(&str, Target, usize); 6] = [
    ("objects", targets::objects, 8),
    ("jobs", targets::jobs, 8),
    ("lines", targets::lines, 8),
    ("task", targets::task, 8),
    ("ledger", targets::ledger, 6),
    ("annotations", targets::annotations, 8),
];
/// What is put in somewhere: the syntax of JSON, and what is no value of its kind.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "{", "}", "[", "]", ",", ":", "\"", "\\", "\n", "\0", "{}", "[]", "null", "true", "0", "-1", "1e15", "1e400", "9223372036854775808",
    "\"\"", "\"../..\"", "\"a/b\"", "\"\\u0000\"", "\"\\ud800\"", "é", "\u{feff}", "\"items\":[],", "\"metadata\":null,", "\"labels\":{},",
    "\"9999-99-99T99:99:99Z\"", "\"-009999-01-01T00:00:00Z\"", "{\"a\":{\"a\":{\"a\":{}}}}",
];

/// Every file of a target.
fn seeds(target: &str) -> Vec<Vec<u8>> {
    let corpus = Path::new(programs::ROOT).join("tests/fuzz/corpus");
    let files = std::fs::read_dir(corpus.join(target)).unwrap();
    files
        .map(|file| std::fs::read(file.unwrap().path()).unwrap())
        .collect()
}

/// One change: a text is inserted, some bytes are removed, or some are repeated, somewhere else.
#[derive(Clone, Debug)]
enum Edit {
    Put(Index, &'static str),
    Cut(Index, usize),
    Copy(Index, usize, Index),
    Flip(Index, u8),
}

fn edit() -> impl Strategy<Value = Edit> {
    let place = any::<Index>;
    prop_oneof![
        (place(), select(WORDS)).prop_map(|(at, word)| Edit::Put(at, word)),
        (place(), 1_usize..40).prop_map(|(at, count)| Edit::Cut(at, count)),
        (place(), 1_usize..200, place()).prop_map(|(from, count, to)| Edit::Copy(from, count, to)),
        (place(), any::<u8>()).prop_map(|(at, byte)| Edit::Flip(at, byte)),
    ]
}

impl Edit {
    fn apply(&self, bytes: &mut Vec<u8>) {
        let from = |at: &Index, count: usize, len: usize| {
            let at = at.index(len + 1);
            at..(at + count).min(len)
        };
        match self {
            Self::Put(at, word) => {
                let at = at.index(bytes.len() + 1);
                bytes.splice(at..at, word.bytes());
            }
            Self::Cut(at, count) => _ = bytes.drain(from(at, *count, bytes.len())),
            Self::Copy(at, count, to) => {
                let copy = bytes[from(at, *count, bytes.len())].to_vec();
                let to = to.index(bytes.len() + 1);
                bytes.splice(to..to, copy);
            }
            Self::Flip(at, byte) => {
                let at = at.index(bytes.len().max(1));
                bytes.iter_mut().skip(at).take(1).for_each(|other| *other = *byte);
            }
        }
    }
}

/// Holds: H5, H10.
#[test]
fn seeds_of_the_decoders() {
    for (name, target, fewest) in TARGETS {
        let seeds = seeds(name);
        assert!(seeds.len() >= fewest, "{name} has {} seeds", seeds.len());
        for seed in &seeds {
            target(seed);
        }
    }
}

/// Edits seeds so many times; what broke, if something did.
fn try_edits(seeds: Vec<Vec<u8>>, target: Target, cases: u32) -> Result<(), String> {
    let config = Config {
        failure_persistence: None,
        ..Config::with_cases(cases)
    };
    let edits = proptest::collection::vec(edit(), 0..12);
    TestRunner::new(config)
        .run(&(select(seeds), edits), |(mut bytes, edits)| {
            for edit in &edits {
                edit.apply(&mut bytes);
            }
            target(&bytes);
            Ok(())
        })
        .map_err(|error| error.to_string())
}

/// Holds: H5, H10.
#[test]
fn what_was_changed_at_random_breaks_no_decoder() {
    let asked = std::env::var(SECONDS)
        .ok()
        .and_then(|seconds| seconds.parse().ok());
    let lasts = asked.map(Duration::from_secs);
    let only = std::env::var(TARGET).ok();
    for (name, target, _) in TARGETS {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let (begin, mut tried) = (Instant::now(), 0_u64);
        loop {
            let outcome = try_edits(seeds(name), target, CASES);
            assert_eq!(outcome, Ok(()), "{name}");
            tried += u64::from(CASES);
            if lasts.is_none_or(|lasts| begin.elapsed() >= lasts) {
                break;
            }
        }
        println!("{name}: {tried} inputs in {:?}", begin.elapsed());
    }
}
