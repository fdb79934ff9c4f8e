//! What is in the memory of the hub and of the renderer stays there: no core file, and no look from beside.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use renderhub_harness::process::Process;
use renderhub_harness::wait_for;
use rustix::process::{Signal, getuid};
use serde_json::json;
use tokio::net::TcpListener;

use support::LIMIT;
use support::programs;

/// Who pods run as.
const USER: &str = "65532";

/// A directory that this other user can work in.
fn open_directory() -> Result<tempfile::TempDir> {
    let dir = tempfile::tempdir()?;
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o777))?;
    Ok(dir)
}

/// A command of a user other than root: of the user of pods where the test is root, else its own.
fn as_nobody(program: &str, args: &[&str]) -> Command {
    let mut command = Command::new(program);
    if getuid().is_root() {
        command = Command::new("setpriv");
        // The kernel forgets who is to die with us when the user changes.
        let ids = [
            "--pdeathsig",
            "KILL",
            "--reuid",
            USER,
            "--regid",
            USER,
            "--clear-groups",
            "--",
            program,
        ];
        command.args(ids);
    }
    command.args(args).env_clear().env("PATH", "/usr/bin:/bin");
    command
}

/// The program with core files allowed, in the directory.
fn start(name: &str, dir: &Path, program: &Path, args: &[&str]) -> Result<Process> {
    let own = dir.join("program");
    // By a process of its own: one that another test forks while this one has the copy open for writing would keep it from being run.
    let copied = Command::new("cp").arg(program).arg(&own).status()?;
    ensure!(copied.success(), "the program cannot be copied");
    let all = ["-c", "ulimit -c unlimited; exec \"$@\"", "sh", "./program"];
    let mut command = as_nobody("sh", &[&all[..], args].concat());
    command
        .current_dir(dir)
        .env("SECRET", "canary")
        // What a program that is killed leaves goes with the directory.
        .env("TMPDIR", dir)
        .env("KUBECONFIG", "kubeconfig");
    Process::spawn(name, &command, &dir.join(format!("{name}.log")))
}

/// What another process of the same user reads of its environment.
fn environ(pid: u32) -> Result<Option<String>> {
    let path = format!("/proc/{pid}/environ");
    let read = as_nobody("cat", &[&path]).stdin(Stdio::null()).output()?;
    Ok(read
        .status
        .success()
        .then(|| String::from_utf8_lossy(&read.stdout).into_owned()))
}

async fn keeps_its_memory(process: &Process, dir: &Path) -> Result<()> {
    let limits = fs::read_to_string(format!("/proc/{}/limits", process.pid()))?;
    let core = limits
        .lines()
        .find(|line| line.starts_with("Max core file size"))
        .context("a limit")?;
    let words: Vec<_> = core.split_whitespace().collect();
    assert_eq!(
        words[4..6],
        ["0", "0"],
        "neither has a core file nor may ask for one"
    );
    assert!(environ(process.pid())?.is_none(), "its user can look into it");
    process.signal(Signal::ABORT)?;
    let ended = process.wait(LIMIT).await?;
    assert_eq!(ended.signal(), Some(Signal::ABORT.as_raw()));
    assert!(!ended.core_dumped());
    let mut left = fs::read_dir(dir)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    ensure!(left.all(|name: Result<String>| name.is_ok_and(|name| !name.starts_with("core"))));
    Ok(())
}

/// The look from beside works where nothing keeps it out.
async fn is_open(process: &Process) -> Result<()> {
    wait_for("a process that anybody may look into", LIMIT, async || {
        Ok(environ(process.pid())?
            .is_some_and(|text| text.contains("canary"))
            .then_some(()))
    })
    .await
}

/// Holds: E7.
#[tokio::test]
async fn no_other_user_reads_the_hubs_memory() -> Result<()> {
    let dir = open_directory()?;
    let open = start("open", dir.path(), Path::new("/bin/sleep"), &["60"])?;
    is_open(&open).await?;
    drop(open);
    let nobody = TcpListener::bind("127.0.0.1:0").await?;
    let config: PathBuf = support::proxy::kubeconfig(nobody.local_addr()?)?;
    let copy = dir.path().join("kubeconfig");
    fs::copy(config, &copy)?;
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o644))?;
    let hub = &programs::hub();
    let args = [
        "run",
        "--rendering-namespace=rendering",
        "--admin-address=127.0.0.1:0",
    ];
    fs::remove_file(dir.path().join("program"))?;
    let process = start("hub", dir.path(), hub, &args)?;
    // Who asks has started; the answer never comes.
    let asked = nobody.accept();
    let _connection = tokio::time::timeout(LIMIT, asked).await??;
    keeps_its_memory(&process, dir.path()).await
}

/// Holds: E7.
#[tokio::test]
async fn no_other_user_reads_the_renderers_memory() -> Result<()> {
    let dir = open_directory()?;
    let registry = TcpListener::bind("127.0.0.1:0").await?;
    let config = json!({"type": "bootstrap", "bootstrap": {"chart": {"name": "boot", "version": "1.0.0"}, "input": {}}});
    fs::write(dir.path().join("config.json"), config.to_string())?;
    let url = format!("--url=oci://{}/a/boot:1.0.0", registry.local_addr()?);
    let renderer = &programs::renderer();
    let args = [
        "--plain-http",
        "--username=u",
        "--password=canary",
        &url,
        "config.json",
    ];
    let process = start("renderer", dir.path(), renderer, &args)?;
    let _connection = tokio::time::timeout(LIMIT, registry.accept()).await??;
    keeps_its_memory(&process, dir.path()).await
}
