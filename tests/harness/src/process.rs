//! Children that cannot outlive us.
//!
//! A server that a failed test leaves behind keeps ports, memory and data. Every child is therefore started by
//! `setpriv --pdeathsig KILL`: the kernel kills it when the thread that started it ends, whatever ended it, SIGKILL
//! included. As the signal follows the *thread*, all children are started by one thread that lives as long as the process.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, Sender};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail, ensure};
use rustix::process::{Pid, Signal, kill_process};

/// Longest until a process that was sent SIGSTOP has stopped.
const STOPPED: Duration = Duration::from_secs(10);

/// What reading about a thread says that ended since it was listed.
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

type Spawn = (Command, Sender<io::Result<Child>>);

/// Hands a command to the thread that starts all children.
fn spawn_on_long_lived_thread(command: Command) -> Result<Child> {
    static SPAWNER: OnceLock<Sender<Spawn>> = OnceLock::new();
    let spawner = SPAWNER.get_or_init(|| {
        let (requests, incoming) = mpsc::channel::<Spawn>();
        thread::spawn(move || {
            for (mut command, reply) in incoming {
                // The receiver waits below; if it is gone, no one waits for the answer.
                let _ = reply.send(command.spawn());
            }
        });
        requests
    });
    let (reply, answer) = mpsc::channel();
    spawner
        .send((command, reply))
        .map_err(|_| anyhow!("the thread that starts children is gone"))?;
    Ok(answer
        .recv()
        .context("the thread that starts children is gone")??)
}

/// A command as it was given, to start it again. It never shows: its environment may hold a secret.
struct Recipe(Command);

impl std::fmt::Debug for Recipe {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Recipe")
    }
}

/// A child with a log file of its own; it is killed when the handle is dropped, and when this process ends.
#[derive(Debug)]
pub struct Process {
    name: String,
    log: PathBuf,
    recipe: Recipe,
    child: Mutex<Child>,
}

impl Process {
    /// Starts `command` with standard output and error in `log`, and nothing on standard input.
    ///
    /// # Errors
    /// If the log cannot be made or the program cannot be started.
    pub fn spawn(name: &str, command: &Command, log: &Path) -> Result<Self> {
        let out = File::create(log).with_context(|| format!("cannot create {}", log.display()))?;
        let child = start(name, command, out)?;
        let mut recipe = Command::new(command.get_program());
        copy_settings(command, &mut recipe);
        Ok(Self {
            name: name.to_owned(),
            log: log.to_owned(),
            recipe: Recipe(recipe),
            child: Mutex::new(child),
        })
    }

    /// Starts it again after it has ended, with the same arguments; the log goes on.
    ///
    /// # Errors
    /// If it still runs, or cannot be started.
    pub fn restart(&self) -> Result<()> {
        let mut child = self.child();
        if child.try_wait()?.is_none() {
            bail!("{} still runs", self.name);
        }
        let out = File::options().append(true).open(&self.log)?;
        *child = start(&self.name, &self.recipe.0, out)?;
        Ok(())
    }

