//! Runs the test programs of the workspace, several at a time, and several tests of each, because tests wait a lot.
//!
//! What a program says goes to `tests/NAME.log` in cargo's target directory, and to the terminal if it fails. Those that measure
//! time go first, one by one; then the longest, as the last run showed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use renderhub_harness::tools::cache_directory;
use serde_json::Value;

/// How many run at a time instead of one for each core.
const AT_A_TIME: &str = "RENDERHUB_TEST_PROGRAMS";
/// How many tests of a program run at a time, as Rust's own test runner reads it, instead of one more than there are cores.
const THREADS: &str = "RUST_TEST_THREADS";
/// Programs whose tests run one at a time, see `renderhub_harness::turn`: side by side they would wait for each other.
const IN_TURNS: &[&str] = &["failover", "shards", "storms"];
/// Programs that nothing else runs beside, because they show that a deadline is kept.
const ALONE: &[&str] = &["hostile_remote"];
/// How many times as many tests of one of [`ALONE`] run at a time: they wait for deadlines and leave the machine idle.
const WAITERS: usize = 4;
/// Tells a test program that the programs it starts are built, so that it need not ask cargo.
const ARE_BUILT: &str = "RENDERHUB_PROGRAMS_ARE_BUILT";
/// Most places in the code that are shown of a failure.
const FRAMES: usize = 4;
/// Where the seconds of the last run are, beside the Kubernetes programs, so that a fresh clone knows which tests are the longest.
const SECONDS: &str = "test-seconds.json";

/// A program with tests in it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Program {
    name: String,
    path: PathBuf,
    /// Root of its package, in which it runs.
    package: PathBuf,
}

/// What became of one.
struct Ended {
    name: String,
    seconds: f64,
    is_good: bool,
    said: String,
}

/// The programs that are still to be run.
struct Waiting {
    /// The next one is the last.
    programs: Vec<Program>,
    /// Whether one of [`IN_TURNS`] runs.
    is_turn_taken: bool,
}

impl Waiting {
    /// The next one that may run now. Where only programs that run one at a time are left, the worker that runs one will ask
    /// again.
    fn take(&mut self) -> Option<Program> {
        let may_run = |program: &Program| !self.is_turn_taken || !program.takes_turns();
        let at = self.programs.iter().rposition(may_run)?;
        let program = self.programs.remove(at);
        self.is_turn_taken |= program.takes_turns();
        Some(program)
    }

    fn ended(&mut self, program: &Program) {
        if program.takes_turns() {
            self.is_turn_taken = false;
        }
    }
}

impl Program {
    fn takes_turns(&self) -> bool {
        IN_TURNS.contains(&self.name.as_str())
    }
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<bool> {
    let programs = build()?;
    let logs = logs()?;
    let last_run = cache_directory()?.join(SECONDS);
    let before = seconds(&last_run);
    let begun = Instant::now();
    let cores = thread::available_parallelism()?.get();
    let (at_a_time, threads) = (number(AT_A_TIME, cores)?, number(THREADS, cores + 1)?);
    let is_alone = |program: &Program| ALONE.contains(&program.name.as_str());
    let (alone, others): (Vec<_>, Vec<_>) = programs.into_iter().partition(is_alone);
    let mut ended = run_all(alone, &logs, 1, threads * WAITERS)?;
    ended.extend(run_all(in_order(others, &before), &logs, at_a_time, threads)?);
    let lasted: BTreeMap<String, f64> = ended.iter().map(|e| (e.name.clone(), e.seconds)).collect();
    fs::write(last_run, serde_json::to_string(&lasted)?)?;
    ended.retain(|ended| !ended.is_good);
    for failed in &ended {
        println!("\n---- {} ----\n{}", failed.name, failed.said);
    }
    let are_documents_good = cargo(&["test", "--locked", "--workspace", "--doc"])
        .status()?
        .success();
    print!("{}", verdict(&ended, lasted.len(), begun.elapsed().as_secs()));
    Ok(ended.is_empty() && are_documents_good)
}

/// The last words of a run: how many programs passed, or which failed and why.
fn verdict(failed: &[Ended], all: usize, seconds: u64) -> String {
    if failed.is_empty() {
        return format!("\n{all} test programs passed in {seconds} s\n");
    }
    let names: Vec<_> = failed.iter().map(|failed| failed.name.as_str()).collect();
    let causes: String = failed.iter().map(|failed| causes(&failed.said)).collect();
    let (count, names) = (names.len(), names.join(", "));
    format!("\n{count} of {all} test programs failed: {names}\n{causes}")
}

fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments);
    command
}

