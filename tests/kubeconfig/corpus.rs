//! The seeds of the fuzz targets and what they found, on every run; and the same targets on random bytes.

use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use renderhub::remote::kubeconfig::decode;

use super::differential::same_as_kube;
use super::edits::{edited, good};
use super::targets;
use support::programs;

/// Cases of each random test.
const CASES: u32 = 4000;

/// Every file of a target.
fn seeds(target: &str) -> Vec<(String, Vec<u8>)> {
    let directory = Path::new(programs::ROOT).join("tests/fuzz/corpus").join(target);
    let files = std::fs::read_dir(directory)
        .unwrap()
        .map(|file| file.unwrap().path());
    files
        .map(|path| (path.display().to_string(), std::fs::read(&path).unwrap()))
        .collect()
}

/// Holds: K6, K9, K11.
#[test]
fn seeds_of_the_fuzz_targets() {
    let [kubeconfigs, addresses] = ["kubeconfig", "address"].map(seeds);
    assert!(kubeconfigs.len() >= 20 && addresses.len() >= 20);
    for (name, bytes) in kubeconfigs {
        println!("{name}");
        targets::kubeconfig(&bytes);
    }
    for (name, bytes) in addresses {
        println!("{name}");
        targets::address(&bytes);
    }
}

/// Holds: K11.
#[test]
fn what_is_accepted_after_edits_is_the_same_to_kube() {
    let mut accepted = 0;
    let mut runner = TestRunner::new(Config {
        failure_persistence: None,
        ..Config::with_cases(CASES)
    });
    for text in good() {
        assert!(same_as_kube(&text));
    }
    let counted = std::cell::RefCell::new(&mut accepted);
    let outcome = runner.run(&edited(good()), |text| {
        if same_as_kube(&text) {
            **counted.borrow_mut() += 1;
        }
        Ok(())
    });
    assert!(outcome.is_ok(), "{outcome:?}");
    // Enough edits leave it whole for the comparison to mean something.
    assert!(accepted > CASES / 20, "{accepted} of {CASES} are accepted");
}

proptest! {
    /// Holds: K9.
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        prop_assert!(decode(&bytes).is_err());
    }

    /// Holds: K9.
    #[test]
    fn no_syntax_panics(text in "([&*!|>{}\\[\\],:?#'\"%@~ \n\t-]|[a-c0]|users|name){0,80}") {
        prop_assert!(decode(text.as_bytes()).is_err());
    }

    /// Holds: K6.
    #[test]
    fn no_host_panics(host in "[0-9a-fxA-F.:\\[\\]%@/ é-]{0,40}") {
        targets::address(host.as_bytes());
    }
}
