//! The real helm, kept apart from its user's own configuration, repositories and logins.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{Tools, rundir};

/// Helm as one user of one cluster; what it keeps is in a directory of its own, removed with the process.
#[derive(Debug, Clone)]
pub struct Helm {
    program: PathBuf,
    home: PathBuf,
    kubeconfig: Option<PathBuf>,
}

impl Helm {
    /// Helm without a cluster: enough to lint, to template and to pull.
    ///
    /// # Errors
    /// If helm cannot be built.
    pub fn new() -> Result<Self> {
        Ok(Self {
            program: Tools::path("helm")?,
            home: rundir::fresh("helm")?,
            kubeconfig: None,
        })
    }

    /// Helm that installs into the cluster of a kubeconfig, as its user.
    #[must_use]
    pub fn with_cluster(mut self, kubeconfig: impl Into<PathBuf>) -> Self {
        self.kubeconfig = Some(kubeconfig.into());
        self
    }

    /// Logs in to a registry: the password goes into a file that only its owner reads, never into a command line.
    ///
    /// # Errors
    /// If the file cannot be written, or this helm has logged in before.
    pub fn with_login(self, registry: &str, username: &str, password: &str) -> Result<Self> {
        let auth = STANDARD.encode(format!("{username}:{password}"));
        let logins = json!({ "auths": { registry: { "auth": auth } } });
        rundir::write_private(&self.logins(), logins.to_string().as_bytes())?;
        Ok(self)
    }

    /// Runs helm to its end and returns what it printed. It is killed if the returned future is dropped.
    ///
    /// # Errors
    /// If it cannot be started or fails; the error holds what it wrote on standard error.
    pub async fn run<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<String> {
        let output = self.ended(words).await?;
        if !output.status.success() {
            bail!(
                "helm {} failed ({}):\n{}",
                first(words),
                output.status,
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// The same where helm may fail: whether it succeeded, and all that it wrote.
    ///
    /// # Errors
    /// If it cannot be started.
    pub async fn try_run<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<(bool, String)> {
        let output = self.ended(words).await?;
        let said = [&output.stdout[..], &output.stderr].concat();
        Ok((
            output.status.success(),
            String::from_utf8_lossy(&said).into_owned(),
        ))
    }

    async fn ended<S: AsRef<OsStr>>(&self, words: &[S]) -> Result<Output> {
        let mut command = Command::new(&self.program);
        command.args(words).stdin(Stdio::null()).kill_on_drop(true);
        for name in ["CACHE", "CONFIG", "DATA"] {
            command.env(format!("HELM_{name}_HOME"), self.home.join(name));
        }
        command.env("HELM_REGISTRY_CONFIG", self.logins());
        // It ends before its garbage collector is worth a third of its time.
        command.env("GOGC", "off");
        // Without a cluster of the harness it must not find the developer's.
        command.env(
            "KUBECONFIG",
            self.kubeconfig.as_deref().unwrap_or(Path::new("/dev/null")),
        );
        let ended = command.output().await;
        ended.with_context(|| format!("cannot start helm {}", first(words)))
    }

    /// Pulls `oci://…` over plain HTTP and unpacks it below `into`; returns the chart's directory.
    ///
    /// # Errors
    /// If helm does not get it, or it holds no chart named as the last part of its address.
    pub async fn pull_plain(&self, url: &str, version: &str, into: &Path) -> Result<PathBuf> {
        let words = [
            "pull",
            url,
            "--version",
            version,
            "--plain-http",
            "--untar",
            "--untardir",
        ]
        .map(OsStr::new);
        self.run(&[&words[..], &[into.as_os_str()]].concat()).await?;
        let chart = into.join(url.rsplit('/').next().unwrap_or_default());
        if !chart.join("Chart.yaml").is_file() {
            bail!("{url} has no chart of that name in it");
        }
        Ok(chart)
    }

    fn logins(&self) -> PathBuf {
        self.home.join("logins.json")
    }
}

fn first<S: AsRef<OsStr>>(words: &[S]) -> String {
    let word = words.first();
    word.map(|word| word.as_ref().to_string_lossy().into_owned())
        .unwrap_or_default()
}

/// What the repository's own chart makes with these values, each as after `--set`, for a release named `renderhub`.
///
/// # Errors
/// If helm refuses the values.
pub async fn template(helm: &Helm, namespace: &str, sets: &[&str]) -> Result<Vec<Value>> {
    template_as(helm, "renderhub", namespace, sets).await
}

/// The same for a release of another name.
///
/// # Errors
/// If helm refuses the values.
pub async fn template_as(helm: &Helm, release: &str, namespace: &str, sets: &[&str]) -> Result<Vec<Value>> {
    let chart = renderhub_chart();
    let words = ["template", release, "--namespace", namespace].map(OsStr::new);
    let sets = sets.iter().flat_map(|set| ["--set", set]).map(OsStr::new);
    let all: Vec<&OsStr> = words.into_iter().chain([chart.as_os_str()]).chain(sets).collect();
    documents(&helm.run(&all).await?)
}

/// The documents of a YAML text, without empty ones.
///
/// # Errors
/// If it is no YAML.
pub fn documents(text: &str) -> Result<Vec<Value>> {
    let mut all = Vec::new();
    // One by one, because the decoder takes a thousand of them at most.
    for part in text.split("\n---\n") {
        let read: Vec<Value> =
            serde_saphyr::from_multiple(part).map_err(|error| anyhow::anyhow!("this is no YAML: {error}"))?;
        all.extend(read.into_iter().filter(|document| !document.is_null()));
    }
    Ok(all)
}

/// The directory of this repository's own chart.
#[must_use]
pub fn renderhub_chart() -> PathBuf {
    let harness = Path::new(env!("CARGO_MANIFEST_DIR"));
    harness
        .ancestors()
        .nth(2)
        .unwrap_or(harness)
        .join("charts/renderhub")
}