/// Builds all test programs, and the programs that they start.
fn build() -> Result<Vec<Program>> {
    let started = ["build", "--locked", "--workspace", "--bins", "--examples"];
    ensure!(
        cargo(&started).status()?.success(),
        "the programs cannot be built"
    );
    let mut building = cargo(&[
        "test",
        "--locked",
        "--workspace",
        "--no-run",
        "--message-format=json-render-diagnostics",
    ])
    .stdout(Stdio::piped())
    .spawn()
    .context("cargo cannot be started")?;
    let said = building.stdout.take().context("cargo says nothing")?;
    let mut programs = Vec::new();
    for line in BufReader::new(said).lines() {
        programs.extend(program(&line?));
    }
    ensure!(building.wait()?.success(), "the tests cannot be built");
    ensure!(!programs.is_empty(), "there are no tests");
    Ok(programs)
}

/// The test program in a line of cargo's output.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    let is_test = message["profile"]["test"].as_bool()?;
    let path = message["executable"].as_str().filter(|_| is_test)?;
    let package = Path::new(message["manifest_path"].as_str()?).parent()?;
    let (name, kind) = (
        message["target"]["name"].as_str()?,
        message["target"]["kind"][0].as_str()?,
    );
    // A library and a program may have the same name as a test.
    let name = if kind == "test" {
        name.to_owned()
    } else {
        format!("{name}-{kind}")
    };
    Some(Program {
        name,
        path: path.into(),
        package: package.into(),
    })
}

fn logs() -> Result<PathBuf> {
    let own = std::env::current_exe()?;
    let target = own
        .parent()
        .and_then(Path::parent)
        .context("this program has no place")?;
    let logs = target.join("tests");
    fs::create_dir_all(&logs)?;
    Ok(logs)
}

fn seconds(last_run: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(last_run).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The last one runs next: those that never ran come first, then the longest.
fn in_order(mut programs: Vec<Program>, before: &BTreeMap<String, f64>) -> Vec<Program> {
    let lasted = |program: &Program| before.get(&program.name).copied().unwrap_or(f64::INFINITY);
    programs.sort_by(|a, b| lasted(a).total_cmp(&lasted(b)).then_with(|| b.name.cmp(&a.name)));
    programs
}

/// A number from the environment, or the one given.
fn number(name: &str, otherwise: usize) -> Result<usize> {
    match std::env::var(name) {
        Ok(number) => number.parse().with_context(|| format!("{name} is no number")),
        Err(_) => Ok(otherwise),
    }
}

fn run_all(programs: Vec<Program>, logs: &Path, at_a_time: usize, threads: usize) -> Result<Vec<Ended>> {
    let waiting = Mutex::new(Waiting {
        programs,
        is_turn_taken: false,
    });
    let ended = Mutex::new(Vec::new());
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().ok().and_then(|mut waiting| waiting.take());
            let Some(program) = next else { return Ok(()) };
            let one = run_one(&program, logs, threads)?;
            tell(&one);
            if let Ok(mut waiting) = waiting.lock() {
                waiting.ended(&program);
            }
            if let Ok(mut ended) = ended.lock() {
                ended.push(one);
            }
        }
    };
    thread::scope(|scope| {
        let workers: Vec<_> = (0..at_a_time.max(1)).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            worker.join().ok().context("a worker fell")??;
        }
        anyhow::Ok(())
    })?;
    ended.into_inner().ok().context("a worker fell")
}

