//! Runs the test programs of the workspace, several at a time: most of what they do is wait.
//!
//! What a program says goes to `tests/NAME.log` in cargo's target directory, and to the terminal if it fails. The longest go
//! first, as the last run showed.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::sync::Mutex;
use std::thread;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

/// How many run at a time instead of as many as there are cores.
const AT_A_TIME: &str = "RENDERHUB_TEST_PROGRAMS";
/// Where the seconds of the last run are, beside the logs.
const SECONDS: &str = "seconds.json";

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
    let before = seconds(&logs);
    let begun = Instant::now();
    let mut ended = run_all(in_order(programs, &before), &logs, at_a_time()?)?;
    let lasted: BTreeMap<String, f64> = ended.iter().map(|e| (e.name.clone(), e.seconds)).collect();
    fs::write(logs.join(SECONDS), serde_json::to_string(&lasted)?)?;
    ended.retain(|ended| !ended.is_good);
    for failed in &ended {
        println!("\n---- {} ----\n{}", failed.name, failed.said);
    }
    let are_documents_good = cargo(&["test", "--locked", "--workspace", "--doc"])
        .status()?
        .success();
    let names: Vec<_> = ended.iter().map(|failed| failed.name.as_str()).collect();
    let seconds = begun.elapsed().as_secs();
    if names.is_empty() {
        println!("\n{} test programs passed in {seconds} s", lasted.len());
    } else {
        println!(
            "\n{} of {} test programs failed: {}",
            names.len(),
            lasted.len(),
            names.join(", ")
        );
    }
    Ok(names.is_empty() && are_documents_good)
}

fn cargo(arguments: &[&str]) -> Command {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(arguments);
    command
}

/// Builds all test programs.
fn build() -> Result<Vec<Program>> {
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

/// The test program that a line of cargo's tells of.
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

fn seconds(logs: &Path) -> BTreeMap<String, f64> {
    let text = fs::read_to_string(logs.join(SECONDS)).unwrap_or_default();
    serde_json::from_str(&text).unwrap_or_default()
}

/// The next one is the last: those that nobody knows yet come first, then the longest.
fn in_order(mut programs: Vec<Program>, before: &BTreeMap<String, f64>) -> Vec<Program> {
    let lasted = |program: &Program| before.get(&program.name).copied().unwrap_or(f64::INFINITY);
    programs.sort_by(|a, b| lasted(a).total_cmp(&lasted(b)).then_with(|| b.name.cmp(&a.name)));
    programs
}

fn at_a_time() -> Result<usize> {
    match std::env::var(AT_A_TIME) {
        Ok(number) => number
            .parse()
            .with_context(|| format!("{AT_A_TIME} is no number")),
        Err(_) => Ok(thread::available_parallelism()?.get()),
    }
}

fn run_all(programs: Vec<Program>, logs: &Path, at_a_time: usize) -> Result<Vec<Ended>> {
    let (waiting, ended) = (Mutex::new(programs), Mutex::new(Vec::new()));
    let work = || -> Result<()> {
        loop {
            let next = waiting.lock().ok().and_then(|mut waiting| waiting.pop());
            let Some(program) = next else { return Ok(()) };
            let one = run_one(&program, logs)?;
            tell(&one);
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

fn run_one(program: &Program, logs: &Path) -> Result<Ended> {
    let path = logs.join(format!("{}.log", program.name));
    let log = File::create(&path)?;
    let begun = Instant::now();
    let status = Command::new(&program.path)
        .current_dir(&program.package)
        .env("CARGO_MANIFEST_DIR", &program.package)
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
}