    /// What it is called in messages.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.child().id()
    }

    /// Where its output goes.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        &self.log
    }

    /// Everything it wrote so far.
    #[must_use]
    pub fn log(&self) -> String {
        String::from_utf8_lossy(&fs::read(&self.log).unwrap_or_default()).into_owned()
    }

    /// The last `lines` lines it wrote.
    #[must_use]
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }

    /// Its exit status, or `None` while it runs.
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.child().try_wait().ok().flatten()
    }

    /// Fails, with the end of its log, if it has ended.
    ///
    /// # Errors
    /// If the process is no longer running.
    pub fn check_running(&self) -> Result<()> {
        if let Some(status) = self.exit_status() {
            bail!("{} ended ({status}):\n{}", self.name, self.log_tail(20));
        }
        Ok(())
    }

    /// Sends a signal.
    ///
    /// # Errors
    /// If the process has ended already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock keeps the child unreaped, so the id cannot belong to another process by now.
        let mut child = self.child();
        if let Some(status) = child.try_wait()? {
            bail!("{} has ended already ({status})", self.name);
        }
        let pid = i32::try_from(child.id())
            .ok()
            .and_then(Pid::from_raw)
            .context("no valid process id")?;
        Ok(kill_process(pid, signal)?)
    }

    /// Stops the process in the middle of whatever it does, and waits until each of its threads has stopped: the signal arrives a moment
    /// later, in which a busy process may answer once more.
    ///
    /// # Errors
    /// If the process has ended already, or does not stop.
    pub fn freeze(&self) -> Result<()> {
        self.signal(Signal::STOP)?;
        let deadline = Instant::now() + STOPPED;
        while !is_stopped(self.pid())? {
            ensure!(Instant::now() < deadline, "{} does not stop", self.name);
            thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Waits for the end of the process.
    ///
    /// # Errors
    /// If it still runs after `limit`.
    pub async fn wait(&self, limit: Duration) -> Result<ExitStatus> {
        let begin = Instant::now();
        while begin.elapsed() < limit {
            if let Some(status) = self.exit_status() {
                return Ok(status);
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        bail!(
            "{} did not end within {limit:?}:\n{}",
            self.name,
            self.log_tail(20)
        )
    }

    /// Kills it and waits until it is gone.
    pub fn kill(&self) {
        let mut child = self.child();
        // It may have ended by itself, which is what we want.
        let _ = child.kill();
        let _ = child.wait();
    }

    fn child(&self) -> MutexGuard<'_, Child> {
        self.child.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
    }
}

fn start(name: &str, command: &Command, out: File) -> Result<Child> {
    let mut tied = tied_to_us(command);
    tied.stdin(Stdio::null()).stdout(out.try_clone()?).stderr(out);
    spawn_on_long_lived_thread(tied).with_context(|| {
        format!("cannot start {name} through setpriv (missing? `apt-get install -y util-linux`)")
    })
}

/// The same command below `setpriv`, which asks the kernel to kill it when our spawning thread ends.
fn tied_to_us(command: &Command) -> Command {
    let mut tied = Command::new("setpriv");
    tied.args(["--pdeathsig", "KILL", "--"])
        .arg(command.get_program());
    copy_settings(command, &mut tied);
    tied
}

/// Arguments, environment and directory of one command for another.
fn copy_settings(from: &Command, to: &mut Command) {
    to.args(from.get_args());
    for (key, value) in from.get_envs() {
        match value {
            Some(value) => to.env(key, value),
            None => to.env_remove(key),
        };
    }
    if let Some(dir) = from.get_current_dir() {
        to.current_dir(dir);
    }
}

/// Runs a short command to its end and returns what it printed.
///
/// # Errors
/// If it cannot be started or does not end with success; the error holds what it wrote on standard error.
pub fn run(command: &mut Command) -> Result<String> {
    let what = format!("{command:?}");
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start {what}"))?;
    if !output.status.success() {
        bail!(
            "{what} failed ({}):\n{}",
            output.status,
            String::from_utf8_lossy(&output.stderr).trim()
        );
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether no thread of a process runs or sleeps; one that ends meanwhile does neither.
fn is_stopped(pid: u32) -> Result<bool> {
    for thread in fs::read_dir(format!("/proc/{pid}/task"))? {
        let stat = match fs::read_to_string(thread?.path().join("stat")) {
            Ok(stat) => stat,
            Err(error) if error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(ESRCH) => {
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let state = stat
            .rsplit_once(')')
            .and_then(|(_, rest)| rest.trim_start().chars().next());
        if !matches!(state.context("a thread has a state")?, 'T' | 't' | 'Z' | 'X') {
            return Ok(false);
        }
    }
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_is_frozen_has_stopped_and_one_that_is_thawed_goes_on() -> Result<()> {
        let dir = tempfile::tempdir()?;
        let mut busy = Command::new("sh");
        busy.args(["-c", "while :; do :; done"]);
        let process = Process::spawn("busy", &busy, &dir.path().join("log"))?;
        for _ in 0..20 {
            assert!(!is_stopped(process.pid())?);
            process.freeze()?;
            assert!(is_stopped(process.pid())?);
            process.signal(Signal::CONT)?;
            let deadline = Instant::now() + STOPPED;
            while is_stopped(process.pid())? {
                ensure!(Instant::now() < deadline, "it does not go on");
            }
        }
        Ok(())
    }
}
