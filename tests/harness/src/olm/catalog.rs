//! A catalog of one operator, served by `opm` from files: no image of a bundle is needed.

use std::fmt::Write as _;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use super::NAMESPACE;
use crate::process::Process;
use crate::progress::Progress;
use crate::{Tools, net, rundir, wait_for};

/// How long it may take to listen, on a machine that is busy with other tests.
const READY_LIMIT: Duration = Duration::from_secs(90);
/// The only channel of a catalog.
const CHANNEL: &str = "stable";

/// A version of an operator.
#[derive(Debug, Clone)]
pub struct Bundle {
    /// Its version, e.g. `1.0.0`; the next one of a catalog replaces it.
    pub version: String,
    /// Its Deployments: name, ServiceAccount and image of each.
    pub deployments: Vec<(String, String, String)>,
    /// Packages that OLM installs with it, of any version.
    pub requires: Vec<String>,
}

impl Bundle {
    /// One with a single Deployment.
    #[must_use]
    pub fn new(version: &str, deployment: &str, account: &str, image: &str) -> Self {
        let deployment = (deployment.to_owned(), account.to_owned(), image.to_owned());
        Self {
            version: version.to_owned(),
            deployments: vec![deployment],
            requires: Vec::new(),
        }
    }

    /// The same with a package that OLM installs with it.
    #[must_use]
    pub fn requiring(mut self, package: &str) -> Self {
        self.requires.push(package.to_owned());
        self
    }
}

/// A catalog with one package; it ends when it is dropped, and its files with it.
#[derive(Debug)]
pub struct Catalog {
    package: String,
    dir: PathBuf,
    address: SocketAddr,
    process: Process,
}

impl Catalog {
    /// Serves a package with these versions, the oldest first.
    ///
    /// # Errors
    /// If `opm` cannot be built or does not start.
    pub async fn start(package: &str, bundles: &[Bundle]) -> Result<Self> {
        let program = Tools::path("opm")?;
        let _progress = Progress::start("starting a catalog");
        let ip = net::loopback();
        // `opm` listens on every address.
        let everywhere = Ipv4Addr::UNSPECIFIED.into();
        let [address, profile] = net::free_ports::<2>(everywhere)?.map(|port| SocketAddr::new(ip, port));
        let dir = rundir::fresh("catalog")?;
        fs::create_dir(dir.join("files"))?;
        write(&dir, package, bundles)?;
        let mut command = Command::new(program);
        command
            .arg("serve")
            .arg(dir.join("files"))
            .args([
                "--port",
                &address.port().to_string(),
                "--cache-enforce-integrity=false",
            ])
            .arg("--cache-dir")
            .arg(dir.join("cache"))
            .args(["--pprof-addr", &profile.to_string()])
            .arg("--termination-log")
            .arg(dir.join("ended"))
            .current_dir(&dir);
        let catalog = Self {
            package: package.to_owned(),
            process: Process::spawn("the catalog", &command, &dir.join("opm.log"))?,
            address,
            dir,
        };
        catalog.until_listening().await?;
        Ok(catalog)
    }

    /// Serves other versions from now on.
    ///
    /// # Errors
    /// If it does not start again.
    pub async fn change(&self, bundles: &[Bundle]) -> Result<()> {
        self.process.kill();
        write(&self.dir, &self.package, bundles)?;
        let _ = fs::remove_dir_all(self.dir.join("cache"));
        self.process.restart()?;
        self.until_listening().await
    }

    async fn until_listening(&self) -> Result<()> {
        let waited = wait_for("the catalog to listen", READY_LIMIT, async || {
            if let Err(ended) = self.process.check_running() {
                return Ok(Some(Err(ended)));
            }
            Ok(net::accepts(self.address).then_some(Ok(())))
        });
        waited.await?
    }