fn run_one(program: &Program, logs: &Path, threads: usize) -> Result<Ended> {
    let path = logs.join(format!("{}.log", program.name));
    let log = File::create(&path)?;
    let begun = Instant::now();
    let status = Command::new(&program.path)
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
        .env(THREADS, threads.to_string())
        .env(ARE_BUILT, "yes")
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .status()
        .with_context(|| format!("{} cannot be started", program.name))?;
    Ok(Ended {
        name: program.name.clone(),
        seconds: begun.elapsed().as_secs_f64(),
        is_good: status.success(),
        said: String::from_utf8_lossy(&fs::read(&path)?).into_owned(),
    })
}

fn tell(ended: &Ended) {
    let word = if ended.is_good { "ok" } else { "FAILED" };
    println!(
        "{word:6} {:5.0} s  {:24} {}",
        ended.seconds,
        ended.name,
        summary(&ended.said)
    );
}

/// What the program itself counted.
fn summary(said: &str) -> String {
    let counted = said
        .lines()
        .rev()
        .find_map(|line| line.strip_prefix("test result: "));
    let parts: Vec<_> = counted
        .unwrap_or_default()
        .split(';')
        .take(2)
        .map(str::trim)
        .collect();
    parts.join(", ")
}

/// Why each test of a program failed and where, without the long picture around it: a reader of the end of a log sees it.
fn causes(said: &str) -> String {
    let mut causes = String::new();
    let (mut is_cause, mut frames) = (false, 0);
    for line in said.lines() {
        let is_title = line.starts_with("---- ") && line.ends_with(" stdout ----");
        let begins = line.starts_with("Error: ") || line.contains(" panicked at ");
        let ends = matches!(line.trim(), "" | "Stack backtrace:" | "stack backtrace:");
        is_cause = begins || line == "Caused by:" || (is_cause && !ends);
        if begins {
            frames = 0;
        }
        // Paths of the package are relative; all others are of libraries.
        let is_frame = line.trim_start().starts_with("at ./") && frames < FRAMES;
        frames += usize::from(is_frame);
        if is_title || is_cause || is_frame {
            causes.push_str(line);
            causes.push('\n');
        }
    }
    causes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Program {
        Program {
            name: name.to_owned(),
            path: PathBuf::new(),
            package: PathBuf::new(),
        }
    }

    #[test]
    fn the_unknown_and_the_longest_go_first() {
        let before = BTreeMap::from([("short".to_owned(), 1.0), ("long".to_owned(), 99.0)]);
        let order = in_order(["short", "new", "long"].map(named).into(), &before);
        let names: Vec<_> = order.iter().rev().map(|program| program.name.as_str()).collect();
        assert_eq!(names, ["new", "long", "short"]);
    }

    #[test]
    fn of_those_that_take_turns_one_runs_at_a_time() {
        let mut waiting = Waiting {
            programs: ["failover", "other", "storms"].map(named).into(),
            is_turn_taken: false,
        };
        let mut take = || waiting.take().map(|program| program.name);
        assert_eq!(take().as_deref(), Some("storms"));
        assert_eq!(take().as_deref(), Some("other"), "it may run beside it");
        assert_eq!(take(), None, "the last one waits for its turn");
        waiting.ended(&named("other"));
        assert_eq!(waiting.take(), None);
        waiting.ended(&named("storms"));
        assert_eq!(waiting.take(), Some(named("failover")));
    }

    #[test]
    fn those_that_take_turns_are_known() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = Vec::new();
        for entry in fs::read_dir(&tests).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_stem().unwrap_or_default();
            let name = name.to_string_lossy().into_owned();
            if path.extension().is_none_or(|ending| ending != "rs") {
                continue;
            }
            let parts = fs::read_dir(tests.join(&name)).into_iter().flatten();
            let files = parts.map(|part| part.unwrap().path()).chain([path]);
            let mut sources = files.map(|path| fs::read_to_string(path).unwrap_or_default());
            if sources.any(|source| source.contains("turn().await")) {
                found.push(name);
            }
        }
        found.sort();
        assert_eq!(found, IN_TURNS);
    }

    #[test]
    fn each_file_of_tests_is_a_program() {
        let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let manifest = fs::read_to_string(tests.join("Cargo.toml")).unwrap();
        let paths = fs::read_dir(&tests).unwrap().map(|entry| entry.unwrap().path());
        let files: Vec<_> = paths
            .filter(|path| path.extension().is_some_and(|ending| ending == "rs"))
            .filter_map(|path| path.file_name()?.to_str().map(str::to_owned))
            .collect();
        assert!(files.len() > 20, "{files:?}");
        for file in files {
            assert!(
                manifest.contains(&format!("path = \"{file}\"")),
                "tests/Cargo.toml has no [[test]] for {file}"
            );
        }
    }

    #[test]
    fn only_programs_with_tests_are_run() {
        let line = |test: bool, kind: &str| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/src/a/Cargo.toml", "profile": {"test": test},
                "target": {"name": "life", "kind": [kind]}, "executable": "/target/life-0",
            })
            .to_string()
        };
        let found = program(&line(true, "test")).expect("it is one");
        assert_eq!(
            (found.name.as_str(), found.package),
            ("life", PathBuf::from("/src/a"))
        );
        assert_eq!(
            program(&line(true, "lib")).map(|found| found.name),
            Some("life-lib".to_owned())
        );
        assert_eq!(program(&line(false, "bin")), None);
        assert_eq!(program("warning: something else"), None);
    }

    #[test]
    fn a_program_tells_how_many_passed() {
        let said = "test a ... ok\n\ntest result: ok. 3 passed; 0 failed; 0 ignored; finished in 1.00s\n\n";
        assert_eq!(summary(said), "ok. 3 passed, 0 failed");
        assert_eq!(summary("it fell over"), "");
    }

    #[test]
    fn the_cause_of_a_failure_is_shown_without_what_surrounds_it() {
        let frame =
            |number: usize, place: &str| format!("  {number}: some::function\n             at {place}\n");
        let frames: String = (0..9).map(|n| frame(n, &format!("./remote.rs:{n}:5"))).collect();
        let said = format!(
            "test a ... FAILED\n\n---- a stdout ----\n== RenderTask\nRenderTask b/c\n\
             Error: no Job within 120 s\n\nCaused by:\n    lost\n\nStack backtrace:\n{}{frames}\n\
             ---- b stdout ----\nthread 'b' panicked at remote.rs:7:9:\nassertion failed\nstack backtrace:\n{}\n\
             failures:\n    a\n",
            frame(0, "/rustc/1/library/core.rs:1:2"),
            frame(1, "./remote/own.rs:4:1"),
        );
        let at = |place: &str| format!("             at {place}\n");
        let first: String = (0..FRAMES).map(|n| at(&format!("./remote.rs:{n}:5"))).collect();
        let expected = format!(
            "---- a stdout ----\nError: no Job within 120 s\nCaused by:\n    lost\n{first}\
             ---- b stdout ----\nthread 'b' panicked at remote.rs:7:9:\nassertion failed\n{}",
            at("./remote/own.rs:4:1"),
        );
        let failed = Ended {
            name: "remote".to_owned(),
            seconds: 1.0,
            is_good: false,
            said,
        };
        let last = verdict(&[failed], 46, 9);
        assert_eq!(
            last,
            format!("\n1 of 46 test programs failed: remote\n{expected}")
        );
        assert_eq!(verdict(&[], 46, 9), "\n46 test programs passed in 9 s\n");
    }
}
