//! A hub as a process of its own, to start, stop, kill and listen to.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Duration;

use anyhow::{Result, ensure};
use rustix::process::{Pid, Signal, setpriority_process};

use crate::process::Process;
use crate::{http, net, rundir, wait_for};

/// How long a hub may take to become ready, on a machine that is busy with other tests.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// Nice value of a hub that runs first.
const FIRST: i32 = -15;

/// What the chart sets in a hub's environment for the C library, without which its memory is not that of an installed hub.
pub const AS_INSTALLED: &[(&str, &str)] = &[("MALLOC_ARENA_MAX", "1"), ("MALLOC_MMAP_THRESHOLD_", "131072")];

/// A running hub; it is killed when it is dropped.
#[derive(Debug)]
pub struct Hub {
    process: Process,
    admin: SocketAddr,
}

impl Hub {
    /// Starts `binary` as `binary run --admin-address ADDRESS:PORT ARGS…` with `KUBECONFIG` set; in a test
    /// program the binary is `support::programs::hub()`.
    ///
    /// No other variable that a hub reads is passed on, so a developer's environment does not change a test.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn<S: AsRef<str>>(binary: impl AsRef<Path>, kubeconfig: &Path, args: &[S]) -> Result<Self> {
        Self::spawn_with(binary, kubeconfig, args, &[])
    }

    /// The same with variables in its environment, e.g. `("RUST_LOG", "trace")`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn_with<S: AsRef<str>>(
        binary: impl AsRef<Path>,
        kubeconfig: &Path,
        args: &[S],
        env: &[(&str, &str)],
    ) -> Result<Self> {
        Self::spawn_command(binary, "run", kubeconfig, args, env)
    }

    /// Starts another of the binary's commands that works until a signal stops it, e.g. `pull-secrets`.
    ///
    /// # Errors
    /// If the program cannot be started.
    pub fn spawn_command<S: AsRef<str>>(
        binary: impl AsRef<Path>,
        command: &str,
        kubeconfig: &Path,
        args: &[S],
        env: &[(&str, &str)],
    ) -> Result<Self> {
        let verb = command;
        // Not 127.0.0.1: there any client's connection may take the port before the hub does.
        let own = net::loopback();
        let admin = SocketAddr::new(own, net::free_port(own)?);
        let mut command = Command::new(binary.as_ref());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("RENDERHUB_") {
                command.env_remove(name);
            }
        }
        command
            .env_remove("KUBERNETES_SERVICE_HOST")
            .env_remove("RUST_LOG");
        command.env("KUBECONFIG", kubeconfig).envs(env.iter().copied());
        command
            .arg(verb)
            .arg(format!("--admin-address={admin}"))
            .args(args.iter().map(AsRef::as_ref));
        let log = rundir::fresh("hub")?.join("hub.log");
        Ok(Self {
            process: Process::spawn("the hub", &command, &log)?,
            admin,
        })
    }

    /// Waits until `/readyz` says 200, and fails at once if the hub ends.
    ///
    /// # Errors
    /// If it ends or does not become ready in time; the text has the end of its log.
    pub async fn wait_ready(&self) -> Result<()> {
        let waited = wait_for("the hub to be ready", READY_LIMIT, async || {
            if let Err(ended) = self.process.check_running() {
                return Ok(Some(Err(ended)));
            }
            let (code, _) = http::get(self.admin, "/readyz").await?;
            Ok((code == 200).then_some(Ok(())))
        });
        waited
            .await
            .map_err(|error| error.context(self.process.log_tail(20)))?
    }

    /// Status code and body of a GET from its admin server, e.g. `/livez`.
    ///
    /// # Errors
    /// If it does not answer.
    pub async fn get(&self, path: &str) -> Result<(u16, String)> {
        http::get(self.admin, path).await
    }

    /// Its metrics as text.
    ///
    /// # Errors
    /// If it does not answer with 200.
    pub async fn metrics(&self) -> Result<String> {
        let (code, body) = self.get("/metrics").await?;
        ensure!(code == 200, "the hub's metrics answered with {code}");
        Ok(body)
    }

    /// Everything it logged so far.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Where it logs.
    #[must_use]
    pub fn log_path(&self) -> &Path {
        self.process.log_path()
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its exit status, or `None` while it runs.
    #[must_use]
    pub fn exit_status(&self) -> Option<ExitStatus> {
        self.process.exit_status()
    }

    /// Lets its threads, and those that they start, have a processor before other programs of this machine. An API server beside a
    /// hub takes nothing from it in production, so a time that is to be the hub's own needs this.
    ///
    /// # Errors
    /// If this user may not.
    pub fn run_first(&self) -> Result<()> {
        for thread in fs::read_dir(format!("/proc/{}/task", self.pid()))? {
            let thread = thread?.file_name().to_string_lossy().parse()?;
            setpriority_process(Pid::from_raw(thread), FIRST)?;
        }
        Ok(())
    }

    /// Asks it to end, as the kubelet does, and waits for it.
    ///
    /// # Errors
    /// If it has ended before, or still runs after `limit`.
    pub async fn sigterm(&self, limit: Duration) -> Result<ExitStatus> {
        self.process.signal(Signal::TERM)?;
        self.process.wait(limit).await
    }

    /// Waits for it to end by itself, e.g. because its settings are refused.
    ///
    /// # Errors
    /// If it still runs after `limit`.
    pub async fn wait_exit(&self, limit: Duration) -> Result<ExitStatus> {
        self.process.wait(limit).await
    }

    /// Kills it with SIGKILL and waits until it is gone.
    pub fn kill9(&self) {
        self.process.kill();
    }

    /// Freezes it with SIGSTOP, as a paused machine would be.
    ///
    /// # Errors
    /// If it has ended.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets it run on after [`Hub::freeze`].
    ///
    /// # Errors
    /// If it has ended.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }
}