    /// A `CatalogSource` of it that names pull Secrets.
    #[must_use]
    pub fn source(&self, name: &str, secrets: &[&str]) -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "CatalogSource",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"sourceType": "grpc", "address": self.address.to_string(), "secrets": secrets},
        })
    }

    /// A Subscription to its package.
    #[must_use]
    pub fn subscription(&self, name: &str, namespace: &str, source: &str) -> Value {
        json!({
            "apiVersion": "operators.coreos.com/v1alpha1", "kind": "Subscription",
            "metadata": {"name": name, "namespace": namespace},
            "spec": {
                "name": self.package, "channel": CHANNEL, "source": source, "sourceNamespace": NAMESPACE,
                "installPlanApproval": "Automatic",
            },
        })
    }
}

impl Drop for Catalog {
    fn drop(&mut self) {
        self.process.kill();
        let _ = fs::remove_dir_all(&self.dir);
    }
}

fn write(dir: &std::path::Path, package: &str, bundles: &[Bundle]) -> Result<()> {
    let name = |bundle: &Bundle| format!("{package}.v{}", bundle.version);
    let entry = |(at, bundle): (usize, &Bundle)| {
        let mut entry = json!({"name": name(bundle)});
        if let Some(before) = at.checked_sub(1).and_then(|before| bundles.get(before)) {
            entry["replaces"] = json!(name(before));
        }
        entry
    };
    let entries: Vec<Value> = bundles.iter().enumerate().map(entry).collect();
    let mut text = String::new();
    let package_blob = json!({"schema": "olm.package", "name": package, "defaultChannel": CHANNEL});
    let channel = json!({"schema": "olm.channel", "package": package, "name": CHANNEL, "entries": entries});
    for blob in [package_blob, channel] {
        writeln!(text, "{blob}")?;
    }
    for (at, bundle) in bundles.iter().enumerate() {
        let before = at.checked_sub(1).and_then(|before| bundles.get(before)).map(name);
        let version = csv(&name(bundle), before, bundle);
        let mut properties = vec![
            json!({"type": "olm.package", "value": {"packageName": package, "version": bundle.version}}),
            json!({"type": "olm.bundle.object", "value": {"data": STANDARD.encode(version.to_string())}}),
        ];
        let required = bundle.requires.iter();
        properties.extend(required.map(|package| {
            json!({"type": "olm.package.required", "value": {"packageName": package, "versionRange": ">=0.0.0"}})
        }));
        let blob = json!({
            "schema": "olm.bundle", "package": package, "name": name(bundle), "image": "", "properties": properties,
        });
        writeln!(text, "{blob}")?;
    }
    Ok(fs::write(dir.join("files/catalog.json"), text)?)
}

/// A version as OLM installs it.
fn csv(name: &str, before: Option<String>, bundle: &Bundle) -> Value {
    let rules = json!([{"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get"]}]);
    let mut accounts: Vec<_> = bundle.deployments.iter().map(|(_, account, _)| account).collect();
    accounts.sort();
    accounts.dedup();
    let permission = |account: &&String| json!({"serviceAccountName": account, "rules": rules});
    let permissions: Vec<_> = accounts.iter().map(permission).collect();
    let modes = [
        "OwnNamespace",
        "SingleNamespace",
        "MultiNamespace",
        "AllNamespaces",
    ];
    let mut version = json!({
        "apiVersion": "operators.coreos.com/v1alpha1", "kind": "ClusterServiceVersion", "metadata": {"name": name},
        "spec": {
            "displayName": name, "version": bundle.version,
            "installModes": modes.map(|mode| json!({"type": mode, "supported": mode != "MultiNamespace"})),
            "install": {"strategy": "deployment", "spec": {
                "permissions": permissions,
                "deployments": bundle.deployments.iter().map(deployment).collect::<Vec<_>>(),
            }},
        },
    });
    if let Some(before) = before {
        version["spec"]["replaces"] = json!(before);
    }
    version
}

fn deployment((name, account, image): &(String, String, String)) -> Value {
    let labels = json!({"app": name});
    json!({"name": name, "spec": {
        "replicas": 1, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {
            "serviceAccountName": account, "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "controller", "image": image, "imagePullPolicy": "Always"}],
        }},
    }})
}
