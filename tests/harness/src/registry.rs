//! A real OCI registry (CNCF distribution) with a random password, in plain HTTP or with a certificate of its own CA.

mod private;
mod push;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::pki::Authority;
use crate::process::Process;
use crate::progress::Progress;
use crate::{Tools, net, rundir, wait_for};

pub use private::{PrivateRegistry, is_pull_refused};

/// How long it may take to listen; it is well below a second.
const READY_LIMIT: Duration = Duration::from_secs(60);
/// The cheapest bcrypt there is: the registry checks it on each request, and the password is random.
const BCRYPT_COST: u32 = 4;
const USERNAME: &str = "pusher";

/// What kind of registry to start.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct RegistryOptions {
    address: Option<IpAddr>,
    tls: bool,
    anonymous: bool,
}

impl RegistryOptions {
    /// With a password, in plain HTTP, on a random loopback address.
    pub fn new() -> Self {
        Self::default()
    }

    /// Listens here, e.g. on [`crate::ControlPlane::address`] of a control plane with a node, so that pods reach it.
    pub fn with_address(mut self, address: IpAddr) -> Self {
        self.address = Some(address);
        self
    }

    /// Serves TLS with a certificate of its own authority, see [`Registry::ca_pem`].
    pub fn with_tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Lets every client read and write without a password.
    pub fn with_anonymous_access(mut self) -> Self {
        self.anonymous = true;
        self
    }
}

/// A running registry; it ends when it is dropped, and its content with it.
#[derive(Debug)]
pub struct Registry {
    process: Process,
    address: SocketAddr,
    password: String,
    ca_pem: Option<String>,
    dir: PathBuf,
}

impl Registry {
    /// Starts one and waits until it listens.
    ///
    /// # Errors
    /// If the program is missing or does not start.
    pub async fn start(options: RegistryOptions) -> Result<Self> {
        let _progress = Progress::start("starting a registry");
        let program = Tools::path("registry")?;
        let ip = options.address.unwrap_or_else(net::loopback);
        net::check_private(ip)?;
        let address = SocketAddr::new(ip, net::free_port(ip)?);
        let dir = rundir::fresh("registry")?;
        let password = rundir::random_hex(16)?;
        let ca_pem = if options.tls {
            Some(write_certificate(&dir, ip)?)
        } else {
            None
        };
        if !options.anonymous {
            let line = line_of(USERNAME, &password)?;
            rundir::write_private(&dir.join("htpasswd"), line.as_bytes())?;
        }
        // JSON is YAML.
        let config = config(&dir, address, &options)?.to_string();
        rundir::write_private(&dir.join("config.yml"), config.as_bytes())?;
        let mut command = Command::new(program);
        command.arg("serve").arg(dir.join("config.yml"));
        // It would look for a collector of traces otherwise.
        command.env("OTEL_TRACES_EXPORTER", "none");
        let process = Process::spawn("the registry", &command, &dir.join("registry.log"))?;
        let registry = Self {
            process,
            address,
            password,
            ca_pem,
            dir,
        };
        registry.until_listening().await?;
        Ok(registry)
    }

    async fn until_listening(&self) -> Result<()> {
        let waited = wait_for("the registry to listen", READY_LIMIT, async || {
            if let Err(ended) = self.process.check_running() {
                return Ok(Some(Err(ended)));
            }
            Ok(net::accepts(self.address).then_some(Ok(())))
        });
        waited.await?
    }

    /// `address:port`, as in an image or chart reference.
    #[must_use]
    pub fn host(&self) -> String {
        self.address.to_string()
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The only user.
    #[must_use]
    pub fn username(&self) -> &str {
        USERNAME
    }

    /// The user's random password.
    #[must_use]
    pub fn password(&self) -> &str {
        &self.password
    }

    /// The certificate of its authority.
    ///
    /// # Errors
    /// If it serves plain HTTP.
    pub fn ca_pem(&self) -> Result<&str> {
        self.ca_pem
            .as_deref()
            .context("this registry speaks plain HTTP: start it `with_tls`")
    }

    /// The content of a Secret of type `kubernetes.io/dockerconfigjson` with the password.
    #[must_use]
    pub fn docker_config_json(&self) -> String {
        self.docker_config_json_for(&self.host())
    }

    /// The same for clients that reach it as another host.
    #[must_use]
    pub fn docker_config_json_for(&self, host: &str) -> String {
        let auth = STANDARD.encode(format!("{USERNAME}:{}", self.password));
        let entry = json!({ "username": USERNAME, "password": self.password, "auth": auth });
        json!({ "auths": { host: entry } }).to_string()
    }

    /// Writes who may come in beside the one who pushes; it reads that again at the next request.
    fn set_users(&self, passwords: &BTreeMap<String, String>) -> Result<()> {
        let mut lines = line_of(USERNAME, &self.password)?;
        for (user, password) in passwords {
            lines.push_str(&line_of(user, password)?);
        }
        // Moved to its place, so that a request never meets half of it.
        let fresh = self.dir.join(format!("htpasswd-{}", rundir::random_hex(4)?));
        rundir::write_private(&fresh, lines.as_bytes())?;
        Ok(std::fs::rename(fresh, self.dir.join("htpasswd"))?)
    }

    /// Everything it logged; each request is a line with method, path and status.
    #[must_use]
    pub fn log(&self) -> String {
        self.process.log()
    }

    /// Freezes it with SIGSTOP: it accepts connections and answers none.
    ///
    /// # Errors
    /// If it does not run.
    pub fn freeze(&self) -> Result<()> {
        self.process.freeze()
    }

    /// Lets it run on after [`Registry::freeze`].
    ///
    /// # Errors
    /// If it does not run.
    pub fn thaw(&self) -> Result<()> {
        self.process.signal(Signal::CONT)
    }

    /// Its process id.
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.process.kill();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// A user in the form of `htpasswd`.
fn line_of(user: &str, password: &str) -> Result<String> {
    Ok(format!("{user}:{}\n", bcrypt::hash(password, BCRYPT_COST)?))
}

/// Writes the certificate that the registry shows, and returns that of the authority which signed it.
fn write_certificate(dir: &Path, ip: IpAddr) -> Result<String> {
    let authority = Authority::new("renderhub-test-registry-ca")?;
    let pair = authority.server(&["localhost"], &[ip])?;
    rundir::write_private(&dir.join("tls.pem"), pair.cert.as_bytes())?;
    rundir::write_private(&dir.join("tls.key"), pair.key.as_bytes())?;
    Ok(authority.pem())
}

fn config(dir: &Path, address: SocketAddr, options: &RegistryOptions) -> Result<Value> {
    let mut config = json!({
        "version": "0.1",
        "log": { "level": "info" },
        "storage": {
            "filesystem": { "rootdirectory": dir.join("data") },
            "delete": { "enabled": true },
        },
        "http": { "addr": address.to_string(), "secret": rundir::random_hex(16)? },
    });
    if options.tls {
        config["http"]["tls"] = json!({ "certificate": dir.join("tls.pem"), "key": dir.join("tls.key") });
    }
    if !options.anonymous {
        let realm = json!({ "realm": "renderhub-test", "path": dir.join("htpasswd") });
        config["auth"] = json!({ "htpasswd": realm });
    }
    Ok(config)
}
